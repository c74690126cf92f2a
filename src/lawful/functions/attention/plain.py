"""Attention, step by step: similarities, their softmax, and the average of the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.attention.masks import CAUSAL, EVERYTHING, Mask
from lawful.functions.attention.scores import Bias, apply_weights, attention_weights
from lawful.laws import (
    AtMost,
    Claim,
    Statement,
    agreement,
    causality,
    fully_masked_row_is_finite,
    law,
    masked_positions_have_no_influence,
    permutation_equivariance,
    second_order_gradient,
    shape,
)
from lawful.laws import mask as mask_of

Kernel = Callable[..., Tensor]


def plain_attention(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    v: Float[Tensor, "*batch g s v"],
    *,
    mask: Mask = EVERYTHING,
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
        >>> plain_attention(q, k, torch.tensor([[[0.0], [1.0]]]))
        tensor([[[0.5000],
                 [0.5000]]])
    """
    weights = attention_weights(q, k, mask=mask, bias=bias, scale=scale)
    return apply_weights(weights, v)


def in_one_head(
    kernel: Kernel,
    q: Float[Tensor, "*batch t k"],
    k: Float[Tensor, "*batch s k"],
    v: Float[Tensor, "*batch s v"],
    *,
    mask: Mask = EVERYTHING,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch t v"]:
    """Attends with queries, keys and values that have no axis of heads."""
    q, k, v = (x.unsqueeze(-3) for x in (q, k, v))
    return kernel(q, k, v, mask=mask, bias=bias, scale=scale).squeeze(-3)


@law("min_j v_j ≤ f(q, k, v)_i ≤ max_j v_j", tries=None)
def between_values(f: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor) -> Statement:
    """What attention returns lies between the values, entry by entry: it is an average of them.

    Kept by: attention with a softmax; a kernel regression.
    Broken by: weights that do not add up to one, or are negative; a residual connection.
    """
    y = f(q, k, v)
    low, high = v.amin(-2, keepdim=True), v.amax(-2, keepdim=True)
    return AtMost((low.expand_as(y), y), (y, high.expand_as(y)), names=("min v", "y"))


def claims() -> Iterator[Claim]:
    """The laws that attention obeys."""
    heads = shape("b 2 t 3"), shape("b 2 s 3"), shape("b 2 s 4")

    def equation(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.einsum("bhtk,bhsk->bhts", q, k) / 3**0.5
        return torch.einsum("bhts,bhsv->bhtv", (scores - scores.logsumexp(-1, keepdim=True)).exp(), v)

    def padded(x: Tensor, present: Tensor) -> Tensor:
        return in_one_head(plain_attention, x, x, x, mask=Mask(padding=present))

    def padded_equation(x: Tensor, present: Tensor) -> Tensor:
        scores = torch.einsum("btk,bsk->bts", x, x) / 3**0.5
        scores = torch.where(present.unsqueeze(-2), scores, -torch.inf)
        weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
        return torch.einsum("bts,bsv->btv", torch.where(present.any(-1)[:, None, None], weights, 0.0), x)

    def headless(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return in_one_head(plain_attention, q, k, v)

    def causal(x: Tensor) -> Tensor:
        return in_one_head(plain_attention, x, x, x, mask=CAUSAL)

    def everyone(x: Tensor) -> Tensor:
        return in_one_head(plain_attention, x, x, x)

    yield Claim(agreement(other=equation), plain_attention, heads)
    yield Claim(between_values(), plain_attention, heads)
    yield Claim(second_order_gradient(), plain_attention, heads)
    one = replace(agreement(other=lambda q, k, v: equation(*(x[:, None] for x in (q, k, v)))[:, 0]), cases=20)
    yield Claim(one, headless, (shape("b t 3"), shape("b s 3"), shape("b s 4")), name="in_one_head")
    inputs = shape("b t 3"), mask_of("b t")
    yield Claim(agreement(other=padded_equation), padded, inputs, name="plain_attention, padded")
    yield Claim(masked_positions_have_no_influence(), padded, inputs, name="plain_attention, padded")
    yield Claim(fully_masked_row_is_finite(), padded, inputs, name="plain_attention, padded")
    yield Claim(causality(), causal, shape("b t 3"), name="plain_attention, causal")
    yield Claim(permutation_equivariance(), everyone, shape("b t 3"), name="plain_attention")
