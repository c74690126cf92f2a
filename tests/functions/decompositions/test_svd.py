import numpy as np
import pytest
import scipy.linalg
import torch

from lawful.functions import pinv, svd


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("size", [(5, 3), (3, 5), (4, 4)])
def test_equals_scipy_up_to_signs(size):
    a = normal(*size)
    for found, wanted in zip(svd(a), scipy.linalg.svd(a.numpy(), full_matrices=False), strict=True):
        np.testing.assert_allclose(found.abs(), np.abs(wanted), atol=1e-12)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_pseudo_inverse_equals_scipy_at_any_rank(rank):
    a = normal(5, rank) @ normal(rank, 4, seed=1)
    np.testing.assert_allclose(pinv(a), scipy.linalg.pinv(a.numpy()), atol=1e-10)


def test_pseudo_inverse_of_a_regular_matrix_is_the_inverse():
    a = normal(2, 4, 4)
    torch.testing.assert_close(pinv(a), torch.linalg.inv(a))


def test_what_counts_as_zero_can_be_said():
    a = torch.diag(torch.tensor([1.0, 1e-3]))
    assert pinv(a)[1, 1] > 0
    assert pinv(a, rtol=1e-2)[1, 1] == 0


def test_a_vector_is_refused():
    for function in (svd, pinv):
        with pytest.raises(TypeError, match=r"a matrix of real numbers is wanted|parameter 'a'"):
            function(torch.zeros(3))
