"""SO(2), U(1), and complex numbers as matrices."""

import cmath
import math
import re
from collections.abc import Iterator
from math import pi

import pytest
import torch
from scipy.stats import kstest

from lawful.groups import SO2, Circle, complex_to_matrix, matrix_to_complex
from lawful.groups._helpers import safe_norm, shorten
from lawful.laws import Claim, agreement, homomorphism, shape, transformed

G = SO2()
SMALL = [10.0**-k for k in range(9, 0, -1)]
ANGLES = [0.0, *SMALL, 1.0, 2.0, 3.0, *(pi - a for a in SMALL), pi]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_inverts_exp(dtype):
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


@pytest.mark.parametrize(
    ("method", "expected", "wrong"), [("exp", "1", (2,)), ("log", "2, 2", (3, 3)), ("hat", "1", (3,))]
)
def test_wrong_shapes_raise(method, expected, wrong):
    with pytest.raises(ValueError, match=rf"shape \(\*batch, {expected}\), got {re.escape(str(wrong))}"):
        getattr(G, method)(torch.zeros(wrong))


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.complex128)


def test_circle_exp_and_log_equal_cmath():
    angles = [0.0, 1e-9, 1.0, -2.0, 3.0, math.pi]
    group, v = Circle(), torch.tensor(angles, dtype=torch.float64)[:, None]
    z = group.exp(v)
    torch.testing.assert_close(z, torch.tensor([cmath.exp(1j * a) for a in angles], dtype=torch.complex128))
    torch.testing.assert_close(group.log(z), torch.tensor([[cmath.phase(c)] for c in z.tolist()], dtype=v.dtype))
    torch.testing.assert_close(group.log(z), v, rtol=1e-15, atol=0)


def test_circle_derivatives_of_log_of_exp_are_right_everywhere():
    for angle in (0.0, 1e-9, 1.0, 3.1):
        v = torch.tensor([angle], dtype=torch.float64)
        first = torch.autograd.functional.jacobian(lambda v: Circle().log(Circle().exp(v)), v)
        torch.testing.assert_close(first, torch.ones(1, 1, dtype=v.dtype))


def test_circle_matrices_add_multiply_and_invert_like_the_numbers():
    z, w = numbers(5), numbers(5, seed=1)
    m, n = complex_to_matrix(z), complex_to_matrix(w)
    torch.testing.assert_close(complex_to_matrix(z + w), m + n)
    torch.testing.assert_close(complex_to_matrix(z * w), m @ n)
    torch.testing.assert_close(complex_to_matrix(1 / z), torch.linalg.inv(m))
    torch.testing.assert_close(complex_to_matrix(z.conj()), m.mT)
    torch.testing.assert_close(torch.linalg.det(m @ n), z.abs().square() * w.abs().square())
    assert torch.equal(matrix_to_complex(m), z)


def test_circle_squares_of_the_units():
    one, i = complex_to_matrix(torch.tensor([1, 1j], dtype=torch.complex128))
    assert torch.equal(i @ i, -one)
    assert torch.equal(one @ i, i)


def test_circle_samples_are_uniform():
    n = 20000
    z = Circle().sample(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(z.abs(), torch.ones(n, dtype=torch.float64))
    for power in (1, 2, 3):
        assert z.pow(power).mean().abs() < 5 / math.sqrt(n)


def test_circle_real_and_complex_dtypes():
    assert Circle().identity(2, dtype=torch.float64).dtype == torch.complex128
    assert Circle().identity(2, dtype=torch.complex64).dtype == torch.complex64
    assert Circle().sample(2).dtype == torch.complex64


def test_circle_real_numbers_raise():
    with pytest.raises(Exception, match=r"(?i)type"):
        complex_to_matrix(torch.zeros(2))


@pytest.mark.parametrize("method", ["exp", "hat", "left_jacobian"])
def test_circle_coordinates_are_one_number(method):
    with pytest.raises(ValueError, match=r"\(\*batch, 1\), got \(2,\)"):
        getattr(Circle(), method)(torch.zeros(2))


@pytest.mark.parametrize("matrix", [[[1, 0], [0, -1]], [[2, 0], [0, 2]], [[0, 0], [0, 0]], [[1, 1], [0, 1]]], ids=str)
def test_log_refuses_what_is_no_rotation(matrix):
    with pytest.raises(ValueError, match="expected rotation matrices"):
        SO2().log(torch.tensor(matrix, dtype=torch.float32))


def claims() -> Iterator[Claim]:
    """Second derivations of U(1), SO(2) and complex numbers as matrices."""
    group = Circle()

    def to_complex(x):
        return torch.complex(x[..., 0], x[..., 1])

    number, angle, element = transformed(to_complex, "b 2"), shape("b 1"), transformed(group.exp, "b 1")

    def exponential(v):
        return torch.linalg.matrix_exp(group.hat(v))[..., 0, 0]

    def first_order(v, w):
        return group.compose(group.exp((group.left_jacobian(v) @ w[..., None])[..., 0]), group.exp(v))

    def conjugation(g, v):
        return group.vee(g[..., None, None] * group.hat(v) * group.inverse(g)[..., None, None])

    def adjoint(g, v):
        return (group.adjoint(g) @ v[..., None])[..., 0]

    yield Claim(homomorphism(operation=torch.mul), torch.abs, number, name="|z w| = |z| |w|")
    yield Claim(agreement(other=exponential), group.exp, angle, name="Circle.exp")
    jacobian = agreement(other=first_order)
    yield Claim(jacobian, lambda v, w: group.exp(v + w), (angle, angle), name="Circle.left_jacobian")
    yield Claim(agreement(other=conjugation), adjoint, (element, angle), name="Circle.adjoint")

    def determinant(z):
        return torch.linalg.det(complex_to_matrix(z))

    yield Claim(agreement(other=lambda z: z.abs().square()), determinant, number, name="det of complex_to_matrix")

    def rotated(v, x):
        return (complex_to_matrix(group.exp(v)) @ x[..., None])[..., 0]

    def rotation_formula(v, x):
        c, s = v.cos()[..., 0], v.sin()[..., 0]
        return torch.stack([c * x[..., 0] - s * x[..., 1], s * x[..., 0] + c * x[..., 1]], -1)

    yield Claim(agreement(other=rotation_formula), rotated, (angle, shape("b 2")), name="rotation by complex_to_matrix")

    def unit_number(v):
        return complex_to_matrix(torch.polar(torch.ones_like(v), v)[..., 0])

    def complex_product(g, x):
        z = torch.view_as_complex(g[..., 0].contiguous()) * torch.view_as_complex(x.contiguous())
        return torch.view_as_real(z)

    def distance_to_identity(v):
        return G.distance(G.exp(v), G.identity().to(v))

    rotation = transformed(G.exp, "b 1")
    yield Claim(agreement(other=unit_number), G.exp, angle, name="SO2.exp")
    yield Claim(agreement(other=complex_product), G.act, (rotation, shape("b 2")), name="SO2.act")
    yield Claim(agreement(other=safe_norm), distance_to_identity, transformed(shorten, "b 1"), name="SO2.distance")

    def moments(x):
        samples = G.sample(80, 50, generator=torch.Generator().manual_seed(0)).flatten(0, 1).to(x)
        return torch.cat([samples.mean(0), samples.square().mean(0)])

    uniform = agreement(other=lambda x: torch.cat([x.new_zeros(2, 2), x.new_full((2, 2), 0.5)]), rtol=0.1)
    yield Claim(uniform, moments, shape("1"), name="SO2.sample")
