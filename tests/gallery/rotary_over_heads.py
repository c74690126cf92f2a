"""The rotary embedding uses heads as positions, and cancels (open_lm#4)."""

import torch
from torch import Tensor, nn

from lawful import shape, tokens
from lawful.laws import all_of, positions_matter, relative_position_only

law = all_of(relative_position_only(), positions_matter())
inputs = (shape("b t 8"), tokens("t", vocab_size=32))
max_sizes = {}


class Fixed(nn.Module):
    """Attends by rotary positions; queries and keys lie as batch, time, head, feature."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).unbind(2)
        count = self.count(q, positions)
        weights = torch.einsum("bthk,bshk->bhts", rotate(q, count), rotate(k, count)).softmax(-1)
        return self.out(torch.einsum("bhts,bshk->bthk", weights, v).flatten(2))

    def count(self, q: Tensor, positions: Tensor) -> Tensor:
        """Gives every token its position, in all heads."""
        return positions.unsqueeze(-1)


class Broken(Fixed):
    """Uses the head axis as positions: queries and keys of a head get the same angle."""

    def count(self, q: Tensor, positions: Tensor) -> Tensor:
        return torch.arange(q.shape[-2], device=q.device)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotates pairs of features by angles proportional to the position."""
    half = x.shape[-1] // 2
    angles = positions.to(x).unsqueeze(-1) / 100 ** (torch.arange(half, device=x.device).to(x) / half)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)
