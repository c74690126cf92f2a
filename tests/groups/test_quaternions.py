"""Unit quaternions and SU(2)."""

from collections.abc import Iterator
from math import pi

import pytest
import torch
from scipy.stats import kstest
from torch.func import jacrev, vmap

from lawful.groups import (
    SO3,
    SU2,
    UnitQuaternions,
    complex_matrix_to_quaternion,
    phi1,
    quaternion_product,
    quaternion_to_complex_matrix,
    quaternion_to_matrix,
    skew,
)
from lawful.groups._helpers import safe_norm, shorten
from lawful.laws import Claim, agreement, shape, transformed

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
def test_log_inverts_exp_up_to_a_full_turn(dtype):
    v, eps = vectors(dtype), torch.finfo(dtype).eps
    q = G.exp(v)
    assert (G.exp(G.log(q)) - q).abs().max() <= 10 * eps
    assert (G.log(q) - v).abs().max() <= 10 * eps * 2 * pi * 4  # near a full turn the axis is a small vector's
    assert (G.log(q) - v)[v.norm(dim=-1) < 3.5].abs().max() <= 10 * eps * pi


def test_minus_one_is_a_full_turn_about_x():
    minus = -G.identity(dtype=torch.float64).requires_grad_()
    torch.testing.assert_close(G.log(minus), torch.tensor([2 * pi, 0.0, 0.0], dtype=torch.float64))
    assert torch.func.jacrev(G.log)(minus).isfinite().all()


def second_derivative(f):
    return jacrev(jacrev(f))


@pytest.mark.parametrize("derivative", [jacrev, second_derivative])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives(dtype, derivative):
    v, eps = vectors(dtype)[::5], torch.finfo(dtype).eps

    def reference(v):
        return torch.linalg.matrix_exp(left(torch.cat([torch.zeros_like(v[:1]), v / 2])))[:, 0]

    def left(q):
        return torch.stack([quaternion_product(q, e) for e in torch.eye(4, dtype=q.dtype)], dim=-1)

    expected = vmap(derivative(reference))(v.double())
    assert (vmap(derivative(G.exp))(v) - expected).abs().max() <= 20 * eps
    back = vmap(derivative(lambda v: G.log(G.exp(v))))(v)
    identity = vmap(derivative(lambda v: v * 1.0))(v)
    assert (back - identity)[v.norm(dim=-1) < 5].abs().max() <= 100 * eps


def test_dim_is_the_number_of_coordinates():
    for group in (UnitQuaternions(), SU2()):
        assert group.log(group.identity()).shape == (group.dim,)


def test_rotates_like_the_matrix():
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


@pytest.mark.parametrize(("method", "expected", "wrong"), [("exp", 3, 4), ("log", 4, 3), ("inverse", 4, 5)])
def test_wrong_shapes_raise(method, expected, wrong):
    with pytest.raises(ValueError, match=rf"shape \(\*batch, {expected}\), got \({wrong},\)"):
        getattr(G, method)(torch.zeros(wrong))


def test_quaternion_action_broadcasts_over_points_and_rotations():
    q = G.sample(4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = vectors(torch.float64)[:4]
    torch.testing.assert_close(G.act(q[0], x), x @ quaternion_to_matrix(q[0]).mT)
    torch.testing.assert_close(G.act(q, x[0]), quaternion_to_matrix(q) @ x[0])
    assert G.act(q[:, None], x).shape == (4, 4, 3)


SU, Q = SU2(), UnitQuaternions()


def su2_vectors():
    return 2 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_su2_units():
    one, i, j, k = quaternion_to_complex_matrix(torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(j, torch.tensor([[0, -1j], [-1j, 0]], dtype=torch.complex128))
    torch.testing.assert_close(k, torch.tensor([[1j, 0], [0, -1j]], dtype=torch.complex128))
    torch.testing.assert_close(i @ j, k)
    for unit in (i, j, k):
        torch.testing.assert_close(unit @ unit, -one)


def test_su2_matrices_are_unitary_with_determinant_one():
    u = SU.exp(su2_vectors())
    eye = torch.eye(2, dtype=torch.complex128).expand_as(u)
    torch.testing.assert_close(u.mH @ u, eye)
    torch.testing.assert_close(torch.linalg.det(u), torch.ones(50, dtype=torch.complex128))
    torch.testing.assert_close(complex_matrix_to_quaternion(u), Q.exp(su2_vectors()))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_su2_adjoint_is_the_rotation(dtype):
    u = SU.sample(20, generator=torch.Generator().manual_seed(1), dtype=dtype)
    assert u.dtype == SU.identity(2, dtype=dtype).dtype == dtype
    torch.testing.assert_close(SU.adjoint(SU.compose(u[:10], u[10:])), SU.adjoint(u[:10]) @ SU.adjoint(u[10:]))
    torch.testing.assert_close(SU.adjoint(SU.exp(su2_vectors())), SO3().exp(su2_vectors()))
    torch.testing.assert_close(SU.exp(SU.log(u)), u)
    torch.testing.assert_close(SU.distance(u[:10], u[10:]), SU.log(SU.compose(SU.inverse(u[:10]), u[10:])).norm(dim=-1))


def test_su2_gradients_go_through():
    v = su2_vectors()[0].requires_grad_()
    slope = torch.func.jacrev(lambda v: SU.log(SU.exp(v)))(v * 0.1)
    torch.testing.assert_close(slope, torch.eye(3, dtype=torch.float64))
    assert torch.func.hessian(lambda v: torch.view_as_real(SU.exp(v)).sum())(torch.zeros(3)).isfinite().all()


def test_su2_wrong_shapes_raise():
    with pytest.raises(ValueError, match=r"shape \(\*batch, 3\), got \(4,\)"):
        SU.exp(torch.zeros(4))
    with pytest.raises(ValueError, match=r"shape \(\*batch, 2, 2\), got \(3, 3\)"):
        SU.inverse(torch.zeros(3, 3, dtype=torch.complex64))


def test_su2_real_and_complex_dtypes():
    for dtype in (torch.float64, torch.complex128):
        one, g = SU.identity(3, dtype=dtype), SU.sample(3, dtype=dtype)
        assert one.dtype == g.dtype == torch.complex128
        torch.testing.assert_close(SU.compose(one, g), g)


def claims() -> Iterator[Claim]:
    """Second derivations of unit quaternions and SU(2)."""
    element, vector = transformed(G.exp, "b 3"), shape("b 3")
    v = transformed(lambda v: 2 * shorten(v), "b 3")

    def conjugation(g, x):
        return G.vee(G.compose(G.compose(g, G.hat(x)), G.inverse(g)))

    def distance_to_identity(v):
        return G.distance(G.exp(v), G.identity().to(v))

    def adjoint(g):
        basis = G.hat(torch.eye(3, dtype=g.dtype))
        g = g[..., None, :]
        return G.vee(quaternion_product(quaternion_product(g, basis), G.inverse(g))).mT

    def integral(v):
        return phi1(skew(v))

    def round_trip(v):
        return (G.left_jacobian_inverse(v) @ integral(v) @ v[..., None])[..., 0]

    yield Claim(agreement(other=safe_norm), distance_to_identity, v, name="UnitQuaternions.distance")
    yield Claim(agreement(other=conjugation), G.act, (element, vector), name="UnitQuaternions.act")
    yield Claim(agreement(other=adjoint), G.adjoint, element, name="UnitQuaternions.adjoint")
    yield Claim(agreement(other=integral), G.left_jacobian, v, name="UnitQuaternions.left_jacobian")
    yield Claim(agreement(other=torch.clone), round_trip, v, name="UnitQuaternions.left_jacobian_inverse")

    def squared_norm(q):
        return q.square().sum(-1).to(q.dtype.to_complex())

    def determinant(q):
        m = quaternion_to_complex_matrix(q)
        return m[..., 0, 0] * m[..., 1, 1] - m[..., 0, 1] * m[..., 1, 0]

    def matrix_product(g, x):
        return g[..., 0] * x[..., :1] + g[..., 1] * x[..., 1:]

    determinants = agreement(other=squared_norm)
    yield Claim(determinants, determinant, shape("b 4"), name="det of quaternion_to_complex_matrix")
    unitary, spinor = transformed(SU.exp, "b 3"), transformed(torch.view_as_complex, "b 2 2")
    yield Claim(agreement(other=matrix_product), SU.act, (unitary, spinor), name="SU2.act")
