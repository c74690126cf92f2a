"""Five layers with faults that training does not show.

Run `lawful check examples/broken_layers.py`. Every claim is refuted, with the smallest counterexample.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import Claim, batch_independence, causality, determinism, log_determinant, no_mutation


class LeakyAttention(nn.Module):
    """Causal self-attention plus block means: the mean of a block reaches the block's first token."""

    def __init__(self, dim: int = 16, block: int = 4) -> None:
        super().__init__()
        self.qkv, self.out, self.block = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), block

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        n = x.shape[1] // self.block
        means = x[:, : n * self.block].unflatten(1, (n, self.block)).mean(2) if n else x[:, :0]
        summaries = means.repeat_interleave(self.block, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y + F.pad(summaries, (0, 0, 0, x.shape[1] - summaries.shape[1])))


class MixedBatch(nn.Module):
    """Pools over time with a reshape that swaps batch and time."""

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        return x.transpose(0, 1).reshape(b, t, d).mean(1)


class AlwaysDropping(nn.Module):
    """Applies dropout in eval mode too: F.dropout is not passed `training`."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.linear(x).relu(), 0.1)


class InPlaceResidual(nn.Module):
    """Adds to its input in place and changes the caller's tensor."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        x += self.linear(x).tanh()
        return x


class Coupling(nn.Module):
    """Affine coupling layer whose log-determinant has the wrong sign.

    At initialization it is the identity, where the sign does not show.
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
    """Laws that the layers should satisfy, and break."""
    yield Claim(causality(time=1), LeakyAttention(), shape("b t 16"))
    yield Claim(batch_independence(), MixedBatch(), shape("b t 4"))
    yield Claim(determinism(), AlwaysDropping(), shape("b 8"))
    yield Claim(no_mutation(), InPlaceResidual(), shape("b 8"))
    yield Claim(log_determinant(), Coupling(), shape("b 4"))
