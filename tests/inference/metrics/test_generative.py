from functools import partial

import numpy as np
import pytest
import torch
from scipy import linalg
from scipy.stats import wasserstein_distance
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

from lawful.data import ring
from lawful.inference.metrics import (
    ModeCoverage,
    class_coverage,
    cubic_kernel,
    frechet_distance,
    gaussian_frechet,
    gaussian_kernel,
    median_width,
    mmd,
    mmd_test,
    mode_coverage,
    neighbor_coverage,
)


def rows(n, d, seed, shift=0.0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(d, d, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    return scale * torch.randn(n, d, generator=generator, dtype=torch.float64) @ mix + shift


@pytest.mark.parametrize("d", [1, 3, 16])
def test_frechet_equals_the_matrix_root(d):
    x, y = rows(200, d, 0), rows(150, d, 1, shift=0.5, scale=1.5)
    a, b = (np.atleast_2d(np.cov(z.numpy(), rowvar=False)) for z in (x, y))
    apart = ((x.mean(0) - y.mean(0)) ** 2).sum()
    expected = float(apart) + float(np.trace(a + b - 2 * linalg.sqrtm(a @ b).real))
    assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-6)
    assert frechet_distance(x.float(), y.float()) == pytest.approx(expected, rel=1e-3)
    assert frechet_distance(x, x) == pytest.approx(0, abs=1e-9)


def test_frechet_of_normal_numbers_is_wassersteins_distance():
    """In 1-D the optimal transport is known: it maps quantiles to quantiles."""
    q = torch.special.ndtri(torch.linspace(1e-5, 1 - 1e-5, 20001, dtype=torch.float64))
    apart = ((2 * q + 1) - (0.5 * q - 1)).square().mean()
    one, far = torch.ones(1), torch.eye(1)
    assert float(gaussian_frechet(one, 4 * far, -one, 0.25 * far)) == pytest.approx(float(apart), rel=1e-2)
    assert wasserstein_distance(2 * q, 2 * q) == 0


def test_frechet_of_flat_covariances_is_real():
    flat = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    assert float(gaussian_frechet(torch.zeros(2), flat, torch.zeros(2), flat)) == pytest.approx(0, abs=1e-5)
    rounded = torch.tensor([[1.0, 0.0], [0.0, -1e-9]])  # a variance of 0 may round to a negative number
    assert float(gaussian_frechet(torch.zeros(2), rounded, torch.zeros(2), rounded)) == pytest.approx(0, abs=1e-5)


def test_frechet_needs_more_samples_than_features():
    with pytest.raises(ValueError, match="expected more samples than features, got 5 samples of 5 features"):
        frechet_distance(torch.zeros(9, 5), torch.zeros(5, 5))


@pytest.mark.parametrize("measure", [frechet_distance, mmd, mmd_test, partial(neighbor_coverage, k=1)])
def test_invalid_features_raise(measure):
    with pytest.raises(ValueError, match="expected features of shapes"):
        measure(torch.zeros(9, 2), torch.zeros(9, 3))
    with pytest.raises(ValueError, match="features must be finite"):
        measure(torch.zeros(9, 2), torch.full((9, 2), float("nan")))
    with pytest.raises(ValueError, match="at least 2 samples"):
        measure(torch.zeros(9, 2), torch.zeros(1, 2))


@pytest.mark.parametrize("n", [5, 30])
def test_mmd_equals_scikit_learns_kernels(n):
    x, y = rows(n, 3, 0), rows(7, 3, 1, shift=1.0)
    kernels = {
        cubic_kernel: lambda a, b: polynomial_kernel(a, b, degree=3, coef0=1),
        partial(gaussian_kernel, width=1.7): lambda a, b: rbf_kernel(a, b, gamma=1 / (2 * 1.7**2)),
    }
    for ours, theirs in kernels.items():
        a, b, c = theirs(x, x), theirs(y, y), theirs(x, y)
        own = [(k.sum() - k.trace()) / (len(k) * (len(k) - 1)) for k in (a, b)]
        assert mmd(x, y, kernel=ours, rows=4) == pytest.approx(own[0] + own[1] - 2 * c.mean())


def test_mmd_is_unbiased():
    """Between small samples of one distribution it is 0 on average, and negative half of the time."""
    found = [
        mmd(rows(8, 2, 2 * i), rows(8, 2, 2 * i + 1), kernel=partial(gaussian_kernel, width=2.0)) for i in range(300)
    ]
    assert abs(np.mean(found)) < 4 * np.std(found) / 300**0.5
    assert min(found) < 0


@pytest.mark.parametrize(("n", "m"), [(6, 2), (2, 6)])
def test_mmd_test_compares_the_unbiased_mmd_of_permutations(n, m):
    for seed in range(4):
        both, generator = torch.cat([rows(n, 1, seed), rows(m, 1, 50 + seed)]), torch.Generator().manual_seed(3)
        orders = [torch.randperm(n + m, generator=generator) for _ in range(39)]
        found = [mmd(both[order[:n]], both[order[n:]]) for order in orders]
        expected = (1 + sum(value >= mmd(both[:n], both[n:]) - 1e-9 for value in found)) / 40
        assert mmd_test(both[:n], both[n:], permutations=39, seed=3) == pytest.approx(expected)


def test_mmd_test_detects_a_difference_and_has_uniform_p_values():
    x, y = rows(60, 2, 0), rows(60, 2, 1)
    kernel = partial(gaussian_kernel, width=median_width(x))
    assert mmd_test(x, y + 1.0, kernel=kernel, permutations=199) == pytest.approx(1 / 200)
    assert mmd_test(x, y, kernel=kernel, permutations=199) > 0.01
    many = [mmd_test(rows(15, 1, i), rows(15, 1, 500 + i), kernel=kernel, permutations=19) for i in range(60)]
    assert 0.3 < np.mean(many) < 0.7


def test_modes_of_a_ring():
    target = ring()
    whole = mode_coverage(target.sample(4000), target.means, scale=0.2)
    assert whole.coverage == 1.0
    assert whole.quality == pytest.approx(1 - np.exp(-4.5), abs=0.01)
    assert whole.divergence() < 0.01
    some = target.means[:3].repeat(10, 1)
    found = mode_coverage(
        torch.cat([some, torch.zeros(10, 2), torch.full((10, 2), torch.nan)]), target.means, scale=0.2
    )
    assert found == ModeCoverage(counts=(10, 10, 10, 0, 0, 0, 0, 0), samples=50)
    assert (found.coverage, found.quality) == (3 / 8, 0.6)
    assert found.divergence() == pytest.approx(np.log(8 / 3))
    assert ModeCoverage(counts=(0, 0), samples=3).divergence() == float("inf")


def test_classes_as_modes():
    found = class_coverage(torch.tensor([0, 1, 1, 3]), num_classes=4)
    assert found.coverage == 0.75
    assert found.divergence(torch.tensor([1.0, 2.0, 0.0, 1.0])) == pytest.approx(0)
    with pytest.raises(ValueError, match="labels must be non-empty, between 0 and 3"):
        class_coverage(torch.tensor([4]), num_classes=4)


def test_coverage_without_modes():
    x, y = rows(400, 2, 0), rows(400, 2, 1)
    same = neighbor_coverage(x, y)
    assert same.coverage == pytest.approx(1 - 2.0**-5, abs=0.03)
    assert same.density == pytest.approx(1, abs=0.15)
    assert min(same.precision, same.recall) > 0.9
    collapsed = neighbor_coverage(x, 0.01 * y)
    assert collapsed.precision > 0.9
    assert collapsed.coverage < 0.1
    elsewhere = neighbor_coverage(x, y + 100)
    assert (elsewhere.precision, elsewhere.coverage, elsewhere.recall) == (0, 0, 0)
    with pytest.raises(ValueError, match="k must be at least 1"):
        neighbor_coverage(x, y, k=0)


def test_impossible_arguments():
    with pytest.raises(ValueError, match="width must be positive"):
        gaussian_kernel(torch.zeros(2, 1), torch.zeros(2, 1), width=0.0)
    with pytest.raises(ValueError, match="the median distance of the samples is 0: they must differ"):
        median_width(torch.zeros(4, 1))
    with pytest.raises(ValueError, match="permutations"):
        mmd_test(rows(5, 1, 0), rows(5, 1, 1), permutations=0)
    with pytest.raises(ValueError, match="scale and num_stds must be positive"):
        mode_coverage(torch.zeros(2, 1), torch.zeros(2, 1), scale=0.0)
    with pytest.raises(ValueError, match=r"expected samples of shape \(n, d\) and modes of shape \(k, d\)"):
        mode_coverage(torch.zeros(2, 1), torch.zeros(2, 2), scale=1.0)


def test_binary_data_have_a_width():
    """Most pairs are equal; the width is the distance of the others."""
    x = torch.zeros(20, 2)
    x[:3] = torch.eye(2)[[0, 0, 1]]
    assert median_width(x) == 1.0
