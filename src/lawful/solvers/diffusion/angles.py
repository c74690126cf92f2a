"""The probability-flow equation in an angle, where it has no singularity at either end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, made, shape
from lawful.solvers.diffusion.gaussian_path import GaussianPath, beside
from lawful.solvers.diffusion.paths import variance_preserving


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
        level, r = path.at(t), beside(length_of(path, t, scale=scale), v)
        rate = (beside(level.alpha * scale**2, v) * v - r * denoised(r * v, t)) / beside(level.sigma * scale, v)
        return torch.where(beside(angle, v) > 0, rate, 0.0)

    return field


def claims() -> Iterator[Claim]:
    """The laws that the equation in the angle obeys."""
    path, scale = variance_preserving(), 0.7

    def inside(x: Tensor) -> Tensor:
        return 0.1 + 0.6 * torch.sigmoid(x)

    def there(t: Tensor) -> Tensor:
        return time_of_angle(path, angle_of(path, t, scale=scale), scale=scale).to(t)

    yield Claim(agreement(other=lambda t: t), there, made(inside, "n"), name="time of an angle")

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

    yield Claim(agreement(other=by_hand), field, (shape("n 2"), made(inside, "n")), name="turning")

    def still(v: Tensor, t: Tensor) -> Tensor:
        """Gaussian data of this scale do not turn."""

        def denoise(x: Tensor, t: Tensor) -> Tensor:
            level = path.at(t)
            a, s = level.alpha.to(x)[:, None], level.sigma.to(x)[:, None]
            return a * scale**2 * x / (s.square() + (scale * a).square())

        return v + turning(denoise, path, scale=scale)(v, angle_of(path, t, scale=scale))

    yield Claim(
        agreement(other=lambda v, t: v), still, (shape("n 2"), made(inside, "n")), name="turning, Gaussian data"
    )
