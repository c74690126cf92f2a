"""What samplers share: where they begin, what they ask of a denoiser, and the noise that belongs to a sample.

Heun's sampler, with the churn of EDM.
The exponential multistep sampler: the noise by formula, the data by a polynomial through what was denoised.
Samplers by the probability-flow equation: with any tableau on a grid, or in steps as long as the error allows.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, log, pi, sqrt
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.random import normal_noise
from lawful.laws import Claim, agreement, batch_independence, samples_follow_density, shape, transformed
from lawful.solvers.diffusion.parameterization import Denoiser
from lawful.solvers.diffusion.paths import GaussianPath, NoiseLevel, edm, expand_like, variance_preserving
from lawful.solvers.diffusion.time_grids import angle_of, length_of, turning
from lawful.solvers.ode import RK4, Tableau, adaptive, integrate


@runtime_checkable
class Sampler(Protocol):
    """Leads noise at the first time of a grid to data at its last."""

    def __call__(
        self,
        denoise: Denoiser,
        x: Float[Tensor, "n *shape"],
        path: GaussianPath,
        grid: Float[Tensor, " steps"],
        *,
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
    spread: float = 0.0,
) -> Float[Tensor, "n ..."]:
    r"""Draws where samplers begin: noise with the standard deviation of the path at the first time of the grid.

    $$x \sim \mathcal{N}\bigl(0, \; \sigma^2 + \alpha^2 s^2\bigr)$$

    The true law there is that of $\alpha x_0 + \sigma \varepsilon$: their difference is what remains of the data, of
    the size of $\alpha / \sigma$. A standard deviation $s$ takes the variance of the data into account.

    Args:
        path: The path.
        grid: The times.
        n: The number of samples.
        *sizes: The shape of a sample.
        seed: The seed; sample $i$ of it is the same whatever $n$.
        first: The number of the first sample.
        spread: $s$, the standard deviation of the data, or 0.

    Examples:
        >>> from lawful.solvers.diffusion.time_grids import karras
        >>> from lawful.solvers.diffusion.paths import edm
        >>> initial_noise(edm(), karras(edm(), 4), 2, 3).shape
        torch.Size([2, 3])
    """
    level = path.at(grid[0])
    noise = normal_noise(n, *sizes, seed=seed, first=first, dtype=torch.float64)
    return (level.sigma.square() + (level.alpha * spread).square()).sqrt() * noise


@dataclass(frozen=True, eq=False)
class SamplingContext:
    """A denoiser that is looked after, a path, the times to stop at and the noise of each sample."""

    denoise: Denoiser
    path: GaussianPath
    grid: Tensor
    seed: int
    first: int

    @classmethod
    def of(
        cls, denoise: Denoiser, x: Tensor, path: GaussianPath, grid: Tensor, *, seed: int = 0, first: int = 0
    ) -> tuple[SamplingContext, Tensor]:
        """Looks at the grid and at where to begin, and returns the latter in double precision too."""
        grid = grid.detach().double().cpu()
        if grid.dim() != 1 or len(grid) < 2:
            raise ValueError(f"a grid of two times or more, which is 1 step, is wanted: got shape {tuple(grid.shape)}")
        if not bool((grid.diff() < 0).all()) or not 0 <= float(grid[-1]) < float(grid[0]) <= path.last:
            raise ValueError(
                f"times that go down from {path.last:g} or less to 0 or more on the {path.name} path are wanted:"
                f" got {grid.tolist()}"
            )
        if not x.dim() or not x.is_floating_point():
            raise TypeError(
                f"samples of real numbers, (n, *shape), are wanted: got {x.dtype} of shape {tuple(x.shape)}"
            )
        if not bool(x.isfinite().all()):
            raise ValueError("samples are to begin with finite numbers: got NaN or infinity")
        return cls(denoise, path, grid, seed, first), x.detach().double()

    def asked(self, x: Tensor, t: Tensor) -> Tensor:
        """Asks the denoiser, and refuses an answer of another shape or one that is not finite."""
        answer = self.denoise(x, t).to(x)
        if answer.shape != x.shape:
            raise ValueError(f"the denoiser is to keep the shape {tuple(x.shape)}: got {tuple(answer.shape)}")
        if not bool(answer.isfinite().all()):
            bad = int((~answer.isfinite()).reshape(len(x), -1).any(1).sum())
            raise ValueError(
                f"the denoiser gives NaN or infinity for {bad} of {len(x)} samples at t={float(t.max()):g} of the"
                f" {self.path.name} path: it has diverged"
            )
        return answer

    def denoised(self, x: Tensor, t: Tensor) -> Tensor:
        """Asks the denoiser, without gradients."""
        return self.asked(x, t).detach()

    def noise(self, x: Tensor, stream: int) -> Tensor:
        """Standard normal noise of these samples; stream 0 is where they began."""
        sizes, stream = x.shape[1:], 1 + stream
        noise = normal_noise(len(x), *sizes, seed=self.seed, stream=stream, first=self.first, dtype=x.dtype)
        return noise.to(x.device)

    def steps(self) -> list[tuple[int, Tensor, Tensor]]:
        """The number of each step, and the times at which it begins and ends."""
        return [(i, self.grid[i], self.grid[i + 1]) for i in range(len(self.grid) - 1)]


class GridSampler(ABC):
    """A sampler that is known by what it does on a walk."""

    @torch.no_grad()
    def __call__(
        self,
        denoise: Denoiser,
        x: Float[Tensor, "n *shape"],
        path: GaussianPath,
        grid: Float[Tensor, " steps"],
        *,
        seed: int = 0,
        first: int = 0,
    ) -> Float[Tensor, "n *shape"]:
        """Leads x from the first time of the grid to the last.

        Args:
            denoise: From noisy samples and a time to what the data are expected to be.
            x: The samples at the first time.
            path: The path.
            grid: The times, falling.
            seed: The seed of what is left to chance.
            first: The number of the first sample, to which its noise belongs.
        """
        walk, x = SamplingContext.of(denoise, x, path, grid, seed=seed, first=first)
        return self.lead(walk, x)

    @abstractmethod
    def lead(self, walk: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""


def ddim_step(x: Tensor, denoised: Tensor, path: GaussianPath, t: Tensor, s: Tensor) -> Tensor:
    r"""Goes from time $t$ to $s$ as if the data were known.

    $$x_s = \alpha_s D + \frac{\sigma_s}{\sigma_t} \, (x_t - \alpha_t D)$$

    This is DDIM's step, and the one to $s = 0$ is the denoised data.

    Reference:
        Song, Meng and Ermon, *Denoising Diffusion Implicit Models*, 2021.
    """
    here, there = path.at(t), path.at(s)
    kept = float(there.sigma / here.sigma)
    return kept * x + (float(there.alpha) - kept * float(here.alpha)) * denoised


def _sampling_claims() -> Iterator[Claim]:
    """The laws that beginnings and the simplest step obey."""
    path = variance_preserving()
    t, s = torch.tensor([0.6, 0.2], dtype=torch.float64)

    def known(x: Tensor, noise: Tensor) -> Tensor:
        return ddim_step(path.noised(x, noise, t), x, path, t, s)

    there = agreement(other=lambda x, noise: path.noised(x, noise, s))
    yield Claim(there, known, (shape("n 2"), shape("n 2")), name="towards, where the data are known")
    yield Claim(
        agreement(other=lambda x, d: d),
        lambda x, d: ddim_step(x, d, path, t, 0 * s),
        (shape("n 2"), shape("n 2")),
        name="towards the data",
    )
    grid = torch.tensor([0.3, 0.0], dtype=torch.float64)
    variance = float(path.sigma(0.3) ** 2 + 4 * path.alpha(0.3) ** 2)

    def log_prob(x: Tensor) -> Tensor:
        return -0.5 * (x.square() / variance + log(2 * pi * variance)).sum(-1)

    drawn = samples_follow_density(
        sample=lambda n: initial_noise(path, grid, n, 2, seed=int(torch.randint(2**31, ())), spread=2.0),
        log_prob=log_prob,
    )
    yield Claim(drawn, log_prob, shape("2"), name="begin")


@dataclass(frozen=True, kw_only=True)
class Heun(GridSampler):
    r"""Goes on by the mean of two slopes in the noise ratio, after some noise is put back.

    $$\frac{dz}{d\rho} = \frac{z - D}{\rho}, \qquad z = \frac{x}{\alpha}, \qquad
    \hat\rho = \rho \, \bigl(1 + \min(c / n, \sqrt 2 - 1)\bigr), \quad
    \hat z = z + \kappa \sqrt{\hat\rho^2 - \rho^2} \, \varepsilon$$

    The last step, to the data, has one slope, as has one that begins at noise alone: $2 n - 1$ evaluations. With fewer
    than some 25 of them it is worse than Euler's steps where the data have sharp modes; there, take `Exponential`.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        churn: $c$, how much noise is put back over all steps; without it nothing is left to chance.
        low: The smallest noise ratio at which noise is put back.
        high: The largest.
        inflation: $\kappa$, the standard deviation of that noise in units of what it should be.

    Examples:
        >>> from lawful.solvers.diffusion import begin, edm, karras
        >>> path, grid = edm(), karras(edm(), 5)
        >>> Heun(churn=2.0)(lambda x, t: x / (1 + t**2), begin(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    churn: float = 0.0
    low: float = 0.0
    high: float = inf
    inflation: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.churn < inf and 0 <= self.low <= self.high and 0 <= self.inflation < inf):
            raise ValueError(f"churn and inflation of at least 0, and low up to high, are wanted: got {self}")

    def lead(self, walk: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""
        path = walk.path
        most = float(path.ratio(path.last))
        for i, t, s in walk.steps():
            ratio = float(path.ratio(t))
            churned = min(ratio * (1 + min(self.churn / (len(walk.grid) - 1), sqrt(2) - 1)), most)
            if ratio < churned and self.low <= ratio <= self.high:
                amount = self.inflation * sqrt(churned**2 - ratio**2)
                z = x / path.alpha(t) + amount * walk.noise(x, i)
                t = path.time_of(torch.tensor(churned, dtype=torch.float64)).clamp(max=path.last)
                x, ratio = z * path.alpha(t), churned
            denoised = walk.denoised(x, t)
            ahead, end = ddim_step(x, denoised, path, t, s), float(path.ratio(s))
            if end and ratio < inf:
                z, after = x / path.alpha(t), ahead / path.alpha(s)
                slope = (z - denoised) / ratio + (after - walk.denoised(ahead, s)) / end
                ahead = path.alpha(s) * (z + (end - ratio) / 2 * slope)
            x = ahead
        return x


def _heun_claims() -> Iterator[Claim]:
    """The laws that Heun's sampler obeys."""
    path = edm()
    grid = torch.tensor([3.0, 1.0, 0.2, 0.0], dtype=torch.float64)

    def by_hand(x: Tensor, churn: float, seed: int = 4) -> Tensor:
        """Algorithm 2 of Karras et al."""
        sigmas = grid.tolist()
        for i, (sigma, end) in enumerate(itertools.pairwise(sigmas)):
            more = sigma * (1 + min(churn / 3, sqrt(2) - 1))
            noise = normal_noise(len(x), *x.shape[1:], seed=seed, stream=1 + i, dtype=torch.float64).to(x)
            x = x + sqrt(more**2 - sigma**2) * noise
            d = (x - (x / (1 + more)).sin()) / more
            ahead = x + (end - more) * d
            if end:
                d = (d + (ahead - (ahead / (1 + end)).sin()) / end) / 2
            x = x + (end - more) * d
        return x

    for churn in (0.0, 0.6, 9.0):

        def ours(x: Tensor, churn: float = churn) -> Tensor:
            return Heun(churn=churn)(lambda x, t: (x / (1 + t)).sin(), x, path, grid, seed=4).to(x)

        other = replace(agreement(other=lambda x, churn=churn: by_hand(x, churn)), cases=8)
        yield Claim(other, ours, shape("n 2"), name=f"Heun, churn {churn:g}")


NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def _polynomials(nodes: Sequence[float], at: np.ndarray) -> np.ndarray:
    """Lagrange's polynomials, one for each node, at some places."""
    ones = [np.ones_like(at)] * len(nodes)
    for j, own in enumerate(nodes):
        for k, other in enumerate(nodes):
            if k != j:
                ones[j] = ones[j] * (at - other) / (own - other)
    return np.stack(ones)


def step_weights(ratios: Sequence[float], begin: float, end: float) -> list[float]:
    r"""Returns what each denoised value counts in a step from one noise ratio to another.

    $$w_j = \int_{\rho_\text{end}}^{\rho_\text{begin}} \frac{\rho_\text{end}}{\rho} \, \ell_j(\log \rho) \,
    \frac{d\rho}{\rho}, \qquad \sum_j w_j = 1 - \frac{\rho_\text{end}}{\rho_\text{begin}}$$

    $\ell_j$ are Lagrange's polynomials through the logarithms of the ratios. Where the step begins at noise alone there
    is one ratio, and it counts 1. Where it ends at the data, the value there counts and no other: the polynomial is one
    in $\rho^2$, through two values at most, since $D = x_0 + O(\rho^2)$.

    Args:
        ratios: The noise ratios of the denoised values, the latest first.
        begin: $\rho_\text{begin}$.
        end: $\rho_\text{end}$.

    Examples:
        >>> step_weights([2.0], 2.0, 0.5)
        [0.75]
    """
    if end == 0:
        pair = [ratio**2 for ratio in ratios[:2] if ratio < inf] or [1.0]
        found = _polynomials(pair, np.zeros(())).tolist()
    elif begin == inf or len(ratios) == 1:
        found = [1 - end / begin]
    else:
        half = log(begin / end) / 2
        at = log(begin * end) / 2 + half * NODES
        found = (_polynomials([log(r) for r in ratios], at) * (half * WEIGHTS * end * np.exp(-at))).sum(1).tolist()
    return found + [0.0] * (len(ratios) - len(found))


@dataclass(frozen=True, kw_only=True)
class ExponentialMultistep(GridSampler):
    r"""Integrates the noise exactly, and the denoised data as a polynomial in the logarithm of the noise ratio.

    $$x_s = \frac{\sigma_s}{\sigma_t} \, x_t + \alpha_s \sum_{j < p} w_j \, D_j$$

    with the weights of `step_weights`, over the latest $p$ values of $D$: the first step takes one, the second two, up
    to the order. When $D$ is known at the end of a step, the step is done once more with it, which costs no evaluation
    and makes few steps safe. The last step, to the data, is their denoised value, extrapolated. One evaluation a step;
    the default for every number of steps, best with the grid `saturated`. Order 1 without correction is DDIM; order 2
    without it, DPM-Solver++(2M), nearly.

    Reference:
        Zhang and Chen, *Fast Sampling of Diffusion Models with ExponentialMultistep Integrator*, 2023; Lu et al.,
        *DPM-Solver++*, 2022; Zhao et al., *UniPC*, 2023.

    Args:
        order: $p$, from 1 to 4; unless given, 3 for fewer than 20 steps, 4 from there on.
        correction: The number of values with which a step is done once more, from 0 (it is not) to 4; the order unless
            given.

    Examples:
        >>> from lawful.solvers.diffusion import begin, edm, saturated
        >>> path, grid = edm(), saturated(edm(), 9)
        >>> noise = begin(path, grid, 2, 3)
        >>> ExponentialMultistep()(lambda x, t: x / (1 + t**2), noise, path, grid).std() < 3
        tensor(True)
    """

    order: int | None = None
    correction: int | None = None

    def __post_init__(self) -> None:
        if self.order not in (None, 1, 2, 3, 4) or self.correction not in (None, 0, 1, 2, 3, 4):
            raise ValueError(f"an order from 1 to 4, a correction from 0 to 4, is wanted: got {self}")

    def lead(self, walk: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""
        levels = walk.path.at(walk.grid)
        ratios = (levels.sigma / levels.alpha).tolist()
        order = self.order or (3 if len(ratios) <= 20 else 4)
        correction = order if self.correction is None else self.correction
        before, known = x, []
        for i, t, _ in walk.steps():
            known = [(ratios[i], walk.denoised(x, t)), *known[: max(order, correction) - 1]]
            if i and correction:
                x = _stepped(before, levels, i - 1, known[:correction])
            before, x = x, _stepped(x, levels, i, known[:order])
        return x


def _stepped(x: Tensor, levels: NoiseLevel, i: int, known: list[tuple[float, Tensor]]) -> Tensor:
    """The step from the time i of the grid to the next, by what is known of the data at some noise ratios."""
    known = [(ratio, value) for ratio, value in known if ratio < inf] or known[:1]
    alphas, sigmas = levels.alpha[[i, i + 1]].tolist(), levels.sigma[[i, i + 1]].tolist()
    begin, end = (s / a if a else inf for a, s in zip(alphas, sigmas, strict=True))
    x = x * (sigmas[1] / sigmas[0])
    for weight, (_, value) in zip(step_weights([ratio for ratio, _ in known], begin, end), known, strict=True):
        x = x + (alphas[1] * weight) * value
    return x


def _exponential_claims() -> Iterator[Claim]:
    """The laws that the exponential sampler obeys."""
    path = variance_preserving()
    ratios = [3.0, 5.0, 6.0, 20.0]

    def weighed(x: Tensor) -> Tensor:
        return x @ x.new_tensor(step_weights(ratios, 3.0, 0.5))

    def integral(x: Tensor) -> Tensor:
        """The integral of a cubic through the values, by a fine midpoint rule."""
        edges = torch.linspace(log(0.5), log(3.0), 5001, dtype=torch.float64)
        at = (edges[1:] + edges[:-1]) / 2
        nodes = torch.tensor(ratios, dtype=torch.float64).log()
        powers = torch.linalg.solve(torch.stack([nodes**k for k in range(4)], 1), x.double().T)
        values = powers.T @ torch.stack([at**k for k in range(4)])
        return (values * (0.5 * (-at).exp()) * (edges[1] - edges[0])).sum(-1).to(x)

    yield Claim(replace(agreement(other=integral), rtol=1e-5, cases=10), weighed, shape("n 4"), name="step_weights")

    def extrapolated(x: Tensor) -> Tensor:
        return x @ x.new_tensor(step_weights([0.1, 0.2], 0.1, 0.0))

    even = agreement(other=lambda x: (4 * x[:, 0] - x[:, 1]) / 3)
    yield Claim(even, extrapolated, shape("n 2"), name="step_weights to the data")
    grid = torch.tensor([0.9, 0.5, 0.2, 0.0], dtype=torch.float64)

    def ddim(x: Tensor) -> Tensor:
        return ExponentialMultistep(order=1, correction=0)(lambda x, t: x.sin(), x, path, grid).to(x)

    def by_hand(x: Tensor) -> Tensor:
        for t, s in itertools.pairwise(grid):
            x = ddim_step(x, x.sin(), path, t, s)
        return x

    yield Claim(replace(agreement(other=by_hand), cases=20), ddim, shape("n 2"), name="Exponential of order 1")
    for order in (2, 4):

        def known(x: Tensor, order: int = order) -> Tensor:
            return ExponentialMultistep(order=order)(lambda x, t: 0 * x + 2, x, path, grid[:3]).to(x)

        exactly = agreement(other=lambda x: ddim_step(x, 0 * x + 2, path, grid[0], grid[2]))
        yield Claim(replace(exactly, cases=20), known, shape("n 2"), name=f"Exponential({order}), known data")
    yield Claim(
        replace(batch_independence(), cases=10),
        lambda x: ExponentialMultistep()(lambda x, t: x.sin(), x, path, grid).to(x),
        shape("n 2"),
        name="Exponential",
    )


@dataclass(frozen=True, kw_only=True)
class ProbabilityFlow(GridSampler):
    r"""Solves the ordinary differential equation of a path by a Runge-Kutta method, a step between any two times.

    $$\frac{dv}{d\theta} = -F, \qquad v = \frac{x}{\sqrt{\sigma^2 + \alpha^2 s^2}}, \quad
    \theta = \arctan \frac{\sigma}{\alpha s}$$

    The last step, if it leads to the data, is their denoised value.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        tableau: The method, such as `EULER`, `HEUN`, `RK4` or `DORMAND_PRINCE`.
        scale: $s$, about the standard deviation of the data.

    Examples:
        >>> from lawful.solvers.diffusion import begin, edm, karras
        >>> path, grid = edm(), karras(edm(), 5)
        >>> ProbabilityFlow()(lambda x, t: x / (1 + t**2), begin(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    tableau: Tableau = RK4
    scale: float = 0.5

    def lead(self, walk: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""
        path = walk.path
        field = turning(walk.denoised, path, scale=self.scale)
        angles = angle_of(path, walk.grid, scale=self.scale).tolist()
        lengths = length_of(path, walk.grid, scale=self.scale).tolist()
        for i, t, s in walk.steps():
            if not s:
                return ddim_step(x, walk.denoised(x, t), path, t, s)
            v = integrate(field, x / lengths[i], angles[i], angles[i + 1], steps=1, tableau=self.tableau).x
            x = lengths[i + 1] * v
        return x


@dataclass(frozen=True, kw_only=True)
class AdaptiveFlow(GridSampler):
    r"""Solves the ordinary differential equation of a path in steps as long as a tolerance allows.

    Each sample takes its own steps: the denoiser is called with a time for each. Of the grid only the ends count: the
    first time, and the last that is not 0, from which the step to the data is their denoised value. More than `most`
    evaluations are an error, so that a denoiser that has diverged does not hang.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        rtol: The tolerance relative to $v$, which is about 1.
        atol: The tolerance that is added to it.
        most: The largest number of evaluations.
        scale: $s$, about the standard deviation of the data.

    Examples:
        >>> from lawful.solvers.diffusion import begin, edm, karras
        >>> path, grid = edm(), karras(edm(), 2)
        >>> AdaptiveFlow()(lambda x, t: 0 * x, begin(path, grid, 2, 3), path, grid).shape
        torch.Size([2, 3])
    """

    rtol: float = 1e-5
    atol: float = 1e-5
    most: int = 1000
    scale: float = 0.5

    def lead(self, walk: SamplingContext, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""
        path = walk.path
        field = turning(walk.denoised, path, scale=self.scale)
        ends = walk.grid[[0, -1 if walk.grid[-1] else -2]]
        if ends[0] > ends[1]:
            (a, b), (r, q) = (f(path, ends, scale=self.scale).tolist() for f in (angle_of, length_of))
            x = q * adaptive(field, x / r, a, b, rtol=self.rtol, atol=self.atol, most=self.most).x
        return x if walk.grid[-1] else ddim_step(x, walk.denoised(x, ends[1]), path, ends[1], walk.grid[-1])


def _probability_flow_claims() -> Iterator[Claim]:
    """The laws that the probability flow obeys."""
    path = variance_preserving()
    grid = torch.linspace(0.9, 0.1, 9, dtype=torch.float64)

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        """Gaussian data of mean 1 and variance 1/4."""
        level = path.at(t)
        a, s = expand_like(level.alpha, x), expand_like(level.sigma, x)
        return (s.square() + a * x / 4) / (s.square() + a.square() / 4)

    def exactly(x: Tensor) -> Tensor:
        """Where the flow of Gaussian data leads: quantiles keep their place."""
        (a, b), (s, q) = path.alpha(grid[[0, -1]]).tolist(), path.sigma(grid[[0, -1]]).tolist()
        return b + (x - a) * sqrt((q**2 + b**2 / 4) / (s**2 + a**2 / 4))

    for name, sampler in (("ProbabilityFlow", ProbabilityFlow()), ("AdaptiveFlow", AdaptiveFlow(scale=1.0))):

        def led(x: Tensor, sampler: ProbabilityFlow | AdaptiveFlow = sampler) -> Tensor:
            return sampler(denoise, x, path, grid).to(x)

        near = transformed(torch.tanh, "n:1..3 2")
        yield Claim(replace(agreement(other=exactly), rtol=1e-3, cases=4), led, near, name=name)
        yield Claim(replace(batch_independence(), cases=2), led, transformed(torch.tanh, "n:2..3 2"), name=name)


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _sampling_claims()
    yield from _heun_claims()
    yield from _exponential_claims()
    yield from _probability_flow_claims()
