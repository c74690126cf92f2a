"""SE(2) and SE(3)."""

from collections.abc import Iterator
from math import pi
from typing import NamedTuple

import pytest
import torch
from torch.func import jacrev, vmap

from lawful.groups import (
    SE2,
    SE3,
    SO2,
    SO3,
    LieGroup,
    axis_angle_to_matrix,
    bracket_matrix,
    homogeneous_matrix,
    phi1,
    rigid_act,
    rigid_inverse,
    rotation_and_translation,
)
from lawful.laws import Claim, agreement, shape, transformed


class Motions(NamedTuple):
    """A group of rigid motions, its rotation group, the dimension of space, and the dimension of the rotation group."""

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
def test_log_inverts_exp(dtype, motions):
    G, d = motions.group, motions.d
    v, eps = directions(motions, dtype), torch.finfo(dtype).eps
    g = G.exp(v)
    assert (g - reference(motions)(v.double())).abs().max() <= 20 * eps * v.abs().max()
    assert (G.exp(G.log(g)) - g).abs().max() <= 10 * eps * v.abs().max()
    inside = v[:, d:].double().norm(dim=-1) < pi * (1 - 4 * eps)
    assert (G.log(g) - v)[inside].abs().max() <= 10 * eps * pi


def second_derivative(f):
    return jacrev(jacrev(f))


@pytest.mark.parametrize("derivative", [jacrev, second_derivative])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives_of_exp(dtype, derivative, motions):
    v, eps = directions(motions, dtype, ANGLES[::2], n=1), torch.finfo(dtype).eps
    expected = vmap(derivative(reference(motions)))(v.double())
    assert (vmap(derivative(motions.group.exp))(v) - expected).abs().max() <= 100 * eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives_of_log(dtype, motions):
    G, d = motions.group, motions.d
    v, eps = directions(motions, dtype, ANGLES[::2], n=1), torch.finfo(dtype).eps
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
    expected = phi1(bracket_matrix(v.double(), hat=G.hat, vee=G.vee))
    assert (G.left_jacobian(v) - expected).abs().max() <= 40 * eps
    assert (G.left_jacobian_inverse(v) - torch.linalg.inv(expected)).abs().max() <= 100 * eps
    other = phi1(bracket_matrix(-v.double(), hat=G.hat, vee=G.vee))
    assert (G.right_jacobian(v) - other).abs().max() <= 40 * eps
    step = 1e-6 * torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    here = v.double()
    moved = G.log(G.compose(G.exp(here + step), G.inverse(G.exp(here))))
    torch.testing.assert_close(moved, (expected @ step[..., None])[..., 0], rtol=0, atol=1e-10)


def test_acts_on_points_as_on_homogeneous_ones(motions):
    G, d = motions.group, motions.d
    g = G.sample(20, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x = torch.randn(20, d, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    expected = (g @ torch.cat([x, torch.ones(20, 1)], dim=-1)[..., None])[:, :d, 0]
    torch.testing.assert_close(G.act(g, x), expected)
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


def test_group_elements_and_vectors_of_wrong_shape_raise(motions):
    G, d = motions.group, motions.d
    with pytest.raises(ValueError, match=rf"shape \(\*batch, {G.dim}\), got \({G.dim + 1},\)"):
        G.exp(torch.zeros(G.dim + 1))
    with pytest.raises(ValueError, match=rf"shape \(\*batch, {d + 1}, {d + 1}\), got \(2, 2\)"):
        G.log(torch.zeros(2, 2))
    with pytest.raises(ValueError, match=rf"shape \(\*batch, {G.dim}\), got \(2,\)"):
        G.hat(torch.zeros(2))


def test_splits_into_rotation_and_translation():
    g = torch.Generator().manual_seed(0)
    r, t = SO3().sample(4, generator=g, dtype=torch.float64), torch.randn(4, 3, generator=g, dtype=torch.float64)
    m = homogeneous_matrix(r, t)
    torch.testing.assert_close(rotation_and_translation(m), (r, t))
    torch.testing.assert_close(rigid_inverse(m), torch.linalg.inv(m))
    torch.testing.assert_close(rigid_act(m, t), torch.einsum("nij,nj->ni", r, t) + t)


def test_one_rotation_for_many_translations():
    assert homogeneous_matrix(torch.eye(2), torch.zeros(5, 2)).shape == (5, 3, 3)
    assert homogeneous_matrix(torch.eye(2).expand(5, 2, 2), torch.zeros(2)).shape == (5, 3, 3)


def test_wrong_shapes_raise():
    with pytest.raises(ValueError, match=r"\(\*batch, 2, 2\), got \(3, 3\)"):
        homogeneous_matrix(torch.eye(3), torch.zeros(2))
    with pytest.raises(ValueError, match=r"\(\*batch, 2\), got \(3,\)"):
        rigid_act(torch.eye(3), torch.zeros(3))
    with pytest.raises(ValueError, match=r"\(\*batch, 4, 4\), got \(2, 4\)"):
        rigid_inverse(torch.zeros(2, 4))


def claims() -> Iterator[Claim]:
    """Second derivations of homogeneous matrices."""

    def motion(v):
        return homogeneous_matrix(axis_angle_to_matrix(v[..., :3]), v[..., 3:])

    def homogeneous_product(g, x):
        return (g @ torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)[..., None])[..., :-1, 0]

    element = transformed(motion, "b 6")
    yield Claim(agreement(other=torch.linalg.inv), rigid_inverse, element)
    yield Claim(agreement(other=homogeneous_product), rigid_act, (element, shape("b 3")))

    def moments(x):
        samples = SE2().sample(80, 50, generator=torch.Generator().manual_seed(0)).flatten(0, 1).to(x)
        return torch.cat([samples.mean(0), samples.square().mean(0)])

    def expected(x):
        squares = [[0.5, 0.5, 1.0], [0.5, 0.5, 1.0], [0.0, 0.0, 1.0]]
        return torch.cat([x.new_tensor([[0, 0, 0], [0, 0, 0], [0, 0, 1]]), x.new_tensor(squares)])

    yield Claim(agreement(other=expected, rtol=0.1), moments, shape("1"), name="SE2.sample")
