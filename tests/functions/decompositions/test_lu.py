import numpy as np
import pytest
import scipy.linalg
import torch

from lawful.functions import lu


@pytest.mark.parametrize("size", [(4, 4), (5, 3), (2, 4)])
def test_equals_scipy(size):
    a = torch.randn(*size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for found, wanted in zip(lu(a), scipy.linalg.lu(a.numpy()), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_a_singular_matrix_has_factors():
    a = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    p, lower, u = lu(a)
    assert u[1, 1] == 0
    torch.testing.assert_close(p @ lower @ u, a)


def test_a_vector_is_refused():
    with pytest.raises(TypeError, match=r"a matrix of real numbers is wanted|parameter 'a'"):
        lu(torch.zeros(3))
