"""Entropies and divergences of discrete distributions, with finite gradients and 0 log 0 = 0."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions._validation import any_true
from lawful.functions.linalg import distance
from lawful.laws import (
    Claim,
    boundedness,
    commutativity,
    convexity,
    divergence,
    finiteness,
    gibbs_inequality,
    homomorphism,
    infinite_off_support,
    metric,
    pinsker_inequality,
    probabilities,
    shape,
    shift_invariance,
)


def self_information(p: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Information content of events, in nats.

    $$I = -\log p$$

    It is 0 for certain and infinite for impossible events; the information of independent events adds up.

    Args:
        p: Probability of each event.

    Examples:
        >>> self_information(torch.tensor([0.5, 0.25, 0.0]))
        tensor([0.6931, 1.3863,    inf])
    """
    _check_real(p=p)
    values, rounding = p.detach(), 8 * torch.finfo(p.dtype).eps
    _check(~((values < -rounding) | (values > 1 + rounding)), "p must be between 0 and 1", values)
    return -p.log()


def entropy(p: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    r"""Entropy, in nats.

    $$H(p) = -\sum_i p_i \log p_i, \qquad 0 \log 0 = 0$$

    Args:
        p: Distributions $p$ along the last dimension.

    Examples:
        >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).abs()
        tensor([0.6931, 0.0000])
    """
    _check_distributions(p=p)
    return -_p_log_q(p, p).sum(-1)


def entropy_from_logits(x: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    r"""Entropy of the softmax of logits, accurate where probabilities round to 0 or 1.

    $$H(\operatorname{softmax} x) = \sum_i p_i (x_k - x_i) + \log \Big( 1 + \sum_{i \ne k} e^{x_i - x_k} \Big),
    \qquad x_k = \max_i x_i$$

    Args:
        x: Logits $x$ along the last dimension; $-\infty$ for impossible outcomes.

    Examples:
        >>> entropy_from_logits(torch.zeros(2))
        tensor(0.6931)
    """
    largest, where = x.max(-1, keepdim=True)
    lag = x - largest
    others = lag.exp().scatter(-1, where, 0.0).sum(-1)
    return others.log1p() - _p_times_log(lag.softmax(-1), lag).sum(-1)


def cross_entropy(p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Cross-entropy of two distributions, in nats.

    $$\operatorname{CE}(p, q) = -\sum_i p_i \log q_i = D_{\mathrm{KL}}(p \,\|\, q) + H(p)$$

    `torch.nn.functional.cross_entropy` takes logits instead of $q$, and takes them first.

    Args:
        p: True distributions $p$ along the last dimension.
        q: Predicted distributions $q$.

    Examples:
        >>> cross_entropy(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5]))
        tensor(0.6931)
    """
    _check_distributions(p=p, q=q)
    return -_p_log_q(p, q).sum(-1)


def kl_divergence(p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Kullback-Leibler divergence, in nats.

    $$D_{\mathrm{KL}}(p \,\|\, q) = \sum_i p_i \log \frac{p_i}{q_i}, \qquad 0 \log \frac{0}{q} = 0$$

    It is infinite if and only if $p_i > 0 = q_i$ for some $i$. It is not symmetric: minimized over $q$, it covers all
    of $p$; the reverse divergence $D_{\mathrm{KL}}(q \,\|\, p)$ settles on one mode. `torch.nn.functional.kl_div` takes
    $\log q$ first, and its gradient is not finite at $p_i = 0$.

    Args:
        p: Distributions $p$ along the last dimension.
        q: Distributions $q$.

    Examples:
        >>> kl_divergence(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
        tensor(0.6931)
        >>> kl_divergence(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]))
        tensor(inf)
    """
    _check_distributions(p=p, q=q)
    return (_p_log_q(p, p) - _p_log_q(p, q)).sum(-1)


def kl_divergence_from_logits(x: Float[Tensor, "*#batch n"], y: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Kullback-Leibler divergence of the softmax of logits; finite for all finite logits.

    $$D_{\mathrm{KL}}(\operatorname{softmax} x \,\|\, \operatorname{softmax} y)$$

    Args:
        x: Logits $x$ along the last dimension; $-\infty$ for impossible outcomes.
        y: Logits $y$.

    Examples:
        >>> kl_divergence_from_logits(torch.tensor([1000.0, 0.0]), torch.tensor([0.0, 1000.0]))
        tensor(1000.)
    """
    _check_outcomes(x=x, y=y)
    log_p, log_q = x.log_softmax(-1), y.log_softmax(-1)
    p = log_p.exp()
    return (_p_times_log(p, log_p) - _p_times_log(p, log_q)).sum(-1)


def js_divergence(p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Jensen-Shannon divergence, in nats: symmetric, finite, and at most $\log 2$.

    $$\operatorname{JS}(p, q) = \tfrac12 D_{\mathrm{KL}}(p \,\|\, m) + \tfrac12 D_{\mathrm{KL}}(q \,\|\, m),
    \qquad m = \tfrac12 (p + q)$$

    For close distributions it sums, without cancellation,

    $$\operatorname{JS}(p, q) = \tfrac12 \sum_i m_i \big( \log(1 - t_i^2) + 2 t_i \operatorname{artanh} t_i \big),
    \qquad t = \frac{p - q}{p + q}$$

    Reference:
        Lin, *Divergence Measures Based on the Shannon Entropy*, 1991.

    Args:
        p: Distributions $p$ along the last dimension.
        q: Distributions $q$.

    Examples:
        >>> js_divergence(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        tensor(0.6931)
    """
    _check_distributions(p=p, q=q)
    m = (p + q) / 2
    t = (p - q) / 2 / m.masked_fill(m == 0, 1.0)
    near = t.abs() < 0.5
    t = t.masked_fill(~near, 0.0)
    close = m * ((-t.square()).log1p() + 2 * t * t.atanh())
    far = _p_log_q(p, p) - _p_log_q(p, m) + _p_log_q(q, q) - _p_log_q(q, m)
    return torch.where(near, close, far).sum(-1) / 2


def js_distance(p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Jensen-Shannon distance: the square root of the divergence, which is a metric.

    $$\sqrt{\operatorname{JS}(p, q)}$$

    The gradient at $p = q$ is 0.

    Reference:
        Endres and Schindelin, *A New Metric for Probability Distributions*, 2003.

    Args:
        p: Distributions $p$ along the last dimension.
        q: Distributions $q$.

    Examples:
        >>> js_distance(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        tensor(0.8326)
    """
    square = js_divergence(p, q)
    zero = square <= 0
    return square.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)


def total_variation(p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Total variation distance: the largest difference in the probability of an event.

    $$\operatorname{TV}(p, q) = \max_{A} |p(A) - q(A)| = \tfrac12 \sum_i |p_i - q_i|$$

    The maximum is attained at $A = \{i : p_i \ge q_i\}$.

    Args:
        p: Distributions $p$ along the last dimension.
        q: Distributions $q$.

    Examples:
        >>> total_variation(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]))
        tensor(0.5000)
    """
    _check_distributions(p=p, q=q)
    return distance(p, q, p=1) / 2


def _check_distributions(**distributions: Tensor) -> None:
    """Raises if a tensor does not hold distributions along its last dimension, over the same outcomes.

    Rounding errors and NaN pass. Values are not checked under `torch.compile` and `torch.vmap`.
    """
    _check_outcomes(**distributions)
    for name, p in distributions.items():
        values, rounding = p.detach(), torch.finfo(p.dtype).eps
        _check(~(values < -8 * rounding), f"{name} must not be negative", values)
        total = values.sum(-1)
        off = (total - 1).abs() > max(1e-3, rounding**0.5)
        _check(~off, f"{name} must sum to 1 along the last dimension", total)


def _check(valid: Tensor, requirement: str, values: Tensor) -> None:
    if any_true(~valid):
        raise ValueError(f"{requirement}, got {float(values[~valid][0]):g}")


def _check_real(**tensors: Tensor) -> None:
    for name, x in tensors.items():
        if not x.is_floating_point():
            raise TypeError(f"{name} must have a floating-point dtype, got {x.dtype}")


def _check_outcomes(**tensors: Tensor) -> None:
    """Raises if a tensor is not real, or if last dimensions differ; size 1 is not broadcast."""
    _check_real(**tensors)
    if len({x.shape[-1:] for x in tensors.values()}) > 1 or not all(x.dim() for x in tensors.values()):
        shapes = " and ".join(str(tuple(x.shape)) for x in tensors.values())
        raise ValueError(f"{' and '.join(tensors)} must have the same last dimension, got {shapes}")


def _p_log_q(p: Tensor, q: Tensor) -> Tensor:
    r"""Returns $p \log q$ with finite gradients: 0 where both are 0, $-\infty$ where only $q$ is 0."""
    return p * q.clamp(min=0).masked_fill((p <= 0) & (q <= 0), 1.0).log()


def _p_times_log(p: Tensor, log_q: Tensor) -> Tensor:
    r"""Returns $p \log q$ from $\log q$; 0 where both $p$ and $q$ are 0."""
    return p * log_q.masked_fill((p <= 0) & log_q.isneginf(), 0.0)


def claims() -> Iterator[Claim]:
    """Laws of entropies and divergences."""
    one, pair, logits = probabilities("b 4"), (probabilities("b 4"), probabilities("b 4")), (shape("b 4"), shape("b 4"))
    yield Claim(homomorphism(operation=torch.mul, into=torch.add), self_information, one)
    yield Claim(boundedness(low=0.0, high=math.log(4)), entropy, one)
    yield Claim(convexity(), lambda p: -entropy(p), one, "-entropy")
    yield Claim(shift_invariance(), entropy_from_logits, shape("b 4"))
    for law in (gibbs_inequality(), convexity(input=1), infinite_off_support()):
        yield Claim(law, cross_entropy, pair)
    for law in (divergence(), gibbs_inequality(), convexity(input=(0, 1)), infinite_off_support()):
        yield Claim(law, kl_divergence, pair)
    yield Claim(finiteness(), kl_divergence_from_logits, logits)
    bounds = boundedness(low=0.0, high=math.log(2))
    for law in (divergence(), commutativity(), convexity(input=(0, 1)), bounds, finiteness()):
        yield Claim(law, js_divergence, pair)
    yield Claim(metric(), js_distance, pair)
    for law in (metric(), divergence(), convexity(input=(0, 1)), boundedness(low=0.0, high=1.0), pinsker_inequality()):
        yield Claim(law, total_variation, pair)
