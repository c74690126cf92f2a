from math import pi

import pytest
import torch

from lawful.groups import SE2, SO2
from lawful.groups.matrices import bracket, exp_mean

G = SE2()
SMALL = [10.0**-k for k in range(9, 0, -1)]
ANGLES = [0.0, *SMALL, 1.0, 2.0, 3.0, *(pi - a for a in SMALL[2:]), pi]


def directions(dtype, angles=ANGLES, n=12):
    g = torch.Generator().manual_seed(0)
    turn = torch.nn.functional.normalize(torch.randn(n, 1, generator=g, dtype=torch.float64), dim=-1)
    turns = torch.tensor(angles, dtype=torch.float64)[:, None, None] * turn
    moves = torch.randn(len(angles), n, 2, generator=g, dtype=torch.float64)
    return torch.cat([moves, turns], dim=-1).flatten(0, 1).to(dtype)


def reference(v):
    return torch.linalg.matrix_exp(G.hat(v))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exp_and_log_undo_each_other(dtype):
    v, eps = directions(dtype), torch.finfo(dtype).eps
    g = G.exp(v)
    assert (g - reference(v.double())).abs().max() <= 20 * eps * v.abs().max()
    assert (G.exp(G.log(g)) - g).abs().max() <= 10 * eps * v.abs().max()
    inside = v[:, 2:].double().norm(dim=-1) < pi * (1 - 4 * eps)
    assert (G.log(g) - v)[inside].abs().max() <= 10 * eps * pi


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives(dtype):
    v, eps = directions(dtype, ANGLES[::2], n=1), torch.finfo(dtype).eps
    for order in (torch.func.jacrev, lambda f: torch.func.jacrev(torch.func.jacrev(f))):
        wanted = torch.func.vmap(order(reference))(v.double())
        assert (torch.func.vmap(order(G.exp))(v) - wanted).abs().max() <= 100 * eps
    inside = v[:, 2:].double().norm(dim=-1) < pi - 1e-5
    slope = torch.func.vmap(torch.func.jacrev(lambda v: G.log(G.exp(v))))(v)
    assert (slope - torch.eye(3, dtype=dtype))[inside].abs().max() <= 200 * eps
    jacobian = torch.func.jacrev(G.log)
    assert torch.func.vmap(jacobian)(G.exp(v)).isfinite().all()
    assert torch.func.vmap(torch.func.jacrev(jacobian))(G.exp(v)).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_jacobians(dtype):
    v, eps = directions(dtype), torch.finfo(dtype).eps
    wanted = exp_mean(bracket(v.double(), hat=G.hat, vee=G.vee))
    assert (G.left_jacobian(v) - wanted).abs().max() <= 40 * eps
    assert (G.left_jacobian_inverse(v) - torch.linalg.inv(wanted)).abs().max() <= 100 * eps
    other = exp_mean(bracket(-v.double(), hat=G.hat, vee=G.vee))
    assert (G.right_jacobian(v) - other).abs().max() <= 40 * eps
    step = 1e-6 * torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    here = v.double()
    moved = G.log(G.compose(G.exp(here + step), G.inverse(G.exp(here))))
    torch.testing.assert_close(moved, (wanted @ step[..., None])[..., 0], rtol=0, atol=1e-10)


def test_acts_on_points_as_on_homogeneous_ones():
    g = G.sample(20, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    wanted = (g @ torch.cat([x, torch.ones(20, 1)], dim=-1)[..., None])[:, :2, 0]
    torch.testing.assert_close(G.act(g, x), wanted)
    torch.testing.assert_close(G.inverse(g), torch.linalg.inv(g))
    torch.testing.assert_close(G.vee(G.hat(directions(torch.float64))), directions(torch.float64))
    rotation = g[:, :2, :2]
    torch.testing.assert_close(torch.linalg.det(rotation), torch.ones(20, dtype=torch.float64))
    between = SO2().distance(rotation[:10], rotation[10:])
    moved = (g[:10, :2, 2] - g[10:, :2, 2]).norm(dim=-1)
    torch.testing.assert_close(G.distance(g[:10], g[10:]), torch.hypot(between, moved))


def test_distance_has_no_nan_in_its_gradient():
    g = G.sample(3, generator=torch.Generator().manual_seed(4)).requires_grad_()
    assert torch.autograd.grad(G.distance(g, g.detach()).sum(), g)[0].isfinite().all()


def test_shapes():
    assert G.identity(2, 3).shape == G.sample(2, 3).shape == (2, 3, 3, 3)
    assert G.log(G.identity(2)).eq(0).all()
    assert G.exp(torch.zeros(0, 3)).shape == (0, 3, 3)
    for call in (lambda: G.exp(torch.zeros(3 + 1)), lambda: G.log(torch.zeros(2, 2)), lambda: G.hat(torch.zeros(2))):
        with pytest.raises((ValueError, TypeError)):
            call()
