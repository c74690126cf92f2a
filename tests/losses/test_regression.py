import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lawful.losses import lp_loss


def pair(*shape):
    generator = torch.Generator().manual_seed(0)
    return tuple(2 * torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(2))


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 7.0])
def test_equals_numpy(p):
    v, w = pair(4, 5)
    np.testing.assert_allclose(lp_loss(v, w, p=p, reduction="none"), np.abs((v - w).numpy()) ** p)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_equals_torch(reduction):
    v, w = pair(7, 3)
    torch.testing.assert_close(lp_loss(v, w, p=1.0, reduction=reduction), F.l1_loss(v, w, reduction=reduction))
    torch.testing.assert_close(lp_loss(v, w, p=2.0, reduction=reduction), F.mse_loss(v, w, reduction=reduction))


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
def test_gradients_are_right_and_zero_at_the_target(p):
    v, w = pair(3, 2)
    assert torch.autograd.gradcheck(lambda v: lp_loss(v, w, p=p), v.requires_grad_())
    at = w.clone().requires_grad_()
    lp_loss(at, w, p=p).backward()
    assert (at.grad == 0).all()


@pytest.mark.parametrize(("p", "expected"), [(2.0, 0.4), (3.0, 0.0)])
def test_second_derivatives_at_the_target(p, expected):
    w = pair(5)[0]
    hessian = torch.autograd.functional.hessian(lambda v: lp_loss(v, w, p=p), w)
    torch.testing.assert_close(hessian, expected * torch.eye(5).double())


def test_nan_propagates():
    v, w = pair(3, 2)
    v[0, 0] = torch.nan
    assert lp_loss(v, w, p=1.5).isnan()
    assert lp_loss(v, w, p=1.5, reduction="none").isnan().sum() == 1


def test_invalid_arguments():
    with pytest.raises(ValueError, match=r"expected a target of shape \(3, 1\), got \(3,\)"):
        lp_loss(torch.zeros(3, 1), torch.zeros(3), p=1.5)
    with pytest.raises(ValueError, match=r"expected at least one entry, got shape \(0, 2\)"):
        lp_loss(torch.zeros(0, 2), torch.zeros(0, 2), p=1.5)
    for v, w in (
        (torch.zeros(2), torch.zeros(2, dtype=torch.long)),
        (torch.zeros(2, dtype=torch.long), torch.zeros(2)),
    ):
        with pytest.raises(TypeError, match=rf"floating-point tensors, got {v.dtype} and {w.dtype}"):
            lp_loss(v, w, p=1.5)
    for p in (0.5, torch.inf, torch.nan):
        with pytest.raises(ValueError, match=f"expected a finite p >= 1, got {p}"):
            lp_loss(*pair(2), p=p)
