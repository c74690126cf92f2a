"""Functions of one variable: certified piecewise-linear interpolation, and few pieces within an error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lawful.theory._algebra import quadratic
from lawful.theory._expressions import Expression, variable
from lawful.theory._intervals import Interval, Jet

_MAX_CELLS = 300_000
_U = variable("u")


class TooLargeError(ValueError):
    """A network or a certificate would be too large."""


class Enclosed(Protocol):
    """A function of one variable with bounds of its deviation from a line."""

    def values(self, x: np.ndarray) -> Interval:
        """Encloses the values at points."""

    def deviation(self, x: np.ndarray, line: np.ndarray) -> Interval:
        """Encloses the function minus a line on each cell between points, from the values of the line at the points."""

    def range(self, x: np.ndarray) -> tuple[float, float]:
        """Returns bounds of all values."""


class ExpressionFunction:
    """An expression in `u`, enclosed by interval arithmetic."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    def jet(self, x: Interval) -> Jet:
        found = self.expression.jet({"u": Jet.variable(x)})
        shape = np.shape(x.low)
        parts = (
            Interval(np.broadcast_to(part.low, shape), np.broadcast_to(part.high, shape))
            for part in (found.value, found.first, found.second)
        )
        return Jet(*parts)

    def values(self, x: np.ndarray) -> Interval:
        return self.jet(Interval(x, x)).value

    def deviation(self, x: np.ndarray, line: np.ndarray) -> Interval:
        r"""Encloses $f - \ell$ on each cell by the best of three bounds, with the errors $e$ at both ends.

        - The range of $f$ on the cell, minus that of $\ell$.
        - The mean value theorem: $e$ at the nearer end, and half the width times the largest $|f' - \ell'|$.
        - The remainder of interpolation: $f - \ell$ is at most $h^2 / 8 \sup (-f'')^+$ above the larger $e$.
        """
        with np.errstate(all="ignore"):
            ends, jet = self.values(x), self.jet(Interval(x[:-1], x[1:]))
            width = np.nextafter(np.diff(x), np.inf)
            error = Interval(*(np.nextafter(e - line, side) for e, side in ((ends.low, -np.inf), (ends.high, np.inf))))
            low, high = (np.minimum(error.low[:-1], error.low[1:]), np.maximum(error.high[:-1], error.high[1:]))
            bottom, top = (np.minimum(line[:-1], line[1:]), np.maximum(line[:-1], line[1:]))
            whole = Interval(jet.value.low - top, jet.value.high - bottom)
            slope = np.diff(line) / np.diff(x)
            steep = np.maximum(np.abs(jet.first.low - slope), np.abs(jet.first.high - slope)) * (1 + 1e-14)
            mean = Interval(low - steep * width / 2, high + steep * width / 2)
            curved = width**2 / 8 * (1 + 1e-14)
            remainder = Interval(
                low - curved * np.maximum(jet.second.high, 0), high + curved * np.maximum(-jet.second.low, 0)
            )
            bounds = [_without_nan(bound) for bound in (whole, mean, remainder)]
            return bounds[0].intersection(bounds[1]).intersection(bounds[2])

    def kinks(self) -> list[float]:
        """Returns the zeros of affine arguments of `abs`, `max`, `min` and `sign`."""
        found: list[float] = []
        queue = [self.expression]
        while queue:
            f = queue.pop()
            queue += f.args
            if f.op in ("abs", "max", "min", "sign"):
                argument = quadratic(f.args[0] if len(f.args) == 1 else f.args[0] - f.args[1])
                if argument is not None and not argument[0] and argument[1]:
                    found.append(float(-argument[2] / argument[1]))
        return found

    def range(self, x: np.ndarray) -> tuple[float, float]:
        values, whole = self.values(x), self.jet(Interval(x[:-1], x[1:])).value
        line = (values.low + values.high) / 2
        error = self.deviation(x, line)
        low = np.maximum(np.minimum(line[:-1], line[1:]) + error.low, whole.low)
        high = np.minimum(np.maximum(line[:-1], line[1:]) + error.high, whole.high)
        return float(np.nextafter(low.min(), -np.inf)), float(np.nextafter(high.max(), np.inf))


def _without_nan(bound: Interval) -> Interval:
    low, high = (np.where(np.isnan(bound.low), -np.inf, bound.low), np.where(np.isnan(bound.high), np.inf, bound.high))
    return Interval(low, high)


@dataclass(frozen=True)
class SampledFunction:
    """A callable with a modulus of continuity."""

    function: Callable[[np.ndarray], np.ndarray]
    modulus: Callable[[float], float]

    def values(self, x: np.ndarray) -> Interval:
        found = self.function(x)
        return Interval(found, found)

    def deviation(self, x: np.ndarray, line: np.ndarray) -> Interval:
        r"""Encloses $f - \ell$: between two points, $f$ is at most $\omega(h)$ away from its interpolation."""
        error = self.values(x).low - line
        size = np.array([self.modulus(float(h)) for h in np.diff(x)])
        return Interval(np.minimum(error[:-1], error[1:]) - size, np.maximum(error[:-1], error[1:]) + size)

    def range(self, x: np.ndarray) -> tuple[float, float]:
        found, size = self.values(x).low, self.modulus(float(np.diff(x).max()))
        return float(found.min() - size), float(found.max() + size)


def partition(function: Enclosed, low: float, high: float, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Splits an interval until linear interpolation is certified to have a small error.

    Returns:
        Points, and values of the function there.

    Raises:
        ValueError: If the function is not continuous and finite, or needs too many points.
    """
    kinks = np.array(function.kinks() if isinstance(function, ExpressionFunction) else [])
    margin = 2.0**-48 * max(abs(low), abs(high), high - low)  # a zero that is not a float is in a narrow cell
    kinks = np.concatenate([kinks - margin, kinks, kinks + margin])
    kinks = kinks[(kinks > low) & (kinks < high)]
    x = _bounded_cells(function, np.union1d(np.linspace(low, high, 9), kinks))
    values = function.values(x)
    y = (values.low + values.high) / 2
    checked = np.zeros(len(x) - 1, dtype=bool)
    while True:
        open_cells = np.flatnonzero(~checked)
        bad = np.zeros(len(checked), dtype=bool)
        error = np.zeros(len(checked))
        for start in range(0, len(open_cells), 200_000):
            cells = open_cells[start : start + 200_000]
            runs = np.split(cells, np.flatnonzero(np.diff(cells) > 1) + 1)
            for run in runs if len(runs) < 50 else [np.arange(cells[0], cells[-1] + 1)]:
                found = function.deviation(x[run[0] : run[-1] + 2], y[run[0] : run[-1] + 2])
                error[run] = found.magnitude
        bad[open_cells] = ~(error[open_cells] <= tolerance)
        if not bad.any():
            return x, y
        middle = (x[:-1] + x[1:]) / 2
        narrow = bad & ((middle <= x[:-1]) | (middle >= x[1:]) | (np.diff(x) < 1e-14 * (high - low)))
        stuck = narrow & (error > tolerance)
        if stuck.any():
            raise ValueError(_reason(function, x, y, int(np.flatnonzero(stuck)[0])))
        bad &= ~narrow
        if not bad.any():
            return x, y
        if len(x) + bad.sum() > _MAX_CELLS:
            place = _place(x, int(bad.argmax()))
            raise TooLargeError(
                f"error is too small: {_MAX_CELLS:,} points are not enough to certify it. Most are near {place}"
            )
        places = np.flatnonzero(bad) + 1
        checked = np.repeat(~bad, 1 + bad)
        new = function.values(middle[bad])
        x, y = (np.insert(x, places, middle[bad]), np.insert(y, places, (new.low + new.high) / 2))


def _bounded_cells(function: Enclosed, x: np.ndarray) -> np.ndarray:
    """Splits cells until the function has finite bounds on each."""
    while True:
        values = function.values(x)
        if not bool(values.is_finite.all()):
            raise ValueError(_unbounded(x, int(np.argmin(values.is_finite))))
        bad = ~function.deviation(x, (values.low + values.high) / 2).is_finite
        if not bad.any():
            return x
        middle = (x[:-1] + x[1:]) / 2
        if (bad & ((middle <= x[:-1]) | (middle >= x[1:]) | (np.diff(x) < 1e-14 * (x[-1] - x[0])))).any():
            raise ValueError(_unbounded(x, int(bad.argmax())))
        if bad.sum() > 10_000:
            raise ValueError(_unbounded(x, int(bad.argmax())))
        x = np.insert(x, np.flatnonzero(bad) + 1, middle[bad])


def _place(x: np.ndarray, index: int) -> str:
    """Writes a point with as many digits as the box has."""
    return f"{round(float(x[index]), 6 - math.ceil(math.log10(x[-1] - x[0]))) + 0.0:.6g}"


def _unbounded(x: np.ndarray, index: int) -> str:
    return (
        f"the function has no finite bound near {_place(x, index)}: it has a pole there, or is not defined. "
        "Choose a box without that point"
    )


def _reason(function: Enclosed, x: np.ndarray, y: np.ndarray, cell: int) -> str:
    """Says why a function has no small cell."""
    around = function.deviation(x[cell : cell + 2], y[cell : cell + 2])
    place = _place(x, cell)
    return (
        f"the function jumps by {abs(around.high - around.low)[0]:.3g} near {place}: "
        "a network is continuous, and no continuous function is close to a jump"
    )


def fewest_pieces(x: np.ndarray, y: np.ndarray, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Finds knots and values of a piecewise-linear function with few pieces within `delta` of given points.

    Each piece ends as far to the right as possible. The first value is chosen among five. Knots are among the points.
    An interpolation that is exact is preferred if it has as few pieces.

    Returns:
        Knots and values.
    """
    exact = _greedy(x, y, 1e-14 * (1 + np.abs(y).max()), 0.0, limit=64)
    found = min((_greedy(x, y, delta, start) for start in (0.0, -1.0, 1.0, -0.5, 0.5)), key=lambda pair: len(pair[0]))
    return exact if len(exact[0]) <= len(found[0]) and exact[0][-1] == x[-1] else found


def _greedy(
    x: np.ndarray, y: np.ndarray, delta: float, start: float, limit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    k, value, step = 0, float(y[0] + start * delta), 32
    knots, values = [x[0]], [value]
    while k < len(x) - 1 and (limit is None or len(knots) < limit):
        while True:
            stop = min(k + 1 + step, len(x))
            run = x[k + 1 : stop] - x[k]
            high = np.minimum.accumulate((y[k + 1 : stop] + delta - value) / run)
            low = np.maximum.accumulate((y[k + 1 : stop] - delta - value) / run)
            reached = int(np.searchsorted(low > high, True))
            if reached < len(run) or stop == len(x):
                break
            step *= 2
        last = max(reached - 1, 0)
        slope = (low[last] + high[last]) / 2
        value += float(slope * run[last])
        k += last + 1
        step = max(32, 2 * (last + 1))
        knots.append(x[k])
        values.append(value)
    return np.array(knots), np.array(values)
