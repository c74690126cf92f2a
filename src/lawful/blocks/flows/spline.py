"""Splines of rational quadratic pieces: smooth increasing maps of any form, with an inverse in closed form."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import Claim, agreement, finiteness, invertibility, log_determinant, monotonicity, shape, transformed


class _Bin(NamedTuple):
    """The piece that an entry is in: its corner, its sides, and the slopes at its ends."""

    left: Tensor
    bottom: Tensor
    width: Tensor
    height: Tensor
    first: Tensor
    last: Tensor


@dataclass(frozen=True, kw_only=True)
class RationalQuadraticSpline:
    r"""Maps a box onto itself by increasing pieces, each a ratio of quadratics, and goes on straight outside.

    With $\theta$ from 0 to 1 along a piece of width $w$, height $h$, mean slope $s = h / w$ and slopes $\delta_0$ and
    $\delta_1$ at its ends,

    $$y = y_0 + h \, \frac{s \theta^2 + \delta_0 \theta (1 - \theta)}
    {s + (\delta_0 + \delta_1 - 2 s) \, \theta (1 - \theta)}$$

    The parameters of an entry are the logits of the widths and of the heights, and the slopes at all knots before a
    softplus. Outside the box the map is the tangent at its end, so that it is smooth everywhere and its tails can
    be learnt. The entry is brought into the box before the pieces are computed: no branch holds an infinity, whose
    gradient would be NaN. On the way back the discriminant is not let below 0.

    Reference:
        Durkan, Bekasov, Murray and Papamakarios, *Neural Spline Flows*, 2019.

    Args:
        bins: The number of pieces.
        box: The box is from minus this to this.
        least: The least width and height of a piece, as a share of the box, and the least slope at a knot.

    Examples:
        >>> spline = RationalQuadraticSpline(bins=4)
        >>> x = torch.tensor([-9.0, 0.3, 9.0])
        >>> y, log_slope = spline.forward(x, torch.zeros(3, spline.size))
        >>> torch.allclose(y, x, atol=1e-5), torch.allclose(log_slope, torch.zeros(3), atol=1e-5)
        (True, True)
    """

    bins: int = 16
    box: float = 3.0
    least: float = 1e-3

    def __post_init__(self) -> None:
        if self.bins < 1 or not 0 < self.box < math.inf:
            raise ValueError(f"bins are at least 1 and the box is above 0: got {self.bins} and {self.box}")
        if not 0 < self.least * self.bins < 1:
            raise ValueError(f"least is above 0 and below 1 / bins: got {self.least} with {self.bins} bins")

    @property
    def size(self) -> int:
        """How many parameters an entry has."""
        return 3 * self.bins + 1

    def forward(
        self, x: Float[Tensor, "*n"], parameters: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Maps entries, and returns the logarithms of their slopes."""
        inside = x.clamp(-self.box, self.box)
        at = self._bin(inside, parameters, 0)
        slope = at.height / at.width
        t = ((inside - at.left) / at.width).clamp(0, 1)
        both = t * (1 - t)
        below = slope + (at.first + at.last - 2 * slope) * both
        y = at.bottom + at.height * (slope * t * t + at.first * both) / below
        found = _slope(at, slope, t, both, below)
        return y + (x - inside) * found, found.log()

    def inverse(
        self, y: Float[Tensor, "*n"], parameters: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Finds the entries by the root of a quadratic."""
        inside = y.clamp(-self.box, self.box)
        at = self._bin(inside, parameters, 1)
        slope, rest = at.height / at.width, inside - at.bottom
        bend = (at.first + at.last - 2 * slope) * rest
        a, b, c = at.height * (slope - at.first) + bend, at.height * at.first - bend, -slope * rest
        t = (-2 * c / (b + (b * b - 4 * a * c).clamp_min(0).sqrt())).clamp(0, 1)
        both = t * (1 - t)
        found = _slope(at, slope, t, both, slope + (at.first + at.last - 2 * slope) * both)
        return at.left + at.width * t + (y - inside) / found, -found.log()

    def _bin(self, x: Tensor, parameters: Tensor, along: int) -> _Bin:
        """Finds the piece of each entry, along the widths (0) or along the heights (1)."""
        if parameters.shape[-1] != self.size:
            raise ValueError(f"{self.size} parameters an entry were wanted: got shape {tuple(parameters.shape)}")
        k, side = self.bins, 2 * self.box
        shares = parameters[..., : 2 * k].unflatten(-1, (2, k)).softmax(-1)
        sides = torch.add(side * self.least, shares, alpha=side * (1 - k * self.least))
        ends = sides.cumsum(-1)
        which = (ends[..., along, :-1] <= (x + self.box).unsqueeze(-1)).sum(-1, keepdim=True)
        of_both = which.unsqueeze(-1).expand(*which.shape[:-1], 2, 1)
        (width, height), (right, top) = (a.gather(-1, of_both).squeeze(-1).unbind(-1) for a in (sides, ends))
        knots = parameters[..., 2 * k :].gather(-1, torch.cat([which, which + 1], -1))
        first, last = (F.softplus(knots + math.log(math.expm1(1 - self.least))) + self.least).unbind(-1)
        return _Bin(right - width - self.box, top - height - self.box, width, height, first, last)


def _slope(at: _Bin, slope: Tensor, t: Tensor, both: Tensor, below: Tensor) -> Tensor:
    """The derivative of a piece."""
    return (slope / below).square() * (at.last * t * t + 2 * slope * both + at.first * (1 - t).square())


def claims() -> Iterator[Claim]:
    """The laws that the spline obeys."""
    spline = RationalQuadraticSpline(bins=3, box=1.5)
    given = torch.linspace(-1.5, 2.0, 10).cos() * 2

    def mapped(x: Tensor) -> Tensor:
        return spline.forward(x, given.to(x).expand(*x.shape, 10))[0]

    def with_slope(x: Tensor) -> tuple[Tensor, Tensor]:
        y, log_slope = spline.forward(x, given.to(x).expand(*x.shape, 10))
        return y, log_slope.sum(-1)

    def written_out(x: Tensor) -> Tensor:
        """Piece by piece, by the equation."""
        u = given.to(x)
        xs, ys = (
            torch.cat([x.new_tensor([-1.5]), 3 * (1e-3 + (1 - 3e-3) * a.softmax(0)).cumsum(0) - 1.5])
            for a in (u[:3], u[3:6])
        )
        slopes = torch.log1p(torch.exp(u[6:] + math.log(math.e ** (1 - 1e-3) - 1))) + 1e-3
        y = torch.where(x < 0, ys[0] + slopes[0] * (x - xs[0]), ys[3] + slopes[3] * (x - xs[3]))
        for i in range(3):
            w, h, t = xs[i + 1] - xs[i], ys[i + 1] - ys[i], (x - xs[i]) / (xs[i + 1] - xs[i])
            above = h * (h / w * t**2 + slopes[i] * t * (1 - t))
            below = h / w + (slopes[i] + slopes[i + 1] - 2 * h / w) * t * (1 - t)
            y = torch.where((xs[i] <= x) & (x <= xs[i + 1]), ys[i] + above / below, y)
        return y

    near = transformed(lambda x: 2 * torch.tanh(x), "b 2")
    yield Claim(agreement(other=written_out), mapped, near, name="RationalQuadratic")
    yield Claim(log_determinant(), with_slope, near, name="RationalQuadratic")
    yield Claim(monotonicity(), mapped, shape("b 2"), name="RationalQuadratic")
    yield Claim(
        invertibility(inverse=lambda y: spline.inverse(y, given.to(y).expand(*y.shape, 10))[0]),
        mapped,
        near,
        name="RationalQuadratic",
    )

    def backward(x: Tensor) -> tuple[Tensor, Tensor]:
        y, log_slope = spline.inverse(x, given.to(x).expand(*x.shape, 10))
        return y, log_slope.sum(-1)

    yield Claim(log_determinant(), backward, near, name="RationalQuadratic, backward")
    of_all = partial(RationalQuadraticSpline(bins=2, box=1.0).forward)
    yield Claim(
        finiteness(), lambda x: of_all(x[..., 0], x[..., 1:])[0], shape("b 8"), name="RationalQuadratic, any parameters"
    )
