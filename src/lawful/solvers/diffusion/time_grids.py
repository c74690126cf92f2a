"""Time grids of samplers, and the probability-flow ODE in an angle, where it is regular at both ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, pi
from numbers import Integral

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, transformed
from lawful.solvers.diffusion.paths import GaussianPath, expand_like, variance_preserving

_LOW, _HIGH = 0.002, 1000.0  # default noise ratios of the last step, and of the first if the path ends in pure noise
_KNEE = 4.0  # default knee, in standard deviations of the data
_LAST = 0.8  # default noise ratio of the last of n steps, times n, in standard deviations of the data


def _grid(
    path: GaussianPath, n: int, low: float | None, high: float | None, ratios: Callable[[Tensor, float, float], Tensor]
) -> Tensor:
    """The times of n noise ratios from high to low, then 0; `ratios` maps [0, 1] to noise ratios."""
    _check(n)
    end = _max_ratio(path)
    low = _LOW if low is None else low
    high = (end if end < inf else _HIGH) if high is None else high
    if not 0 < low < high <= end:
        raise ValueError(
            f"expected noise ratios 0 < low < high <= {end:g} on the {path.name} path, got {low=}, {high=}"
        )
    u = torch.zeros(1, dtype=torch.float64) if n == 1 else torch.linspace(0, 1, n, dtype=torch.float64)
    inner = ratios(u, low, high)
    inner[0] = high
    times = path.time_of(inner).clamp(max=path.max_time)
    return torch.cat([times, times.new_zeros(1)])


def _check(n: int) -> None:
    if not (isinstance(n, Integral) and n >= 1):
        raise ValueError(f"expected an integer number of steps n >= 1, got {n}")


def _max_ratio(path: GaussianPath) -> float:
    return float(path.ratio(path.max_time))


def karras_grid(
    path: GaussianPath, n: int, *, low: float | None = None, high: float | None = None, power: float = 7.0
) -> Float[Tensor, " steps"]:
    r"""Returns EDM's time grid, uniform in a power of the noise ratio.

    $$\rho_i = \Bigl(\rho_\text{high}^{1/p} + \frac{i}{n - 1} \bigl(\rho_\text{low}^{1/p} - \rho_\text{high}^{1/p}\bigr)
    \Bigr)^p, \quad i < n, \qquad \rho_n = 0$$

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        path: Noise path.
        n: Number of steps; the last leads to the data.
        low: $\rho_\text{low}$, where the last step starts. Defaults to 0.002.
        high: $\rho_\text{high}$. Defaults to the noise ratio at the end of the path, or 1000 if it is infinite.
        power: Power $p$.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> karras_grid(edm(), 3).round(decimals=3).tolist()
        [80.0, 2.515, 0.002, 0.0]
    """
    if not 0 < power < inf:
        raise ValueError(f"expected a finite power > 0, got {power}")

    def ratios(u: Tensor, low: float, high: float) -> Tensor:
        top, bottom = high ** (1 / power), low ** (1 / power)
        return (top + u * (bottom - top)) ** power

    return _grid(path, n, low, high, ratios)


def log_grid(
    path: GaussianPath, n: int, *, low: float | None = None, high: float | None = None
) -> Float[Tensor, " steps"]:
    r"""Returns a time grid uniform in the logarithm of the noise ratio.

    $$\rho_i = \rho_\text{high}^{1 - u} \rho_\text{low}^{u}, \qquad u = \frac{i}{n - 1}$$

    Args:
        path: Noise path.
        n: Number of steps; the last leads to the data.
        low: $\rho_\text{low}$. Defaults to 0.002.
        high: $\rho_\text{high}$. Defaults to the noise ratio at the end of the path, or 1000 if it is infinite.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> log_grid(edm(), 3, low=0.01, high=1.0).round(decimals=6).tolist()
        [1.0, 0.1, 0.01, 0.0]
    """
    return _grid(path, n, low, high, lambda u, low, high: high * (low / high) ** u)


def saturating_log_grid(
    path: GaussianPath,
    n: int,
    *,
    sigma_data: float = 1.0,
    low: float | None = None,
    high: float | None = None,
    knee: float | None = None,
) -> Float[Tensor, " steps"]:
    r"""Returns a time grid uniform in the logarithm of a saturating noise ratio.

    $$u = \frac{\rho}{k + \rho}, \qquad \log u_i = \log u_\text{high} +
    \frac{i}{n - 1} \log \frac{u_\text{low}}{u_\text{high}}$$

    Below the knee $k$ it equals `log_grid`. Above it the steps grow without bound, so that a path may start at pure
    noise. The defaults follow the standard deviation of the data, and the last step starts at less noise the more
    steps there are.

    Args:
        path: Noise path.
        n: Number of steps; the last leads to the data.
        sigma_data: Standard deviation of the data, root mean square over coordinates.
        low: $\rho_\text{low}$. Defaults to $0.8 / n$ standard deviations of the data.
        high: $\rho_\text{high}$. Defaults to the noise ratio at the end of the path, also if it is infinite.
        knee: Knee $k$. Defaults to 4 standard deviations of the data.

    Examples:
        >>> from lawful.solvers.diffusion.paths import rectified
        >>> saturating_log_grid(rectified(), 3).round(decimals=3).tolist()
        [1.0, 0.571, 0.211, 0.0]
    """
    if not 0 < sigma_data < inf:
        raise ValueError(f"expected a finite sigma_data > 0, got {sigma_data}")
    if knee is None:
        knee = _KNEE * sigma_data
    elif not 0 < knee < inf:
        raise ValueError(f"expected a finite knee > 0, got {knee}")
    end = _max_ratio(path) if high is None else high
    if low is None and n > 0:
        low = min(_LAST * sigma_data / n, end / 2)

    def ratios(u: Tensor, low: float, high: float) -> Tensor:
        top, bottom = 1 / (1 + knee / high), 1 / (1 + knee / low)
        part = top * (bottom / top) ** u
        return knee * part / (1 - part)

    return _grid(path, n, low, end, ratios)


def cosine_grid(
    path: GaussianPath, n: int, *, low: float | None = None, high: float | None = None
) -> Float[Tensor, " steps"]:
    r"""Returns a time grid uniform in the angle $\arctan \rho$ of signal and noise.

    Reference:
        Nichol and Dhariwal, *Improved Denoising Diffusion Probabilistic Models*, 2021.

    Args:
        path: Noise path.
        n: Number of steps; the last leads to the data.
        low: $\rho_\text{low}$. Defaults to 0.002.
        high: $\rho_\text{high}$. Defaults to the noise ratio at the end of the path, or 1000 if it is infinite.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> cosine_grid(edm(), 2, low=0.01, high=1.0).round(decimals=6).tolist()
        [1.0, 0.01, 0.0]
    """

    def ratios(u: Tensor, low: float, high: float) -> Tensor:
        top, bottom = torch.tensor([high, low], dtype=torch.float64).atan()
        return (top + u * (bottom - top)).clamp(max=pi / 2).tan()

    return _grid(path, n, low, high, ratios)


def rectified_grid(
    path: GaussianPath, n: int, *, low: float | None = None, high: float | None = None, shift: float = 1.0
) -> Float[Tensor, " steps"]:
    r"""Returns a time grid uniform in the time $\rho / (s + \rho)$ of a shifted rectified path.

    Reference:
        Esser et al., *Scaling Rectified Flow Transformers for High-Resolution Image Synthesis*, 2024.

    Args:
        path: Noise path.
        n: Number of steps; the last leads to the data.
        low: $\rho_\text{low}$. Defaults to 0.002.
        high: $\rho_\text{high}$. Defaults to the noise ratio at the end of the path, or 1000 if it is infinite.
        shift: Shift $s$; larger values spend more steps at high noise.

    Examples:
        >>> from lawful.solvers.diffusion.paths import rectified
        >>> rectified_grid(rectified(), 2, low=1.0, high=3.0).tolist()
        [0.75, 0.5, 0.0]
    """
    if not 0 < shift < inf:
        raise ValueError(f"expected a finite shift > 0, got {shift}")

    def ratios(u: Tensor, low: float, high: float) -> Tensor:
        top, bottom = high / (shift + high), low / (shift + low)
        part = top + u * (bottom - top)
        return shift * part / (1 - part)

    return _grid(path, n, low, high, ratios)


def linear_grid(path: GaussianPath, n: int, *, max_time: float | None = None) -> Float[Tensor, " steps"]:
    r"""Returns a time grid uniform in the path's time, $t_i = (1 - i / n) \, T$.

    Args:
        path: Noise path.
        n: Number of steps; the last leads to the data.
        max_time: First time $T$. Defaults to the path's.

    Examples:
        >>> from lawful.solvers.diffusion.paths import rectified
        >>> linear_grid(rectified(), 4).tolist()
        [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    _check(n)
    max_time = path.max_time if max_time is None else max_time
    if not 0 < max_time <= path.max_time:
        raise ValueError(f"expected 0 < max_time <= {path.max_time:g} on the {path.name} path, got {max_time}")
    return max_time * (1 - torch.arange(n + 1, dtype=torch.float64) / n)


def angle_at(path: GaussianPath, t: Tensor, *, scale: float) -> Float[Tensor, "*n"]:
    r"""Returns the angle of signal and noise, from 0 at the data to $\frac\pi2$ at pure noise.

    $$\theta = \arctan \frac{\sigma}{\alpha s}$$

    Args:
        path: Noise path.
        t: Time $t$.
        scale: Scale $s$, about the standard deviation of the data.
    """
    if not 0 < scale < inf:
        raise ValueError(f"expected a finite scale > 0, got {scale}")
    level = path.at(t)
    return torch.atan2(level.sigma, scale * level.alpha)


def time_of_angle(path: GaussianPath, angle: Tensor, *, scale: float) -> Float[Tensor, "*n"]:
    r"""Returns the time of an angle, where the noise ratio is $s \tan\theta$."""
    ratio = torch.where(angle >= torch.pi / 2, inf, scale * angle.tan())
    return path.time_of(ratio).clamp(0, path.max_time)


def norm_at(path: GaussianPath, t: Tensor, *, scale: float) -> Float[Tensor, "*n"]:
    r"""Returns $r = \sqrt{\sigma^2 + \alpha^2 s^2}$."""
    level = path.at(t)
    return (level.sigma.square() + (scale * level.alpha).square()).sqrt()


def angular_rate(
    denoise: Callable[[Tensor, Tensor], Tensor], path: GaussianPath, *, scale: float
) -> Callable[[Tensor, Tensor], Tensor]:
    r"""Returns the right-hand side of the probability-flow ODE in the angle.

    $$\frac{dv}{d\theta} = -F(x, t), \qquad v = \frac{x}{r}, \quad r = \sqrt{\sigma^2 + \alpha^2 s^2}, \quad
    F = \frac{r D - \alpha s^2 x / r}{\sigma s}$$

    $F$ is the prediction of EDM's network. It is 0 for Gaussian data of standard deviation $s$, and at $\theta = 0$
    for data with a density.

    Args:
        denoise: Denoiser $D$.
        path: Noise path.
        scale: Scale $s$.
    """

    def rate(angle: Tensor, v: Tensor) -> Tensor:
        if not bool(angle.any()):
            return torch.zeros_like(v)
        t = time_of_angle(path, angle.clamp_min(1e-6), scale=scale)
        level, r = path.at(t), expand_like(norm_at(path, t, scale=scale), v)
        change = expand_like(level.alpha * scale**2, v) * v - r * denoise(r * v, t)
        return torch.where(expand_like(angle, v) > 0, change / expand_like(level.sigma * scale, v), 0.0)

    return rate


def claims() -> Iterator[Claim]:
    """The angle determines the time."""
    path = variance_preserving()

    def round_trip(t: Tensor) -> Tensor:
        return time_of_angle(path, angle_at(path, t, scale=0.7), scale=0.7).to(t)

    inputs = transformed(lambda x: 0.1 + 0.6 * torch.sigmoid(x), "n")
    yield Claim(agreement(other=lambda t: t), round_trip, inputs, name="time_of_angle inverts angle_at")
