"""Attention by a bilinear form: one matrix in place of queries and keys."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.attention.cache import KeyValues, State
from lawful.blocks.attention.forms import BilinearForm, SemidefiniteForm, SymmetricForm
from lawful.blocks.attention.steps import Kernel, attended, in_heads, side_by_side
from lawful.functions.attention import CAUSAL, EVERYTHING, Mask, fused_attention
from lawful.laws import Claim, agreement, cached_decoding, causality, permutation_equivariance, shape


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
        self, x: Float[Tensor, "*batch t d"], *, mask: Mask = EVERYTHING, cache: KeyValues | State | None = None
    ) -> Float[Tensor, "*batch t d"]:
        """Maps a sequence.

        Args:
            x: The sequence.
            mask: Which positions each one sees.
            cache: What is kept of the tokens so far, from `cache()`; $x$ is added to it.
        """
        q, k = self.form.pair(x, x)
        v = in_heads(self.value(x), self.heads)
        return self.out(side_by_side(attended(self.kernel, q, k, v, mask=mask, cache=cache)))

    def cache(self, *, window: int | None = None) -> KeyValues | State:
        """Makes an empty cache, as `MultiHeadAttention.cache` does."""
        make = getattr(self.kernel, "cache", None)
        return KeyValues(window=window) if make is None else make()


def claims() -> Iterator[Claim]:
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

    def step(x: Tensor, cache: KeyValues | State | None) -> tuple[Tensor, KeyValues | State]:
        cache = layer.cache() if cache is None else cache
        return layer(x, mask=CAUSAL, cache=cache), cache

    yield Claim(cached_decoding(step=step), causal, shape("b t 4"), name="SimilarityAttention, piece by piece")
