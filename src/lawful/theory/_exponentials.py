r"""Sums of exponentials, as in the proof of the universal approximation theorem.

The span of $x \mapsto e^{\langle \nu, x \rangle}$ is an algebra that contains the constants and separates points.
By the theorem of Stone and Weierstrass it is dense in the continuous functions on a box. Each exponential is a function
of one variable, so the network has one hidden layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import torch

from lawful.theory._expressions import Expression, call, number, variable
from lawful.theory._intervals import ZERO, Interval, Jet
from lawful.theory._univariate import TooLargeError

_MAX_TERMS, _MAX_CELLS, _CHUNK = 200, 1_500_000, 20_000


def fit_exponentials(
    target: Expression, box: Mapping[str, tuple[float, float]], error: float
) -> tuple[Expression, float, list[int]]:
    """Fits a sum of exponentials, and certifies its error on the box.

    Args:
        target: The function.
        box: Interval of each variable.
        error: Largest error.

    Returns:
        The sum, the bound of its error, and the number of cells along each variable on which it is certified.
    """
    names = list(box)
    middle, radius = (np.array([(high + sign * low) / 2 for low, high in box.values()]) for sign in (1, -1))
    nodes = np.cos(np.linspace(0, np.pi, 33 if len(box) < 3 else 13))
    x = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes] * len(box), indexing="ij")], 1)
    points = middle + radius * x
    y = target(**{name: torch.from_numpy(points[:, i]) for i, name in enumerate(names)}).numpy()
    if not np.isfinite(y).all():
        raise ValueError("the function has no finite bound on the box: it has a pole, or is not defined everywhere")
    smallest = np.inf
    for count in range(1, 8):
        if (2 * count + 1) ** len(box) > _MAX_TERMS:
            break
        for step in (1.5, 1.0, 0.75, 0.5):
            grid = np.meshgrid(*[np.arange(-count, count + 1) * step] * len(box), indexing="ij")
            rates = np.reshape(grid, (len(box), -1)).T
            weights, worst = _fit(np.exp(x @ rates.T), y)
            smallest = min(smallest, worst)
            if worst > 0.8 * error:
                continue
            found = _to_expression(weights, rates, middle, radius, names)
            certified = _certify(target - found, box, error)
            if certified is not None:
                return found, *certified
    raise TooLargeError(
        f"error is too small for method='exponentials': no sum of up to {_MAX_TERMS} exponentials has a certificate. "
        f"The best fit had {smallest:.2g} on a grid: use method='squares'"
    )


def _fit(features: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Fits weights by least squares, with more weight where the error is large (Lawson's algorithm)."""
    importance, best = np.ones(len(y)), (np.zeros(features.shape[1]), np.inf)
    for _ in range(10):
        root = np.sqrt(importance / importance.sum())
        found = np.linalg.lstsq(features * root[:, None], y * root, rcond=1e-7)[0]
        residual = np.abs(features @ found - y)
        if residual.max() < best[1]:
            best = found, float(residual.max())
        importance = importance * (residual / max(residual.max(), 1e-300) + 1e-3)
    return best


def _to_expression(
    weights: np.ndarray, rates: np.ndarray, middle: np.ndarray, radius: np.ndarray, names: list[str]
) -> Expression:
    """Writes the sum with decimal numbers."""
    total = number(0)
    for weight, rate in zip(weights, rates, strict=True):
        slopes = [Fraction(f"{value:.6g}") for value in rate / radius]
        shift = sum(float(slope) * center for slope, center in zip(slopes, middle, strict=True))
        factor = Fraction(f"{weight * np.exp(-shift):.12g}")
        if not factor:
            continue
        exponent = number(0)
        for slope, name in zip(slopes, names, strict=True):
            if slope:
                term = variable(name) if slope == 1 else number(slope) * variable(name)
                exponent = term if exponent == number(0) else exponent + term
        term = number(factor) * call("exp", exponent) if exponent != number(0) else number(factor)
        total = term if total == number(0) else total + term
    return total


def _certify(
    difference: Expression, box: Mapping[str, tuple[float, float]], error: float
) -> tuple[float, list[int]] | None:
    """Bounds a function on grids of more and more cells, until the bound is at most `error`."""
    counts = [16] * len(box)
    while math.prod(counts) <= _MAX_CELLS:
        bound = certify_difference(difference, box, counts, stop=error)
        if bound <= error:
            return bound, counts
        counts = [2 * count for count in counts]
    return None


def certify_difference(
    difference: Expression, box: Mapping[str, tuple[float, float]], cells: Sequence[int], *, stop: float = math.inf
) -> float:
    """Bounds a function on equal cells, by its value in the middle and its first derivatives.

    Args:
        difference: The function.
        box: Interval of each variable.
        cells: Number of cells along each variable.
        stop: The search ends at a larger bound.
    """
    bound, total = 0.0, math.prod(cells)
    for start in range(0, total, _CHUNK):
        chunk = np.unravel_index(np.arange(start, min(start + _CHUNK, total)), cells)
        bound = max(bound, _bound(difference, box, cells, chunk))
        if bound > stop:
            break
    return bound


def _bound(
    difference: Expression, box: Mapping[str, tuple[float, float]], counts: Sequence[int], cells: tuple[np.ndarray, ...]
) -> float:
    """Returns the largest absolute value on cells."""
    whole, centers, radii = {}, {}, {}
    for (name, (low, high)), count, index in zip(box.items(), counts, cells, strict=True):
        ends = np.linspace(low, high, count + 1)
        center = (ends[index] + ends[index + 1]) / 2
        whole[name], centers[name] = Interval(ends[index], ends[index + 1]), Interval(center, center)
        radii[name] = np.nextafter(np.maximum(center - ends[index], ends[index + 1] - center), np.inf)
    total = difference.jet({name: Jet(point, ZERO, ZERO) for name, point in centers.items()}).value.magnitude
    for name in box:
        inputs = {
            other: Jet.variable(cell) if other == name else Jet(cell, ZERO, ZERO) for other, cell in whole.items()
        }
        total = total + radii[name] * difference.jet(inputs).first.magnitude * (1 + 1e-14)
    return float(np.where(np.isnan(total), np.inf, total).max()) * (1 + 1e-14)
