"""Rotary angles for adjacent pairs meet a rotation of halves (how-to-train-your-gpt#6)."""

import torch
from torch import Tensor, nn

from lawful import shape, tokens
from lawful.laws import relative_position_only

law = relative_position_only()
inputs = (shape("b t 8"), tokens("t", vocab_size=32))
max_sizes = {"t": 2}


class Fixed(nn.Module):
    """Attention with rotary positions: each pair of adjacent features has its own angle."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = self.rotate(q, positions) @ self.rotate(k, positions).mT
        return scores.softmax(-1) @ v

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        rates = 100 ** -(torch.arange(0, 8, 2, device=x.device).to(x) / 8)
        angles = (positions.to(x).unsqueeze(-1) * rates).repeat_interleave(2, dim=-1)
        return x * angles.cos() + self.turned(x) * angles.sin()

    def turned(self, x: Tensor) -> Tensor:
        """Rotates adjacent pairs by a right angle."""
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([-b, a], dim=-1).flatten(-2)


class Broken(Fixed):
    """Pairs a feature with the feature half the width away, which has another angle."""

    def turned(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=-1)
        return torch.cat([-b, a], dim=-1)
