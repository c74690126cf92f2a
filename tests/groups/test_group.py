"""Lie groups: default Jacobians, and the matrix functions they share."""

from collections.abc import Iterator

import pytest
import torch
from scipy.integrate import quad_vec
from scipy.linalg import expm

import lawful
from lawful.groups import (
    SE2,
    SE3,
    SO2,
    SO3,
    SU2,
    LieGroup,
    Orthogonal,
    SymmetricGroup,
    adjoint_matrix,
    bracket_matrix,
    phi1,
)
from lawful.groups._helpers import check_last_axes, group_claims, shorten
from lawful.laws import Claim, agreement, shape, transformed


def test_wrong_shapes_raise():
    assert check_last_axes(torch.zeros(5, 3, 3), 3, 3).shape == (5, 3, 3)
    with pytest.raises(ValueError, match=r"expected a tensor of shape \(\*batch, 3\), got \(2, 4\)"):
        check_last_axes(torch.zeros(2, 4), 3)
    with pytest.raises(ValueError, match=r"expected a tensor of shape \(\*batch, 3, 3\), got \(3,\)"):
        check_last_axes(torch.zeros(3), 3, 3)


@pytest.mark.parametrize("group", [SO2(), SO3()])
def test_jacobians_have_inverses_by_default(group):
    v = torch.randn(4, group.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    default = LieGroup.left_jacobian_inverse(group, v)
    torch.testing.assert_close(default, group.left_jacobian_inverse(v))
    torch.testing.assert_close(
        group.right_jacobian(v) @ group.right_jacobian_inverse(v), default @ group.left_jacobian(v)
    )


def test_phi1_equals_the_integral():
    a = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    integral = quad_vec(lambda s: expm(s * a.numpy()), 0, 1)[0]
    torch.testing.assert_close(phi1(a), torch.as_tensor(integral))


def test_bracket_is_the_commutator_and_adjoint_the_conjugation():
    group, generator = Orthogonal(4), torch.Generator().manual_seed(0)
    v, w = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    a, b = group.hat(v), group.hat(w)
    bracket = bracket_matrix(v, hat=group.hat, vee=group.vee)
    torch.testing.assert_close(group.hat(bracket @ w), a @ b - b @ a)
    g = group.exp(v)
    adjoint = adjoint_matrix(g, inverse=g.mT, hat=group.hat, vee=group.vee, dim=6)
    torch.testing.assert_close(group.hat(adjoint @ w), g @ b @ g.mT)


def test_a_vector_raises():
    with pytest.raises(Exception, match=r"(?i)shape|type|dimension"):
        phi1(torch.zeros(3))


def derivations(group: LieGroup, v) -> Iterator[Claim]:
    """Exponential, adjoint and left Jacobian of a matrix group, from `hat` and `vee` alone."""
    name = type(group).__name__

    def exponential(v):
        return torch.linalg.matrix_exp(group.hat(v))

    def conjugation(v):
        basis = group.hat(torch.eye(group.dim, dtype=v.dtype))
        g, inverse = (exponential(w)[..., None, :, :] for w in (v, -v))
        return group.vee(g @ basis @ inverse).mT

    def integral(v):
        return phi1(bracket_matrix(v, hat=group.hat, vee=group.vee))

    def round_trip(v):
        moved = group.left_jacobian(v) @ group.vee(group.hat(v))[..., None]
        return (group.left_jacobian_inverse(v) @ moved)[..., 0]

    yield Claim(agreement(other=exponential), group.exp, v, name=f"{name}.exp = matrix_exp")
    yield Claim(agreement(other=conjugation), lambda v: group.adjoint(group.exp(v)), v, name=f"{name}.adjoint")
    yield Claim(agreement(other=integral), group.left_jacobian, v, name=f"{name}.left_jacobian")
    yield Claim(agreement(other=torch.clone), round_trip, v, name=f"{name}.left_jacobian_inverse")


def claims() -> Iterator[Claim]:
    """Second derivations of the matrix functions, and of every matrix Lie group with closed forms."""
    for group in (SO2(), SO3(), SE2(), SE3()):
        yield from derivations(group, transformed(shorten, f"b {group.dim}"))
    yield from derivations(SU2(), transformed(lambda v: 2 * shorten(v), "b 3"))

    def exponential(a):
        return a.tanh() @ phi1(a.tanh()) + torch.eye(3, dtype=a.dtype)

    def cross_matrix(v):
        return torch.linalg.cross(v[..., None, :], torch.eye(3).to(v).expand(*v.shape, 3)).mT

    def vee(a):
        return torch.stack([a[..., 2, 1], a[..., 0, 2], a[..., 1, 0]], -1)

    def rotation(v):
        return torch.linalg.matrix_exp(cross_matrix(v.tanh()))

    def adjoint(v):
        return adjoint_matrix(rotation(v), inverse=rotation(-v), hat=cross_matrix, vee=vee, dim=3)

    def bracket(v):
        return bracket_matrix(v, hat=cross_matrix, vee=vee)

    matrix_exp = agreement(other=lambda a: torch.linalg.matrix_exp(a.tanh()))
    yield Claim(matrix_exp, exponential, shape("b 3 3"), name="A phi1(A) + 1 = exp(A)")
    yield Claim(agreement(other=rotation), adjoint, shape("b 3"), name="adjoint_matrix of SO(3)")
    yield Claim(agreement(other=cross_matrix), bracket, shape("b 3"), name="bracket_matrix of so(3)")


def test_repr():
    assert [str(group) for group in (SO3(), Orthogonal(5))] == ["SO3()", "Orthogonal(5)"]


def test_claims_refute_a_wrong_distance():
    group, element = SymmetricGroup(4), transformed(lambda x: x.argsort(-1), "b 4")
    law = next(claim.law for claim in group_claims(group, element, shape("b 4")) if claim.target == group.distance)
    assert lawful.check(group.distance, law, inputs=(element, element), cases=30).passed
    assert not lawful.check(lambda g, h: (g - h).sum(-1), law, inputs=(element, element), cases=30).passed
