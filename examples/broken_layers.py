"""Five layers, each with a fault that training does not show, and what each of them claims.

Run `lawful check examples/broken_layers.py`: every claim is refuted, with the smallest input that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import Claim, batch_independence, causality, determinism, log_determinant, no_mutation


class LeakyAttention(nn.Module):
    """Causal self-attention over summaries of blocks: the summary of a block reaches its own first token."""

    def __init__(self, d: int = 16, block: int = 4) -> None:
        super().__init__()
        self.qkv, self.out, self.block = nn.Linear(d, 3 * d), nn.Linear(d, d), block

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        n = x.shape[1] // self.block
        means = x[:, : n * self.block].unflatten(1, (n, self.block)).mean(2) if n else x[:, :0]
        summaries = means.repeat_interleave(self.block, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y + F.pad(summaries, (0, 0, 0, x.shape[1] - summaries.shape[1])))


class MixedBatch(nn.Module):
    """Pools over time by a reshape that has batch and time the wrong way round."""

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        return x.transpose(0, 1).reshape(b, t, d).mean(1)


class AlwaysDropping(nn.Module):
    """Drops out in evaluation too: the function is not told the mode."""

    def __init__(self, d: int = 8) -> None:
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.linear(x).relu(), 0.1)


class InPlaceResidual(nn.Module):
    """Adds to its input in place, so that the caller's tensor changes."""

    def __init__(self, d: int = 8) -> None:
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        x += self.linear(x).tanh()
        return x


class Coupling(nn.Module):
    """An affine coupling layer with the sign of its log-determinant wrong.

    It starts as the identity, with a log-determinant of 0, where the sign does not show.
    """

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(2, 4)
        nn.init.zeros_(self.net.weight)
        nn.init.zeros_(self.net.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x.chunk(2, dim=-1)
        scale, shift = self.net(first).chunk(2, dim=-1)
        return torch.cat([first, second * scale.exp() + shift], dim=-1), -scale.sum(-1)


def claims() -> Iterator[Claim]:
    """What the layers promise, and do not keep."""
    yield Claim(causality(time=1), LeakyAttention(), shape("b t 16"))
    yield Claim(batch_independence(), MixedBatch(), shape("b t 4"))
    yield Claim(determinism(), AlwaysDropping(), shape("b 8"))
    yield Claim(no_mutation(), InPlaceResidual(), shape("b 8"))
    yield Claim(log_determinant(), Coupling(), shape("b 4"))
