"""Discretized logistic mixture: a transform whose density is constant on each quantization level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import (
    Claim,
    inverse_log_determinant,
    invertibility,
    log_determinant,
    monotonicity,
    shape,
    transformed,
)

_INFINITY = 1e6
_LOG_SCALE_RANGE = (-5.5, 1.5)


@dataclass(frozen=True, kw_only=True)
class DiscretizedLogistic:
    r"""Piecewise-linear CDF of a logistic mixture, as a transform of $[-1, 1]$ onto itself.

    $$y = 2 F(x) - 1, \qquad F(e_j) = (1 - \epsilon) \sum_c \pi_c \, \sigma\Bigl(\frac{e_j - \mu_c}{s_c}\Bigr)
    + \epsilon \frac{j}{K}, \quad F(e_0) = 0, \ F(e_K) = 1$$

    at the edges $e_j$ of $K$ equal cells, linear in between. With a uniform base the density is constant on each cell,
    so that the bound of uniform dequantization is the exact likelihood of the levels.
    Every level has positive probability. Outside the interval the map is the identity.

    The parameters of an entry are the logits of $\pi$, the means $\mu$ relative to an even spacing, and $\log s$.

    Reference:
        Salimans, Karpathy, Chen and Kingma, *PixelCNN++: Improving the PixelCNN with Discretized Logistic Mixture
        Likelihood and Other Modifications*, 2017.

    Args:
        num_levels: $K$.
        num_components: Number of logistics.
        floor: $\epsilon$.

    Examples:
        >>> levels = DiscretizedLogistic(num_levels=4)
        >>> y, log_derivative = levels.forward(torch.tensor([-0.9, -0.6, 3.0]), torch.zeros(3, levels.num_parameters))
        >>> bool(log_derivative[0] == log_derivative[1]), round(y[2].item(), 4)
        (True, 3.0)
    """

    num_levels: int
    num_components: int = 10
    floor: float = 1e-4

    def __post_init__(self) -> None:
        if self.num_levels < 2 or self.num_components < 1:
            got = f"num_levels={self.num_levels}, num_components={self.num_components}"
            raise ValueError(f"num_levels must be at least 2 and num_components at least 1: got {got}")
        if not 0 < self.floor < 1:
            raise ValueError(f"floor must be in (0, 1), got {self.floor}")

    @property
    def num_parameters(self) -> int:
        """Number of parameters per entry."""
        return 3 * self.num_components

    def forward(
        self, x: Float[Tensor, "*n"], parameters: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Maps entries, and returns the log-derivatives."""
        inside = x.clamp(-1, 1)
        cell = ((inside + 1) * (self.num_levels / 2)).floor().clamp(0, self.num_levels - 1)
        below, above = self._cdf(torch.stack([cell, cell + 1], -1), parameters).unbind(-1)
        slope = self.num_levels * (above - below)
        y = 2 * below - 1 + (inside - (cell * (2 / self.num_levels) - 1)) * slope
        return y + (x - inside), torch.where(x.abs() <= 1, slope.log(), 0.0)

    def inverse(
        self, y: Float[Tensor, "*n"], parameters: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Maps entries back, and returns the log-derivatives of the inverse."""
        k, inside = self.num_levels, y.clamp(-1, 1)
        edges = torch.arange(k + 1, dtype=y.dtype, device=y.device).expand(*y.shape, k + 1)
        values = 2 * self._cdf(edges, parameters) - 1
        cell = (values[..., 1:-1] <= inside.unsqueeze(-1)).sum(-1, keepdim=True)
        below, above = (values.gather(-1, cell + i).squeeze(-1) for i in (0, 1))
        slope = k / 2 * (above - below)
        x = cell.squeeze(-1) * (2 / k) - 1 + ((inside - below) / slope).clamp(0, 2 / k)
        return x + (y - inside), torch.where(y.abs() <= 1, -slope.log(), 0.0)

    def _cdf(self, edges: Tensor, parameters: Tensor) -> Tensor:
        """F at cell edges, given by their indices along the last axis."""
        if parameters.shape[-1] != self.num_parameters:
            expected = f"(*n, {self.num_parameters})"
            raise ValueError(f"expected parameters of shape {expected}, got {tuple(parameters.shape)}")
        logits, means, log_scales = parameters.unflatten(-1, (3, self.num_components)).unbind(-2)
        spacing = torch.linspace(-1, 1, self.num_components + 2, dtype=edges.dtype, device=edges.device)[1:-1]
        low, high = _LOG_SCALE_RANGE
        precision = (-(log_scales - 1.5).clamp(low, high)).exp()
        ends = edges * (2 / self.num_levels) - 1
        first, last = edges < 0.5, edges > self.num_levels - 0.5
        ends = torch.where(first, -_INFINITY, torch.where(last, _INFINITY, ends))
        cdf = torch.sigmoid((ends.unsqueeze(-1) - (means + spacing).unsqueeze(-2)) * precision.unsqueeze(-2))
        mixed = (cdf @ logits.softmax(-1).unsqueeze(-1)).squeeze(-1)
        return (1 - self.floor) * mixed + edges * (self.floor / self.num_levels)


def claims() -> Iterator[Claim]:
    """Laws of the discretized logistic mixture."""
    mixture = DiscretizedLogistic(num_levels=5, num_components=2, floor=0.1)
    parameters = torch.tensor([0.3, -0.4, 0.1, -0.2, 0.5, 1.0])
    near = transformed(lambda x: 1.3 * torch.tanh(x), "n 2")

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        y, log_derivative = mixture.forward(x, parameters.to(x).expand(*x.shape, 6))
        return y, log_derivative.sum(-1)

    def inverse(y: Tensor) -> tuple[Tensor, Tensor]:
        x, log_derivative = mixture.inverse(y, parameters.to(y).expand(*y.shape, 6))
        return x, log_derivative.sum(-1)

    yield Claim(log_determinant(), forward, near, name="DiscretizedLogistic")
    yield Claim(inverse_log_determinant(inverse=inverse), forward, near, name="DiscretizedLogistic")
    yield Claim(invertibility(inverse=inverse), lambda x: forward(x)[0], near, name="DiscretizedLogistic")
    yield Claim(monotonicity(), lambda x: forward(x)[0], shape("n 2"), name="DiscretizedLogistic")
