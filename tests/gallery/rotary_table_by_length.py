"""A table of rotary angles is cached by its length, without its offset (rotary-embedding-torch#11)."""

import torch
from torch import Tensor, nn

from lawful import shape, tokens
from lawful.laws import statelessness

law = statelessness()
inputs = (shape("b t 4"), tokens("", vocab_size=8))
max_sizes = {"t": 1}


class Fixed(nn.Module):
    """Rotates pairs of features by position plus an offset, and caches the angles."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[object, Tensor] = {}

    def forward(self, x: Tensor, offset: Tensor) -> Tensor:
        t, first = x.shape[1], int(offset)
        key = self.key(t, first), x.dtype, x.device
        if key not in self.kept:
            rates = torch.tensor([1.0, 0.1], dtype=x.dtype, device=x.device)
            self.kept[key] = torch.arange(first, first + t, device=x.device).to(x).unsqueeze(-1) * rates
        angles = self.kept[key]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)

    def key(self, length: int, offset: int) -> object:
        """Key of a table: everything it depends on."""
        return length, offset


class Broken(Fixed):
    """Caches by length only, and returns the table of the first offset."""

    def key(self, length: int, offset: int) -> object:
        return length
