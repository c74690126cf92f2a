"""Noise levels: how training time is spread over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, made
from lawful.solvers.diffusion.gaussian_path import GaussianPath
from lawful.solvers.diffusion.paths import edm, rectified

LOWEST, HIGHEST = 1e-4, 1e6
"""The smallest and the largest noise ratio that are trained on."""


@runtime_checkable
class NoiseLevels(Protocol):
    """A distribution of times on a path, told by its quantiles."""

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles of times, in double precision, of numbers from 0 to 1."""
        ...


@dataclass(frozen=True, kw_only=True)
class LogNormal:
    r"""Spreads the logarithm of the noise ratio $\rho = \sigma / \alpha$ as a normal variable: EDM's choice.

    $$\log \rho = m + s \, \Phi^{-1}(u)$$

    Time goes where there is something to learn: far below the data's spread the noise cannot be told, far above it the
    mean is the best guess. The defaults are EDM's for data of a standard deviation of 0.5: for one of 1 the mean is
    that much larger, $-1.2 + \log 2$.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        mean: $m$.
        std: $s$, above 0.

    Examples:
        >>> LogNormal(mean=0.0).times(torch.tensor([0.5]), edm())
        tensor([1.], dtype=torch.float64)
    """

    mean: float = -1.2
    std: float = 1.2

    def __post_init__(self) -> None:
        if not (0 < self.std < inf and -inf < self.mean < inf):
            raise ValueError(f"a finite mean and a std above 0 were wanted: got {self}")

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles."""
        return _within(path, (self.mean + self.std * torch.special.ndtri(u.double())).exp())


@dataclass(frozen=True, kw_only=True)
class LogUniform:
    r"""Spreads the logarithm of the noise ratio evenly: as much time for every octave.

    $$\rho = \rho_\text{low}^{1 - u} \, \rho_\text{high}^u$$

    Args:
        low: $\rho_\text{low}$.
        high: $\rho_\text{high}$, above it.

    Examples:
        >>> LogUniform(low=0.01, high=1.0).times(torch.tensor([0.5]), edm())
        tensor([0.1000], dtype=torch.float64)
    """

    low: float = 0.002
    high: float = 80.0

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < inf:
            raise ValueError(f"noise ratios with 0 < low < high were wanted: got {self}")

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles."""
        return _within(path, self.low * (self.high / self.low) ** u.double())


@dataclass(frozen=True, kw_only=True)
class UniformInTime:
    r"""Spreads time evenly, $t = u \, T$, as flow matching and the SDE papers do.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Examples:
        >>> UniformInTime().times(torch.tensor([0.25]), rectified())
        tensor([0.2500], dtype=torch.float64)
    """

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles; the very beginning, where there is no noise, is left out."""
        return (path.last * u.double()).clamp(_first(path), path.last)


@dataclass(frozen=True, kw_only=True)
class Steps:
    r"""Takes the steps of a chain, each as often: $t = k T / N$ with $k = 1, \dots, N$. DDPM's choice.

    Reference:
        Ho, Jain and Abbeel, *Denoising Diffusion Probabilistic Models*, 2020.

    Args:
        count: $N$.

    Examples:
        >>> from lawful.solvers.diffusion.paths import discrete_chain
        >>> Steps(count=2).times(torch.tensor([0.1, 0.4, 0.6]), discrete_chain([0.1, 0.2]))
        tensor([1., 1., 2.], dtype=torch.float64)
    """

    count: int = 1000

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count is at least 1: got {self.count}")

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles."""
        step = (u.double() * self.count).floor().clamp(0, self.count - 1) + 1
        return path.last * step / self.count


def stratified(n: int, *, device: torch.device | None = None) -> Float[Tensor, " n"]:
    r"""Draws $n$ numbers from 0 to 1 that are each uniform, and together evenly spread: one in each $n$-th.

    $$u_i = \frac{i + w}{n}, \qquad w \sim U(0, 1)$$

    With them the noise levels of a batch vary less from step to step.

    Reference:
        Kingma, Salimans, Poole and Ho, *Variational Diffusion Models*, 2021.

    Args:
        n: How many.
        device: Where.

    Examples:
        >>> (4 * stratified(4)).floor()
        tensor([0., 1., 2., 3.], dtype=torch.float64)
    """
    places = torch.arange(n, dtype=torch.float64, device=device)
    return (places + torch.rand((), dtype=torch.float64, device=device)) / max(n, 1)


def _first(path: GaussianPath) -> float:
    return float(path.time_of(torch.tensor(LOWEST, dtype=torch.float64)))


def _within(path: GaussianPath, ratios: Tensor) -> Tensor:
    """The times of noise ratios, where the path has them."""
    return path.time_of(ratios.clamp(LOWEST, min(HIGHEST, float(path.ratio(path.last))))).clamp(max=path.last)


def claims() -> Iterator[Claim]:
    """The laws that noise levels obey: their distribution function, taken of a quantile, gives it back."""
    inner = made(lambda x: 0.1 + 0.8 * torch.sigmoid(x), "n")
    path, line = edm(), rectified()

    def normal(u: Tensor) -> Tensor:
        ratio = path.ratio(LogNormal(mean=-0.7, std=0.9).times(u, path))
        return (0.5 + 0.5 * torch.erf((ratio.log() + 0.7) / (0.9 * 2**0.5))).to(u)

    def even(u: Tensor) -> Tensor:
        ratio = line.ratio(LogUniform(low=0.1, high=5.0).times(u, line))
        return ((ratio / 0.1).log() / torch.tensor(50.0).log()).to(u)

    def in_time(u: Tensor) -> Tensor:
        return (UniformInTime().times(u, path) / 80).to(u)

    same = agreement(other=lambda u: 1 * u)
    for name, f in (("LogNormal", normal), ("LogUniform", even), ("UniformInTime", in_time)):
        yield Claim(same, f, inner, name=name)

    def stepwise(u: Tensor) -> Tensor:
        return Steps(count=5).times(u, line).to(u)

    counted = agreement(other=lambda u: sum((u >= k / 5).to(u) for k in range(1, 5)) / 5 + 0.2)
    yield Claim(counted, stepwise, inner, name="Steps")
