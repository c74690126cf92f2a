"""Embeddings of n-grams, of scalars (Fourier features) and of noise levels with class labels."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import Claim, batch_independence, causality, locality, shape, tokens

_HASH_FACTOR, _HASH_SHIFT = 2_654_435_761, 11


class NGramEmbedding(nn.Module):
    r"""Embedding of each token together with the tokens before it.

    $$y_t = W_{h(k_t), :}, \qquad k_t = \sum_{j < n} (V + 1)^j \, (x_{t-j} + 1)$$

    Before the first token, $x = -1$. A table with one row for each of the $(V + 1)^n$ n-grams has $h(k) = k$. In a
    smaller table of $m$ rows n-grams share rows by a fixed hash, $h(k) = \lfloor 2654435761 \, k / 2^{11} \rfloor
    \bmod m$, in 64-bit integers. The parameter `weight` is $W$, initialized to zero. Long n-grams are rare and their
    embeddings are memorized: in training, dropout removes whole vectors.

    Args:
        vocab_size: $V$, the number of tokens.
        dim: Width of an embedding.
        n: Length of an n-gram.
        num_rows: Maximum number of rows $m$. Defaults to one per n-gram.
        table_dim: Width of the table; the other entries of an embedding are 0. Defaults to `dim`.
        dropout: Probability of dropping a vector in training.

    Examples:
        >>> NGramEmbedding(65, 8, n=3, num_rows=1000)(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        *,
        n: int = 2,
        num_rows: int | None = None,
        table_dim: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        if min(vocab_size, dim, n) < 1 or (num_rows is not None and num_rows < 1):
            expected = "vocab_size, dim, n and num_rows must be at least 1"
            raise ValueError(f"{expected}: got {vocab_size=}, {dim=}, {n=}, {num_rows=}")
        table_dim = dim if table_dim is None else table_dim
        if not 1 <= table_dim <= dim:
            raise ValueError(f"table_dim must be between 1 and dim: got {table_dim=}, {dim=}")
        super().__init__()
        exact = (vocab_size + 1) ** n
        self.vocab_size, self.n, self.num_zeros = vocab_size, n, dim - table_dim
        self.is_hashed = num_rows is not None and num_rows < exact
        self.weight = nn.Parameter(torch.zeros(exact if num_rows is None else min(num_rows, exact), table_dim))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Int[Tensor, "*batch t"], before: Int[Tensor, "*batch m"] | None = None
    ) -> Float[Tensor, "*batch t d"]:
        """Looks up the n-gram that ends at each token.

        Args:
            x: Tokens.
            before: Tokens before the first of `x`, -1 for none; only the last n - 1 matter.
        """
        t, m = x.shape[-1], self.n - 1
        sequence = x if before is None else torch.cat([before, x], dim=-1)
        if (missing := t + m - sequence.shape[-1]) > 0:
            sequence = F.pad(sequence, (missing, 0), value=-1)
        sequence, end = sequence + 1, sequence.shape[-1]
        index = sequence[..., end - t :]
        for j in range(1, self.n):
            factor = (self.vocab_size + 1) ** j % 2**63
            index = torch.add(index, sequence[..., end - t - j : end - j], alpha=factor)
        if self.is_hashed:
            index = (index * _HASH_FACTOR >> _HASH_SHIFT) % len(self.weight)
        y = F.embedding(index, self.weight)
        if self.training and self.dropout.p:
            y = y * self.dropout(y.new_ones(*index.shape, 1))
        return F.pad(y, (0, self.num_zeros)) if self.num_zeros else y

    def extra_repr(self) -> str:
        dim = self.weight.shape[1] + self.num_zeros
        return f"{self.vocab_size}, {dim}, n={self.n}, num_rows={len(self.weight)}"


class FourierFeatures(nn.Module):
    r"""Cosines and sines of a scalar at log-spaced frequencies.

    $$y = (\cos \omega_1 c, \dots, \cos \omega_{d/2} c, \sin \omega_1 c, \dots), \qquad
    \omega_i = \omega_\text{min}^{1 - u_i} \, \omega_\text{max}^{u_i}$$

    with $u_i$ evenly spaced from 0 to 1. Nothing is learned or random.

    Reference:
        Tancik et al., *Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains*, 2020.

    Args:
        dim: Number of features; even.
        min_frequency: $\omega_\text{min}$.
        max_frequency: $\omega_\text{max}$.

    Examples:
        >>> FourierFeatures(4, min_frequency=1.0, max_frequency=2.0)(torch.tensor([0.0]))
        tensor([[1., 1., 0., 0.]])
    """

    frequencies: Tensor

    def __init__(self, dim: int, *, min_frequency: float = 0.5, max_frequency: float = 16.0) -> None:
        if dim < 2 or dim % 2:
            raise ValueError(f"dim must be even and at least 2, got {dim}")
        if not 0 < min_frequency <= max_frequency < math.inf:
            raise ValueError(f"expected 0 < min_frequency <= max_frequency: got {min_frequency=}, {max_frequency=}")
        super().__init__()
        logs = torch.linspace(math.log(min_frequency), math.log(max_frequency), dim // 2, dtype=torch.float64)
        self.register_buffer("frequencies", logs.exp().to(torch.get_default_dtype()), persistent=False)

    def forward(self, c: Float[Tensor, "*n"]) -> Float[Tensor, "*n d"]:
        """Computes the features."""
        angles = c[..., None] * self.frequencies
        return torch.cat([angles.cos(), angles.sin()], -1)


class TimeEmbedding(nn.Module):
    r"""Embedding of a noise level and, for conditional models, a class label.

    $$e = W_2 \, \operatorname{silu}\bigl(W_1 \phi(c) + b_1 + E_\text{label}\bigr) + b_2$$

    $\phi$ are Fourier features. The last row of $E$ is the null label, for classifier-free guidance. Rows are
    initialized to normal noise; from 0, labels are learned far more slowly.

    Reference:
        Ho and Salimans, *Classifier-Free Diffusion Guidance*, 2022.

    Args:
        dim: Width of the embedding.
        num_features: Number of Fourier features.
        num_classes: Number of classes; 0 for no labels.

    Examples:
        >>> embedding = TimeEmbedding(8, num_classes=3)
        >>> embedding(torch.zeros(2)).shape, embedding(torch.zeros(2), torch.tensor([0, 2])).shape
        (torch.Size([2, 8]), torch.Size([2, 8]))
    """

    def __init__(self, dim: int, *, num_features: int = 32, num_classes: int = 0) -> None:
        if num_classes < 0:
            raise ValueError(f"num_classes must be non-negative, got {num_classes}")
        super().__init__()
        self.features, self.num_classes = FourierFeatures(num_features), num_classes
        self.linear1, self.linear2 = nn.Linear(num_features, dim), nn.Linear(dim, dim)
        self.labels = nn.Parameter(torch.randn(num_classes + 1, dim)) if num_classes else None

    def forward(self, c: Float[Tensor, " n"], labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, "n d"]:
        """Embeds noise levels.

        Args:
            c: Noise levels.
            labels: Class labels; `num_classes`, the default, is the null label.
        """
        hidden = self.linear1(self.features(c))
        if self.labels is not None:
            hidden = hidden + (self.labels[self.num_classes] if labels is None else F.embedding(labels, self.labels))
        elif labels is not None:
            raise ValueError("labels need num_classes > 0: this embedding was built without classes")
        return self.linear2(F.silu(hidden))


def claims() -> Iterator[Claim]:
    """Laws of embeddings."""
    trigrams = NGramEmbedding(5, 3, n=3, num_rows=7)
    for law in (causality(time=1), locality(radius=2, axis=1), batch_independence()):
        yield Claim(law, trigrams, tokens("b t", vocab_size=5))
    yield Claim(batch_independence(), TimeEmbedding(3, num_features=4, num_classes=2), shape("n"))
