"""Interval arithmetic with outward rounding, and first and second derivatives in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

_FUNCTION_ERROR = 2.0**-49
"""Bound on the relative error of the elementary functions of NumPy and PyTorch in float64: 8 machine epsilons."""
_SLACK = 1e-12
"""`sqrt` and `log` treat arguments from minus this to 0 as 0, because rounding produces them."""


@dataclass(frozen=True, eq=False)
class Interval:
    """Intervals [low, high], elementwise. NaN bounds become infinite."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def from_fraction(cls, value: Fraction) -> Interval:
        """Returns the smallest interval of floats that contains a rational number."""
        try:
            nearest = float(value)
        except OverflowError:
            raise ValueError("a constant of the expression is larger than any float") from None
        low = math.nextafter(nearest, -math.inf) if nearest > value else nearest
        high = math.nextafter(nearest, math.inf) if nearest < value else nearest
        return cls(np.array(low), np.array(high))

    @property
    def magnitude(self) -> np.ndarray:
        """Largest absolute value."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def is_finite(self) -> np.ndarray:
        return np.isfinite(self.low) & np.isfinite(self.high)

    def __add__(self, other: Interval) -> Interval:
        return _outward(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return _outward(self.low - other.high, self.high - other.low)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __mul__(self, other: Interval) -> Interval:
        products = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        products = [np.where(np.isnan(p), 0.0, p) for p in products]  # 0 times infinity
        return _outward(np.minimum.reduce(products), np.maximum.reduce(products))

    def square(self) -> Interval:
        inside = (self.low <= 0) & (self.high >= 0)
        low = np.where(inside, 0.0, np.minimum(np.abs(self.low), np.abs(self.high)))
        found = _outward(low * low, self.magnitude**2)
        return Interval(np.maximum(found.low, 0.0), found.high)

    def inverse(self) -> Interval:
        inside = (self.low <= 0) & (self.high >= 0)
        found = _outward(1 / self.high, 1 / self.low)
        return Interval(np.where(inside, -np.inf, found.low), np.where(inside, np.inf, found.high))

    def power(self, n: int) -> Interval:
        """Returns the power of the interval with an integer exponent of at least 0."""
        if n == 0:
            return Interval(np.ones_like(self.low), np.ones_like(self.high))
        half = self.power(n // 2)
        if n % 2:
            return Interval(*_signed_power(self, n))
        return half.square()

    def abs(self) -> Interval:
        inside = (self.low <= 0) & (self.high >= 0)
        return Interval(np.where(inside, 0.0, np.minimum(np.abs(self.low), np.abs(self.high))), self.magnitude)

    def union(self, other: Interval) -> Interval:
        return Interval(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def intersection(self, other: Interval) -> Interval:
        return Interval(np.maximum(self.low, other.low), np.minimum(self.high, other.high))


ZERO, ONE, HALF = (Interval(np.array(v), np.array(v)) for v in (0.0, 1.0, 0.5))


def _outward(low: np.ndarray, high: np.ndarray) -> Interval:
    low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return Interval(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))


def _signed_power(x: Interval, n: int) -> tuple[np.ndarray, np.ndarray]:
    margin = n * 2.0**-52
    low, high = x.low**n, x.high**n
    return np.nextafter(low - margin * np.abs(low), -np.inf), np.nextafter(high + margin * np.abs(high), np.inf)


def _widen(low: np.ndarray, high: np.ndarray) -> Interval:
    """Widens values of an elementary function by its error."""
    return _outward(low - _FUNCTION_ERROR * np.abs(low), high + _FUNCTION_ERROR * np.abs(high))


def _increasing(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[Interval], Interval]:
    """Extends an increasing function from numbers to intervals."""
    return lambda x: _widen(function(x.low), function(x.high))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _clip(x: Interval, low: float, high: float) -> Interval:
    return Interval(np.clip(x.low, low, high), np.clip(x.high, low, high))


exp = _increasing(np.exp)


def tanh(x: Interval) -> Interval:
    return _clip(_increasing(np.tanh)(x), -1.0, 1.0)


def sigmoid(x: Interval) -> Interval:
    return _clip(_increasing(_sigmoid)(x), 0.0, 1.0)


def _erf(x: np.ndarray) -> np.ndarray:
    return torch.erf(torch.from_numpy(np.array(x, dtype=np.float64))).numpy()


def erf(x: Interval) -> Interval:
    return _clip(_increasing(_erf)(x), -1.0, 1.0)


def _clip_to_domain(x: Interval) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lower ends, with rounded zeros set to 0, and a mask of the intervals in the domain of `sqrt`."""
    return np.maximum(x.low, 0.0), x.low >= -_SLACK


def _inverse_of_positive(x: Interval) -> Interval:
    """Returns 1 / x for x >= 0."""
    low = np.nextafter(1 / np.maximum(x.high, 0.0), 0.0)
    return Interval(low, np.where(x.low > 0, np.nextafter(1 / np.maximum(x.low, 0.0), np.inf), np.inf))


def sqrt(x: Interval) -> Interval:
    low, valid = _clip_to_domain(x)
    found = _widen(np.sqrt(low), np.sqrt(np.maximum(x.high, 0.0)))
    return Interval(np.where(valid, np.maximum(found.low, 0.0), -np.inf), np.where(valid, found.high, np.inf))


def log(x: Interval) -> Interval:
    low, valid = _clip_to_domain(x)
    found = _widen(np.log(low), np.log(np.maximum(x.high, 0.0)))
    return Interval(np.where(valid, found.low, -np.inf), np.where(valid, found.high, np.inf))


def sin(x: Interval) -> Interval:
    # the rounding error of pi / 2 is below 1e-16, and cos widens its result by more
    return cos(x - Interval.from_fraction(Fraction(math.pi / 2)))


def cos(x: Interval) -> Interval:
    period = 2 * math.pi
    margin = 1e-12 * (1 + x.magnitude)

    def contains(phase: float) -> np.ndarray:
        return np.floor((x.high + margin - phase) / period) >= np.ceil((x.low - margin - phase) / period)

    ends = np.cos(x.low), np.cos(x.high)
    low, high = np.minimum(*ends) - 2.0**-50, np.maximum(*ends) + 2.0**-50
    low, high = (np.where(contains(math.pi), -1.0, low), np.where(contains(0.0), 1.0, high))
    known = x.is_finite & (x.magnitude < 1e8)
    return _clip(Interval(np.where(known, low, -1.0), np.where(known, high, 1.0)), -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Jet:
    """Enclosures of a function, its derivative and its second derivative."""

    value: Interval
    first: Interval
    second: Interval

    @classmethod
    def constant(cls, value: Fraction) -> Jet:
        return cls(Interval.from_fraction(value), ZERO, ZERO)

    @classmethod
    def variable(cls, value: Interval) -> Jet:
        return cls(value, ONE, ZERO)

    def __add__(self, other: Jet) -> Jet:
        return Jet(self.value + other.value, self.first + other.first, self.second + other.second)

    def __sub__(self, other: Jet) -> Jet:
        return self + (-other)

    def __neg__(self) -> Jet:
        return Jet(-self.value, -self.first, -self.second)

    def __mul__(self, other: Jet) -> Jet:
        cross = self.first * other.first
        second = self.second * other.value + (cross + cross) + self.value * other.second
        return Jet(self.value * other.value, self.first * other.value + self.value * other.first, second)

    def __truediv__(self, other: Jet) -> Jet:
        return self * other.inverse()

    def chain(self, value: Interval, first: Interval, second: Interval) -> Jet:
        """Returns the jet of $g(f)$ from the value, the derivative and the second derivative of $g$ at $f$."""
        return Jet(value, first * self.first, second * self.first.square() + first * self.second)

    def inverse(self) -> Jet:
        one = self.value.inverse()
        two = one.square()
        return self.chain(one, -two, (one + one) * two)

    def power(self, exponent: Fraction) -> Jet:
        x = self.value
        if exponent.denominator == 1 and exponent >= 0:
            n = int(exponent)
            first = Interval.from_fraction(Fraction(n)) * x.power(n - 1) if n else ZERO
            second = Interval.from_fraction(Fraction(n * (n - 1))) * x.power(n - 2) if n > 1 else ZERO
            return self.chain(x.power(n), first, second)
        if exponent.denominator == 1:
            return self.power(-exponent).inverse()
        if exponent == Fraction(1, 2):
            root = sqrt(x)
            first = HALF * _inverse_of_positive(root)
            return self.chain(root, first, -(HALF * first * _inverse_of_positive(x)))
        return (Jet.constant(exponent) * self.log()).exp()

    def exp(self) -> Jet:
        value = exp(self.value)
        return self.chain(value, value, value)

    def log(self) -> Jet:
        one = _inverse_of_positive(self.value)
        return self.chain(log(self.value), one, -one.square())

    def sqrt(self) -> Jet:
        return self.power(Fraction(1, 2))

    def sin(self) -> Jet:
        value = sin(self.value)
        return self.chain(value, cos(self.value), -value)

    def cos(self) -> Jet:
        value = cos(self.value)
        return self.chain(value, -sin(self.value), -value)

    def tan(self) -> Jet:
        return self.sin() / self.cos()

    def tanh(self) -> Jet:
        value = tanh(self.value)
        first = ONE - value.square()
        return self.chain(value, first, -(value + value) * first)

    def sigmoid(self) -> Jet:
        value = sigmoid(self.value)
        first = value * (ONE - value)
        return self.chain(value, first, first * (ONE - value - value))

    def softplus(self) -> Jet:
        x, slope = self.value, sigmoid(self.value)
        value = _increasing(lambda t: np.maximum(t, 0.0) + np.log1p(np.exp(-np.abs(t))))(x)
        return self.chain(value, slope, slope * (ONE - slope))

    def erf(self) -> Jet:
        x = self.value
        density = Interval.from_fraction(Fraction(2 / math.sqrt(math.pi)))
        density = Interval(np.nextafter(density.low, 0), np.nextafter(density.high, 2))
        first = density * exp(-x.square())
        return self.chain(erf(x), first, -(x + x) * first)

    def abs(self) -> Jet:
        x = self.value
        sign = Interval(np.where(x.low >= 0, 1.0, -1.0), np.where((x.high <= 0) & (x.low < 0), -1.0, 1.0))
        smooth = (x.low >= 0) | (x.high <= 0)
        kink = Interval(np.where(smooth, 0.0, -np.inf), np.where(smooth, 0.0, np.inf))
        found = self.chain(x.abs(), sign, ZERO)
        return Jet(found.value, found.first, found.second + kink)

    def sign(self) -> Jet:
        x = self.value
        value = Interval(
            np.where(x.low > 0, 1.0, np.where(x.low == 0, 0.0, -1.0)),
            np.where(x.high < 0, -1.0, np.where(x.high == 0, 0.0, 1.0)),
        )
        jump = np.where(value.low == value.high, 0.0, np.inf)
        return Jet(value, Interval(-jump, jump), Interval(-jump, jump))

    def maximum(self, other: Jet) -> Jet:
        return _select(self, other, self.value.low >= other.value.high, other.value.low >= self.value.high, np.maximum)

    def minimum(self, other: Jet) -> Jet:
        return _select(self, other, self.value.high <= other.value.low, other.value.high <= self.value.low, np.minimum)


def _select(a: Jet, b: Jet, first: np.ndarray, second: np.ndarray, combine: Callable[..., np.ndarray]) -> Jet:
    """Returns a where `first`, b where `second`, and an enclosure of both elsewhere."""
    value = Interval(combine(a.value.low, b.value.low), combine(a.value.high, b.value.high))

    def choose(one: Interval, two: Interval, other: Interval) -> Interval:
        return Interval(
            np.where(first, one.low, np.where(second, two.low, other.low)),
            np.where(first, one.high, np.where(second, two.high, other.high)),
        )

    unknown = Interval(np.array(-np.inf), np.array(np.inf))
    return Jet(value, choose(a.first, b.first, a.first.union(b.first)), choose(a.second, b.second, unknown))
