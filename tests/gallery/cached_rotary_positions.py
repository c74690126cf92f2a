"""With a cache, a decoder uses wrong rotary positions (x-transformers#219, #311, #322)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import cached_decoding

law = cached_decoding(time=1)
inputs = shape("b t 8")
max_sizes = {"t": 2}

State = tuple[Tensor, Tensor]


class Fixed(nn.Module):
    """Causal attention with rotary positions, and a learned context."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.cross = nn.Linear(8, 8)
        self.context = nn.Parameter(torch.randn(5, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x, None)[0]

    def step(self, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Continues from the keys, already rotated, and the values of the past."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        past = 0 if state is None else state[0].shape[1]
        positions = self.first(past) + torch.arange(x.shape[1], device=x.device)
        q, k = rotate(q, positions), rotate(k, positions)
        if state is not None:
            k, v = torch.cat([state[0], k], dim=1), torch.cat([state[1], v], dim=1)
        visible = torch.ones(x.shape[1], k.shape[1], dtype=torch.bool, device=x.device).tril(past)
        y = x + F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        context = self.context.expand(len(x), -1, -1)
        return y + F.scaled_dot_product_attention(self.cross(y), context, context), (k, v)

    def first(self, past: int) -> int:
        """Continues the positions after the cache."""
        return past


class Broken(Fixed):
    """Restarts positions at 0 with each piece, although cached keys were rotated by their positions."""

    def first(self, past: int) -> int:
        return 0


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotates pairs of features by angles proportional to the position."""
    half = x.shape[-1] // 2
    angles = positions.to(x).unsqueeze(-1) / 100 ** (torch.arange(half, device=x.device).to(x) / half)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)
