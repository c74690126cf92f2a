"""What makes numbers probabilities: they add up, none is negative, samples follow them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

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

    `sample(n)` returns (n,) or (n, d) samples, `log_prob(x)` their (n,) log-densities; both are names of
    methods, or functions. For `torch.distributions` they need not be given. Integers are taken as discrete.
    `support` bounds where the density is asked for.

    Kept by: a sampler and a density of one distribution.
    Broken by: a scale taken for a variance; a truncation that the density does not know of.
    """
    n = draw.samples
    is_torch = isinstance(f.target, Distribution) and sample == "sample"
    if is_torch and isinstance(f.target, Distribution) and support is None:
        support = _support(f.target)
    x = f.method(sample)((n,) if is_torch else n, *xs)
    if x.dim() not in (1, 2) or x.shape[0] != n:
        raise Inapplicable(f"sample({n}) is to return shape ({n},) or ({n}, d): got {tuple(x.shape)}")
    rows = x.reshape(n, -1)
    i = draw.integer(0, rows.shape[1] - 1, "i")
    here = rows[:, i].detach()
    discrete = bool((here == here.round()).all())
    nodes = _integers(here, support) if discrete else _nodes(here, support)
    # Each line holds the nodes and the sample itself, in order, so that the mass before the sample is a sum.
    line = torch.cat([nodes.expand(n, -1), here[:, None]], dim=1)
    line, order = line.sort(dim=1, stable=True)
    points = rows[:, None, :].expand(-1, line.shape[1], -1).detach().clone()
    points[:, :, i] = line
    with torch.no_grad():
        logs = f.method(log_prob)(points.reshape(-1, *x.shape[1:]).to(x.dtype), *xs).reshape(line.shape)
    density = (logs - logs.amax(dim=1, keepdim=True)).exp()
    own = order == nodes.numel()
    if discrete:
        density = density.masked_fill(own, 0.0)
        below = (density * (line < here[:, None])).sum(1)
        equal = (density * (line == here[:, None])).sum(1)
        before = below + equal * torch.special.ndtr(draw.normal(n))
        return Follows(before / density.sum(1))
    pieces = (density[:, 1:] + density[:, :-1]) / 2 * line.diff(dim=1)
    cumulative = torch.nn.functional.pad(pieces.cumsum(1), (1, 0))
    return Follows((cumulative * own).sum(1) / cumulative[:, -1])


def _support(distribution: Distribution) -> tuple[float, float] | None:
    support: Any = distribution.support
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if low is None and high is None:
        return None
    bounds = (float("-inf") if low is None else low, float("inf") if high is None else high)
    return float(bounds[0]), float(bounds[1])


def _integers(x: Tensor, support: tuple[float, float] | None) -> Tensor:
    """The integers from a little below the samples to a little above, within the support."""
    margin = 5 + (x.max() - x.min())
    low, high = support or (float("-inf"), float("inf"))
    return torch.arange(max(float(x.min() - margin), low), min(float(x.max() + margin), high) + 1).to(x)


def _nodes(x: Tensor, support: tuple[float, float] | None, count: int = 128) -> Tensor:
    """Where to ask for the density: at quantiles of the samples, and evenly over five times their range."""
    margin = 2 * (x.max() - x.min())
    low, high = support or (float("-inf"), float("inf"))
    tiny = 1e-6 * margin
    ends = (max(float(x.min() - margin), low + float(tiny)), min(float(x.max() + margin), high - float(tiny)))
    even = torch.linspace(*ends, count, device=x.device, dtype=x.dtype)
    quantiles = torch.quantile(x, torch.linspace(0, 1, count, device=x.device, dtype=x.dtype))
    near = (x.median() + (quantiles - x.median()) * 1.5).clamp(*ends)
    return torch.cat([even, quantiles.clamp(*ends), near]).sort().values
