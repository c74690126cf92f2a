import numpy as np
import pytest
import torch

from lawful.functions import determinant, gram_determinant, log_determinant


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_equal_numpy():
    a = normal(3, 4, 4)
    np.testing.assert_allclose(determinant(a), np.linalg.det(a.numpy()))
    size, sign = log_determinant(a)
    wanted = np.linalg.slogdet(a.numpy())
    np.testing.assert_allclose(size, wanted.logabsdet)
    np.testing.assert_allclose(sign, wanted.sign)


def test_the_logarithm_outlives_the_determinant():
    a = 1e-3 * torch.eye(200, dtype=torch.float64)
    assert determinant(a) == 0
    torch.testing.assert_close(log_determinant(a)[0], torch.tensor(200 * np.log(1e-3), dtype=torch.float64))


def test_a_singular_matrix():
    a = torch.ones(2, 2)
    assert determinant(a) == 0
    size, sign = log_determinant(a)
    assert size == -torch.inf
    assert sign == 0


def test_gram_determinant_keeps_digits_that_the_gram_matrix_loses():
    small = 1e-9
    a = torch.tensor([[1.0, 1.0], [small, 0.0], [0.0, small]], dtype=torch.float64)
    exact = 2 * small**2 + small**4
    torch.testing.assert_close(gram_determinant(a), torch.tensor(exact, dtype=torch.float64), rtol=1e-6, atol=0)
    assert determinant(a.mT @ a) == 0


def test_errors():
    for function in (determinant, log_determinant):
        with pytest.raises(TypeError):
            function(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="got 2 x 3"):
        gram_determinant(torch.zeros(2, 3))
