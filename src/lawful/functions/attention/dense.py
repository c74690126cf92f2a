"""Softmax attention: scores, masked softmax, weighted sum; step by step, and fused by PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.attention.masks import CAUSAL, NO_MASK, Mask, query_key_positions
from lawful.laws import (
    Claim,
    agreement,
    causality,
    convex_combination,
    fully_masked_row_is_finite,
    gradient,
    invariance,
    masked_positions_have_no_influence,
    permutation_equivariance,
    second_order_gradient,
    shape,
    sums_to_one,
)
from lawful.laws import mask as mask_input

Bias = Callable[[Tensor, Tensor], Tensor]
"""Bias of the scores as a function of the positions of queries and keys."""

Kernel = Callable[..., Tensor]
"""Attention function: `kernel(q, k, v, mask=, bias=, scale=)`."""


def attention_scores(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    *,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch h t s"]:
    r"""Scaled dot products of queries and keys.

    $$\frac{q_i \cdot k_j}{\sqrt{k}} + b_{ij}$$

    Args:
        q: Queries $q_i$.
        k: Keys $k_j$.
        bias: Bias $b$, or a function of the positions of queries and keys.
        scale: Factor of the dot products. Defaults to $1 / \sqrt{k}$.

    Examples:
        >>> attention_scores(torch.ones(1, 1, 4), torch.ones(1, 2, 4))
        tensor([[[2., 2.]]])
    """
    scores = (q * _resolve_scale(q, scale)) @ _repeat_kv_heads(k, q.shape[-3]).mT
    bias = _evaluate_bias(bias, q.shape[-2], k.shape[-2], q.device)
    return scores if bias is None else scores + bias.to(scores.dtype)


def masked_softmax(scores: Float[Tensor, "*batch h t s"], *, mask: Mask) -> Float[Tensor, "*batch h t s"]:
    """Softmax over the visible keys; a row without visible keys is 0.

    Args:
        scores: Attention scores.
        mask: Which keys each query sees.

    Examples:
        >>> masked_softmax(torch.zeros(1, 2, 2), mask=CAUSAL)
        tensor([[[1.0000, 0.0000],
                 [0.5000, 0.5000]]])
    """
    t, s = scores.shape[-2:]
    visible = mask.dense(t, s, scores.device)
    if visible is None:
        return scores.softmax(-1)
    visible = visible.unsqueeze(-3)
    some = visible.any(-1, keepdim=True)
    return scores.masked_fill(some & ~visible, -torch.inf).softmax(-1).masked_fill(~some, 0.0)


def attention_weights(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    *,
    mask: Mask = NO_MASK,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch h t s"]:
    r"""Attention weights: probabilities over the visible keys.

    $$w_{ij} = \operatorname{softmax}_j \Bigl( \frac{q_i \cdot k_j}{\sqrt{k}} + b_{ij} \Bigr)$$

    Args:
        q: Queries $q_i$.
        k: Keys $k_j$.
        mask: Which keys each query sees; a row without visible keys is 0.
        bias: Bias $b$, or a function of the positions of queries and keys.
        scale: Factor of the dot products. Defaults to $1 / \sqrt{k}$.

    Examples:
        >>> attention_weights(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), mask=CAUSAL)
        tensor([[[1.0000, 0.0000],
                 [0.5000, 0.5000]]])
    """
    return masked_softmax(attention_scores(q, k, bias=bias, scale=scale), mask=mask)


def apply_weights(
    weights: Float[Tensor, "*batch h t s"], v: Float[Tensor, "*batch g s v"]
) -> Float[Tensor, "*batch h t v"]:
    """Weighted sum of values.

    Args:
        weights: Attention weights.
        v: Values.

    Examples:
        >>> apply_weights(torch.tensor([[[0.25, 0.75]]]), torch.tensor([[[0.0], [4.0]]]))
        tensor([[[3.]]])
    """
    return weights @ _repeat_kv_heads(v, weights.shape[-3])


def reference_attention(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    v: Float[Tensor, "*batch g s v"],
    *,
    mask: Mask = NO_MASK,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch h t v"]:
    r"""Scaled dot-product attention, step by step.

    $$y_i = \sum_j w_{ij} \, v_j, \qquad
    w_{ij} = \operatorname{softmax}_j \Bigl( \frac{q_i \cdot k_j}{\sqrt{k}} + b_{ij} \Bigr)$$

    A query without visible keys gives 0. It materializes all weights, with memory $O(t s)$; all derivatives exist.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        q: Queries $q_i$.
        k: Keys $k_j$; with fewer heads than the queries, each serves a group of consecutive query heads.
        v: Values $v_j$.
        mask: Which keys each query sees.
        bias: Bias $b$ that broadcasts to (*batch, h, t, s), or a function of the positions of queries and keys.
        scale: Factor of the dot products. Defaults to $1 / \sqrt{k}$.

    Examples:
        >>> q = k = torch.zeros(1, 2, 3)
        >>> reference_attention(q, k, torch.tensor([[[0.0], [1.0]]]))
        tensor([[[0.5000],
                 [0.5000]]])
    """
    return apply_weights(attention_weights(q, k, mask=mask, bias=bias, scale=scale), v)


def fused_attention(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    v: Float[Tensor, "*batch g s v"],
    *,
    mask: Mask = NO_MASK,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch h t v"]:
    r"""Scaled dot-product attention by `torch.nn.functional.scaled_dot_product_attention`.

    $$y_i = \sum_j \operatorname{softmax}_j \Bigl( \frac{q_i \cdot k_j}{\sqrt{k}} + b_{ij} \Bigr) \, v_j$$

    PyTorch aligns its causal mask to the first key, ours to the last: `is_causal` is used where both agree. Keys and
    values of different sizes are padded with zeros. A learned bias takes memory $O(t s)$. There are no second
    derivatives on the CPU.

    Reference:
        Dao, Fu, Ermon, Rudra and Ré, *FlashAttention*, 2022.

    Args:
        q: Queries $q_i$.
        k: Keys $k_j$; with fewer heads than the queries, each serves a group of consecutive query heads.
        v: Values $v_j$.
        mask: Which keys each query sees; a query without visible keys gives 0.
        bias: Bias $b$ that broadcasts to (*batch, h, t, s), or a function of the positions of queries and keys.
        scale: Factor of the dot products. Defaults to $1 / \sqrt{k}$.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 2, 4, 8)
        >>> torch.allclose(fused_attention(q, k, v), reference_attention(q, k, v), atol=1e-6)
        True
    """
    batch, (h, t, key_dim), (g, s) = q.shape[:-3], q.shape[-3:], k.shape[-3:-1]
    check_kv_heads(h, g)
    mask, scale = mask.simplify(t, s), _resolve_scale(q, scale)
    bias = _evaluate_bias(bias, t, s, q.device)
    is_causal = False  # a bool also where sizes are symbols
    if bias is None and mask.is_lower_triangular and t == s:
        is_causal = True
    attn_mask = None if is_causal else _attn_mask(mask.dense(t, s, q.device), bias, q)
    values, standard_shape = v, v.shape[-1] == key_dim and len(batch) == 1
    if not standard_shape:
        width = max(key_dim, v.shape[-1])
        q, k, values = (_pad_last(x, width).reshape(batch.numel(), *x.shape[-3:-1], width) for x in (q, k, v))
    fold = t == 1 and h != g and attn_mask is None  # one query per head: heads of a group become queries
    if fold:
        q = q.unflatten(1, (g, h // g)).squeeze(3)
    y = F.scaled_dot_product_attention(
        q, k, values, attn_mask=attn_mask, is_causal=is_causal, scale=scale, enable_gqa=h != g and not fold
    )
    return y if standard_shape and not fold else y[..., : v.shape[-1]].reshape(*batch, h, t, v.shape[-1])


def check_kv_heads(num_heads: int, num_kv_heads: int) -> None:
    """Raises ValueError unless the number of key/value heads divides the number of query heads."""
    if num_heads % num_kv_heads:
        raise ValueError(f"num_kv_heads must divide num_heads: got num_heads={num_heads}, num_kv_heads={num_kv_heads}")


def _resolve_scale(q: Tensor, scale: float | None) -> float:
    return q.shape[-1] ** -0.5 if scale is None else scale


def _repeat_kv_heads(x: Tensor, num_heads: int) -> Tensor:
    """Repeats each key/value head for the query heads of its group."""
    num_kv_heads = x.shape[-3]
    if num_kv_heads == num_heads:
        return x
    check_kv_heads(num_heads, num_kv_heads)
    return x.repeat_interleave(num_heads // num_kv_heads, dim=-3)


def _evaluate_bias(bias: Tensor | Bias | None, t: int, s: int, device: torch.device) -> Tensor | None:
    """Returns the bias of the last t queries over s keys."""
    if bias is None or isinstance(bias, Tensor):
        return bias
    return bias(*query_key_positions(t, s, device))


def _pad_last(x: Tensor, width: int) -> Tensor:
    """Pads the last dimension with zeros to `width`."""
    return F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x


def _attn_mask(visible: Tensor | None, bias: Tensor | None, q: Tensor) -> Tensor | None:
    """Combines mask and bias to the four-dimensional `attn_mask` of PyTorch."""
    if bias is not None:
        attn_mask = bias.to(q.dtype)
        attn_mask = attn_mask if visible is None else attn_mask.masked_fill(~visible.unsqueeze(-3), -torch.inf)
    elif visible is not None:
        attn_mask = visible.unsqueeze(-3)
    else:
        return None
    if attn_mask.dim() < 4:
        return attn_mask.reshape(*(1,) * (4 - attn_mask.dim()), *attn_mask.shape)
    if q.dim() == 4:
        return attn_mask
    return attn_mask.expand(*q.shape[:-3], *attn_mask.shape[-3:]).reshape(q.shape[:-3].numel(), *attn_mask.shape[-3:])


def single_head(
    kernel: Kernel,
    q: Float[Tensor, "*batch t k"],
    k: Float[Tensor, "*batch s k"],
    v: Float[Tensor, "*batch s v"],
    *,
    mask: Mask = NO_MASK,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch t v"]:
    """Calls an attention kernel with one head: tensors without a head dimension.

    Args:
        kernel: Attention function.
        q: Queries.
        k: Keys.
        v: Values.
        mask: Which keys each query sees.
        bias: Bias of the scores.
        scale: Factor of the dot products.

    Examples:
        >>> x = torch.zeros(3, 4)
        >>> single_head(fused_attention, x, x, x).shape
        torch.Size([3, 4])
    """
    q, k, v = (x.unsqueeze(-3) for x in (q, k, v))
    return kernel(q, k, v, mask=mask, bias=bias, scale=scale).squeeze(-3)


def claims() -> Iterator[Claim]:
    """Laws of softmax attention."""
    heads = shape("b 4 t 3"), shape("b 2 s 3"), shape("b 2 s 3")
    shifted = invariance(sample=lambda draw: draw.normal(3), act=lambda c, k: k + c, input=1)
    yield Claim(sums_to_one(), attention_weights, heads[:2])
    yield Claim(shifted, attention_weights, heads[:2], name="attention_weights, all keys shifted")
    yield Claim(second_order_gradient(), reference_attention, heads)
    yield Claim(agreement(other=reference_attention), fused_attention, heads)
    yield Claim(gradient(), fused_attention, heads)
    yield Claim(convex_combination(), fused_attention, (shape("b 2 t 3"), shape("b 2 s 3"), shape("b 2 s 4")))
    for kernel in (reference_attention, fused_attention):

        def attend(x: Tensor, kernel: Kernel = kernel) -> Tensor:
            return single_head(kernel, x, x, x)

        def attend_causal(x: Tensor, kernel: Kernel = kernel) -> Tensor:
            return single_head(kernel, x, x, x, mask=CAUSAL)

        def attend_padded(x: Tensor, valid: Tensor, kernel: Kernel = kernel) -> Tensor:
            return single_head(kernel, x, x, x, mask=Mask(padding=valid))

        name = kernel.__name__
        yield Claim(permutation_equivariance(), attend, shape("b t 3"), name)
        yield Claim(causality(), attend_causal, shape("b t 3"), f"{name}(mask=CAUSAL)")
        for law in (masked_positions_have_no_influence(), fully_masked_row_is_finite()):
            yield Claim(law, attend_padded, (shape("b t 3"), mask_input("b t")), f"{name}(mask=padding)")
