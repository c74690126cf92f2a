"""Attention with linear biases: the farther a key, the lower its score."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks.positions.relative import differences
from lawful.laws import Claim, agreement, relative_position_only, shape, tokens


class ALiBi(nn.Module):
    r"""Lowers the scores in proportion to the distance, each head by a slope of its own.

    $$b^h_{ij} = -m_h \, |p_j - p_i|, \qquad m_h = 2^{-8 h / H}, \quad h = 1, \dots, H$$

    Nothing is learned, and no position is too far. Where $H$ is no power of two, the slopes are those of the power
    below, and then every other one of the power above.

    Reference:
        Press, Smith and Lewis, *Train Short, Test Long: Attention with Linear Biases Enables Input Length
        Extrapolation*, 2021.

    Args:
        heads: The number of heads $H$.

    Examples:
        >>> ALiBi(8)(torch.tensor([2]), torch.arange(3))[0]
        tensor([[-1.0000, -0.5000, -0.0000]])
    """

    like: Tensor

    def __init__(self, heads: int) -> None:
        if heads < 1:
            raise ValueError(f"heads is at least 1: got {heads}")
        super().__init__()
        power = 2 ** int(math.log2(heads))
        self.slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
        self.slopes += [2.0 ** (-4 * h / power) for h in range(1, 2 * (heads - power), 2)]
        self.register_buffer("like", torch.empty(0), persistent=False)

    def forward(self, queries: Int[Tensor, "*rows t"], keys: Int[Tensor, "*rows s"]) -> Float[Tensor, "*rows h t s"]:
        """Returns the bias between positions of queries and of keys."""
        slopes = torch.tensor(self.slopes, dtype=self.like.dtype, device=queries.device)
        return differences(queries, keys).abs().unsqueeze(-3) * -slopes[:, None, None]

    @property
    def heads(self) -> int:
        """The number of heads."""
        return len(self.slopes)

    def extra_repr(self) -> str:
        return str(self.heads)


def claims() -> Iterator[Claim]:
    """The laws that linear biases obey."""
    for heads, powers in ((2, (4, 8)), (3, (4, 8, 2)), (6, (2, 4, 6, 8, 1, 3))):
        layer = ALiBi(heads)

        def equation(q: Tensor, k: Tensor, layer: ALiBi = layer, powers: tuple[int, ...] = powers) -> Tensor:
            distances = [[abs(int(i) - int(j)) for j in k] for i in q]
            return torch.stack([torch.tensor(distances, dtype=layer.like.dtype) * -(0.5**n) for n in powers])

        yield Claim(agreement(other=equation), layer, (tokens("t", vocab=50), tokens("s", vocab=50)), name=str(layer))

    def scores(x: Tensor, p: Tensor) -> Tensor:
        return x + layer(p, p)

    yield Claim(relative_position_only(), scores, (shape("6 t t"), tokens("t", vocab=50)), name=str(layer))
