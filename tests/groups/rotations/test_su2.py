import pytest
import torch

from lawful.groups import SO3, SU2, UnitQuaternions, complex_matrix_to_quaternion, quaternion_to_complex_matrix

G, Q = SU2(), UnitQuaternions()


def vectors():
    return 2 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_units_of_the_notes():
    one, i, j, k = quaternion_to_complex_matrix(torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(j, torch.tensor([[0, -1j], [-1j, 0]], dtype=torch.complex128))
    torch.testing.assert_close(k, torch.tensor([[1j, 0], [0, -1j]], dtype=torch.complex128))
    torch.testing.assert_close(i @ j, k)
    for unit in (i, j, k):
        torch.testing.assert_close(unit @ unit, -one)


def test_matrices_are_unitary_with_determinant_one():
    u = G.exp(vectors())
    eye = torch.eye(2, dtype=torch.complex128).expand_as(u)
    torch.testing.assert_close(u.mH @ u, eye)
    torch.testing.assert_close(torch.linalg.det(u), torch.ones(50, dtype=torch.complex128))
    torch.testing.assert_close(complex_matrix_to_quaternion(u), Q.exp(vectors()))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_goes_over_to_rotations(dtype):
    u = G.sample(20, generator=torch.Generator().manual_seed(1), dtype=dtype)
    assert u.dtype == G.identity(2, dtype=dtype).dtype == dtype
    torch.testing.assert_close(G.adjoint(G.compose(u[:10], u[10:])), G.adjoint(u[:10]) @ G.adjoint(u[10:]))
    torch.testing.assert_close(G.adjoint(G.exp(vectors())), SO3().exp(vectors()))
    torch.testing.assert_close(G.exp(G.log(u)), u)
    torch.testing.assert_close(G.distance(u[:10], u[10:]), G.log(G.compose(G.inverse(u[:10]), u[10:])).norm(dim=-1))


def test_gradients_go_through():
    v = vectors()[0].requires_grad_()
    slope = torch.func.jacrev(lambda v: G.log(G.exp(v)))(v * 0.1)
    torch.testing.assert_close(slope, torch.eye(3, dtype=torch.float64))
    assert torch.func.hessian(lambda v: torch.view_as_real(G.exp(v)).sum())(torch.zeros(3)).isfinite().all()


def test_wrong_shapes_are_refused():
    with pytest.raises((ValueError, TypeError)):
        G.exp(torch.zeros(4))
    with pytest.raises((ValueError, TypeError)):
        G.inverse(torch.zeros(3, 3, dtype=torch.complex64))


def test_types_of_either_kind_are_taken():
    for dtype in (torch.float64, torch.complex128):
        one, g = G.identity(3, dtype=dtype), G.sample(3, dtype=dtype)
        assert one.dtype == g.dtype == torch.complex128
        torch.testing.assert_close(G.compose(one, g), g)
