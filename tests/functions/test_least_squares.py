from functools import partial

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.linear_model import Ridge

from lawful.functions import least_squares, normal_equations, pinv, ridge


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("solve", [least_squares, normal_equations])
def test_equals_scipy(solve):
    a, b = normal(3, 7, 4), normal(3, 7, seed=1)
    wanted = [scipy.linalg.lstsq(one.numpy(), side.numpy())[0] for one, side in zip(a, b, strict=True)]
    np.testing.assert_allclose(solve(a, b), wanted, atol=1e-12)


@pytest.mark.parametrize("solve", [least_squares, normal_equations])
def test_one_matrix_serves_many_right_sides(solve):
    a, b = normal(7, 4), normal(5, 7, seed=1)
    wanted, *_ = np.linalg.lstsq(a.numpy(), b.numpy().T, rcond=None)
    np.testing.assert_allclose(solve(a, b), wanted.T, atol=1e-12)


def test_qr_keeps_digits_that_the_normal_equations_lose():
    a = torch.tensor(scipy.linalg.hilbert(7)[:, :5])
    b = a @ torch.ones(5, dtype=torch.float64)
    by_qr, by_normal = ((solve(a, b) - 1).abs().max() for solve in (least_squares, normal_equations))
    assert by_qr < 1e-9 < by_normal


@pytest.mark.parametrize("penalty", [0.1, 10.0])
def test_ridge_equals_scikit_learn(penalty):
    a, b = normal(7, 4), normal(7, seed=1)
    wanted = Ridge(alpha=penalty, fit_intercept=False, solver="cholesky").fit(a.numpy(), b.numpy()).coef_
    np.testing.assert_allclose(ridge(a, b, penalty=penalty), wanted, atol=1e-12)


def test_ridge_takes_a_penalty_for_each_of_a_batch():
    a, b = normal(2, 7, 4), normal(2, 7, seed=1)
    together = ridge(a, b, penalty=torch.tensor([0.5, 2.0], dtype=torch.float64))
    for n, penalty in enumerate((0.5, 2.0)):
        torch.testing.assert_close(together[n], ridge(a[n], b[n], penalty=penalty))


def test_ridge_of_a_singular_matrix_tends_to_the_pseudo_inverse():
    a, b = normal(6, 2) @ normal(2, 4, seed=1), normal(6, seed=2)
    wanted = pinv(a) @ b
    apart = [(ridge(a, b, penalty=penalty) - wanted).norm() for penalty in (1e-2, 1e-4, 1e-6)]
    assert apart[0] > 10 * apart[1] > 100 * apart[2]


@pytest.mark.parametrize("solve", [least_squares, normal_equations])
def test_a_singular_matrix_is_refused(solve):
    exact = torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    rounded = (normal(6, 2) @ normal(2, 4, seed=1)).expand(2, 6, 4)
    for a in (exact, rounded, torch.zeros(3, 2)):
        with pytest.raises(ValueError, match=r"columns of A are to be independent.*pseudo_inverse"):
            solve(a, a[..., 0])


@pytest.mark.parametrize("solve", [least_squares, normal_equations])
def test_nan_propagates_to_its_own_problem(solve):
    a, b = normal(2, 5, 3), normal(2, 5, seed=1)
    b[0, 0] = torch.nan
    x = solve(a, b)
    assert x[0].isnan().all()
    assert x[1].isfinite().all()
    a[1, 2, 2] = torch.nan
    assert solve(a, b)[1].isnan().any()


@pytest.mark.parametrize("solve", [least_squares, normal_equations])
def test_shapes_that_do_not_fit(solve):
    with pytest.raises((TypeError, ValueError), match=r"row for each entry of b|parameter 'b'"):
        solve(torch.zeros(4, 2), torch.zeros(3))
    with pytest.raises(ValueError, match=r"row|independent"):
        solve(torch.ones(2, 3), torch.ones(2))


@pytest.mark.parametrize("solve", [least_squares, normal_equations])
@pytest.mark.parametrize("unit", [1e-9, 1e12])
def test_columns_of_other_units_are_independent(solve, unit):
    a = torch.tensor([[1.0, 0.0], [0.0, unit], [1.0, unit]])
    torch.testing.assert_close(solve(a, torch.tensor([1.0, 1.0, 2.0])), torch.tensor([1.0, 1 / unit]))


@pytest.mark.parametrize("solve", [least_squares, normal_equations, partial(ridge, penalty=0.1)])
def test_runs_under_vmap(solve):
    a, b = normal(3, 7, 4), normal(3, 7, seed=1)
    torch.testing.assert_close(torch.func.vmap(solve)(a, b), solve(a, b))


def test_a_penalty_that_is_lost_in_rounding_is_refused():
    with pytest.raises(ValueError, match=r"root of the penalty.*got penalty=0.001"):
        ridge(torch.ones(3, 2) * 1e6, torch.ones(3), penalty=1e-3)
    found = ridge(torch.ones(3, 2) * 1e6, torch.ones(3), penalty=1e6)
    torch.testing.assert_close(found, torch.full((2,), 5e-7))


@pytest.mark.parametrize("solve", [least_squares, normal_equations, partial(ridge, penalty=0.1)])
def test_whole_numbers_are_refused(solve):
    with pytest.raises(TypeError, match=r"a matrix of real numbers is wanted: got torch.int64|parameter 'a'"):
        solve(torch.ones(3, 2).long(), torch.ones(3))


def test_the_penalty_is_above_zero():
    with pytest.raises(ValueError, match="above 0: got 0"):
        ridge(torch.ones(2, 1), torch.ones(2), penalty=0.0)
