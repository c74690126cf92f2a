"""The negative log-likelihood of a variational autoencoder lacks its sign (pythae `get_nll`)."""

import math

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import agreement

LOADING = torch.tensor([2.0, -1.0, 0.5])


def exact(x: Tensor) -> Tensor:
    """Integrates the latent out: x is Gaussian, with covariance 1 + w wᵀ."""
    w = LOADING.to(x)
    covariance = torch.eye(3, dtype=x.dtype, device=x.device) + torch.outer(w, w)
    return -torch.distributions.MultivariateNormal(torch.zeros_like(w), covariance).log_prob(x)


law = agreement(other=exact)
inputs = shape("b 3")
max_sizes = {"b": 1}


class Fixed(nn.Module):
    r"""Estimates $-\log p(x)$ by importance sampling, for $x = w z + \epsilon$ with Gaussian $z$ and $\epsilon$.

    The encoder is the exact posterior, so that each sample gives the exact likelihood.
    """

    def __init__(self, samples: int = 4) -> None:
        super().__init__()
        self.samples = samples

    def forward(self, x: Tensor) -> Tensor:
        w = LOADING.to(x)
        precision = 1 + w @ w
        mean, spread = x @ w / precision, precision**-0.5
        noise = torch.randn(self.samples, len(x), dtype=x.dtype, device=x.device)
        z = mean + spread * noise
        log_q = -noise.square() / 2 - spread.log()
        log_joint = -z.square() / 2 - (x - z.unsqueeze(-1) * w).square().sum(-1) / 2
        log_weights = log_joint - log_q - 1.5 * math.log(2 * math.pi)
        return self.result(log_weights.logsumexp(0) - math.log(self.samples))

    def result(self, log_p: Tensor) -> Tensor:
        return -log_p


class Broken(Fixed):
    """Returns the log-likelihood instead of its negative."""

    def result(self, log_p: Tensor) -> Tensor:
        return log_p
