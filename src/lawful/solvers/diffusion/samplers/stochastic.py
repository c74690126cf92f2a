"""Samplers with noise in every step: the reverse SDE by Euler and Maruyama, and DDPM's ancestral steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, inf, isfinite, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, shape
from lawful.solvers.diffusion.gaussian_path import GaussianPath
from lawful.solvers.diffusion.paths import discrete_chain, variance_preserving
from lawful.solvers.diffusion.sampling import Walk, Walker, towards


class Stepwise(Walker):
    """A sampler that is known by one step; the last, if it leads to the data, is their denoised value."""

    @abstractmethod
    def step(
        self, x: Tensor, denoised: Tensor, noise: Tensor, path: GaussianPath, t: Tensor, s: Tensor
    ) -> Float[Tensor, "n *shape"]:
        """Goes from time t to s, an earlier one, given the denoised data and noise."""

    def lead(self, walk: Walk, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""
        for i, t, s in walk.steps():
            denoised = walk.denoised(x, t)
            if not s:
                return towards(x, denoised, walk.path, t, s)
            x = self.step(x, denoised, walk.noise(x, i), walk.path, t, s)
        return x


@dataclass(frozen=True, kw_only=True)
class ReverseSDE(Stepwise):
    r"""Runs the stochastic differential equation of a path backwards, by the method of Euler and Maruyama.

    $$x_{t - h} = x_t - h \Bigl(f x_t - \frac{1 + \eta^2}{2} \, g^2 \, \nabla \log p_t(x_t)\Bigr) +
    \eta \, g \sqrt h \, \varepsilon$$

    The marginals are the same for every $\eta$: with 1 it is Anderson's reverse SDE, with 0 the probability flow by
    Euler's steps. Where $\alpha = 0$, $f$ is infinite, and the grid has to begin inside the path.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        chance: $\eta$.

    Examples:
        >>> from lawful.solvers.diffusion import begin, linear, variance_preserving
        >>> path = variance_preserving()
        >>> grid = linear(path, 20)
        >>> ReverseSDE()(lambda x, t: path.alpha(t) * x, begin(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    chance: float = 1.0

    def __post_init__(self) -> None:
        _chance(self.chance, inf)

    def step(
        self, x: Tensor, denoised: Tensor, noise: Tensor, path: GaussianPath, t: Tensor, s: Tensor
    ) -> Float[Tensor, "n *shape"]:
        """Goes from time t to s."""
        drift, squared = float(path.drift(t)), float(path.squared_diffusion(t))
        if not isfinite(drift) or not isfinite(squared):
            raise ValueError(
                f"the reverse SDE is singular at t={float(t):g} of the {path.name} path, where alpha=0: begin the grid"
                " at a finite noise ratio, such as high=100, or take ancestral steps"
            )
        h = float(t - s)
        pull = (1 + self.chance**2) / 2 * squared
        x = x - h * (drift * x - pull * path.score(x, denoised, t))
        return x + self.chance * sqrt(squared * h) * noise


@dataclass(frozen=True, kw_only=True)
class Ancestral(Stepwise):
    r"""Draws each step as if the denoised data were the true ones: DDPM's sampler, on any path.

    $$x_s = \alpha_s D + \sqrt{\sigma_s^2 - \eta^2 v} \; \frac{x_t - \alpha_t D}{\sigma_t} +
    \eta \sqrt v \, \varepsilon, \qquad v = \sigma_s^2 \Bigl(1 - \frac{\rho_s^2}{\rho_t^2}\Bigr)$$

    With $\eta = 1$ it is $q(x_s \mid x_t, x_0 = D)$, DDPM's step on the path of its chain; with 0 it is DDIM.

    Reference:
        Ho, Jain and Abbeel, *Denoising Diffusion Probabilistic Models*, 2020; Song, Meng and Ermon, *Denoising
        Diffusion Implicit Models*, 2021.

    Args:
        chance: $\eta$, from 0 to 1.

    Examples:
        >>> from lawful.solvers.diffusion import begin, discrete_chain, linear
        >>> path = discrete_chain([0.1] * 40)
        >>> grid = linear(path, 40)
        >>> Ancestral()(lambda x, t: path.alpha(t) * x, begin(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    chance: float = 1.0

    def __post_init__(self) -> None:
        _chance(self.chance, 1.0)

    def step(
        self, x: Tensor, denoised: Tensor, noise: Tensor, path: GaussianPath, t: Tensor, s: Tensor
    ) -> Float[Tensor, "n *shape"]:
        """Goes from time t to s."""
        here, there = path.at(t), path.at(s)
        part = 1 - float(there.sigma / there.alpha * here.alpha / here.sigma) ** 2
        new = self.chance**2 * part
        kept = float(there.sigma) * sqrt(max(0.0, 1 - new))
        direction = (x - float(here.alpha) * denoised) / float(here.sigma)
        return float(there.alpha) * denoised + kept * direction + float(there.sigma) * sqrt(new) * noise


def _chance(chance: float, most: float) -> None:
    if not (0 <= chance <= most and chance < inf):
        raise ValueError("chance is at least 0" + (f", and up to {most:g}" if most < inf else "") + f": got {chance}")


def claims() -> Iterator[Claim]:
    """The laws that stochastic steps obey."""
    path, chain = variance_preserving(), discrete_chain([0.1, 0.3, 0.2])
    three = (shape("n 2"),) * 3

    def ancestral(x: Tensor, d: Tensor, noise: Tensor) -> Tensor:
        t, s = torch.tensor([3.0, 2.0], dtype=torch.float64)
        return Ancestral().step(x, d, noise, chain, t, s)

    def ddpm(x: Tensor, d: Tensor, noise: Tensor) -> Tensor:
        """Equations 6 and 7 of Ho et al., from step 3 to step 2."""
        beta, before, here = 0.2, 0.9 * 0.7, 0.9 * 0.7 * 0.8
        mean = sqrt(before) * beta / (1 - here) * d + sqrt(1 - beta) * (1 - before) / (1 - here) * x
        return mean + sqrt((1 - before) / (1 - here) * beta) * noise

    yield Claim(agreement(other=ddpm), ancestral, three, name="Ancestral, DDPM")
    t, s = torch.tensor([0.6, 0.5], dtype=torch.float64)
    yield Claim(
        agreement(other=lambda x, d, noise: towards(x, d, path, t, s)),
        lambda x, d, noise: Ancestral(chance=0.0).step(x, d, noise, path, t, s),
        three,
        name="Ancestral without chance, DDIM",
    )
    for chance in (0.0, 1.0):

        def euler(x: Tensor, d: Tensor, noise: Tensor, chance: float = chance) -> Tensor:
            return ReverseSDE(chance=chance).step(x, d, noise, path, t, s)

        def by_hand(x: Tensor, d: Tensor, noise: Tensor, chance: float = chance) -> Tensor:
            beta, b = 0.1 + 19.9 * 0.6, 0.06 + 9.95 * 0.36
            score = (exp(-b / 2) * d - x) / (1 - exp(-b))
            drift = -beta / 2 * x - (1 + chance) / 2 * beta * score
            return x - 0.1 * drift + chance * sqrt(0.1 * beta) * noise

        yield Claim(agreement(other=by_hand), euler, three, name=f"ReverseSDE, chance {chance:g}")
