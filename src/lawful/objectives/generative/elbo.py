"""The evidence lower bound: how well a code explains an example, less what the code says."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, boundedness, derivative, made, shape


def gaussian_divergence(
    mean: Float[Tensor, "*batch k"],
    log_variance: Float[Tensor, "*batch k"],
    *,
    prior_mean: Float[Tensor, "*#batch #k"] | float = 0.0,
    prior_log_variance: Float[Tensor, "*#batch #k"] | float = 0.0,
) -> Float[Tensor, "*batch k"]:
    r"""Measures how far a diagonal Gaussian is from another, coordinate by coordinate, in nats.

    $$\mathrm{KL}_j = \frac12 \Bigl(\frac{(\mu_j - m_j)^2}{s_j^2} + \frac{\sigma_j^2}{s_j^2} - 1
    - \log \frac{\sigma_j^2}{s_j^2}\Bigr), \qquad \mathrm{KL} = \sum_j \mathrm{KL}_j$$

    The part of the variances is $e^r - 1 - r$ of $r = \log(\sigma^2 / s^2)$, by `expm1`: no digits are lost where the
    two are close.

    Reference:
        Kingma and Welling, *Auto-Encoding Variational Bayes*, 2014.

    Args:
        mean: $\mu$.
        log_variance: $\log \sigma^2$.
        prior_mean: $m$.
        prior_log_variance: $\log s^2$.

    Examples:
        >>> gaussian_divergence(torch.tensor([0.0, 2.0]), torch.zeros(2))
        tensor([0., 2.])
    """
    ratio = log_variance - prior_log_variance
    precision = torch.exp(torch.as_tensor(-prior_log_variance).to(mean))
    return ((mean - prior_mean).square() * precision + ratio.expm1() - ratio) / 2


def negative_elbo(
    log_likelihood: Float[Tensor, " n"], divergence: Float[Tensor, "n k"], *, beta: float = 1.0, free: float = 0.0
) -> Float[Tensor, ""]:
    r"""Adds up what a variational autoencoder is trained on: nats for each example, summed over entries and codes.

    $$\mathcal{L} = - \frac1n \sum_i \log p(x_i \mid z_i) + \beta \sum_j \max \Bigl(\lambda, \;
    \frac1n \sum_i \mathrm{KL}_{ij}\Bigr)$$

    With $\beta = 1$ and $\lambda = 0$ it is the negative lower bound on $\log p(x)$. A larger $\beta$ makes codes say
    less; free bits $\lambda$, nats that each coordinate may say at no cost, keep coordinates from saying nothing.

    Reference:
        Higgins and others, *beta-VAE*, 2017; Kingma and others, *Improved Variational Inference with Inverse
        Autoregressive Flow*, 2016.

    Args:
        log_likelihood: $\log p(x_i \mid z_i)$, of a code drawn for each example.
        divergence: $\mathrm{KL}_{ij}$, of each coordinate.
        beta: $\beta$, at least 0.
        free: $\lambda$, at least 0, in nats.

    Examples:
        >>> negative_elbo(torch.tensor([-3.0, -5.0]), torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
        tensor(5.5000)
        >>> negative_elbo(torch.tensor([-3.0, -5.0]), torch.tensor([[1.0, 0.0], [2.0, 0.0]]), beta=2.0, free=0.25)
        tensor(7.5000)
    """
    if not (0 <= beta < math.inf and 0 <= free < math.inf):
        raise ValueError(f"beta and free are at least 0, and finite: got {beta} and {free}")
    if not len(log_likelihood):
        raise ValueError("at least one example was wanted: got none")
    return beta * divergence.mean(0).clamp_min(free).sum() - log_likelihood.mean()


def claims() -> Iterator[Claim]:
    """The laws that the bound obeys."""
    near = made(torch.tanh, "n 3")

    def by_torch(mean: Tensor, log_variance: Tensor) -> Tensor:
        q = torch.distributions.Normal(mean, (log_variance / 2).exp())
        return torch.distributions.kl_divergence(
            q, torch.distributions.Normal(mean.new_tensor(0.5), mean.new_tensor(2))
        )

    def to_another(mean: Tensor, log_variance: Tensor) -> Tensor:
        return gaussian_divergence(mean, log_variance, prior_mean=0.5, prior_log_variance=math.log(4))

    yield Claim(agreement(other=by_torch), to_another, (near, near), name="gaussian_divergence")
    yield Claim(derivative(formula=lambda m, s: m), gaussian_divergence, (near, near))
    yield Claim(boundedness(low=0.0), gaussian_divergence, (near, near))

    def to_itself(mean: Tensor, log_variance: Tensor) -> Tensor:
        return gaussian_divergence(mean, log_variance, prior_mean=mean, prior_log_variance=log_variance)

    zero = agreement(other=lambda m, s: torch.zeros_like(m))
    yield Claim(zero, to_itself, (near, near), name="gaussian_divergence from itself")

    def one_by_one(x: Tensor, kl: Tensor) -> Tensor:
        total = -x.sum() / len(x)
        for column in kl.T:
            mean = column.sum() / len(kl)
            total = total + 3 * (mean if mean > 0.5 else torch.full_like(mean, 0.5))
        return total

    def loss(x: Tensor, kl: Tensor) -> Tensor:
        return negative_elbo(x, kl, beta=3.0, free=0.5)

    yield Claim(agreement(other=one_by_one), loss, (shape("n"), made(torch.abs, "n 3")), name="negative_elbo")
