"""The layer adds to the caller's coordinates in place (vgsatorras/egnn)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import no_mutation

law = no_mutation()
inputs = (shape("b n 4"), shape("b n 3"))
max_sizes = {"n": 2}


class Fixed(nn.Module):
    """Moves every node along the lines to the others, by the features at both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.pull = nn.Sequential(nn.Linear(9, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, features: Tensor, coordinates: Tensor) -> Tensor:
        b, n, d = features.shape
        lines = coordinates.unsqueeze(2) - coordinates.unsqueeze(1)
        nearness = 1 / (1 + lines.square().sum(-1, keepdim=True))
        pairs = features.unsqueeze(2).expand(b, n, n, d), features.unsqueeze(1).expand(b, n, n, d)
        step = lines * nearness * self.pull(torch.cat([*pairs, nearness], dim=-1))
        return self.move(coordinates, step.mean(2))

    def move(self, coordinates: Tensor, step: Tensor) -> Tensor:
        return coordinates + step


class Broken(Fixed):
    """Changes the caller's coordinates."""

    def move(self, coordinates: Tensor, step: Tensor) -> Tensor:
        coordinates += step
        return coordinates
