"""Uniform dequantization of discrete levels, and bits per dimension."""

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
from lawful.laws import Claim, agreement, transformed


@dataclass(frozen=True, kw_only=True)
class Dequantizer:
    r"""Uniform dequantization of data with discrete levels.

    $$y = x + w \, (u - \tfrac12), \quad u \sim U(0, 1)^D, \qquad w = \frac{\text{high} - \text{low}}{K - 1}$$

    $$P(x) = \int_{\text{cell of } x} p(y) \, dy = w^D \, \mathbb{E}_u \, p(y) \quad \Rightarrow \quad
    \log P(x) \ge \mathbb{E}_u \log p(y) + D \log w$$

    The bits per dimension of a density, $-\tfrac{1}{\log 2} \bigl(\tfrac{1}{D} \log p(y) + \log w\bigr)$, are on
    average an upper bound on the bits per dimension of the levels. Densities are in the units of the data; the offset
    $\log w$ is added here only.

    Reference:
        Theis, van den Oord and Bethge, *A note on the evaluation of generative models*, 2016.

    Args:
        levels: Number of levels $K$.
        low: Lowest level.
        high: Highest level.

    Examples:
        >>> pixels = Dequantizer(levels=17, high=16.0)
        >>> pixels.quantize(pixels.dequantize(torch.tensor([[3.0, 16.0]]))), pixels.support
        (tensor([[ 3., 16.]]), (-0.5, 16.5))
        >>> round(pixels.bits_per_dim(-64 * math.log(17), 64), 3)
        4.087
    """

    levels: int
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.levels < 2:
            raise ValueError(f"expected levels >= 2, got {self.levels}")
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"expected finite low < high, got low={self.low}, high={self.high}")

    @property
    def width(self) -> float:
        """Width $w$ of a cell."""
        return (self.high - self.low) / (self.levels - 1)

    @property
    def support(self) -> tuple[float, float]:
        """Lower and upper end of the cells."""
        return self.low - self.width / 2, self.high + self.width / 2

    def dequantize(self, x: Float[Tensor, "n *shape"], *, seed: int = 0, first: int = 0) -> Float[Tensor, "n *shape"]:
        """Adds uniform noise to levels; the noise of example `first + i` does not depend on the batch."""
        self._check(x)
        u = uniform_noise(len(x), *x.shape[1:], seed=seed, first=first, dtype=x.dtype, device=x.device)
        return x + self.width * (u - 0.5)

    def quantize(self, y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Returns the nearest levels."""
        return self.low + self.width * self._steps(y).round().clamp(0, self.levels - 1)

    @overload
    def bits_per_dim(self, nats: LogProbEstimate, dim: int) -> LogProbEstimate: ...
    @overload
    def bits_per_dim(self, nats: Tensor, dim: int) -> Tensor: ...
    @overload
    def bits_per_dim(self, nats: float, dim: int) -> float: ...
    def bits_per_dim(self, nats: LogProbEstimate | Tensor | float, dim: int) -> LogProbEstimate | Tensor | float:
        """Converts log-densities of dequantized examples, in nats, to bits per dimension."""
        if dim < 1:
            raise ValueError(f"expected dim >= 1, got {dim}")
        scale, offset = 1 / (dim * math.log(2)), math.log2(self.width)
        if isinstance(nats, LogProbEstimate):
            return LogProbEstimate(-nats.value * scale - offset, nats.error * scale, nats.evaluations)
        return -nats * scale - offset

    def _steps(self, y: Tensor) -> Tensor:
        return (y - self.low) / self.width

    def _check(self, x: Tensor) -> None:
        if not x.numel():
            return
        if not bool(x.isfinite().all()):
            raise ValueError("expected finite levels, got NaN or infinity")
        steps = self._steps(x)
        if (
            float((steps - steps.round()).abs().max()) > 1e-3
            or not -0.5 < float(steps.min()) <= float(steps.max()) < self.levels - 0.5
        ):
            raise ValueError(
                f"expected {self.levels} levels from {self.low:g} to {self.high:g}, {self.width:g} apart, got"
                f" values from {float(x.min()):g} to {float(x.max()):g}"
            )


def claims() -> Iterator[Claim]:
    """Quantization inverts dequantization; examples do not mix."""
    pixels = Dequantizer(levels=5, low=-1.0, high=3.0)
    levels = transformed(lambda x: x.tanh().mul(2.4).round() + 1, "n 3")

    def round_trip(x: Tensor) -> Tensor:
        return pixels.quantize(pixels.dequantize(x, seed=len(x)))

    def batched(x: Tensor) -> Tensor:
        return pixels.dequantize(x, seed=3)

    def one_by_one(x: Tensor) -> Tensor:
        return torch.cat([pixels.dequantize(row[None], seed=3, first=i) for i, row in enumerate(x)])

    yield Claim(agreement(other=torch.clone), round_trip, levels, name="quantize inverts dequantize")
    yield Claim(agreement(other=one_by_one), batched, levels, name="dequantize does not depend on the batch")
