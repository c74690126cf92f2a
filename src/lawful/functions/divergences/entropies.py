"""Information, entropy and cross-entropy: how surprising, and how surprising on average."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.divergences.simplex import (
    check_distributions,
    check_outcomes,
    check_probabilities,
    infinite_off_support,
    p_log_q,
    p_times_log,
)
from lawful.laws import (
    Claim,
    agreement,
    boundedness,
    convexity,
    finiteness,
    gibbs_inequality,
    homomorphism,
    probabilities,
    shape,
    tokens,
)


def information(p: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Measures how surprising an event is: the information that it carries, in nats.

    $$I = -\log p$$

    What is certain carries none, what is impossible infinitely much; that of independent events adds up.

    Args:
        p: The probability $p$ of each event.

    Examples:
        >>> information(torch.tensor([0.5, 0.25, 0.0]))
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


def claims() -> Iterator[Claim]:
    """The laws that information, entropy and cross-entropy obey."""
    one, pair = probabilities("b 4"), (probabilities("b 4"), probabilities("b 4"))
    yield Claim(homomorphism(operation=torch.mul, into=torch.add), information, one)
    yield Claim(boundedness(low=0.0), information, one)
    yield Claim(agreement(other=lambda p: (p * information(p)).sum(-1)), entropy, one)
    yield Claim(agreement(other=lambda p: torch.special.entr(p).sum(-1)), entropy, one)
    yield Claim(boundedness(low=0.0, high=math.log(4)), entropy, one)
    yield Claim(convexity(), lambda p: -entropy(p), one, "-entropy")
    independent = agreement(other=lambda p, q: entropy((p.unsqueeze(-1) * q.unsqueeze(-2)).flatten(-2)))
    yield Claim(independent, lambda p, q: entropy(p) + entropy(q), pair, "entropy(p) + entropy(q)")
    yield Claim(finiteness(), entropy, one)
    written = agreement(other=lambda p, q: -torch.xlogy(p, q).sum(-1))
    for law in (written, gibbs_inequality(), convexity(input=1), infinite_off_support()):
        yield Claim(law, cross_entropy, pair)
    hot = agreement(other=lambda i, q: information(q.gather(-1, i.unsqueeze(-1)).squeeze(-1)))
    yield Claim(hot, _one_hot, (tokens("b", vocab=4), one), "cross_entropy(one-hot, q)")
    logits = (one, shape("b 4"))
    yield Claim(agreement(other=lambda x: entropy(x.softmax(-1))), entropy_from_logits, shape("b 4"))
    written = agreement(other=lambda p, x: p.sum(-1) * x.logsumexp(-1) - (p * x).sum(-1))
    for law in (written, finiteness(), convexity(input=1)):
        yield Claim(law, cross_entropy_from_logits, logits)
