"""The embedding of n-grams: a vector for each run of neighbouring tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.dropout import Dropout
from lawful.laws import Claim, agreement, batch_independence, causality, locality, tokens

FACTOR, SHIFT = 2_654_435_761, 11


class NGramEmbedding(nn.Module):
    r"""Looks up a vector for each token together with those before it.

    $$y_t = W_{h(k_t), :}, \qquad k_t = \sum_{j < n} (V + 1)^j \, (x_{t-j} + 1)$$

    Where there is no token, $x = -1$. A table with a row for each of the $(V + 1)^n$ runs has $h(k) = k$. In a smaller
    one of $m$ rows runs share rows by a fixed hash, $h(k) = \lfloor 2654435761 \, k / 2^{11} \rfloor \bmod m$, in whole
    numbers of 64 bits. The parameter `weight` is $W$, zero at the start, so that training begins from the tokens alone.
    A long run is rare, and its vector learned by heart: in training some are left out, and the others made larger.

    Args:
        vocab: $V$, the number of tokens.
        d: The size of a vector.
        n: The length of a run.
        rows: $m$, at most; a row for each run unless given.
        width: How many entries of a vector, its first ones, the table has; the others are 0. All unless given.
        dropout: The share of vectors that is left out in training, each as a whole.

    Examples:
        >>> NGramEmbedding(65, 8, n=3, rows=1000)(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        vocab: int,
        d: int,
        *,
        n: int = 2,
        rows: int | None = None,
        width: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        if min(vocab, d, n) < 1 or (rows is not None and rows < 1):
            raise ValueError(f"vocab, d, n and rows are at least 1: got vocab={vocab}, d={d}, n={n}, rows={rows}")
        width = d if width is None else width
        if not 1 <= width <= d:
            raise ValueError(f"the width is between 1 and d: got width={width}, d={d}")
        super().__init__()
        exact = (vocab + 1) ** n
        self.vocab, self.n, self.rest = vocab, n, d - width
        self.hashed = rows is not None and rows < exact
        self.weight = nn.Parameter(torch.zeros(rows if rows is not None and self.hashed else exact, width))
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Int[Tensor, "*batch t"], before: Int[Tensor, "*batch m"] | None = None
    ) -> Float[Tensor, "*batch t d"]:
        """Looks up each token with those before it.

        Args:
            x: The tokens.
            before: Tokens that come before the first of x, -1 for none; only the last n - 1 count.
        """
        t, m = x.shape[-1], self.n - 1
        run = x if before is None else torch.cat([before, x], dim=-1)
        if (missing := t + m - run.shape[-1]) > 0:
            run = F.pad(run, (missing, 0), value=-1)
        run, end = run + 1, run.shape[-1]
        key = run[..., end - t :]
        for j in range(1, self.n):
            key = torch.add(key, run[..., end - t - j : end - j], alpha=(self.vocab + 1) ** j % 2**63)
        if self.hashed:
            key = (key * FACTOR >> SHIFT) % len(self.weight)
        y = F.embedding(key, self.weight)
        if self.training and self.dropout.p:
            y = y * self.dropout(y.new_ones(*key.shape, 1))
        return F.pad(y, (0, self.rest)) if self.rest else y

    def extra_repr(self) -> str:
        return f"{self.vocab}, {self.weight.shape[1] + self.rest}, n={self.n}, rows={len(self.weight)}"


def claims() -> Iterator[Claim]:
    """The laws that an embedding of n-grams obeys."""
    pairs, hashed = NGramEmbedding(4, 3), NGramEmbedding(5, 3, n=3, rows=7)
    for table in (pairs, hashed):
        nn.init.normal_(table.weight, generator=torch.Generator().manual_seed(0))

    def equation(x: Tensor) -> Tensor:
        table = pairs.weight.unflatten(0, (5, 5))
        rows = [[table[i + 1, j + 1] for i, j in zip([-1, *row], row, strict=False)] for row in x.tolist()]
        return torch.stack([torch.stack(row) for row in rows])

    def shared(x: Tensor) -> Tensor:
        rows = []
        for row in x.tolist():
            runs = zip([-1, -1, *row], [-1, *row], row, strict=False)
            keys = [36 * (i + 1) + 6 * (j + 1) + k + 1 for i, j, k in runs]
            rows.append(torch.stack([hashed.weight[key * FACTOR // 2**SHIFT % 7] for key in keys]))
        return torch.stack(rows)

    yield Claim(agreement(other=equation), pairs, tokens("b t", vocab=4))
    ids = tokens("b t", vocab=5)
    yield Claim(agreement(other=shared), hashed, ids)
    for law in (causality(time=1), locality(radius=2, axis=1), batch_independence()):
        yield Claim(law, hashed, ids)

    def cut(x: Tensor) -> Tensor:
        return torch.cat([hashed(x[:, i : i + 1], x[:, :i]) for i in range(x.shape[1])], dim=1)

    yield Claim(agreement(other=cut), hashed, ids, name="one token at a time")

    narrow = NGramEmbedding(4, 3, width=2, dropout=0.5)
    nn.init.normal_(narrow.weight, generator=torch.Generator().manual_seed(0))

    def padded(x: Tensor) -> Tensor:
        before = F.pad(x, (1, -1), value=-1)
        return F.pad(F.embedding(5 * (before + 1) + x + 1, narrow.weight), (0, 1))

    yield Claim(agreement(other=padded), narrow.eval(), tokens("b t", vocab=4), name="a narrow table")
