"""Attention without parameters: a look-up, a regression, and a sequence that attends to itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.attention.dense import Kernel, fused_attention, reference_attention, single_head
from lawful.functions.attention.masks import CAUSAL, NO_MASK, Mask
from lawful.laws import (
    AtMost,
    Claim,
    Draw,
    Statement,
    agreement,
    causality,
    equivariance,
    law,
    permutation_equivariance,
    shape,
)


def look_up(
    q: Float[Tensor, "*batch t k"],
    keys: Float[Tensor, "*batch s k"],
    values: Float[Tensor, "*batch s v"],
    *,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch t v"]:
    r"""Looks a query up in a table of keys and values, differentiably.

    $$y = \sum_j \operatorname{softmax}_j \Bigl( \frac{q \cdot k_j}{T} \Bigr) \, v_j$$

    For $T \to 0$ it returns the value whose key is most similar, as a dictionary does; the error falls as
    $e^{-\text{lead} / T}$. With the unit vectors as keys and a one-hot query it indexes an array.

    Args:
        q: The queries $q$.
        keys: The keys $k_j$.
        values: The values $v_j$.
        temperature: $T$, above 0.

    Examples:
        >>> table = torch.tensor([[10.0], [20.0], [30.0]])
        >>> look_up(torch.eye(3)[[2, 0]], torch.eye(3), table, temperature=0.01)
        tensor([[30.],
                [10.]])
    """
    if not temperature > 0:
        raise ValueError(f"temperature is to be above 0: got {temperature}")
    return single_head(reference_attention, q, keys, values, scale=1 / temperature)


def kernel_regression(
    x: Float[Tensor, "*batch t d"],
    keys: Float[Tensor, "*batch s d"],
    values: Float[Tensor, "*batch s v"],
    *,
    bandwidth: float = 1.0,
    kernel: Kernel = reference_attention,
) -> Float[Tensor, "*batch t v"]:
    r"""Predicts at a point the average of known values, each weighed by how near it is: attention pooling.

    $$y = \frac{\sum_j K(x - k_j) \, v_j}{\sum_j K(x - k_j)}, \qquad K(u) = e^{-\lVert u \rVert^2 / 2 \sigma^2}$$

    It is attention with the dot products over $\sigma^2$ and the bias $-\lVert k_j \rVert^2 / 2 \sigma^2$, since
    $\lVert x \rVert^2$ is the same for all keys. Far from the origin digits would cancel: the keys are centred first.

    Reference:
        Nadaraya, *On Estimating Regression*, 1964; Watson, *Smooth Regression Analysis*, 1964.

    Args:
        x: The points $x$ at which to predict.
        keys: The points $k_j$ at which values are known.
        values: The values $v_j$.
        bandwidth: $\sigma$, above 0; for $\sigma \to 0$ the nearest key decides.
        kernel: The attention that is computed with.

    Examples:
        >>> keys = torch.tensor([[0.0], [1.0]])
        >>> kernel_regression(torch.tensor([[0.5], [0.9]]), keys, keys, bandwidth=0.1)
        tensor([[0.5000],
                [1.0000]])
    """
    if not bandwidth > 0:
        raise ValueError(f"bandwidth is to be above 0: got {bandwidth}")
    centre = keys.mean(-2, keepdim=True)
    x, keys = (x - centre) / bandwidth, (keys - centre) / bandwidth
    bias = -keys.square().sum(-1)[..., None, None, :] / 2
    return single_head(kernel, x, keys, values, bias=bias, scale=1.0)


def self_attention(
    x: Float[Tensor, "*batch t d"],
    *,
    mask: Mask = NO_MASK,
    scale: float | None = None,
    kernel: Kernel = fused_attention,
) -> Float[Tensor, "*batch t d"]:
    r"""Replaces each vector by an average of all, weighed by similarity: attention that has nothing to learn.

    $$y_i = \sum_j \operatorname{softmax}_j \Bigl( \frac{x_i \cdot x_j}{\sqrt{d}} \Bigr) \, x_j$$

    Without a mask the order of the vectors does not matter, and it turns with them.

    Args:
        x: The vectors $x_i$, which are queries, keys and values at once.
        mask: Who sees whom.
        scale: What the dot products are multiplied by; $1 / \sqrt{d}$ unless given.
        kernel: The attention that is computed with.

    Examples:
        >>> self_attention(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), scale=1000.0)
        tensor([[1., 0.],
                [0., 1.]])
    """
    return single_head(kernel, x, x, x, mask=mask, scale=scale)


@law("|f(λq, k, v) - v_best| ≤ Σ_j |v_j - v_best| exp(-λ(q·k_best - q·k_j))", discover_with=None)
def dictionary_limit(f: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, *, draw: Draw) -> Statement:
    """For queries that are scaled up, a look-up returns the value of the best key, exponentially well in its lead.

    Satisfied by: attention with dot products that are not scaled.
    Broken by: the worst key; a softmax over the queries; values that are averaged evenly.
    """
    scale = draw.choice((1.0, 10.0, 100.0), "λ")
    scores = (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1)
    top, best = scores.max(-1, keepdim=True)
    chosen = v.gather(-2, best.expand(*best.shape[:-1], v.shape[-1]))
    away = (v.unsqueeze(-3) - chosen.unsqueeze(-2)).abs()
    bound = (away * (scale * (scores - top)).exp().unsqueeze(-1)).sum(-2)
    return AtMost((f(scale * q, k, v) - chosen).abs(), bound)


def claims() -> Iterator[Claim]:
    """The laws that attention without parameters obeys."""
    table = shape("b t 3"), shape("b s 3"), shape("b s 2")

    def tempered(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return look_up(q, k, v, temperature=0.5)

    def rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = 2 * torch.einsum("btk,bsk->bts", q, k)
        return torch.einsum("bts,bsv->btv", (scores - scores.logsumexp(-1, keepdim=True)).exp(), v)

    def regression(x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = -(x.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1) / (2 * 0.7**2)
        return torch.einsum("bts,bsv->btv", (scores - scores.logsumexp(-1, keepdim=True)).exp(), v)

    def pooled(x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return kernel_regression(x, k, v, bandwidth=0.7)

    def equation(x: Tensor) -> Tensor:
        found = []
        for scale in (3**-0.5, 0.2):
            scores = scale * torch.einsum("bid,bjd->bij", x, x)
            found.append(torch.einsum("bij,bjd->bid", (scores - scores.logsumexp(-1, keepdim=True)).exp(), x))
        return torch.stack(found)

    def scaled(x: Tensor) -> Tensor:
        return torch.stack([self_attention(x), self_attention(x, scale=0.2)])

    def causal(x: Tensor) -> Tensor:
        return self_attention(x, mask=CAUSAL)

    yield Claim(agreement(other=rows), tempered, table, name="look_up(temperature=0.5)")
    yield Claim(dictionary_limit(), look_up, table)
    yield Claim(agreement(other=regression), pooled, table, name="kernel_regression(bandwidth=0.7)")
    yield Claim(agreement(other=equation), scaled, shape("b t 3"), name="self_attention")
    yield Claim(permutation_equivariance(), self_attention, shape("b t 3"))
    turned = equivariance(sample=lambda draw: torch.linalg.qr(draw.normal(3, 3)).Q, act=lambda q, x: x @ q)
    yield Claim(turned, self_attention, shape("b t 3"))
    yield Claim(causality(), causal, shape("b t 3"), name="self_attention(mask=CAUSAL)")
