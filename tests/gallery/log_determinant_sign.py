"""The log-determinant of an inverse has the sign of the forward map (flowjax#208)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import log_determinant

law = log_determinant(log_det=1)
inputs = shape("b 4")
max_sizes = {"b": 1}


class Fixed(nn.Module):
    """Inverts an affine coupling, the identity at first, and returns the log-determinant of the inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, y: Tensor) -> tuple[Tensor, Tensor]:
        kept, moved = y.chunk(2, dim=-1)
        log_scale, shift = self.net(kept).chunk(2, dim=-1)
        log_scale = log_scale.tanh()
        x = torch.cat([kept, (moved - shift) * (-log_scale).exp()], dim=-1)
        return x, self.log_det(log_scale)

    def log_det(self, log_scale: Tensor) -> Tensor:
        return -log_scale.sum(-1)


class Broken(Fixed):
    """Returns the log-determinant of the forward map; at initialization both are 0."""

    def log_det(self, log_scale: Tensor) -> Tensor:
        return log_scale.sum(-1)
