"""Densities that are constant on each of some equal cells: what whole levels become when they are dequantized."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, invertibility, log_determinant, monotonicity, shape, transformed

_FAR = 1e6
_SCALES = (-5.5, 1.5)


@dataclass(frozen=True, kw_only=True)
class DiscretizedLogistic:
    r"""Maps the interval from -1 to 1 onto itself by the distribution of a mixture of logistics, straight on each cell.

    $$y = 2 F(x) - 1, \qquad F(e_j) = (1 - \epsilon) \sum_c \pi_c \, \sigma\Bigl(\frac{e_j - \mu_c}{s_c}\Bigr)
    + \epsilon \frac{j}{K}, \quad F(e_0) = 0, \ F(e_K) = 1$$

    at the ends $e_j$ of $K$ equal cells, and linear in between. Where the base density is uniform, the density is
    constant on each cell: the probability of a level, spread evenly. So for dequantized levels the bound of uniform
    dequantizing is no bound but the likelihood itself, and near levels share what is learnt of them. No level is
    impossible. Outside the interval the map is the identity.

    The parameters of an entry are the logits of $\pi$, the centres $\mu$ as offsets from an even spread, and the
    logarithms of $s$.

    Reference:
        Salimans, Karpathy, Chen and Kingma, *PixelCNN++: Improving the PixelCNN with Discretized Logistic Mixture
        Likelihood and Other Modifications*, 2017.

    Args:
        levels: $K$.
        components: The number of logistics.
        floor: $\epsilon$.

    Examples:
        >>> levels = DiscretizedLogistic(levels=4)
        >>> y, log_slope = levels.forward(torch.tensor([-0.9, -0.6, 3.0]), torch.zeros(3, levels.size))
        >>> bool(log_slope[0] == log_slope[1]), round(y[2].item(), 4)
        (True, 3.0)
    """

    levels: int
    components: int = 10
    floor: float = 1e-4

    def __post_init__(self) -> None:
        if self.levels < 2 or self.components < 1:
            raise ValueError(
                f"2 levels and 1 component are the least: got {self.levels} levels, {self.components} components"
            )
        if not 0 < self.floor < 1:
            raise ValueError(f"floor is between 0 and 1: got {self.floor}")

    @property
    def size(self) -> int:
        """How many parameters an entry has."""
        return 3 * self.components

    def forward(
        self, x: Float[Tensor, "*n"], parameters: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Maps entries, and returns the logarithms of their slopes."""
        inside = x.clamp(-1, 1)
        cell = ((inside + 1) * (self.levels / 2)).floor().clamp(0, self.levels - 1)
        below, above = self._distribution(torch.stack([cell, cell + 1], -1), parameters).unbind(-1)
        slope = self.levels * (above - below)
        y = 2 * below - 1 + (inside - (cell * (2 / self.levels) - 1)) * slope
        return y + (x - inside), torch.where(x == inside, slope.log(), 0.0)

    def inverse(
        self, y: Float[Tensor, "*n"], parameters: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Finds the cell, and the place in it."""
        k, inside = self.levels, y.clamp(-1, 1)
        edges = torch.arange(k + 1, dtype=y.dtype, device=y.device).expand(*y.shape, k + 1)
        values = 2 * self._distribution(edges, parameters) - 1
        cell = (values[..., 1:-1] <= inside.unsqueeze(-1)).sum(-1, keepdim=True)
        below, above = (values.gather(-1, cell + i).squeeze(-1) for i in (0, 1))
        slope = k / 2 * (above - below)
        x = cell.squeeze(-1) * (2 / k) - 1 + ((inside - below) / slope).clamp(0, 2 / k)
        return x + (y - inside), torch.where(y == inside, -slope.log(), 0.0)

    def _distribution(self, edges: Tensor, parameters: Tensor) -> Tensor:
        """F at the cells' ends of these numbers, along the last axis."""
        if parameters.shape[-1] != self.size:
            raise ValueError(f"{self.size} parameters an entry were wanted: got shape {tuple(parameters.shape)}")
        logits, centres, scales = parameters.unflatten(-1, (3, self.components)).unbind(-2)
        spread = torch.linspace(-1, 1, self.components + 2, dtype=edges.dtype, device=edges.device)[1:-1]
        low, high = _SCALES
        steepness = (-(scales - 1.5).clamp(low, high)).exp()
        ends = edges * (2 / self.levels) - 1
        ends = torch.where(edges == 0, -_FAR, torch.where(edges == self.levels, _FAR, ends))
        reached = torch.sigmoid((ends.unsqueeze(-1) - (centres + spread).unsqueeze(-2)) * steepness.unsqueeze(-2))
        mixed = (reached @ logits.softmax(-1).unsqueeze(-1)).squeeze(-1)
        return (1 - self.floor) * mixed + edges * (self.floor / self.levels)


def claims() -> Iterator[Claim]:
    """The laws that levels obey."""
    map_ = DiscretizedLogistic(levels=5, components=2, floor=0.1)
    given = torch.tensor([0.3, -0.4, 0.1, -0.2, 0.5, 1.0])
    near = transformed(lambda x: 1.3 * torch.tanh(x), "n 2")

    def mapped(x: Tensor) -> tuple[Tensor, Tensor]:
        y, log_slope = map_.forward(x, given.to(x).expand(*x.shape, 6))
        return y, log_slope.sum(-1)

    def back(y: Tensor) -> tuple[Tensor, Tensor]:
        x, log_slope = map_.inverse(y, given.to(y).expand(*y.shape, 6))
        return x, log_slope.sum(-1)

    def written_out(x: Tensor) -> Tensor:
        u = given.to(x)
        weights, centres = u[:2].softmax(0), u[2:4] + x.new_tensor([-1 / 3, 1 / 3])
        reached = x.new_tensor([0.0] + 4 * [0.0] + [1.0])
        for j in range(1, 5):
            z = (-1 + 2 * j / 5 - centres) / torch.exp(u[4:] - 1.5)
            reached[j] = (weights / (1 + torch.exp(-z))).sum()
        y = x
        for j in range(5):
            ends = [0.9 * reached[i] + 0.1 * i / 5 for i in (j, j + 1)]
            share = (x - (-1 + 2 * j / 5)) / (2 / 5)
            y = torch.where((share >= 0) & (share <= 1), 2 * (ends[0] + share * (ends[1] - ends[0])) - 1, y)
        return y

    yield Claim(agreement(other=written_out), lambda x: mapped(x)[0], near, name="LogisticLevels")
    yield Claim(log_determinant(), mapped, near, name="LogisticLevels")
    yield Claim(log_determinant(), back, near, name="LogisticLevels, backward")
    yield Claim(invertibility(inverse=back), lambda x: mapped(x)[0], near, name="LogisticLevels")
    yield Claim(monotonicity(), lambda x: mapped(x)[0], shape("n 2"), name="LogisticLevels")

    def probabilities(x: Tensor) -> Tensor:
        """The density at a cell's centre, a uniform base of height 1/2, times the width of the cell."""
        centres = torch.linspace(-0.8, 0.8, 5).to(x).expand(len(x), 5)
        log_slope = map_.forward(centres, x.unsqueeze(1).expand(-1, 5, -1))[1]
        return (log_slope.exp() / 2 * (2 / 5)).sum(-1)

    one = replace(agreement(other=lambda x: torch.ones_like(x[:, 0])), cases=10)
    yield Claim(one, probabilities, shape("n 6"), name="levels sum to 1")
