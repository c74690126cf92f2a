import math
from inspect import unwrap

import numpy as np
import pytest
import torch
from scipy.spatial import distance as scipy_distance

from lawful.functions import distance, frobenius, norm

EXPONENTS = [1, 1.5, 2, 2.5, 3, 7.5, math.inf]


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_norm_equals_numpy(p, axis):
    x = drawn(4, 5, 6)
    np.testing.assert_allclose(norm(x, p=p, axis=axis), np.linalg.norm(x.numpy(), p, axis), rtol=1e-12)


@pytest.mark.parametrize("p", EXPONENTS)
def test_distance_equals_scipy(p):
    x, y = drawn(5, seed=1), drawn(5, seed=2)
    assert float(distance(x, y, p=p)) == pytest.approx(scipy_distance.minkowski(x, y, p), rel=1e-12)


def test_distance_broadcasts():
    x, y = drawn(4, 1, 3), drawn(1, 5, 3, seed=1)
    torch.testing.assert_close(distance(x, y), torch.cdist(x[:, 0], y[0]))


def test_frobenius_equals_numpy():
    x = drawn(2, 3, 4)
    np.testing.assert_allclose(frobenius(x), np.linalg.norm(x.numpy(), "fro", (-2, -1)), rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("entries", [[0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [-1.0, 0.0, 1.0]])
def test_first_and_second_derivatives_are_finite_at_zero(dtype, p, entries):
    x = torch.tensor(entries, dtype=dtype, requires_grad=True)
    (slope,) = torch.autograd.grad(norm(x, p=p), x, create_graph=True)
    assert slope.isfinite().all()
    assert not slope[x == 0].any()
    if slope.requires_grad:
        (bend,) = torch.autograd.grad(slope.square().sum() + slope.sum(), x)
        assert bend.isfinite().all()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("p", EXPONENTS)
def test_derivatives_away_from_zero(p):
    x = (drawn(2, 4).sign() + 0.3 * drawn(2, 4, seed=1)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: norm(x, p=p), x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x: norm(x, p=p), x)


@pytest.mark.parametrize("p", EXPONENTS)
def test_the_second_derivative_at_a_zero_entry_is_that_of_the_equation(p):
    x = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    if 2 <= p < math.inf:
        power = x[::2].pow(p).sum().pow(1 / p)
        wanted = torch.autograd.functional.hessian(lambda x: x[::2].pow(p).sum().pow(1 / p), x)
        wanted[1, 1] = 1 / power if p == 2 else 0.0
        torch.testing.assert_close(torch.autograd.functional.hessian(lambda x: norm(x, p=p), x), wanted.detach())


@pytest.mark.parametrize("p", EXPONENTS)
def test_transforms(p):
    x = drawn(3, 4)
    torch.testing.assert_close(torch.vmap(lambda x: norm(x, p=p))(x), norm(x, p=p))
    rows = torch.vmap(torch.func.grad(lambda x: norm(x, p=p)))(x)
    torch.testing.assert_close(rows, torch.func.grad(lambda x: norm(x, p=p).sum())(x))


def test_nan_propagates():
    assert norm(torch.tensor([1.0, math.nan])).isnan()


@pytest.mark.parametrize("p", [0.5, 0, -1, math.nan])
def test_p_is_at_least_one(p):
    with pytest.raises(ValueError, match=f"p is at least 1: got {p}"):
        norm(torch.ones(2), p=p)


def test_shapes_fit():
    for y in (torch.ones(4), torch.ones(1)):
        with pytest.raises(ValueError, match=rf"of one size were wanted: got shapes \(3,\) and \({len(y)},\)"):
            unwrap(distance)(torch.ones(3), y)
    with pytest.raises(ValueError, match="of one size"):
        unwrap(distance)(torch.ones(2, 3), torch.ones(3), axis=0)
    assert distance(torch.ones(2, 3), torch.zeros(2, 1), axis=0).shape == (3,)


def test_an_empty_vector_has_no_length():
    assert norm(torch.ones(2, 0)).tolist() == [0.0, 0.0]
