"""Grids: at which times a sampler stops on its way from noise to data.

The probability-flow equation in an angle, where it has no singularity at either end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, pi
from numbers import Integral

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, Draw, Equal, Map, Statement, agreement, law, shape, transformed
from lawful.solvers.diffusion.paths import GaussianPath, expand_like, variance_preserving

LOW, HIGH = 0.002, 1000.0
"""The smallest noise ratio before the data, and the largest on a path that ends in noise alone, unless given."""


def _grid(
    path: GaussianPath, n: int, low: float | None, high: float | None, ratios: Callable[[Tensor, float, float], Tensor]
) -> Tensor:
    """The times of n noise ratios, from high to low, then 0; `ratios` maps 0 to 1 onto high to low."""
    _check(n)
    end = highest(path)
    low = LOW if low is None else low
    high = (end if end < inf else HIGH) if high is None else high
    if not 0 < low < high <= end:
        raise ValueError(
            f"noise ratios with 0 < low < high, up to {end:g} on the {path.name} path, were wanted: got {low=}, {high=}"
        )
    begin = torch.zeros(1, dtype=torch.float64) if n == 1 else torch.linspace(0, 1, n, dtype=torch.float64)
    inner = ratios(begin, low, high)
    inner[0] = high
    times = path.time_of(inner).clamp(max=path.last)
    return torch.cat([times, times.new_zeros(1)])


def _check(n: int) -> None:
    if not (isinstance(n, Integral) and n >= 1):
        raise ValueError(f"a grid has a whole number of steps, at least 1: got n={n}")


def highest(path: GaussianPath) -> float:
    """Returns the noise ratio of the last time; infinity where nothing of the data is left."""
    return float(path.ratio(path.last))


def karras_grid(
    path: GaussianPath, n: int, *, low: float | None = None, high: float | None = None, power: float = 7.0
) -> Float[Tensor, " steps"]:
    r"""Spaces a power of the noise ratio evenly: $n$ steps, the last of them to the data.

    $$\rho_i = \Bigl(\rho_\text{high}^{1/p} + \frac{i}{n - 1} \bigl(\rho_\text{low}^{1/p} - \rho_\text{high}^{1/p}\bigr)
    \Bigr)^p, \quad i < n, \qquad \rho_n = 0$$

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        path: The path whose times are wanted.
        n: The number of steps.
        low: $\rho_\text{low}$, from which the last step goes to the data; 0.002 unless given.
        high: $\rho_\text{high}$; that of the path's end unless given, and 1000 where that is infinite.
        power: $p$.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> karras_grid(edm(), 3).round(decimals=3).tolist()
        [80.0, 2.515, 0.002, 0.0]
    """
    if not 0 < power < inf:
        raise ValueError(f"power is to be above 0, and finite: got {power}")

    def ratios(u: Tensor, low: float, high: float) -> Tensor:
        top, bottom = high ** (1 / power), low ** (1 / power)
        return (top + u * (bottom - top)) ** power

    return _grid(path, n, low, high, ratios)


def logarithmic(
    path: GaussianPath, n: int, *, low: float | None = None, high: float | None = None
) -> Float[Tensor, " steps"]:
    r"""Spaces the logarithm of the noise ratio evenly: $\rho_i = \rho_\text{high}^{1 - u} \rho_\text{low}^{u}$.

    Args:
        path: The path whose times are wanted.
        n: The number of steps, the last of them to the data.
        low: $\rho_\text{low}$; 0.002 unless given.
        high: $\rho_\text{high}$; that of the path's end unless given, and 1000 where that is infinite.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> logarithmic(edm(), 3, low=0.01, high=1.0).round(decimals=6).tolist()
        [1.0, 0.1, 0.01, 0.0]
    """
    return _grid(path, n, low, high, lambda u, low, high: high * (low / high) ** u)


def saturating_log_grid(
    path: GaussianPath, n: int, *, low: float | None = None, high: float | None = None, knee: float = 4.0
) -> Float[Tensor, " steps"]:
    r"""Spaces the logarithm of a ratio that saturates evenly.

    $$u = \frac{\rho}{k + \rho}, \qquad \log u_i = \log u_\text{high} +
    \frac{i}{n - 1} \log \frac{u_\text{low}}{u_\text{high}}$$

    Below the knee $k$ this is the logarithmic grid; above it, where there is little but noise and nothing bends, the
    steps grow without bound, so that a path may begin at noise alone. For data of a standard deviation of about 1.

    Args:
        path: The path whose times are wanted.
        n: The number of steps, the last of them to the data.
        low: $\rho_\text{low}$; 0.002 unless given.
        high: $\rho_\text{high}$; that of the path's end unless given, infinite or not.
        knee: $k$, a few standard deviations of the data.

    Examples:
        >>> from lawful.solvers.diffusion.paths import rectified
        >>> saturating_log_grid(rectified(), 3).round(decimals=3).tolist()
        [1.0, 0.084, 0.002, 0.0]
    """
    if not 0 < knee < inf:
        raise ValueError(f"knee is to be above 0, and finite: got {knee}")

    def ratios(u: Tensor, low: float, high: float) -> Tensor:
        top, bottom = 1 / (1 + knee / high), 1 / (1 + knee / low)
        part = top * (bottom / top) ** u
        return knee * part / (1 - part)

    return _grid(path, n, low, highest(path) if high is None else high, ratios)


def cosine_spaced(
    path: GaussianPath, n: int, *, low: float | None = None, high: float | None = None
) -> Float[Tensor, " steps"]:
    r"""Spaces the angle of signal and noise evenly: $\arctan \rho_i$ goes down in equal steps.

    Reference:
        Nichol and Dhariwal, *Improved Denoising Diffusion Probabilistic Models*, 2021.

    Args:
        path: The path whose times are wanted.
        n: The number of steps, the last of them to the data.
        low: $\rho_\text{low}$; 0.002 unless given.
        high: $\rho_\text{high}$; that of the path's end unless given, and 1000 where that is infinite.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> cosine_spaced(edm(), 2, low=0.01, high=1.0).round(decimals=6).tolist()
        [1.0, 0.01, 0.0]
    """

    def ratios(u: Tensor, low: float, high: float) -> Tensor:
        top, bottom = torch.tensor([high, low], dtype=torch.float64).atan()
        return (top + u * (bottom - top)).clamp(max=pi / 2).tan()

    return _grid(path, n, low, high, ratios)


def rectified_spaced(
    path: GaussianPath, n: int, *, low: float | None = None, high: float | None = None, shift: float = 1.0
) -> Float[Tensor, " steps"]:
    r"""Spaces the time of a rectified path evenly: with $u = \rho / (s + \rho)$, $u_i$ goes down in equal steps.

    Reference:
        Esser et al., *Scaling Rectified Flow Transformers for High-Resolution Image Synthesis*, 2024.

    Args:
        path: The path whose times are wanted.
        n: The number of steps, the last of them to the data.
        low: $\rho_\text{low}$; 0.002 unless given.
        high: $\rho_\text{high}$; that of the path's end unless given, and 1000 where that is infinite.
        shift: $s$; above 1, more steps are spent on much noise.

    Examples:
        >>> from lawful.solvers.diffusion.paths import rectified
        >>> rectified_spaced(rectified(), 2, low=1.0, high=3.0).tolist()
        [0.75, 0.5, 0.0]
    """
    if not 0 < shift < inf:
        raise ValueError(f"shift is to be above 0, and finite: got {shift}")

    def ratios(u: Tensor, low: float, high: float) -> Tensor:
        top, bottom = high / (shift + high), low / (shift + low)
        part = top + u * (bottom - top)
        return shift * part / (1 - part)

    return _grid(path, n, low, high, ratios)


def linear(path: GaussianPath, n: int, *, last: float | None = None) -> Float[Tensor, " steps"]:
    r"""Spaces the path's own time evenly, $t_i = (1 - i / n) \, T$.

    Args:
        path: The path whose times are wanted.
        n: The number of steps, the last of them to the data.
        last: $T$; the path's last time unless given.

    Examples:
        >>> from lawful.solvers.diffusion.paths import rectified
        >>> linear(rectified(), 4).tolist()
        [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    _check(n)
    last = path.last if last is None else last
    if not 0 < last <= path.last:
        raise ValueError(f"a time above 0, up to {path.last:g} on the {path.name} path, was wanted: got {last=}")
    return last * (1 - torch.arange(n + 1, dtype=torch.float64) / n)


@law("t_0 > t_1 > ... > t_n = 0, and the spaced quantity goes down by equal steps")
def even_spacing(f: Map, x: Tensor, *, quantity: Callable[[Tensor], Tensor], draw: Draw) -> Statement:
    """Of a grid of as many steps as x has entries, some quantity of the noise ratios is evenly spaced, and then 0.

    Satisfied by: a logarithmic grid and the logarithm.
    Broken by: a logarithmic grid and the ratio itself; a grid without the data at its end.
    """
    ratios = f(x)
    spaced = quantity(ratios[:-1])
    even = spaced[0] + (spaced[-1] - spaced[0]) * torch.arange(len(spaced)).to(x) / max(1, len(spaced) - 1)
    return Equal((spaced, ratios[-1:]), (even, torch.zeros_like(ratios[-1:])), exercised=True)


def _grids_claims() -> Iterator[Claim]:
    """The laws that grids obey."""
    path = variance_preserving()
    rows = (
        ("karras", karras_grid, lambda r: r ** (1 / 7)),
        ("logarithmic", logarithmic, torch.log),
        ("saturated", saturating_log_grid, lambda r: -(4 / r).log1p()),
        ("cosine_spaced", cosine_spaced, torch.atan),
        ("rectified_spaced", rectified_spaced, lambda r: r / (1 + r)),
    )
    for name, grid, quantity in rows:

        def ratios(x: Tensor, grid: Callable[..., Tensor] = grid) -> Tensor:
            return path.ratio(grid(path, len(x), low=0.01, high=20.0)).to(x)

        yield Claim(even_spacing(quantity=quantity), ratios, shape("n:1..9"), name=name)

        def ends(x: Tensor, grid: Callable[..., Tensor] = grid) -> Tensor:
            found = path.ratio(grid(path, 1 + len(x), low=0.01, high=20.0)).to(x)
            return torch.stack([found[0], found[-2], found[-1]])

        told = agreement(other=lambda x: x.new_tensor([20.0, 0.01, 0.0]))
        yield Claim(told, ends, shape("n:1..9"), name=f"{name}, its ends")

    def times(x: Tensor) -> Tensor:
        return linear(path, len(x), last=0.8).to(x)

    by_hand = agreement(other=lambda x: 0.8 * (len(x) - torch.arange(len(x) + 1).to(x)) / len(x))
    yield Claim(by_hand, times, shape("n:1..9"), name="linear")


def angle_of(path: GaussianPath, t: Tensor, *, scale: float) -> Float[Tensor, "*n"]:
    r"""Returns the angle of noise and data, from 0 at the data to $\frac\pi2$ at noise.

    $$\theta = \arctan \frac{\sigma}{\alpha s}$$

    Args:
        path: The path.
        t: $t$.
        scale: $s$, about the standard deviation of the data.
    """
    if not 0 < scale < inf:
        raise ValueError(f"scale is to be above 0, and finite: got {scale}")
    level = path.at(t)
    return torch.atan2(level.sigma, scale * level.alpha)


def time_of_angle(path: GaussianPath, angle: Tensor, *, scale: float) -> Float[Tensor, "*n"]:
    r"""Returns the time at an angle: that of the noise ratio $s \tan\theta$."""
    ratio = torch.where(angle >= torch.pi / 2, inf, scale * angle.tan())
    return path.time_of(ratio).clamp(0, path.last)


def length_of(path: GaussianPath, t: Tensor, *, scale: float) -> Float[Tensor, "*n"]:
    r"""Returns $r = \sqrt{\sigma^2 + \alpha^2 s^2}$."""
    level = path.at(t)
    return (level.sigma.square() + (scale * level.alpha).square()).sqrt()


def turning(
    denoised: Callable[[Tensor, Tensor], Tensor], path: GaussianPath, *, scale: float
) -> Callable[[Tensor, Tensor], Tensor]:
    r"""Returns the right side of the probability-flow equation in the angle.

    $$\frac{dv}{d\theta} = -F(x, t), \qquad v = \frac{x}{r}, \quad r = \sqrt{\sigma^2 + \alpha^2 s^2}, \quad
    F = \frac{r D - \alpha s^2 x / r}{\sigma s}$$

    $F$ is what EDM's network predicts. For Gaussian data of standard deviation $s$ it is 0, and the equation needs no
    solving; at the data, where it would be 0 / 0, it is 0 for data that have a density.

    Args:
        denoised: $D$.
        path: The path.
        scale: $s$.
    """

    def field(v: Tensor, angle: Tensor) -> Tensor:
        if not bool(angle.any()):
            return torch.zeros_like(v)
        t = time_of_angle(path, angle.clamp_min(1e-6), scale=scale)
        level, r = path.at(t), expand_like(length_of(path, t, scale=scale), v)
        rate = (expand_like(level.alpha * scale**2, v) * v - r * denoised(r * v, t)) / expand_like(
            level.sigma * scale, v
        )
        return torch.where(expand_like(angle, v) > 0, rate, 0.0)

    return field


def _angles_claims() -> Iterator[Claim]:
    """The laws that the equation in the angle obeys."""
    path, scale = variance_preserving(), 0.7

    def inside(x: Tensor) -> Tensor:
        return 0.1 + 0.6 * torch.sigmoid(x)

    def there(t: Tensor) -> Tensor:
        return time_of_angle(path, angle_of(path, t, scale=scale), scale=scale).to(t)

    yield Claim(agreement(other=lambda t: t), there, transformed(inside, "n"), name="time of an angle")

    def field(v: Tensor, t: Tensor) -> Tensor:
        return turning(lambda x, t: x.sin(), path, scale=scale)(v, angle_of(path, t, scale=scale))

    def by_hand(v: Tensor, t: Tensor) -> Tensor:
        """The chain rule: v = x / r, x by its velocity, and time by the angle."""
        a, s, a_rate, s_rate = (value.to(v)[:, None] for value in path.at(t))
        r = (s.square() + (scale * a).square()).sqrt()
        x = r * v
        velocity = path.velocity(x, x.sin(), t)
        r_rate = (s * s_rate + scale**2 * a * a_rate) / r
        angle_rate = scale * (s_rate * a - s * a_rate) / r.square()
        return (velocity / r - x * r_rate / r.square()) / angle_rate

    yield Claim(agreement(other=by_hand), field, (shape("n 2"), transformed(inside, "n")), name="turning")

    def still(v: Tensor, t: Tensor) -> Tensor:
        """Gaussian data of this scale do not turn."""

        def denoise(x: Tensor, t: Tensor) -> Tensor:
            level = path.at(t)
            a, s = level.alpha.to(x)[:, None], level.sigma.to(x)[:, None]
            return a * scale**2 * x / (s.square() + (scale * a).square())

        return v + turning(denoise, path, scale=scale)(v, angle_of(path, t, scale=scale))

    yield Claim(
        agreement(other=lambda v, t: v), still, (shape("n 2"), transformed(inside, "n")), name="turning, Gaussian data"
    )


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _grids_claims()
    yield from _angles_claims()
