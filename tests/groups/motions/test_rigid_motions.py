"""Rotations with translations, of the plane and of space."""

from math import pi
from typing import NamedTuple

import pytest
import torch

from lawful.groups import SE2, SE3, SO2, SO3, LieGroup
from lawful.groups.group import bracket, exp_mean


class Motions(NamedTuple):
    """A group of them, its rotations, the dimension of the space, and how many numbers give a rotation."""

    group: LieGroup
    turns: LieGroup
    d: int
    k: int


@pytest.fixture(params=[Motions(SE2(), SO2(), 2, 1), Motions(SE3(), SO3(), 3, 3)], ids=["SE2", "SE3"])
def motions(request):
    return request.param


SMALL = [10.0**-k for k in range(9, 0, -1)]
ANGLES = [0.0, *SMALL, 1.0, 2.0, 3.0, *(pi - a for a in SMALL[2:]), pi]


def directions(motions, dtype, angles=ANGLES, n=12):
    g = torch.Generator().manual_seed(0)
    turn = torch.nn.functional.normalize(torch.randn(n, motions.k, generator=g, dtype=torch.float64), dim=-1)
    turns = torch.tensor(angles, dtype=torch.float64)[:, None, None] * turn
    moves = torch.randn(len(angles), n, motions.d, generator=g, dtype=torch.float64)
    return torch.cat([moves, turns], dim=-1).flatten(0, 1).to(dtype)


def reference(motions):
    return lambda v: torch.linalg.matrix_exp(motions.group.hat(v))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exp_and_log_undo_each_other(dtype, motions):
    G, d = motions.group, motions.d
    v, eps = directions(motions, dtype), torch.finfo(dtype).eps
    g = G.exp(v)
    assert (g - reference(motions)(v.double())).abs().max() <= 20 * eps * v.abs().max()
    assert (G.exp(G.log(g)) - g).abs().max() <= 10 * eps * v.abs().max()
    inside = v[:, d:].double().norm(dim=-1) < pi * (1 - 4 * eps)
    assert (G.log(g) - v)[inside].abs().max() <= 10 * eps * pi


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives(dtype, motions):
    G, d = motions.group, motions.d
    v, eps = directions(motions, dtype, ANGLES[::2], n=1), torch.finfo(dtype).eps
    for order in (torch.func.jacrev, lambda f: torch.func.jacrev(torch.func.jacrev(f))):
        wanted = torch.func.vmap(order(reference(motions)))(v.double())
        assert (torch.func.vmap(order(G.exp))(v) - wanted).abs().max() <= 100 * eps
    inside = v[:, d:].double().norm(dim=-1) < pi - 1e-5
    slope = torch.func.vmap(torch.func.jacrev(lambda v: G.log(G.exp(v))))(v)
    assert (slope - torch.eye(G.dim, dtype=dtype))[inside].abs().max() <= 200 * eps
    jacobian = torch.func.jacrev(G.log)
    assert torch.func.vmap(jacobian)(G.exp(v)).isfinite().all()
    assert torch.func.vmap(torch.func.jacrev(jacobian))(G.exp(v)).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_jacobians(dtype, motions):
    G = motions.group
    v, eps = directions(motions, dtype), torch.finfo(dtype).eps
    wanted = exp_mean(bracket(v.double(), hat=G.hat, vee=G.vee))
    assert (G.left_jacobian(v) - wanted).abs().max() <= 40 * eps
    assert (G.left_jacobian_inverse(v) - torch.linalg.inv(wanted)).abs().max() <= 100 * eps
    other = exp_mean(bracket(-v.double(), hat=G.hat, vee=G.vee))
    assert (G.right_jacobian(v) - other).abs().max() <= 40 * eps
    step = 1e-6 * torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    here = v.double()
    moved = G.log(G.compose(G.exp(here + step), G.inverse(G.exp(here))))
    torch.testing.assert_close(moved, (wanted @ step[..., None])[..., 0], rtol=0, atol=1e-10)


def test_acts_on_points_as_on_homogeneous_ones(motions):
    G, d = motions.group, motions.d
    g = G.sample(20, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x = torch.randn(20, d, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    wanted = (g @ torch.cat([x, torch.ones(20, 1)], dim=-1)[..., None])[:, :d, 0]
    torch.testing.assert_close(G.act(g, x), wanted)
    torch.testing.assert_close(G.inverse(g), torch.linalg.inv(g))
    torch.testing.assert_close(G.vee(G.hat(directions(motions, torch.float64))), directions(motions, torch.float64))
    rotation = g[:, :d, :d]
    torch.testing.assert_close(torch.linalg.det(rotation), torch.ones(20, dtype=torch.float64))
    between = motions.turns.distance(rotation[:10], rotation[10:])
    moved = (g[:10, :d, d] - g[10:, :d, d]).norm(dim=-1)
    torch.testing.assert_close(G.distance(g[:10], g[10:]), torch.hypot(between, moved))


def test_distance_has_no_nan_in_its_gradient(motions):
    G = motions.group
    g = G.sample(3, generator=torch.Generator().manual_seed(4)).requires_grad_()
    assert torch.autograd.grad(G.distance(g, g.detach()).sum(), g)[0].isfinite().all()


def test_shapes(motions):
    G, d = motions.group, motions.d
    assert G.identity(2, 3).shape == G.sample(2, 3).shape == (2, 3, d + 1, d + 1)
    assert G.log(G.identity(2)).eq(0).all()
    assert G.exp(torch.zeros(0, G.dim)).shape == (0, d + 1, d + 1)
    for call in (
        lambda: G.exp(torch.zeros(G.dim + 1)),
        lambda: G.log(torch.zeros(2, 2)),
        lambda: G.hat(torch.zeros(2)),
    ):
        with pytest.raises((ValueError, TypeError)):
            call()
