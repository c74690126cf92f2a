"""Integrals along a line: where to ask for a density, and how to add up what it says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Line:
    """A coordinate z that runs over the whole line while the point x runs over an interval.

    A density that is infinite at a bound of its support is tame in z: log(x - low), or the logit.
    """

    low: float
    high: float

    def coordinate(self, x: Tensor) -> Tensor:
        """Returns z at the point x."""
        z = (x - self.low).clamp_min(1e-300).log() if math.isfinite(self.low) else x
        if math.isfinite(self.high):
            z = (z if math.isfinite(self.low) else torch.zeros_like(x)) - (self.high - x).clamp_min(1e-300).log()
        return z

    def point(self, z: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns the point x at z, in a type, and inside the interval there too."""
        if math.isfinite(self.low) and math.isfinite(self.high):
            x = self.low + (self.high - self.low) * z.sigmoid()
        elif math.isfinite(self.low):
            x = self.low + z.exp()
        else:
            x = self.high - (-z).exp() if math.isfinite(self.high) else z
        if not dtype.is_floating_point:
            return x.to(dtype)
        low, high = torch.tensor([self.low, self.high], dtype=dtype)
        return x.to(dtype).clamp(low.nextafter(high), high.nextafter(low))

    def merged(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Whether points are so close to a bound that the type has no room for others in between."""
        eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
        bounds = [bound for bound in (self.low, self.high) if math.isfinite(bound)]
        close = [(x - bound).abs() <= 4 * eps * abs(bound) for bound in bounds]
        return torch.stack([*close, torch.zeros_like(x, dtype=torch.bool)]).any(0)

    def log_stretch(self, z: Tensor) -> Tensor:
        """Returns log dx/dz."""
        if math.isfinite(self.low) and math.isfinite(self.high):
            return torch.nn.functional.logsigmoid(z) + torch.nn.functional.logsigmoid(-z)
        return z if math.isfinite(self.low) else -z if math.isfinite(self.high) else torch.zeros_like(z)


def mass_before(line: Tensor, density: Tensor, own: Tensor) -> Tensor:
    """The part of each line's integral, by trapezoids, that lies before its own sample."""
    pieces = (density[:, 1:] + density[:, :-1]) / 2 * line.diff(dim=1)
    cumulative = torch.nn.functional.pad(pieces.cumsum(1), (1, 0))
    return (cumulative * own).sum(1) / cumulative[:, -1]


def thinned(line: Tensor, density: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every other node of each line, and its own sample: the others move onto their neighbours and count nothing."""
    kept = (torch.arange(line.shape[1], device=line.device) % 2 == 0) | own
    kept[:, -1] = True
    index = torch.where(kept, torch.arange(line.shape[1], device=line.device), 0).cummax(dim=1).values
    return line.gather(1, index), density.gather(1, index), own


def integers(x: Tensor, support: tuple[float, float] | None) -> Tensor:
    """The integers from a little below the samples to a little above, within the support."""
    margin = 5 + float(x.max() - x.min())
    low, high = support or (-math.inf, math.inf)
    first, last = max(float(x.min()) - margin, low), min(float(x.max()) + margin, high)
    return torch.arange(round(first), round(last) + 1, device=x.device)


def nodes(x: Tensor, count: int = 128) -> Tensor:
    """Where to ask for the density: at quantiles of the samples, and evenly over five times their range."""
    margin = 2 * (x.max() - x.min())
    even = torch.linspace(float(x.min() - margin), float(x.max() + margin), count, device=x.device, dtype=x.dtype)
    quantiles = x.sort().values[torch.arange(count, device=x.device) * (x.numel() - 1) // (count - 1)]
    middle = x.median()
    return torch.cat([even, quantiles, middle + (quantiles - middle) * 1.5]).sort().values


def integral(
    density: Callable[[Tensor], Tensor], axis: Line, samples: Tensor, dtype: torch.dtype, rounds: int = 12
) -> tuple[Tensor, Tensor]:
    """Integrates a density, asked at points of a type, over an interval: more nodes where they change the result most.

    It begins where the samples are, and with a grid that is fine near 0 and coarse far away, as far as points of the
    type can be told apart.
    Each round halves the quarter of the pieces for which the trapezoid rule and the midpoint rule differ most.

    Returns the integral, and how large the integrand still is at the ends.
    """

    def stretched(z: Tensor) -> Tensor:
        return (density(axis.point(z, dtype)).double() * axis.log_stretch(z).exp()).nan_to_num(0.0)

    grid = torch.linspace(-14, 14, 801, dtype=torch.float64).sinh() / 10
    z = torch.cat([grid, nodes(axis.coordinate(samples))]).sort().values
    z = z[(axis.coordinate(axis.point(z, dtype).double()) - z).abs() < 0.01 * (1 + z.abs())]
    values = stretched(z)
    for _ in range(rounds):
        middle = (z[1:] + z[:-1]) / 2
        between = stretched(middle)
        error = ((values[1:] + values[:-1]) / 2 - between).abs() * z.diff()
        split = error >= error.sort().values[3 * error.numel() // 4]
        z = torch.cat([z, middle[split]])
        z, order = z.sort()
        values = torch.cat([values, between[split]])[order]
    return torch.trapezoid(values, z), torch.maximum(values[0], values[-1])
