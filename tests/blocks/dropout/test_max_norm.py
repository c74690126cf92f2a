import pytest
import torch

from lawful.blocks import max_norm


@pytest.mark.parametrize("shape", [(6, 4), (5, 3, 2), (4, 2, 3, 3)])
def test_equals_torch(shape):
    w = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(max_norm(w, limit=1.5), torch.renorm(w, 2, 0, 1.5))


def test_short_rows_stay_and_a_zero_row_has_a_gradient():
    w = torch.tensor([[0.0, 0.0], [0.3, 0.1], [3.0, 4.0]], requires_grad=True)
    y = max_norm(w, limit=1.0)
    torch.testing.assert_close(y[:2], w[:2], rtol=0, atol=0)
    y.sum().backward()
    assert w.grad.isfinite().all()


def test_nan_propagates():
    assert max_norm(torch.tensor([[float("nan"), 1.0], [0.1, 0.1]]), limit=1.0).isnan().any(1).tolist() == [True, False]


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="above 0: got 0"):
        max_norm(torch.zeros(2, 2), limit=0.0)
    with pytest.raises(ValueError, match=r"got shape \(2,\)"):
        max_norm(torch.zeros(2), limit=1.0)


def test_an_infinite_limit_changes_nothing():
    w = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    y = max_norm(w, limit=float("inf"))
    assert y.equal(w)
    y.sum().backward()
    assert w.grad.equal(torch.ones_like(w))
