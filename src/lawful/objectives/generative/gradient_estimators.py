"""Gradients of expectations: through samples, or through their probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, made, reparameterised_gradient, shape

LOG_2PI = math.log(2 * math.pi)


def reparameterised(
    mean: Float[Tensor, "*batch"], log_variance: Float[Tensor, "*batch"], noise: Float[Tensor, "*more"]
) -> Float[Tensor, "*more"]:
    r"""Draws Gaussian samples through which gradients pass: $z = \mu + \sigma \varepsilon$.

    $$\nabla_\theta \, \mathbb{E}_{z \sim q_\theta} h(z) = \mathbb{E}_\varepsilon \nabla_\theta \,
    h(\mu_\theta + \sigma_\theta \varepsilon)$$

    The noise has no parameters, so the gradient goes inside: an unbiased estimate, of little variance where $h$ is
    smooth.

    Reference:
        Kingma and Welling, *Auto-Encoding Variational Bayes*, 2014.

    Args:
        mean: $\mu$.
        log_variance: $\log \sigma^2$.
        noise: $\varepsilon$, standard normal, of the shape of the mean with any axes in front.

    Examples:
        >>> reparameterised(torch.tensor([1.0]), torch.zeros(1), torch.tensor([[2.0], [-1.0]]))
        tensor([[3.],
                [0.]])
    """
    return mean + (log_variance / 2).exp() * noise


def gaussian_log_density(
    z: Float[Tensor, "*more k"], mean: Float[Tensor, "*batch k"], log_variance: Float[Tensor, "*batch k"]
) -> Float[Tensor, "*more"]:
    r"""Returns the log-density of a diagonal Gaussian, summed over the last axis.

    $$\log q(z) = - \frac12 \sum_j \Bigl(\frac{(z_j - \mu_j)^2}{\sigma_j^2} + \log 2 \pi \sigma_j^2\Bigr)$$

    Args:
        z: Where.
        mean: $\mu$.
        log_variance: $\log \sigma^2$.

    Examples:
        >>> gaussian_log_density(torch.zeros(1), torch.zeros(1), torch.zeros(1))
        tensor(-0.9189)
    """
    return -((z - mean).square() * (-log_variance).exp() + log_variance + LOG_2PI).sum(-1) / 2


def score_function(
    values: Float[Tensor, " n"], log_density: Float[Tensor, " n"], *, baseline: float | Float[Tensor, ""] = 0.0
) -> Float[Tensor, ""]:
    r"""Makes a number whose gradient estimates that of an expectation, without one of $h$ (REINFORCE).

    $$\nabla_\theta \, \mathbb{E} h(z) = \mathbb{E} \bigl(h(z) - b\bigr) \nabla_\theta \log q_\theta(z)$$

    It asks nothing of $h$, which may be a step, and has far more variance than `reparameterised` where both apply.

    Reference:
        Williams, *Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning*, 1992.

    Args:
        values: $h(z)$ of samples, which pass no gradient.
        log_density: $\log q_\theta(z)$ of the same samples, which does.
        baseline: $b$, independent of the samples: it changes the variance only.

    Examples:
        >>> p = torch.tensor(0.0, requires_grad=True)
        >>> score_function(torch.tensor([1.0, 3.0]), p * torch.tensor([1.0, -1.0])).backward()
        >>> p.grad
        tensor(-1.)
    """
    return ((values.detach() - baseline) * log_density).mean()


class _Gaussian(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor([0.3, -0.5]))
        self.log_variance = nn.Parameter(torch.tensor([-0.4, 0.6]))

    def rsample(self, n: int) -> Tensor:
        return reparameterised(self.mean, self.log_variance, torch.randn(n, 2, dtype=self.mean.dtype))

    def log_prob(self, z: Tensor) -> Tensor:
        return gaussian_log_density(z, self.mean, self.log_variance)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mean


def claims() -> Iterator[Claim]:
    """The laws that the estimators obey."""
    yield Claim(reparameterised_gradient(), _Gaussian(), shape("n 2"), name="reparameterised")
    near = made(torch.tanh, "n 2")

    def by_torch(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        return torch.distributions.Normal(mean, log_variance.exp().sqrt()).log_prob(z).sum(-1)

    yield Claim(agreement(other=by_torch), gaussian_log_density, (near, near, near))

    def of_a_coin(x: Tensor) -> Tensor:
        """The gradient of the mean of h by the logit of a coin, both sides weighted as often as they fall; plus 1."""
        with torch.enable_grad():
            p = x[0].detach().requires_grad_()
            sides = torch.stack([nn.functional.logsigmoid(p), nn.functional.logsigmoid(-p)])
            weighted = 2 * sides.exp().detach() * sides
            return torch.autograd.grad(score_function(x[1:], weighted, baseline=0.7), p)[0] + 1

    def exact(x: Tensor) -> Tensor:
        return 1 + (x[1] - x[2]) * x[0].sigmoid() * (1 - x[0].sigmoid())

    yield Claim(agreement(other=exact), of_a_coin, made(torch.tanh, "3"), name="score_function, of a coin")
