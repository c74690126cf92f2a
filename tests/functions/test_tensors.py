"""Pure tensors, rank bounds, the CP decomposition and generalized products."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from lawful.functions import (
    cp,
    generalized_product,
    is_pure,
    pure_tensor,
    rank_bounds,
    rectified_dot,
    total_similarity,
    unfolding,
    well_conditioned,
)
from lawful.laws import AtMost, Claim, Equal, agreement, commutativity, homogeneity, law, shape, transformed


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_pure_tensor_has_rank_one_along_every_axis():
    t = pure_tensor(randn(2), randn(3, seed=1), randn(4, seed=2))
    for axis in range(3):
        assert np.linalg.matrix_rank(t.movedim(axis, 0).flatten(1).numpy()) == 1


def test_pure_tensor_of_one_and_of_no_vector():
    v = randn(3)
    torch.testing.assert_close(pure_tensor(v), v)
    with pytest.raises(ValueError, match="expected at least one vector, got none"):
        pure_tensor()


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_rank_bounds_of_a_matrix_are_equal(rank):
    a = randn(5, rank) @ randn(rank, 4, seed=1)
    assert rank_bounds(a) == (rank, rank) == (np.linalg.matrix_rank(a.numpy()),) * 2


def test_the_rank_of_complex_multiplication_lies_within_the_bounds():
    t = torch.zeros(2, 2, 2)
    t[0, 0, 0] = t[0, 1, 1] = t[1, 0, 1] = 1
    t[1, 1, 0] = -1
    lower, upper = rank_bounds(t)
    assert lower == 2 <= 3 <= upper == 4


def test_rank_bounds_in_a_random_basis():
    t = pure_tensor(randn(3), randn(4, seed=1), randn(5, seed=2))
    t = t + pure_tensor(randn(3, seed=3), randn(4, seed=4), randn(5, seed=5))
    assert rank_bounds(t) == (2, 4)


def test_is_pure():
    assert is_pure(pure_tensor(randn(3), randn(4, seed=1), randn(5, seed=2)))
    assert is_pure(torch.zeros(2, 3))
    assert is_pure(randn(3))
    assert not is_pure(randn(2, 2, 2))


def test_rows_of_an_unfolding_are_slices():
    t = randn(2, 3, 4)
    for axis in (0, 1, 2, -1):
        matrix = unfolding(t, dim=axis)
        assert matrix.shape == (t.shape[axis], t.numel() // t.shape[axis])
        torch.testing.assert_close(matrix[1], t.select(axis, 1).flatten())


def test_rank_bounds_of_a_scalar_raise():
    with pytest.raises(ValueError, match="at least one dimension"):
        rank_bounds(torch.tensor(1.0))


def seeded_generator(n=0):
    return torch.Generator().manual_seed(n)


def test_cp_recovers_the_terms_of_a_tensor():
    u, v, w = randn(4, 2), randn(5, 2, seed=1), randn(6, 2, seed=2)
    t = torch.einsum("ir,jr,kr->ijk", u, v, w)
    found = cp(t, 2, tolerance=1e-14, generator=seeded_generator())
    assert found.converged
    assert found.error < 1e-6
    torch.testing.assert_close(found.tensor(), t, rtol=0, atol=1e-5)
    sizes = (u.norm(dim=0) * v.norm(dim=0) * w.norm(dim=0)).sort(descending=True).values
    torch.testing.assert_close(found.weights, sizes, rtol=1e-4, atol=0)
    cosines = (torch.nn.functional.normalize(u, dim=0).mT @ found.factors[0]).abs().amax(0)
    torch.testing.assert_close(cosines, torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-5)


def test_cp_of_a_matrix_is_its_best_approximation():
    a = randn(5, 4)
    s = torch.linalg.svdvals(a)
    found = cp(a, 2, tolerance=1e-13, generator=seeded_generator())
    np.testing.assert_allclose(found.error, (s[2:].norm() / s.norm()).item(), rtol=1e-5)


def test_cp_factors_are_normalized_and_sorted():
    t = randn(3, 4, 2, 3)
    found = cp(t, 5, sweeps=20, generator=seeded_generator())
    assert [u.shape for u in found.factors] == [(3, 5), (4, 5), (2, 5), (3, 5)]
    for u in found.factors:
        torch.testing.assert_close(u.norm(dim=0), torch.ones(5, dtype=torch.float64))
    assert (found.weights.diff() <= 0).all()
    assert all(after <= before + 1e-12 for before, after in zip(found.errors, found.errors[1:], strict=False))
    np.testing.assert_allclose(found.error, ((t - found.tensor()).norm() / t.norm()).item(), rtol=1e-9)


def test_cp_reports_when_it_has_not_converged():
    assert not cp(randn(4, 4, 4), 3, sweeps=2, tolerance=0.0, generator=seeded_generator()).converged


def test_cp_converges_in_float32():
    found = cp(randn(3, 3, 3).float(), 2, generator=seeded_generator())
    assert found.converged
    assert found.weights.dtype == torch.float32


def test_cp_of_zero():
    found = cp(torch.zeros(2, 3, 2), 2, generator=seeded_generator())
    assert found.error == 0
    assert found.tensor().eq(0).all()


def test_cp_is_reproducible():
    t = randn(3, 3, 3)
    one, other = (cp(t, 2, sweeps=5, generator=seeded_generator(3)).weights for _ in range(2))
    assert one.equal(other)


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_cp_neither_overflows_nor_underflows(size):
    t = size * torch.ones(2, 3, 4)
    found = cp(t, 1, generator=seeded_generator())
    assert found.error < 1e-5
    torch.testing.assert_close(found.tensor(), t, rtol=1e-5, atol=0)


def test_cp_of_wrong_arguments_raises():
    for tolerance in (torch.nan, -1.0):
        with pytest.raises(ValueError, match="tolerance must not be negative, got"):
            cp(torch.ones(3, 3), 1, tolerance=tolerance)
    with pytest.raises(ValueError, match=r"two dimensions, got shape \(3,\)"):
        cp(torch.zeros(3), 1)
    with pytest.raises(ValueError, match="at least 1, got rank=0"):
        cp(torch.zeros(3, 3), 0)
    with pytest.raises(ValueError, match="expected finite entries, got NaN"):
        cp(torch.full((2, 2), torch.nan), 1)
    with pytest.raises(ValueError, match="an empty tensor"):
        cp(torch.zeros(0, 2), 1)


@pytest.mark.parametrize("pair", [("multiply", "sum"), ("multiply", "prod"), ("add", "prod"), ("add", "sum")])
def test_generalized_product_equals_numpy(pair):
    x, y = randn(3, 4), randn(3, 4, seed=1)
    map, reduce = pair
    found = generalized_product(x, y, map=getattr(torch, map), reduce=getattr(torch, reduce))
    np.testing.assert_allclose(found, getattr(np, reduce)(getattr(np, map)(x.numpy(), y.numpy()), -1), rtol=1e-12)


def test_any_pair_of_functions():
    x, y = randn(3, 4), randn(3, 4, seed=1)
    chebyshev = generalized_product(x, y, map=lambda a, b: (a - b).abs(), reduce=torch.amax)
    torch.testing.assert_close(chebyshev, torch.linalg.vector_norm(x - y, torch.inf, -1))


def test_only_the_dot_product_is_linear_in_each_vector():
    x, y, z = (randn(4, seed=n) for n in range(3))
    for map, reduce in ((torch.mul, torch.prod), (torch.add, torch.prod), (torch.add, torch.sum)):
        f = lambda a, b, map=map, reduce=reduce: generalized_product(a, b, map=map, reduce=reduce)  # noqa: E731
        assert not torch.allclose(f(x + z, y), f(x, y) + f(z, y))


def test_rectified_dot_equals_numpy():
    x, y = randn(5, 6), randn(5, 6, seed=1)
    np.testing.assert_allclose(rectified_dot(x, y), np.maximum(x.numpy() * y.numpy(), 0).sum(-1), rtol=1e-12)
    torch.testing.assert_close(rectified_dot(x, x), torch.linalg.vecdot(x, x))


def test_total_similarity_equals_numpy():
    x, a = randn(5, 3), randn(7, 3, seed=1)
    np.testing.assert_allclose(total_similarity(x, a), np.maximum(x.numpy() @ a.numpy().T, 0).sum(-1), rtol=1e-12)


def test_vectors_of_different_sizes_raise():
    with pytest.raises(ValueError, match=r"equal size along dim -1, got \(2,\) and \(3,\)"):
        generalized_product(torch.ones(2), torch.ones(3))
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied \(1x2 and 3x4\)"):
        total_similarity(torch.ones(2), torch.ones(4, 3))


@law("T_{i a} T_{j b} = T_{i b} T_{j a}, along every axis", every_input=True, discover_with=None)
def rank_one(f, *xs, draw):
    """Every 2 x 2 minor of every unfolding is zero."""
    t = f(*xs)
    left, right = [], []
    for axis in range(t.dim()):
        rows = t.movedim(axis, 0).reshape(t.shape[axis], -1)
        i, j = (draw.integer(0, rows.shape[0] - 1) for _ in range(2))
        left.append(torch.outer(rows[i], rows[j]))
        right.append(torch.outer(rows[j], rows[i]))
    return Equal(left, right, exercised=True)


@law("e_{s+1} ≤ e_s; 0 ≤ e_1 ≤ 1", cases=20, discover_with=None)
def errors_decrease(f, *xs):
    """The errors never increase, and start at most at 1."""
    e = f(*xs)
    return AtMost((e[1:], e[:1], -e), (e[:-1], torch.ones_like(e[:1]), torch.zeros_like(e)))


def claims():
    """Second derivations of tensors and products."""
    vectors = (shape("2"), shape("3"), shape("4"))
    yield Claim(rank_one(), pure_tensor, vectors)
    yield Claim(agreement(other=lambda u, v, w: torch.einsum("i,j,k->ijk", u, v, w)), pure_tensor, vectors)
    yield from rank_claims()
    yield from cp_claims()
    pair, dot = (shape("b 4"), shape("b 4")), torch.linalg.vecdot
    yield Claim(agreement(other=dot), generalized_product, pair)
    sums, products = partial(generalized_product, map=torch.add), partial(generalized_product, reduce=torch.prod)
    mixed = partial(generalized_product, map=torch.add, reduce=torch.prod)
    yield Claim(agreement(other=lambda x, y: x.sum(-1) + y.sum(-1)), sums, pair, "(add, sum)")
    yield Claim(agreement(other=lambda x, y: x.prod(-1) * y.prod(-1)), products, pair, "(mul, prod)")
    yield Claim(homogeneity(degree=4.0), products, pair, "(mul, prod)")
    yield Claim(commutativity(), mixed, pair, "(add, prod)")
    yield Claim(homogeneity(degree=4.0), lambda z: mixed(z[..., 0], z[..., 1]), shape("b 4 2"), "(add, prod)")
    difference = agreement(other=lambda x, y: rectified_dot(x, y) - rectified_dot(x, -y))
    yield Claim(difference, dot, pair, "dot(x, y) = rectified_dot(x, y) - rectified_dot(x, -y)")
    rows = agreement(other=lambda x, a: torch.stack([dot(x, row).clamp(min=0) for row in a], -1).sum(-1))
    yield Claim(rows, total_similarity, (shape("b 4"), shape("n 4")))


def rank_claims():
    def bounds(tensor):
        return torch.tensor(rank_bounds(tensor, rtol=1e-4), dtype=tensor.dtype)

    def of_two_terms(u, v, w):
        return bounds(torch.func.vmap(pure_tensor, in_dims=-1)(u, v, w).sum(0))

    def of_vector_and_matrix(v, a):
        return bounds(torch.tensordot(v[:, 0], a, dims=0))

    def known(lower, upper):
        return agreement(other=lambda x, *_: x.new_tensor([lower, upper]))

    def purity(x):
        a, pure = torch.tensordot(x[:, 0], x, dims=0), pure_tensor(x[:, 0], x[:, 1], x[:, 0])
        found = is_pure(x), is_pure(a), is_pure(x, rtol=2.0), is_pure(pure, rtol=1e-4), is_pure(x[:, 0])
        return x.new_tensor(found)

    regular = transformed(well_conditioned, "3 2")
    terms = tuple(transformed(well_conditioned, f"{d} 2") for d in (3, 2, 4))
    yield Claim(known(2.0, 4.0), of_two_terms, terms, name="rank_bounds of two independent terms")
    unequal = (transformed(well_conditioned, "3 1"), transformed(well_conditioned, "2 4"))
    yield Claim(known(2.0, 2.0), of_vector_and_matrix, unequal, name="rank_bounds of a vector times a matrix")
    yield Claim(known(0.0, 0.0), lambda x: bounds(0 * x), regular, name="rank_bounds of 0")
    expected = agreement(other=lambda x: x.new_tensor([False, False, True, True, True]))
    yield Claim(expected, purity, regular, name="is_pure")


def cp_claims():
    def fit(t, rank, sweeps):
        return cp(t, rank, sweeps=sweeps, tolerance=0.0, generator=seeded_generator())

    def errors(t):
        found = fit(t, 2, 3).errors
        return t.new_tensor(found + found[-1:] * (3 - len(found)))

    def reported(t):
        found = cp(t, 1, sweeps=4, generator=seeded_generator())
        return t.new_tensor([found.errors[-1], found.converged, found.converged or len(found.errors) == 4])

    def measured(t):
        found = cp(t, 1, sweeps=4, generator=seeded_generator())
        last = [1.0, *found.errors][-2:]
        apart = (t - found.tensor()).square().sum().sqrt() / t.square().sum().sqrt()
        return torch.stack([apart, *apart.new_tensor([abs(last[1] - last[0]) <= 1e-8, 1])])

    def relative_error(t):
        return (t - fit(t, 2, 1).tensor()).norm() / t.norm()

    spread = transformed(lambda x: x.tanh() / 2 + torch.arange(12.0).reshape(3, 2, 2).cos().to(x), "3 2 2")
    yield Claim(agreement(other=measured), reported, spread, name="cp, error and convergence")
    vectors = (shape("3"), shape("2"), shape("4"))
    recovered = "cp of a pure tensor, one sweep"
    yield Claim(agreement(other=pure_tensor), lambda *v: fit(pure_tensor(*v), 1, 1).tensor(), vectors, name=recovered)
    yield Claim(errors_decrease(), errors, shape("3 2 4"), name="cp of rank 2")
    above = transformed(lambda x: x.tanh() + 2, "3 2 4")
    few = replace(agreement(other=relative_error), cases=10)
    yield Claim(few, lambda t: t.new_tensor(fit(t, 2, 1).error), above, name="cp, error")
