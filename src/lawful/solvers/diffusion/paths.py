"""The Gaussian path: from data to noise, by a scale of the one and a spread of the other.

Paths from data to noise: VE, VP, sub-VP, DDPM's chain, cosine, EDM, rectified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import cos, inf, pi
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, derivative, transformed

Times = Float[Tensor, "*n"] | float


class NoiseLevel(NamedTuple):
    r"""Holds the two numbers of a path at some times, and how fast they change."""

    alpha: Float[Tensor, "*n"]
    r"""$\alpha(t)$, the scale of the data."""
    sigma: Float[Tensor, "*n"]
    r"""$\sigma(t)$, the spread of the noise."""
    alpha_rate: Float[Tensor, "*n"]
    r"""$\dot\alpha(t)$"""
    sigma_rate: Float[Tensor, "*n"]
    r"""$\dot\sigma(t)$"""


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianPath:
    r"""Leads from data at time 0 to noise at the last time.

    $$x_t = \alpha(t) \, x_0 + \sigma(t) \, \varepsilon, \qquad \alpha(0) = 1, \quad \sigma(0) = 0$$

    The same marginals are those of an SDE, $dx = f(t) x \, dt + g(t) \, dw$, with

    $$f = \frac{\dot\alpha}{\alpha}, \qquad g^2 = 2 \sigma \Bigl(\dot\sigma - \sigma \frac{\dot\alpha}{\alpha}\Bigr)$$

    and of an ordinary differential equation, $\dot x = \dot\alpha \, D + \dot\sigma \, (x - \alpha D) / \sigma$, where
    $D(x, t) = \mathbb{E}[x_0 \mid x_t = x]$. In the noise ratio $\rho = \sigma / \alpha$ and $z = x / \alpha$ all paths
    are one: $dz / d\rho = (z - D) / \rho$. Everything is in double precision, whatever the data are in.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021; Karras, Aittala,
        Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        name: What errors call it.
        level: From times to $\alpha$, $\sigma$ and their derivatives.
        time_of: The inverse of $\rho(t)$; of infinity, where $\alpha$ reaches 0, too.
        last: The time of noise.

    Examples:
        >>> from lawful.solvers.diffusion.paths import variance_preserving
        >>> path = variance_preserving()
        >>> round(float(path.alpha(1.0)), 4), round(float(path.time_of(path.ratio(0.3))), 4)
        (0.0066, 0.3)
    """

    name: str
    level: Callable[[Tensor], NoiseLevel]
    time_of: Callable[[Tensor], Tensor]
    last: float

    def at(self, t: Times) -> NoiseLevel:
        """Returns alpha, sigma and their derivatives at times from 0 to the last."""
        t = torch.as_tensor(t, dtype=torch.float64)
        if not bool(((t >= 0) & (t <= self.last)).all()):
            raise ValueError(f"times of the {self.name} path are from 0 to {self.last:g}: got {t.tolist()}")
        return self.level(t)

    def alpha(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns $\alpha(t)$."""
        return self.at(t).alpha

    def sigma(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns $\sigma(t)$."""
        return self.at(t).sigma

    def ratio(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns the noise ratio $\rho = \sigma / \alpha$, which is EDM's $\sigma$."""
        level = self.at(t)
        return level.sigma / level.alpha

    def log_snr(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns the logarithm of the signal-to-noise ratio, $\lambda = \log(\alpha^2 / \sigma^2)$."""
        return -2 * self.ratio(t).log()

    def time_of_log_snr(self, log_snr: Times) -> Float[Tensor, "*n"]:
        r"""Returns the time at which $\lambda$ has a value: $\rho = e^{-\lambda / 2}$."""
        return self.time_of((torch.as_tensor(log_snr, dtype=torch.float64) / -2).exp())

    def drift(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns $f(t) = \dot\alpha / \alpha$; minus infinity where nothing of the data is left."""
        level = self.at(t)
        return level.alpha_rate / level.alpha

    def squared_diffusion(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns $g(t)^2 = 2 \sigma (\dot\sigma - \sigma \dot\alpha / \alpha)$."""
        a, s, a_rate, s_rate = self.at(t)
        return 2 * s * (s_rate - s * a_rate / a)

    def noised(
        self, x: Float[Tensor, "n *shape"], noise: Float[Tensor, "n *shape"], t: Times
    ) -> Float[Tensor, "n *shape"]:
        r"""Returns $\alpha(t) x_0 + \sigma(t) \varepsilon$, at one time or one time for each sample."""
        level = self.at(t)
        return expand_like(level.alpha, x) * x + expand_like(level.sigma, x) * noise

    def score(
        self, x: Float[Tensor, "n *shape"], denoised: Float[Tensor, "n *shape"], t: Times
    ) -> Float[Tensor, "n *shape"]:
        r"""Returns $\nabla \log p_t(x) = (\alpha D - x) / \sigma^2$ (Tweedie's formula)."""
        level = self.at(t)
        return (expand_like(level.alpha, x) * denoised - x) / expand_like(level.sigma.square(), x)

    def velocity(
        self, x: Float[Tensor, "n *shape"], denoised: Float[Tensor, "n *shape"], t: Times
    ) -> Float[Tensor, "n *shape"]:
        r"""Returns $\dot x$ of the ordinary differential equation; it has no singularity where $\alpha = 0$."""
        a, s, a_rate, s_rate = (expand_like(value, x) for value in self.at(t))
        return a_rate * denoised + s_rate / s * (x - a * denoised)

    def __repr__(self) -> str:
        return f"GaussianPath({self.name})"


def expand_like(values: Float[Tensor, "*n"], x: Float[Tensor, "n *shape"]) -> Tensor:
    """Returns one number, or one for each sample, in the precision of x and ready to multiply it."""
    values = values.to(x)
    return values.reshape(-1, *(1,) * (x.dim() - 1)) if values.dim() else values


def _gaussian_path_claims() -> Iterator[Claim]:
    """The laws that a path obeys: here one of which nothing is special, alpha = exp(-t²), sigma = t (2 + t)."""

    def level(t: Tensor) -> NoiseLevel:
        alpha = (-t.square()).exp()
        return NoiseLevel(alpha, t * (2 + t), -2 * t * alpha, 2 + 2 * t)

    path = GaussianPath(name="odd", level=level, time_of=lambda ratio: ratio, last=1.0)

    def inside(x: Tensor) -> Tensor:
        return 0.1 + 0.8 * torch.sigmoid(x)

    def flow(x: Tensor, d: Tensor, t: Tensor) -> Tensor:
        return path.velocity(x, d, t)

    def by_score(x: Tensor, d: Tensor, t: Tensor) -> Tensor:
        """The probability flow as Song et al. write it: f x - g² score / 2."""
        drift, squared = expand_like(path.drift(t), x), expand_like(path.squared_diffusion(t), x)
        return drift * x - squared / 2 * path.score(x, d, t)

    near = transformed(lambda x: 1 + torch.sigmoid(x), "n 2")
    inputs = (near, near, transformed(inside, "n"))
    yield Claim(agreement(other=by_score), flow, inputs, name="velocity, by the score")

    def tweedie(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return path.score(path.noised(x, noise, t), x, t)

    yield Claim(
        agreement(other=lambda x, noise, t: -noise / (t * (2 + t))[:, None]),
        tweedie,
        inputs,
        name="score of known data",
    )

    def rate_of_variance(t: Tensor) -> Tensor:
        return (2 * path.drift(t) * path.sigma(t).square() + path.squared_diffusion(t)).to(t)

    grows = agreement(other=lambda t: 2 * t * (2 + t) * (2 + 2 * t))
    yield Claim(grows, rate_of_variance, transformed(inside, "n"), name="the noise that drift and diffusion make")
    yield Claim(
        agreement(other=lambda t: -2 * t.square() - 2 * (t * (2 + t)).log()),
        lambda t: path.log_snr(t).to(t),
        transformed(inside, "n"),
        name="log_snr",
    )


def edm(sigma_max: float = 80.0) -> GaussianPath:
    r"""Adds noise of spread $t$: $\alpha = 1$, $\sigma = t$, up to $\sigma_\text{max}$.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        sigma_max: The last time.

    Examples:
        >>> edm().sigma(3.0)
        tensor(3., dtype=torch.float64)
    """
    _above(0.0, sigma_max=sigma_max)

    def level(t: Tensor) -> NoiseLevel:
        one = torch.ones_like(t)
        return NoiseLevel(one, t, 0 * one, one)

    return GaussianPath(name="EDM", level=level, time_of=_double, last=sigma_max)


def variance_exploding(sigma_min: float = 0.01, sigma_max: float = 50.0) -> GaussianPath:
    r"""Adds noise that grows exponentially: the VE SDE, $g = \sigma_\text{min} r^t \sqrt{2 \log r}$ with
    $r = \sigma_\text{max} / \sigma_\text{min}$.

    $$\alpha = 1, \qquad \sigma^2 = \sigma_\text{min}^2 \, (r^{2 t} - 1)$$

    This is the solution of the SDE; that $\sigma = \sigma_\text{min} r^t$ is an approximation with noise at $t = 0$.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        sigma_min: $\sigma_\text{min}$, above 0.
        sigma_max: $\sigma_\text{max}$, above it.

    Examples:
        >>> round(float(variance_exploding().sigma(1.0)), 4)
        50.0
    """
    _above(0.0, sigma_min=sigma_min)
    _above(sigma_min, sigma_max=sigma_max)
    rate = 2 * float(torch.tensor(sigma_max / sigma_min, dtype=torch.float64).log())

    def level(t: Tensor) -> NoiseLevel:
        sigma = sigma_min * (rate * t).expm1().sqrt()
        one = torch.ones_like(t)
        return NoiseLevel(one, sigma, 0 * one, sigma_min**2 * rate / 2 * (rate * t).exp() / sigma)

    def time_of(ratio: Tensor) -> Tensor:
        return (_double(ratio) / sigma_min).square().log1p() / rate

    return GaussianPath(name="VE", level=level, time_of=time_of, last=1.0)


Decay = tuple[Callable[[Tensor], tuple[Tensor, Tensor]], Callable[[Tensor], Tensor]]
r"""From times to $B = \int_0^t \beta$ and $\beta$; and back from $B$ to times."""


def _linear_beta(beta_min: float, beta_max: float) -> Decay:
    _above(0.0, beta_min=beta_min)
    _above(beta_min, beta_max=beta_max)
    slope = beta_max - beta_min

    def total(t: Tensor) -> tuple[Tensor, Tensor]:
        return (beta_min + slope / 2 * t) * t, beta_min + slope * t

    def time_of(total: Tensor) -> Tensor:
        return 2 * total / (beta_min + (beta_min**2 + 2 * slope * total).sqrt())

    return total, time_of


def _preserving(name: str, decay: Decay, last: float) -> GaussianPath:
    """The path with alpha² = exp(-B) and sigma² = 1 - alpha²."""
    total, time_of = decay

    def level(t: Tensor) -> NoiseLevel:
        b, beta = total(t)
        alpha, sigma = (-b / 2).exp(), (-(-b).expm1()).sqrt()
        return NoiseLevel(alpha, sigma, -beta / 2 * alpha, beta / 2 * alpha.square() / sigma)

    return GaussianPath(
        name=name, level=level, time_of=lambda ratio: time_of(_double(ratio).square().log1p()), last=last
    )


def variance_preserving(beta_min: float = 0.1, beta_max: float = 20.0) -> GaussianPath:
    r"""Lets the data decay at a rate that grows linearly, and keeps the variance at 1: the VP SDE.

    $$\alpha = e^{-B / 2}, \qquad \sigma^2 = 1 - e^{-B}, \qquad
    B = \int_0^t \beta = \beta_\text{min} t + \tfrac12 (\beta_\text{max} - \beta_\text{min}) t^2$$

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        beta_min: $\beta(0)$, above 0.
        beta_max: $\beta(1)$, above it.

    Examples:
        >>> path = variance_preserving()
        >>> round(float(path.alpha(0.5) ** 2 + path.sigma(0.5) ** 2), 12)
        1.0
    """
    return _preserving("VP", _linear_beta(beta_min, beta_max), 1.0)


def sub_variance_preserving(beta_min: float = 0.1, beta_max: float = 20.0) -> GaussianPath:
    r"""Lets the data decay as the VP path does, with less noise: the sub-VP SDE.

    $$\alpha = e^{-B / 2}, \qquad \sigma = 1 - e^{-B}$$

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        beta_min: $\beta(0)$, above 0.
        beta_max: $\beta(1)$, above it.

    Examples:
        >>> bool(sub_variance_preserving().sigma(0.1) < variance_preserving().sigma(0.1))
        True
    """
    total, time_of = _linear_beta(beta_min, beta_max)

    def level(t: Tensor) -> NoiseLevel:
        b, beta = total(t)
        alpha = (-b / 2).exp()
        return NoiseLevel(alpha, -(-b).expm1(), -beta / 2 * alpha, beta * alpha.square())

    return GaussianPath(
        name="sub-VP", level=level, time_of=lambda ratio: time_of(2 * (_double(ratio) / 2).asinh()), last=1.0
    )


def ddpm_path(betas: Sequence[float] | Float[Tensor, " k"] | None = None) -> GaussianPath:
    r"""Joins the steps of DDPM's chain by the VP path that passes through them: at time $k$ it is at step $k$.

    $$x_k = \sqrt{1 - \beta_k} \, x_{k-1} + \sqrt{\beta_k} \, \varepsilon_k, \qquad
    \alpha(k)^2 = \prod_{i \le k} (1 - \beta_i)$$

    Between the steps $\log \alpha^2$ is linear.

    Reference:
        Ho, Jain and Abbeel, *Denoising Diffusion Probabilistic Models*, 2020.

    Args:
        betas: $\beta_1, \dots, \beta_N$, each between 0 and 1; a thousand from 1e-4 to 0.02 unless given.

    Examples:
        >>> path = ddpm_path([0.1, 0.2])
        >>> path.last, round(float(path.alpha(2.0)) ** 2, 12)
        (2.0, 0.72)
    """
    steps = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64) if betas is None else _double(betas)
    if not (steps.dim() == 1 and len(steps) and bool(((steps > 0) & (steps < 1)).all())):
        raise ValueError(f"betas between 0 and 1 were wanted, at least one: got {steps.tolist()}")
    rates = -(-steps).log1p()
    sums = torch.cat([torch.zeros(1, dtype=torch.float64), rates.cumsum(0)])

    def total(t: Tensor) -> tuple[Tensor, Tensor]:
        k = t.long().clamp(max=len(rates) - 1)
        return sums[k] + rates[k] * (t - k), rates[k]

    def time_of(total: Tensor) -> Tensor:
        k = (torch.searchsorted(sums, total.contiguous(), right=True) - 1).clamp(0, len(rates) - 1)
        return k + (total - sums[k]) / rates[k]

    return _preserving("DDPM", (total, time_of), float(len(rates)))


def cosine_path(offset: float = 0.008) -> GaussianPath:
    r"""Turns data into noise along a quarter of a circle; nothing of the data is left at $t = 1$.

    $$\alpha = \frac{\cos \theta}{\cos \theta_0}, \qquad \sigma^2 = 1 - \alpha^2, \qquad
    \theta = \frac{t + s}{1 + s} \, \frac{\pi}{2}$$

    Reference:
        Nichol and Dhariwal, *Improved Denoising Diffusion Probabilistic Models*, 2021.

    Args:
        offset: $s$, above 0.

    Examples:
        >>> [round(float(cosine_path().alpha(t)), 2) for t in (0.0, 0.5, 1.0)]
        [1.0, 0.7, 0.0]
    """
    _above(0.0, offset=offset)
    rate = pi / 2 / (1 + offset)
    begin = torch.tensor(rate * offset, dtype=torch.float64)
    top = begin.cos()

    def level(t: Tensor) -> NoiseLevel:
        angle = begin + rate * t
        alpha = torch.where(t == 1, 0.0, angle.cos() / top)
        sigma = ((rate * t).sin() * (angle + begin).sin()).sqrt() / top
        alpha_rate = -rate * angle.sin() / top
        return NoiseLevel(alpha, sigma, alpha_rate, -alpha * alpha_rate / sigma)

    def time_of(ratio: Tensor) -> Tensor:
        angle = torch.atan2((_double(ratio).square() + begin.sin().square()).sqrt(), top)
        part = 1 / (1 + _double(ratio).pow(-2))
        return torch.where(part == 1, 1.0, (part * top.square() / (angle + begin).sin()).asin() / rate)

    return GaussianPath(name="cosine", level=level, time_of=time_of, last=1.0)


def rectified() -> GaussianPath:
    r"""Goes straight from data to noise: $\alpha = 1 - t$, $\sigma = t$, the path of flow matching.

    Reference:
        Liu, Gong and Liu, *Flow Straight and Fast*, 2023; Lipman et al., *Flow Matching for Generative Modeling*, 2023.

    Examples:
        >>> rectified().ratio(0.5), float(rectified().time_of(torch.tensor(float("inf"))))
        (tensor(1., dtype=torch.float64), 1.0)
    """

    def level(t: Tensor) -> NoiseLevel:
        one = torch.ones_like(t)
        return NoiseLevel(1 - t, t, -one, one)

    return GaussianPath(name="rectified", level=level, time_of=lambda ratio: 1 / (1 + 1 / _double(ratio)), last=1.0)


def _double(values: Sequence[float] | Tensor | float) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def _above(low: float, **values: float) -> None:
    for name, value in values.items():
        if not low < value < inf:
            raise ValueError(f"{name} is to be above {low:g}, and finite: got {value}")


def _paths_claims() -> Iterator[Claim]:
    """The laws that the paths obey."""
    chain = [0.1, 0.3, 0.2]

    def inside(x: Tensor) -> Tensor:
        return 0.02 + 0.5 * torch.sigmoid(x)

    def decay(t: Tensor) -> Tensor:
        return t / 10 + 9.95 * t.square()

    noises = {
        edm(): lambda t: 2 * t,
        variance_exploding(0.1, 10.0): lambda t: 0.01 * 100 ** (2 * t) * 2 * t.new_tensor(100.0).log(),
        variance_preserving(): lambda t: 0.1 + 19.9 * t,
        sub_variance_preserving(): lambda t: (0.1 + 19.9 * t) * (1 - (-2 * decay(t)).exp()),
        ddpm_path(chain): lambda t: -(1 - t.new_tensor(chain)).log()[t.long()],
        cosine_path(): lambda t: (pi / 1.008) * ((t + 0.008) / 1.008 * pi / 2).tan(),
        rectified(): lambda t: 2 * t / (1 - t),
    }
    scales = {
        "VP": lambda t: (-decay(t) / 2).exp(),
        "sub-VP": lambda t: (-decay(t) / 2).exp(),
        "DDPM": lambda t: (1 - chain[0]) ** (t / 2),
        "cosine": lambda t: ((t + 0.008) / 1.008 * pi / 2).cos() / cos(0.008 / 1.008 * pi / 2),
        "rectified": lambda t: 1 - t,
    }
    times = transformed(inside, "n")
    for path, squared in noises.items():

        def found(t: Tensor, which: str, path: GaussianPath = path) -> Tensor:
            return getattr(path, which)(t).to(t)

        def rate(t: Tensor, which: str, path: GaussianPath = path) -> Tensor:
            return getattr(path.at(t), f"{which}_rate").to(t)

        def back(t: Tensor, path: GaussianPath = path) -> Tensor:
            return path.time_of(path.ratio(t)).to(t)

        scale = scales.get(path.name, torch.ones_like)
        for which, other in (("squared_diffusion", squared), ("alpha", scale)):
            yield Claim(agreement(other=other), partial(found, which=which), times, name=f"{path.name}, {which}")
        for which in ("alpha", "sigma")[scale is torch.ones_like :]:
            law = derivative(formula=partial(rate, which=which))
            yield Claim(law, partial(found, which=which), times, name=f"{path.name}, {which}")
        yield Claim(agreement(other=lambda t: t), back, times, name=f"{path.name}, time of a ratio")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _gaussian_path_claims()
    yield from _paths_claims()
