"""Rational-quadratic splines: smooth increasing maps with a closed-form inverse."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import (
    Claim,
    inverse_log_determinant,
    invertibility,
    log_determinant,
    monotonicity,
    shape,
    transformed,
)


class _Bin(NamedTuple):
    """The bin of an entry: corner, size, and the derivatives at its ends."""

    left: Tensor
    bottom: Tensor
    width: Tensor
    height: Tensor
    first: Tensor
    last: Tensor


@dataclass(frozen=True, kw_only=True)
class RationalQuadraticSpline:
    r"""Monotonic rational-quadratic spline of $[-b, b]$ onto itself, linear outside.

    With $\theta$ from 0 to 1 along a bin of width $w$, height $h$, mean slope $s = h / w$ and derivatives $\delta_0$
    and $\delta_1$ at its ends,

    $$y = y_0 + h \, \frac{s \theta^2 + \delta_0 \theta (1 - \theta)}
    {s + (\delta_0 + \delta_1 - 2 s) \, \theta (1 - \theta)}$$

    The parameters of an entry are the logits of the widths and of the heights, and the derivatives at all knots before
    a softplus. Outside the interval the map is the tangent at its end, so that the tails are learned too. Entries are
    clamped before the bins are computed, so that no branch has an infinite value and a NaN gradient.

    Reference:
        Durkan, Bekasov, Murray and Papamakarios, *Neural Spline Flows*, 2019.

    Args:
        num_bins: Number of bins.
        bound: $b$.
        min_size: Minimum width and height of a bin, as a fraction of the interval, and minimum derivative at a knot.

    Examples:
        >>> spline = RationalQuadraticSpline(num_bins=4)
        >>> x = torch.tensor([-9.0, 0.3, 9.0])
        >>> y, log_derivative = spline.forward(x, torch.zeros(3, spline.num_parameters))
        >>> torch.allclose(y, x, atol=1e-5), torch.allclose(log_derivative, torch.zeros(3), atol=1e-5)
        (True, True)
    """

    num_bins: int = 16
    bound: float = 3.0
    min_size: float = 1e-3

    def __post_init__(self) -> None:
        if self.num_bins < 1 or not 0 < self.bound < math.inf:
            raise ValueError(f"num_bins must be at least 1 and bound positive: got {self.num_bins} and {self.bound}")
        if not 0 < self.min_size * self.num_bins < 1:
            raise ValueError(f"min_size must be in (0, 1 / num_bins): got {self.min_size} with {self.num_bins} bins")

    @property
    def num_parameters(self) -> int:
        """Number of parameters per entry."""
        return 3 * self.num_bins + 1

    def forward(
        self, x: Float[Tensor, "*n"], parameters: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Maps entries, and returns the log-derivatives."""
        inside = x.clamp(-self.bound, self.bound)
        at = self._bin(inside, parameters, 0)
        slope = at.height / at.width
        t = ((inside - at.left) / at.width).clamp(0, 1)
        both = t * (1 - t)
        denominator = slope + (at.first + at.last - 2 * slope) * both
        y = at.bottom + at.height * (slope * t * t + at.first * both) / denominator
        derivative = _derivative(at, slope, t, both, denominator)
        return y + (x - inside) * derivative, derivative.log()

    def inverse(
        self, y: Float[Tensor, "*n"], parameters: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Maps entries back by the root of a quadratic, and returns the log-derivatives of the inverse."""
        inside = y.clamp(-self.bound, self.bound)
        at = self._bin(inside, parameters, 1)
        slope, rest = at.height / at.width, inside - at.bottom
        bend = (at.first + at.last - 2 * slope) * rest
        a, b, c = at.height * (slope - at.first) + bend, at.height * at.first - bend, -slope * rest
        t = (-2 * c / (b + (b * b - 4 * a * c).clamp_min(0).sqrt())).clamp(0, 1)
        both = t * (1 - t)
        derivative = _derivative(at, slope, t, both, slope + (at.first + at.last - 2 * slope) * both)
        return at.left + at.width * t + (y - inside) / derivative, -derivative.log()

    def _bin(self, x: Tensor, parameters: Tensor, along: int) -> _Bin:
        """Finds the bin of each entry, along the widths (0) or the heights (1)."""
        if parameters.shape[-1] != self.num_parameters:
            expected = f"(*n, {self.num_parameters})"
            raise ValueError(f"expected parameters of shape {expected}, got {tuple(parameters.shape)}")
        k, side = self.num_bins, 2 * self.bound
        fractions = parameters[..., : 2 * k].unflatten(-1, (2, k)).softmax(-1)
        sides = torch.add(side * self.min_size, fractions, alpha=side * (1 - k * self.min_size))
        ends = sides.cumsum(-1)
        which = (ends[..., along, :-1] <= (x + self.bound).unsqueeze(-1)).sum(-1, keepdim=True)
        index = which.unsqueeze(-1).expand(*which.shape[:-1], 2, 1)
        (width, height), (right, top) = (a.gather(-1, index).squeeze(-1).unbind(-1) for a in (sides, ends))
        knots = parameters[..., 2 * k :].gather(-1, torch.cat([which, which + 1], -1))
        first, last = (F.softplus(knots + math.log(math.expm1(1 - self.min_size))) + self.min_size).unbind(-1)
        return _Bin(right - width - self.bound, top - height - self.bound, width, height, first, last)


def _derivative(at: _Bin, slope: Tensor, t: Tensor, both: Tensor, denominator: Tensor) -> Tensor:
    """Derivative of the spline in a bin."""
    return (slope / denominator).square() * (at.last * t * t + 2 * slope * both + at.first * (1 - t).square())


def claims() -> Iterator[Claim]:
    """Laws of rational-quadratic splines."""
    spline, parameters = RationalQuadraticSpline(num_bins=3, bound=1.5), torch.linspace(-1.5, 2.0, 10).cos() * 2

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        y, log_derivative = spline.forward(x, parameters.to(x).expand(*x.shape, 10))
        return y, log_derivative.sum(-1)

    def inverse(y: Tensor) -> tuple[Tensor, Tensor]:
        x, log_derivative = spline.inverse(y, parameters.to(y).expand(*y.shape, 10))
        return x, log_derivative.sum(-1)

    near = transformed(lambda x: 2 * torch.tanh(x), "b 2")
    yield Claim(log_determinant(), forward, near, name="RationalQuadraticSpline")
    yield Claim(inverse_log_determinant(inverse=inverse), forward, near, name="RationalQuadraticSpline")
    yield Claim(monotonicity(), lambda x: forward(x)[0], shape("b 2"), name="RationalQuadraticSpline")
    yield Claim(invertibility(inverse=inverse), lambda x: forward(x)[0], near, name="RationalQuadraticSpline")
