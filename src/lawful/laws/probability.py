"""What makes numbers probabilities: they add up, none is negative, samples follow them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from lawful.laws.language import AtMost, Axis, Draw, Follows, Inapplicable, Map, Same, Statement, law


@law("Σ_i f(x)_i = 1")
def sums_to_one(f: Map, *xs: Tensor, axis: Axis = -1) -> Statement:
    """The outputs along an axis add up to one.

    Kept by: softmax over the axis; attention weights over the keys.
    Broken by: softmax over another axis; dropout on the weights; a sigmoid.
    """
    y = f(*xs)
    if not -y.dim() <= axis < y.dim():
        raise ValueError(f"axis={axis} is out of range: the output has shape {tuple(y.shape)}")
    total = y.sum(axis)
    return Same(total, torch.ones_like(total), exercised=True)


@law("f(x) ≥ 0")
def non_negativity(f: Map, *xs: Tensor) -> Statement:
    """No output is negative.

    Kept by: softmax, ReLU, a divergence, a norm.
    Broken by: a divergence with its terms swapped; a difference of rounded squares.
    """
    y = f(*xs)
    return AtMost(torch.zeros_like(y), y)


@law("x ~ p ⇒ F(x_i | x_-i) ~ U(0, 1), with p = exp(log_prob)", cases=4, every_input=True)
def samples_follow_density(
    f: Map,
    *xs: Tensor,
    sample: str | Callable[..., Any] = "sample",
    log_prob: str | Callable[..., Any] = "log_prob",
    support: tuple[float, float] | None = None,
    draw: Draw,
) -> Statement:
    """Samples have the density, or the probabilities, that the module reports.

    For each sample one coordinate is chosen, and the density is integrated along the line through the sample
    in that direction: the part of the mass that lies before the sample is uniform if the samples are right.
    Where half of the nodes give another integral, the density is too rough, and the case outside the domain.
    Samples that differ by more than chance allows once in a thousand are drawn again, ten times as many, and
    refuted by what chance allows once in a million.

    `sample(n)` returns (n,) or (n, d) samples, `log_prob(x)` their (n,) log-densities; both are names of
    methods, or functions. For `torch.distributions` they need not be given. Integers are taken as discrete.
    `support` bounds where the density is asked for.

    Kept by: a sampler and a density of one distribution.
    Broken by: a scale taken for a variance; a truncation that the density does not know of.
    """
    n = draw.samples
    size: Any = n
    if isinstance(f.target, Distribution) and sample == "sample":
        size, support = (n,), support or _support(f.target)
        if f.target.support in (constraints.simplex, constraints.one_hot):
            raise Inapplicable("the coordinates of a sample move only together")
    x = f.seeded(draw.integer(0, 2**16)).method(sample)(size, *xs)
    if x.dim() not in (1, 2) or x.shape[0] != n:
        raise Inapplicable(f"sample({n}) is to return shape ({n},) or ({n}, d): got {tuple(x.shape)}")
    rows = x.detach().reshape(n, -1)
    i = draw.integer(0, rows.shape[1] - 1, "i")
    here = rows[:, i].double()
    discrete = bool((here == here.round()).all())
    axis = Line(-math.inf, math.inf) if discrete else Line(*(support or (-math.inf, math.inf)))
    place = axis.coordinate(here)
    nodes = _integers(place, support) if discrete else _nodes(place)
    # Each line holds the nodes and the sample itself, in order, so that the mass before the sample is a sum.
    line, order = torch.cat([nodes.expand(n, -1), place[:, None]], dim=1).sort(dim=1, stable=True)
    points = rows[:, None, :].expand(-1, line.shape[1], -1).clone()
    points[:, :, i] = axis.point(line, rows.dtype)
    with torch.no_grad():
        logs = f.method(log_prob)(points.reshape(-1, *x.shape[1:]), *xs)
    if logs.numel() != line.numel():
        raise Inapplicable(f"log_prob is to return one number for each sample: got {tuple(logs.shape)}")
    logs = logs.detach().double().reshape(line.shape) + axis.log_stretch(line)
    density = (logs - logs.amax(dim=1, keepdim=True)).exp()
    own = order == nodes.numel()
    if discrete:
        density = density.masked_fill(own, 0.0)
        below = (density * (line < place[:, None])).sum(1)
        equal = (density * (line == place[:, None])).sum(1)
        return Follows((below + equal * torch.special.ndtr(draw.normal(n).double())) / density.sum(1))
    before = _mass_before(line, density, own)
    draw.assume((before - _mass_before(*_thinned(line, density, own))).abs().max() < 0.005)
    return Follows(before)


def _mass_before(line: Tensor, density: Tensor, own: Tensor) -> Tensor:
    """The part of each line's integral, by trapezoids, that lies before its own sample."""
    pieces = (density[:, 1:] + density[:, :-1]) / 2 * line.diff(dim=1)
    cumulative = torch.nn.functional.pad(pieces.cumsum(1), (1, 0))
    return (cumulative * own).sum(1) / cumulative[:, -1]


def _thinned(line: Tensor, density: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every other node of each line, and its own sample: the others move onto their neighbours and count nothing."""
    kept = (torch.arange(line.shape[1], device=line.device) % 2 == 0) | own
    kept[:, -1] = True
    index = torch.where(kept, torch.arange(line.shape[1], device=line.device), 0).cummax(dim=1).values
    return line.gather(1, index), density.gather(1, index), own


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

    def log_stretch(self, z: Tensor) -> Tensor:
        """Returns log dx/dz."""
        if math.isfinite(self.low) and math.isfinite(self.high):
            return torch.nn.functional.logsigmoid(z) + torch.nn.functional.logsigmoid(-z)
        return z if math.isfinite(self.low) else -z if math.isfinite(self.high) else torch.zeros_like(z)


def _support(distribution: Distribution) -> tuple[float, float] | None:
    support: Any = distribution.support
    if support is constraints.boolean:
        return 0.0, 1.0
    low, high = getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf)
    return float(low), float(high)


def _integers(x: Tensor, support: tuple[float, float] | None) -> Tensor:
    """The integers from a little below the samples to a little above, within the support."""
    margin = 5 + float(x.max() - x.min())
    low, high = support or (-math.inf, math.inf)
    return torch.arange(max(float(x.min()) - margin, low), min(float(x.max()) + margin, high) + 1).to(x)


def _nodes(x: Tensor, count: int = 128) -> Tensor:
    """Where to ask for the density: at quantiles of the samples, and evenly over five times their range."""
    margin = 2 * (x.max() - x.min())
    even = torch.linspace(float(x.min() - margin), float(x.max() + margin), count, device=x.device, dtype=x.dtype)
    quantiles = torch.quantile(x, torch.linspace(0, 1, count, device=x.device, dtype=x.dtype))
    middle = x.median()
    return torch.cat([even, quantiles, middle + (quantiles - middle) * 1.5]).sort().values
