"""Attention between the places of an image or a series."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.images.conditioned import zeroed
from lawful.blocks.normalization import GroupNorm
from lawful.laws import Claim, agreement, equivariance, shape


class SpaceAttention(nn.Module):
    r"""Lets every place of an image look at all others, and adds what it finds.

    $$y = x + \operatorname{attention}(\operatorname{norm}(x))$$

    The places are tokens, their channels the features. What attention finds begins at 0.

    Args:
        c: The number of channels.
        heads: The number of heads.

    Examples:
        >>> SpaceAttention(8)(torch.ones(1, 8, 4, 4)).shape
        torch.Size([1, 8, 4, 4])
    """

    def __init__(self, c: int, *, heads: int = 1) -> None:
        super().__init__()
        self.norm, self.attention = GroupNorm(gcd(8, c), c), MultiHeadAttention(c, heads=heads)
        zeroed(self.attention.out)

    def forward(self, x: Float[Tensor, "n c *space"]) -> Float[Tensor, "n c *space"]:
        """Maps images or series."""
        tokens = self.norm(x).flatten(2).mT
        return x + self.attention(tokens).mT.reshape(x.shape)


def claims() -> Iterator[Claim]:
    """The laws that attention between places obeys."""
    block = SpaceAttention(2)
    with torch.no_grad():
        block.attention.out.weight.copy_(torch.tensor([[0.5, -1.0], [2.0, 0.3]]))
    turns = equivariance(sample=lambda draw: draw.integer(0, 3, "turns"), act=lambda k, x: x.rot90(k, (-2, -1)))
    yield Claim(turns, block, shape("n 2 3 3"), name="SpaceAttention, of a turned image")

    def equation(x: Tensor) -> Tensor:
        z = nn.functional.group_norm(x, 2, block.norm.weight, block.norm.bias).flatten(2).mT
        a = block.attention
        q, k, v = (one.weight for one in (a.query, a.key, a.value))
        q, k, v = z @ q.T + a.query.bias, z @ k.T + a.key.bias, z @ v.T + a.value.bias
        found = torch.softmax(q @ k.mT / 2**0.5, -1) @ v @ a.out.weight.T + a.out.bias
        return x + found.mT.reshape(x.shape)

    yield Claim(agreement(other=equation), block, shape("n 2 2 3"))
