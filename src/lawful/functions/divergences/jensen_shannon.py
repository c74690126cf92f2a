"""The Jensen-Shannon divergence: symmetric, bounded, and the square of a distance."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.divergences.entropies import entropy
from lawful.functions.divergences.kullback_leibler import kl_divergence
from lawful.functions.divergences.simplex import check_distributions, check_outcomes, p_log_q
from lawful.laws import (
    Claim,
    agreement,
    boundedness,
    commutativity,
    convexity,
    divergence,
    finiteness,
    metric,
    probabilities,
    shape,
)


def jensen_shannon(p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Measures how far, on average, two distributions are from the one halfway between them.

    $$\operatorname{JS}(p, q) = \tfrac12 D_{\mathrm{KL}}(p \,\|\, m) + \tfrac12 D_{\mathrm{KL}}(q \,\|\, m),
    \qquad m = \tfrac12 (p + q)$$

    It is symmetric, never infinite, and at most $\log 2$. Of close distributions it has all its digits, since then

    $$\operatorname{JS}(p, q) = \tfrac12 \sum_i m_i \big( \log(1 - t_i^2) + 2 t_i \operatorname{artanh} t_i \big),
    \qquad t = \frac{p - q}{p + q}$$

    is summed, in which nothing large cancels.

    Reference:
        Lin, *Divergence Measures Based on the Shannon Entropy*, 1991.

    Args:
        p: The distributions $p$, along the last axis.
        q: The distributions $q$.

    Examples:
        >>> jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        tensor(0.6931)
    """
    check_distributions(p=p, q=q)
    return _to_the_middle(p, q)


def jensen_shannon_from_logits(x: Float[Tensor, "*#batch n"], y: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Measures the Jensen-Shannon divergence between the softmax of logits and that of others.

    $$\operatorname{JS}(\operatorname{softmax} x, \operatorname{softmax} y)$$

    Args:
        x: The logits $x$, along the last axis; $-\infty$ for what is impossible.
        y: The logits $y$.

    Examples:
        >>> jensen_shannon_from_logits(torch.tensor([1000.0, 0.0]), torch.tensor([0.0, 1000.0]))
        tensor(0.6931)
    """
    check_outcomes(x=x, y=y)
    return _to_the_middle(x.softmax(-1), y.softmax(-1))


def jensen_shannon_distance(p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Measures the square root of the Jensen-Shannon divergence, which is a metric.

    $$\sqrt{\operatorname{JS}(p, q)}$$

    At $p = q$, where there is no derivative, it is taken to be 0.

    Reference:
        Endres and Schindelin, *A New Metric for Probability Distributions*, 2003.

    Args:
        p: The distributions $p$, along the last axis.
        q: The distributions $q$.

    Examples:
        >>> jensen_shannon_distance(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        tensor(0.8326)
    """
    return _root(jensen_shannon(p, q))


def jensen_shannon_distance_from_logits(
    x: Float[Tensor, "*#batch n"], y: Float[Tensor, "*#batch n"]
) -> Float[Tensor, "*batch"]:
    r"""Measures the Jensen-Shannon distance between the softmax of logits and that of others.

    $$\sqrt{\operatorname{JS}(\operatorname{softmax} x, \operatorname{softmax} y)}$$

    Args:
        x: The logits $x$, along the last axis; $-\infty$ for what is impossible.
        y: The logits $y$.

    Examples:
        >>> jensen_shannon_distance_from_logits(torch.tensor([1000.0, 0.0]), torch.tensor([0.0, 1000.0]))
        tensor(0.8326)
    """
    return _root(jensen_shannon_from_logits(x, y))


def _root(square: Tensor) -> Tensor:
    none = square <= 0
    return square.masked_fill(none, 1.0).sqrt().masked_fill(none, 0.0)


def _to_the_middle(p: Tensor, q: Tensor) -> Tensor:
    m = (p + q) / 2
    t = (p - q) / 2 / m.masked_fill(m == 0, 1.0)
    near = t.abs() < 0.5
    t = t.masked_fill(~near, 0.0)
    close = m * ((-t.square()).log1p() + 2 * t * t.atanh())
    far = p_log_q(p, p) - p_log_q(p, m) + p_log_q(q, q) - p_log_q(q, m)
    return torch.where(near, close, far).sum(-1) / 2


def claims() -> Iterator[Claim]:
    """The laws that the Jensen-Shannon divergence obeys."""
    pair = (probabilities("b 4"), probabilities("b 4"))
    halfway = agreement(other=lambda p, q: (kl_divergence(p, (p + q) / 2) + kl_divergence(q, (p + q) / 2)) / 2)
    mixed = agreement(other=lambda p, q: entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2)
    bounds = boundedness(low=0.0, high=math.log(2))
    for law in (halfway, mixed, divergence(), commutativity(), convexity(input=(0, 1)), bounds, finiteness()):
        yield Claim(law, jensen_shannon, pair)
    yield Claim(metric(), jensen_shannon_distance, pair)
    yield Claim(agreement(other=lambda p, q: jensen_shannon_distance(p, q).square()), jensen_shannon, pair)
    softmaxes = agreement(other=lambda x, y: jensen_shannon(x.softmax(-1), y.softmax(-1)))
    logits = (shape("b 4"), shape("b 4"))
    yield Claim(softmaxes, jensen_shannon_from_logits, logits)
    squared = "jensen_shannon_distance_from_logits, squared"
    yield Claim(softmaxes, lambda x, y: jensen_shannon_distance_from_logits(x, y).square(), logits, squared)
