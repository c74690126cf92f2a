"""Total variation: the largest difference in the probability of anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.divergences.kullback_leibler import kl_divergence
from lawful.functions.divergences.simplex import check_distributions, check_outcomes
from lawful.functions.products import distance
from lawful.laws import (
    AtMost,
    Claim,
    Statement,
    agreement,
    boundedness,
    convexity,
    divergence,
    law,
    metric,
    probabilities,
    shape,
)

MOST = 16


def total_variation(p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Measures by how much the probability of an event can differ between two distributions.

    $$\operatorname{TV}(p, q) = \max_{A} |p(A) - q(A)| = \tfrac12 \sum_i |p_i - q_i|$$

    The event that differs most is $A = \{i : p_i \ge q_i\}$.

    Args:
        p: The distributions $p$, along the last axis.
        q: The distributions $q$.

    Examples:
        >>> total_variation(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]))
        tensor(0.5000)
    """
    check_distributions(p=p, q=q)
    return distance(p, q, p=1) / 2


def total_variation_over_events(
    p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"]
) -> Float[Tensor, "*batch"]:
    r"""Measures the total variation by its definition: over all $2^n$ events.

    $$\max_{A \subseteq \{1, \dots, n\}} |p(A) - q(A)|$$

    Args:
        p: The distributions $p$, along the last axis, over at most 16 outcomes.
        q: The distributions $q$.

    Examples:
        >>> total_variation_over_events(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]))
        tensor(0.5000)
    """
    check_distributions(p=p, q=q)
    n = p.shape[-1]
    if n > MOST:
        raise ValueError(f"there are to be at most {MOST} outcomes, since all events are tried: got {n}")
    outcomes = torch.arange(n, device=p.device)
    events = torch.arange(2**n, device=p.device).unsqueeze(-1) >> outcomes & 1
    return ((p - q) @ events.to(p).mT).abs().amax(-1)


def total_variation_from_logits(
    x: Float[Tensor, "*#batch n"], y: Float[Tensor, "*#batch n"]
) -> Float[Tensor, "*batch"]:
    r"""Measures the total variation between the softmax of logits and that of others.

    $$\operatorname{TV}(\operatorname{softmax} x, \operatorname{softmax} y)$$

    Args:
        x: The logits $x$, along the last axis; $-\infty$ for what is impossible.
        y: The logits $y$.

    Examples:
        >>> total_variation_from_logits(torch.tensor([0.0, 0.0]), torch.tensor([1000.0, 0.0]))
        tensor(0.5000)
    """
    check_outcomes(x=x, y=y)
    return distance(x.softmax(-1), y.softmax(-1), p=1) / 2


@law("2 TV(p, q)² ≤ KL(p, q)", tries=None)
def pinsker_inequality(f: Callable[..., Tensor], p: Tensor, q: Tensor) -> Statement:
    """Distributions with a small divergence are close in every event.

    Kept by: total variation.
    Broken by: twice the total variation, which is the L¹ distance.
    """
    return AtMost(2 * f(p, q).square(), kl_divergence(p, q))


def claims() -> Iterator[Claim]:
    """The laws that total variation obeys."""
    pair = (probabilities("b 4"), probabilities("b 4"))
    both = agreement(other=total_variation_over_events)
    half = agreement(other=lambda p, q: (p - q).abs().sum(-1) / 2)
    bounds = boundedness(low=0.0, high=1.0)
    for rule in (both, half, metric(), divergence(), convexity(input=(0, 1)), bounds, pinsker_inequality()):
        yield Claim(rule, total_variation, pair)
    softmaxes = agreement(other=lambda x, y: total_variation(x.softmax(-1), y.softmax(-1)))
    yield Claim(softmaxes, total_variation_from_logits, (shape("b 4"), shape("b 4")))
