"""Codes of a variational autoencoder: what is believed of them after a look at an example, and before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, made
from lawful.objectives.generative import (
    categorical_divergence,
    gaussian_divergence,
    gaussian_log_density,
    gumbel,
    gumbel_max,
    gumbel_softmax,
    reparameterised,
)


@runtime_checkable
class Relaxation(Protocol):
    """Makes a choice of logits and Gumbel noise that gradients pass through."""

    def __call__(self, logits: Tensor, noise: Tensor, *, temperature: float) -> Tensor:
        """Returns a point of the simplex."""
        ...


@runtime_checkable
class Codes(Protocol):
    r"""Reads the output of an encoder as a distribution $q(z \mid x)$ of codes, beside a fixed one $p(z)$."""

    outputs: int
    """How many numbers an encoder puts out for an example."""
    size: int
    """The size of a code."""

    def noise(self, u: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Turns even noise between 0 and 1, both left out, into what codes are made of."""
        ...

    def draw(self, q: Float[Tensor, "n o"], noise: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n k"]:
        r"""Draws codes from $q(z \mid x)$."""
        ...

    def prior(self, noise: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Draws codes from $p(z)$."""
        ...

    def mean(self, q: Float[Tensor, "n o"]) -> Float[Tensor, "n k"]:
        r"""Returns the mean of $q(z \mid x)$."""
        ...

    def divergence(self, q: Float[Tensor, "n o"]) -> Float[Tensor, "n u"]:
        r"""Returns the divergence of $q(z \mid x)$ from $p(z)$ for each unit of a code, in nats."""
        ...

    def log_ratio(self, q: Float[Tensor, "n o"], z: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(z) - \log q(z \mid x)$."""
        ...

    def spread(self, q: Float[Tensor, "n o"]) -> Float[Tensor, " u"]:
        """Returns how much the mean of each unit varies over examples."""
        ...


class GaussianCodes(nn.Module):
    r"""Reads the output of an encoder as a diagonal Gaussian; before a look, codes are standard normal.

    $$q(z \mid x) = \mathcal{N}(\mu, \operatorname{diag} \sigma^2), \qquad (\mu, \log \sigma^2) = \text{output}$$

    Args:
        size: The size of a code.

    Examples:
        >>> codes = GaussianCodes(2)
        >>> codes.divergence(torch.tensor([[0.0, 2.0, 0.0, 0.0]]))
        tensor([[0., 2.]])
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a code has at least 1 number: got {size}")
        self.size, self.outputs = size, 2 * size

    def noise(self, u: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Returns standard normal noise, by its quantiles."""
        return torch.special.ndtri(u)

    def draw(self, q: Float[Tensor, "n o"], noise: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n k"]:
        r"""Returns $\mu + \sigma \varepsilon$."""
        mean, log_variance = q.chunk(2, -1)
        return reparameterised(mean, log_variance, noise)

    def prior(self, noise: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Returns the noise itself."""
        return noise

    def mean(self, q: Float[Tensor, "n o"]) -> Float[Tensor, "n k"]:
        r"""Returns $\mu$."""
        return q[:, : self.size]

    def divergence(self, q: Float[Tensor, "n o"]) -> Float[Tensor, "n k"]:
        """Returns the divergence for each coordinate."""
        return gaussian_divergence(*q.chunk(2, -1))

    def log_ratio(self, q: Float[Tensor, "n o"], z: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(z) - \log q(z \mid x)$."""
        mean, log_variance = q.chunk(2, -1)
        standard = torch.zeros_like(mean)
        return gaussian_log_density(z, standard, standard) - gaussian_log_density(z, mean, log_variance)

    def spread(self, q: Float[Tensor, "n o"]) -> Float[Tensor, " k"]:
        r"""Returns the variance of each $\mu_j$ over examples."""
        return self.mean(q).var(0, correction=0)


class CategoricalCodes(nn.Module):
    r"""Reads the output of an encoder as independent choices; before a look, all are as probable.

    $$q(z_u = c \mid x) = \operatorname{softmax}(\ell_u)_c, \qquad \ell = \text{output}$$

    A code is a 1 among 0s for each choice. In training it is relaxed, so that gradients pass; in evaluation it is drawn
    by `gumbel_max`, and bounds are bounds.

    Args:
        units: How many choices a code has.
        classes: Among how many each is.
        temperature: That of the relaxation.
        relaxed: How a choice is made in training: `gumbel_softmax` or `gumbel_straight`.

    Examples:
        >>> codes = CategoricalCodes(2, classes=3).eval()
        >>> codes.prior(codes.noise(torch.rand(4, 6))).reshape(4, 2, 3).sum(-1).unique()
        tensor([1.])
    """

    def __init__(
        self, units: int, *, classes: int, temperature: float = 0.67, relaxed: Relaxation = gumbel_softmax
    ) -> None:
        super().__init__()
        if units < 1 or classes < 2:
            raise ValueError(f"a code has at least 1 choice among 2: got {units} among {classes}")
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature is above 0, and finite: got {temperature}")
        self.units, self.classes, self.temperature = units, classes, temperature
        self.size = self.outputs = units * classes
        self.relaxed = relaxed

    def noise(self, u: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Returns Gumbel noise, by its quantiles."""
        return gumbel(u)

    def draw(self, q: Float[Tensor, "n o"], noise: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n k"]:
        """Chooses; in training, nearly."""
        logits, noise = self._apart(q).expand_as(self._apart(noise)), self._apart(noise)
        if self.training:
            return self.relaxed(logits, noise, temperature=self.temperature).flatten(-2)
        return gumbel_max(logits, noise).flatten(-2)

    def prior(self, noise: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Chooses, each class as often."""
        noise = self._apart(noise)
        return gumbel_max(torch.zeros_like(noise), noise).flatten(-2)

    def mean(self, q: Float[Tensor, "n o"]) -> Float[Tensor, "n k"]:
        """Returns the probabilities."""
        return self._apart(q).softmax(-1).flatten(-2)

    def divergence(self, q: Float[Tensor, "n o"]) -> Float[Tensor, "n u"]:
        """Returns the divergence for each choice."""
        return categorical_divergence(self._apart(q))

    def log_ratio(self, q: Float[Tensor, "n o"], z: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(z) - \log q(z \mid x)$ of choices."""
        chosen = (self._apart(z) * self._apart(q).log_softmax(-1)).sum((-2, -1))
        return -self.units * math.log(self.classes) - chosen

    def spread(self, q: Float[Tensor, "n o"]) -> Float[Tensor, " u"]:
        """Returns the variance of the probabilities of each choice over examples, added up."""
        return self._apart(self.mean(q)).var(0, correction=0).sum(-1)

    def _apart(self, z: Tensor) -> Tensor:
        return z.unflatten(-1, (self.units, self.classes))


def claims() -> Iterator[Claim]:
    """The laws that codes obey: the divergence is the mean of the log-ratio, exactly where it can be."""
    choices = CategoricalCodes(2, classes=3).eval()
    corners = torch.eye(3)
    each = torch.stack([torch.cat([a, b]) for a in corners for b in corners])

    def averaged(q: Tensor) -> Tensor:
        """The mean of -log p/q over all codes there are."""
        z = each.to(q)[:, None].expand(-1, len(q), -1)
        p = q.unflatten(-1, (2, 3)).softmax(-1)
        weights = torch.stack([p[:, 0, a] * p[:, 1, b] for a in range(3) for b in range(3)])
        return -(weights * choices.log_ratio(q, z)).sum(0)

    def total(q: Tensor) -> Tensor:
        return choices.divergence(q).sum(-1)

    near = made(torch.tanh, "n 6")
    yield Claim(agreement(other=averaged), total, near, name="CategoricalCodes.divergence")
    normal = GaussianCodes(3)

    def ratio(q: Tensor) -> Tensor:
        return normal.log_ratio(q, normal.draw(q, torch.ones_like(q[:, :3])))

    def by_torch(q: Tensor) -> Tensor:
        mean, sigma = q[:, :3], (q[:, 3:] / 2).exp()
        z = mean + sigma
        plain, own = torch.distributions.Normal(0 * mean, 0 * mean + 1), torch.distributions.Normal(mean, sigma)
        return (plain.log_prob(z) - own.log_prob(z)).sum(-1)

    yield Claim(agreement(other=by_torch), ratio, near, name="GaussianCodes.log_ratio")
