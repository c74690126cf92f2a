r"""Linear bounds of activation functions on intervals, sound for every slope.

For any slope $s$, the line $s x + b$ with $b = \max_{l \le x \le u} f(x) - s x$ is above $f$ on $[l, u]$. Slopes are
chosen for tightness, and only the intercept has to be proven. The line of least area over $[l, u]$ supports the concave
envelope of $f$ at the midpoint. For ReLU these are the lines of CROWN.

Reference: Zhang, Weng, Chen, Hsieh and Daniel, Efficient Neural Network Robustness Certification with General
    Activation Functions, 2018.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

_SLACK = 2e-14  # relative; torch's elementary functions are accurate to a few units of 1e-16
_POINTS = 17  # of the grid on which slopes are searched


class Activation(ABC):
    """An elementwise function with sound linear bounds."""

    name: str
    lipschitz: float
    """Bound of the Lipschitz constant on the real line."""

    @abstractmethod
    def value(self, x: Tensor) -> Tensor:
        """Returns the function."""

    @abstractmethod
    def maximum(self, slope: Tensor, lower: Tensor, upper: Tensor, *, sign: int) -> tuple[Tensor, Tensor]:
        """Returns a bound of the maximum of sign * (f(x) - slope * x), and a point close to where it is."""

    @abstractmethod
    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the slopes of a lower and an upper line."""

    @abstractmethod
    def derivatives(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Returns bounds of the derivative on an interval, and of the slopes of both sides of a kink."""

    def slope_range(self, lower: Tensor, upper: Tensor, *, sign: int) -> tuple[Tensor, Tensor]:
        """Returns the slopes between which the best line is. They need not be exact."""
        return self.derivatives(lower, upper)

    def is_affine(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Returns whether the function is known to be affine on an interval."""
        return torch.zeros_like(lower, dtype=torch.bool)

    def deviation(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Returns a bound of the difference between the function and what PyTorch defines, other than by rounding."""
        return torch.zeros_like(lower)

    def intercept(self, slope: Tensor, lower: Tensor, upper: Tensor, *, sign: int) -> Tensor:
        """Returns the smallest intercept of an upper line, or the largest of a lower line, differentiable in the slope.

        Args:
            slope: Slope of the line.
            lower: Left end of the interval.
            upper: Right end of the interval.
            sign: 1 for an upper line, -1 for a lower line.
        """
        with torch.no_grad():
            bound, point = self.maximum(slope, lower, upper, sign=sign)
            largest = torch.maximum(lower.abs(), upper.abs())
            magnitude = self.value(torch.zeros_like(largest)).abs() + (self.lipschitz + slope.abs()) * largest
            result = sign * (bound + _SLACK * magnitude + 1e-300)
        # The derivative of the maximum with respect to the slope is -x at the maximum (envelope theorem).
        return result - point * (slope - slope.detach()) if slope.requires_grad else result

    def interval(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Returns bounds of the values on an interval."""
        flat = torch.zeros_like(lower)
        return self.intercept(flat, lower, upper, sign=-1), self.intercept(flat, lower, upper, sign=1)


@dataclass
class LeakyReLU(Activation):
    """max(x, 0) + c min(x, 0): two lines that meet at zero."""

    negative_slope: float = 0.0
    name: str = "LeakyReLU"

    def __post_init__(self) -> None:
        self.lipschitz = max(1.0, abs(self.negative_slope))

    def value(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x, self.negative_slope * x)

    def maximum(self, slope: Tensor, lower: Tensor, upper: Tensor, *, sign: int) -> tuple[Tensor, Tensor]:
        zero = torch.zeros_like(lower).clamp(lower, upper)  # the kink, or the end that is closer to it
        ends = [torch.broadcast_tensors(slope, x)[1] for x in (zero, lower, upper)]
        values = torch.stack([sign * (self.value(x) - slope * x) for x in ends])
        best, index = values.max(0)
        return best, torch.stack(ends).gather(0, index[None])[0]

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        width = upper - lower
        chord = (self.value(upper) - self.value(lower)) / width.where(width > 0, torch.ones_like(width))
        right = (lower + upper) / 2 > 0
        chord = torch.where((lower < 0) & (upper > 0), chord, torch.where(right, 1.0, self.negative_slope))
        support = torch.where(right, 1.0, self.negative_slope).to(chord)
        return (support, chord) if self.negative_slope <= 1 else (chord, support)

    def derivatives(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        left, right = (torch.where(x > 0, 1.0, self.negative_slope).double() for x in (lower, upper))
        return torch.minimum(left, right), torch.maximum(left, right)

    def slope_range(self, lower: Tensor, upper: Tensor, *, sign: int) -> tuple[Tensor, Tensor]:
        if (sign < 0) == (self.negative_slope <= 1):
            return self.derivatives(lower, upper)
        chord = self.slopes(lower, upper)[0 if sign < 0 else 1]  # the best line on this side
        return chord, chord

    def is_affine(self, lower: Tensor, upper: Tensor) -> Tensor:
        return (lower >= 0) | (upper <= 0)


@dataclass
class Smooth(Activation):
    """A differentiable function that is convex and concave in turns."""

    function: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    inflections: tuple[float, ...]
    """Points where the curvature changes its sign."""
    convex: bool
    """Whether the function is convex to the left of all inflections."""
    lipschitz: float
    name: str
    inverse: Callable[[Tensor], Tensor] | None = None
    """Absolute value of a point where the derivative has a value, for derivatives that are even."""
    tail: Callable[[Tensor], Tensor] | None = None

    def value(self, x: Tensor) -> Tensor:
        return self.function(x)

    def deviation(self, lower: Tensor, upper: Tensor) -> Tensor:
        return super().deviation(lower, upper) if self.tail is None else self.tail(upper)

    def maximum(self, slope: Tensor, lower: Tensor, upper: Tensor, *, sign: int) -> tuple[Tensor, Tensor]:
        slope, lower, upper = torch.broadcast_tensors(slope, lower, upper)
        best, at = torch.full_like(lower, -math.inf), lower
        for i, (start, stop) in enumerate(pairwise((-math.inf, *self.inflections, math.inf))):
            a, b = lower.clamp(min=start), upper.clamp(max=stop)
            empty = a > b
            a = torch.minimum(a, upper).maximum(lower)
            b = torch.maximum(b, a)
            if (self.convex == (i % 2 == 0)) == (sign > 0):  # convex: the maximum is at an end
                candidates = [(sign * (self.value(x) - slope * x), x) for x in (a, b)]
            else:
                candidates = [self._concave_maximum(slope, a, b, sign)]
            for value, point in candidates:
                better = (value > best) & ~empty
                best, at = torch.where(better, value, best), torch.where(better, point, at)
        return best, at

    def _concave_maximum(self, slope: Tensor, a: Tensor, b: Tensor, sign: int) -> tuple[Tensor, Tensor]:
        """Maximizes a concave function between two points: by the inverse of its derivative, or by bisection."""

        def ascent(x: Tensor) -> Tensor:
            return sign * (self.derivative(x) - slope)

        if self.inverse is not None:
            found = self.inverse(slope)
            point = torch.minimum(torch.maximum(torch.where(a + b >= 0, found, -found), a), b)
            rise = ascent(point)
            excess = torch.maximum(rise * (b - point), rise * (a - point))
        else:
            left, right = torch.where(ascent(b) >= 0, b, a), torch.where(ascent(a) <= 0, a, b)
            right = torch.maximum(left, right)
            for _ in range(24):
                middle = (left + right) / 2
                rising = ascent(middle) > 0
                left, right = torch.where(rising, middle, left), torch.where(rising, right, middle)
            point, excess = left, ascent(left).clamp(min=0) * (right - left)
        # A concave function is below its tangent, so that the bound holds for every point.
        return sign * (self.value(point) - slope * point) + excess, point

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        return self._envelope_slope(lower, upper, -1), self._envelope_slope(lower, upper, 1)

    def derivatives(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        # The derivative is monotone between inflections.
        points = [lower, upper, *(torch.full_like(lower, p).clamp(lower, upper) for p in self.inflections)]
        found = torch.stack([self.derivative(x) for x in points])
        return found.amin(0) - _SLACK, found.amax(0) + _SLACK

    def slope_range(self, lower: Tensor, upper: Tensor, *, sign: int) -> tuple[Tensor, Tensor]:
        """Returns the slopes of the envelope at both ends: lines of other slopes are worse everywhere."""
        steps = torch.linspace(0, 1, 4 * _POINTS, dtype=lower.dtype, device=lower.device)[1:-1]
        x = lower[..., None] + steps * (upper - lower)[..., None].clamp(min=1e-12)
        first, last = (sign * self.value(end)[..., None] for end in (lower, upper))
        y = sign * self.value(x)
        left = ((y - first) / (x - lower[..., None])).amax(-1)
        right = ((last - y) / (upper[..., None] - x).clamp(min=1e-12)).amin(-1)
        left = torch.maximum(left, sign * self.derivative(lower))
        right = torch.minimum(right, sign * self.derivative(upper))
        return (torch.minimum(right, left), left) if sign > 0 else (-left, torch.maximum(-left, -right))

    def _envelope_slope(self, lower: Tensor, upper: Tensor, sign: int) -> Tensor:
        """Returns the slope of the envelope at the midpoint: of the tangent, or of the chord that is highest there."""
        middle, radius = (lower + upper) / 2, (upper - lower) / 2
        tangent = self.derivative(middle)
        excess = self.maximum(tangent, lower, upper, sign=sign)[0] - sign * (self.value(middle) - tangent * middle)
        touches = excess <= 1e-9 * (1e-3 + radius)
        steps = torch.linspace(0, 1, _POINTS, dtype=lower.dtype, device=lower.device)[1:]
        left = right = steps * radius[..., None].clamp(min=1e-9)  # distances to the midpoint
        for _ in range(4):
            fx = sign * self.value(middle[..., None] - left)[..., :, None]
            fy = sign * self.value(middle[..., None] + right)[..., None, :]
            p, q = left[..., :, None], right[..., None, :]
            best = ((fx * q + fy * p) / (p + q)).flatten(-2).argmax(-1, keepdim=True)
            p, q = left.gather(-1, best // len(steps)), right.gather(-1, best % len(steps))
            left, right = _zoom(p, left, radius), _zoom(q, right, radius)
        p, q = p[..., 0], q[..., 0]
        chord = (self.value(middle + q) - self.value(middle - p)) / (p + q)
        return torch.where(touches | (radius < 1e-8), tangent, chord)


def _zoom(point: Tensor, grid: Tensor, limit: Tensor) -> Tensor:
    """Returns a finer grid of positive distances, one old step to each side of a point."""
    steps = torch.linspace(-1, 1, grid.shape[-1], dtype=grid.dtype, device=grid.device)
    finer = point + steps * (grid[..., 1:2] - grid[..., :1])
    return torch.minimum(finer, limit[..., None]).clamp(min=1e-12)


def sigmoid() -> Smooth:
    """Returns the sigmoid, which is convex to the left of zero."""

    def inverse(slope: Tensor) -> Tensor:
        return 2 * torch.acosh((slope.clamp(min=1e-250).rsqrt() / 2).clamp(min=1))

    return Smooth(torch.sigmoid, lambda x: torch.sigmoid(x) * torch.sigmoid(-x), (0.0,), True, 0.25, "Sigmoid", inverse)


def tanh() -> Smooth:
    """Returns the hyperbolic tangent."""

    def inverse(slope: Tensor) -> Tensor:
        return torch.acosh(slope.clamp(min=1e-250).rsqrt().clamp(min=1))

    return Smooth(torch.tanh, lambda x: 1 / torch.cosh(x.clamp(-300, 300)) ** 2, (0.0,), True, 1.0, "Tanh", inverse)


def softplus(beta: float = 1.0, threshold: float = 20.0) -> Smooth:
    """Returns softplus. PyTorch replaces it by x above the threshold."""

    def value(x: Tensor) -> Tensor:
        return torch.logaddexp(beta * x, torch.zeros_like(x)) / beta

    def tail(upper: Tensor) -> Tensor:
        return torch.where(beta * upper > threshold * (1 - 1e-6), math.exp(-threshold * (1 - 1e-6)) / beta, 0.0)

    return Smooth(value, lambda x: torch.sigmoid(beta * x), (), True, 1.0, "Softplus", tail=tail)


def silu() -> Smooth:
    """Returns x times the sigmoid."""

    def derivative(x: Tensor) -> Tensor:
        s = torch.sigmoid(x)
        return s + x * s * torch.sigmoid(-x)

    return Smooth(F.silu, derivative, (-2.399357280520, 2.399357280520), False, 1.1, "SiLU")


def gelu(approximate: str = "none") -> Smooth:
    """Returns x times the normal distribution function, or its approximation by tanh."""
    if approximate == "none":
        root = math.sqrt(2)

        def derivative(x: Tensor) -> Tensor:
            return torch.special.ndtr(x) + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)

        return Smooth(lambda x: x * torch.special.ndtr(x), derivative, (-root, root), False, 1.13, "GELU")

    c, d = math.sqrt(2 / math.pi), 0.044715

    def derivative_tanh(x: Tensor) -> Tensor:
        x = x.clamp(-50, 50)
        t = torch.tanh(c * (x + d * x**3))
        return (1 + t) / 2 + x / 2 * (1 - t) * (1 + t) * c * (1 + 3 * d * x * x)

    def value_tanh(x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")

    inflection = 1.41850400879082836
    return Smooth(value_tanh, derivative_tanh, (-inflection, inflection), False, 1.13, "GELU")
