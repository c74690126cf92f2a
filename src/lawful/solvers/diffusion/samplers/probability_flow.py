"""Samplers by the probability-flow equation: with any tableau on a grid, or in steps as long as the error allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, batch_independence, made
from lawful.solvers.diffusion.angles import angle_of, length_of, turning
from lawful.solvers.diffusion.gaussian_path import beside
from lawful.solvers.diffusion.paths import variance_preserving
from lawful.solvers.diffusion.sampling import Walk, Walker, towards
from lawful.solvers.ode import RK4, Tableau, adaptive, integrate


@dataclass(frozen=True, kw_only=True)
class ProbabilityFlow(Walker):
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

    def lead(self, walk: Walk, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""
        path = walk.path
        field = turning(walk.denoised, path, scale=self.scale)
        angles = angle_of(path, walk.grid, scale=self.scale).tolist()
        lengths = length_of(path, walk.grid, scale=self.scale).tolist()
        for i, t, s in walk.steps():
            if not s:
                return towards(x, walk.denoised(x, t), path, t, s)
            v = integrate(field, x / lengths[i], angles[i], angles[i + 1], steps=1, tableau=self.tableau).x
            x = lengths[i + 1] * v
        return x


@dataclass(frozen=True, kw_only=True)
class AdaptiveFlow(Walker):
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

    def lead(self, walk: Walk, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""
        path = walk.path
        field = turning(walk.denoised, path, scale=self.scale)
        ends = walk.grid[[0, -1 if walk.grid[-1] else -2]]
        if ends[0] > ends[1]:
            (a, b), (r, q) = (f(path, ends, scale=self.scale).tolist() for f in (angle_of, length_of))
            x = q * adaptive(field, x / r, a, b, rtol=self.rtol, atol=self.atol, most=self.most).x
        return x if walk.grid[-1] else towards(x, walk.denoised(x, ends[1]), path, ends[1], walk.grid[-1])


def claims() -> Iterator[Claim]:
    """The laws that the probability flow obeys."""
    path = variance_preserving()
    grid = torch.linspace(0.9, 0.1, 9, dtype=torch.float64)

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        """Gaussian data of mean 1 and variance 1/4."""
        level = path.at(t)
        a, s = beside(level.alpha, x), beside(level.sigma, x)
        return (s.square() + a * x / 4) / (s.square() + a.square() / 4)

    def exactly(x: Tensor) -> Tensor:
        """Where the flow of Gaussian data leads: quantiles keep their place."""
        (a, b), (s, q) = path.alpha(grid[[0, -1]]).tolist(), path.sigma(grid[[0, -1]]).tolist()
        return b + (x - a) * sqrt((q**2 + b**2 / 4) / (s**2 + a**2 / 4))

    for name, sampler in (("ProbabilityFlow", ProbabilityFlow()), ("AdaptiveFlow", AdaptiveFlow(scale=1.0))):

        def led(x: Tensor, sampler: ProbabilityFlow | AdaptiveFlow = sampler) -> Tensor:
            return sampler(denoise, x, path, grid).to(x)

        near = made(torch.tanh, "n:1..3 2")
        yield Claim(replace(agreement(other=exactly), within=1e-3, cases=4), led, near, name=name)
        yield Claim(replace(batch_independence(), cases=2), led, made(torch.tanh, "n:2..3 2"), name=name)
