"""What samplers share: where they begin, what they ask of a denoiser, and the noise that belongs to a sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import log, pi
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.noise import normal_noise
from lawful.laws import Claim, agreement, samples_follow_density, shape
from lawful.solvers.diffusion.gaussian_path import GaussianPath
from lawful.solvers.diffusion.parametrisations import Denoiser
from lawful.solvers.diffusion.paths import variance_preserving


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


def begin(
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
        >>> from lawful.solvers.diffusion.grids import karras
        >>> from lawful.solvers.diffusion.paths import edm
        >>> begin(edm(), karras(edm(), 4), 2, 3).shape
        torch.Size([2, 3])
    """
    level = path.at(grid[0])
    noise = normal_noise(n, *sizes, seed=seed, first=first, dtype=torch.float64)
    return (level.sigma.square() + (level.alpha * spread).square()).sqrt() * noise


@dataclass(frozen=True, eq=False)
class Walk:
    """A denoiser that is looked after, a path, the times to stop at and the noise of each sample."""

    denoise: Denoiser
    path: GaussianPath
    grid: Tensor
    seed: int
    first: int

    @classmethod
    def of(
        cls, denoise: Denoiser, x: Tensor, path: GaussianPath, grid: Tensor, *, seed: int = 0, first: int = 0
    ) -> tuple[Walk, Tensor]:
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


class Walker(ABC):
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
        walk, x = Walk.of(denoise, x, path, grid, seed=seed, first=first)
        return self.lead(walk, x)

    @abstractmethod
    def lead(self, walk: Walk, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""


def towards(x: Tensor, denoised: Tensor, path: GaussianPath, t: Tensor, s: Tensor) -> Tensor:
    r"""Goes from time $t$ to $s$ as if the data were known.

    $$x_s = \alpha_s D + \frac{\sigma_s}{\sigma_t} \, (x_t - \alpha_t D)$$

    This is DDIM's step, and the one to $s = 0$ is the denoised data.

    Reference:
        Song, Meng and Ermon, *Denoising Diffusion Implicit Models*, 2021.
    """
    here, there = path.at(t), path.at(s)
    kept = float(there.sigma / here.sigma)
    return kept * x + (float(there.alpha) - kept * float(here.alpha)) * denoised


def claims() -> Iterator[Claim]:
    """The laws that beginnings and the simplest step obey."""
    path = variance_preserving()
    t, s = torch.tensor([0.6, 0.2], dtype=torch.float64)

    def known(x: Tensor, noise: Tensor) -> Tensor:
        return towards(path.noised(x, noise, t), x, path, t, s)

    there = agreement(other=lambda x, noise: path.noised(x, noise, s))
    yield Claim(there, known, (shape("n 2"), shape("n 2")), name="towards, where the data are known")
    yield Claim(
        agreement(other=lambda x, d: d),
        lambda x, d: towards(x, d, path, t, 0 * s),
        (shape("n 2"), shape("n 2")),
        name="towards the data",
    )
    grid = torch.tensor([0.3, 0.0], dtype=torch.float64)
    variance = float(path.sigma(0.3) ** 2 + 4 * path.alpha(0.3) ** 2)

    def log_prob(x: Tensor) -> Tensor:
        return -0.5 * (x.square() / variance + log(2 * pi * variance)).sum(-1)

    drawn = samples_follow_density(
        sample=lambda n: begin(path, grid, n, 2, seed=int(torch.randint(2**31, ())), spread=2.0), log_prob=log_prob
    )
    yield Claim(drawn, log_prob, shape("2"), name="begin")
