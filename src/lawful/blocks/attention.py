"""Multi-head attention with grouped-query heads, heads of different sizes, QK norm, position schemes and a KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.kv_cache import AttentionCache, KVCache, crop_mask
from lawful.blocks.positions import ALiBi, RotaryEmbedding
from lawful.functions.attention import (
    CAUSAL,
    NO_MASK,
    Bias,
    Kernel,
    LinearAttentionState,
    Mask,
    SlidingWindowAttention,
    apply_weights,
    attention_scores,
    fused_attention,
    masked_softmax,
)
from lawful.functions.tap import is_recorded, tap
from lawful.laws import (
    Claim,
    cached_decoding,
    causality,
    every_input_matters,
    masked_positions_have_no_influence,
    permutation_equivariance,
    shape,
)
from lawful.laws import mask as mask_domain


@dataclass(frozen=True)
class HeadSpec:
    """Size and number of identical heads, for a layer whose heads differ in size.

    Args:
        key: Size of queries and keys.
        value: Size of values. Defaults to `key`.
        count: Number of heads.
        groups: Number of key/value heads (grouped-query attention). Defaults to `count`.

    Examples:
        >>> HeadSpec(32, count=8, groups=2)
        HeadSpec(key=32, value=None, count=8, groups=2)
    """

    key: int
    value: int | None = None
    count: int = 1
    groups: int | None = None

    def __post_init__(self) -> None:
        groups = self.count if self.groups is None else self.groups
        if self.count < 1 or groups < 1 or self.count % groups:
            raise ValueError(f"groups must divide count: got count={self.count}, groups={self.groups}")
        if self.key < 1 or (self.value is not None and self.value < 1):
            raise ValueError(f"head sizes must be at least 1: got key={self.key}, value={self.value}")


@dataclass(frozen=True, kw_only=True)
class HeadGroup:
    """All heads of one size in a layer; they run in one call of the kernel."""

    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int


def group_heads(heads: Sequence[HeadSpec]) -> tuple[HeadGroup, ...]:
    """Merges identical heads into groups, in order of first appearance.

    Examples:
        >>> [group.num_heads for group in group_heads([HeadSpec(2, count=2), HeadSpec(1), HeadSpec(2)])]
        [3, 1]
    """
    if not heads:
        raise ValueError("heads must contain at least one HeadSpec, got none")
    groups: dict[tuple[int, int, int], HeadGroup] = {}
    for spec in heads:
        value, num_kv_heads = spec.value or spec.key, spec.groups or spec.count
        size = spec.key, value, spec.count // num_kv_heads
        same = groups.get(size)
        groups[size] = HeadGroup(
            num_heads=spec.count + (same.num_heads if same else 0),
            num_kv_heads=num_kv_heads + (same.num_kv_heads if same else 0),
            key_dim=spec.key,
            value_dim=value,
        )
    return tuple(groups.values())


def split_heads(
    x: Float[Tensor, "*batch t hk"], num_heads: int, norm: nn.Module | None = None
) -> Float[Tensor, "*batch h t k"]:
    """Splits the last axis into heads, and normalizes each.

    Examples:
        >>> split_heads(torch.zeros(2, 5, 12), 3).shape
        torch.Size([2, 3, 5, 4])
    """
    *batch, t, width = x.shape
    one = t == 1  # a view suffices, without a transpose
    x = x.view(*batch, *((num_heads, 1) if one else (t, num_heads)), width // num_heads)
    if norm is not None:
        x = norm(x)
    return x if one else x.transpose(-3, -2)


def merge_heads(z: Float[Tensor, "*batch h t v"]) -> Float[Tensor, "*batch t hv"]:
    """Concatenates heads along the last axis.

    Examples:
        >>> merge_heads(torch.zeros(2, 3, 5, 4)).shape
        torch.Size([2, 5, 12])
    """
    *batch, h, t, v = z.shape
    return z.reshape(*batch, 1, h * v) if t == 1 else z.transpose(-3, -2).flatten(-2)


def attend_with_cache(
    kernel: Kernel,
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"] | None,
    v: Float[Tensor, "*batch g s v"] | None,
    *,
    mask: Mask,
    bias: Tensor | Bias | None = None,
    dropout: float = 0.0,
    cache: AttentionCache | None = None,
    group: int = 0,
    suffix: str = "",
) -> Float[Tensor, "*batch h t v"]:
    """Runs an attention kernel on new and cached keys and values.

    The weights are computed explicitly when dropout is on or when a recorder asks for "scores" or "pattern".

    Args:
        kernel: Attention function.
        q: Queries.
        k: New keys; None if the cache already has them (cross-attention).
        v: New values.
        mask: Which keys each query sees.
        bias: Bias of the scores.
        dropout: Dropout probability of the attention weights.
        cache: Cache of earlier keys and values; the new ones are added.
        group: Index of the head group in the cache.
        suffix: Suffix of the names of the taps.
    """
    if isinstance(kernel, SlidingWindowAttention):
        mask = kernel.restrict(mask)
    explicit = dropout > 0 or is_recorded("scores" + suffix, "pattern" + suffix)
    if isinstance(cache, KVCache):
        k, v = cache.get(group) if k is None or v is None else cache.append(k, v, group)
        mask = crop_mask(mask, k.shape[-2], total=cache.length)
    if k is None or v is None:
        raise ValueError("expected keys and values, or a KVCache that holds them")
    if isinstance(cache, LinearAttentionState):
        if explicit:
            raise LookupError("LinearAttentionState stores no keys: attention weights are unavailable with this cache")
        t = q.shape[-2]
        total = cache.length if group else cache.length + t  # the first group has advanced the length
        return cache.attend(q, k, v, mask=crop_mask(mask, t, total=total), bias=bias, group=group)
    if cache is not None and not isinstance(cache, KVCache):
        raise TypeError(f"cache must be a KVCache or a LinearAttentionState, got {type(cache).__name__}")
    if not explicit:
        return kernel(q, k, v, mask=mask, bias=bias)
    if hasattr(kernel, "weights"):  # a kernel without a softmax
        pattern = kernel.weights(q, k, mask=mask, bias=bias)
    else:
        pattern = masked_softmax(tap("scores" + suffix, attention_scores(q, k, bias=bias)), mask=mask)
    pattern = tap("pattern" + suffix, pattern)
    return apply_weights(F.dropout(pattern, dropout) if dropout else pattern, v)


class MultiHeadAttention(nn.Module):
    r"""Multi-head attention with grouped-query heads, heads of different sizes, QK norm and position biases.

    $$\operatorname{head}_h = \operatorname{softmax}\!\Bigl(\tfrac{Q_h K_h^\top}{\sqrt{k_h}} + B_h\Bigr) V_h, \qquad
    y = \operatorname{concat}(\operatorname{head}_1, \dots) W^O$$

    with $Q_h = x W^Q_h$, $K_h = x W^K_h$ and $V_h = x W^V_h$; in cross-attention keys and values are projections of
    `context`. The linear layers are `query`, `key`, `value` and `out`. The weights of the first three, concatenated,
    are the `in_proj_weight` of `torch.nn.MultiheadAttention`.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017; grouped queries: Ainslie et al., *GQA: Training Generalized
        Multi-Query Transformer Models from Multi-Head Checkpoints*, 2023; QK norm: Henry et al., *Query-Key
        Normalization for Transformers*, 2020; value residual: Zhou et al., *Value Residual Learning*, 2024.

    Args:
        dim: Width of the input and output.
        num_heads: Number of query heads.
        num_kv_heads: Number of key/value heads (grouped-query attention). Defaults to `num_heads`.
        head_dim: Size of a head. Defaults to `dim // num_heads`.
        heads: Heads of different sizes, instead of `num_heads`, `num_kv_heads` and `head_dim`.
        context_dim: Width of the context in cross-attention. Defaults to self-attention.
        qk_norm: Whether to normalize queries and keys with RMSNorm, or a factory for the norm, called with the head
            size.
        rotary: Rotary position embedding; a sequence with one per head size if the sizes differ.
        position_bias: Module that returns a bias of the scores from positions, such as `ALiBi`.
        kernel: Attention function: `fused_attention`, `SlidingWindowAttention(128)`, `LinearAttention()`, ...
        value_residual: Module that mixes in the values of the first layer, such as `WeightedSum`.
        dropout: Dropout probability of the attention weights, in training mode.
        bias: Whether the projections have a bias.

    Examples:
        >>> layer = MultiHeadAttention(8, num_heads=2)
        >>> layer(torch.zeros(1, 5, 8), is_causal=True).shape
        torch.Size([1, 5, 8])
        >>> layer = MultiHeadAttention(8, heads=[HeadSpec(key=2, count=2), HeadSpec(key=4, value=8)])
        >>> layer.value.weight.shape
        torch.Size([12, 8])
    """

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int = 4,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        heads: Sequence[HeadSpec] | None = None,
        context_dim: int | None = None,
        qk_norm: bool | Callable[[int], nn.Module] = False,
        rotary: nn.Module | Sequence[nn.Module] | None = None,
        position_bias: nn.Module | None = None,
        kernel: Kernel = fused_attention,
        value_residual: nn.Module | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if heads is None:
            heads = [_uniform_heads(dim, num_heads, num_kv_heads, head_dim)]
        elif num_kv_heads is not None or head_dim is not None:
            raise ValueError("heads replaces num_kv_heads and head_dim: pass one or the other")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        self.head_groups = group_heads(heads)
        self.dim, self.context_dim = dim, dim if context_dim is None else context_dim
        self.is_cross_attention = context_dim is not None
        self.query_sizes = [group.num_heads * group.key_dim for group in self.head_groups]
        self.key_sizes = [group.num_kv_heads * group.key_dim for group in self.head_groups]
        self.value_sizes = [group.num_kv_heads * group.value_dim for group in self.head_groups]
        self.out_sizes = [group.num_heads * group.value_dim for group in self.head_groups]
        self.query = nn.Linear(dim, sum(self.query_sizes), bias=bias)
        self.key = nn.Linear(self.context_dim, sum(self.key_sizes), bias=bias)
        self.value = nn.Linear(self.context_dim, sum(self.value_sizes), bias=bias)
        self.out = nn.Linear(sum(self.out_sizes), dim, bias=bias)
        norm = partial(nn.RMSNorm, eps=1e-6) if qk_norm is True else qk_norm
        self.query_norm, self.key_norm = (
            self._per_group([norm(group.key_dim) for group in self.head_groups]) if norm else None for _ in "qk"
        )
        self.rotary = self._per_group(rotary)
        self.position_bias, self.kernel, self.value_residual, self.dropout = (
            position_bias,
            kernel,
            value_residual,
            dropout,
        )
        self._check_positions()

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        return sum(group.num_heads for group in self.head_groups)

    def forward(
        self,
        x: Float[Tensor, "*batch t d"],
        context: Float[Tensor, "*batch s e"] | None = None,
        *,
        mask: Mask = NO_MASK,
        is_causal: bool = False,
        cache: AttentionCache | None = None,
        position_ids: Int[Tensor, "*#rows t"] | None = None,
        first_values: list[Tensor] | None = None,
    ) -> Float[Tensor, "*batch t d"]:
        """Attends to `x` itself, or to `context`.

        Args:
            x: Input of the queries.
            context: Input of keys and values in cross-attention. With a cache it is read once, then may be omitted.
            mask: Which keys each query sees.
            is_causal: Whether to add a causal mask.
            cache: Keys and values of earlier tokens, from `cache()` or `KVCache()`. The new ones are appended.
            position_ids: Positions of `x`. By default they continue after the cached tokens.
            first_values: Values of the first layer, for `value_residual`. If empty, this layer appends its values.
        """
        if not isinstance(mask, Mask):
            raise TypeError(f"mask must be a Mask, such as Mask(pairs=visible), got {type(mask).__name__}")
        if is_causal:
            mask = CAUSAL if mask is NO_MASK else mask & CAUSAL
        cross = self.is_cross_attention or context is not None
        if cross or x.dim() < 2 or x.shape[-1] != self.dim or position_ids is not None or mask.prefix:
            self._check_inputs(x, context, mask, cache, position_ids)
        positions = position_ids if position_ids is not None else 0 if cache is None or cross else cache.length
        q, k, v = self.query(x), None, None
        if not (cross and cache is not None and cache.length):
            source = x if context is None else context
            k, v = self.key(source), self._mix_values(self.value(source), first_values)
        if len(self.head_groups) == 1:
            return self._project_out([self._attend(0, q, k, v, positions, mask, cache, cross)])
        parts = zip(q.split(self.query_sizes, -1), _split(k, self.key_sizes), _split(v, self.value_sizes), strict=True)
        return self._project_out(
            [self._attend(i, q, k, v, positions, mask, cache, cross) for i, (q, k, v) in enumerate(parts)]
        )

    def cache(self, *, window: int | None = None) -> AttentionCache:
        """Returns an empty cache for decoding.

        Args:
            window: Window of the mask: older keys are dropped.
        """
        if not self.is_cross_attention and hasattr(self.kernel, "cache"):
            return self.kernel.cache()
        if window is None and isinstance(self.kernel, SlidingWindowAttention):
            window = self.kernel.window
        return KVCache(window=window)

    @property
    def uses_absolute_positions(self) -> bool:
        """Whether the output depends on positions themselves, not only on their differences.

        Rotary queries and keys depend on differences only in a dot product, not in the features of linear attention.
        """
        modules = [] if self.rotary is None else self._modules_per_group(self.rotary)
        return bool(modules) and (
            hasattr(self.kernel, "weights") or not all(isinstance(module, RotaryEmbedding) for module in modules)
        )

    def extra_repr(self) -> str:
        group, kernel = self.head_groups[0], self.kernel
        if len(self.head_groups) == 1:
            parts = [f"{self.dim}", f"num_heads={group.num_heads}", f"head_dim={group.key_dim}"]
            if group.num_kv_heads != group.num_heads:
                parts.insert(2, f"num_kv_heads={group.num_kv_heads}")
            if group.value_dim != group.key_dim:
                parts.append(f"value_dim={group.value_dim}")
        else:
            sizes = (f"{g.num_heads} of key {g.key_dim}, value {g.value_dim}" for g in self.head_groups)
            parts = [f"{self.dim}", f"heads=[{'; '.join(sizes)}]"]
        if self.is_cross_attention:
            parts.append(f"context_dim={self.context_dim}")
        if kernel is not fused_attention:
            parts.append(f"kernel={getattr(kernel, '__name__', kernel)}")
        return ", ".join(parts + ([f"dropout={self.dropout}"] if self.dropout else []))

    def qk_factors(self, head: int) -> tuple[Float[Tensor, "d k"], Float[Tensor, "k e"]]:
        r"""Returns the factors $(W^Q_h)^\top$ and $W^K_h$ of the scores of a head, without biases, norms and positions.

        $$s_{ij} = \tfrac{1}{\sqrt{k}} \, x_i^\top (W^Q_h)^\top W^K_h \, x_j$$

        Reference:
            Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

        Args:
            head: Index of the head.
        """
        i, group, head, kv_head = self._find_head(head)
        query = self.query.weight.split(self.query_sizes)[i].unflatten(0, (-1, group.key_dim))
        key = self.key.weight.split(self.key_sizes)[i].unflatten(0, (-1, group.key_dim))
        return query[head].mT, key[kv_head]

    def ov_factors(self, head: int) -> tuple[Float[Tensor, "d v"], Float[Tensor, "v e"]]:
        r"""Returns the factors $W^O_h$ and $W^V_h$ of the output of a head, without biases.

        $$y_i = \sum_h \sum_j w^h_{ij} \, W^O_h W^V_h \, x_j$$

        Args:
            head: Index of the head.
        """
        i, group, head, kv_head = self._find_head(head)
        value = self.value.weight.split(self.value_sizes)[i].unflatten(0, (-1, group.value_dim))
        out = self.out.weight.split(self.out_sizes, dim=1)[i].unflatten(1, (-1, group.value_dim))
        return out[:, head], value[kv_head]

    def qk_matrix(self, head: int) -> Float[Tensor, "d e"]:
        r"""Returns the QK matrix $(W^Q_h)^\top W^K_h$ of a head, the bilinear form of its scores times $\sqrt{k}$."""
        left, right = self.qk_factors(head)
        return left @ right

    def ov_matrix(self, head: int) -> Float[Tensor, "d e"]:
        """Returns the OV matrix $W^O_h W^V_h$ of a head, the linear map from its input to its output."""
        left, right = self.ov_factors(head)
        return left @ right

    def _attend(
        self,
        i: int,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        positions: Tensor | int,
        mask: Mask,
        cache: AttentionCache | None,
        cross: bool,
    ) -> Float[Tensor, "*batch h t v"]:
        """Output of the heads of group i."""
        group, suffix = self.head_groups[i], "" if len(self.head_groups) == 1 else str(i)
        q = tap("q" + suffix, self._place(i, q, group.num_heads, self.query_norm, positions))
        if k is not None and v is not None:
            k = tap("k" + suffix, self._place(i, k, group.num_kv_heads, self.key_norm, 0 if cross else positions))
            v = tap("v" + suffix, split_heads(v, group.num_kv_heads))
        bias = None if self.position_bias is None else self._bias(i, positions, k if cross else None)
        kernel = self.kernel
        if cross and mask.window is None and isinstance(kernel, SlidingWindowAttention):
            kernel = fused_attention
        z = attend_with_cache(
            kernel,
            q,
            k,
            v,
            mask=mask,
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            cache=cache,
            group=i,
            suffix=suffix,
        )
        return tap("z" + suffix, z)

    def _place(self, i: int, x: Tensor, num_heads: int, norm: nn.Module | None, positions: Tensor | int) -> Tensor:
        """Splits queries or keys of group i into heads, normalizes and rotates them."""
        x = split_heads(x, num_heads, None if norm is None else _of_group(norm, i))
        return x if self.rotary is None else _of_group(self.rotary, i)(x, positions)

    def _bias(self, i: int, positions: Tensor | int, context_keys: Tensor | None) -> Tensor | Bias | None:
        """The bias of the scores of group i: a tensor for given positions, otherwise a function of positions."""
        module = self.position_bias
        if len(self.head_groups) > 1:
            module = partial(_bias_of_heads, module, self._heads_of_group(i))
        if module is None or not isinstance(positions, Tensor):
            return module
        keys = positions
        if context_keys is not None:
            keys = torch.arange(context_keys.shape[-2], device=positions.device).expand(*positions.shape[:-1], -1)
        return module(positions, keys)

    def _mix_values(self, v: Tensor, first_values: list[Tensor] | None) -> Tensor:
        if first_values is None:
            return v
        if not first_values:
            first_values.append(v)
            return v
        return v if self.value_residual is None else self.value_residual(v, first_values[0])

    def _project_out(self, heads: list[Tensor]) -> Tensor:
        """Applies the output projection to the heads of all groups."""
        if not is_recorded("heads"):
            z = [merge_heads(x) for x in heads]
            return self.out(z[0] if len(z) == 1 else torch.cat(z, dim=-1))
        parts = zip(heads, self.out.weight.split(self.out_sizes, dim=1), self.head_groups, strict=True)
        outputs = [torch.einsum("...htv,dhv->...htd", z, w.unflatten(1, (g.num_heads, -1))) for z, w, g in parts]
        y = tap("heads", torch.cat(outputs, dim=-3)).sum(-3)
        return y if self.out.bias is None else y + self.out.bias

    def _heads_of_group(self, i: int) -> slice:
        first = sum(group.num_heads for group in self.head_groups[:i])
        return slice(first, first + self.head_groups[i].num_heads)

    def _find_head(self, head: int) -> tuple[int, HeadGroup, int, int]:
        """The group of a head (index and sizes), and the index of the head and of its key/value head there."""
        for i, group in enumerate(self.head_groups):
            heads = self._heads_of_group(i)
            if heads.start <= head < heads.stop:
                local = head - heads.start
                return i, group, local, local * group.num_kv_heads // group.num_heads
        raise IndexError(f"head must be in [0, {self.num_heads}), got {head}")

    def _per_group(self, modules: nn.Module | Sequence[nn.Module] | None) -> nn.Module | None:
        """One module for all head groups, or a list with one for each."""
        if not isinstance(modules, Sequence):
            return modules
        if len(modules) != len(self.head_groups):
            raise ValueError(f"expected one module per head size ({len(self.head_groups)}), got {len(modules)}")
        return modules[0] if len(modules) == 1 else nn.ModuleList(modules)

    def _modules_per_group(self, module: nn.Module) -> list[nn.Module]:
        return list(module) if isinstance(module, nn.ModuleList) else [module] * len(self.head_groups)

    def _check_positions(self) -> None:
        for group, module in zip(self.head_groups, self._modules_per_group(self.rotary or nn.Identity()), strict=True):
            if isinstance(module, RotaryEmbedding) and module.head_dim != group.key_dim:
                remedy = "" if len(self.head_groups) == 1 else " (pass one RotaryEmbedding per head size)"
                raise ValueError(f"rotary must have head_dim={group.key_dim}, got {module.head_dim}{remedy}")
        expected = getattr(self.position_bias, "num_heads", self.num_heads)
        if isinstance(expected, int) and expected != self.num_heads:
            name = type(self.position_bias).__name__
            raise ValueError(f"position_bias must have num_heads={self.num_heads}, got {name}({expected})")

    def _check_inputs(
        self,
        x: Tensor,
        context: Tensor | None,
        mask: Mask,
        cache: AttentionCache | None,
        position_ids: Tensor | None,
    ) -> None:
        length = 0 if cache is None else cache.length
        if x.dim() < 2 or x.shape[-1] != self.dim:
            raise ValueError(f"expected x of shape (*batch, t, {self.dim}), got {tuple(x.shape)}")
        if context is not None and context.shape[-1] != self.context_dim:
            raise ValueError(f"expected context of shape (*batch, s, {self.context_dim}), got {tuple(context.shape)}")
        if self.is_cross_attention and context is None and not length:
            raise ValueError("cross-attention needs a context, or a cache that has read one")
        if mask.causal and 0 < length < mask.prefix:
            raise ValueError(f"the mask's prefix of {mask.prefix} tokens must be in one piece, got {length} first")
        if position_ids is not None and cache is not None and self.position_bias is not None:
            name = type(self.position_bias).__name__
            raise ValueError(
                f"position_ids cannot be combined with a cache and {name}, which uses the cache's positions"
            )


def _uniform_heads(dim: int, num_heads: int, num_kv_heads: int | None, head_dim: int | None) -> HeadSpec:
    if num_heads < 1:
        raise ValueError(f"num_heads must be at least 1, got {num_heads}")
    if head_dim is None and dim % num_heads:
        raise ValueError(f"num_heads must divide dim: got dim={dim}, num_heads={num_heads}")
    if num_kv_heads is not None and (num_kv_heads < 1 or num_heads % num_kv_heads):
        raise ValueError(f"num_kv_heads must divide num_heads: got num_heads={num_heads}, num_kv_heads={num_kv_heads}")
    return HeadSpec(dim // num_heads if head_dim is None else head_dim, count=num_heads, groups=num_kv_heads)


def _split(x: Tensor | None, sizes: list[int]) -> Sequence[Tensor | None]:
    return [None] * len(sizes) if x is None else x.split(sizes, dim=-1)


def _of_group(module: nn.Module, i: int) -> nn.Module:
    return module[i] if isinstance(module, nn.ModuleList) else module


def _bias_of_heads(bias: Any, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
    return bias(queries, keys)[..., heads, :, :]


def claims() -> Iterator[Claim]:
    """Laws of multi-head attention."""
    plain = MultiHeadAttention(4, num_heads=2)
    layer = MultiHeadAttention(4, num_heads=2, qk_norm=True, rotary=RotaryEmbedding(2), position_bias=ALiBi(2))

    def causal(x: Tensor) -> Tensor:
        return layer(x, is_causal=True)

    def padded(x: Tensor, padding: Tensor) -> Tensor:
        return layer(x, mask=Mask(padding=padding))

    yield Claim(permutation_equivariance(axis=1), plain, shape("b t 4"), name="without positions")
    yield Claim(every_input_matters(), plain, (shape("b t 4"), shape("b s 4")), name="cross-attention")
    yield Claim(causality(), causal, shape("b t 4"), name="causal, with QK norm, rotary embedding and ALiBi")
    yield Claim(masked_positions_have_no_influence(), padded, (shape("b t 4"), mask_domain("b t")), name="padded")
    for window in (None, 3):
        mask = Mask(causal=True, window=window)

        def full(x: Tensor, mask: Mask = mask) -> Tensor:
            return layer(x, mask=mask)

        def step(x: Tensor, cache: Any, mask: Mask = mask) -> tuple[Tensor, Any]:
            cache = layer.cache(window=mask.window) if cache is None else cache
            return layer(x, mask=mask, cache=cache), cache

        yield Claim(cached_decoding(step=step), full, shape("b t:1..9 4"), name=f"KV cache, {window=}")
