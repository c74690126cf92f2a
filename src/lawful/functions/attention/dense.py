"""The steps of attention: scores, their softmax under a mask, and the average of the values.

Attention, step by step: similarities, their softmax, and the average of the values.
Attention in one kernel: PyTorch's own, with masks aligned to the last key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.attention.masks import CAUSAL, NO_MASK, Mask, positions
from lawful.laws import (
    AtMost,
    Claim,
    Statement,
    agreement,
    causality,
    fully_masked_row_is_finite,
    gradient,
    invariance,
    law,
    masked_positions_have_no_influence,
    permutation_equivariance,
    second_order_gradient,
    shape,
    sums_to_one,
    tokens,
)
from lawful.laws import mask as mask_of

Bias = Callable[[Tensor, Tensor], Tensor]


def attention_weights(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    *,
    mask: Mask = NO_MASK,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch h t s"]:
    r"""Returns how much each query attends to each key: probabilities over the keys that it sees.

    $$w_{ij} = \operatorname{softmax}_j \Bigl( \frac{q_i \cdot k_j}{\sqrt{k}} + b_{ij} \Bigr)$$

    Args:
        q: The queries $q_i$.
        k: The keys $k_j$.
        mask: Which keys each query sees; a row without any is 0.
        bias: $b$, or a function of the positions of queries and keys that gives it.
        scale: What the dot products are multiplied by; $1 / \sqrt{k}$ unless given.

    Examples:
        >>> attention_weights(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), mask=CAUSAL)
        tensor([[[1.0000, 0.0000],
                 [0.5000, 0.5000]]])
    """
    return masked_softmax(attention_scores(q, k, bias=bias, scale=scale), mask=mask)


def attention_scores(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    *,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch h t s"]:
    r"""Compares each query with each key.

    $$\frac{q_i \cdot k_j}{\sqrt{k}} + b_{ij}$$

    Args:
        q: The queries $q_i$.
        k: The keys $k_j$.
        bias: $b$, or a function of the positions of queries and keys that gives it.
        scale: What the dot products are multiplied by; $1 / \sqrt{k}$ unless given.

    Examples:
        >>> attention_scores(torch.ones(1, 1, 4), torch.ones(1, 2, 4))
        tensor([[[2., 2.]]])
    """
    scores = (q * scale_of(q, scale)) @ for_each_head(k, q.shape[-3]).mT
    bias = bias_between(bias, q.shape[-2], k.shape[-2], q.device)
    return scores if bias is None else scores + bias.to(scores.dtype)


def masked_softmax(scores: Float[Tensor, "*batch h t s"], *, mask: Mask) -> Float[Tensor, "*batch h t s"]:
    """Turns scores into probabilities over the keys that the mask shows; a row without any becomes 0.

    Examples:
        >>> masked_softmax(torch.zeros(1, 2, 2), mask=CAUSAL)
        tensor([[[1.0000, 0.0000],
                 [0.5000, 0.5000]]])
    """
    t, s = scores.shape[-2:]
    seen = mask.dense(t, s, scores.device)
    if seen is None:
        return scores.softmax(-1)
    seen = seen.unsqueeze(-3)
    some = seen.any(-1, keepdim=True)
    return scores.masked_fill(some & ~seen, -torch.inf).softmax(-1).masked_fill(~some, 0.0)


def apply_weights(
    weights: Float[Tensor, "*batch h t s"], v: Float[Tensor, "*batch g s v"]
) -> Float[Tensor, "*batch h t v"]:
    """Averages the values by given weights.

    Examples:
        >>> apply_weights(torch.tensor([[[0.25, 0.75]]]), torch.tensor([[[0.0], [4.0]]]))
        tensor([[[3.]]])
    """
    return weights @ for_each_head(v, weights.shape[-3])


def scale_of(q: Tensor, scale: float | None) -> float:
    """The factor of the dot products."""
    return q.shape[-1] ** -0.5 if scale is None else scale


def for_each_head(x: Tensor, heads: int) -> Tensor:
    """Repeats each head of keys or values for the queries' heads that it serves."""
    groups = x.shape[-3]
    if groups == heads:
        return x
    if heads % groups:
        raise ValueError(f"the heads of keys must divide those of queries: got h={heads}, g={groups}")
    return x.repeat_interleave(heads // groups, dim=-3)


def bias_between(bias: Tensor | Bias | None, t: int, s: int, device: torch.device) -> Tensor | None:
    """The bias of the last t queries over s keys."""
    if bias is None or isinstance(bias, Tensor):
        return bias
    return bias(*positions(t, s, device))


def _scores_claims() -> Iterator[Claim]:
    """The laws that the steps of attention obey."""
    heads = shape("b 4 t 3"), shape("b 2 s 3")

    def equation(q: Tensor, k: Tensor, b: Tensor) -> Tensor:
        k = torch.stack([k[:, 0], k[:, 0], k[:, 1], k[:, 1]], 1)
        return 0.7 * torch.einsum("bhtk,bhsk->bhts", q, k) + b

    def biased(q: Tensor, k: Tensor, b: Tensor) -> Tensor:
        return attention_scores(q, k, bias=b, scale=0.7)

    def sloped(q: Tensor, k: Tensor) -> Tensor:
        return attention_scores(q, k, bias=lambda i, j: -(i.unsqueeze(-1) - j).abs().to(q))

    def by_distance(q: Tensor, k: Tensor) -> Tensor:
        t, s = q.shape[-2], k.shape[-2]
        away = q.new_tensor([[-abs(s - t + i - j) for j in range(s)] for i in range(t)])
        return torch.einsum("bhtk,bhsk->bhts", q, k) / 3**0.5 + away

    def weighed(q: Tensor, k: Tensor, b: Tensor) -> Tensor:
        return attention_weights(q, k, bias=b, scale=0.7)

    def weighed_equation(q: Tensor, k: Tensor, b: Tensor) -> Tensor:
        scores = equation(q, k, b)
        return (scores - scores.logsumexp(-1, keepdim=True)).exp()

    def padded(x: Tensor, present: Tensor) -> Tensor:
        return masked_softmax(x, mask=Mask(padding=present))

    def padded_equation(x: Tensor, present: Tensor) -> Tensor:
        x = torch.where(present[:, None, None, :], x, -torch.inf)
        weights = (x - x.logsumexp(-1, keepdim=True)).exp()
        return torch.where(present.any(-1)[:, None, None, None], weights, 0.0)

    def causal(q: Tensor, k: Tensor) -> Tensor:
        return attention_weights(q, k, mask=CAUSAL)

    def average(w: Tensor, v: Tensor) -> Tensor:
        return torch.stack([torch.einsum("bts,bsv->btv", w[:, h], v[:, h // 2]) for h in range(4)], 1)

    shifted = invariance(sample=lambda draw: draw.normal(3), act=lambda c, k: k + c, input=1)
    yield Claim(agreement(other=equation), biased, (*heads, shape("4 t s")), name="attention_scores, biased")
    alike = shape("b 2 t 3"), shape("b 2 s 3")
    yield Claim(agreement(other=by_distance), sloped, alike, name="attention_scores, biased by positions")
    yield Claim(agreement(other=weighed_equation), weighed, (*heads, shape("4 t s")), name="attention_weights, biased")
    inputs = shape("b 2 t s"), mask_of("b s")
    yield Claim(agreement(other=padded_equation), padded, inputs, name="masked_softmax, padded")
    yield Claim(fully_masked_row_is_finite(), padded, inputs, name="masked_softmax, padded")
    yield Claim(sums_to_one(axis=-1), causal, (shape("b 4 t 3"), shape("b 2 t 3")), name="attention_weights, causal")
    yield Claim(shifted, attention_weights, heads, name="attention_weights, all keys moved")
    yield Claim(agreement(other=average), apply_weights, (shape("b 4 t s"), shape("b 2 s 3")))


Kernel = Callable[..., Tensor]


def reference_attention(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    v: Float[Tensor, "*batch g s v"],
    *,
    mask: Mask = NO_MASK,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch h t v"]:
    r"""Averages the values by how similar their keys are to a query.

    $$y_i = \sum_j w_{ij} \, v_j, \qquad
    w_{ij} = \operatorname{softmax}_j \Bigl( \frac{q_i \cdot k_j}{\sqrt{k}} + b_{ij} \Bigr)$$

    Keys that the mask hides have weight 0, and a query that sees no key gives 0. Every intermediate is there, which
    takes memory in $t s$; all derivatives exist.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        q: The queries $q_i$.
        k: The keys $k_j$. Where there are fewer heads of keys than of queries, each serves as many in a row.
        v: The values $v_j$.
        mask: Which keys each query sees.
        bias: $b$, that broadcasts to (*batch, h, t, s), or a function of the positions of queries and keys.
        scale: What the dot products are multiplied by; $1 / \sqrt{k}$ unless given.

    Examples:
        >>> q = k = torch.zeros(1, 2, 3)
        >>> reference_attention(q, k, torch.tensor([[[0.0], [1.0]]]))
        tensor([[[0.5000],
                 [0.5000]]])
    """
    weights = attention_weights(q, k, mask=mask, bias=bias, scale=scale)
    return apply_weights(weights, v)


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
    """Attends with queries, keys and values that have no axis of heads."""
    q, k, v = (x.unsqueeze(-3) for x in (q, k, v))
    return kernel(q, k, v, mask=mask, bias=bias, scale=scale).squeeze(-3)


@law("min_j v_j ≤ f(q, k, v)_i ≤ max_j v_j", discover_with=None)
def between_values(f: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor) -> Statement:
    """What attention returns lies between the values, entry by entry: it is an average of them.

    Satisfied by: attention with a softmax; a kernel regression.
    Broken by: weights that do not add up to one, or are negative; a residual connection.
    """
    y = f(q, k, v)
    low, high = v.amin(-2, keepdim=True), v.amax(-2, keepdim=True)
    return AtMost((low.expand_as(y), y), (y, high.expand_as(y)), names=("min v", "y"))


def _plain_claims() -> Iterator[Claim]:
    """The laws that attention obeys."""
    heads = shape("b 2 t 3"), shape("b 2 s 3"), shape("b 2 s 4")

    def equation(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.einsum("bhtk,bhsk->bhts", q, k) / 3**0.5
        return torch.einsum("bhts,bhsv->bhtv", (scores - scores.logsumexp(-1, keepdim=True)).exp(), v)

    def padded(x: Tensor, present: Tensor) -> Tensor:
        return single_head(reference_attention, x, x, x, mask=Mask(padding=present))

    def padded_equation(x: Tensor, present: Tensor) -> Tensor:
        scores = torch.einsum("btk,bsk->bts", x, x) / 3**0.5
        scores = torch.where(present.unsqueeze(-2), scores, -torch.inf)
        weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
        return torch.einsum("bts,bsv->btv", torch.where(present.any(-1)[:, None, None], weights, 0.0), x)

    def headless(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return single_head(reference_attention, q, k, v)

    def causal(x: Tensor) -> Tensor:
        return single_head(reference_attention, x, x, x, mask=CAUSAL)

    def everyone(x: Tensor) -> Tensor:
        return single_head(reference_attention, x, x, x)

    yield Claim(agreement(other=equation), reference_attention, heads)
    yield Claim(between_values(), reference_attention, heads)
    yield Claim(second_order_gradient(), reference_attention, heads)
    one = replace(agreement(other=lambda q, k, v: equation(*(x[:, None] for x in (q, k, v)))[:, 0]), cases=20)
    yield Claim(one, headless, (shape("b t 3"), shape("b s 3"), shape("b s 4")), name="in_one_head")
    inputs = shape("b t 3"), mask_of("b t")
    yield Claim(agreement(other=padded_equation), padded, inputs, name="plain_attention, padded")
    yield Claim(masked_positions_have_no_influence(), padded, inputs, name="plain_attention, padded")
    yield Claim(fully_masked_row_is_finite(), padded, inputs, name="plain_attention, padded")
    yield Claim(causality(), causal, shape("b t 3"), name="plain_attention, causal")
    yield Claim(permutation_equivariance(), everyone, shape("b t 3"), name="plain_attention")


def fused_attention(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    v: Float[Tensor, "*batch g s v"],
    *,
    mask: Mask = NO_MASK,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch h t v"]:
    r"""Averages the values as `reference_attention` does, without ever holding all the weights.

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
        >>> torch.allclose(fused_attention(q, k, v), reference_attention(q, k, v), atol=1e-6)
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


MASKS = NO_MASK, CAUSAL, Mask(causal=True, prefix=2), Mask(window=2), Mask(causal=True, window=3)


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
        yield Claim(agreement(other=masked(reference_attention)), masked(kernel), tuple(map(shape, axes)), name=name)
    inputs = *[shape("b 2 t 3")] * 3, shape("2 t t"), mask_of("b t"), tokens("b t", vocab_size=2)
    yield Claim(agreement(other=filled(reference_attention)), filled(kernel), inputs, name=f"{name}, biased and padded")


def _fused_claims() -> Iterator[Claim]:
    """The laws that fused attention obeys."""
    yield from agrees("fused_attention", fused_attention, MASKS)
    heads = shape("b 4 t 3"), shape("b 2 s 3"), shape("b 2 s 2")
    yield Claim(gradient(), fused_attention, heads)

    def causal(x: Tensor) -> Tensor:
        return single_head(fused_attention, x, x, x, mask=CAUSAL)

    def padded(x: Tensor, present: Tensor) -> Tensor:
        return single_head(fused_attention, x, x, x, mask=Mask(padding=present))

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
    same = agreement(other=shaped(reference_attention))
    yield Claim(same, shaped(fused_attention), axes, name="fused_attention, batches")
    yield Claim(causality(), causal, shape("b t 3"), name="fused_attention, causal")
    for rule in (masked_positions_have_no_influence(), fully_masked_row_is_finite()):
        yield Claim(rule, padded, (shape("b t 3"), mask_of("b t")), name="fused_attention, padded")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _scores_claims()
    yield from _plain_claims()
    yield from _fused_claims()
