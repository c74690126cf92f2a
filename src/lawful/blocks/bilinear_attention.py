"""Bilinear forms as similarities (general, symmetric, positive semidefinite), and attention that uses them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.attention import attend_with_cache, merge_heads, split_heads
from lawful.blocks.kv_cache import AttentionCache, KVCache
from lawful.functions.attention import CAUSAL, NO_MASK, Kernel, Mask, fused_attention
from lawful.laws import (
    Claim,
    cached_decoding,
    cauchy_schwarz,
    causality,
    linearity,
    non_negativity,
    permutation_equivariance,
    shape,
    symmetry,
)

_QueriesAndKeys = tuple[Float[Tensor, "*batch h t k"], Float[Tensor, "*batch h s k"]]


class BilinearForm(nn.Module):
    r"""Similarity of two vectors by a bilinear form, one per head.

    $$s_h(x, y) = x^\top W_h \, y$$

    A head of attention has the form $W_h = (W^Q_h)^\top W^K_h$, of low rank. A form need not be symmetric or positive.

    Args:
        dim: Size of $x$.
        num_heads: Number of forms.
        context_dim: Size of $y$. Defaults to `dim`.

    Examples:
        >>> BilinearForm(8, num_heads=2)(torch.zeros(3, 5, 8), torch.zeros(3, 7, 8)).shape
        torch.Size([3, 2, 5, 7])
    """

    def __init__(self, dim: int, *, num_heads: int = 1, context_dim: int | None = None) -> None:
        super().__init__()
        self.weight = _normal(num_heads, dim, dim if context_dim is None else context_dim)

    def queries_and_keys(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s e"]) -> _QueriesAndKeys:
        """Returns vectors whose dot products are the similarities."""
        return _apply_left(x, self.weight, y)

    def forward(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s e"]) -> Float[Tensor, "*batch h t s"]:
        """Computes the similarities of all pairs."""
        q, k = self.queries_and_keys(x, y)
        return q @ k.mT


class SymmetricForm(nn.Module):
    r"""Similarity of two vectors by a symmetric bilinear form, one per head.

    $$s_h(x, y) = x^\top \tfrac{1}{2} (W_h + W_h^\top) \, y = s_h(y, x)$$

    Args:
        dim: Size of the vectors.
        num_heads: Number of forms.

    Examples:
        >>> form, x = SymmetricForm(8), torch.randn(5, 8)
        >>> torch.allclose(form(x, x), form(x, x).mT, atol=1e-5)
        True
    """

    def __init__(self, dim: int, *, num_heads: int = 1) -> None:
        super().__init__()
        self.weight = _normal(num_heads, dim, dim)

    def queries_and_keys(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s d"]) -> _QueriesAndKeys:
        """Returns vectors whose dot products are the similarities."""
        return _apply_left(x, (self.weight + self.weight.mT) / 2, y)

    def forward(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s d"]) -> Float[Tensor, "*batch h t s"]:
        """Computes the similarities of all pairs."""
        q, k = self.queries_and_keys(x, y)
        return q @ k.mT


class SemidefiniteForm(nn.Module):
    r"""Similarity of two vectors by a positive semidefinite form, one per head: attention with equal queries and keys.

    $$s_h(x, y) = (A_h x) \cdot (A_h y) = x^\top A_h^\top A_h \, y, \qquad s_h(x, x) = \| A_h x \|^2 \ge 0$$

    The similarities of a set of vectors form a Gram matrix, and $|s(x, y)|^2 \le s(x, x) \, s(y, y)$.

    Args:
        dim: Size of the vectors.
        num_heads: Number of forms.
        rank: Number of rows of $A_h$. Defaults to `dim`.

    Examples:
        >>> form, x = SemidefiniteForm(8, rank=2), torch.randn(5, 8)
        >>> bool((form(x, x).diagonal(dim1=-2, dim2=-1) >= 0).all())
        True
    """

    def __init__(self, dim: int, *, num_heads: int = 1, rank: int | None = None) -> None:
        super().__init__()
        self.weight = _normal(num_heads, dim if rank is None else rank, dim)

    def queries_and_keys(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s d"]) -> _QueriesAndKeys:
        """Returns vectors whose dot products are the similarities."""
        return x.unsqueeze(-3) @ self.weight.mT, y.unsqueeze(-3) @ self.weight.mT

    def forward(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s d"]) -> Float[Tensor, "*batch h t s"]:
        """Computes the similarities of all pairs."""
        q, k = self.queries_and_keys(x, y)
        return q @ k.mT


def _normal(num_heads: int, rows: int, columns: int) -> nn.Parameter:
    if min(num_heads, rows, columns) < 1:
        raise ValueError(f"all sizes must be at least 1: got num_heads={num_heads}, {rows} x {columns}")
    return nn.Parameter(torch.randn(num_heads, rows, columns) * columns**-0.5)


def _apply_left(x: Tensor, weight: Tensor, y: Tensor) -> _QueriesAndKeys:
    q = x.unsqueeze(-3) @ weight
    return q, y.unsqueeze(-3).expand(*q.shape[:-2], *y.shape[-2:])


class SimilarityAttention(nn.Module):
    r"""Self-attention whose scores are a bilinear form, instead of queries and keys.

    $$y_i = \sum_h W^O_h \sum_j \operatorname{softmax}_j \Bigl( \frac{s_h(x_i, x_j)}{\sqrt{k}} \Bigr) \, W^V_h x_j$$

    with $k$ the size of the vectors whose dot product is the form: the width, or the rank of a semidefinite form.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017; QK as one matrix: Elhage et al., *A Mathematical Framework
        for Transformer Circuits*, 2021.

    Args:
        form: Similarities $s_h$: `BilinearForm`, `SymmetricForm` or `SemidefiniteForm`.
        dim: Width of the input and output.
        value_dim: Size of the values of a head. Defaults to `dim // num_heads`.
        kernel: Attention function.
        bias: Whether the projections `value` and `out` have a bias.

    Examples:
        >>> layer = SimilarityAttention(SymmetricForm(8, num_heads=2), 8)
        >>> layer(torch.zeros(1, 5, 8)).shape
        torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        form: BilinearForm | SymmetricForm | SemidefiniteForm,
        dim: int,
        *,
        value_dim: int | None = None,
        kernel: Kernel = fused_attention,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = len(form.weight)
        if value_dim is None and dim % self.num_heads:
            raise ValueError(f"num_heads must divide dim: got dim={dim}, num_heads={self.num_heads}")
        size = self.num_heads * (dim // self.num_heads if value_dim is None else value_dim)
        self.form, self.kernel = form, kernel
        self.value, self.out = nn.Linear(dim, size, bias=bias), nn.Linear(size, dim, bias=bias)

    def forward(
        self, x: Float[Tensor, "*batch t d"], *, mask: Mask = NO_MASK, cache: AttentionCache | None = None
    ) -> Float[Tensor, "*batch t d"]:
        """Attends to `x` itself.

        Args:
            x: Input.
            mask: Which positions each position sees.
            cache: Keys and values of earlier tokens, from `cache()`. The new ones are appended.
        """
        q, k = self.form.queries_and_keys(x, x)
        v = split_heads(self.value(x), self.num_heads)
        return self.out(merge_heads(attend_with_cache(self.kernel, q, k, v, mask=mask, cache=cache)))

    def cache(self, *, window: int | None = None) -> AttentionCache:
        """Returns an empty cache for decoding.

        Args:
            window: Window of the mask: older keys are dropped.
        """
        return self.kernel.cache() if hasattr(self.kernel, "cache") else KVCache(window=window)


def claims() -> Iterator[Claim]:
    """Laws of bilinear forms and their attention."""
    form, symmetric, positive = (
        BilinearForm(3, num_heads=2, context_dim=4),
        SymmetricForm(3),
        SemidefiniteForm(3, rank=2),
    )
    for n in (0, 1):
        yield Claim(linearity(input=n), form, (shape("b t 3"), shape("b s 4")), name=f"BilinearForm, input {n}")
    yield Claim(symmetry(), lambda x: symmetric(x, x), shape("b t 3"), name="SymmetricForm")

    def quadratic(x: Tensor, c: Tensor) -> Tensor:
        return (positive(x, x).squeeze(-3) @ c[..., None] * c[..., None]).sum((-2, -1))

    def of_two(x: Tensor, y: Tensor) -> Tensor:
        return positive(x[:, None], y[:, None]).flatten()

    yield Claim(non_negativity(), quadratic, (shape("b t 3"), shape("b t")), name="SemidefiniteForm, Gram matrix")
    yield Claim(cauchy_schwarz(), of_two, (shape("b 3"), shape("b 3")), name="SemidefiniteForm")
    layer = SimilarityAttention(SemidefiniteForm(4, num_heads=2, rank=3), 4)

    def causal(x: Tensor) -> Tensor:
        return layer(x, mask=CAUSAL)

    def step(x: Tensor, cache: AttentionCache | None) -> tuple[Tensor, AttentionCache]:
        cache = layer.cache() if cache is None else cache
        return layer(x, mask=CAUSAL, cache=cache), cache

    yield Claim(permutation_equivariance(axis=1), layer, shape("b t 4"))
    yield Claim(causality(), causal, shape("b t 4"), name="SimilarityAttention, causal")
    yield Claim(cached_decoding(step=step), causal, shape("b t 4"), name="SimilarityAttention, KV cache")
