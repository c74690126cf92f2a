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


def test_the_gradient_is_the_cofactors_at_a_singular_matrix_without_a_zero_pivot():
    a = (normal(3, 2) @ normal(2, 3, seed=1)).requires_grad_()
    (found,) = torch.autograd.grad(determinant(a), a)
    wanted = torch.linalg.cross(a.roll(-1, 0), a.roll(-2, 0), dim=-1)
    torch.testing.assert_close(found, wanted.detach(), rtol=1e-9, atol=1e-9)


def test_the_gram_determinant_is_least_at_dependent_columns():
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    zero_column = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    regular = normal(3, 2)
    a = torch.stack([zero_column, torch.zeros(3, 2).double(), singular, regular]).requires_grad_()
    found = gram_determinant(a)
    (slope,) = torch.autograd.grad(found.sum(), a)
    gram = regular.mT @ regular
    torch.testing.assert_close(slope[3], 2 * torch.linalg.det(gram) * regular @ torch.linalg.inv(gram))
    torch.testing.assert_close(slope[:3], torch.zeros(3, 3, 2, dtype=torch.float64))
    torch.testing.assert_close(found[:3], torch.zeros(3, dtype=torch.float64))


def test_errors():
    for function in (determinant, log_determinant):
        with pytest.raises(TypeError, match=r"a square matrix is wanted: got 2 x 3|parameter 'a'"):
            function(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="got 2 x 3"):
        gram_determinant(torch.zeros(2, 3))
