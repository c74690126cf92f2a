"""Dequantizing: whole levels made continuous, so that a density and a probability can be compared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import overload

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.estimate import LogProbEstimate
from lawful.functions.random import uniform_noise
from lawful.laws import Claim, agreement, shape, transformed


@dataclass(frozen=True, kw_only=True)
class Dequantizer:
    r"""Spreads each level of the data over a cell of its own, and turns nats into bits per dimension.

    $$y = x + w \, (u - \tfrac12), \quad u \sim U(0, 1)^D, \qquad w = \frac{\text{high} - \text{low}}{K - 1}$$

    $$P(x) = \int_{\text{cell of } x} p(y) \, dy = w^D \, \mathbb{E}_u \, p(y) \quad \Rightarrow \quad
    \log P(x) \ge \mathbb{E}_u \log p(y) + D \log w$$

    So the bits per dimension of a density, $-\tfrac{1}{\log 2} \bigl(\tfrac{1}{D} \log p(y) + \log w\bigr)$, are on
    average an upper bound on those of the levels: uniform dequantizing never flatters. Densities are those of the data
    in their own units; the offset $\log w$ is here and nowhere else.

    Reference:
        Theis, van den Oord and Bethge, *A note on the evaluation of generative models*, 2016.

    Args:
        levels: $K$, the number of levels.
        low: The lowest.
        high: The highest.

    Examples:
        >>> pixels = Dequantizer(levels=17, high=16.0)
        >>> pixels.quantized(pixels.dequantized(torch.tensor([[3.0, 16.0]]))), pixels.support
        (tensor([[ 3., 16.]]), (-0.5, 16.5))
        >>> round(pixels.bits_per_dimension(-64 * math.log(17), 64), 3)
        4.087
    """

    levels: int
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.levels < 2:
            raise ValueError(f"levels are at least 2: got {self.levels}")
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"low is below high, both finite: got {self.low} and {self.high}")

    @property
    def width(self) -> float:
        """$w$, the width of a cell."""
        return (self.high - self.low) / (self.levels - 1)

    @property
    def support(self) -> tuple[float, float]:
        """The ends of the outermost cells."""
        return self.low - self.width / 2, self.high + self.width / 2

    def dequantized(self, x: Float[Tensor, "n *shape"], *, seed: int = 0, first: int = 0) -> Float[Tensor, "n *shape"]:
        """Adds noise to levels; that of example `first + i` is the same in every batch."""
        self._check(x)
        u = uniform_noise(len(x), *x.shape[1:], seed=seed, first=first, dtype=x.dtype, device=x.device)
        return x + self.width * (u - 0.5)

    def quantized(self, y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Returns the nearest levels."""
        return self.low + self.width * self._steps(y).round().clamp(0, self.levels - 1)

    @overload
    def bits_per_dimension(self, nats: LogProbEstimate, dims: int) -> LogProbEstimate: ...
    @overload
    def bits_per_dimension(self, nats: Tensor, dims: int) -> Tensor: ...
    @overload
    def bits_per_dimension(self, nats: float, dims: int) -> float: ...
    def bits_per_dimension(self, nats: LogProbEstimate | Tensor | float, dims: int) -> LogProbEstimate | Tensor | float:
        """Turns log-densities of dequantized examples, in nats, into bits for each of `dims` dimensions."""
        if dims < 1:
            raise ValueError(f"dims are at least 1: got {dims}")
        scale, offset = 1 / (dims * math.log(2)), math.log2(self.width)
        if isinstance(nats, LogProbEstimate):
            return LogProbEstimate(-nats.value * scale - offset, nats.error * scale, nats.evaluations)
        return -nats * scale - offset

    def _steps(self, y: Tensor) -> Tensor:
        return (y - self.low) / self.width

    def _check(self, x: Tensor) -> None:
        if not x.numel():
            return
        if not bool(x.isfinite().all()):
            raise ValueError("finite levels were wanted: got NaN or infinite ones")
        steps = self._steps(x)
        if (
            float((steps - steps.round()).abs().max()) > 1e-3
            or not -0.5 < float(steps.min()) <= float(steps.max()) < self.levels - 0.5
        ):
            found = f"values from {float(x.min()):g} to {float(x.max()):g}"
            wanted = f"{self.levels} levels from {self.low:g} to {self.high:g}, {self.width:g} apart,"
            raise ValueError(f"{wanted} were wanted: got {found}")


def claims() -> Iterator[Claim]:
    """The laws that dequantizing obeys."""
    pixels = Dequantizer(levels=5, low=-1.0, high=3.0)

    def levels(x: Tensor) -> Tensor:
        return x.tanh().mul(2.4).round() + 1

    def there_and_back(x: Tensor) -> Tensor:
        return pixels.quantized(pixels.dequantized(x, seed=len(x)))

    yield Claim(
        agreement(other=torch.clone), there_and_back, transformed(levels, "n 3"), name="quantized ∘ dequantized = 1"
    )

    def apart(x: Tensor) -> Tensor:
        return pixels.dequantized(x, seed=3)

    def one_by_one(x: Tensor) -> Tensor:
        return torch.cat([pixels.dequantized(row[None], seed=3, first=i) for i, row in enumerate(x)])

    yield Claim(agreement(other=one_by_one), apart, transformed(levels, "n 3"), name="dequantized, row by row")

    def of_levels(x: Tensor) -> Tensor:
        """What a density that is constant on each cell says of its levels, by way of the density."""
        wide = Dequantizer(levels=len(x), low=0.0, high=2.0 * (len(x) - 1))
        return wide.bits_per_dimension((x.softmax(0) / 2).log(), 1)

    yield Claim(
        agreement(other=lambda x: -x.log_softmax(0) / math.log(2)), of_levels, shape("n:2..6"), name="bits of levels"
    )
