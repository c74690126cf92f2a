from math import pi

import pytest
import torch
from scipy.stats import kstest

from lawful.groups import SO2

G = SO2()
SMALL = [10.0**-k for k in range(9, 0, -1)]
ANGLES = [0.0, *SMALL, 1.0, 2.0, 3.0, *(pi - a for a in SMALL), pi]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exp_and_log_undo_each_other(dtype):
    v = torch.tensor([*ANGLES, *(-a for a in ANGLES)], dtype=dtype)[:, None]
    eps = torch.finfo(dtype).eps
    r = G.exp(v)
    assert (G.exp(G.log(r)) - r).abs().max() <= 10 * eps
    inside = v.double().abs() < pi * (1 - eps)
    assert ((G.log(r) - v).abs() * inside).max() <= 10 * eps * pi


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives(dtype):
    v = torch.tensor(ANGLES, dtype=dtype)[:, None]
    sine, cosine = v[:, 0].sin(), v[:, 0].cos()
    first = torch.stack([-sine, -cosine, cosine, -sine], -1).unflatten(-1, (2, 2))
    torch.testing.assert_close(torch.func.vmap(torch.func.jacrev(G.exp))(v)[..., 0], first)
    second = torch.func.vmap(torch.func.jacrev(torch.func.jacrev(G.exp)))(v)[..., 0, 0]
    torch.testing.assert_close(second, -G.exp(v))
    slope = torch.func.vmap(torch.func.jacrev(lambda v: G.log(G.exp(v))))(v)
    torch.testing.assert_close(slope, torch.ones_like(slope))
    assert torch.func.vmap(torch.func.jacrev(torch.func.jacrev(G.log)))(G.exp(v)).isfinite().all()


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_half_turn_is_plus_pi(zero):
    r = torch.tensor([[-1.0, -zero], [zero, -1.0]])
    torch.testing.assert_close(G.log(r), torch.tensor([pi]))


def test_samples_are_uniform():
    r = G.sample(5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert kstest(G.log(r)[:, 0], "uniform", (-pi, 2 * pi)).pvalue > 1e-3


def test_distance_has_no_nan_in_its_gradient():
    r = G.exp(torch.tensor([0.3])).requires_grad_()
    assert torch.autograd.grad(G.distance(r, r.detach()), r)[0].isfinite().all()


def test_wrong_shapes_are_refused():
    for call in (lambda: G.exp(torch.zeros(2)), lambda: G.log(torch.zeros(3, 3)), lambda: G.hat(torch.zeros(3))):
        with pytest.raises((ValueError, TypeError)):
            call()
