"""Stochastic samplers: reverse SDE, ancestral sampling, Langevin dynamics and predictor-corrector."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import inf, isfinite, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.random import normal_noise
from lawful.laws import Claim, agreement, batch_independence, shape
from lawful.solvers.diffusion.paths import GaussianPath, variance_preserving
from lawful.solvers.diffusion.samplers import GridSampler, SamplingContext, ddim_step


class StochasticSampler(GridSampler):
    """Base class of samplers with one stochastic step; a step to time 0 returns the denoised data."""

    @abstractmethod
    def step(
        self, x: Tensor, denoised: Tensor, noise: Tensor, path: GaussianPath, t: Tensor, s: Tensor
    ) -> Float[Tensor, "n *shape"]:
        """Returns the samples at time s < t from the denoised data and noise."""

    def run(self, context: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Integrates samples over the times of the context."""
        for i, t, s in context.steps():
            denoised = context.denoise(x, t)
            if not s:
                return ddim_step(x, denoised, context.path, t, s)
            x = self.step(x, denoised, context.noise(x, i), context.path, t, s)
        return x


@dataclass(frozen=True, kw_only=True)
class ReverseSDE(StochasticSampler):
    r"""Reverse SDE by the Euler-Maruyama method.

    $$x_{t - h} = x_t - h \Bigl(f x_t - \frac{1 + \eta^2}{2} \, g^2 \, \nabla \log p_t(x_t)\Bigr) +
    \eta \, g \sqrt h \, \varepsilon$$

    The marginals do not depend on $\eta$: 1 is Anderson's reverse SDE, 0 the probability flow by Euler steps. The grid
    must start where $\alpha > 0$, since $f$ is infinite at $\alpha = 0$.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        eta: Noise scale $\eta$.

    Examples:
        >>> from lawful.solvers.diffusion import initial_noise, linear_grid, variance_preserving
        >>> path = variance_preserving()
        >>> grid = linear_grid(path, 20)
        >>> ReverseSDE()(lambda x, t: path.alpha(t) * x, initial_noise(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    eta: float = 1.0

    def __post_init__(self) -> None:
        _check_eta(self.eta, inf)

    def step(
        self, x: Tensor, denoised: Tensor, noise: Tensor, path: GaussianPath, t: Tensor, s: Tensor
    ) -> Float[Tensor, "n *shape"]:
        """Returns the samples at time s."""
        drift, squared = float(path.drift(t)), float(path.squared_diffusion(t))
        if not isfinite(drift) or not isfinite(squared):
            raise ValueError(
                f"the reverse SDE is singular at t={float(t):g} of the {path.name} path, where alpha=0: start the grid"
                " at a finite noise ratio, such as high=100, or use Ancestral"
            )
        h = float(t - s)
        weight = (1 + self.eta**2) / 2 * squared
        x = x - h * (drift * x - weight * path.score(x, denoised, t))
        return x + self.eta * sqrt(squared * h) * noise


@dataclass(frozen=True, kw_only=True)
class Ancestral(StochasticSampler):
    r"""Ancestral sampler of DDPM, on any path.

    $$x_s = \alpha_s D + \sqrt{\sigma_s^2 - \eta^2 v} \; \frac{x_t - \alpha_t D}{\sigma_t} +
    \eta \sqrt v \, \varepsilon, \qquad v = \sigma_s^2 \Bigl(1 - \frac{\rho_s^2}{\rho_t^2}\Bigr)$$

    $\eta = 1$ samples $q(x_s \mid x_t, x_0 = D)$, which is DDPM's step on `ddpm_path`; $\eta = 0$ is DDIM.

    Reference:
        Ho, Jain and Abbeel, *Denoising Diffusion Probabilistic Models*, 2020; Song, Meng and Ermon, *Denoising
        Diffusion Implicit Models*, 2021.

    Args:
        eta: Noise scale $\eta$, from 0 to 1.

    Examples:
        >>> from lawful.solvers.diffusion import ddpm_path, initial_noise, linear_grid
        >>> path = ddpm_path([0.1] * 40)
        >>> grid = linear_grid(path, 40)
        >>> Ancestral()(lambda x, t: path.alpha(t) * x, initial_noise(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    eta: float = 1.0

    def __post_init__(self) -> None:
        _check_eta(self.eta, 1.0)

    def step(
        self, x: Tensor, denoised: Tensor, noise: Tensor, path: GaussianPath, t: Tensor, s: Tensor
    ) -> Float[Tensor, "n *shape"]:
        """Returns the samples at time s."""
        start, end = path.at(t), path.at(s)
        share = 1 - float(end.sigma / end.alpha * start.alpha / start.sigma) ** 2
        fresh = self.eta**2 * share
        kept = float(end.sigma) * sqrt(max(0.0, 1 - fresh))
        direction = (x - float(start.alpha) * denoised) / float(start.sigma)
        return float(end.alpha) * denoised + kept * direction + float(end.sigma) * sqrt(fresh) * noise


def _check_eta(eta: float, high: float) -> None:
    if not (0 <= eta <= high and eta < inf):
        raise ValueError("expected eta >= 0" + (f" and eta <= {high:g}" if high < inf else "") + f", got {eta}")


def _per_sample(size: Tensor | float, x: Tensor) -> Tensor:
    size = torch.as_tensor(size, dtype=x.dtype, device=x.device)
    return size.reshape(-1, *(1,) * (x.dim() - 1)) if size.dim() else size


@torch.no_grad()
def langevin(
    score: Callable[[Tensor], Tensor],
    x: Float[Tensor, "n *shape"],
    *,
    steps: int,
    step_size: float | Float[Tensor, " n"],
    seed: int = 0,
    first: int = 0,
) -> Float[Tensor, "n *shape"]:
    r"""Samples a density from its score by Langevin dynamics.

    $$x \leftarrow x + \epsilon \, \nabla \log p(x) + \sqrt{2 \epsilon} \, \varepsilon$$

    After many small steps $x$ follows $p$ up to an error of order $\epsilon$. It mixes slowly between distant modes.

    Reference:
        Roberts and Tweedie, *Exponential Convergence of Langevin Distributions and Their Discrete Approximations*,
        1996.

    Args:
        score: Score $\nabla \log p$, a function of (n, *shape).
        x: Initial samples.
        steps: Number of steps.
        step_size: Step size $\epsilon$, or one per sample.
        seed: Random seed.
        first: Index of the first sample.

    Examples:
        >>> x = langevin(lambda x: -x, torch.zeros(500, 1), steps=100, step_size=0.1)
        >>> bool((x.std() - 1).abs() < 0.2)
        True
    """
    if steps < 1:
        raise ValueError(f"expected steps >= 1, got {steps}")
    x = x.detach().double()
    epsilon = _per_sample(step_size, x)
    if epsilon.dim() and len(epsilon) != len(x):
        raise ValueError(f"expected one step_size, or one per sample ({len(x)}), got {len(epsilon)}")
    if not bool(((epsilon > 0) & epsilon.isfinite() & x.isfinite()).all()):
        raise ValueError("expected step_size > 0 and finite initial samples")
    for i in range(steps):
        gradient = score(x).detach().to(x)
        if gradient.shape != x.shape:
            raise ValueError(f"expected the score to return shape {tuple(x.shape)}, got {tuple(gradient.shape)}")
        if not bool(gradient.isfinite().all()):
            raise ValueError(f"the score is NaN or infinite after {i} of {steps} steps: reduce step_size")
        noise = normal_noise(len(x), *x.shape[1:], seed=seed, stream=1 + i, first=first, dtype=x.dtype).to(x.device)
        x = x + epsilon * gradient + (2 * epsilon).sqrt() * noise
    return x


@dataclass(frozen=True, kw_only=True)
class LangevinCorrector:
    r"""Langevin steps at a fixed noise level, with one step size per sample.

    $$\epsilon_i = 2 r^2 \min\Bigl(\sigma^2, \; \frac{9 d}{\lVert \nabla \log p_t(x_i) \rVert^2}\Bigr)$$

    $r$ is the signal-to-noise ratio of a step: the norm of the drift $\epsilon \nabla \log p$ divided by the norm of
    the noise $\sqrt{2 \epsilon} \, \varepsilon$. It assumes the score of pure noise, with norm $\sqrt d / \sigma$ in
    $d$ dimensions. Steps are shorter if the score is more than three times as long. The step size does not depend on
    the batch or on the noise.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        steps: Number of steps.
        snr: Signal-to-noise ratio $r$.
    """

    steps: int = 1
    snr: float = 0.16

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 < self.snr < inf:
            raise ValueError(f"expected steps >= 1 and a finite snr > 0, got {self}")

    def correct(self, context: SamplingContext, x: Tensor, t: Tensor, stream: int) -> Float[Tensor, "n *shape"]:
        """Takes the Langevin steps at time t. Step i uses the noise stream `stream + i`."""
        variance, d = context.path.sigma(t).square().to(x), x[0].numel() if len(x) else 1
        for i in range(self.steps):
            score = context.path.score(x, context.denoise(x, t), t)
            squared = score.square().flatten(1).sum(1) if x.dim() > 1 else score.square()
            step_size = _per_sample(2 * self.snr**2 * torch.minimum(variance, 9 * d / squared.clamp_min(1e-300)), x)
            x = x + step_size * score + (2 * step_size).sqrt() * context.noise(x, stream + i)
        return x


@dataclass(frozen=True, kw_only=True)
class AnnealedLangevin(GridSampler):
    r"""Annealed Langevin dynamics over decreasing noise levels.

    $x / \alpha$ is unchanged between levels; the step to time 0 returns the denoised data.

    Reference:
        Song and Ermon, *Generative Modeling by Estimating Gradients of the Data Distribution*, 2019.

    Args:
        corrector: Langevin steps at each level.

    Examples:
        >>> from lawful.solvers.diffusion import edm, initial_noise, log_grid
        >>> path, grid = edm(), log_grid(edm(), 10)
        >>> AnnealedLangevin()(lambda x, t: x / (1 + t**2), initial_noise(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    corrector: LangevinCorrector = field(default_factory=lambda: LangevinCorrector(steps=10))

    def run(self, context: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Integrates samples over the times of the context."""
        for i, t, s in context.steps():
            x = self.corrector.correct(context, x, t, i * self.corrector.steps)
            start, end = context.path.at(t), context.path.at(s)
            if not s:
                return ddim_step(x, context.denoise(x, t), context.path, t, s)
            x = x * float(end.alpha / start.alpha if start.alpha else end.sigma / start.sigma)
        return x


@dataclass(frozen=True, kw_only=True)
class PredictorCorrector(GridSampler):
    r"""Predictor-corrector sampler: a stochastic step, then Langevin steps at its end.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        predictor: Sampler of the steps: `ReverseSDE` or `Ancestral`.
        corrector: Langevin steps after each of them.

    Examples:
        >>> from lawful.solvers.diffusion import edm, initial_noise, log_grid
        >>> path, grid = edm(), log_grid(edm(), 10)
        >>> PredictorCorrector()(lambda x, t: x / (1 + t**2), initial_noise(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    predictor: StochasticSampler = field(default_factory=ReverseSDE)
    corrector: LangevinCorrector = field(default_factory=LangevinCorrector)

    def run(self, context: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Integrates samples over the times of the context."""
        num_draws = 1 + self.corrector.steps
        for i, t, s in context.steps():
            denoised = context.denoise(x, t)
            if not s:
                return ddim_step(x, denoised, context.path, t, s)
            x = self.predictor.step(x, denoised, context.noise(x, i * num_draws), context.path, t, s)
            x = self.corrector.correct(context, x, s, i * num_draws + 1)
        return x


def claims() -> Iterator[Claim]:
    """Ancestral steps without noise are DDIM; samples do not mix."""
    path = variance_preserving()
    t, s = torch.tensor([0.6, 0.5], dtype=torch.float64)
    yield Claim(
        agreement(other=lambda x, d, noise: ddim_step(x, d, path, t, s)),
        lambda x, d, noise: Ancestral(eta=0.0).step(x, d, noise, path, t, s),
        (shape("n 2"),) * 3,
        name="Ancestral(eta=0) is DDIM",
    )
    grid = torch.tensor([0.9, 0.4, 0.0], dtype=torch.float64)
    annealed = AnnealedLangevin(corrector=LangevinCorrector(steps=2))
    for sampler in (ReverseSDE(), Ancestral(), annealed, PredictorCorrector()):

        def sample(x: Tensor, sampler: GridSampler = sampler) -> Tensor:
            return sampler(lambda x, t: x.sin(), x, path, grid).to(x)

        yield Claim(replace(batch_independence(), cases=10), sample, shape("n 2"), name=type(sampler).__name__)
