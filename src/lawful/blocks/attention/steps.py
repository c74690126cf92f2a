"""The steps of a layer of attention: into heads, attention with a tap at each step, and out of heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.attention.cache import KeyValues, over_last
from lawful.functions.attention import (
    CAUSAL,
    Linear,
    Mask,
    apply_weights,
    attention_scores,
    fused_attention,
    masked_softmax,
)
from lawful.functions.attention.plain import Bias
from lawful.functions.tap import tap, tapped
from lawful.laws import Claim, agreement, shape
from lawful.laws import mask as masks

Kernel = Callable[..., Tensor]


def in_heads(
    x: Float[Tensor, "*batch t hk"], count: int, norm: nn.Module | None = None
) -> Float[Tensor, "*batch h t k"]:
    """Takes apart heads that stand side by side, and normalises each; for a single position without a transpose.

    Examples:
        >>> in_heads(torch.zeros(2, 5, 12), 3).shape
        torch.Size([2, 3, 5, 4])
    """
    one, size = x.shape[-2] == 1, x.shape[-1] // count
    x = x.view(*x.shape[:-2], count, 1, size) if one else x.view(*x.shape[:-1], count, size)
    if norm is not None:
        x = norm(x)
    return x if one else x.transpose(-3, -2)


def side_by_side(z: Float[Tensor, "*batch h t v"]) -> Float[Tensor, "*batch t hv"]:
    """Puts heads side by side, as one vector.

    Examples:
        >>> side_by_side(torch.zeros(2, 3, 5, 4)).shape
        torch.Size([2, 5, 12])
    """
    *batch, h, t, v = z.shape
    return z.reshape(*batch, 1, h * v) if t == 1 else z.transpose(-3, -2).flatten(-2)


def attended(
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
    """Attends to new keys and values and to those of a cache, which takes the new ones in; with the taps of `watched`.

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
    apart = tapped("scores" + name, "pattern" + name)
    if isinstance(cache, KeyValues):
        k, v = cache.all() if k is None or v is None else cache.append(k, v)
        mask = over_last(mask, k.shape[-2], seen=cache.length)
    elif cache is not None:
        if apart:
            raise LookupError(f"a {type(cache).__name__} keeps no keys to make a pattern of: record without it")
        t = q.shape[-2]
        return cache.attend(q, k, v, mask=over_last(mask, t, seen=cache.length + t), bias=bias)
    return watched(kernel, name, q, k, v, mask=mask, bias=bias) if apart else kernel(q, k, v, mask=mask, bias=bias)


def watched(
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


def claims() -> Iterator[Claim]:
    """The laws that the steps obey."""

    def by_hand(x: Tensor) -> Tensor:
        return torch.stack([x[..., :2], x[..., 2:4], x[..., 4:]], dim=-3)

    def there_and_back(x: Tensor) -> Tensor:
        return side_by_side(in_heads(x, 3))

    def fused(q: Tensor, k: Tensor) -> Tensor:
        return fused_attention(q, k, k, mask=CAUSAL, bias=torch.ones(3, 1))

    def step_by_step(q: Tensor, k: Tensor) -> Tensor:
        return watched(fused_attention, "", q, k, k, mask=CAUSAL, bias=torch.ones(3, 1))

    for kernel, window in ((fused_attention, 2), (Linear(), None)):

        def in_two(x: Tensor, there: Tensor, kernel: Any = kernel, window: int | None = window) -> Tensor:
            cache = kernel.cache() if window is None else KeyValues(window=window)
            found = []
            for part, seen in zip(x.split((3, 1), -2), (there[:, :3], there), strict=True):
                rule = Mask(causal=True, window=window, padding=seen)
                found.append(attended(kernel, part, part, part, mask=rule, cache=cache))
            return torch.cat(found, -2)

        def at_once(x: Tensor, there: Tensor, kernel: Kernel = kernel, window: int | None = window) -> Tensor:
            return kernel(x, x, x, mask=Mask(causal=True, window=window, padding=there))

        few = replace(agreement(other=at_once), cases=20)
        yield Claim(few, in_two, (shape("b 2 4 3"), masks("b 4")), name=f"attended, with a cache and {window=}")

    yield Claim(agreement(other=by_hand), lambda x: in_heads(x, 3), shape("b t:1..4 6"), name="in_heads")
    yield Claim(agreement(other=lambda x: 1 * x), there_and_back, shape("b t:1..4 6"), name="there and back")
    yield Claim(agreement(other=fused), step_by_step, (shape("b 2 3 4"), shape("b 1 5 4")), name="watched")
