"""The Kullback-Leibler divergence: the price of believing in the wrong distribution."""

from __future__ import annotations

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor

from lawful.functions.divergences.entropies import cross_entropy, entropy
from lawful.functions.divergences.simplex import (
    check_distributions,
    check_outcomes,
    infinite_off_support,
    p_log_q,
    p_times_log,
)
from lawful.laws import Claim, agreement, convexity, divergence, finiteness, gibbs_inequality, probabilities, shape


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


def claims() -> Iterator[Claim]:
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
