"""Piecewise-linear functions from data and callables."""

from itertools import combinations

import numpy as np
import pytest
import torch

from lawful.theory import PiecewiseLinear, fit_piecewise_linear, interpolate_piecewise_linear
from lawful.theory.segmentation import _lower_envelope


def least_squares(x, y, knots):
    """Residual of the best continuous function with these knots."""
    columns = [np.ones_like(x), x - knots[0], *(np.maximum(x - t, 0) for t in knots[1:-1])]
    basis = np.stack(columns, 1)
    found = np.linalg.lstsq(basis, y, rcond=None)[0]
    return float(((basis @ found - y) ** 2).sum())


def residual(function, x, y):
    return float(((function(torch.from_numpy(x)).numpy() - y) ** 2).sum())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("num_pieces", [1, 2, 3, 4])
def test_the_fit_is_optimal(seed, num_pieces):
    """Against all choices of knots."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 12, 18) / 3 if seed % 2 else rng.normal(size=11)
    y = rng.normal(size=len(x)) if seed < 3 else np.abs(x - 1) + 0.1 * rng.normal(size=len(x))
    sites = np.unique(x)
    inner = combinations(sites[1:-1], num_pieces - 1)
    best = min(least_squares(x, y, (sites[0], *knots, sites[-1])) for knots in inner)
    function = fit_piecewise_linear(x, y, num_pieces=num_pieces)
    assert len(function.knots) == num_pieces + 1
    assert residual(function, x, y) == pytest.approx(best, rel=1e-7, abs=1e-12)


def test_the_envelope_has_the_minimum_everywhere():
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 40):
        parabolas = np.stack([rng.uniform(0.5, 2, size), rng.normal(size=size), rng.normal(size=size)], 1)
        kept = _lower_envelope(parabolas)
        v = np.linspace(-20, 20, 4001)
        values = np.polyval(parabolas.T[:, :, None], v)
        np.testing.assert_allclose(values[kept].min(0), values.min(0), rtol=1e-12)


def test_a_function_with_noise_is_found():
    torch.manual_seed(0)
    truth = PiecewiseLinear([0, 2, 3, 6], [1, 5, 0, 2])
    x = torch.linspace(0, 6, 3001, dtype=torch.float64)
    y = truth(x) + 0.1 * torch.randn_like(x)
    function = fit_piecewise_linear(x, y, num_pieces=3)
    assert [float(t) for t in function.knots] == pytest.approx([0, 2, 3, 6], abs=0.05)
    assert [float(v) for v in function.values] == pytest.approx([1, 5, 0, 2], abs=0.1)


def test_interpolation_has_the_error():
    calls = []

    def function(x):
        calls.append(len(x))
        return x.exp() * (5 * x).sin()

    for error in (0.1, 1e-3):
        found = interpolate_piecewise_linear(function, -1.0, 2.0, error=error)
        x = torch.linspace(-1, 2, 10_001, dtype=torch.float64)
        assert float((found(x) - function(x)).abs().max()) < 1.1 * error
    assert len(calls) < 60  # one batch per round


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_piecewise_linear(np.zeros(3), np.zeros(4), num_pieces=1), r"equal sizes: got \(3,\) and \(4,\)"),
        (lambda: fit_piecewise_linear(np.arange(3), [0, np.nan, 1], num_pieces=1), "x and y must be finite"),
        (lambda: fit_piecewise_linear(np.arange(3), np.zeros(3), num_pieces=3), r"between 1 and 2, .* got 3"),
        (
            lambda: fit_piecewise_linear(np.arange(9), np.zeros(9), num_pieces=3, max_candidates=3),
            r"max_candidates must be larger than num_pieces=3: got 3",
        ),
        (
            lambda: interpolate_piecewise_linear(torch.sign, -1.0, 2.0, error=0.1),
            r"error=0.1: the function has a jump near",
        ),
        (lambda: interpolate_piecewise_linear(torch.sin, 0.0, 1e6, error=0.1), r"more than max_knots=10000 knots"),
        (lambda: interpolate_piecewise_linear(torch.log, 0.0, 2.0, error=0.1), r"must be finite .*: it is not at 0"),
        (lambda: interpolate_piecewise_linear(torch.sin, 0.0, np.inf, error=0.1), r"low and high must be finite"),
        (lambda: interpolate_piecewise_linear(torch.sin, 0.0, 1.0, error=0.0), r"error must be positive: got 0"),
        (lambda: interpolate_piecewise_linear(torch.sum, 0.0, 1.0, error=0.1), r"return shape \(2,\): got \(\)"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
