"""The games of a generator and a critic: what each lowers, and the penalties that keep the critic smooth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import Claim, agreement, derivative, shape, transformed

Critic = Callable[[Tensor], Tensor]
"""From samples to a score each: high for what looks like data."""


@dataclass(frozen=True)
class Game:
    """Holds what two players lower, from the critic's scores of data and of samples.

    Args:
        critic: The critic's loss, from the scores of data and those of samples.
        generator: The generator's, from the scores of its samples.

    Examples:
        >>> data, samples = torch.tensor([2.0]), torch.tensor([-1.0])
        >>> WASSERSTEIN.critic(data, samples), WASSERSTEIN.generator(samples)
        (tensor(-3.), tensor(1.))
    """

    critic: Callable[[Float[Tensor, " n"], Float[Tensor, " m"]], Float[Tensor, ""]]
    generator: Callable[[Float[Tensor, " m"]], Float[Tensor, ""]]


def told_apart(real: Float[Tensor, " n"], fake: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    r"""Measures how badly a critic tells data from samples, by their cross-entropy.

    $$-\mathbb{E}_x \log \sigma(D(x)) - \mathbb{E}_z \log\bigl(1 - \sigma(D(G(z)))\bigr)$$

    The best critic is $D = \log p / q$; with it this is $\log 4 - 2 \, \mathrm{JS}(p, q)$.

    Reference:
        Goodfellow and others, *Generative Adversarial Nets*, 2014.

    Args:
        real: The scores of data.
        fake: The scores of samples.
    """
    return -F.logsigmoid(real).mean() - F.logsigmoid(-fake).mean()


def _minimax(fake: Tensor) -> Tensor:
    return F.logsigmoid(-fake).mean()


def _non_saturating(fake: Tensor) -> Tensor:
    return -F.logsigmoid(fake).mean()


def _hinge(real: Tensor, fake: Tensor) -> Tensor:
    return (1 - real).clamp_min(0).mean() + (1 + fake).clamp_min(0).mean()


def _gap(real: Tensor, fake: Tensor) -> Tensor:
    return fake.mean() - real.mean()


def _lifted(fake: Tensor) -> Tensor:
    return -fake.mean()


MINIMAX = Game(told_apart, _minimax)
r"""The generator lowers $\mathbb{E} \log(1 - \sigma(D))$, the critic's gain: flat where samples are seen through."""
NON_SATURATING = Game(told_apart, _non_saturating)
r"""The generator lowers $-\mathbb{E} \log \sigma(D)$: the same fixed point, steep where samples are seen through."""
WASSERSTEIN = Game(_gap, _lifted)
r"""The critic raises $\mathbb{E} D(x) - \mathbb{E} D(G(z))$: of all of slope 1 the most is Wasserstein's distance."""
HINGE = Game(_hinge, _lifted)
"""The critic only has to be right by 1."""


def gradient_penalty(
    critic: Critic, real: Float[Tensor, "n ..."], fake: Float[Tensor, "n ..."], t: Float[Tensor, " n"]
) -> Float[Tensor, ""]:
    r"""Measures how far a critic's slope is from 1, on the lines between data and samples.

    $$\mathbb{E} \bigl(\|\nabla D(t x + (1 - t) y)\|_2 - 1\bigr)^2$$

    Reference:
        Gulrajani, Ahmed, Arjovsky, Dumoulin and Courville, *Improved Training of Wasserstein GANs*, 2017.

    Args:
        critic: $D$.
        real: Data $x$.
        fake: Samples $y$.
        t: Where on each line, from 0 to 1; drawn evenly in training.

    Examples:
        >>> x = torch.zeros(2, 3)
        >>> gradient_penalty(lambda x: 3 * x[:, 0], x, x + 1, torch.tensor([0.1, 0.7])).item()
        4.0
    """
    t = t.reshape(-1, *[1] * (real.dim() - 1))
    slope = _slope(critic, t * real.detach() + (1 - t) * fake.detach())
    return (slope.square().sum(1).clamp_min(torch.finfo(slope.dtype).tiny).sqrt() - 1).square().mean()


def r1_penalty(critic: Critic, x: Float[Tensor, "n ..."]) -> Float[Tensor, ""]:
    r"""Measures how steep a critic is where the data are: $\mathbb{E} \|\nabla D(x)\|_2^2$ (R1).

    Without it, the players circle around the solution once they are close; with it they converge.

    Reference:
        Mescheder, Geiger and Nowozin, *Which Training Methods for GANs do actually Converge?*, 2018.

    Args:
        critic: $D$.
        x: Data.

    Examples:
        >>> r1_penalty(lambda x: 3 * x[:, 0], torch.zeros(2, 3)).item()
        9.0
    """
    return _slope(critic, x.detach()).square().sum(1).mean()


def _slope(critic: Critic, x: Tensor) -> Tensor:
    """The gradient of the critic at each sample, which can be derived again."""
    with torch.enable_grad():
        x = x.requires_grad_()
        scores = critic(x)
        if scores.shape != x.shape[:1]:
            raise ValueError(f"one score for each of {len(x)} samples was wanted: got shape {tuple(scores.shape)}")
        return torch.autograd.grad(scores.sum(), x, create_graph=True)[0].flatten(1)


def claims() -> Iterator[Claim]:
    """The laws that the games obey."""
    both = (transformed(lambda x: 5 * x.tanh(), "n"), transformed(lambda x: 5 * x.tanh(), "m"))

    def entropy(real: Tensor, fake: Tensor) -> Tensor:
        return -real.sigmoid().log().mean() - (1 - fake.sigmoid()).log().mean()

    yield Claim(agreement(other=entropy), told_apart, both)

    def best(x: Tensor) -> Tensor:
        p, q = x.softmax(1)
        ratio = (p / q).log()
        return (p * F.softplus(-ratio)).sum() + (q * F.softplus(ratio)).sum()

    def divergence(x: Tensor) -> Tensor:
        p, q = x.softmax(1)
        m = (p + q) / 2
        js = ((p * (p / m).log()).sum() + (q * (q / m).log()).sum()) / 2
        return torch.tensor(4.0).to(x).log() - 2 * js

    yield Claim(
        agreement(other=divergence), best, transformed(torch.tanh, "2 4"), name="told_apart, by the best critic"
    )
    flat = derivative(formula=lambda s: -s.sigmoid() / len(s))
    yield Claim(flat, MINIMAX.generator, shape("n"), name="MINIMAX.generator")
    steep = derivative(formula=lambda s: (s.sigmoid() - 1) / len(s))
    yield Claim(steep, NON_SATURATING.generator, shape("n"), name="NON_SATURATING.generator")

    def hinged(real: Tensor, fake: Tensor) -> Tensor:
        return torch.where(real < 1, 1 - real, 0.0).sum() / len(real) + torch.where(fake > -1, 1 + fake, 0.0).mean()

    yield Claim(agreement(other=hinged), HINGE.critic, both, name="HINGE.critic")
    points = (shape("n 3"), shape("n 3"), transformed(torch.sigmoid, "n"))

    def bowl(x: Tensor) -> Tensor:
        return x.square().sum(1) / 2

    def penalised(x: Tensor, y: Tensor, t: Tensor) -> Tensor:
        return gradient_penalty(bowl, x, y, t)

    def distances(x: Tensor, y: Tensor, t: Tensor) -> Tensor:
        return torch.stack([((a * s + b * (1 - s)).norm() - 1) ** 2 for a, b, s in zip(x, y, t, strict=True)]).mean()

    yield Claim(agreement(other=distances), penalised, points, name="gradient_penalty of a bowl")

    def centred(x: Tensor) -> Tensor:
        return r1_penalty(bowl, x)

    yield Claim(agreement(other=lambda x: x.square().sum(1).mean()), centred, shape("n 3"), name="zero_centred_penalty")
