"""Second derivations of GAN losses."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import Claim, agreement, derivative, shape, transformed
from lawful.losses import HINGE, MINIMAX, NON_SATURATING, discriminator_loss, gradient_penalty, r1_penalty


def claims() -> Iterator[Claim]:
    """Laws of GAN losses."""
    both = (transformed(lambda x: 5 * x.tanh(), "n"), transformed(lambda x: 5 * x.tanh(), "m"))

    def entropy(real: Tensor, fake: Tensor) -> Tensor:
        return -real.sigmoid().log().mean() - (1 - fake.sigmoid()).log().mean()

    yield Claim(agreement(other=entropy), discriminator_loss, both)

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
        agreement(other=divergence), best, transformed(torch.tanh, "2 4"), name="discriminator_loss, by the best critic"
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

    def penalty(x: Tensor, y: Tensor, t: Tensor) -> Tensor:
        return gradient_penalty(bowl, x, y, t)

    def distances(x: Tensor, y: Tensor, t: Tensor) -> Tensor:
        return torch.stack([((a * s + b * (1 - s)).norm() - 1) ** 2 for a, b, s in zip(x, y, t, strict=True)]).mean()

    yield Claim(agreement(other=distances), penalty, points, name="gradient_penalty of a bowl")

    def centered_penalty(x: Tensor) -> Tensor:
        return r1_penalty(bowl, x)

    yield Claim(agreement(other=lambda x: x.square().sum(1).mean()), centered_penalty, shape("n 3"), name="r1_penalty")
