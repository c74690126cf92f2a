"""GAN losses, and gradient penalties of the critic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import Claim, agreement, transformed

Critic = Callable[[Tensor], Tensor]
"""Function from samples to scores (n,), high for data."""


@dataclass(frozen=True)
class GANLoss:
    """Losses of the critic and the generator, as functions of the critic's scores.

    Args:
        critic: Loss of the critic, from the scores of data and of samples.
        generator: Loss of the generator, from the scores of its samples.

    Examples:
        >>> data, samples = torch.tensor([2.0]), torch.tensor([-1.0])
        >>> WASSERSTEIN.critic(data, samples), WASSERSTEIN.generator(samples)
        (tensor(-3.), tensor(1.))
    """

    critic: Callable[[Float[Tensor, " n"], Float[Tensor, " m"]], Float[Tensor, ""]]
    generator: Callable[[Float[Tensor, " m"]], Float[Tensor, ""]]


def discriminator_loss(real: Float[Tensor, " n"], fake: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    r"""Returns the binary cross-entropy of a discriminator of data and samples.

    $$-\mathbb{E}_x \log \sigma(D(x)) - \mathbb{E}_z \log\bigl(1 - \sigma(D(G(z)))\bigr)$$

    The optimal critic is $D = \log p / q$, with the loss $\log 4 - 2 \, \mathrm{JS}(p, q)$.

    Reference:
        Goodfellow and others, *Generative Adversarial Nets*, 2014.

    Args:
        real: Scores of data.
        fake: Scores of samples.
    """
    return -F.logsigmoid(real).mean() - F.logsigmoid(-fake).mean()


def _minimax(fake: Tensor) -> Tensor:
    return F.logsigmoid(-fake).mean()


def _non_saturating(fake: Tensor) -> Tensor:
    return -F.logsigmoid(fake).mean()


def _hinge(real: Tensor, fake: Tensor) -> Tensor:
    return (1 - real).clamp_min(0).mean() + (1 + fake).clamp_min(0).mean()


def _wasserstein_critic(real: Tensor, fake: Tensor) -> Tensor:
    return fake.mean() - real.mean()


def _wasserstein_generator(fake: Tensor) -> Tensor:
    return -fake.mean()


MINIMAX = GANLoss(discriminator_loss, _minimax)
r"""The generator minimizes $\mathbb{E} \log(1 - \sigma(D))$, with vanishing gradients for bad samples."""
NON_SATURATING = GANLoss(discriminator_loss, _non_saturating)
r"""The generator minimizes $-\mathbb{E} \log \sigma(D)$, with large gradients for bad samples."""
WASSERSTEIN = GANLoss(_wasserstein_critic, _wasserstein_generator)
r"""The critic maximizes $\mathbb{E} D(x) - \mathbb{E} D(G(z))$, whose maximum over 1-Lipschitz critics is $W_1$."""
HINGE = GANLoss(_hinge, _wasserstein_generator)
"""Hinge loss of the critic, with margin 1."""


def gradient_penalty(
    critic: Critic, real: Float[Tensor, "n ..."], fake: Float[Tensor, "n ..."], t: Float[Tensor, " n"]
) -> Float[Tensor, ""]:
    r"""Returns the gradient penalty of WGAN-GP, on lines between data and samples.

    $$\mathbb{E} \bigl(\|\nabla D(t x + (1 - t) y)\|_2 - 1\bigr)^2$$

    Reference:
        Gulrajani, Ahmed, Arjovsky, Dumoulin and Courville, *Improved Training of Wasserstein GANs*, 2017.

    Args:
        critic: Critic $D$.
        real: Data $x$.
        fake: Samples $y$.
        t: Position on each line, uniform in [0, 1].

    Examples:
        >>> x = torch.zeros(2, 3)
        >>> gradient_penalty(lambda x: 3 * x[:, 0], x, x + 1, torch.tensor([0.1, 0.7])).item()
        4.0
    """
    t = t.reshape(-1, *[1] * (real.dim() - 1))
    gradient = _gradient(critic, t * real.detach() + (1 - t) * fake.detach())
    return (gradient.square().sum(1).clamp_min(torch.finfo(gradient.dtype).tiny).sqrt() - 1).square().mean()


def r1_penalty(critic: Critic, x: Float[Tensor, "n ..."]) -> Float[Tensor, ""]:
    r"""Returns the R1 penalty $\mathbb{E} \|\nabla D(x)\|_2^2$, the squared gradient norm of the critic at the data.

    It makes GAN training locally convergent.

    Reference:
        Mescheder, Geiger and Nowozin, *Which Training Methods for GANs do actually Converge?*, 2018.

    Args:
        critic: Critic $D$.
        x: Data.

    Examples:
        >>> r1_penalty(lambda x: 3 * x[:, 0], torch.zeros(2, 3)).item()
        9.0
    """
    return _gradient(critic, x.detach()).square().sum(1).mean()


def _gradient(critic: Critic, x: Tensor) -> Tensor:
    """The gradient of the critic at each sample, differentiable."""
    with torch.enable_grad():
        x = x.requires_grad_()
        scores = critic(x)
        if scores.shape != x.shape[:1]:
            raise ValueError(f"expected scores of shape ({len(x)},), got {tuple(scores.shape)}")
        return torch.autograd.grad(scores.sum(), x, create_graph=True)[0].flatten(1)


def claims() -> Iterator[Claim]:
    """The loss of the optimal discriminator is the Jensen-Shannon divergence."""

    def optimal(x: Tensor) -> Tensor:
        p, q = x.softmax(1)
        log_ratio = (p / q).log()
        return (p * F.softplus(-log_ratio)).sum() + (q * F.softplus(log_ratio)).sum()

    def divergence(x: Tensor) -> Tensor:
        p, q = x.softmax(1)
        m = (p + q) / 2
        js = ((p * (p / m).log()).sum() + (q * (q / m).log()).sum()) / 2
        return torch.tensor(4.0).to(x).log() - 2 * js

    inputs = transformed(torch.tanh, "2 4")
    yield Claim(agreement(other=divergence), optimal, inputs, name="discriminator_loss of the optimal critic")
