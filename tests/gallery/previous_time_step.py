"""The sampler steps by a constant, but its time steps are not evenly spaced (diffusers#11347)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import switch_agreement

law = switch_agreement(attribute="explicit")
inputs = shape("b 4")
max_sizes = {"b": 1}


class Fixed(nn.Module):
    """Denoises in five of a hundred time steps, evenly spaced from last to first, without fresh noise.

    The next step is looked up if the steps are given explicitly, and computed otherwise.
    """

    def __init__(self, training_steps: int = 100, steps: int = 5) -> None:
        super().__init__()
        self.training_steps, self.steps = training_steps, steps
        self.explicit = True
        self.noise = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        times = [round(i * (self.training_steps - 1) / (self.steps - 1)) for i in reversed(range(self.steps))]
        for i, now in enumerate(times):
            following = (*times, -1)[i + 1] if self.explicit else self.following(now, i)
            x = self.step(x, now, following)
        return x

    def following(self, now: int, i: int) -> int:
        left = self.steps - 2 - i
        return round(left * (self.training_steps - 1) / (self.steps - 1)) if left >= 0 else -1

    def step(self, x: Tensor, now: int, following: int) -> Tensor:
        a, b = self.signal(now), self.signal(following)
        time = torch.full_like(x[..., :1], now / self.training_steps)
        noise = self.noise(torch.cat([x, time], dim=-1))
        return b**0.5 * (x - (1 - a) ** 0.5 * noise) / a**0.5 + (1 - b) ** 0.5 * noise

    def signal(self, time: int) -> float:
        """The share of the signal in the variance: all of it before the first step."""
        return 1 - 0.9 * (time + 1) / self.training_steps


class Broken(Fixed):
    """Steps back by 20, training steps divided by steps, although the steps are 25 apart."""

    def following(self, now: int, i: int) -> int:
        return max(now - self.training_steps // self.steps, -1)
