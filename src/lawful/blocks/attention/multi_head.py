"""Multi-head attention: several heads look at a sequence, and what they find is added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks.attention.cache import Caches, KeyValues, State
from lawful.blocks.attention.heads import Heads, head_sets
from lawful.blocks.attention.placing import biases, check_positions, counts_from_the_start
from lawful.blocks.attention.steps import Kernel, attended, in_heads, side_by_side
from lawful.blocks.attention.views import ov_factors, qk_factors
from lawful.blocks.normalization import RMSNorm
from lawful.blocks.positions import ALiBi, Rotary
from lawful.functions.attention import CAUSAL, EVERYTHING, Mask, Window, fused_attention
from lawful.functions.tap import tap, tapped
from lawful.laws import (
    Claim,
    agreement,
    causality,
    every_input_matters,
    masked_positions_have_no_influence,
    permutation_equivariance,
    shape,
)
from lawful.laws import mask as mask_of

Memory = KeyValues | State | Caches


class MultiHeadAttention(nn.Module):
    r"""Lets every position look at others by several heads, and adds up what they find.

    $$y_i = \sum_h W^O_h \sum_j w^h_{ij} \, W^V_h x_j, \qquad
    w^h_{ij} = \operatorname{softmax}_j \frac{(W^Q_h x_i) \cdot (W^K_h x_j)}{\sqrt{k}}$$

    The heads may differ in size. Keys and values are read from $x$ itself, or from a `context` (cross attention). The
    parameters are those of the linear layers `query`, `key`, `value` and `out`, the heads one after the other, as in
    PyTorch's `MultiheadAttention`, whose `in_proj_weight` is the first three, one below the other.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017; groups: Ainslie et al., *GQA: Training Generalized
        Multi-Query Transformer Models from Multi-Head Checkpoints*, 2023; norms of queries and keys: Henry et al.,
        *Query-Key Normalization for Transformers*, 2020; the mix: Zhou et al., *Value Residual Learning*, 2024.

    Args:
        d: The width of $x$ and $y$.
        heads: The number of heads, or sets of them, which may differ in size.
        context: The width of what keys and values are read from; $d$ unless given.
        norm: Makes, of the size $k$, the norms of queries and of keys.
        rotary: What turns queries and keys by their positions, such as `Rotary`; for several sets of heads one each.
        bias_by: What gives, from positions, a bias of the scores, such as `ALiBi`.
        kernel: How attention is computed; cross attention without a window is fused where it is `Window`.
        mix: What is made of the values and those of the first layer (`mix(v, first)`), where these are given.
        bias: Whether the linear layers have biases.

    Examples:
        >>> from lawful.functions.attention import CAUSAL
        >>> layer = MultiHeadAttention(8, heads=2)
        >>> layer(torch.zeros(1, 5, 8), mask=CAUSAL).shape
        torch.Size([1, 5, 8])
        >>> sizes = [Heads(count=2, key=2), Heads(key=4, value=8)]
        >>> MultiHeadAttention(8, heads=sizes).value.weight.shape
        torch.Size([12, 8])
    """

    def __init__(
        self,
        d: int,
        *,
        heads: int | Sequence[Heads] = 4,
        context: int | None = None,
        norm: Callable[[int], nn.Module] | None = None,
        rotary: nn.Module | Sequence[nn.Module] | None = None,
        bias_by: nn.Module | None = None,
        kernel: Kernel = fused_attention,
        mix: nn.Module | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.sets, source = head_sets(d, heads), d if context is None else context
        self.widths, self.crosses = (d, source), context is not None
        self.sizes = {
            "query": [one.count * one.key for one in self.sets],
            "key": [one.groups * one.key for one in self.sets],
            "value": [one.groups * one.value for one in self.sets],
            "out": [one.count * one.value for one in self.sets],
        }
        self.query = nn.Linear(d, sum(self.sizes["query"]), bias=bias)
        self.key = nn.Linear(source, sum(self.sizes["key"]), bias=bias)
        self.value = nn.Linear(source, sum(self.sizes["value"]), bias=bias)
        self.out = nn.Linear(sum(self.sizes["out"]), d, bias=bias)
        self.query_norm, self.key_norm = (
            None if norm is None else self._for_sets([norm(one.key) for one in self.sets]) for _ in "qk"
        )
        self.rotary = self._for_sets(rotary)
        check_positions(self.sets, self.rotary, bias_by)
        self.bias_by, self.kernel, self.mix = bias_by, kernel, mix

    def forward(
        self,
        x: Float[Tensor, "*batch t d"],
        context: Float[Tensor, "*batch s e"] | None = None,
        *,
        mask: Mask = EVERYTHING,
        cache: Memory | None = None,
        positions: Int[Tensor, "*#rows t"] | None = None,
        first: list[Tensor] | None = None,
    ) -> Float[Tensor, "*batch t d"]:
        """Maps a sequence.

        Args:
            x: The sequence, from which the queries are made.
            context: What keys and values are read from, if not $x$. With a cache it is read once, and then need not
                be given.
            mask: Which keys each query sees.
            cache: The keys and values of the tokens so far, from `cache()`; those of $x$ are added to them.
            positions: Where $x$ stands; after the tokens in the cache unless given. With a cache they are for rotary
                positions alone.
            first: The values of the first layer, in a list, which are mixed in; if it is empty, those of this layer
                are put there.
        """
        if not isinstance(mask, Mask):
            raise TypeError(f"a Mask was wanted, such as Mask(pairs=seen): got {type(mask).__name__}")
        if x.shape[-1] != self.widths[0] or context is not None or self.crosses or x.dim() < 2 or mask.prefix:
            self._check(x, context, cache, mask)
        if positions is not None and cache is not None and self.bias_by is not None:
            by = type(self.bias_by).__name__
            raise ValueError(f"with a cache, {by} goes by the places in it: positions are to be left out")
        crossed = self.crosses or context is not None
        at = positions if positions is not None else 0 if cache is None or crossed else cache.length
        q, k, v = self.query(x), None, None
        if not (crossed and cache is not None and cache.length):
            source = x if context is None else context
            k, v = self.key(source), self.value(source)
            if first is not None:
                v = self._mixed(v, first)
        if (len(self.sets) > 1) != isinstance(cache, Caches) and cache is not None:
            raise TypeError(f"a cache from its own cache() was wanted: got {type(cache).__name__}")
        if len(self.sets) == 1:
            return self._added([self._attend(0, q, k, v, at=at, mask=mask, cache=cache, crossed=crossed)])
        caches = cache.sets if isinstance(cache, Caches) else [None] * len(self.sets)
        parts = zip(
            q.split(self.sizes["query"], dim=-1), self._split("key", k), self._split("value", v), caches, strict=True
        )
        return self._added(
            [
                self._attend(n, q, k, v, at=at, mask=mask, cache=own, crossed=crossed)
                for n, (q, k, v, own) in enumerate(parts)
            ]
        )

    def cache(self, *, window: int | None = None) -> Memory:
        """Makes an empty cache.

        Args:
            window: How many keys each query sees, where the mask has a window: older ones are not kept.
        """
        make = None if self.crosses else getattr(self.kernel, "cache", None)
        make = make or partial(KeyValues, window=window)
        return make() if len(self.sets) == 1 else Caches([make() for _ in self.sets])

    @property
    def absolute(self) -> bool:
        """Whether positions themselves matter, and not their differences alone."""
        return counts_from_the_start(self.rotary, self.kernel)

    def qk(self, head: int) -> Float[Tensor, "d e"]:
        r"""Returns the bilinear form of a head, $(W^Q_h)^\top W^K_h$, which the scores are, times $\sqrt{k}$."""
        left, right = qk_factors(self, head)
        return left @ right

    def ov(self, head: int) -> Float[Tensor, "d e"]:
        """Returns the linear map of a head, $W^O_h W^V_h$: what it moves from where it looks."""
        left, right = ov_factors(self, head)
        return left @ right

    def _attend(
        self,
        n: int,
        q: Tensor,
        k: Any,
        v: Any,
        *,
        at: Tensor | int,
        mask: Mask,
        cache: Any,
        crossed: bool,
    ) -> Tensor:
        """What the heads of one set find: (*batch, h, t, v)."""
        heads, name = self.sets[n], "" if len(self.sets) == 1 else str(n)
        q = tap("q" + name, self._placed(n, q, heads.count, self.query_norm, at))
        if k is not None and v is not None:
            k = tap("k" + name, self._placed(n, k, heads.groups, self.key_norm, 0 if crossed else at))
            v = tap("v" + name, in_heads(v, heads.groups))
        bias = None
        if self.bias_by is not None:
            before = sum(one.count for one in self.sets[:n])
            rows = None if len(self.sets) == 1 else slice(before, before + heads.count)
            given = at if isinstance(at, Tensor) else None
            keys = k.shape[-2] if crossed and given is not None and k is not None else at
            bias = biases(self.bias_by, rows, given, keys)
        kernel = fused_attention if crossed and mask.window is None and isinstance(self.kernel, Window) else self.kernel
        return tap("z" + name, attended(kernel, q, k, v, mask=mask, bias=bias, cache=cache, name=name))

    def _placed(self, n: int, x: Tensor, count: int, norm: nn.Module | None, at: Tensor | int) -> Tensor:
        """Queries or keys, normalised and turned by their positions: (*batch, h, t, k)."""
        x = in_heads(x, count, norm and self._of_set(norm, n))
        return x if self.rotary is None else self._of_set(self.rotary, n)(x, at)

    def _mixed(self, v: Tensor, first: list[Tensor]) -> Tensor:
        """The values, with those of the first layer mixed in; or unchanged, and put in the list."""
        if not first:
            first.append(v)
            return v
        return v if self.mix is None else self.mix(v, first[0])

    def _added(self, found: list[Tensor]) -> Tensor:
        """What the heads of all sets add up to."""
        if not tapped("heads"):
            z = [side_by_side(x) for x in found]
            return self.out(z[0] if len(z) == 1 else torch.cat(z, dim=-1))
        parts = zip(found, self.out.weight.split(self.sizes["out"], dim=1), self.sets, strict=True)
        heads = [torch.einsum("...htv,dhv->...htd", z, w.unflatten(1, (one.count, -1))) for z, w, one in parts]
        y = tap("heads", torch.cat(heads, dim=-3)).sum(-3)
        return y if self.out.bias is None else y + self.out.bias

    def _split(self, name: str, x: Tensor | None) -> Sequence[Tensor | None]:
        """Queries, keys or values, in a part for each set of heads."""
        return [None] * len(self.sets) if x is None else x.split(self.sizes[name], dim=-1)

    def _for_sets(self, given: nn.Module | Sequence[nn.Module] | None) -> nn.Module | None:
        """A module for all sets of heads, or one for each."""
        if not isinstance(given, Sequence):
            return given
        if len(given) != len(self.sets):
            sets = f"{len(self.sets)} sets of heads, alike ones together,"
            raise ValueError(f"one for each of {sets} was wanted: got {len(given)}")
        return given[0] if len(given) == 1 else nn.ModuleList(given)

    @staticmethod
    def _of_set(module: nn.Module, n: int) -> nn.Module:
        return module[n] if isinstance(module, nn.ModuleList) else module

    def _check(self, x: Tensor, context: Tensor | None, cache: Memory | None, mask: Mask) -> None:
        (d, e), seen = self.widths, 0 if cache is None else cache.length
        if x.dim() < 2 or x.shape[-1] != d:
            raise ValueError(f"x is to have the shape (*batch, t, {d}): got {tuple(x.shape)}")
        if context is not None and context.shape[-1] != e:
            raise ValueError(f"the context is to have the width {e}: got shape {tuple(context.shape)}")
        if self.crosses and context is None and not seen:
            raise ValueError("a context, or a cache that holds one, was wanted: got none")
        if mask.causal and 0 < seen < mask.prefix:
            raise ValueError(f"a prefix is read in one piece: got {seen} of its {mask.prefix} tokens first")


def claims() -> Iterator[Claim]:
    """The laws that multi-head attention obeys."""
    layer = MultiHeadAttention(4, heads=2, norm=RMSNorm, rotary=Rotary(2), bias_by=ALiBi(2))
    plain = MultiHeadAttention(4, heads=2)

    def heads(m: nn.Linear, x: Tensor) -> tuple[Tensor, ...]:
        return (x @ m.weight.T + m.bias).split(2, dim=-1)

    def with_positions(x: Tensor) -> Tensor:
        t, total = x.shape[-2], layer.out.bias
        gains = layer.get_parameter("query_norm.weight"), layer.get_parameter("key_norm.weight")
        after = torch.arange(t) - torch.arange(t)[:, None]
        for h in range(2):
            q, k = (heads(m, x)[h] for m in (layer.query, layer.key))
            q, k = (
                g * a / (a.square().mean(-1, keepdim=True) + 1e-6).sqrt() for g, a in zip(gains, (q, k), strict=True)
            )
            cos, sin = after.double().cos().to(x), after.double().sin().to(x)
            across = q[..., :, None, 0] * k[..., None, :, 1] - q[..., :, None, 1] * k[..., None, :, 0]
            scores = (q @ k.mT * cos - across * sin) / 2**0.5 - after.abs() * 2.0 ** (-4 * (h + 1))
            weights = scores.masked_fill(after > 0, -torch.inf).softmax(-1)
            total = total + weights @ heads(layer.value, x)[h] @ layer.out.weight[:, 2 * h : 2 * h + 2].T
        return total

    def causal(x: Tensor) -> Tensor:
        return layer(x, mask=CAUSAL)

    def padded(x: Tensor, there: Tensor) -> Tensor:
        return layer(x, mask=Mask(padding=there))

    yield Claim(every_input_matters(), plain, (shape("b t 4"), shape("b s 4")), name="cross attention")
    yield Claim(permutation_equivariance(axis=1), plain, shape("b t 4"))
    for law in (agreement(other=with_positions), causality()):
        yield Claim(law, causal, shape("b t 4"), name="causal, with norms, rotary positions and ALiBi")
    yield Claim(masked_positions_have_no_influence(), padded, (shape("b t 4"), mask_of("b t")), name="padded")
