"""Proofs in rational arithmetic that a ReLU network is equal to a piecewise-linear function, and bounds of rounding."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from lawful.theory._rounding import Number, round_up, rounding_factor
from lawful.theory.piecewise_linear import PiecewiseLinear
from lawful.theory.rational_network import RationalNetwork, rounding_bound

_ZERO = Fraction(0)


@dataclass(frozen=True)
class PiecewiseLinearProof:
    """What is proven about a network and a piecewise-linear function."""

    hidden_dims: tuple[int, ...]
    """Sizes of the hidden layers."""
    lower_bound: int
    """Smallest number of hidden units of a network with one hidden layer, as far as it is proven."""
    reason: str
    """Why no network with one hidden layer has fewer units than `lower_bound`."""
    exact: bool
    """Whether the network with rational weights is equal to the function on the whole real line: its error is 0."""
    interval: tuple[float, float]
    """Interval of the other errors."""
    weight_error: float
    """Upper bound of the difference between the function and the network with its weights, without other rounding."""
    evaluation_error: float
    """Upper bound of the rounding when the network is evaluated, for any order of the sums."""
    dtype: torch.dtype
    """Dtype of the network."""

    @property
    def error(self) -> float:
        """Certified bound of the error of the network on the interval."""
        return round_up(Fraction(self.weight_error) + Fraction(self.evaluation_error)) if self.is_finite else math.inf

    @property
    def is_finite(self) -> bool:
        """Whether there is a bound. In a narrow dtype a large network has none."""
        return math.isfinite(self.weight_error) and math.isfinite(self.evaluation_error)

    @property
    def minimal(self) -> bool:
        """Whether the network has one hidden layer with the fewest units."""
        return self.hidden_dims == (self.lower_bound,)

    def __str__(self) -> str:
        units, layers = sum(self.hidden_dims), len(self.hidden_dims)
        size = f"{units} hidden unit{'' if units == 1 else 's'} in {layers} layer{'' if layers == 1 else 's'}"
        low, high = self.interval
        equal = "is equal" if self.exact else "is not equal"
        return (
            f"With rational weights, a network with {size} {equal} to the function on the whole real line.\n"
            f"One hidden layer needs at least {self.lower_bound}: {self.reason}.\n"
            f"With weights in {str(self.dtype).removeprefix('torch.')}, the error on [{low:g}, {high:g}] is at most "
            f"{self.error:.2g}: {self.weight_error:.2g} from the weights and {self.evaluation_error:.2g} from rounding."
        )


def prove_piecewise_linear(
    network: nn.Sequential, function: PiecewiseLinear, *, interval: tuple[float, float] | None = None
) -> PiecewiseLinearProof:
    r"""Proves that a network of `compile_piecewise_linear` is equal to a function, up to a bound of the rounding.

    All comparisons are exact. The weights are read as rational numbers, and the network is rewritten as a sum of
    ridges $a (x - t)^+$ and $a (t - x)^+$. Two piecewise-linear functions are equal if they have the same changes of
    slope, and the same value and slope at one point. Their largest difference is at an end or a breakpoint.

    The bound of the evaluation holds for every input of the dtype in the interval and any order of the sums, in IEEE
    arithmetic, as PyTorch has by default: no TF32 and no bfloat16 products of float32 matrices.

    Args:
        network: Network of `compile_piecewise_linear`, or any network with one hidden layer of ReLU, one input and one
            output. A trained one has the bound of its actual error.
        function: Function to compare with.
        interval: Interval of the bound. None for the interval from the first to the last knot, or one unit to each side
            of a single knot.

    Examples:
        >>> from lawful.theory import compile_piecewise_linear
        >>> tent = PiecewiseLinear([0, 1, 3], [0, 1, 0], left_slope=0, right_slope=0)
        >>> proof = prove_piecewise_linear(compile_piecewise_linear(tent), tent)
        >>> proof.exact, proof.minimal, proof.weight_error, proof.error < 1e-5
        (True, True, 0.0, True)
    """
    floats = RationalNetwork.from_module(network)
    dims = floats.hidden_dims
    inputs = {len(row) for row in floats.layers[0].weight} | {len(floats.layers[-1].bias)}
    if not dims or inputs != {1}:
        raise ValueError("network must have one input, a hidden layer and one output")
    if interval is None:
        first, last = function.knots[0], function.knots[-1]
        interval = (float(first), float(last)) if first < last else (float(first) - 1.0, float(first) + 1.0)
    low, high = map(float, interval)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"interval must be finite and increase: got {interval}")
    rational = function.to_network(width=None if len(dims) == 1 else max(3, *dims))
    breaks = len(function.breakpoints)
    lower, reason = breaks, "each breakpoint needs a unit" if breaks else "the function is constant"
    if not breaks and function.slopes[0]:
        lower, reason = 2, "a single unit has a kink, and the function has none"
    elif breaks and function._orientation.left is None:
        lower += function._orientation.decided
        joint = "and" if function._orientation.decided else "and whether that is enough is"
        reason += f", {joint} {function._orientation.reason}"
    dtype = next(network.parameters()).dtype
    ridges = _ridges(floats)
    if len(dims) == 1 and all(abs(w) == 1 for (w,) in floats.layers[0].weight):
        evaluation = _evaluation_bound(ridges, low, high, dtype)
    else:
        evaluation = rounding_bound(network, floats, [low], [high])
    return PiecewiseLinearProof(
        hidden_dims=dims,
        lower_bound=lower,
        reason=reason,
        exact=_is_equal(_ridges(rational), function),
        interval=(low, high),
        weight_error=round_up(_difference(ridges, function, low, high)),
        evaluation_error=evaluation,
        dtype=dtype,
    )


@dataclass
class _Ridges:
    r"""A sum of a constant and ridges $a (x - t)^+$ and $a (t - x)^+$, as pairs $(t, a)$."""

    constant: Fraction
    right: list[tuple[Fraction, Fraction]]
    left: list[tuple[Fraction, Fraction]]

    def relu(self) -> _Ridges:
        """Returns the positive part, where a look at the signs shows that it is a sum of ridges."""
        weights = [a for _, a in (*self.right, *self.left)]
        if self.constant >= 0 and all(a.numerator >= 0 for a in weights):
            return self
        if self.constant <= 0 and all(a.numerator <= 0 for a in weights):
            return _Ridges(_ZERO, [], [])
        if len(weights) == 1 and weights[0] > 0:
            shift = self.constant / weights[0]
            return _Ridges(_ZERO, [(t - shift, a) for t, a in self.right], [(t + shift, a) for t, a in self.left])
        raise ValueError("expected a network with one hidden layer, or a deep one of compile_piecewise_linear")


def _ridges(network: RationalNetwork) -> _Ridges:
    """Writes a network as a sum of ridges."""
    first, *others = network.layers
    signals = []
    for (w,), b in zip(first.weight, first.bias, strict=True):
        if w:
            ridge = [(-b if w == 1 else b if w == -1 else -b / w, abs(w))]
            signals.append(_Ridges(_ZERO, *((ridge, []) if w > 0 else ([], ridge))))
        else:
            signals.append(_Ridges(max(b, _ZERO), [], []))
    for i, layer in enumerate(others):
        combined = [_combine(row, b, signals) for row, b in zip(layer.weight, layer.bias, strict=True)]
        signals = combined if i == len(others) - 1 else [signal.relu() for signal in combined]
    return signals[0]


def _combine(row: Sequence[Fraction], bias: Fraction, signals: list[_Ridges]) -> _Ridges:
    """Returns the weighted sum of ridges."""
    total = _Ridges(bias, [], [])
    for a, signal in zip(row, signals, strict=True):
        if not a:
            continue
        if signal.constant:
            total.constant += a * signal.constant
        for ours, theirs in ((total.right, signal.right), (total.left, signal.left)):
            ours += theirs if a == 1 else [(t, a if b == 1 else a * b) for t, b in theirs]
    return total


def _at_integers(pairs: Sequence[tuple[Fraction, Fraction]], scale: int) -> dict[int, Fraction]:
    """Returns the weight at each knot, a multiple of 1 / scale."""
    found: dict[int, Fraction] = {}
    for t, a in pairs:
        place = t.numerator * (scale // t.denominator)
        found[place] = found[place] + a if place in found else a
    return found


def _is_equal(ridges: _Ridges, function: PiecewiseLinear) -> bool:
    """Whether a sum of ridges is equal to a function on the real line.

    Two piecewise-linear functions are equal if they have the same changes of slope, and the same value and slope at one
    point. The point is the one with the fewest active ridges.
    """
    scale = function._x_scale
    if any(scale % t.denominator for t, _ in (*ridges.right, *ridges.left)):
        return False
    right, left = _at_integers(ridges.right, scale), _at_integers(ridges.left, scale)
    unit = Fraction(scale, function._y_scale)
    jumps = dict(right)
    for place, a in left.items():
        jumps[place] = jumps[place] + a if place in jumps else a
    breaks = [function._x[k] for k in function._breaks]
    for place, ((b, a), (d, c)) in zip(breaks, pairwise(function._slopes), strict=True):
        jump = jumps.pop(place, _ZERO)
        if jump.numerator * a * c * unit.denominator != (d * a - b * c) * unit.numerator * jump.denominator:
            return False
    if any(jumps.values()):
        return False
    places = breaks or function._x[:1]
    rights, lefts = sorted(right), sorted(left)
    point = min(places, key=lambda p: bisect_left(rights, p) - bisect_right(lefts, p))
    active = [(point - t) * a for t, a in right.items() if t < point]
    active += [(t - point) * a for t, a in left.items() if t > point]
    value = ridges.constant + sum(active, _ZERO) / scale
    slope = sum((a for t, a in right.items() if t <= point), _ZERO) - sum(
        (a for t, a in left.items() if t > point), _ZERO
    )
    anchor = Fraction(point, scale)
    return value == function.exact(anchor) and slope == function.slopes[bisect_right(function.breakpoints, anchor)]


def _difference(ridges: _Ridges, function: PiecewiseLinear, low: Number, high: Number) -> Fraction:
    """Returns the largest difference on an interval. It is at an end or at a breakpoint of one of both."""
    points = {low, high, *(t for t, _ in (*ridges.right, *ridges.left))}
    scale = math.lcm(function._x_scale, *{Fraction(point).denominator for point in points})
    factor = scale // function._x_scale
    known = {function._x[k] * factor: function._y[k] for k in range(len(function._x))}
    right, left = _at_integers(ridges.right, scale), _at_integers(ridges.left, scale)
    start, stop = (int(Fraction(end) * scale) for end in (low, high))
    places = sorted({start, stop, *right, *left, *(function._x[k] * factor for k in function._breaks)})
    unit = math.lcm(ridges.constant.denominator, *{a.denominator for a in (*right.values(), *left.values())})
    sums = dict.fromkeys(places, ridges.constant.numerator * (unit // ridges.constant.denominator) * scale)
    for side, order in ((right, places), (left, places[::-1])):
        value, slope, last = 0, 0, order[0]
        for place in order:
            value += slope * abs(place - last)
            sums[place] += value
            last = place
            if place in side:
                slope += side[place].numerator * (unit // side[place].denominator)
    # All values are integers, in units of 1 / (scale * unit * y_scale).
    largest, whole = Fraction(0), scale * unit
    for place in places:
        if start <= place <= stop:
            y = known.get(place)
            there = function.exact(Fraction(place, scale)) * function._y_scale if y is None else y
            largest = max(largest, abs(sums[place] * function._y_scale - there * whole))
    return Fraction(largest) / (whole * function._y_scale)


def _evaluation_bound(ridges: _Ridges, low: float, high: float, dtype: torch.dtype) -> float:
    r"""Bounds the rounding of a network with hidden weights 1 and -1 on an interval.

    Let $P$ and $N$ be the sums of the positive and of the negative terms at a point with $m$ active units. A term has
    two roundings, and every partial sum is between $-N$ and $P$, so the error is at most
    $\gamma_2 (P + N) + \gamma_{m+1} (1 + \gamma_2) \max(P, N)$. Between two knots, $P$ and $N$ are affine in $x$.
    """
    inner = [float(t) for t, _ in (*ridges.right, *ridges.left)]
    points = np.array([low, high, *(t for t in inner if low < t < high)])
    count, size, constant = np.zeros(len(points), dtype=int), 0.0, float(ridges.constant)
    sums = np.outer([max(constant, 0.0), max(-constant, 0.0)], np.ones(len(points)))
    for side, direction in ((ridges.right, 1.0), (ridges.left, -1.0)):
        if not side:
            continue
        kinks = np.array([direction * float(t) for t, _ in side])
        weights = np.array([float(a) for _, a in side])
        order = np.argsort(kinks)
        kinks, weights = kinks[order], weights[order]
        active = np.searchsorted(kinks, direction * points, side="right")
        start = np.maximum(active - 1, 0)
        distances = np.maximum(direction * points - kinks[start], 0)
        for i, sign in enumerate((1, -1)):
            slopes = np.cumsum(np.maximum(sign * weights, 0))
            heights = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(kinks))])
            sums[i] += np.where(active > 0, heights[start] + slopes[start] * distances, 0.0)
            size += float(slopes[-1])
        count += active
    if sums.sum(0).max() > torch.finfo(dtype).max:
        return math.inf
    gamma = np.array([rounding_factor(m + 1, dtype) for m in range(int(count.max()) + 1)])[count]
    term = rounding_factor(2, dtype)
    found = term * sums.sum(0) + gamma * (1 + term) * sums.max(0)
    underflow = 4 * torch.finfo(dtype).tiny * (int(count.max()) + 2 + size)
    own_rounding = 1 + 1e-15 * (len(points) + 10)  # all terms are positive
    return float((found + underflow).max()) * own_rounding
