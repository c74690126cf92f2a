"""The importance weighted bound: several codes together say more of an example than one."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.estimate import Estimate
from lawful.laws import AtMost, Claim, Map, Statement, agreement, derivative, law, made, shape


def importance_bound(log_weights: Float[Tensor, "k *n"]) -> Float[Tensor, "*n"]:
    r"""Bounds a log-likelihood from below by $k$ weighted codes: the log of their mean weight, in nats.

    $$\mathrm{IWAE}_k = \log \frac1k \sum_{i=1}^k w_i, \qquad w_i = \frac{p(x \mid z_i) \, p(z_i)}{q(z_i \mid x)},
    \quad z_i \sim q(z \mid x)$$

    $$\mathrm{ELBO} = \mathbb{E} \, \mathrm{IWAE}_1 \le \mathbb{E} \, \mathrm{IWAE}_k \le
    \mathbb{E} \, \mathrm{IWAE}_{k + 1} \le \log p(x)$$

    It is a log-likelihood, higher for more probable examples; to train by it, make its negative small.

    Reference:
        Burda, Grosse and Salakhutdinov, *Importance Weighted Autoencoders*, 2016.

    Args:
        log_weights: $\log w_i$.

    Examples:
        >>> importance_bound(torch.tensor([1.0, 3.0]).log())
        tensor(0.6931)
    """
    return log_weights.logsumexp(0) - math.log(_counted(log_weights))


def importance_estimate(log_weights: Float[Tensor, "k *n"], *, evaluations: int) -> Estimate:
    r"""Returns the bound with its standard error, to first order: $\operatorname{sd}(w) / (\sqrt k \, \bar w)$.

    A single weight does not tell its error, which is then NaN. Where it is not far below 1, few of the weights make up
    the mean, and the bound is loose: take more.

    Args:
        log_weights: $\log w_i$.
        evaluations: How often the model was called.

    Examples:
        >>> importance_estimate(torch.zeros(4), evaluations=4)
        Estimate(value=tensor(0.), error=tensor(0.), evaluations=4)
    """
    value, k = importance_bound(log_weights), _counted(log_weights)
    relative = (log_weights - value).exp()
    error = relative.std(0, correction=1) / k**0.5 if k > 1 else value * math.nan
    return Estimate(value, error, evaluations)


def _counted(log_weights: Tensor) -> int:
    if not log_weights.dim() or len(log_weights) < 1:
        raise ValueError(f"k is at least 1: got log-weights of shape {tuple(log_weights.shape)}")
    return len(log_weights)


@law("mean(x) ≤ f(x) ≤ max(x)")
def between_mean_and_largest(f: Map, x: Tensor) -> Statement:
    """The bound lies between the mean of the log-weights, the ELBO of the same codes, and the largest of them.

    Kept by: the log of a mean of exponentials.
    Broken by: the same with its sign turned; a sum for a mean.
    """
    value = f(x)
    return AtMost(torch.stack([x.mean(0), value]), torch.stack([value, x.amax(0)]))


def claims() -> Iterator[Claim]:
    """The laws that the bound obeys."""
    near = made(lambda x: 3 * x.tanh(), "k:2..6 n")
    yield Claim(agreement(other=lambda x: x.exp().mean(0).log()), importance_bound, near)
    yield Claim(between_mean_and_largest(), importance_bound, near)
    yield Claim(derivative(formula=lambda x: x.softmax(0)), importance_bound, shape("k n"))

    def error(x: Tensor) -> Tensor:
        return importance_estimate(x, evaluations=1).error

    def by_hand(x: Tensor) -> Tensor:
        w, k = x.exp(), len(x)
        mean = w.sum(0) / k
        return ((w - mean).square().sum(0) / (k - 1) / k).sqrt() / mean

    yield Claim(agreement(other=by_hand), error, near, name="importance_estimate, its error")
