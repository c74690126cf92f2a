"""Sets of heads: how many, and how large.

The steps of a layer of attention: into heads, attention with a tap at each step, and out of heads.
Positions in a layer of attention: whether they fit its heads, what they count for, and the biases between them.
Heads as matrices: what a head asks for, and what it moves.
Multi-head attention: several heads look at a sequence, and what they find is added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks.kv_cache import Caches, KVCache, LinearAttentionState, over_last
from lawful.blocks.normalization import RMSNorm
from lawful.blocks.positions import ALiBi, RotaryEmbedding
from lawful.functions.attention import (
    CAUSAL,
    NO_MASK,
    LinearAttention,
    Mask,
    SlidingWindowAttention,
    apply_weights,
    attention_scores,
    fused_attention,
    masked_softmax,
)
from lawful.functions.attention.dense import Bias
from lawful.functions.tap import is_recorded, tap
from lawful.laws import (
    Claim,
    Draw,
    Equal,
    Map,
    Statement,
    agreement,
    causality,
    every_input_matters,
    law,
    masked_positions_have_no_influence,
    permutation_equivariance,
    shape,
    tokens,
)
from lawful.laws import mask as mask_of
from lawful.laws import mask as masks


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """Describes a set of alike heads; several sets make a layer whose heads differ in size.

    Examples:
        >>> HeadSpec(count=8, groups=2, key=32)
        HeadSpec(count=8, groups=2, key=32, value=None)
    """

    count: int = 1
    """The number of heads."""
    groups: int | None = None
    """The number of heads of keys and values, each for as many heads of queries; as many as heads unless given."""
    key: int | None = None
    """The size of queries and keys; the width by the number of all heads unless given."""
    value: int | None = None
    """The size of values; that of the keys unless given."""


@dataclass(frozen=True, kw_only=True)
class HeadGroup:
    """A set of alike heads with every size known."""

    count: int
    groups: int
    key: int
    value: int


def head_sets(d: int, heads: int | Sequence[HeadSpec]) -> tuple[HeadGroup, ...]:
    """Returns the sets of heads of a layer of width d, those that are alike as one, in order of first appearance.

    Args:
        d: The width of the layer.
        heads: The number of heads, or sets of them.

    Examples:
        >>> head_sets(8, [HeadSpec(count=2), HeadSpec(key=1), HeadSpec()])
        (HeadGroup(count=3, groups=3, key=2, value=2), HeadGroup(count=1, groups=1, key=1, value=1))
    """
    given = [HeadSpec(count=heads)] if isinstance(heads, int) else list(heads)
    total = sum(one.count for one in given)
    if total < 1 or any(one.count < 1 for one in given):
        raise ValueError(f"at least one head is wanted: got heads={heads}")
    found: dict[tuple[int, int, int], HeadGroup] = {}
    for one in given:
        made = _sized(one, d, total)
        alike = made.key, made.value, made.count // made.groups
        if alike in found:
            before = found[alike]
            count, groups = before.count + made.count, before.groups + made.groups
            made = HeadGroup(count=count, groups=groups, key=made.key, value=made.value)
        found[alike] = made
    return tuple(found.values())


def _sized(heads: HeadSpec, d: int, total: int) -> HeadGroup:
    if heads.key is None and d % total:
        raise ValueError(f"heads must divide d: got d={d}, heads={total}")
    groups = heads.count if heads.groups is None else heads.groups
    if groups < 1 or heads.count % groups:
        raise ValueError(f"groups must divide the number of heads: got count={heads.count}, groups={groups}")
    key = d // total if heads.key is None else heads.key
    value = key if heads.value is None else heads.value
    if min(key, value) < 1:
        raise ValueError(f"the sizes of heads are at least 1: got key={key}, value={value}")
    return HeadGroup(count=heads.count, groups=groups, key=key, value=value)


@law("f(x; Q_π, K_π, V_π, O_π) = f(x; Q, K, V, O)", discover_with=None)
def head_permutation(f: Map, *xs: Tensor, heads: int, draw: Draw) -> Statement:
    """Renumbering the heads of a layer changes nothing.

    Kept by: heads of one size, each with keys of its own.
    Broken by: an output map that was not renumbered; heads that share keys, unless groups are kept together.
    """
    order, moved = draw.permutation(heads), {}
    for name, p in f.parameters.items():
        axis = 1 if name == "out.weight" else 0
        if name != "out.bias":
            moved[name] = p.detach().unflatten(axis, (heads, -1)).index_select(axis, order).flatten(axis, axis + 1)
    return Equal(f.with_parameters(moved)(*xs), f(*xs))


def _heads_claims() -> Iterator[Claim]:
    """The laws that sets of heads obey."""
    pass

    sets = [
        HeadSpec(count=2, groups=1, key=2, value=3),
        HeadSpec(key=3, value=1),
        HeadSpec(count=2, groups=1, key=2, value=3),
    ]

    def made(d: int, heads: int | list[HeadSpec]) -> MultiHeadAttention:
        return MultiHeadAttention(d, heads=[HeadSpec(**vars(one)) for one in head_sets(d, heads)])

    layer, grouped = (made(4, one) for one in (sets, [HeadSpec(count=4, groups=2, key=2)]))

    def one_by_one(x: Tensor) -> Tensor:
        total, (q, k, v, z) = layer.out.bias, (0, 0, 0, 0)
        for head, (key, value) in enumerate([(2, 3)] * 4 + [(3, 1)]):
            if head in (2, 4):
                k, v = k + 2, v + 3
            rows = (layer.query, q, key), (layer.key, k, key), (layer.value, v, value)
            asked, keys, values = (x @ m.weight[i : i + n].T + m.bias[i : i + n] for m, i, n in rows)
            weights = torch.softmax(asked @ keys.mT / key**0.5, dim=-1)
            total = total + weights @ values @ layer.out.weight[:, z : z + value].T
            q, z = q + key, z + value
        return total

    def repeated(x: Tensor) -> Tensor:
        own, rows = made(4, [HeadSpec(count=4, key=2)]), torch.tensor([0, 1, 0, 1, 2, 3, 2, 3])
        weights = {n: p[rows] if n.startswith(("key", "value")) else p for n, p in grouped.named_parameters()}
        return torch.func.functional_call(own, weights, (x,))

    yield Claim(agreement(other=one_by_one), layer, shape("b t 4"), name="heads of two sizes, with groups")
    yield Claim(agreement(other=repeated), grouped, shape("b t 4"), name="groups, with their weights repeated")
    yield Claim(head_permutation(heads=3), made(3, 3), shape("b t 3"))


Kernel = Callable[..., Tensor]


def split_heads(
    x: Float[Tensor, "*batch t hk"], count: int, norm: nn.Module | None = None
) -> Float[Tensor, "*batch h t k"]:
    """Takes apart heads that stand side by side, and normalises each; for a single position without a transpose.

    Examples:
        >>> split_heads(torch.zeros(2, 5, 12), 3).shape
        torch.Size([2, 3, 5, 4])
    """
    one, size = x.shape[-2] == 1, x.shape[-1] // count
    x = x.view(*x.shape[:-2], count, 1, size) if one else x.view(*x.shape[:-1], count, size)
    if norm is not None:
        x = norm(x)
    return x if one else x.transpose(-3, -2)


def merge_heads(z: Float[Tensor, "*batch h t v"]) -> Float[Tensor, "*batch t hv"]:
    """Puts heads side by side, as one vector.

    Examples:
        >>> merge_heads(torch.zeros(2, 3, 5, 4)).shape
        torch.Size([2, 5, 12])
    """
    *batch, h, t, v = z.shape
    return z.reshape(*batch, 1, h * v) if t == 1 else z.transpose(-3, -2).flatten(-2)


def attend_with_cache(
    kernel: Kernel,
    q: Float[Tensor, "*batch h t k"],
    k: Any,
    v: Any,
    *,
    mask: Mask,
    bias: Tensor | Bias | None = None,
    cache: Any = None,
    name: str = "",
) -> Float[Tensor, "*batch h t v"]:
    """Attends to new keys and values and to those of a cache, which takes the new ones in; with the taps of `attend_with_taps`.

    Args:
        kernel: How attention is computed.
        q: The queries.
        k: The new keys, (*batch, g, s, k); none where the cache has them already, those of a memory.
        v: The new values, (*batch, g, s, v).
        mask: Which keys each query sees.
        bias: The bias of the scores.
        cache: The keys and values so far, or a summary of them.
        name: What the names of the taps end in.
    """
    apart = is_recorded("scores" + name, "pattern" + name)
    if isinstance(cache, KVCache):
        k, v = cache.all() if k is None or v is None else cache.append(k, v)
        mask = over_last(mask, k.shape[-2], seen=cache.length)
    elif cache is not None:
        if apart:
            raise LookupError(f"a {type(cache).__name__} keeps no keys to make a pattern of: record without it")
        t = q.shape[-2]
        return cache.attend(q, k, v, mask=over_last(mask, t, seen=cache.length + t), bias=bias)
    return (
        attend_with_taps(kernel, name, q, k, v, mask=mask, bias=bias)
        if apart
        else kernel(q, k, v, mask=mask, bias=bias)
    )


def attend_with_taps(
    kernel: Kernel,
    name: str,
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    v: Float[Tensor, "*batch g s v"],
    *,
    mask: Mask,
    bias: Tensor | Bias | None = None,
) -> Float[Tensor, "*batch h t v"]:
    """Computes what a kernel does step by step, with the taps "scores" and "pattern".

    Args:
        kernel: The kernel; one that is no softmax says what its weights are by `kernel.weights`, and has no scores.
        name: What the names of the taps end in.
        q: The queries.
        k: The keys.
        v: The values.
        mask: Which keys each query sees.
        bias: The bias of the scores.
    """
    weights = getattr(kernel, "weights", None)
    if weights is None:
        pattern = masked_softmax(tap("scores" + name, attention_scores(q, k, bias=bias)), mask=mask)
    else:
        pattern = weights(q, k, mask=mask, bias=bias)
    return apply_weights(tap("pattern" + name, pattern), v)


def _steps_claims() -> Iterator[Claim]:
    """The laws that the steps obey."""

    def by_hand(x: Tensor) -> Tensor:
        return torch.stack([x[..., :2], x[..., 2:4], x[..., 4:]], dim=-3)

    def there_and_back(x: Tensor) -> Tensor:
        return merge_heads(split_heads(x, 3))

    def fused(q: Tensor, k: Tensor) -> Tensor:
        return fused_attention(q, k, k, mask=CAUSAL, bias=torch.ones(3, 1))

    def step_by_step(q: Tensor, k: Tensor) -> Tensor:
        return attend_with_taps(fused_attention, "", q, k, k, mask=CAUSAL, bias=torch.ones(3, 1))

    for kernel, window in ((fused_attention, 2), (LinearAttention(), None)):

        def in_two(x: Tensor, there: Tensor, kernel: Any = kernel, window: int | None = window) -> Tensor:
            cache = kernel.cache() if window is None else KVCache(window=window)
            found = []
            for part, seen in zip(x.split((3, 1), -2), (there[:, :3], there), strict=True):
                rule = Mask(causal=True, window=window, padding=seen)
                found.append(attend_with_cache(kernel, part, part, part, mask=rule, cache=cache))
            return torch.cat(found, -2)

        def at_once(x: Tensor, there: Tensor, kernel: Kernel = kernel, window: int | None = window) -> Tensor:
            return kernel(x, x, x, mask=Mask(causal=True, window=window, padding=there))

        few = replace(agreement(other=at_once), cases=20)
        yield Claim(few, in_two, (shape("b 2 4 3"), masks("b 4")), name=f"attended, with a cache and {window=}")

    yield Claim(agreement(other=by_hand), lambda x: split_heads(x, 3), shape("b t:1..4 6"), name="in_heads")
    yield Claim(agreement(other=lambda x: 1 * x), there_and_back, shape("b t:1..4 6"), name="there and back")
    yield Claim(agreement(other=fused), step_by_step, (shape("b 2 3 4"), shape("b 1 5 4")), name="watched")


def check_positions(sets: Sequence[HeadGroup], rotary: nn.Module | None, position_bias: nn.Module | None) -> None:
    """Refuses positions that were made for other heads.

    Args:
        sets: The sets of heads.
        rotary: What turns queries and keys: one for all sets, or a list with one for each.
        position_bias: What gives the biases of all heads.

    Examples:
        >>> check_positions([HeadGroup(count=2, groups=2, key=4, value=4)], RotaryEmbedding(4), ALiBi(2))
    """
    for one, module in zip(sets, _each(rotary, len(sets)), strict=True):
        if isinstance(module, RotaryEmbedding) and module.k != one.key:
            each = "" if isinstance(rotary, nn.ModuleList) or len(sets) == 1 else ", one for each set of heads"
            raise ValueError(f"rotary positions for heads of size {one.key} were wanted{each}: got {module.k}")
    total = sum(one.count for one in sets)
    made = getattr(position_bias, "heads", total)
    if isinstance(made, int) and made != total:
        raise ValueError(f"biases for {total} heads were wanted: got {type(position_bias).__name__} for {made}")


def uses_absolute_positions(rotary: nn.Module | None, kernel: Kernel) -> bool:
    """Says whether positions themselves matter, and not their differences alone.

    Turned queries and keys know only differences in a dot product; where features of them are taken first, as in linear
    attention, this is lost. What turns them otherwise than `RotaryEmbedding` may have lost it as well.

    Examples:
        >>> from lawful.functions.attention import Linear, fused_attention
        >>> uses_absolute_positions(RotaryEmbedding(4), fused_attention), uses_absolute_positions(RotaryEmbedding(4), Linear())
        (False, True)
    """
    if rotary is None:
        return False
    return hasattr(kernel, "weights") or any(not isinstance(module, RotaryEmbedding) for module in _each(rotary, 1))


def _each(module: nn.Module | None, count: int) -> list[nn.Module | None]:
    """The module of each set of heads."""
    return list(module) if isinstance(module, nn.ModuleList) else [module] * count


def biases(
    position_bias: nn.Module,
    heads: slice | None,
    queries: Int[Tensor, "*#rows t"] | None,
    keys: Int[Tensor, "*#rows s"] | int,
) -> Tensor | Bias:
    """Returns the biases of some heads: between positions that are given, or a function of any.

    Args:
        position_bias: What gives the biases of all heads.
        heads: Which of them are wanted; all unless given.
        queries: The positions of the queries, where they are not those of the last of the keys.
        keys: The positions of the keys; a number for the first so many.
    """

    def between(queries: Tensor, keys: Tensor) -> Tensor:
        found = position_bias(queries, keys)
        return found if heads is None else found[..., heads, :, :]

    if queries is None:
        return position_bias if heads is None else between
    if isinstance(keys, int):
        keys = torch.arange(keys, device=queries.device)
    return between(queries, keys.expand(*queries.shape[:-1], -1))


def _placing_claims() -> Iterator[Claim]:
    """The laws that biases between positions obey."""
    slopes = ALiBi(2)

    def crossed(p: Tensor) -> Tensor:
        found = biases(slopes, slice(1, 2), p, 3)
        return found if isinstance(found, Tensor) else found(p, p)

    def written(p: Tensor) -> Tensor:
        apart = [[[abs(int(i) - j) for j in range(3)] for i in row] for row in p]
        return torch.tensor(apart, dtype=slopes.like.dtype).unsqueeze(1) * -(2.0**-8)

    yield Claim(agreement(other=written), crossed, tokens("b t", vocab=9), name="biases, to the first three keys")


def qk_factors(layer: MultiHeadAttention, head: int) -> tuple[Float[Tensor, "d k"], Float[Tensor, "k e"]]:
    r"""Returns the low-rank factors of what a head asks for, $(W^Q_h)^\top$ and $W^K_h$.

    $$s_{ij} = \frac{1}{\sqrt{k}} \, x_i^\top (W^Q_h)^\top W^K_h \, x_j$$

    Their product is the bilinear form `layer.qk(head)`, of rank $k$ at most. Biases, norms and rotary positions are
    left out.

    Reference:
        Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

    Args:
        layer: The layer.
        head: The number of the head, counted over all sets.
    """
    n, i = _found(layer, head)
    sets = layer.sets[n]
    query, key = (
        linear.weight.split(layer.sizes[name])[n].unflatten(0, (-1, sets.key))
        for name, linear in (("query", layer.query), ("key", layer.key))
    )
    return query[i].mT, key[i * sets.groups // sets.count]


def ov_factors(layer: MultiHeadAttention, head: int) -> tuple[Float[Tensor, "d v"], Float[Tensor, "v e"]]:
    r"""Returns the low-rank factors of what a head moves, $W^O_h$ and $W^V_h$.

    $$y_i = \sum_h \sum_j w^h_{ij} \, W^O_h W^V_h \, x_j$$

    Their product is the linear map `layer.ov(head)`, of rank $v$ at most. Biases are left out.

    Reference:
        Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

    Args:
        layer: The layer.
        head: The number of the head, counted over all sets.
    """
    n, i = _found(layer, head)
    sets = layer.sets[n]
    value = layer.value.weight.split(layer.sizes["value"])[n].unflatten(0, (-1, sets.value))
    out = layer.out.weight.split(layer.sizes["out"], dim=1)[n].unflatten(1, (-1, sets.value))
    return out[:, i], value[i * sets.groups // sets.count]


def _found(layer: MultiHeadAttention, head: int) -> tuple[int, int]:
    """The number of the set of a head, and its number there."""
    left = head
    for n, one in enumerate(layer.sets):
        if 0 <= left < one.count:
            return n, left
        left -= one.count
    raise IndexError(f"heads from 0 to {sum(one.count for one in layer.sets) - 1} were wanted: got {head}")


def _views_claims() -> Iterator[Claim]:
    """The laws that the matrices of heads obey."""
    pass
    pass

    sets = [HeadSpec(count=4, groups=2, key=2, value=1), HeadSpec(key=3)]
    layer, crossed = (MultiHeadAttention(4, heads=sets, context=e, bias=False) for e in (None, 3))

    def by_matrices(x: Tensor, y: Tensor, layer: MultiHeadAttention = crossed) -> Tensor:
        total = torch.zeros_like(x)
        for head, k in enumerate((2, 2, 2, 2, 3)):
            (asks, looked_at), (puts, takes) = qk_factors(layer, head), ov_factors(layer, head)
            pattern = (x @ asks @ looked_at @ y.mT / k**0.5).softmax(-1)
            total = total + pattern @ y @ takes.mT @ puts.mT
        return total

    def to_itself(x: Tensor) -> Tensor:
        return by_matrices(x, x, layer)

    yield Claim(agreement(other=to_itself), layer, shape("b t 4"), name="heads as matrices")
    yield Claim(
        agreement(other=by_matrices), crossed, (shape("b t 4"), shape("b s 3")), name="heads as matrices, cross"
    )


Memory = KVCache | LinearAttentionState | Caches


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
        rotary: What turns queries and keys by their positions, such as `RotaryEmbedding`; for several sets of heads one each.
        position_bias: What gives, from positions, a bias of the scores, such as `ALiBi`.
        kernel: How attention is computed; cross attention without a window is fused where it is `SlidingWindowAttention`.
        mix: What is made of the values and those of the first layer (`mix(v, first)`), where these are given.
        bias: Whether the linear layers have biases.

    Examples:
        >>> from lawful.functions.attention import CAUSAL
        >>> layer = MultiHeadAttention(8, heads=2)
        >>> layer(torch.zeros(1, 5, 8), mask=CAUSAL).shape
        torch.Size([1, 5, 8])
        >>> sizes = [HeadSpec(count=2, key=2), HeadSpec(key=4, value=8)]
        >>> MultiHeadAttention(8, heads=sizes).value.weight.shape
        torch.Size([12, 8])
    """

    def __init__(
        self,
        d: int,
        *,
        heads: int | Sequence[HeadSpec] = 4,
        context: int | None = None,
        norm: Callable[[int], nn.Module] | None = None,
        rotary: nn.Module | Sequence[nn.Module] | None = None,
        position_bias: nn.Module | None = None,
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
        check_positions(self.sets, self.rotary, position_bias)
        self.position_bias, self.kernel, self.mix = position_bias, kernel, mix

    def forward(
        self,
        x: Float[Tensor, "*batch t d"],
        context: Float[Tensor, "*batch s e"] | None = None,
        *,
        mask: Mask = NO_MASK,
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
        if positions is not None and cache is not None and self.position_bias is not None:
            by = type(self.position_bias).__name__
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
        make = make or partial(KVCache, window=window)
        return make() if len(self.sets) == 1 else Caches([make() for _ in self.sets])

    @property
    def absolute(self) -> bool:
        """Whether positions themselves matter, and not their differences alone."""
        return uses_absolute_positions(self.rotary, self.kernel)

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
            v = tap("v" + name, split_heads(v, heads.groups))
        bias = None
        if self.position_bias is not None:
            before = sum(one.count for one in self.sets[:n])
            rows = None if len(self.sets) == 1 else slice(before, before + heads.count)
            given = at if isinstance(at, Tensor) else None
            keys = k.shape[-2] if crossed and given is not None and k is not None else at
            bias = biases(self.position_bias, rows, given, keys)
        kernel = (
            fused_attention
            if crossed and mask.window is None and isinstance(self.kernel, SlidingWindowAttention)
            else self.kernel
        )
        return tap("z" + name, attend_with_cache(kernel, q, k, v, mask=mask, bias=bias, cache=cache, name=name))

    def _placed(self, n: int, x: Tensor, count: int, norm: nn.Module | None, at: Tensor | int) -> Tensor:
        """Queries or keys, normalised and turned by their positions: (*batch, h, t, k)."""
        x = split_heads(x, count, norm and self._of_set(norm, n))
        return x if self.rotary is None else self._of_set(self.rotary, n)(x, at)

    def _mixed(self, v: Tensor, first: list[Tensor]) -> Tensor:
        """The values, with those of the first layer mixed in; or unchanged, and put in the list."""
        if not first:
            first.append(v)
            return v
        return v if self.mix is None else self.mix(v, first[0])

    def _added(self, found: list[Tensor]) -> Tensor:
        """What the heads of all sets add up to."""
        if not is_recorded("heads"):
            z = [merge_heads(x) for x in found]
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


def _multi_head_claims() -> Iterator[Claim]:
    """The laws that multi-head attention obeys."""
    layer = MultiHeadAttention(4, heads=2, norm=RMSNorm, rotary=RotaryEmbedding(2), position_bias=ALiBi(2))
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


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _heads_claims()
    yield from _steps_claims()
    yield from _placing_claims()
    yield from _views_claims()
    yield from _multi_head_claims()
