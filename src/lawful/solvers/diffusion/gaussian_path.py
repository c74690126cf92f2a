"""The Gaussian path: from data to noise, by a scale of the one and a spread of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, made

Times = Float[Tensor, "*n"] | float


class Level(NamedTuple):
    r"""Holds the two numbers of a path at some times, and how fast they change."""

    alpha: Float[Tensor, "*n"]
    r"""$\alpha(t)$, the scale of the data."""
    sigma: Float[Tensor, "*n"]
    r"""$\sigma(t)$, the spread of the noise."""
    alpha_rate: Float[Tensor, "*n"]
    r"""$\dot\alpha(t)$"""
    sigma_rate: Float[Tensor, "*n"]
    r"""$\dot\sigma(t)$"""


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianPath:
    r"""Leads from data at time 0 to noise at the last time.

    $$x_t = \alpha(t) \, x_0 + \sigma(t) \, \varepsilon, \qquad \alpha(0) = 1, \quad \sigma(0) = 0$$

    The same marginals are those of an SDE, $dx = f(t) x \, dt + g(t) \, dw$, with

    $$f = \frac{\dot\alpha}{\alpha}, \qquad g^2 = 2 \sigma \Bigl(\dot\sigma - \sigma \frac{\dot\alpha}{\alpha}\Bigr)$$

    and of an ordinary differential equation, $\dot x = \dot\alpha \, D + \dot\sigma \, (x - \alpha D) / \sigma$, where
    $D(x, t) = \mathbb{E}[x_0 \mid x_t = x]$. In the noise ratio $\rho = \sigma / \alpha$ and $z = x / \alpha$ all paths
    are one: $dz / d\rho = (z - D) / \rho$. Everything is in double precision, whatever the data are in.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021; Karras, Aittala,
        Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        name: What errors call it.
        level: From times to $\alpha$, $\sigma$ and their derivatives.
        time_of: The inverse of $\rho(t)$; of infinity, where $\alpha$ reaches 0, too.
        last: The time of noise.

    Examples:
        >>> from lawful.solvers.diffusion.paths import variance_preserving
        >>> path = variance_preserving()
        >>> round(float(path.alpha(1.0)), 4), round(float(path.time_of(path.ratio(0.3))), 4)
        (0.0066, 0.3)
    """

    name: str
    level: Callable[[Tensor], Level]
    time_of: Callable[[Tensor], Tensor]
    last: float

    def at(self, t: Times) -> Level:
        """Returns alpha, sigma and their derivatives at times from 0 to the last."""
        t = torch.as_tensor(t, dtype=torch.float64)
        if not bool(((t >= 0) & (t <= self.last)).all()):
            raise ValueError(f"times of the {self.name} path are from 0 to {self.last:g}: got {t.tolist()}")
        return self.level(t)

    def alpha(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns $\alpha(t)$."""
        return self.at(t).alpha

    def sigma(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns $\sigma(t)$."""
        return self.at(t).sigma

    def ratio(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns the noise ratio $\rho = \sigma / \alpha$, which is EDM's $\sigma$."""
        level = self.at(t)
        return level.sigma / level.alpha

    def log_snr(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns the logarithm of the signal-to-noise ratio, $\lambda = \log(\alpha^2 / \sigma^2)$."""
        return -2 * self.ratio(t).log()

    def time_of_log_snr(self, log_snr: Times) -> Float[Tensor, "*n"]:
        r"""Returns the time at which $\lambda$ has a value: $\rho = e^{-\lambda / 2}$."""
        return self.time_of((torch.as_tensor(log_snr, dtype=torch.float64) / -2).exp())

    def drift(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns $f(t) = \dot\alpha / \alpha$; minus infinity where nothing of the data is left."""
        level = self.at(t)
        return level.alpha_rate / level.alpha

    def squared_diffusion(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns $g(t)^2 = 2 \sigma (\dot\sigma - \sigma \dot\alpha / \alpha)$."""
        a, s, a_rate, s_rate = self.at(t)
        return 2 * s * (s_rate - s * a_rate / a)

    def noised(
        self, x: Float[Tensor, "n *shape"], noise: Float[Tensor, "n *shape"], t: Times
    ) -> Float[Tensor, "n *shape"]:
        r"""Returns $\alpha(t) x_0 + \sigma(t) \varepsilon$, at one time or one time for each sample."""
        level = self.at(t)
        return beside(level.alpha, x) * x + beside(level.sigma, x) * noise

    def score(
        self, x: Float[Tensor, "n *shape"], denoised: Float[Tensor, "n *shape"], t: Times
    ) -> Float[Tensor, "n *shape"]:
        r"""Returns $\nabla \log p_t(x) = (\alpha D - x) / \sigma^2$ (Tweedie's formula)."""
        level = self.at(t)
        return (beside(level.alpha, x) * denoised - x) / beside(level.sigma.square(), x)

    def velocity(
        self, x: Float[Tensor, "n *shape"], denoised: Float[Tensor, "n *shape"], t: Times
    ) -> Float[Tensor, "n *shape"]:
        r"""Returns $\dot x$ of the ordinary differential equation; it has no singularity where $\alpha = 0$."""
        a, s, a_rate, s_rate = (beside(value, x) for value in self.at(t))
        return a_rate * denoised + s_rate / s * (x - a * denoised)

    def __repr__(self) -> str:
        return f"GaussianPath({self.name})"


def beside(values: Float[Tensor, "*n"], x: Float[Tensor, "n *shape"]) -> Tensor:
    """Returns one number, or one for each sample, in the precision of x and ready to multiply it."""
    values = values.to(x)
    return values.reshape(-1, *(1,) * (x.dim() - 1)) if values.dim() else values


def claims() -> Iterator[Claim]:
    """The laws that a path obeys: here one of which nothing is special, alpha = exp(-t²), sigma = t (2 + t)."""

    def level(t: Tensor) -> Level:
        alpha = (-t.square()).exp()
        return Level(alpha, t * (2 + t), -2 * t * alpha, 2 + 2 * t)

    path = GaussianPath(name="odd", level=level, time_of=lambda ratio: ratio, last=1.0)

    def inside(x: Tensor) -> Tensor:
        return 0.1 + 0.8 * torch.sigmoid(x)

    def flow(x: Tensor, d: Tensor, t: Tensor) -> Tensor:
        return path.velocity(x, d, t)

    def by_score(x: Tensor, d: Tensor, t: Tensor) -> Tensor:
        """The probability flow as Song et al. write it: f x - g² score / 2."""
        drift, squared = beside(path.drift(t), x), beside(path.squared_diffusion(t), x)
        return drift * x - squared / 2 * path.score(x, d, t)

    near = made(lambda x: 1 + torch.sigmoid(x), "n 2")
    inputs = (near, near, made(inside, "n"))
    yield Claim(agreement(other=by_score), flow, inputs, name="velocity, by the score")

    def tweedie(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return path.score(path.noised(x, noise, t), x, t)

    yield Claim(
        agreement(other=lambda x, noise, t: -noise / (t * (2 + t))[:, None]),
        tweedie,
        inputs,
        name="score of known data",
    )

    def rate_of_variance(t: Tensor) -> Tensor:
        return (2 * path.drift(t) * path.sigma(t).square() + path.squared_diffusion(t)).to(t)

    grows = agreement(other=lambda t: 2 * t * (2 + t) * (2 + 2 * t))
    yield Claim(grows, rate_of_variance, made(inside, "n"), name="the noise that drift and diffusion make")
    yield Claim(
        agreement(other=lambda t: -2 * t.square() - 2 * (t * (2 + t)).log()),
        lambda t: path.log_snr(t).to(t),
        made(inside, "n"),
        name="log_snr",
    )
