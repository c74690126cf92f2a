"""Samplers with noise in every step: the reverse SDE by Euler and Maruyama, and DDPM's ancestral steps.

Langevin dynamics: of a score, at the levels of a path one after the other, and as a corrector.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import exp, inf, isfinite, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.random import normal_noise
from lawful.laws import Claim, agreement, batch_independence, shape
from lawful.solvers.diffusion.paths import GaussianPath, ddpm_path, variance_preserving
from lawful.solvers.diffusion.samplers import GridSampler, SamplingContext, ddim_step


class Stepwise(GridSampler):
    """A sampler that is known by one step; the last, if it leads to the data, is their denoised value."""

    @abstractmethod
    def step(
        self, x: Tensor, denoised: Tensor, noise: Tensor, path: GaussianPath, t: Tensor, s: Tensor
    ) -> Float[Tensor, "n *shape"]:
        """Goes from time t to s, an earlier one, given the denoised data and noise."""

    def lead(self, walk: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""
        for i, t, s in walk.steps():
            denoised = walk.denoised(x, t)
            if not s:
                return ddim_step(x, denoised, walk.path, t, s)
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
        >>> from lawful.solvers.diffusion import begin, ddpm_path, linear
        >>> path = ddpm_path([0.1] * 40)
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


def _stochastic_claims() -> Iterator[Claim]:
    """The laws that stochastic steps obey."""
    path, chain = variance_preserving(), ddpm_path([0.1, 0.3, 0.2])
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
        agreement(other=lambda x, d, noise: ddim_step(x, d, path, t, s)),
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


def _each(size: Tensor | float, x: Tensor) -> Tensor:
    size = torch.as_tensor(size, dtype=x.dtype, device=x.device)
    return size.reshape(-1, *(1,) * (x.dim() - 1)) if size.dim() else size


@torch.no_grad()
def langevin(
    score: Callable[[Tensor], Tensor],
    x: Float[Tensor, "n *shape"],
    *,
    steps: int,
    size: float | Float[Tensor, " n"],
    seed: int = 0,
    first: int = 0,
) -> Float[Tensor, "n *shape"]:
    r"""Draws from the density whose score is given, without its normalising constant.

    $$x \leftarrow x + \epsilon \, \nabla \log p(x) + \sqrt{2 \epsilon} \, \varepsilon$$

    After many small steps $x$ follows $p$, but for an error of the order of $\epsilon$; between modes that are far
    apart it does not mix in any reasonable time.

    Reference:
        Roberts and Tweedie, *Exponential Convergence of Langevin Distributions and Their Discrete Approximations*,
        1996.

    Args:
        score: $\nabla \log p$, of (n, *shape).
        x: Where the samples begin.
        steps: The number of steps.
        size: $\epsilon$, one number or one for each sample.
        seed: The seed of the noise.
        first: The number of the first sample.

    Examples:
        >>> drawn = langevin(lambda x: -x, torch.zeros(500, 1), steps=100, size=0.1)
        >>> bool((drawn.std() - 1).abs() < 0.2)
        True
    """
    if steps < 1:
        raise ValueError(f"at least 1 step is wanted: got steps={steps}")
    x = x.detach().double()
    epsilon = _each(size, x)
    if epsilon.dim() and len(epsilon) != len(x):
        raise ValueError(f"one size, or one for each of {len(x)} samples, is wanted: got {len(epsilon)}")
    if not bool(((epsilon > 0) & epsilon.isfinite() & x.isfinite()).all()):
        raise ValueError("steps of a size above 0, from where all numbers are finite, are wanted: got others")
    for i in range(steps):
        slope = score(x).detach().to(x)
        if slope.shape != x.shape:
            raise ValueError(f"the score is to keep the shape {tuple(x.shape)}: got {tuple(slope.shape)}")
        if not bool(slope.isfinite().all()):
            raise ValueError(f"the score is NaN or infinite after {i} of {steps} steps: the steps may be too long")
        noise = normal_noise(len(x), *x.shape[1:], seed=seed, stream=1 + i, first=first, dtype=x.dtype).to(x.device)
        x = x + epsilon * slope + (2 * epsilon).sqrt() * noise
    return x


@dataclass(frozen=True, kw_only=True)
class Corrector:
    r"""Lets Langevin dynamics bring samples closer to the law of one noise level, each in steps of its own size.

    $$\epsilon_i = 2 r^2 \min\Bigl(\sigma^2, \; \frac{9 d}{\lVert \nabla \log p_t(x_i) \rVert^2}\Bigr)$$

    $r$ is a signal-to-noise ratio: how long the drift $\epsilon \nabla \log p$ of a step is beside its noise $\sqrt{2
    \epsilon} \, \varepsilon$, in $d$ dimensions where the score is $\sqrt d / \sigma$ long, which is what it is for
    noise alone and the most that it is in the mean square for any law. Where it is more than three times as long, as it
    is outside of that law, steps are shorter. No sample depends on its batch, which a mean over the batch would make it
    do, and the size does not depend on the noise of the step.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        steps: The number of steps at a level.
        ratio: $r$.
    """

    steps: int = 1
    ratio: float = 0.16

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 < self.ratio < inf:
            raise ValueError(f"at least 1 step, with a ratio above 0, is wanted: got {self}")

    def correct(self, walk: SamplingContext, x: Tensor, t: Tensor, stream: int) -> Float[Tensor, "n *shape"]:
        """Takes the steps at time t, with the noise of the streams from `stream` on."""
        variance, d = walk.path.sigma(t).square().to(x), x[0].numel() if len(x) else 1
        for i in range(self.steps):
            score = walk.path.score(x, walk.denoised(x, t), t)
            steep = score.square().flatten(1).sum(1) if x.dim() > 1 else score.square()
            size = _each(2 * self.ratio**2 * torch.minimum(variance, 9 * d / steep.clamp_min(1e-300)), x)
            x = x + size * score + (2 * size).sqrt() * walk.noise(x, stream + i)
        return x


@dataclass(frozen=True, kw_only=True)
class AnnealedLangevin(GridSampler):
    r"""Lets Langevin dynamics run at one noise level after the other, from much noise to little.

    From one level to the next $x / \alpha$ is kept; the step to the data is the denoised value.

    Reference:
        Song and Ermon, *Generative Modeling by Estimating Gradients of the Data Distribution*, 2019.

    Args:
        corrector: How many steps a level has, and how long they are.

    Examples:
        >>> from lawful.solvers.diffusion import begin, edm, logarithmic
        >>> path, grid = edm(), logarithmic(edm(), 10)
        >>> AnnealedLangevin()(lambda x, t: x / (1 + t**2), begin(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    corrector: Corrector = field(default_factory=lambda: Corrector(steps=10))

    def lead(self, walk: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""
        for i, t, s in walk.steps():
            x = self.corrector.correct(walk, x, t, i * self.corrector.steps)
            here, there = walk.path.at(t), walk.path.at(s)
            if not s:
                return ddim_step(x, walk.denoised(x, t), walk.path, t, s)
            x = x * float(there.alpha / here.alpha if here.alpha else there.sigma / here.sigma)
        return x


@dataclass(frozen=True, kw_only=True)
class PredictorCorrector(GridSampler):
    r"""Corrects each step of another sampler by Langevin dynamics at the level where it ended.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        predictor: What takes the steps: `ReverseSDE` or `Ancestral`.
        corrector: How many steps each correction has, and how long they are.

    Examples:
        >>> from lawful.solvers.diffusion import begin, edm, logarithmic
        >>> path, grid = edm(), logarithmic(edm(), 10)
        >>> PredictorCorrector()(lambda x, t: x / (1 + t**2), begin(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    predictor: Stepwise = field(default_factory=ReverseSDE)
    corrector: Corrector = field(default_factory=Corrector)

    def lead(self, walk: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""
        draws = 1 + self.corrector.steps
        for i, t, s in walk.steps():
            denoised = walk.denoised(x, t)
            if not s:
                return ddim_step(x, denoised, walk.path, t, s)
            x = self.predictor.step(x, denoised, walk.noise(x, i * draws), walk.path, t, s)
            x = self.corrector.correct(walk, x, s, i * draws + 1)
        return x


def _langevin_claims() -> Iterator[Claim]:
    """The laws that Langevin dynamics obey."""
    path = variance_preserving()
    t = torch.tensor(0.4, dtype=torch.float64)
    grid = torch.tensor([0.9, 0.4, 0.0], dtype=torch.float64)

    def twice(x: Tensor) -> Tensor:
        return langevin(lambda x: x.cos(), x, steps=2, size=torch.linspace(0.1, 0.2, len(x)), seed=3).to(x)

    def by_hand(x: Tensor) -> Tensor:
        size = torch.linspace(0.1, 0.2, len(x)).to(x)[:, None]
        for i in (1, 2):
            noise = normal_noise(len(x), 2, seed=3, stream=i, dtype=torch.float64).to(x)
            x = x + size * x.cos() + (2 * size).sqrt() * noise
        return x

    yield Claim(agreement(other=by_hand), twice, shape("n 2"), name="langevin")

    def corrected(x: Tensor) -> Tensor:
        walk, state = SamplingContext.of(lambda x, t: x.sin(), x, path, grid, seed=3)
        return Corrector(ratio=0.3).correct(walk, state, t, 5).to(x)

    def written(x: Tensor) -> Tensor:
        a, s = path.alpha(t).to(x), path.sigma(t).to(x)
        score = (a * x.sin() - x) / s**2
        size = 2 * 0.09 * torch.minimum(s**2, 18 / score.square().sum(1, keepdim=True))
        noise = normal_noise(len(x), 2, seed=3, stream=6, dtype=torch.float64).to(x)
        return x + size * score + (2 * size).sqrt() * noise

    yield Claim(agreement(other=written), corrected, shape("n 2"), name="Corrector")
    for sampler in (AnnealedLangevin(corrector=Corrector(steps=2)), PredictorCorrector()):

        def led(x: Tensor, sampler: AnnealedLangevin | PredictorCorrector = sampler) -> Tensor:
            return sampler(lambda x, t: x.sin(), x, path, grid).to(x)

        yield Claim(replace(batch_independence(), cases=10), led, shape("n 2"), name=type(sampler).__name__)


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _stochastic_claims()
    yield from _langevin_claims()
