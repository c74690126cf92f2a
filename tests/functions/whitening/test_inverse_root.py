import pytest
import scipy.linalg
import torch

from lawful.functions import inverse_root, zca_whitening


def covariance(d=4, n=9):
    return torch.randn(d, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cov()


def test_it_equals_scipy():
    a = covariance()
    expected = scipy.linalg.fractional_matrix_power(a.numpy(), -0.5)
    torch.testing.assert_close(inverse_root(a), torch.from_numpy(expected))


EQUAL = (torch.eye(3).double(), torch.diag(torch.tensor([1.0, 1.0, 2.0])).double(), covariance(3))


@pytest.mark.parametrize("a", EQUAL)
@pytest.mark.parametrize("root", [inverse_root, zca_whitening])
def test_the_gradient_is_right_where_eigenvalues_coincide(a, root):
    assert torch.autograd.gradcheck(lambda x: root((x + x.mT) / 2), a.clone().requires_grad_())


def test_directions_of_no_variance_count_for_nothing():
    a = covariance(3, 2)  # of rank 1
    root = inverse_root(a)
    torch.testing.assert_close(root @ root, torch.linalg.pinv(a, hermitian=True))


@pytest.mark.parametrize("a", EQUAL)
def test_so_is_the_second_derivative(a):
    assert torch.autograd.gradgradcheck(lambda x: inverse_root((x + x.mT) / 2), a.clone().requires_grad_())


def test_it_may_be_mapped_over_a_batch():
    a = torch.stack(EQUAL)
    jacobian = torch.func.jacrev(inverse_root)
    torch.testing.assert_close(torch.func.vmap(jacobian)(a), torch.stack([jacobian(x) for x in a]))
