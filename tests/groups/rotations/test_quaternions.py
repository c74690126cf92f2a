from math import pi

import pytest
import torch
from scipy.stats import kstest

from lawful.groups import SO3, UnitQuaternions, quaternion_product, quaternion_to_matrix

G = UnitQuaternions()
SMALL = [10.0**-k for k in range(9, 0, -1)]
ANGLES = [0.0, *SMALL, 1.0, 3.0, *(pi - a for a in SMALL), pi, 4.0, 6.0]


def vectors(dtype, angles=ANGLES):
    normal = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    axes = torch.nn.functional.normalize(torch.cat([normal, torch.eye(3).double(), -torch.eye(3).double()]), dim=-1)
    return (torch.tensor(angles, dtype=torch.float64)[:, None, None] * axes).flatten(0, 1).to(dtype)


def test_units():
    one, i, j, k = torch.eye(4)
    for unit in (i, j, k):
        torch.testing.assert_close(quaternion_product(unit, unit), -one)
    torch.testing.assert_close(quaternion_product(i, j), k)
    torch.testing.assert_close(quaternion_product(j, k), i)
    torch.testing.assert_close(quaternion_product(k, i), j)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exp_and_log_undo_each_other_up_to_a_full_turn(dtype):
    v, eps = vectors(dtype), torch.finfo(dtype).eps
    q = G.exp(v)
    assert (G.exp(G.log(q)) - q).abs().max() <= 10 * eps
    assert (G.log(q) - v).abs().max() <= 10 * eps * 2 * pi * 4  # near a full turn the axis is a small vector's
    assert (G.log(q) - v)[v.norm(dim=-1) < 3.5].abs().max() <= 10 * eps * pi


def test_minus_one_is_a_full_turn_about_x():
    minus = -G.identity(dtype=torch.float64).requires_grad_()
    torch.testing.assert_close(G.log(minus), torch.tensor([2 * pi, 0.0, 0.0], dtype=torch.float64))
    assert torch.func.jacrev(G.log)(minus).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives(dtype):
    v, eps = vectors(dtype)[::5], torch.finfo(dtype).eps

    def reference(v):
        return torch.linalg.matrix_exp(left(torch.cat([torch.zeros_like(v[:1]), v / 2])))[:, 0]

    def left(q):
        return torch.stack([quaternion_product(q, e) for e in torch.eye(4, dtype=q.dtype)], dim=-1)

    for order in (torch.func.jacrev, lambda f: torch.func.jacrev(torch.func.jacrev(f))):
        wanted = torch.func.vmap(order(reference))(v.double())
        assert (torch.func.vmap(order(G.exp))(v) - wanted).abs().max() <= 20 * eps
        back = torch.func.vmap(order(lambda v: G.log(G.exp(v))))(v)
        identity = torch.func.vmap(order(lambda v: v * 1.0))(v)
        assert (back - identity)[v.norm(dim=-1) < 5].abs().max() <= 100 * eps


def test_turns_as_the_matrix_does():
    g = torch.Generator().manual_seed(1)
    q, x = G.sample(30, generator=g, dtype=torch.float64), torch.randn(30, 3, generator=g, dtype=torch.float64)
    torch.testing.assert_close(G.act(q, x), SO3().act(quaternion_to_matrix(q), x))
    torch.testing.assert_close(G.adjoint(q), quaternion_to_matrix(q))
    v = vectors(torch.float64)
    torch.testing.assert_close(quaternion_to_matrix(G.exp(v)), SO3().exp(v), rtol=0, atol=1e-14)
    torch.testing.assert_close(G.vee(G.hat(v)), v)
    _, start = torch.func.jvp(lambda t: G.exp(t * v), (torch.zeros(()).double(),), (torch.ones(()).double(),))
    torch.testing.assert_close(start, G.hat(v))


def test_distance():
    q = G.sample(30, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(G.distance(q, -q), torch.full((30,), 2 * pi, dtype=torch.float64))
    p = G.sample(30, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    torch.testing.assert_close(G.distance(p, q), G.log(G.compose(G.inverse(p), q)).norm(dim=-1))
    p.requires_grad_()
    assert torch.autograd.grad(G.distance(p, p.detach()).sum(), p)[0].isfinite().all()


def test_samples_are_uniform():
    q = G.sample(20_000, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    squares = q[:, :2].square().sum(-1)  # uniform on the sphere of four dimensions
    assert kstest(squares, "uniform").pvalue > 1e-3


def test_wrong_shapes_are_refused():
    for call in (lambda: G.exp(torch.zeros(4)), lambda: G.log(torch.zeros(3)), lambda: G.inverse(torch.zeros(5))):
        with pytest.raises((ValueError, TypeError)):
            call()


def test_one_quaternion_turns_a_cloud_of_points_and_many_turn_one():
    q = G.sample(4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = vectors(torch.float64)[:4]
    torch.testing.assert_close(G.act(q[0], x), x @ quaternion_to_matrix(q[0]).mT)
    torch.testing.assert_close(G.act(q, x[0]), quaternion_to_matrix(q) @ x[0])
    assert G.act(q[:, None], x).shape == (4, 4, 3)
