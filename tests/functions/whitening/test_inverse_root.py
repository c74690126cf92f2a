import pytest
import scipy.linalg
import torch

from lawful.functions import inverse_root, zca


def covariance(d=4, n=9):
    return torch.randn(d, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cov()


def test_it_equals_scipy():
    a = covariance()
    expected = scipy.linalg.fractional_matrix_power(a.numpy(), -0.5)
    torch.testing.assert_close(inverse_root(a), torch.from_numpy(expected))


@pytest.mark.parametrize(
    "a", [torch.eye(3).double(), torch.diag(torch.tensor([1.0, 1.0, 2.0])).double(), covariance(3)]
)
@pytest.mark.parametrize("root", [inverse_root, zca])
def test_the_gradient_is_right_where_eigenvalues_coincide(a, root):
    assert torch.autograd.gradcheck(lambda x: root((x + x.mT) / 2), a.clone().requires_grad_())


def test_directions_of_no_variance_count_for_nothing():
    a = covariance(3, 2)  # of rank 1
    root = inverse_root(a)
    torch.testing.assert_close(root @ root, torch.linalg.pinv(a, hermitian=True))


def test_a_second_derivative_is_refused_not_wrong():
    a = torch.eye(2, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(inverse_root(a).sum(), a, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        slope.sum().backward()
