"""Explicit time steps miss the shift of their noise levels (diffusers#14013)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import switch_agreement

law = switch_agreement(attribute="explicit")
inputs = shape("b 4")
max_sizes = {"b": 1}


class Fixed(nn.Module):
    """Follows a flow from noise to data in five Euler steps, whose noise levels are shifted upwards."""

    def __init__(self, shift: float = 3.0, steps: int = 5) -> None:
        super().__init__()
        self.shift, self.steps = shift, steps
        self.explicit = False
        self.velocity = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        even = torch.linspace(1, 1 / self.steps, self.steps, dtype=x.dtype, device=x.device)
        levels = self.shift * even / (1 + (self.shift - 1) * even)
        times = self.times(even, levels) if self.explicit else levels
        for time, level, following in zip(times, levels, [*levels[1:], 0.0], strict=True):
            x = x + (following - level) * self.velocity(torch.cat([x, time.expand_as(x[..., :1])], dim=-1))
        return x

    def times(self, given: Tensor, levels: Tensor) -> Tensor:
        """Passes the shifted noise level to the network."""
        return levels


class Broken(Fixed):
    """Passes the unshifted time to the network; the steps use shifted noise levels."""

    def times(self, given: Tensor, levels: Tensor) -> Tensor:
        return given
