"""Norms, projections, least squares, QR and the characteristic polynomial."""

import math
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations

import numpy as np
import pytest
import scipy.linalg
import torch
from scipy.spatial import distance as scipy_distance
from sklearn.linear_model import Ridge

from lawful.functions import (
    angle,
    characteristic_polynomial,
    distance,
    givens_qr,
    gram_determinant,
    householder_qr,
    least_squares,
    modified_gram_schmidt,
    norm,
    normal_equations,
    project,
    project_onto_columns,
    qr,
    ridge,
    well_conditioned,
)
from lawful.laws import (
    Claim,
    Equal,
    agreement,
    derivative,
    finiteness,
    gradient,
    law,
    second_order_gradient,
    shape,
    transformed,
)

EXPONENTS = [1, 1.5, 2, 2.5, 3, 7.5, math.inf]
CONSTRUCTIONS = [qr, modified_gram_schmidt, householder_qr, givens_qr]
ANY_RANK = [qr, householder_qr, givens_qr]


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_norm_equals_numpy(p, dim):
    x = randn(4, 5, 6)
    np.testing.assert_allclose(norm(x, p=p, dim=dim), np.linalg.norm(x.numpy(), p, dim), rtol=1e-12)


@pytest.mark.parametrize("p", EXPONENTS)
def test_distance_equals_scipy(p):
    x, y = randn(5, seed=1), randn(5, seed=2)
    assert float(distance(x, y, p=p)) == pytest.approx(scipy_distance.minkowski(x, y, p), rel=1e-12)


def test_distance_broadcasts():
    x, y = randn(4, 1, 3), randn(1, 5, 3, seed=1)
    torch.testing.assert_close(distance(x, y), torch.cdist(x[:, 0], y[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("entries", [[0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [-1.0, 0.0, 1.0]])
def test_norm_derivatives_are_finite_at_zero(dtype, p, entries):
    x = torch.tensor(entries, dtype=dtype, requires_grad=True)
    (slope,) = torch.autograd.grad(norm(x, p=p), x, create_graph=True)
    assert slope.isfinite().all()
    assert not slope[x == 0].any()
    if slope.requires_grad:
        (bend,) = torch.autograd.grad(slope.square().sum() + slope.sum(), x)
        assert bend.isfinite().all()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("p", EXPONENTS)
def test_norm_derivatives_away_from_zero(p):
    x = (randn(2, 4).sign() + 0.3 * randn(2, 4, seed=1)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: norm(x, p=p), x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x: norm(x, p=p), x)


@pytest.mark.parametrize("p", EXPONENTS)
def test_norm_second_derivative_at_a_zero_entry(p):
    x = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    if 2 <= p < math.inf:
        power = x[::2].pow(p).sum().pow(1 / p)
        expected = torch.autograd.functional.hessian(lambda x: x[::2].pow(p).sum().pow(1 / p), x)
        expected[1, 1] = 1 / power if p == 2 else 0.0
        torch.testing.assert_close(torch.autograd.functional.hessian(lambda x: norm(x, p=p), x), expected.detach())


@pytest.mark.parametrize("p", EXPONENTS)
def test_norm_under_vmap_and_grad(p):
    x = randn(3, 4)
    torch.testing.assert_close(torch.vmap(lambda x: norm(x, p=p))(x), norm(x, p=p))
    rows = torch.vmap(torch.func.grad(lambda x: norm(x, p=p)))(x)
    torch.testing.assert_close(rows, torch.func.grad(lambda x: norm(x, p=p).sum())(x))


def test_norm_propagates_nan():
    assert norm(torch.tensor([1.0, math.nan])).isnan()


@pytest.mark.parametrize("p", [0.5, 0, -1, math.nan])
def test_p_below_one_raises(p):
    with pytest.raises(ValueError, match=f"p must be at least 1, got {p}"):
        norm(torch.ones(2), p=p)


def test_distance_of_different_sizes_raises():
    for y in (torch.ones(4), torch.ones(1)):
        with pytest.raises(ValueError, match=rf"equal size along dim -1, got \(3,\) and \({len(y)},\)"):
            distance(torch.ones(3), y)
    with pytest.raises(ValueError, match="of equal size"):
        distance(torch.ones(2, 3), torch.ones(3), dim=0)
    assert distance(torch.ones(2, 3), torch.zeros(2, 1), dim=0).shape == (3,)


def test_norm_of_empty_vectors_is_zero():
    assert norm(torch.ones(2, 0)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("theta", [0.0, 1e-8, 1e-3, 1.0, math.pi / 2, 3.0, math.pi - 1e-8, math.pi])
def test_angle_is_accurate_everywhere(theta):
    rotated = torch.tensor([math.cos(theta), math.sin(theta)], dtype=torch.float64)
    found = angle(torch.tensor([2.0, 0.0], dtype=torch.float64), 3 * rotated)
    assert float(found) == pytest.approx(theta, rel=1e-7, abs=1e-15)


@pytest.mark.parametrize("pair", [([0.0, 0.0], [1.0, 2.0]), ([0.0, 0.0], [0.0, 0.0]), ([1.0, 2.0], [2.0, 4.0])])
def test_angle_gradients_are_finite(pair):
    x, y = (torch.tensor(v, requires_grad=True) for v in pair)
    angle(x, y).backward()
    assert x.grad.isfinite().all()
    assert y.grad.isfinite().all()


def test_angle_with_zero_is_a_right_angle():
    zero, x = torch.zeros(2), torch.ones(2)
    for pair in ((zero, x), (x, zero), (zero, zero)):
        assert float(angle(*pair)) == pytest.approx(math.pi / 2)


@pytest.mark.parametrize("size", [1e-30, 1e-22, 1e18, 1e30, 3e38])
def test_angle_of_vectors_of_any_length(size):
    x, y = torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0])
    assert float(angle(size * x, y)) == pytest.approx(math.pi / 4)
    assert float(angle(size * x, size * x)) == 0


@pytest.mark.parametrize("function", [angle, project])
def test_vectors_of_different_sizes_raise(function):
    with pytest.raises(ValueError, match=r"equal size along dim -1, got \(3,\) and \(1,\)"):
        function(torch.ones(3), torch.ones(1))
    with pytest.raises(ValueError, match=r"equal size along dim -1, got \(2, 3\) and \(1,\)"):
        function(torch.ones(2, 3), torch.ones(1))


def test_project_equals_numpy():
    x, a = randn(5).numpy(), randn(5, seed=1).numpy()
    found = project(torch.from_numpy(x), torch.from_numpy(a))
    np.testing.assert_allclose(found, np.outer(a, a) @ x / (a @ a), rtol=1e-12)


def test_project_onto_columns_equals_numpy():
    x, a = randn(6), randn(6, 3, seed=1)
    coefficients = np.linalg.lstsq(a.numpy(), x.numpy(), rcond=None)[0]
    np.testing.assert_allclose(project_onto_columns(x, a), a.numpy() @ coefficients, rtol=1e-10)


def test_projection_onto_dependent_columns():
    x, a = randn(4), randn(4, 2, seed=1)
    doubled = torch.cat([a, a @ randn(2, 2, seed=2)], -1)
    torch.testing.assert_close(project_onto_columns(x, doubled), project_onto_columns(x, a))


def test_projection_onto_the_whole_space():
    x = randn(3)
    torch.testing.assert_close(project_onto_columns(x, randn(3, 5, seed=1)), x)


def test_projection_broadcasts():
    x, a = randn(7, 4), randn(4, 2, seed=1)
    torch.testing.assert_close(project_onto_columns(x, a)[3], project_onto_columns(x[3], a))


def test_projection_onto_zero_is_zero():
    x, zero = randn(3).requires_grad_(), torch.zeros(3, dtype=torch.float64, requires_grad=True)
    project(x, zero).sum().backward()
    assert zero.grad.isfinite().all()
    assert not project(x, zero).any()
    assert not project_onto_columns(x, torch.zeros(3, 2, dtype=torch.float64)).any()


def test_projection_gradients():
    x, a = randn(4).requires_grad_(), randn(4, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(project_onto_columns, (x, a))
    assert torch.autograd.gradcheck(project, (x, a[:, 0].detach().requires_grad_()))


def test_projection_of_different_sizes_raises():
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied \(2x4 and 3x1\)"):
        project_onto_columns(torch.ones(3), torch.ones(4, 2))


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1e30])
def test_projection_onto_vectors_of_any_length(size):
    x, onto = torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0])
    torch.testing.assert_close(project(x, size * onto), torch.tensor([2.0, 2.0]))
    torch.testing.assert_close(project(1e30 * x, size * onto), torch.tensor([2e30, 2e30]))


@pytest.mark.parametrize("solve", [least_squares, normal_equations])
def test_least_squares_equals_scipy(solve):
    a, b = randn(3, 7, 4), randn(3, 7, seed=1)
    expected = [scipy.linalg.lstsq(one.numpy(), side.numpy())[0] for one, side in zip(a, b, strict=True)]
    np.testing.assert_allclose(solve(a, b), expected, atol=1e-12)


@pytest.mark.parametrize("solve", [least_squares, normal_equations])
def test_least_squares_broadcasts(solve):
    a, b = randn(7, 4), randn(5, 7, seed=1)
    expected, *_ = np.linalg.lstsq(a.numpy(), b.numpy().T, rcond=None)
    np.testing.assert_allclose(solve(a, b), expected.T, atol=1e-12)


def test_qr_keeps_digits_that_the_normal_equations_lose():
    a = torch.tensor(scipy.linalg.hilbert(7)[:, :5])
    b = a @ torch.ones(5, dtype=torch.float64)
    by_qr, by_normal = ((solve(a, b) - 1).abs().max() for solve in (least_squares, normal_equations))
    assert by_qr < 1e-9 < by_normal


@pytest.mark.parametrize("penalty", [0.1, 10.0])
def test_ridge_equals_scikit_learn(penalty):
    a, b = randn(7, 4), randn(7, seed=1)
    expected = Ridge(alpha=penalty, fit_intercept=False, solver="cholesky").fit(a.numpy(), b.numpy()).coef_
    np.testing.assert_allclose(ridge(a, b, penalty=penalty), expected, atol=1e-12)


def test_ridge_takes_a_penalty_for_each_of_a_batch():
    a, b = randn(2, 7, 4), randn(2, 7, seed=1)
    together = ridge(a, b, penalty=torch.tensor([0.5, 2.0], dtype=torch.float64))
    for n, penalty in enumerate((0.5, 2.0)):
        torch.testing.assert_close(together[n], ridge(a[n], b[n], penalty=penalty))


def test_ridge_of_a_singular_matrix_tends_to_the_pseudo_inverse():
    a, b = randn(6, 2) @ randn(2, 4, seed=1), randn(6, seed=2)
    expected = torch.linalg.pinv(a) @ b
    apart = [(ridge(a, b, penalty=penalty) - expected).norm() for penalty in (1e-2, 1e-4, 1e-6)]
    assert apart[0] > 10 * apart[1] > 100 * apart[2]


@pytest.mark.parametrize("solve", [least_squares, normal_equations])
def test_a_singular_matrix_raises(solve):
    exact = torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    rounded = (randn(6, 2) @ randn(2, 4, seed=1)).expand(2, 6, 4)
    for a in (exact, rounded, torch.zeros(3, 2)):
        with pytest.raises(ValueError, match=r"columns of A must be independent.*pinv"):
            solve(a, a[..., 0])


@pytest.mark.parametrize("solve", [least_squares, normal_equations])
def test_nan_propagates_within_its_own_problem(solve):
    a, b = randn(2, 5, 3), randn(2, 5, seed=1)
    b[0, 0] = torch.nan
    x = solve(a, b)
    assert x[0].isnan().all()
    assert x[1].isfinite().all()
    a[1, 2, 2] = torch.nan
    assert solve(a, b)[1].isnan().any()


@pytest.mark.parametrize("solve", [least_squares, normal_equations])
def test_shapes_that_do_not_fit(solve):
    with pytest.raises((TypeError, ValueError), match=r"expected A of shape|parameter 'b'"):
        solve(torch.zeros(4, 2), torch.zeros(3))
    with pytest.raises(ValueError, match=r"rows as columns|independent"):
        solve(torch.ones(2, 3), torch.ones(2))


@pytest.mark.parametrize("solve", [least_squares, normal_equations])
@pytest.mark.parametrize("unit", [1e-9, 1e12])
def test_columns_of_very_different_scale_are_independent(solve, unit):
    a = torch.tensor([[1.0, 0.0], [0.0, unit], [1.0, unit]])
    torch.testing.assert_close(solve(a, torch.tensor([1.0, 1.0, 2.0])), torch.tensor([1.0, 1 / unit]))


@pytest.mark.parametrize("solve", [least_squares, normal_equations, partial(ridge, penalty=0.1)])
def test_runs_under_vmap(solve):
    a, b = randn(3, 7, 4), randn(3, 7, seed=1)
    torch.testing.assert_close(torch.func.vmap(solve)(a, b), solve(a, b))


def test_a_penalty_below_rounding_raises():
    with pytest.raises(ValueError, match=r"penalty=0.001 is below the rounding error"):
        ridge(torch.ones(3, 2) * 1e6, torch.ones(3), penalty=1e-3)
    found = ridge(torch.ones(3, 2) * 1e6, torch.ones(3), penalty=1e6)
    torch.testing.assert_close(found, torch.full((2,), 5e-7))


@pytest.mark.parametrize("solve", [least_squares, normal_equations, partial(ridge, penalty=0.1)])
def test_integer_matrices_raise(solve):
    with pytest.raises(TypeError, match=r"expected a real matrix.*got torch.int64|parameter 'a'"):
        solve(torch.ones(3, 2).long(), torch.ones(3))


def test_a_penalty_of_zero_raises():
    with pytest.raises(ValueError, match="greater than 0, got 0"):
        ridge(torch.ones(2, 1), torch.ones(2), penalty=0.0)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("size", [(5, 5), (7, 4), (6, 1), (1, 1)])
def test_qr_equals_scipy_up_to_signs(construction, size):
    a = randn(*size)
    q, r = scipy.linalg.qr(a.numpy(), mode="economic")
    sign = np.sign(np.diag(r))
    found = construction(a)
    np.testing.assert_allclose(found[0], q * sign, atol=1e-12)
    np.testing.assert_allclose(found[1], r * sign[:, None], atol=1e-12)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_qr_of_a_batch(construction):
    a = randn(2, 3, 5, 4)
    q, r = construction(a)
    for i in range(2):
        for k in range(3):
            one = construction(a[i, k])
            torch.testing.assert_close((q[i, k], r[i, k]), tuple(one))


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_qr_in_float32(construction):
    a = randn(20, 10, dtype=torch.float32)
    q, r = construction(a)
    assert q.dtype == r.dtype == torch.float32
    torch.testing.assert_close(q @ r, a, rtol=0, atol=1e-5)
    torch.testing.assert_close(q.mT @ q, torch.eye(10), rtol=0, atol=1e-4)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_qr_gradients_equal_pytorch(construction):
    def slope(function):
        a = randn(3, 5, 3).requires_grad_()
        q, r = function(a)
        (randn(*q.shape, seed=1) * q).sum().add((randn(*r.shape, seed=2) * r).sum()).backward()
        return a.grad

    torch.testing.assert_close(slope(construction), slope(qr))


@pytest.mark.parametrize("construction", ANY_RANK)
def test_qr_of_dependent_columns(construction):
    a = randn(5, 3)
    a[:, 1] = 2 * a[:, 0]
    for case in (a, torch.zeros(4, 3, dtype=torch.float64), torch.eye(4, dtype=torch.float64)[:, [3, 3, 0]]):
        q, r = construction(case)
        torch.testing.assert_close(q @ r, case)
        torch.testing.assert_close(q.mT @ q, torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e-200, torch.float64), (1e200, torch.float64), (1e20, torch.float32), (1e-22, torch.float32)],
)
def test_qr_neither_overflows_nor_underflows(construction, scale, dtype):
    a = randn(4, 3, dtype=dtype)
    q, r = construction(scale * a)
    torch.testing.assert_close((q, r / scale), tuple(construction(a)))


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_derivatives_are_right_where_squares_overflow(construction):
    def slope(scale):
        a = (scale * randn(4, 3, dtype=torch.float32)).requires_grad_()
        q, r = construction(a)
        (randn(4, 3, seed=1, dtype=torch.float32) * q).sum().add(r.sum() / scale).backward()
        return a.grad * scale

    torch.testing.assert_close(slope(1e20), slope(1.0), rtol=1e-4, atol=1e-4)


def test_gram_schmidt_of_a_zero_column_is_nan():
    q, _ = modified_gram_schmidt(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    assert q[:, 1].isnan().all()


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_qr_of_wrong_matrices_raises(construction):
    with pytest.raises(ValueError, match="as many rows as columns, got a 2 x 3"):
        construction(torch.zeros(2, 3))
    for wrong in (torch.zeros(3), torch.zeros(3, 3, dtype=torch.long), torch.zeros(3, 3, dtype=torch.complex64)):
        with pytest.raises(TypeError, match=r"expected a real matrix|parameter 'a'"):
            construction(wrong)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_qr_of_an_empty_batch(construction):
    q, r = construction(torch.zeros(0, 3, 2))
    assert q.shape == (0, 3, 2)
    assert r.shape == (0, 2, 2)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_qr_without_columns(construction):
    q, r = construction(torch.zeros(2, 4, 0))
    assert q.shape == (2, 4, 0)
    assert r.shape == (2, 0, 0)


def test_gram_determinant_keeps_digits_that_the_gram_matrix_loses():
    small = 1e-9
    a = torch.tensor([[1.0, 1.0], [small, 0.0], [0.0, small]], dtype=torch.float64)
    exact = 2 * small**2 + small**4
    torch.testing.assert_close(gram_determinant(a), torch.tensor(exact, dtype=torch.float64), rtol=1e-6, atol=0)
    assert torch.linalg.det(a.mT @ a) == 0


def test_gram_determinant_and_its_gradient_are_zero_at_dependent_columns():
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    zero_column = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    regular = randn(3, 2)
    a = torch.stack([zero_column, torch.zeros(3, 2).double(), singular, regular]).requires_grad_()
    found = gram_determinant(a)
    (slope,) = torch.autograd.grad(found.sum(), a)
    gram = regular.mT @ regular
    torch.testing.assert_close(slope[3], 2 * torch.linalg.det(gram) * regular @ torch.linalg.inv(gram))
    torch.testing.assert_close(slope[:3], torch.zeros(3, 3, 2, dtype=torch.float64))
    torch.testing.assert_close(found[:3], torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_characteristic_polynomial_equals_numpy(n):
    a = randn(3, n, n)
    np.testing.assert_allclose(characteristic_polynomial(a), [np.poly(one) for one in a.numpy()], atol=1e-10)


def test_roots_of_the_characteristic_polynomial_are_the_eigenvalues():
    a = randn(4, 4)
    roots, eigenvalues = np.roots(characteristic_polynomial(a).numpy()), torch.linalg.eigvals(a).numpy()
    np.testing.assert_allclose(np.sort_complex(roots), np.sort_complex(eigenvalues), atol=1e-9)


def test_characteristic_polynomial_has_a_gradient_at_repeated_eigenvalues():
    a = torch.eye(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(characteristic_polynomial, a)


def test_matrices_of_wrong_shape_raise():
    with pytest.raises(TypeError, match=r"expected a square matrix, got shape \(2, 3\)|parameter 'a'"):
        characteristic_polynomial(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="got a 2 x 3 matrix"):
        gram_determinant(torch.zeros(2, 3))


@law("Q R = A; QᵀQ = 1; R_ij = 0 for i > j; R_ii ≥ 0", discover_with=None)
def qr_factors(f, a):
    """Q R = A, with Q orthonormal and R upper triangular with a non-negative diagonal."""
    q, r = f.raw_output(a)
    one, diagonal = torch.eye(r.shape[-1]).to(r).expand_as(r), r.diagonal(dim1=-2, dim2=-1)
    return Equal((q @ r, q.mT @ q, r.triu(), diagonal.abs()), (a, one, r, diagonal), exercised=True)


@law("Aᵀ A x = Aᵀ b", every_input=True, discover_with=None)
def orthogonal_residual(f, a, b):
    """The residual is orthogonal to the columns."""
    return Equal(a.mT @ (a @ f(a, b)[..., None]), a.mT @ b[..., None], exercised=True)


@law("Aᵀ f(x, A) = Aᵀ x, and f(A c, A) = A c", discover_with=None)
def orthogonal_projection(f, x, a, *, draw):
    """The residual is orthogonal to the columns, and vectors in their span are unchanged."""
    inside = (a @ draw.normal(*a.shape[:-2], a.shape[-1], 1)).squeeze(-1)
    left = (a.mT @ f(x, a).unsqueeze(-1), f(inside, a))
    return Equal(left, (a.mT @ x.unsqueeze(-1), inside), names=("Aᵀ x", "A c"))


@law("p(s) = det(s - A); p(A) = 0", discover_with=None)
def cayley_hamilton(f, a, *, draw):
    """The map returns the characteristic polynomial, and the matrix is a root of it."""
    c, s = f(a), draw.normal(4, 1)
    one = torch.eye(a.shape[-1]).to(a)
    number, power = torch.zeros_like(s), torch.zeros_like(a)
    for k in range(a.shape[-1]):
        number = (number + c[..., k]) * s
        power = (power + c[..., k, None, None] * one) @ a
    last, at_s = c[..., -1], torch.linalg.det(s[..., None, None] * one - a)
    return Equal((number + last, power), (at_s, -last[..., None, None] * one), exercised=True)


def norm_direction(x, p):
    """Derivative of the norm for 1 < p < ∞; 0 at 0."""
    power = (x.abs() / x.abs().pow(p).sum(-1, keepdim=True).pow(1 / p)).pow(p - 1)
    return (x.sign() * power).nan_to_num(0.0)


def leibniz(a):
    """The determinant as a sum over permutations."""
    n = a.shape[-1]
    total = torch.zeros_like(a[..., 0, 0])
    for order in permutations(range(n)):
        swaps = sum(i > j for i, j in combinations(order, 2))
        total = total + (-1) ** swaps * a[..., torch.arange(n), torch.tensor(order)].prod(-1)
    return total


def cauchy_binet(a):
    """The sum of the squared minors."""
    m, n = a.shape[-2:]
    return sum((leibniz(a[..., list(rows), :]).square() for rows in combinations(range(m), n)), torch.zeros(()).to(a))


def claims():
    """Second derivations of norms, projections, least squares and decompositions."""
    for p in (1, 1.5, 2, 3, math.inf):

        def equation(x, p=p):
            return x.abs().amax(-1) if p == math.inf else x.abs().pow(p).sum(-1).pow(1 / p)

        yield Claim(agreement(other=equation), partial(norm, p=p), shape("b n"), f"norm({p=})")
        if 1 < p <= 2:
            yield Claim(finiteness(), partial(norm, p=p), shape("b 4"), f"norm({p=})")
            slope = derivative(formula=partial(norm_direction, p=p))
            yield Claim(slope, partial(norm, p=p), shape("b 4"), f"norm({p=})")

    def along(x, y):
        return torch.stack([distance(x, y, p=p, dim=-2) for p in (1.5, 2, 3)])

    def distances(x, y):
        return torch.stack([(x - y).abs().pow(p).sum(-2).pow(1 / p) for p in (1.5, 2, 3)])

    yield Claim(agreement(other=distances), along, (shape("b 3 2"), shape("b 3 2")), "distance(dim=-2)")
    away = transformed(lambda x: torch.where(x < 0, x - 0.5, x + 0.5), "b 4")
    yield Claim(replace(second_order_gradient(), cases=8), norm, shape("b 4"))
    yield Claim(replace(second_order_gradient(), cases=8), partial(norm, p=1.5), away, "norm(p=1.5)")
    pair = (shape("b 4"), shape("b 4"))
    cosine = agreement(other=partial(torch.nn.functional.cosine_similarity, dim=-1))
    yield Claim(cosine, lambda x, y: angle(x, y).cos(), (away, away), "cos(angle)")
    lines = (shape("b 4"), shape("b 4 1"))
    yield Claim(orthogonal_projection(), lambda x, a: project(x, a[..., 0]), lines, "project")
    yield Claim(agreement(other=lambda x, a: project_onto_columns(x, a.unsqueeze(-1))), project, pair)
    yield Claim(orthogonal_projection(), project_onto_columns, (shape("b 4"), shape("b 4 k:1..3")))
    yield Claim(finiteness(), project, pair)
    yield from least_squares_claims()
    tall = transformed(well_conditioned, "b 4 3")
    yield Claim(qr_factors(), qr, shape("b 3 3"))
    yield Claim(gradient().on_output(1), qr, tall)
    for construction in (modified_gram_schmidt, householder_qr, givens_qr):
        any_rank = construction is not modified_gram_schmidt
        yield Claim(qr_factors(), construction, shape("b 4 3") if any_rank else tall)
        yield Claim(agreement(other=qr), construction, transformed(well_conditioned, "b 3 3"))
    yield Claim(agreement(other=lambda a: torch.linalg.det(a.mT @ a)), gram_determinant, tall)
    yield Claim(agreement(other=cauchy_binet), gram_determinant, transformed(well_conditioned, "b 4 2"))
    yield Claim(cayley_hamilton(), characteristic_polynomial, transformed(well_conditioned, "b 3 3"))


def least_squares_claims():
    tall, wide = transformed(well_conditioned, "b 4 3"), transformed(well_conditioned, "b 2 3")

    def by_pinv(a, b):
        return (torch.linalg.pinv(a) @ b[..., None])[..., 0]

    def closed_form(a, b):
        gram = a.mT @ a + 0.5 * torch.eye(a.shape[-1]).to(a)
        return torch.linalg.solve(gram, a.mT @ b[..., None])[..., 0]

    for solve in (least_squares, normal_equations):

        def in_other_units(a, b, solve=solve):
            units = a.new_tensor([1e-6, 1.0, 1e6])
            return solve(a * units, b) * units

        def of_dependent_columns(a, b, solve=solve):
            try:
                return 0 * solve(torch.cat([a[..., :1], 3 * a[..., :1]], -1), b).sum()
            except ValueError:
                return b.new_ones(())

        inputs, name = (tall, shape("b 4")), solve.__name__
        yield Claim(orthogonal_residual(), solve, inputs)
        yield Claim(agreement(other=by_pinv), solve, inputs)
        yield Claim(agreement(other=solve), in_other_units, inputs, name=f"{name}, in other units")
        raises = agreement(other=lambda a, b: b.new_ones(()))
        yield Claim(raises, of_dependent_columns, inputs, f"{name} raises for dependent columns")
    half, little = partial(ridge, penalty=0.5), partial(ridge, penalty=1e-8)
    yield Claim(agreement(other=closed_form), half, (wide, shape("b 2")), name="ridge(penalty=0.5)")
    yield Claim(agreement(other=by_pinv, rtol=1e-4), little, (wide, shape("b 2")), name="ridge(penalty=1e-8)")
