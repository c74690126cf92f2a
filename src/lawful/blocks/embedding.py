"""The embedding: a vector for each token.

The time embedding: how a network hears of the noise level, and of the label.
The embedding of n-grams: a vector for each run of neighbouring tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.dropout import Dropout
from lawful.blocks.linear import Dense
from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    causality,
    locality,
    permutation_equivariance,
    shape,
    tokens,
    transformed,
)


class Embedding(nn.Embedding):
    r"""Looks up the row of a matrix that belongs to each token.

    $$y = W_{x, :} = \operatorname{onehot}(x)^\top W$$

    It is a linear layer without a bias that is asked with one-hot vectors, and takes the rows out instead of
    multiplying. The parameter `weight` is $W$, of shape (vocab, d), as in PyTorch.

    Args:
        vocab: The number of tokens.
        d: The size of a vector.

    Examples:
        >>> Embedding(65, 8)(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 8])
    """

    def __init__(self, vocab: int, d: int) -> None:
        if min(vocab, d) < 1:
            raise ValueError(f"vocab and d are at least 1: got vocab={vocab}, d={d}")
        super().__init__(vocab, d)

    # pyrefly: ignore [bad-override-param-name]
    def forward(self, x: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch d"]:
        """Looks up integers from 0 to vocab - 1."""
        if x.is_floating_point():
            raise TypeError(f"tokens are integers: got {x.dtype}")
        try:
            return F.embedding(x, self.weight)
        except IndexError:
            wanted = f"tokens from 0 to {self.num_embeddings - 1} were wanted"
            raise IndexError(f"{wanted}: got {int(x.min())} to {int(x.max())}") from None

    @classmethod
    def from_pretrained(  # pyrefly: ignore [bad-override]
        cls, weight: Float[Tensor, "vocab d"], *, freeze: bool = True
    ) -> Embedding:
        """Makes an embedding of given vectors, the very tensor, which is not trained unless `freeze` is false."""
        with torch.device("meta"):
            embedding = cls(*weight.shape)
        embedding.weight = nn.Parameter(weight, requires_grad=not freeze)
        return embedding


def _embedding_claims() -> Iterator[Claim]:
    """The laws that an embedding obeys."""
    embedding = Embedding(5, 3)

    def one_hot(x: Tensor) -> Tensor:
        return torch.eye(5, dtype=embedding.weight.dtype)[x] @ embedding.weight

    yield Claim(agreement(other=one_hot), embedding, tokens("b t", vocab=5))
    yield Claim(permutation_equivariance(axis=1), embedding, tokens("b t", vocab=5))

    def given(w: Tensor) -> Tensor:
        made = Embedding.from_pretrained(w), Embedding.from_pretrained(w, freeze=False)
        trained = [e.weight.requires_grad for e in made]
        return torch.cat([made[0](torch.arange(3)).flatten(), w.new_tensor(trained)])

    expected = agreement(other=lambda w: torch.cat([w.flatten(), w.new_tensor([False, True])]))
    yield Claim(expected, given, shape("3 2"), name="from_pretrained")


class FourierFeatures(nn.Module):
    r"""Reads a number off on waves of many lengths.

    $$y = (\cos \omega_1 c, \dots, \cos \omega_{d/2} c, \sin \omega_1 c, \dots), \qquad
    \omega_i = \omega_\text{low}^{1 - u_i} \, \omega_\text{high}^{u_i}$$

    with $u_i$ evenly from 0 to 1. A network finds it easy to bend along $c$ as fast as the fastest wave, and no faster.
    Nothing is learned or drawn.

    Reference:
        Tancik et al., *Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains*, 2020.

    Args:
        d: The number of features, an even number.
        low: $\omega_\text{low}$.
        high: $\omega_\text{high}$.

    Examples:
        >>> FourierFeatures(4, low=1.0, high=2.0)(torch.tensor([0.0]))
        tensor([[1., 1., 0., 0.]])
    """

    frequencies: Tensor

    def __init__(self, d: int, *, low: float = 0.5, high: float = 16.0) -> None:
        if d < 2 or d % 2:
            raise ValueError(f"d is to be even, and at least 2: got {d}")
        if not 0 < low <= high < math.inf:
            raise ValueError(f"frequencies with 0 < low <= high were wanted: got {low=}, {high=}")
        super().__init__()
        spaced = torch.linspace(math.log(low), math.log(high), d // 2, dtype=torch.float64).exp()
        self.register_buffer("frequencies", spaced.to(torch.get_default_dtype()), persistent=False)

    def forward(self, c: Float[Tensor, "*n"]) -> Float[Tensor, "*n d"]:
        """Reads off the waves."""
        angles = c[..., None] * self.frequencies
        return torch.cat([angles.cos(), angles.sin()], -1)


class TimeEmbedding(nn.Module):
    r"""Makes a vector of a noise level, and of a label where there are classes.

    $$e = W_2 \, \operatorname{silu}\bigl(W_1 \phi(c) + b_1 + E_\text{label}\bigr) + b_2$$

    $\phi$ are Fourier features. One more row of $E$ than there are classes is the *null* label, for no label: trained
    on a share of the examples it is the unconditional model that classifier-free guidance goes away from. Rows begin
    as normal noise: from 0, labels are learnt far more slowly.

    Reference:
        Ho and Salimans, *Classifier-Free Diffusion Guidance*, 2022.

    Args:
        d: The size of $e$.
        features: How many Fourier features there are.
        classes: The number of classes; 0 for no labels.

    Examples:
        >>> embedding = TimeEmbedding(8, classes=3)
        >>> embedding(torch.zeros(2)).shape, embedding(torch.zeros(2), torch.tensor([0, 2])).shape
        (torch.Size([2, 8]), torch.Size([2, 8]))
    """

    def __init__(self, d: int, *, features: int = 32, classes: int = 0) -> None:
        if classes < 0:
            raise ValueError(f"classes are at least 0: got {classes}")
        super().__init__()
        self.waves, self.classes = FourierFeatures(features), classes
        self.inner, self.outer = Dense(features, d), Dense(d, d)
        self.labels = nn.Parameter(torch.randn(classes + 1, d)) if classes else None

    def forward(self, c: Float[Tensor, " n"], labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, "n d"]:
        """Embeds noise levels, with labels from 0, or the null label, which is the number of classes."""
        hidden = self.inner(self.waves(c))
        if self.labels is not None:
            hidden = hidden + (self.labels[self.classes] if labels is None else F.embedding(labels, self.labels))
        elif labels is not None:
            raise ValueError("this network knows no labels: it was built without classes")
        return self.outer(F.silu(hidden))


def _time_embedding_claims() -> Iterator[Claim]:
    """The laws that the time embedding obeys."""
    waves, embedding = FourierFeatures(6, low=0.5, high=8.0), TimeEmbedding(3, features=4, classes=2)
    with torch.no_grad():
        embedding.labels.copy_(torch.arange(9.0).reshape(3, 3) / 5)  # pyrefly: ignore [missing-attribute]

    def read_off(c: Tensor) -> Tensor:
        angles = [0.5 * c, 2 * c, 8 * c]
        return torch.stack([a.cos() for a in angles] + [a.sin() for a in angles], -1)

    yield Claim(agreement(other=read_off), waves, shape("n"))

    def equation(c: Tensor, row: int) -> Tensor:
        u = 0.5 * c, 16 * c
        phi = torch.stack([u[0].cos(), u[1].cos(), u[0].sin(), u[1].sin()], -1)
        h = phi @ embedding.inner.weight.T + embedding.inner.bias + torch.tensor([0.0, 0.2, 0.4]).to(c) + 0.6 * row
        return (h / (1 + (-h).exp())) @ embedding.outer.weight.T + embedding.outer.bias

    def labelled(c: Tensor) -> Tensor:
        return embedding(c, torch.ones(len(c), dtype=torch.long, device=c.device))

    near = transformed(torch.tanh, "n")
    yield Claim(
        replace(agreement(other=lambda c: equation(c, 1)), cases=20), labelled, near, name="TimeEmbedding, a label"
    )
    yield Claim(
        replace(agreement(other=lambda c: equation(c, 2)), cases=20),
        embedding,
        near,
        name="TimeEmbedding, the null label",
    )
    yield Claim(batch_independence(), embedding, shape("n"))


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


def _ngrams_claims() -> Iterator[Claim]:
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


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _embedding_claims()
    yield from _time_embedding_claims()
    yield from _ngrams_claims()
