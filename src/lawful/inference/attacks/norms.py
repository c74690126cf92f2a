"""Norms of a change: how long it is, the nearest one allowed, and the direction that gains most for its length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.random import normal_noise, uniform_noise
from lawful.laws import (
    AtMost,
    Claim,
    Draw,
    Equal,
    Map,
    Statement,
    agreement,
    all_of,
    idempotence,
    law,
    samples_follow_density,
    shape,
)

Change = Float[Tensor, "n ..."]
"""What is added to inputs, an example along the first axis each."""


@runtime_checkable
class Norm(Protocol):
    """A norm as attacks need it; every attack takes any of them."""

    @property
    def rounding(self) -> int:
        """By how many units in the last place a length may come out too long, however its terms are added up."""
        ...

    def length(self, delta: Change) -> Float[Tensor, " n"]:
        """The norm of each change."""
        ...

    def project(self, delta: Change, radius: float, low: Change, high: Change) -> Change:
        """The nearest changes (in the Euclidean sense) in the ball that are also from `low` <= 0 to `high` >= 0."""
        ...

    def steepest(self, g: Change) -> Change:
        """The changes in the unit ball along which a gradient g gains most; 0 where g is."""
        ...

    def ball(self, n: int, *sizes: int, seed: int, first: int = 0) -> Change:
        """Points of the unit ball, all alike; point i of a seed is the same whatever n is."""
        ...


@dataclass(frozen=True)
class LInf:
    r"""Bounds every entry of a change: $\|\delta\|_\infty = \max_i |\delta_i|$.

    The steepest direction is $\operatorname{sign} g$, and the ball is a cube.

    Examples:
        >>> LInf().steepest(torch.tensor([[0.1, -3.0, 0.0]]))
        tensor([[ 1., -1.,  0.]])
    """

    @property
    def rounding(self) -> int:
        return 0

    def length(self, delta: Change) -> Float[Tensor, " n"]:
        return delta.flatten(1).abs().amax(1)

    def project(self, delta: Change, radius: float, low: Change, high: Change) -> Change:
        return delta.clamp(-radius, radius).clamp(low, high)

    def steepest(self, g: Change) -> Change:
        return g.sign()

    def ball(self, n: int, *sizes: int, seed: int, first: int = 0) -> Change:
        return 2 * uniform_noise(n, *sizes, seed=seed, first=first, dtype=torch.float64) - 1


@dataclass(frozen=True)
class L2:
    r"""Bounds the Euclidean length of a change: $\|\delta\|_2 = (\sum_i \delta_i^2)^{1/2}$.

    The steepest direction is $g / \|g\|_2$, divided by the largest entry first, so that a tiny gradient, whose squares
    are 0, has a direction too. The nearest point of the ball within bounds is $\operatorname{clamp}(s \, \delta)$; $s$
    is found exactly: it rises from where no entry is at a bound, a few times, until no further entry meets its own.

    Examples:
        >>> L2().steepest(torch.tensor([[3e-30, 4e-30]]))
        tensor([[0.6000, 0.8000]])
    """

    @property
    def rounding(self) -> int:
        return 16

    def length(self, delta: Change) -> Float[Tensor, " n"]:
        return torch.linalg.vector_norm(delta.flatten(1), dim=1)

    def project(self, delta: Change, radius: float, low: Change, high: Change) -> Change:
        near = delta.clamp(low, high)
        far = self.length(near) > radius
        if not bool(far.any()):
            return near
        if radius == 0:
            return torch.zeros_like(delta)
        across, tiny = tuple(range(1, delta.dim())), torch.finfo(delta.dtype).tiny
        size, cap = delta.abs(), _cap(delta, low, high) / radius
        longest = size.amax(across, keepdim=True).clamp_min(tiny)
        size, far = size / longest, far.reshape(longest.shape)
        s, before = size.square().sum(across, keepdim=True).clamp_min(tiny).rsqrt(), torch.zeros_like(longest)
        while bool((far & (s > before)).any()):
            capped, before = s * size > cap, s
            used = torch.where(capped, cap, 0.0).square().sum(across, keepdim=True)
            free = torch.where(capped, 0.0, size).square().sum(across, keepdim=True)
            s = ((1 - used).clamp_min(0) / free.clamp_min(tiny)).sqrt().maximum(s)
        return torch.where(far, (delta / longest * (s * radius)).clamp(low, high), near)

    def steepest(self, g: Change) -> Change:
        across = tuple(range(1, g.dim()))
        largest = g.abs().amax(across, keepdim=True)
        g = torch.where(largest > 0, g / largest, 0.0)
        return g / torch.linalg.vector_norm(g, dim=across, keepdim=True).clamp_min(0.5)

    def ball(self, n: int, *sizes: int, seed: int, first: int = 0) -> Change:
        d = math.prod(sizes)  # all but two coordinates of a point of a sphere are a point of a ball
        z = normal_noise(n, d + 2, seed=seed, first=first, dtype=torch.float64)
        return (z[:, :d] / z.norm(dim=1, keepdim=True)).reshape(n, *sizes)


@dataclass(frozen=True)
class L1:
    r"""Bounds the sum of the absolute entries of a change: $\|\delta\|_1 = \sum_i |\delta_i|$.

    Alone, the steepest direction changes one entry only, that of the largest $|g_i|$. Here it changes the $k$ largest
    alike: it gains most among changes with $\|\delta\|_1 \le 1$ and $\|\delta\|_\infty \le 1/k$. The nearest point of
    the ball within bounds takes the same $\lambda$ from all entries, $|\delta_i| - \lambda$, found exactly.

    Reference:
        Duchi, Shalev-Shwartz, Singer and Chandra, *Efficient Projections onto the l1-Ball for Learning in High
        Dimensions*, 2008; Croce and Hein, *Mind the Box: l1-APGD for Sparse Adversarial Attacks on Image
        Classifiers*, 2021.

    Args:
        share: $k$ as a share of all entries; at least one is changed.

    Examples:
        >>> L1(share=0.5).steepest(torch.tensor([[0.1, -3.0, 0.0, 2.0]]))
        tensor([[ 0.0000, -0.5000,  0.0000,  0.5000]])
    """

    share: float = 0.02

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is from 0 to 1: got {self.share}")

    @property
    def rounding(self) -> int:
        return 16

    def length(self, delta: Change) -> Float[Tensor, " n"]:
        return delta.flatten(1).abs().sum(1)

    def project(self, delta: Change, radius: float, low: Change, high: Change) -> Change:
        near = delta.clamp(low, high)
        far = self.length(near) > radius
        if not bool(far.any()):
            return near
        size, cap = (part[far].flatten(1) for part in (delta.abs(), _cap(delta, low, high)))
        knots, order = torch.cat([size, size - cap], 1).sort(1, descending=True)
        slope = torch.where(order < size.shape[1], 1.0, -1.0).to(size).cumsum(1)
        risen = _before(slope[:, :-1] * -knots.diff(dim=1), keep_last=True)
        k = ((risen <= radius).sum(1, keepdim=True) - 1).clamp_min(0)
        taken = knots.gather(1, k) - (radius - risen.gather(1, k)) / slope.gather(1, k).clamp_min(1)
        near[far] = ((size - taken).clamp_min(0).minimum(cap)).reshape_as(delta[far]) * delta[far].sign()
        return near

    def steepest(self, g: Change) -> Change:
        flat = g.flatten(1)
        k = max(1, math.ceil(self.share * flat.shape[1]))
        chosen = flat.abs().topk(k, dim=1).indices
        return torch.zeros_like(flat).scatter(1, chosen, flat.gather(1, chosen).sign() / k).reshape_as(g)

    def ball(self, n: int, *sizes: int, seed: int, first: int = 0) -> Change:
        d = math.prod(sizes)  # all but one coordinate of a point of a simplex, with signs
        u = 2 * uniform_noise(n, d + 1, seed=seed, first=first, dtype=torch.float64) - 1
        waits = -u.abs().log()
        return (u.sign() * waits / waits.sum(1, keepdim=True))[:, :d].reshape(n, *sizes)


def _cap(delta: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """How large each entry may be, on the side where it is."""
    return torch.where(delta > 0, high, -low)


def _before(x: Tensor, *, keep_last: bool = False) -> Tensor:
    """At each place, the sum of all before it."""
    total = torch.cat([torch.zeros_like(x[:, :1]), x.cumsum(1)], 1)
    return total if keep_last else total[:, :-1]


@law("⟨δ - Pδ, u - Pδ⟩ ≤ 0 for every u of the ball and the box, and Pδ is one")
def nearest_point(
    f: Map, delta: Tensor, *, norm: Norm, radius: float, low: float, high: float, draw: Draw
) -> Statement:
    """The projection is the nearest point of a convex set: from it, no other lies in the direction it came from.

    Satisfied by: the projections of norms.
    Broken by: projecting on the ball and clamping to the box in turn, where the ball is not a cube.
    """
    p, u = f(delta), draw.like(delta).clamp(low, high)
    u = u * (radius / norm.length(u).clamp_min(radius)).reshape(-1, *[1] * (delta.dim() - 1))
    turned = ((delta - p) * (u - p)).flatten(1).sum(1)
    length = norm.length(p)
    left, right = [turned, length], [torch.zeros_like(turned), torch.full_like(length, radius)]
    for bounded, bound in ((p, high), (-p, -low)):
        if math.isfinite(bound):
            left, right = [*left, bounded], [*right, torch.full_like(p, bound)]
    return AtMost(left, right, names=["angle", "length", "above", "below"][: len(left)])


@law("⟨g, v⟩ = ‖g‖*, ‖v‖ ≤ 1")
def gains_most(f: Map, g: Tensor, *, norm: Norm, dual: Map) -> Statement:
    """The direction has at most length 1 and gains the dual norm of the gradient, which none of that length exceeds.

    Satisfied by: the sign for the largest entry, the normalised gradient for the Euclidean norm.
    Broken by: a gradient that is divided by its norm and a constant.
    """
    v = f(g)
    gained = torch.stack([(g * v).flatten(1).sum(1), norm.length(v).clamp_min(1)])
    return Equal(gained, torch.stack([dual(g), torch.ones_like(g[:, 0])]), exercised=True)


def _drawn(ball: Callable[..., Tensor], n: int) -> Tensor:
    return ball(n, 1, seed=int(torch.randint(2**31, ())))


def claims() -> Iterator[Claim]:
    """The laws that norms obey."""
    duals = {
        LInf(): lambda g: g.abs().sum(1),
        L2(): lambda g: g.square().sum(1).sqrt(),
        L1(share=0.4): lambda g: g.abs().sort(1, descending=True).values[:, :2].mean(1),
    }
    low, high, radius = -0.5, 0.8, 1.1
    for norm, dual in duals.items():
        yield Claim(gains_most(norm=norm, dual=dual), norm.steepest, shape("n 5"), name=f"{norm}.steepest")

        def project(delta: Tensor, norm: Norm = norm) -> Tensor:
            return norm.project(delta, radius, torch.full_like(delta, low), torch.full_like(delta, high))

        def unbounded(delta: Tensor, norm: Norm = norm) -> Tensor:
            bound = torch.full_like(delta, torch.inf)
            return norm.project(delta, radius, -bound, bound)

        whole = all_of(nearest_point(norm=norm, radius=radius, low=low, high=high), idempotence())
        yield Claim(whole, project, shape("n 5"), name=f"{norm}.project")
        free = nearest_point(norm=norm, radius=radius, low=-torch.inf, high=torch.inf)
        yield Claim(free, unbounded, shape("n 4"), name=f"{norm}.project without bounds")

        def alone(x: Tensor, norm: Norm = norm) -> Tensor:
            return torch.cat([norm.ball(1, 2, 2, seed=3, first=i) for i in range(len(x))]).to(x)

        def beside(x: Tensor, norm: Norm = norm) -> Tensor:
            return norm.ball(len(x), 2, 2, seed=3).to(x)

        yield Claim(agreement(other=alone), beside, shape("n:1..5"), name=f"{norm}.ball, beside others and alone")
        inside = samples_follow_density(
            sample=partial(_drawn, norm.ball),
            log_prob=lambda x: 0 * x[:, 0] - math.log(2),
            support=(-1.0, 1.0),
        )
        yield Claim(inside, norm.steepest, shape("1 1"), name=f"{norm}.ball")
