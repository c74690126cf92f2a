"""Deterministic samplers: Heun, exponential multistep and probability flow; and what all samplers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, log1p, sqrt
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.random import normal_noise
from lawful.laws import Claim, agreement, batch_independence, shape, transformed
from lawful.solvers.diffusion.parameterization import Denoiser
from lawful.solvers.diffusion.paths import GaussianPath, NoiseLevel, variance_preserving
from lawful.solvers.diffusion.time_grids import _KNEE, angle_at, angular_rate, norm_at
from lawful.solvers.ode import RK4, Tableau, odeint_adaptive, odeint_fixed


@runtime_checkable
class Sampler(Protocol):
    """Sampler from noise at the first time of a grid to data at the last."""

    def __call__(
        self,
        denoise: Denoiser,
        x: Float[Tensor, "n *shape"],
        path: GaussianPath,
        grid: Float[Tensor, " steps"],
        *,
        sigma_data: float = 1.0,
        seed: int = 0,
        first: int = 0,
    ) -> Float[Tensor, "n *shape"]: ...


def initial_noise(
    path: GaussianPath,
    grid: Float[Tensor, " steps"],
    n: int,
    *sizes: int,
    seed: int = 0,
    first: int = 0,
    sigma_data: float = 0.0,
) -> Float[Tensor, "n ..."]:
    r"""Draws the initial noise of a sampler, with the standard deviation of the path at the first time of the grid.

    $$x \sim \mathcal{N}\bigl(0, \; \sigma^2 + \alpha^2 s^2\bigr)$$

    It approximates the distribution of $\alpha x_0 + \sigma \varepsilon$ to order $\alpha / \sigma$; $s$ matches the
    variance of the data.

    Args:
        path: Noise path.
        grid: Times.
        n: Number of samples.
        *sizes: Shape of a sample.
        seed: Random seed; sample $i$ does not depend on $n$.
        first: Index of the first sample.
        sigma_data: Standard deviation $s$ of the data, or 0.

    Examples:
        >>> from lawful.solvers.diffusion import edm, karras_grid
        >>> initial_noise(edm(), karras_grid(edm(), 4), 2, 3).shape
        torch.Size([2, 3])
    """
    level = path.at(grid[0])
    noise = normal_noise(n, *sizes, seed=seed, first=first, dtype=torch.float64)
    return (level.sigma.square() + (level.alpha * sigma_data).square()).sqrt() * noise


@dataclass(frozen=True, eq=False)
class SamplingContext:
    """Denoiser with validation, path, times, standard deviation of the data, and the noise of each sample."""

    denoiser: Denoiser
    path: GaussianPath
    grid: Tensor
    sigma_data: float
    seed: int
    first: int

    @classmethod
    def create(
        cls,
        denoise: Denoiser,
        x: Tensor,
        path: GaussianPath,
        grid: Tensor,
        *,
        sigma_data: float = 1.0,
        seed: int = 0,
        first: int = 0,
    ) -> tuple[SamplingContext, Tensor]:
        """Validates the grid and the initial samples; returns the context and the samples in float64."""
        if not 0 < sigma_data < inf:
            raise ValueError(f"expected a finite sigma_data > 0, got {sigma_data}")
        grid = grid.detach().double().cpu()
        if grid.dim() != 1 or len(grid) < 2:
            raise ValueError(f"expected a grid of at least 2 times, got shape {tuple(grid.shape)}")
        if not bool((grid.diff() < 0).all()) or not 0 <= float(grid[-1]) < float(grid[0]) <= path.max_time:
            raise ValueError(
                f"expected strictly decreasing times from at most {path.max_time:g} to at least 0 on the {path.name}"
                f" path, got {grid.tolist()}"
            )
        if not x.dim() or not x.is_floating_point():
            raise TypeError(f"expected floating-point x of shape (n, *shape), got {x.dtype} of shape {tuple(x.shape)}")
        if not bool(x.isfinite().all()):
            raise ValueError("expected finite initial samples, got NaN or infinity")
        return cls(denoise, path, grid, float(sigma_data), seed, first), x.detach().double()

    def denoise_with_grad(self, x: Tensor, t: Tensor) -> Tensor:
        """Calls the denoiser and validates the shape and finiteness of its output."""
        denoised = self.denoiser(x, t).to(x)
        if denoised.shape != x.shape:
            raise ValueError(f"expected the denoiser to return shape {tuple(x.shape)}, got {tuple(denoised.shape)}")
        if not bool(denoised.isfinite().all()):
            bad = int((~denoised.isfinite()).reshape(len(x), -1).any(1).sum())
            raise ValueError(
                f"the denoiser returns NaN or infinity for {bad} of {len(x)} samples at t={float(t.max()):g} of the"
                f" {self.path.name} path: the model has diverged"
            )
        return denoised

    def denoise(self, x: Tensor, t: Tensor) -> Tensor:
        """Calls the denoiser without gradients."""
        return self.denoise_with_grad(x, t).detach()

    def noise(self, x: Tensor, stream: int) -> Tensor:
        """Returns standard normal noise for the samples, independent of the initial noise."""
        sizes, stream = x.shape[1:], 1 + stream
        noise = normal_noise(len(x), *sizes, seed=self.seed, stream=stream, first=self.first, dtype=x.dtype)
        return noise.to(x.device)

    def steps(self) -> list[tuple[int, Tensor, Tensor]]:
        """Returns the index of each step with its first and last time."""
        return [(i, self.grid[i], self.grid[i + 1]) for i in range(len(self.grid) - 1)]


class GridSampler(ABC):
    """Base class of samplers on a time grid."""

    @torch.no_grad()
    def __call__(
        self,
        denoise: Denoiser,
        x: Float[Tensor, "n *shape"],
        path: GaussianPath,
        grid: Float[Tensor, " steps"],
        *,
        sigma_data: float = 1.0,
        seed: int = 0,
        first: int = 0,
    ) -> Float[Tensor, "n *shape"]:
        """Integrates samples from the first time of the grid to the last.

        Args:
            denoise: Denoiser.
            x: Samples at the first time.
            path: Noise path.
            grid: Decreasing times.
            sigma_data: Standard deviation of the data, root mean square over coordinates.
            seed: Random seed of stochastic samplers.
            first: Index of the first sample.
        """
        context, x = SamplingContext.create(denoise, x, path, grid, sigma_data=sigma_data, seed=seed, first=first)
        return self.run(context, x)

    @abstractmethod
    def run(self, context: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Integrates samples over the times of the context."""


def ddim_step(x: Tensor, denoised: Tensor, path: GaussianPath, t: Tensor, s: Tensor) -> Tensor:
    r"""Returns a DDIM step from time $t$ to $s$ with given denoised data.

    $$x_s = \alpha_s D + \frac{\sigma_s}{\sigma_t} \, (x_t - \alpha_t D)$$

    A step to $s = 0$ returns the denoised data.

    Reference:
        Song, Meng and Ermon, *Denoising Diffusion Implicit Models*, 2021.
    """
    start, end = path.at(t), path.at(s)
    ratio = float(end.sigma / start.sigma)
    return ratio * x + (float(end.alpha) - ratio * float(start.alpha)) * denoised


@dataclass(frozen=True, kw_only=True)
class Heun(GridSampler):
    r"""Heun's sampler with the churn of EDM.

    $$\frac{dz}{d\rho} = \frac{z - D}{\rho}, \qquad z = \frac{x}{\alpha}, \qquad
    \hat\rho = \rho \, \bigl(1 + \min(c / n, \sqrt 2 - 1)\bigr), \quad
    \hat z = z + \kappa \sqrt{\hat\rho^2 - \rho^2} \, \varepsilon$$

    Steps to the data and from pure noise are Euler steps: $2 n - 1$ evaluations in total. For fewer than about 25
    evaluations prefer `ExponentialMultistep`.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        churn: Amount $c$ of noise added over all steps; 0 is deterministic.
        churn_min: Smallest noise ratio at which noise is added.
        churn_max: Largest noise ratio at which noise is added.
        noise_scale: Factor $\kappa$ of the standard deviation of the added noise.

    Examples:
        >>> from lawful.solvers.diffusion import edm, karras_grid
        >>> path, grid = edm(), karras_grid(edm(), 5)
        >>> Heun(churn=2.0)(lambda x, t: x / (1 + t**2), initial_noise(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    churn: float = 0.0
    churn_min: float = 0.0
    churn_max: float = inf
    noise_scale: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.churn < inf and 0 <= self.churn_min <= self.churn_max and 0 <= self.noise_scale < inf):
            raise ValueError(f"expected churn >= 0, 0 <= churn_min <= churn_max and noise_scale >= 0, got {self}")

    def run(self, context: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Integrates samples over the times of the context."""
        path = context.path
        max_ratio = float(path.ratio(path.max_time))
        for i, t, s in context.steps():
            ratio = float(path.ratio(t))
            churned = min(ratio * (1 + min(self.churn / (len(context.grid) - 1), sqrt(2) - 1)), max_ratio)
            if ratio < churned and self.churn_min <= ratio <= self.churn_max:
                std = self.noise_scale * sqrt(churned**2 - ratio**2)
                z = x / path.alpha(t) + std * context.noise(x, i)
                t = path.time_of(torch.tensor(churned, dtype=torch.float64)).clamp(max=path.max_time)
                x, ratio = z * path.alpha(t), churned
            denoised = context.denoise(x, t)
            proposal, end = ddim_step(x, denoised, path, t, s), float(path.ratio(s))
            if end and ratio < inf:
                z, after = x / path.alpha(t), proposal / path.alpha(s)
                slope = (z - denoised) / ratio + (after - context.denoise(proposal, s)) / end
                proposal = path.alpha(s) * (z + (end - ratio) / 2 * slope)
            x = proposal
        return x


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def _lagrange_polynomials(nodes: Sequence[float], at: np.ndarray) -> np.ndarray:
    """Values of the Lagrange polynomials, one row per node."""
    ones = [np.ones_like(at)] * len(nodes)
    for j, own in enumerate(nodes):
        for k, other in enumerate(nodes):
            if k != j:
                ones[j] = ones[j] * (at - other) / (own - other)
    return np.stack(ones)


def exponential_step_weights(ratios: Sequence[float], begin: float, end: float, *, knee: float = _KNEE) -> list[float]:
    r"""Returns the weights of denoised values in an exponential step between noise ratios.

    $$w_j = \int_{\rho_\text{end}}^{\rho_\text{begin}} \frac{\rho_\text{end}}{\rho} \, \ell_j(u) \,
    \frac{d\rho}{\rho}, \qquad u = \log\Bigl(1 + \frac{k}{\rho}\Bigr), \qquad
    \sum_j w_j = 1 - \frac{\rho_\text{end}}{\rho_\text{begin}}$$

    $\ell_j$ are the Lagrange polynomials in $u$, in which `saturating_log_grid` is uniform: about $-\log \rho$ below
    the knee $k$, and $k / \rho$ above it, where the denoised data are smooth up to pure noise.

    Args:
        ratios: Noise ratios of the denoised values, the latest first.
        begin: $\rho_\text{begin}$, possibly infinite.
        end: $\rho_\text{end} > 0$.
        knee: Knee $k$, a few standard deviations of the data.

    Examples:
        >>> exponential_step_weights([2.0], 2.0, 0.5)
        [0.75]
    """
    if len(ratios) == 1:
        return [1 - end / begin]
    low, high = log1p(knee / begin), log1p(knee / end)
    half = (high - low) / 2
    at = (high + low) / 2 + half * _NODES
    polynomials = _lagrange_polynomials([log1p(knee / ratio) for ratio in ratios], at)
    return (polynomials * (half * _WEIGHTS * np.exp(at) * end / knee)).sum(1).tolist()


@dataclass(frozen=True, kw_only=True)
class ExponentialMultistep(GridSampler):
    r"""Exponential multistep sampler: exact in the noise, polynomial in the denoised data.

    $$x_s = \frac{\sigma_s}{\sigma_t} \, x_t + \alpha_s \sum_{j < p} w_j \, D_j$$

    with the weights of `exponential_step_weights` over the latest $p$ values of $D$. Once $D$ is known at the end of a
    step, the step is repeated with it (a corrector without extra evaluations). One evaluation per step; best with
    `saturating_log_grid`.

    The step to the data is exact for Gaussian data of any mean and standard deviation $m$, which it estimates for each
    sample from the last two values of the removed noise $e = x / \alpha - D$:

    $$x_0 = D + \frac{\kappa}{1 + \kappa} \, e, \qquad \kappa = \frac{m}{\sqrt{m^2 + \rho^2}}, \qquad
    \lVert e \rVert \propto \frac{\rho^2}{\sqrt{m^2 + \rho^2}}$$

    Order 1 without correction is DDIM; order 2 without correction is close to DPM-Solver++(2M).

    Reference:
        Zhang and Chen, *Fast Sampling of Diffusion Models with Exponential Integrator*, 2023; Lu et al.,
        *DPM-Solver++*, 2022; Zhao et al., *UniPC*, 2023.

    Args:
        order: Order $p$, from 1 to 4. Defaults to 3 for fewer than 20 steps, else 4.
        correction: Number of values in the corrector, from 0 (none) to 4. Defaults to the order.

    Examples:
        >>> from lawful.solvers.diffusion import edm, saturating_log_grid
        >>> path, grid = edm(), saturating_log_grid(edm(), 9)
        >>> noise = initial_noise(path, grid, 2, 3)
        >>> ExponentialMultistep()(lambda x, t: x / (1 + t**2), noise, path, grid).std() < 3
        tensor(True)
    """

    order: int | None = None
    correction: int | None = None

    def __post_init__(self) -> None:
        if self.order not in (None, 1, 2, 3, 4) or self.correction not in (None, 0, 1, 2, 3, 4):
            raise ValueError(f"expected order from 1 to 4 and correction from 0 to 4, got {self}")

    def run(self, context: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Integrates samples over the times of the context."""
        levels, knee = context.path.at(context.grid), _KNEE * context.sigma_data
        ratios = (levels.sigma / levels.alpha).tolist()
        order = self.order or (3 if len(ratios) <= 20 else 4)
        correction = order if self.correction is None else self.correction
        previous = x
        known: list[tuple[float, Tensor]] = []
        removed: list[Tensor] = []
        for i, t, s in context.steps():
            known = [(ratios[i], context.denoise(x, t)), *known[: max(order, correction) - 1]]
            removed = [_removed_noise(x, levels.alpha[i], known[0][1]), *removed[:1]]
            if i and correction:
                x = _exponential_step(previous, levels, i - 1, known[:correction], knee)
            if s:
                previous, x = x, _exponential_step(x, levels, i, known[:order], knee)
            else:
                x = _step_to_data(_removed_noise(x, levels.alpha[i], known[0][1]), known[:order], removed)
        return x


def _exponential_step(x: Tensor, levels: NoiseLevel, i: int, known: list[tuple[float, Tensor]], knee: float) -> Tensor:
    """The step from time i of the grid to the next; `known` are noise ratios and denoised values."""
    alphas, sigmas = levels.alpha[[i, i + 1]].tolist(), levels.sigma[[i, i + 1]].tolist()
    begin, end = (s / a if a else inf for a, s in zip(alphas, sigmas, strict=True))
    x = x * (sigmas[1] / sigmas[0])
    weights = exponential_step_weights([ratio for ratio, _ in known], begin, end, knee=knee)
    for weight, (_, value) in zip(weights, known, strict=True):
        x = x + (alphas[1] * weight) * value
    return x


def _removed_noise(x: Tensor, alpha: Tensor, denoised: Tensor) -> Tensor:
    """The noise that a denoiser removes, x / alpha - D, or 0 at pure noise."""
    return x / float(alpha) - denoised if alpha else torch.zeros_like(x)


def _step_to_data(corrected: Tensor, known: list[tuple[float, Tensor]], removed: list[Tensor]) -> Tensor:
    """The data, from the latest noise ratios and denoised values, the noise removed there, and the corrected noise."""
    low, denoised = known[0]
    if len(known) == 1 or known[1][0] == inf:
        return denoised
    high, before = known[1]
    changed = denoised != before  # entries that a denoiser fixes, as in inpainting, keep their value
    axes = list(range(1, denoised.dim()))
    last, earlier = (torch.where(changed, e, 0.0) for e in removed)
    norms = [torch.linalg.vector_norm(e, dim=axes, keepdim=True) if axes else e.abs() for e in (last, earlier)]
    # (m^2 + low^2) / (m^2 + high^2), from (low / high)^2 at m = 0 to 1 at infinite m
    ratio = (norms[1] / norms[0] * (low / high) ** 2).nan_to_num(low / high).clamp(low / high, 1).square()
    variance = (ratio * high**2 - low**2).clamp_min(0)  # m^2 times 1 - ratio
    kappa = (variance / (variance + (1 - ratio) * low**2)).sqrt().nan_to_num(1.0)
    return denoised + torch.where(changed, kappa / (1 + kappa) * corrected, 0.0)


@dataclass(frozen=True, kw_only=True)
class ProbabilityFlow(GridSampler):
    r"""Probability-flow ODE sampler: one Runge-Kutta step between two times.

    $$\frac{dv}{d\theta} = -F, \qquad v = \frac{x}{\sqrt{\sigma^2 + \alpha^2 s^2}}, \quad
    \theta = \arctan \frac{\sigma}{\alpha s}$$

    with the standard deviation $s$ of the data. A step to time 0 returns the denoised data.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        tableau: Runge-Kutta method, such as `EULER`, `HEUN`, `RK4` or `DORMAND_PRINCE`.

    Examples:
        >>> from lawful.solvers.diffusion import edm, karras_grid
        >>> path, grid = edm(), karras_grid(edm(), 5)
        >>> ProbabilityFlow()(lambda x, t: x / (1 + t**2), initial_noise(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    tableau: Tableau = RK4

    def run(self, context: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Integrates samples over the times of the context."""
        path, scale = context.path, context.sigma_data
        rate = angular_rate(context.denoise, path, scale=scale)
        angles = angle_at(path, context.grid, scale=scale).tolist()
        norms = norm_at(path, context.grid, scale=scale).tolist()
        for i, t, s in context.steps():
            if not s:
                return ddim_step(x, context.denoise(x, t), path, t, s)
            v = odeint_fixed(rate, x / norms[i], angles[i], angles[i + 1], steps=1, tableau=self.tableau).y
            x = norms[i + 1] * v
        return x


@dataclass(frozen=True, kw_only=True)
class AdaptiveProbabilityFlow(GridSampler):
    r"""Probability-flow ODE sampler with adaptive steps, one step size per sample.

    The denoiser is called with one time per sample. Only the first time of the grid and the last nonzero one matter;
    the step from there to time 0 returns the denoised data.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.
        max_evaluations: Maximum number of evaluations of the denoiser.

    Examples:
        >>> from lawful.solvers.diffusion import edm, karras_grid
        >>> path, grid = edm(), karras_grid(edm(), 2)
        >>> AdaptiveProbabilityFlow()(lambda x, t: 0 * x, initial_noise(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    rtol: float = 1e-5
    atol: float = 1e-5
    max_evaluations: int = 1000

    def run(self, context: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Integrates samples over the times of the context."""
        path, scale = context.path, context.sigma_data
        rate = angular_rate(context.denoise, path, scale=scale)
        ends = context.grid[[0, -1 if context.grid[-1] else -2]]
        if ends[0] > ends[1]:
            (a, b), (r, q) = (f(path, ends, scale=scale).tolist() for f in (angle_at, norm_at))
            solution = odeint_adaptive(
                rate, x / r, a, b, rtol=self.rtol, atol=self.atol, max_evaluations=self.max_evaluations
            )
            x = q * solution.y
        return x if context.grid[-1] else ddim_step(x, context.denoise(x, ends[1]), path, ends[1], context.grid[-1])


def claims() -> Iterator[Claim]:
    """Samples do not mix; a step with known data is exact."""
    path = variance_preserving()
    t, s = torch.tensor([0.6, 0.2], dtype=torch.float64)
    grid = torch.tensor([0.9, 0.5, 0.2, 0.0], dtype=torch.float64)

    def known_data(x: Tensor, noise: Tensor) -> Tensor:
        return ddim_step(path.add_noise(x, noise, t), x, path, t, s)

    exact = agreement(other=lambda x, noise: path.add_noise(x, noise, s))
    yield Claim(exact, known_data, (shape("n 2"), shape("n 2")), name="ddim_step with known data")
    for sampler in (Heun(), ExponentialMultistep(), ProbabilityFlow(), AdaptiveProbabilityFlow()):

        def sample(x: Tensor, sampler: GridSampler = sampler) -> Tensor:
            return sampler(lambda x, t: x.sin(), x, path, grid).to(x)

        inputs = transformed(torch.tanh, "n:2..3 2")
        yield Claim(replace(batch_independence(), cases=4), sample, inputs, name=type(sampler).__name__)
