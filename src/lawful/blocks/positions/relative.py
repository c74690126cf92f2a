"""Relative positions: a learned bias of the scores for each distance, or for each range of distances."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import Claim, agreement, relative_position_only, shape, tokens


def differences(queries: Int[Tensor, "*rows t"], keys: Int[Tensor, "*rows s"]) -> Int[Tensor, "*rows t s"]:
    """Returns how far each key is after each query.

    Examples:
        >>> differences(torch.tensor([2]), torch.tensor([0, 1, 2, 3]))
        tensor([[-2, -1,  0,  1]])
    """
    return keys[..., None, :] - queries[..., :, None]


class RelativeClipped(nn.Module):
    r"""Biases the scores of each head by a learned number for each distance, all the far ones alike.

    $$b^h_{ij} = W_{c,\,h}, \qquad c = r + \max(-r, \min(r, \, p_j - p_i))$$

    The parameter `weight` is $W$, of shape (2r + 1, h), from the farthest before to the farthest after; it begins at 0.

    Reference:
        Shaw, Uszkoreit and Vaswani, *Self-Attention with Relative Position Representations*, 2018; as a bias.

    Args:
        heads: The number of heads $h$.
        reach: $r$, the distance from which on all are alike.

    Examples:
        >>> RelativeClipped(4, reach=8)(torch.arange(3), torch.arange(5)).shape
        torch.Size([4, 3, 5])
    """

    def __init__(self, heads: int, *, reach: int = 16) -> None:
        if heads < 1 or reach < 0:
            raise ValueError(f"heads of at least 1 and reach of at least 0 were wanted: got {heads} and {reach}")
        super().__init__()
        self.reach = reach
        self.weight = nn.Parameter(torch.zeros(2 * reach + 1, heads))

    def forward(self, queries: Int[Tensor, "*rows t"], keys: Int[Tensor, "*rows s"]) -> Float[Tensor, "*rows h t s"]:
        """Returns the bias between positions of queries and of keys."""
        index = differences(queries, keys).clamp(-self.reach, self.reach) + self.reach
        return F.embedding(index, self.weight).movedim(-1, -3)

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.weight.shape[1]

    def extra_repr(self) -> str:
        return f"{self.heads}, reach={self.reach}"


class RelativeBuckets(nn.Module):
    r"""Biases the scores of each head by a learned number for each range of distances, which widen with the distance.

    $$b^h_{ij} = W_{c,\,h}, \qquad c = \begin{cases} n & n < m \\
    \min \bigl( 2m - 1, \, m + \lfloor m \, \tfrac{\log(n/m)}{\log(r/m)} \rfloor \bigr) & \text{else} \end{cases},
    \qquad n = |p_j - p_i|$$

    With two sides, keys after the query have buckets of their own, and there are $4 m$ in all; with one, they count as
    distance 0, and there are $2 m$. Where a bucket begins is found in whole numbers, without rounding. The parameter
    `weight` is $W$, of shape (buckets, h), as in T5's `relative_attention_bias`; it begins at 0.

    Reference:
        Raffel et al., *Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer*, 2019.

    Args:
        heads: The number of heads $h$.
        buckets: The number of buckets in all.
        reach: $r$, the distance from which on all share the last bucket.
        sides: 2 where queries look both ways, 1 where only back.

    Examples:
        >>> layer = RelativeBuckets(4, sides=1)
        >>> layer(torch.arange(3), torch.arange(5)).shape
        torch.Size([4, 3, 5])
    """

    begins: Tensor

    def __init__(self, heads: int, *, buckets: int = 32, reach: int = 128, sides: int = 2) -> None:
        if sides not in (1, 2):
            raise ValueError(f"sides is to be 1 or 2: got {sides}")
        m, rest = divmod(buckets, 2 * sides)
        if m < 1 or rest or not reach > m:
            wanted = f"buckets must be a multiple of {2 * sides}, and reach above {max(m, 1)}"
            raise ValueError(f"{wanted}: got buckets={buckets}, reach={reach}")
        if heads < 1:
            raise ValueError(f"heads is at least 1: got {heads}")
        super().__init__()
        self.reach, self.sides = reach, sides
        self.weight = nn.Parameter(torch.zeros(buckets, heads))
        self.register_buffer("begins", torch.tensor([*range(1, m + 1), *_logarithmic(m, reach)]), persistent=False)

    def forward(self, queries: Int[Tensor, "*rows t"], keys: Int[Tensor, "*rows s"]) -> Float[Tensor, "*rows h t s"]:
        """Returns the bias between positions of queries and of keys."""
        after = differences(queries, keys)
        if self.sides == 1:
            index = torch.bucketize(-after, self.begins, right=True)
        else:
            index = torch.bucketize(after.abs(), self.begins, right=True) + (after > 0) * (len(self.weight) // 2)
        return F.embedding(index, self.weight).movedim(-1, -3)

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.weight.shape[1]

    def extra_repr(self) -> str:
        return f"{self.heads}, buckets={len(self.weight)}, reach={self.reach}, sides={self.sides}"


def _logarithmic(m: int, reach: int) -> Iterator[int]:
    """Where the last m - 1 buckets begin: the least n with n >= m (reach / m)^(j / m)."""
    for j in range(1, m):
        low, high = m, reach
        while low < high:
            n = (low + high) // 2
            low, high = (low, n) if n**m >= m ** (m - j) * reach**j else (n + 1, high)
        yield low


def claims() -> Iterator[Claim]:
    """The laws that relative positions obey."""
    clipped, both, past = (
        RelativeClipped(2, reach=2),
        RelativeBuckets(2, buckets=16, reach=20),
        RelativeBuckets(2, buckets=8, reach=20, sides=1),
    )

    def by_distance(q: Tensor, k: Tensor) -> Tensor:
        rows = [[clipped.weight[min(4, max(0, int(j - i) + 2))] for j in k] for i in q]
        return torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1)

    first = [0, 1, 2, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6, 6, 7]

    def by_bucket(q: Tensor, k: Tensor) -> Tensor:
        rows = [[both.weight[first[min(14, abs(int(j - i)))] + 8 * (j > i)] for j in k] for i in q]
        return torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1)

    def looking_back(q: Tensor, k: Tensor) -> Tensor:
        rows = [[past.weight[first[min(14, max(0, int(i - j)))]] for j in k] for i in q]
        return torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1)

    inputs = tokens("t", vocab=24), tokens("s", vocab=24)
    for layer, equation in ((clipped, by_distance), (both, by_bucket), (past, looking_back)):
        yield Claim(agreement(other=equation), layer, inputs, name=str(layer))

        def scores(x: Tensor, p: Tensor, layer: nn.Module = layer) -> Tensor:
            return x + layer(p, p)

        yield Claim(relative_position_only(), scores, (shape("2 t t"), tokens("t", vocab=24)), name=str(layer))
