"""Learned positions: a vector for each position."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import Claim, agreement, positions_matter, shape, tokens


class Learned(nn.Module):
    r"""Looks up a vector for each position, to be added to that of the token.

    $$y = W_{p, :}$$

    There are as many vectors as positions that it was made for, and none for those beyond. The parameter `weight` is
    $W$, of shape (n, d), as in GPT-2.

    Args:
        n: The number of positions.
        d: The size of a vector.

    Examples:
        >>> Learned(64, 8)(torch.arange(5)).shape
        torch.Size([5, 8])
    """

    def __init__(self, n: int, d: int) -> None:
        if min(n, d) < 1:
            raise ValueError(f"n and d are at least 1: got n={n}, d={d}")
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(n, d))

    def forward(self, positions: Int[Tensor, "*batch t"]) -> Float[Tensor, "*batch t d"]:
        """Looks up positions from 0 to n - 1."""
        try:
            return F.embedding(positions, self.weight)
        except IndexError:
            low, high = int(positions.min()), int(positions.max())
            raise IndexError(f"positions from 0 to {len(self.weight) - 1} were wanted: got {low} to {high}") from None

    def extra_repr(self) -> str:
        return "{}, {}".format(*self.weight.shape)


def claims() -> Iterator[Claim]:
    """The laws that learned positions obey."""
    layer = Learned(5, 3)

    def one_hot(p: Tensor) -> Tensor:
        return (p[..., None] == torch.arange(5)).to(layer.weight) @ layer.weight

    yield Claim(agreement(other=one_hot), layer, tokens("b t", vocab=5))
    place = shape("t:2 3"), tokens("t:2", vocab=5)
    yield Claim(positions_matter(), lambda x, p: x + layer(p), place, name="Learned, added")
