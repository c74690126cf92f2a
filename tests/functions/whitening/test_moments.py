import numpy as np
import pytest
import torch

from lawful.functions.whitening import ENTRIES, RunningMoments, Standardizer, Whitening, products, squares


def data(n, d, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("n", [1, 7, ENTRIES // 2 + 5, ENTRIES * 3 // 2])
def test_equals_numpy_however_many_pieces(n):
    x = data(n, 2) * 3 + 5
    found = RunningMoments.of(x, scatters=products)
    np.testing.assert_allclose(found.mean, x.numpy().mean(0))
    np.testing.assert_allclose(found.scatter / n, np.cov(x.numpy().T, bias=True) if n > 1 else 0, atol=1e-12)
    np.testing.assert_allclose(RunningMoments.of(x, scatters=squares).scatter / n, x.numpy().var(0), atol=1e-12)


def test_far_from_the_origin_nothing_cancels():
    x = data(5000, 3)
    near, far = RunningMoments.of(x, scatters=products), RunningMoments.of(x + 1e8, scatters=products)
    torch.testing.assert_close(far.scatter, near.scatter, rtol=1e-6, atol=1e-3)


def test_sorted_data_and_an_outlier_in_front_lose_nothing():
    x = data(ENTRIES, 1).sort(0).values
    x[0] = 1e6
    exact = x.numpy().astype(np.longdouble).var()
    np.testing.assert_allclose(
        float(RunningMoments.of(x, scatters=squares).scatter[0]) / len(x), float(exact), rtol=1e-12
    )


def test_a_stream_gives_what_the_whole_gives_in_any_order_of_merging():
    x = data(1000, 4)
    whole = RunningMoments.of(x, scatters=products)
    streamed = RunningMoments.over(iter(x.split([1, 1, 98, 900])), scatters=products)
    a, b, c = (RunningMoments.of(part, scatters=products) for part in x.split([300, 300, 400]))
    for found in (streamed, a.merge(b.merge(c)), c.merge(a).merge(b)):
        assert found.n == 1000
        torch.testing.assert_close(found.mean, whole.mean)
        torch.testing.assert_close(found.scatter, whole.scatter)


def test_single_precision_and_features_of_any_shape():
    x = data(600, 4, torch.float32).reshape(600, 2, 2)
    found = RunningMoments.of(x, scatters=squares)
    assert found.mean.shape == found.scatter.shape == (2, 2)
    np.testing.assert_allclose(found.scatter / 600, x.numpy().var(0), rtol=1e-5)


def test_a_constant_has_a_scatter_of_exactly_zero():
    x = torch.full((999, 1), 0.1)
    assert RunningMoments.of(x, scatters=squares).merge(RunningMoments.of(x[:5], scatters=squares)).scatter == 0


def test_strided_data_and_data_with_a_gradient():
    x = data(8, 6)
    torch.testing.assert_close(RunningMoments.of(x[::2, ::3], scatters=products).mean, x[::2, ::3].mean(0))
    assert not RunningMoments.of(x.requires_grad_(), scatters=products).scatter.requires_grad


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 1e200])
def test_refuses_what_is_not_finite(bad):
    x = data(5, 2)
    x[3, 1] = bad
    with pytest.raises(ValueError, match="finite numbers"):
        RunningMoments.of(x, scatters=products)


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"at least one row and one feature were wanted: got shape \(0, 2\)"):
        RunningMoments.of(torch.zeros(0, 2), scatters=squares)
    with pytest.raises(ValueError, match="at least one batch was wanted: got none"):
        RunningMoments.over([], scatters=squares)
    with pytest.raises(ValueError, match=r"features of shape \(2,\) were wanted: got \(3,\)"):
        RunningMoments.of(torch.zeros(1, 2), scatters=squares).merge(
            RunningMoments.of(torch.zeros(1, 3), scatters=squares)
        )
    with pytest.raises(TypeError):
        RunningMoments.of(torch.zeros(3, 2, dtype=torch.long), scatters=squares)


def test_moments_of_two_kinds_are_not_mixed():
    x = data(5, 2)
    with pytest.raises(ValueError, match="of one kind were wanted: got squares and products"):
        RunningMoments.of(x, scatters=squares).merge(RunningMoments.of(x, scatters=products))
    with pytest.raises(ValueError, match="moments with products were wanted: got squares"):
        Whitening(RunningMoments.of(x, scatters=squares))
    with pytest.raises(ValueError, match="moments with squares were wanted: got products"):
        Standardizer(RunningMoments.of(x, scatters=products))


@pytest.mark.parametrize("scatters", [squares, products])
def test_numbers_whose_squares_vanish_are_refused_and_not_called_constant(scatters):
    x = data(5, 2, torch.float32)
    x[:, 1] *= 1e-30
    with pytest.raises(ValueError, match="squares above 0 were wanted"):
        RunningMoments.of(x, scatters=scatters)
    x[:, 1] = 1e-30
    assert RunningMoments.of(x, scatters=scatters).n == 5
