"""Heun's sampler, with the churn of EDM."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.noise import normal_noise
from lawful.laws import Claim, agreement, shape
from lawful.solvers.diffusion.paths import edm
from lawful.solvers.diffusion.sampling import Walk, Walker, towards


@dataclass(frozen=True, kw_only=True)
class Heun(Walker):
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

    def lead(self, walk: Walk, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
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
            ahead, end = towards(x, denoised, path, t, s), float(path.ratio(s))
            if end and ratio < inf:
                z, after = x / path.alpha(t), ahead / path.alpha(s)
                slope = (z - denoised) / ratio + (after - walk.denoised(ahead, s)) / end
                ahead = path.alpha(s) * (z + (end - ratio) / 2 * slope)
            x = ahead
        return x


def claims() -> Iterator[Claim]:
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
