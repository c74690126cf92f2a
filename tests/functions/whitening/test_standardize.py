import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from lawful.functions.whitening import ENTRIES, RunningMoments, Standardizer, squares, standardize


def data(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype) * 3 + 7


@pytest.mark.parametrize("axes", [(0,), (1,), (-1,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("eps", [0.0, 0.3])
def test_equals_numpy_over_any_axes(axes, eps):
    x = data(4, 3, 5)
    a = x.numpy()
    wanted = (a - a.mean(axes, keepdims=True)) / np.sqrt(a.var(axes, keepdims=True) + eps)
    np.testing.assert_allclose(standardize(x, axes=axes, eps=eps), wanted, atol=1e-12)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("n", [20, ENTRIES])
def test_equals_scikit_learn(dtype, close, n):
    x, new = data(n, 3, dtype=dtype), data(5, 3, dtype=dtype) * 2
    ours, peer = Standardizer.fit(x), StandardScaler().fit(x.numpy())
    np.testing.assert_allclose(ours.mean, peer.mean_, rtol=close)
    np.testing.assert_allclose(ours.variance, peer.var_, rtol=close)
    np.testing.assert_allclose(ours.transform(new), peer.transform(new.numpy()), atol=10 * close)
    np.testing.assert_allclose(ours.inverse(new), peer.inverse_transform(new.numpy()), rtol=close)
    np.testing.assert_allclose(ours.transform(x), peer.transform(x.numpy()), atol=10 * close)


def test_a_stream_equals_scikit_learns():
    x = data(500, 3)
    ours, peer = Standardizer.fit(x[:2]), StandardScaler()
    for batch in x[2:].split(77):
        ours = ours.update(batch)
    for batch in x.split(50):
        peer.partial_fit(batch.numpy())
    np.testing.assert_allclose(ours.transform(x), peer.transform(x.numpy()), atol=1e-12)
    np.testing.assert_allclose(Standardizer(RunningMoments.over(x.split(1), scatters=squares)).variance, peer.var_)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e8 / 3])
@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_a_constant_feature_is_exactly_zero_and_is_named(dtype, value, eps):
    x = data(1001, 2, dtype=dtype)
    x[:, 1] = value
    fitted = Standardizer.fit(x, eps=eps)
    assert fitted.constant.tolist() == [False, True]
    assert (fitted.transform(x)[:, 1] == 0).all()
    assert (standardize(x, eps=eps)[:, 1] == 0).all()
    assert (fitted.inverse(fitted.transform(x))[:, 1] == x[0, 1]).all()
    assert not fitted.update(x[:1] + 1).constant.any()


@pytest.mark.parametrize("axes", [(0,), (0, 1)])
def test_the_gradient_is_the_derivative(axes):
    assert torch.autograd.gradcheck(lambda x: standardize(x, axes=axes, eps=0.1), data(4, 3).requires_grad_())


def test_the_gradient_at_a_constant_is_zero():
    x = torch.full((4, 2), 0.1, requires_grad=True)
    standardize(x).square().sum().backward()
    assert (x.grad == 0).all()


def test_gradients_pass_through_transform_and_inverse():
    fitted = Standardizer.fit(data(9, 2))
    x = data(3, 2).requires_grad_()
    assert torch.autograd.gradcheck(fitted.transform, x)
    assert torch.autograd.gradcheck(fitted.inverse, x)


def test_one_row_features_of_any_shape_and_another_precision():
    x = data(10, 2, 3)
    fitted = Standardizer.fit(x)
    torch.testing.assert_close(fitted.transform(x[0]), fitted.transform(x)[0])
    torch.testing.assert_close(fitted.transform(x.float()), fitted.transform(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fitted.inverse(fitted.transform(x)), x)


def test_nan_propagates_in_new_data_and_is_refused_in_a_fit():
    x = data(5, 2)
    fitted = Standardizer.fit(x)
    x[0, 0] = torch.nan
    assert fitted.transform(x).isnan().sum() == 1
    assert standardize(x).isnan().sum() == 5
    with pytest.raises(ValueError, match="finite numbers"):
        Standardizer.fit(x)
    with pytest.raises(ValueError, match="finite numbers"):
        fitted.update(x)


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="at least 2 rows: got 1"):
        Standardizer.fit(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="not negative: got -1"):
        standardize(torch.zeros(3, 2), eps=-1.0)
    with pytest.raises(ValueError, match="not negative: got -1"):
        Standardizer.fit(torch.zeros(3, 2), eps=-1.0)
    with pytest.raises(ValueError, match=r"got shape \(0, 2\)"):
        standardize(torch.zeros(0, 2))
    with pytest.raises(ValueError, match=r"axes \(\)"):
        standardize(torch.zeros(3, 2), axes=())
    with pytest.raises(ValueError, match=r"features of shape \(2,\) were wanted: got shape \(4, 3\)"):
        Standardizer.fit(torch.zeros(3, 2)).transform(torch.zeros(4, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e30])
def test_how_large_the_numbers_are_makes_no_difference(dtype, size):
    x = data(8, 3, dtype=dtype) - 7
    torch.testing.assert_close(standardize(size * x), standardize(x))
    lifted = standardize(1e-30 * x, eps=4.0)
    torch.testing.assert_close(lifted * 1e30, (x - x.mean(0)) / 2, rtol=1e-5, atol=1e-5)
