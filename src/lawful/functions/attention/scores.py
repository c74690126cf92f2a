"""The steps of attention: scores, their softmax under a mask, and the average of the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.attention.masks import CAUSAL, EVERYTHING, Mask, positions
from lawful.laws import Claim, agreement, fully_masked_row_is_finite, invariance, shape, sums_to_one
from lawful.laws import mask as mask_of

Bias = Callable[[Tensor, Tensor], Tensor]


def attention_weights(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    *,
    mask: Mask = EVERYTHING,
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


def claims() -> Iterator[Claim]:
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
