import numpy as np
import pytest
import torch

from lawful.functions import characteristic_polynomial, general_eigen, symmetric_eigen


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_symmetric_equals_numpy():
    a = normal(3, 4, 4)
    a = a + a.mT
    values, vectors = symmetric_eigen(a)
    wanted = np.linalg.eigh(a.numpy())
    np.testing.assert_allclose(values, wanted.eigenvalues, atol=1e-12)
    np.testing.assert_allclose(vectors.abs(), np.abs(wanted.eigenvectors), atol=1e-10)


def test_general_equals_numpy():
    a = normal(4, 4)
    np.testing.assert_allclose(
        np.sort_complex(general_eigen(a)[0].numpy()), np.sort_complex(np.linalg.eigvals(a.numpy())), atol=1e-12
    )


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_polynomial_equals_numpys(n):
    a = normal(3, n, n)
    np.testing.assert_allclose(characteristic_polynomial(a), [np.poly(one) for one in a.numpy()], atol=1e-10)


def test_the_roots_of_the_polynomial_are_the_eigenvalues():
    a = normal(4, 4)
    roots = np.roots(characteristic_polynomial(a).numpy())
    np.testing.assert_allclose(np.sort_complex(roots), np.sort_complex(general_eigen(a)[0].numpy()), atol=1e-9)


def test_the_polynomial_has_a_gradient_where_eigenvalues_are_equal():
    a = torch.eye(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(characteristic_polynomial, a)


def test_a_defective_matrix_has_dependent_eigenvectors():
    values, vectors = general_eigen(torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64))
    torch.testing.assert_close(values, torch.ones(2, dtype=torch.complex128))
    assert torch.linalg.det(vectors).abs() < 1e-10


@pytest.mark.parametrize("function", [symmetric_eigen, general_eigen, characteristic_polynomial])
def test_only_square_matrices_are_taken(function):
    with pytest.raises(TypeError, match=r"a square matrix is wanted: got 2 x 3|parameter 'a'"):
        function(torch.zeros(2, 3))
