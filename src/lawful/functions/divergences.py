"""What the divergences share: the check of their inputs, p log q, and a law.

Information, entropy and cross-entropy: how surprising, and how surprising on average.
The Kullback-Leibler divergence: the price of believing in the wrong distribution.
The Jensen-Shannon divergence: symmetric, bounded, and the square of a distance.
Total variation: the largest difference in the probability of anything.
The $L^p$ distance between distributions: that of vectors, of which total variation is half for $p = 1$.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from lawful.functions._validation import any_true
from lawful.functions.linalg import distance
from lawful.laws import (
    AtMost,
    Claim,
    Equal,
    Statement,
    agreement,
    boundedness,
    commutativity,
    convexity,
    divergence,
    finiteness,
    gibbs_inequality,
    homomorphism,
    law,
    metric,
    probabilities,
    shape,
    tokens,
)


def check_distributions(**distributions: Tensor) -> None:
    """Refuses tensors that are not made of distributions along their last axis, over the same outcomes.

    What rounding does to probabilities is let pass, and so is NaN. Values are not checked where they cannot be looked
    at: in compiled code and inside `torch.vmap`.
    """
    check_outcomes(**distributions)
    for name, p in distributions.items():
        values, rounding = p.detach(), torch.finfo(p.dtype).eps
        _refuse(values < -8 * rounding, f"{name} is to have no negative probability", values)
        total = values.sum(-1)
        off = (total - 1).abs() > max(1e-3, rounding**0.5)
        _refuse(off, f"the probabilities of {name} are to add up to 1 along the last axis", total)


def check_probabilities(**events: Tensor) -> None:
    """Refuses numbers that are no probabilities, each by itself; lets pass what `check_distributions` does."""
    for name, p in events.items():
        _real(name, p)
        values, rounding = p.detach(), 8 * torch.finfo(p.dtype).eps
        _refuse((values < -rounding) | (values > 1 + rounding), f"{name} is to be from 0 to 1", values)


def _refuse(bad: Tensor, wanted: str, values: Tensor) -> None:
    if any_true(bad):
        raise ValueError(f"{wanted}: got {float(values[bad][0]):g}")


def _real(name: str, x: Tensor) -> None:
    if not x.is_floating_point():
        raise TypeError(f"{name} is to be of real numbers: got {x.dtype}")


def check_outcomes(**tensors: Tensor) -> None:
    """Refuses tensors that are not of real numbers, or whose last axes differ: one outcome is not all of them."""
    for name, x in tensors.items():
        _real(name, x)
    if len({x.shape[-1:] for x in tensors.values()}) > 1 or not all(x.dim() for x in tensors.values()):
        shapes = " and ".join(str(tuple(x.shape)) for x in tensors.values())
        raise ValueError(f"{' and '.join(tensors)} are to have the same outcomes along the last axis: got {shapes}")


def p_log_q(p: Tensor, q: Tensor) -> Tensor:
    r"""Returns $p \log q$, which is 0 where both are 0 and $-\infty$ where only $q$ is; so are its gradients finite."""
    return p * q.clamp(min=0).masked_fill((p <= 0) & (q <= 0), 1.0).log()


def p_times_log(p: Tensor, log_q: Tensor) -> Tensor:
    r"""Returns $p \log q$ from $\log q$; 0 where both $p$ and $q$ are 0."""
    return p * log_q.masked_fill((p <= 0) & log_q.isneginf(), 0.0)


@law("D(p, q) = ∞ ⇔ p_i > 0, q_i = 0 for some i", discover_with=None)
def infinite_off_support(f: Callable[..., Tensor], p: Tensor, q: Tensor) -> Statement:
    """The output is infinite exactly where something happens that was said to be impossible.

    Satisfied by: the Kullback-Leibler divergence, cross-entropy.
    Broken by: a logarithm with an eps inside; 0 log 0 that is infinite or NaN.
    """
    impossible = ((p > 0) & (q == 0)).any(-1)
    found = f(p, q)
    return Equal(
        (found.isposinf().to(p), found.isfinite().to(p)),
        (impossible.to(p), (~impossible).to(p)),
        exercised=bool(impossible.any()),
    )


def self_information(p: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Measures how surprising an event is: the information that it carries, in nats.

    $$I = -\log p$$

    What is certain carries none, what is impossible infinitely much; that of independent events adds up.

    Args:
        p: The probability $p$ of each event.

    Examples:
        >>> self_information(torch.tensor([0.5, 0.25, 0.0]))
        tensor([0.6931, 1.3863,    inf])
    """
    check_probabilities(p=p)
    return -p.log()


def entropy(p: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    r"""Measures how surprising a distribution is on average, in nats.

    $$H(p) = -\sum_i p_i \log p_i, \qquad 0 \log 0 = 0$$

    Args:
        p: The distributions $p$, along the last axis.

    Examples:
        >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).abs()
        tensor([0.6931, 0.0000])
    """
    check_distributions(p=p)
    return -p_log_q(p, p).sum(-1)


def entropy_from_logits(x: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    r"""Measures the entropy of the softmax of logits; no digits are lost where the softmax rounds to 0 or 1.

    $$H(\operatorname{softmax} x) = \sum_i p_i (x_k - x_i) + \log \Big( 1 + \sum_{i \ne k} e^{x_i - x_k} \Big),
    \qquad x_k = \max_i x_i$$

    Args:
        x: The logits $x$, along the last axis; $-\infty$ for what is impossible.

    Examples:
        >>> entropy_from_logits(torch.zeros(2))
        tensor(0.6931)
    """
    top, where = x.max(-1, keepdim=True)
    lag = x - top
    others = lag.exp().scatter(-1, where, 0.0).sum(-1)
    return others.log1p() - p_times_log(lag.softmax(-1), lag).sum(-1)


def cross_entropy(p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Measures how surprising, on average, what happens by one distribution is to one who believes in another.

    $$\operatorname{CE}(p, q) = -\sum_i p_i \log q_i = D_{\mathrm{KL}}(p \,\|\, q) + H(p)$$

    The truth belongs into $p$: with a one-hot $q$ all but $p = q$ is infinite.

    Args:
        p: The distributions $p$ that things happen by, along the last axis.
        q: The distributions $q$ that are believed in.

    Examples:
        >>> cross_entropy(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5]))
        tensor(0.6931)
    """
    check_distributions(p=p, q=q)
    return -p_log_q(p, q).sum(-1)


def cross_entropy_from_logits(p: Float[Tensor, "*#batch n"], x: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Measures the cross-entropy of a distribution with the softmax of logits.

    $$\operatorname{CE}(p, \operatorname{softmax} x) = \log \sum_i e^{x_i} - \sum_i p_i x_i$$

    Its gradient by the logits is $\operatorname{softmax} x - p$, which never vanishes while the two differ.

    Args:
        p: The distributions $p$ that things happen by, along the last axis.
        x: The logits $x$; $-\infty$ for what is impossible.

    Examples:
        >>> cross_entropy_from_logits(torch.tensor([0.0, 1.0]), torch.tensor([1000.0, 0.0]))
        tensor(1000.)
    """
    check_distributions(p=p)
    check_outcomes(p=p, x=x)
    return -p_times_log(p, x.log_softmax(-1)).sum(-1)


def _one_hot(i: Int[Tensor, " b"], q: Float[Tensor, "b n"]) -> Float[Tensor, " b"]:
    return cross_entropy(F.one_hot(i, q.shape[-1]).to(q), q)


def _entropies_claims() -> Iterator[Claim]:
    """The laws that information, entropy and cross-entropy obey."""
    one, pair = probabilities("b 4"), (probabilities("b 4"), probabilities("b 4"))
    yield Claim(homomorphism(operation=torch.mul, into=torch.add), self_information, one)
    yield Claim(boundedness(low=0.0), self_information, one)
    yield Claim(agreement(other=lambda p: (p * self_information(p)).sum(-1)), entropy, one)
    yield Claim(agreement(other=lambda p: torch.special.entr(p).sum(-1)), entropy, one)
    yield Claim(boundedness(low=0.0, high=math.log(4)), entropy, one)
    yield Claim(convexity(), lambda p: -entropy(p), one, "-entropy")
    independent = agreement(other=lambda p, q: entropy((p.unsqueeze(-1) * q.unsqueeze(-2)).flatten(-2)))
    yield Claim(independent, lambda p, q: entropy(p) + entropy(q), pair, "entropy(p) + entropy(q)")
    yield Claim(finiteness(), entropy, one)
    written = agreement(other=lambda p, q: -torch.xlogy(p, q).sum(-1))
    for law in (written, gibbs_inequality(), convexity(input=1), infinite_off_support()):
        yield Claim(law, cross_entropy, pair)
    hot = agreement(other=lambda i, q: self_information(q.gather(-1, i.unsqueeze(-1)).squeeze(-1)))
    yield Claim(hot, _one_hot, (tokens("b", vocab_size=4), one), "cross_entropy(one-hot, q)")
    logits = (one, shape("b 4"))
    yield Claim(agreement(other=lambda x: entropy(x.softmax(-1))), entropy_from_logits, shape("b 4"))
    written = agreement(other=lambda p, x: p.sum(-1) * x.logsumexp(-1) - (p * x).sum(-1))
    for law in (written, finiteness(), convexity(input=1)):
        yield Claim(law, cross_entropy_from_logits, logits)


def kl_divergence(p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Measures the extra surprise, in nats, when things happen by one distribution and another is believed in.

    $$D_{\mathrm{KL}}(p \,\|\, q) = \sum_i p_i \log \frac{p_i}{q_i}, \qquad 0 \log \frac{0}{q} = 0$$

    It is infinite exactly where $p_i > 0 = q_i$ for some $i$. It is not symmetric, and no metric.

    Args:
        p: The distributions $p$ that things happen by, along the last axis.
        q: The distributions $q$ that are believed in.

    Examples:
        >>> import torch
        >>> kl_divergence(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
        tensor(0.6931)
        >>> kl_divergence(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]))
        tensor(inf)
    """
    check_distributions(p=p, q=q)
    return (p_log_q(p, p) - p_log_q(p, q)).sum(-1)


def reverse_kl_divergence(p: Float[Tensor, "*#batch n"], q: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Measures the Kullback-Leibler divergence the other way round.

    $$D_{\mathrm{KL}}(q \,\|\, p)$$

    Where $q$ is fitted to $p$, this way it avoids what $p$ avoids and settles on one mode; the other way it covers
    all of $p$.

    Args:
        p: The distributions $p$, along the last axis.
        q: The distributions $q$.

    Examples:
        >>> import torch
        >>> reverse_kl_divergence(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]))
        tensor(0.6931)
    """
    return kl_divergence(q, p)


def kl_divergence_from_logits(x: Float[Tensor, "*#batch n"], y: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch"]:
    r"""Measures the Kullback-Leibler divergence between the softmax of logits and that of others.

    $$D_{\mathrm{KL}}(\operatorname{softmax} x \,\|\, \operatorname{softmax} y)$$

    It is finite for all finite logits, however far apart.

    Args:
        x: The logits $x$, along the last axis; $-\infty$ for what is impossible.
        y: The logits $y$.

    Examples:
        >>> import torch
        >>> kl_divergence_from_logits(torch.tensor([1000.0, 0.0]), torch.tensor([0.0, 1000.0]))
        tensor(1000.)
    """
    check_outcomes(x=x, y=y)
    log_p, log_q = x.log_softmax(-1), y.log_softmax(-1)
    p = log_p.exp()
    return (p_times_log(p, log_p) - p_times_log(p, log_q)).sum(-1)


def reverse_kl_divergence_from_logits(
    x: Float[Tensor, "*#batch n"], y: Float[Tensor, "*#batch n"]
) -> Float[Tensor, "*batch"]:
    r"""Measures the Kullback-Leibler divergence between the softmax of logits and that of others, the other way round.

    $$D_{\mathrm{KL}}(\operatorname{softmax} y \,\|\, \operatorname{softmax} x)$$

    Args:
        x: The logits $x$, along the last axis; $-\infty$ for what is impossible.
        y: The logits $y$.

    Examples:
        >>> import torch
        >>> reverse_kl_divergence_from_logits(torch.tensor([0.0, 0.0]), torch.tensor([1000.0, 0.0]))
        tensor(0.6931)
    """
    return kl_divergence_from_logits(y, x)


def _kullback_leibler_claims() -> Iterator[Claim]:
    """The laws that the Kullback-Leibler divergence obeys."""
    pair = (probabilities("b 4"), probabilities("b 4"))
    for law in (divergence(), gibbs_inequality(), convexity(input=(0, 1)), infinite_off_support()):
        yield Claim(law, kl_divergence, pair)
    yield Claim(agreement(other=lambda p, q: (p * (p / q).log()).sum(-1)), kl_divergence, pair)
    yield Claim(agreement(other=lambda p, q: kl_divergence(p, q) + entropy(p)), cross_entropy, pair, "CE = KL + H")
    yield Claim(agreement(other=lambda p, q: (q * (q / p).log()).sum(-1)), reverse_kl_divergence, pair)
    yield Claim(divergence(), reverse_kl_divergence, pair)
    logits = (shape("b 4"), shape("b 4"))
    softmaxes = agreement(other=lambda x, y: kl_divergence(x.softmax(-1), y.softmax(-1)))
    for law in (softmaxes, finiteness()):
        yield Claim(law, kl_divergence_from_logits, logits)
    softmaxes = agreement(other=lambda x, y: reverse_kl_divergence(x.softmax(-1), y.softmax(-1)))
    yield Claim(softmaxes, reverse_kl_divergence_from_logits, logits)


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


def _jensen_shannon_claims() -> Iterator[Claim]:
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


@law("2 TV(p, q)² ≤ KL(p, q)", discover_with=None)
def pinsker_inequality(f: Callable[..., Tensor], p: Tensor, q: Tensor) -> Statement:
    """Distributions with a small divergence are close in every event.

    Satisfied by: total variation.
    Broken by: twice the total variation, which is the L¹ distance.
    """
    return AtMost(2 * f(p, q).square(), kl_divergence(p, q))


def _total_variation_claims() -> Iterator[Claim]:
    """The laws that total variation obeys."""
    pair = (probabilities("b 4"), probabilities("b 4"))
    both = agreement(other=total_variation_over_events)
    half = agreement(other=lambda p, q: (p - q).abs().sum(-1) / 2)
    bounds = boundedness(low=0.0, high=1.0)
    for rule in (both, half, metric(), divergence(), convexity(input=(0, 1)), bounds, pinsker_inequality()):
        yield Claim(rule, total_variation, pair)
    softmaxes = agreement(other=lambda x, y: total_variation(x.softmax(-1), y.softmax(-1)))
    yield Claim(softmaxes, total_variation_from_logits, (shape("b 4"), shape("b 4")))


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


def _lp_distance_claims() -> Iterator[Claim]:
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


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _entropies_claims()
    yield from _kullback_leibler_claims()
    yield from _jensen_shannon_claims()
    yield from _total_variation_claims()
    yield from _lp_distance_claims()
