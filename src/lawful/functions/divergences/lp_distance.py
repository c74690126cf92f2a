r"""The $L^p$ distance between distributions: that of vectors, of which total variation is half for $p = 1$."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from jaxtyping import Float
from torch import Tensor

from lawful.functions.divergences.simplex import check_distributions, check_outcomes
from lawful.functions.divergences.total_variation import total_variation
from lawful.functions.products import distance
from lawful.laws import Claim, agreement, boundedness, metric, probabilities, shape


def lp_distance(
    p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"], *, order: float | int = 2
) -> Float[Tensor, "*batch"]:
    r"""Measures how far apart two distributions are as vectors; at most $2^{1 / r}$.

    $$\lVert p - q \rVert_r = \Big( \sum_i |p_i - q_i|^r \Big)^{1/r}$$

    Args:
        p: The distributions $p$, along the last axis.
        q: The distributions $q$.
        order: The exponent $r$, at least 1; `math.inf` for the largest difference.

    Examples:
        >>> import torch
        >>> lp_distance(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        tensor(1.4142)
    """
    check_distributions(p=p, q=q)
    return distance(p, q, p=order)


def lp_distance_from_logits(
    x: Float[Tensor, "*#batch n"], y: Float[Tensor, "*#batch n"], *, order: float | int = 2
) -> Float[Tensor, "*batch"]:
    r"""Measures the $L^p$ distance between the softmax of logits and that of others.

    $$\lVert \operatorname{softmax} x - \operatorname{softmax} y \rVert_r$$

    Args:
        x: The logits $x$, along the last axis; $-\infty$ for what is impossible.
        y: The logits $y$.
        order: The exponent $r$, at least 1; `math.inf` for the largest difference.

    Examples:
        >>> import torch
        >>> lp_distance_from_logits(torch.tensor([1000.0, 0.0]), torch.tensor([0.0, 1000.0]))
        tensor(1.4142)
    """
    check_outcomes(x=x, y=y)
    return distance(x.softmax(-1), y.softmax(-1), p=order)


def claims() -> Iterator[Claim]:
    """The laws that the distances obey."""
    pair = (probabilities("b 4"), probabilities("b 4"))
    for order in (1.5, 2):
        of, name = partial(lp_distance, order=order), f"lp_distance({order=})"
        yield Claim(metric(), of, pair, name)
        yield Claim(boundedness(low=0.0, high=2 ** (1 / order)), of, pair, name)
    halved = agreement(other=lambda p, q: 2 * total_variation(p, q))
    yield Claim(halved, partial(lp_distance, order=1), pair, "lp_distance(order=1)")
    written = agreement(other=lambda x, y: (x.softmax(-1) - y.softmax(-1)).abs().pow(3).sum(-1).pow(1 / 3))
    cubic = partial(lp_distance_from_logits, order=3)
    yield Claim(written, cubic, (shape("b 4"), shape("b 4")), "lp_distance_from_logits(order=3)")
    euclidean = agreement(other=lambda p, q: (p - q).square().sum(-1).sqrt())
    yield Claim(euclidean, lp_distance, pair)
    quadratic = agreement(other=lambda x, y: lp_distance(x.softmax(-1), y.softmax(-1)))
    yield Claim(quadratic, lp_distance_from_logits, (shape("b 4"), shape("b 4")))
