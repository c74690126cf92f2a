"""Bilinear forms: similarities of two vectors, any, symmetric or positive semidefinite ones.

Attention by a bilinear form: one matrix in place of queries and keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.attention import attend_with_cache, merge_heads, split_heads
from lawful.blocks.kv_cache import AttentionCache, KVCache
from lawful.functions.attention import CAUSAL, NO_MASK, Mask, fused_attention
from lawful.laws import (
    Claim,
    agreement,
    cached_decoding,
    cauchy_schwarz,
    causality,
    linearity,
    non_negativity,
    permutation_equivariance,
    shape,
    symmetry,
)

Pair = tuple[Float[Tensor, "*batch h t k"], Float[Tensor, "*batch h s k"]]


class BilinearForm(nn.Module):
    r"""Scores two vectors by any bilinear form, one for each head.

    $$s_h(x, y) = x^\top W_h \, y$$

    This is what queries and keys are for: with $W_h = (W^Q_h)^\top W^K_h$ a head of attention has a form of low rank. A
    form need not be symmetric (whom I ask need not ask me), nor positive (I need not ask myself).

    Args:
        d: The size of $x$.
        heads: The number of forms.
        context: The size of $y$; $d$ unless given.

    Examples:
        >>> BilinearForm(8, heads=2)(torch.zeros(3, 5, 8), torch.zeros(3, 7, 8)).shape
        torch.Size([3, 2, 5, 7])
    """

    def __init__(self, d: int, *, heads: int = 1, context: int | None = None) -> None:
        super().__init__()
        self.weight = _initial(heads, d, d if context is None else context)

    def pair(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s e"]) -> Pair:
        """Returns vectors of which the scores are the dot products: queries and keys."""
        return _asked(x, self.weight, y)

    def forward(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s e"]) -> Float[Tensor, "*batch h t s"]:
        """Scores each of some vectors with each of others."""
        return _dot(*self.pair(x, y))


class SymmetricForm(nn.Module):
    r"""Scores two vectors by a symmetric bilinear form: $x$ is to $y$ what $y$ is to $x$.

    $$s_h(x, y) = x^\top \tfrac{1}{2} (W_h + W_h^\top) \, y = s_h(y, x)$$

    Args:
        d: The size of the vectors.
        heads: The number of forms.

    Examples:
        >>> form, x = SymmetricForm(8), torch.randn(5, 8)
        >>> torch.allclose(form(x, x), form(x, x).mT, atol=1e-5)
        True
    """

    def __init__(self, d: int, *, heads: int = 1) -> None:
        super().__init__()
        self.weight = _initial(heads, d, d)

    def pair(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s d"]) -> Pair:
        """Returns vectors of which the scores are the dot products."""
        return _asked(x, (self.weight + self.weight.mT) / 2, y)

    def forward(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s d"]) -> Float[Tensor, "*batch h t s"]:
        """Scores each of some vectors with each of others."""
        return _dot(*self.pair(x, y))


class SemidefiniteForm(nn.Module):
    r"""Scores two vectors by a positive semidefinite form: both are mapped alike, and meet in the middle.

    $$s_h(x, y) = (A_h x) \cdot (A_h y) = x^\top A_h^\top A_h \, y, \qquad s_h(x, x) = \| A_h x \|^2 \ge 0$$

    It is an inner product but for the vectors that $A_h$ maps to 0, so that all scores among vectors are a Gram matrix,
    and $|s(x, y)|^2 \le s(x, x) \, s(y, y)$. It is attention whose queries are its keys.

    Args:
        d: The size of the vectors.
        heads: The number of forms.
        rank: The number of rows of $A_h$; $d$ unless given.

    Examples:
        >>> form, x = SemidefiniteForm(8, rank=2), torch.randn(5, 8)
        >>> bool((form(x, x).diagonal(dim1=-2, dim2=-1) >= 0).all())
        True
    """

    def __init__(self, d: int, *, heads: int = 1, rank: int | None = None) -> None:
        super().__init__()
        self.weight = _initial(heads, d if rank is None else rank, d)

    def pair(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s d"]) -> Pair:
        """Returns vectors of which the scores are the dot products."""
        return x.unsqueeze(-3) @ self.weight.mT, y.unsqueeze(-3) @ self.weight.mT

    def forward(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s d"]) -> Float[Tensor, "*batch h t s"]:
        """Scores each of some vectors with each of others."""
        return _dot(*self.pair(x, y))


def _initial(heads: int, rows: int, columns: int) -> nn.Parameter:
    if min(heads, rows, columns) < 1:
        raise ValueError(f"every size is at least 1: got heads={heads} of {rows} x {columns}")
    return nn.Parameter(torch.randn(heads, rows, columns) * columns**-0.5)


def _asked(x: Tensor, weight: Tensor, y: Tensor) -> Pair:
    q = x.unsqueeze(-3) @ weight
    return q, y.unsqueeze(-3).expand(*q.shape[:-2], *y.shape[-2:])


def _dot(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT


def _forms_claims() -> Iterator[Claim]:
    """The laws that bilinear forms obey."""
    form, symmetric, positive = BilinearForm(3, heads=2, context=4), SymmetricForm(3), SemidefiniteForm(3, rank=2)

    def by_entries(x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("bti,hij,bsj->bhts", x, form.weight, y)

    def by_halves(x: Tensor, y: Tensor) -> Tensor:
        one, other = (torch.einsum(f"bti,h{w},bsj->bhts", x, symmetric.weight, y) for w in ("ij", "ji"))
        return (one + other) / 2

    def by_map(x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("bti,hri,hrj,bsj->bhts", x, positive.weight, positive.weight, y)

    two, alike = (shape("b t 3"), shape("b s 4")), (shape("b t 3"), shape("b s 3"))
    for n in (0, 1):
        yield Claim(linearity(input=n), form, two, name=f"BilinearForm, in input {n}")
    for subject, equation, inputs in (
        (form, by_entries, two),
        (symmetric, by_halves, alike),
        (positive, by_map, alike),
    ):
        yield Claim(agreement(other=equation), subject, inputs)

    def among(x: Tensor) -> Tensor:
        return symmetric(x, x)

    def quadratic(x: Tensor, c: Tensor) -> Tensor:
        return (positive(x, x).squeeze(-3) @ c[..., None] * c[..., None]).sum((-2, -1))

    def of_two(x: Tensor, y: Tensor) -> Tensor:
        return positive(x[:, None], y[:, None]).flatten()

    yield Claim(symmetry(), among, shape("b t 3"), name="SymmetricForm, among vectors")
    yield Claim(non_negativity(), quadratic, (shape("b t 3"), shape("b t")), name="SemidefiniteForm, as a Gram matrix")
    yield Claim(cauchy_schwarz(), of_two, (shape("b 3"), shape("b 3")), name="SemidefiniteForm")


class SimilarityAttention(nn.Module):
    r"""Lets every position look at others by how similar they are under a bilinear form, one for each head.

    $$y_i = \sum_h W^O_h \sum_j \operatorname{softmax}_j \Bigl( \frac{s_h(x_i, x_j)}{\sqrt{k}} \Bigr) \, W^V_h x_j$$

    Queries and keys in one: $k$ is the size of the vectors whose dot product the form is, the width for a whole matrix.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017; the one-matrix view: Elhage et al., *A Mathematical Framework
        for Transformer Circuits*, 2021.

    Args:
        form: The similarities $s_h$: `BilinearForm`, `SymmetricForm` or `SemidefiniteForm`.
        d: The width of $x$ and $y$.
        value: The size of values; the width by the number of heads unless given.
        kernel: How attention is computed.
        bias: Whether the maps `value` and `out` have biases.

    Examples:
        >>> layer = SimilarityAttention(SymmetricForm(8, heads=2), 8)
        >>> layer(torch.zeros(1, 5, 8)).shape
        torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        form: BilinearForm | SymmetricForm | SemidefiniteForm,
        d: int,
        *,
        value: int | None = None,
        kernel: Kernel = fused_attention,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.heads = len(form.weight)
        if value is None and d % self.heads:
            raise ValueError(f"heads must divide d: got d={d}, heads={self.heads}")
        size = self.heads * (d // self.heads if value is None else value)
        self.form, self.kernel = form, kernel
        self.value, self.out = nn.Linear(d, size, bias=bias), nn.Linear(size, d, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "*batch t d"],
        *,
        mask: Mask = NO_MASK,
        cache: AttentionCache | None = None,
    ) -> Float[Tensor, "*batch t d"]:
        """Maps a sequence.

        Args:
            x: The sequence.
            mask: Which positions each one sees.
            cache: What is kept of the tokens so far, from `cache()`; $x$ is added to it.
        """
        q, k = self.form.pair(x, x)
        v = split_heads(self.value(x), self.heads)
        return self.out(merge_heads(attend_with_cache(self.kernel, q, k, v, mask=mask, cache=cache)))

    def cache(self, *, window: int | None = None) -> AttentionCache:
        """Makes an empty cache, as `MultiHeadAttention.cache` does."""
        make = getattr(self.kernel, "cache", None)
        return KVCache(window=window) if make is None else make()


def _similarity_claims() -> Iterator[Claim]:
    """The laws that attention by a bilinear form obeys."""
    for form in (BilinearForm(4, heads=2), SymmetricForm(4, heads=2), SemidefiniteForm(4, heads=2, rank=3)):
        ranked = isinstance(form, SemidefiniteForm)
        layer, k, size = SimilarityAttention(form, 4, value=3 if ranked else None), *((3, 3) if ranked else (4, 2))

        def equation(x: Tensor, layer: SimilarityAttention = layer, k: int = k, size: int = size) -> Tensor:
            weights = (layer.form(x, x) / k**0.5).softmax(-1)
            values = layer.value(x).split(size, dim=-1)
            found = [weights[:, h] @ values[h] for h in range(2)]
            return layer.out(torch.cat(found, dim=-1))

        yield Claim(
            agreement(other=equation), layer, shape("b t 4"), name=f"SimilarityAttention({type(form).__name__})"
        )

    def causal(x: Tensor) -> Tensor:
        return layer(x, mask=CAUSAL)

    yield Claim(permutation_equivariance(axis=1), layer, shape("b t 4"))
    yield Claim(causality(), causal, shape("b t 4"), name="SimilarityAttention, causal")

    def step(x: Tensor, cache: AttentionCache | None) -> tuple[Tensor, AttentionCache]:
        cache = layer.cache() if cache is None else cache
        return layer(x, mask=CAUSAL, cache=cache), cache

    yield Claim(cached_decoding(step=step), causal, shape("b t 4"), name="SimilarityAttention, piece by piece")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _forms_claims()
    yield from _similarity_claims()
