"""Attention in one kernel: PyTorch's own, with masks aligned to the last key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.attention.masks import CAUSAL, EVERYTHING, Mask
from lawful.functions.attention.plain import Kernel, in_one_head, plain_attention
from lawful.functions.attention.scores import Bias, bias_between, scale_of
from lawful.laws import (
    Claim,
    agreement,
    causality,
    fully_masked_row_is_finite,
    gradient,
    masked_positions_have_no_influence,
    shape,
    tokens,
)
from lawful.laws import mask as mask_of


def fused_attention(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    v: Float[Tensor, "*batch g s v"],
    *,
    mask: Mask = EVERYTHING,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch h t v"]:
    r"""Averages the values as `plain_attention` does, without ever holding all the weights.

    $$y_i = \sum_j \operatorname{softmax}_j \Bigl( \frac{q_i \cdot k_j}{\sqrt{k}} + b_{ij} \Bigr) \, v_j$$

    PyTorch's kernel aligns its causal mask to the first key: it is used where there are as many queries as keys, and a
    single query needs none. It wants four axes, and keys as wide as values: the narrower ones are filled up with zeros,
    which change nothing. A bias that is learned takes memory in $t s$. There are no second derivatives on the CPU.

    Reference:
        Dao, Fu, Ermon, Rudra and Ré, *FlashAttention*, 2022.

    Args:
        q: The queries $q_i$.
        k: The keys $k_j$. Where there are fewer heads of keys than of queries, each serves as many in a row.
        v: The values $v_j$.
        mask: Which keys each query sees; one that sees none gives 0.
        bias: $b$, that broadcasts to (*batch, h, t, s), or a function of the positions of queries and keys.
        scale: What the dot products are multiplied by; $1 / \sqrt{k}$ unless given.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 2, 4, 8)
        >>> torch.allclose(fused_attention(q, k, v), plain_attention(q, k, v), atol=1e-6)
        True
    """
    batch, (h, t, width), (g, s) = q.shape[:-3], q.shape[-3:], k.shape[-3:-1]
    if h % g:
        raise ValueError(f"the heads of keys must divide those of queries: got h={h}, g={g}")
    mask, scale = mask.reduced(t, s), scale_of(q, scale)
    bias = bias_between(bias, t, s, q.device)
    triangle = bias is None and t == s and mask.is_triangle
    added = None if triangle else _added(mask.dense(t, s, q.device), bias, q)
    values, alike = v, v.shape[-1] == width and len(batch) == 1
    if not alike:
        wide = max(width, v.shape[-1])
        q, k, values = (_widened(x, wide).reshape(batch.numel(), *x.shape[-3:-1], wide) for x in (q, k, v))
    fold = t == 1 and h != g and added is None
    if fold:
        q = q.unflatten(1, (g, h // g)).squeeze(3)
    y = F.scaled_dot_product_attention(
        q, k, values, attn_mask=added, is_causal=triangle, scale=scale, enable_gqa=h != g and not fold
    )
    return y if alike and not fold else y[..., : v.shape[-1]].reshape(*batch, h, t, v.shape[-1])


def _widened(x: Tensor, width: int) -> Tensor:
    """The vectors with zeros at their end, so that they are at least that wide."""
    return F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x


def _added(seen: Tensor | None, bias: Tensor | None, q: Tensor) -> Tensor | None:
    """What PyTorch adds to the scores: a mask, a bias, or both in one, with four axes."""
    if bias is not None:
        added = bias.to(q.dtype)
        added = added if seen is None else added.masked_fill(~seen.unsqueeze(-3), -torch.inf)
    elif seen is not None:
        added = seen.unsqueeze(-3)
    else:
        return None
    if added.dim() < 4:
        return added.reshape(*(1,) * (4 - added.dim()), *added.shape)
    if q.dim() == 4:
        return added
    return added.expand(*q.shape[:-3], *added.shape[-3:]).reshape(q.shape[:-3].numel(), *added.shape[-3:])


MASKS = EVERYTHING, CAUSAL, Mask(causal=True, prefix=2), Mask(window=2), Mask(causal=True, window=3)


def agrees(name: str, kernel: Kernel, masks: Sequence[Mask]) -> Iterator[Claim]:
    """Claims that a kernel gives what the plain form gives under each of some masks, padded or not, and with biases."""

    def masked(f: Kernel) -> Kernel:
        return lambda q, k, v: torch.stack([f(q, k, v, mask=mask, scale=0.5) for mask in masks])

    def filled(f: Kernel) -> Kernel:
        def over_masks(q: Tensor, k: Tensor, v: Tensor, b: Tensor, p: Tensor, d: Tensor) -> Tensor:
            there = Mask(padding=p, documents=d)
            return torch.stack([f(q, k, v, bias=b, mask=mask & there) for mask in masks])

        return over_masks

    for axes in (("b 4 t 3", "b 2 s 3", "b 2 s 2"), ("b 2 t 2", "b 2 t 2", "b 2 t 3")):
        yield Claim(agreement(other=masked(plain_attention)), masked(kernel), tuple(map(shape, axes)), name=name)
    inputs = *[shape("b 2 t 3")] * 3, shape("2 t t"), mask_of("b t"), tokens("b t", vocab=2)
    yield Claim(agreement(other=filled(plain_attention)), filled(kernel), inputs, name=f"{name}, biased and padded")


def claims() -> Iterator[Claim]:
    """The laws that fused attention obeys."""
    yield from agrees("fused_attention", fused_attention, MASKS)
    heads = shape("b 4 t 3"), shape("b 2 s 3"), shape("b 2 s 2")
    yield Claim(gradient(), fused_attention, heads)

    def causal(x: Tensor) -> Tensor:
        return in_one_head(fused_attention, x, x, x, mask=CAUSAL)

    def padded(x: Tensor, present: Tensor) -> Tensor:
        return in_one_head(fused_attention, x, x, x, mask=Mask(padding=present))

    def shaped(f: Kernel) -> Kernel:
        def over_batches(q: Tensor, k: Tensor, v: Tensor, p: Tensor) -> Tensor:
            found, last = [], q[..., -1:, :]
            for n in range(3):
                inputs = [x[(0,) * n] for x in (q, k, v)]
                found += [f(*inputs, mask=mask) for mask in (CAUSAL, Mask(padding=p[(0,) * n]))]
            found += [f(last, k, v, mask=mask) for mask in (CAUSAL, Mask(padding=p))] + [f(last[0], k[0], v[0])]
            found += [f(q, k, v, bias=lambda i, j: (i.unsqueeze(-1) + 2.0 * j).to(q))]
            return torch.cat([y.flatten() for y in found])

        return over_batches

    axes = shape("a b 4 t 3"), shape("a b 2 s 3"), shape("a b 2 s 3"), mask_of("a b s")
    same = agreement(other=shaped(plain_attention))
    yield Claim(same, shaped(fused_attention), axes, name="fused_attention, batches")
    yield Claim(causality(), causal, shape("b t 3"), name="fused_attention, causal")
    for rule in (masked_positions_have_no_influence(), fully_masked_row_is_finite()):
        yield Claim(rule, padded, (shape("b t 3"), mask_of("b t")), name="fused_attention, padded")
