"""Norms of perturbations: length, projection onto the epsilon ball, steepest ascent direction, random points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.random import normal_noise, uniform_noise
from lawful.laws import AtMost, Claim, Draw, Map, Statement, all_of, idempotence, law, shape

Perturbation = Float[Tensor, "n ..."]
"""Perturbations of a batch of inputs."""


@runtime_checkable
class Norm(Protocol):
    """Interface of a norm. Every attack accepts any norm."""

    @property
    def rounding_ulps(self) -> int:
        """Bound on the rounding error of `length`, in units in the last place, for any order of summation."""
        ...

    def length(self, delta: Perturbation) -> Float[Tensor, " n"]:
        """Returns the norm of each perturbation."""
        ...

    def project(self, delta: Perturbation, radius: float, low: Perturbation, high: Perturbation) -> Perturbation:
        """Returns the Euclidean projection onto the ball within bounds `low` <= 0 <= `high`."""
        ...

    def steepest_direction(self, g: Perturbation) -> Perturbation:
        """Returns the perturbation of norm at most 1 that maximizes its inner product with g; 0 where g is 0."""
        ...

    def sample_ball(self, n: int, *sizes: int, seed: int, first: int = 0) -> Perturbation:
        """Returns n uniform samples of the unit ball. Sample i depends on the seed and on i, not on n."""
        ...


@dataclass(frozen=True)
class LInf:
    r"""The maximum norm, $\|\delta\|_\infty = \max_i |\delta_i|$.

    The steepest direction is $\operatorname{sign} g$.

    Examples:
        >>> LInf().steepest_direction(torch.tensor([[0.1, -3.0, 0.0]]))
        tensor([[ 1., -1.,  0.]])
    """

    @property
    def rounding_ulps(self) -> int:
        return 0

    def length(self, delta: Perturbation) -> Float[Tensor, " n"]:
        return delta.flatten(1).abs().amax(1)

    def project(self, delta: Perturbation, radius: float, low: Perturbation, high: Perturbation) -> Perturbation:
        return delta.clamp(-radius, radius).clamp(low, high)

    def steepest_direction(self, g: Perturbation) -> Perturbation:
        return g.sign()

    def sample_ball(self, n: int, *sizes: int, seed: int, first: int = 0) -> Perturbation:
        return 2 * uniform_noise(n, *sizes, seed=seed, first=first, dtype=torch.float64) - 1


@dataclass(frozen=True)
class L2:
    r"""The Euclidean norm, $\|\delta\|_2 = (\sum_i \delta_i^2)^{1/2}$.

    The steepest direction is $g / \|g\|_2$. The gradient is divided by its largest entry first, so that the squares of
    a tiny gradient do not underflow. The projection within bounds is $\operatorname{clamp}(s \, \delta)$, with the
    exact $s$: a few iterations determine which entries are at their bounds.

    Examples:
        >>> L2().steepest_direction(torch.tensor([[3e-30, 4e-30]]))
        tensor([[0.6000, 0.8000]])
    """

    @property
    def rounding_ulps(self) -> int:
        return 16

    def length(self, delta: Perturbation) -> Float[Tensor, " n"]:
        return torch.linalg.vector_norm(delta.flatten(1), dim=1)

    def project(self, delta: Perturbation, radius: float, low: Perturbation, high: Perturbation) -> Perturbation:
        clamped = delta.clamp(low, high)
        outside = self.length(clamped) > radius
        if not bool(outside.any()):
            return clamped
        if radius == 0:
            return torch.zeros_like(delta)
        across, tiny = tuple(range(1, delta.dim())), torch.finfo(delta.dtype).tiny
        size, cap = delta.abs(), _cap(delta, low, high) / radius
        longest = size.amax(across, keepdim=True).clamp_min(tiny)
        size, outside = size / longest, outside.reshape(longest.shape)
        s, before = size.square().sum(across, keepdim=True).clamp_min(tiny).rsqrt(), torch.zeros_like(longest)
        while bool((outside & (s > before)).any()):
            capped, before = s * size > cap, s
            used = torch.where(capped, cap, 0.0).square().sum(across, keepdim=True)
            free = torch.where(capped, 0.0, size).square().sum(across, keepdim=True)
            s = ((1 - used).clamp_min(0) / free.clamp_min(tiny)).sqrt().maximum(s)
        return torch.where(outside, (delta / longest * (s * radius)).clamp(low, high), clamped)

    def steepest_direction(self, g: Perturbation) -> Perturbation:
        across = tuple(range(1, g.dim()))
        largest = g.abs().amax(across, keepdim=True)
        g = torch.where(largest > 0, g / largest, 0.0)
        return g / torch.linalg.vector_norm(g, dim=across, keepdim=True).clamp_min(0.5)

    def sample_ball(self, n: int, *sizes: int, seed: int, first: int = 0) -> Perturbation:
        d = math.prod(sizes)  # d of the d + 2 coordinates of a uniform point on a sphere are uniform in the ball
        z = normal_noise(n, d + 2, seed=seed, first=first, dtype=torch.float64)
        return (z[:, :d] / z.norm(dim=1, keepdim=True)).reshape(n, *sizes)


@dataclass(frozen=True)
class L1:
    r"""The sum norm, $\|\delta\|_1 = \sum_i |\delta_i|$.

    The steepest direction of the ball alone changes a single entry. Here it changes the $k$ entries of largest $|g_i|$
    equally: it is steepest subject to $\|\delta\|_1 \le 1$ and $\|\delta\|_\infty \le 1/k$. The projection within
    bounds is soft thresholding, $|\delta_i| - \lambda$, with the exact threshold $\lambda$.

    Reference:
        Duchi, Shalev-Shwartz, Singer and Chandra, *Efficient Projections onto the l1-Ball for Learning in High
        Dimensions*, 2008; Croce and Hein, *Mind the Box: l1-APGD for Sparse Adversarial Attacks on Image
        Classifiers*, 2021.

    Args:
        fraction: $k$ as a fraction of the entries. At least one entry changes.

    Examples:
        >>> L1(fraction=0.5).steepest_direction(torch.tensor([[0.1, -3.0, 0.0, 2.0]]))
        tensor([[ 0.0000, -0.5000,  0.0000,  0.5000]])
    """

    fraction: float = 0.02

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= 1:
            raise ValueError(f"fraction must be between 0 and 1, got {self.fraction}")

    @property
    def rounding_ulps(self) -> int:
        return 16

    def length(self, delta: Perturbation) -> Float[Tensor, " n"]:
        return delta.flatten(1).abs().sum(1)

    def project(self, delta: Perturbation, radius: float, low: Perturbation, high: Perturbation) -> Perturbation:
        clamped = delta.clamp(low, high)
        outside = self.length(clamped) > radius
        if not bool(outside.any()):
            return clamped
        size, cap = (part[outside].flatten(1) for part in (delta.abs(), _cap(delta, low, high)))
        knots, order = torch.cat([size, size - cap], 1).sort(1, descending=True)
        slope = torch.where(order < size.shape[1], 1.0, -1.0).to(size).cumsum(1)
        norms = F.pad((slope[:, :-1] * -knots.diff(dim=1)).cumsum(1), (1, 0))
        k = ((norms <= radius).sum(1, keepdim=True) - 1).clamp_min(0)
        threshold = knots.gather(1, k) - (radius - norms.gather(1, k)) / slope.gather(1, k).clamp_min(1)
        clamped[outside] = ((size - threshold).clamp_min(0).minimum(cap)).reshape_as(delta[outside]) * delta[
            outside
        ].sign()
        return clamped

    def steepest_direction(self, g: Perturbation) -> Perturbation:
        flat = g.flatten(1)
        k = max(1, math.ceil(self.fraction * flat.shape[1]))
        chosen = flat.abs().topk(k, dim=1).indices
        return torch.zeros_like(flat).scatter(1, chosen, flat.gather(1, chosen).sign() / k).reshape_as(g)

    def sample_ball(self, n: int, *sizes: int, seed: int, first: int = 0) -> Perturbation:
        d = math.prod(sizes)  # d of the d + 1 coordinates of a uniform point of a simplex, with random signs
        u = 2 * uniform_noise(n, d + 1, seed=seed, first=first, dtype=torch.float64) - 1
        exponentials = -u.abs().log()
        return (u.sign() * exponentials / exponentials.sum(1, keepdim=True))[:, :d].reshape(n, *sizes)


def _cap(delta: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Returns the bound on the absolute value of each entry, on the side of its sign."""
    return torch.where(delta > 0, high, -low)


@law("⟨δ - Pδ, u - Pδ⟩ ≤ 0 for every u in the ball within bounds, and Pδ is in it")
def _projection(f: Map, delta: Tensor, *, norm: Norm, radius: float, low: float, high: float, draw: Draw) -> Statement:
    """The map is the Euclidean projection onto a convex set: the ball within bounds.

    Satisfied by: `Norm.project`.
    Broken by: projecting onto the ball and then clamping, for L2 and L1.
    """
    p, u = f(delta), draw.like(delta).clamp(low, high)
    u = u * (radius / norm.length(u).clamp_min(radius)).reshape(-1, *[1] * (delta.dim() - 1))
    product = ((delta - p) * (u - p)).flatten(1).sum(1)
    length = norm.length(p)
    left, right = [product, length], [torch.zeros_like(product), torch.full_like(length, radius)]
    for bounded, bound in ((p, high), (-p, -low)):
        if math.isfinite(bound):
            left, right = [*left, bounded], [*right, torch.full_like(p, bound)]
    return AtMost(left, right, names=["inner product", "length", "above", "below"][: len(left)])


def claims() -> Iterator[Claim]:
    """Yields the claims of the norms: projections are exact and idempotent."""
    low, high, radius = -0.5, 0.8, 1.1
    for norm in (LInf(), L2(), L1(fraction=0.4)):

        def project(delta: Tensor, norm: Norm = norm) -> Tensor:
            return norm.project(delta, radius, torch.full_like(delta, low), torch.full_like(delta, high))

        exact = all_of(_projection(norm=norm, radius=radius, low=low, high=high), idempotence())
        yield Claim(exact, project, shape("n 5"), name=f"{norm}.project")
