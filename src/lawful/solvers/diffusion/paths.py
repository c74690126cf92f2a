"""Gaussian noise paths from data to noise: VE, VP, sub-VP, DDPM, cosine, EDM, rectified."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, pi
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, derivative, transformed

Times = Float[Tensor, "*n"] | float


class NoiseLevel(NamedTuple):
    """Signal scale and noise scale of a path, and their time derivatives."""

    alpha: Float[Tensor, "*n"]
    r"""$\alpha(t)$, the signal scale."""
    sigma: Float[Tensor, "*n"]
    r"""$\sigma(t)$, the noise scale."""
    alpha_rate: Float[Tensor, "*n"]
    r"""$\dot\alpha(t)$"""
    sigma_rate: Float[Tensor, "*n"]
    r"""$\dot\sigma(t)$"""


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianPath:
    r"""Gaussian path from data at time 0 to noise at `max_time`.

    $$x_t = \alpha(t) \, x_0 + \sigma(t) \, \varepsilon, \qquad \alpha(0) = 1, \quad \sigma(0) = 0$$

    It has the marginals of the SDE $dx = f(t) x \, dt + g(t) \, dw$ with

    $$f = \frac{\dot\alpha}{\alpha}, \qquad g^2 = 2 \sigma \Bigl(\dot\sigma - \sigma \frac{\dot\alpha}{\alpha}\Bigr)$$

    and of the probability-flow ODE $\dot x = \dot\alpha \, D + \dot\sigma \, (x - \alpha D) / \sigma$, where
    $D(x, t) = \mathbb{E}[x_0 \mid x_t = x]$. In terms of the noise ratio $\rho = \sigma / \alpha$ and $z = x / \alpha$
    all paths agree: $dz / d\rho = (z - D) / \rho$. Coefficients are in float64.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021; Karras, Aittala,
        Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        name: Name, for error messages.
        level: Function from times to $\alpha$, $\sigma$ and their derivatives.
        time_of: Inverse of $\rho(t)$, including $\rho = \infty$ where $\alpha$ reaches 0.
        max_time: Time of pure noise.
        factory: Function and arguments that rebuild the path, for pickling.

    Examples:
        >>> path = variance_preserving()
        >>> round(float(path.alpha(1.0)), 4), round(float(path.time_of(path.ratio(0.3))), 4)
        (0.0066, 0.3)
    """

    name: str
    level: Callable[[Tensor], NoiseLevel]
    time_of: Callable[[Tensor], Tensor]
    max_time: float
    factory: tuple[Callable[..., GaussianPath], tuple[Any, ...]] | None = None

    def __reduce__(self) -> str | tuple[Any, ...]:
        return super().__reduce__() if self.factory is None else self.factory

    def at(self, t: Times) -> NoiseLevel:
        """Returns alpha, sigma and their derivatives at times from 0 to `max_time`."""
        t = torch.as_tensor(t, dtype=torch.float64)
        if not bool(((t >= 0) & (t <= self.max_time)).all()):
            raise ValueError(f"expected times of the {self.name} path from 0 to {self.max_time:g}, got {t.tolist()}")
        return self.level(t)

    def alpha(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns $\alpha(t)$."""
        return self.at(t).alpha

    def sigma(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns $\sigma(t)$."""
        return self.at(t).sigma

    def ratio(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns the noise ratio $\rho = \sigma / \alpha$, EDM's $\sigma$."""
        level = self.at(t)
        return level.sigma / level.alpha

    def log_snr(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns the log signal-to-noise ratio $\lambda = \log(\alpha^2 / \sigma^2)$."""
        return -2 * self.ratio(t).log()

    def time_of_log_snr(self, log_snr: Times) -> Float[Tensor, "*n"]:
        r"""Returns the time of a log signal-to-noise ratio, where $\rho = e^{-\lambda / 2}$."""
        return self.time_of((torch.as_tensor(log_snr, dtype=torch.float64) / -2).exp())

    def drift(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns $f(t) = \dot\alpha / \alpha$; $-\infty$ where $\alpha = 0$."""
        level = self.at(t)
        return level.alpha_rate / level.alpha

    def squared_diffusion(self, t: Times) -> Float[Tensor, "*n"]:
        r"""Returns $g(t)^2 = 2 \sigma (\dot\sigma - \sigma \dot\alpha / \alpha)$."""
        a, s, a_rate, s_rate = self.at(t)
        return 2 * s * (s_rate - s * a_rate / a)

    def add_noise(
        self, x: Float[Tensor, "n *shape"], noise: Float[Tensor, "n *shape"], t: Times
    ) -> Float[Tensor, "n *shape"]:
        r"""Returns $\alpha(t) x_0 + \sigma(t) \varepsilon$, with one time, or one per sample."""
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
        r"""Returns $\dot x$ of the probability-flow ODE, which is regular where $\alpha = 0$."""
        a, s, a_rate, s_rate = (expand_like(value, x) for value in self.at(t))
        return a_rate * denoised + s_rate / s * (x - a * denoised)

    def __repr__(self) -> str:
        return f"GaussianPath({self.name})"


def expand_like(values: Float[Tensor, "*n"], x: Float[Tensor, "n *shape"]) -> Tensor:
    """Returns one value, or one per sample, in the dtype of `x` and broadcastable to it."""
    values = values.to(x)
    return values.reshape(-1, *(1,) * (x.dim() - 1)) if values.dim() else values


def edm(sigma_max: float = 80.0) -> GaussianPath:
    r"""Returns EDM's path: $\alpha = 1$, $\sigma = t$, up to $\sigma_\text{max}$.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        sigma_max: Largest noise scale and final time.

    Examples:
        >>> edm().sigma(3.0)
        tensor(3., dtype=torch.float64)
    """
    _above(0.0, sigma_max=sigma_max)

    def level(t: Tensor) -> NoiseLevel:
        one = torch.ones_like(t)
        return NoiseLevel(one, t, 0 * one, one)

    return GaussianPath(name="EDM", level=level, time_of=_double, max_time=sigma_max, factory=(edm, (sigma_max,)))


def variance_exploding(sigma_min: float = 0.01, sigma_max: float = 50.0) -> GaussianPath:
    r"""Returns the path of the variance-exploding SDE, with exponentially growing noise.

    $$\alpha = 1, \qquad \sigma^2 = \sigma_\text{min}^2 \, (r^{2 t} - 1), \qquad
    g = \sigma_\text{min} r^t \sqrt{2 \log r}, \qquad r = \sigma_\text{max} / \sigma_\text{min}$$

    This solves the SDE exactly; the usual $\sigma = \sigma_\text{min} r^t$ is an approximation with noise at $t = 0$.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        sigma_min: $\sigma_\text{min} > 0$.
        sigma_max: $\sigma_\text{max} > \sigma_\text{min}$.

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

    return GaussianPath(
        name="VE", level=level, time_of=time_of, max_time=1.0, factory=(variance_exploding, (sigma_min, sigma_max))
    )


_Decay = tuple[Callable[[Tensor], tuple[Tensor, Tensor]], Callable[[Tensor], Tensor]]
# functions from times to B = ∫ beta and beta, and from B back to times


def _linear_beta(beta_min: float, beta_max: float) -> _Decay:
    _above(0.0, beta_min=beta_min)
    _above(beta_min, beta_max=beta_max)
    slope = beta_max - beta_min

    def total(t: Tensor) -> tuple[Tensor, Tensor]:
        return (beta_min + slope / 2 * t) * t, beta_min + slope * t

    def time_of(total: Tensor) -> Tensor:
        return 2 * total / (beta_min + (beta_min**2 + 2 * slope * total).sqrt())

    return total, time_of


def _preserving(
    name: str, decay: _Decay, max_time: float, factory: tuple[Callable[..., GaussianPath], tuple[Any, ...]]
) -> GaussianPath:
    """The path with alpha² = exp(-B) and sigma² = 1 - alpha²."""
    total, time_of = decay

    def level(t: Tensor) -> NoiseLevel:
        b, beta = total(t)
        alpha, sigma = (-b / 2).exp(), (-(-b).expm1()).sqrt()
        return NoiseLevel(alpha, sigma, -beta / 2 * alpha, beta / 2 * alpha.square() / sigma)

    return GaussianPath(
        name=name,
        level=level,
        time_of=lambda ratio: time_of(_double(ratio).square().log1p()),
        max_time=max_time,
        factory=factory,
    )


def variance_preserving(beta_min: float = 0.1, beta_max: float = 20.0) -> GaussianPath:
    r"""Returns the path of the variance-preserving SDE with a linear $\beta(t)$.

    $$\alpha = e^{-B / 2}, \qquad \sigma^2 = 1 - e^{-B}, \qquad
    B = \int_0^t \beta = \beta_\text{min} t + \tfrac12 (\beta_\text{max} - \beta_\text{min}) t^2$$

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        beta_min: $\beta(0) > 0$.
        beta_max: $\beta(1) > \beta(0)$.

    Examples:
        >>> path = variance_preserving()
        >>> round(float(path.alpha(0.5) ** 2 + path.sigma(0.5) ** 2), 12)
        1.0
    """
    return _preserving("VP", _linear_beta(beta_min, beta_max), 1.0, (variance_preserving, (beta_min, beta_max)))


def sub_variance_preserving(beta_min: float = 0.1, beta_max: float = 20.0) -> GaussianPath:
    r"""Returns the path of the sub-VP SDE: the decay of the VP path with less noise.

    $$\alpha = e^{-B / 2}, \qquad \sigma = 1 - e^{-B}$$

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        beta_min: $\beta(0) > 0$.
        beta_max: $\beta(1) > \beta(0)$.

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
        name="sub-VP",
        level=level,
        time_of=lambda ratio: time_of(2 * (_double(ratio) / 2).asinh()),
        max_time=1.0,
        factory=(sub_variance_preserving, (beta_min, beta_max)),
    )


def ddpm_path(betas: Sequence[float] | Float[Tensor, " k"] | None = None) -> GaussianPath:
    r"""Returns the VP path through the steps of DDPM's Markov chain: time $k$ is step $k$.

    $$x_k = \sqrt{1 - \beta_k} \, x_{k-1} + \sqrt{\beta_k} \, \varepsilon_k, \qquad
    \alpha(k)^2 = \prod_{i \le k} (1 - \beta_i)$$

    $\log \alpha^2$ is linear between steps.

    Reference:
        Ho, Jain and Abbeel, *Denoising Diffusion Probabilistic Models*, 2020.

    Args:
        betas: $\beta_1, \dots, \beta_N$ in (0, 1). Defaults to 1000 values from 1e-4 to 0.02.

    Examples:
        >>> path = ddpm_path([0.1, 0.2])
        >>> path.max_time, round(float(path.alpha(2.0)) ** 2, 12)
        (2.0, 0.72)
    """
    steps = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64) if betas is None else _double(betas)
    if not (steps.dim() == 1 and len(steps) and bool(((steps > 0) & (steps < 1)).all())):
        raise ValueError(f"expected at least one beta, all in (0, 1), got {steps.tolist()}")
    rates = -(-steps).log1p()
    sums = torch.cat([torch.zeros(1, dtype=torch.float64), rates.cumsum(0)])

    def total(t: Tensor) -> tuple[Tensor, Tensor]:
        k = t.long().clamp(max=len(rates) - 1)
        return sums[k] + rates[k] * (t - k), rates[k]

    def time_of(total: Tensor) -> Tensor:
        k = (torch.searchsorted(sums, total.contiguous(), right=True) - 1).clamp(0, len(rates) - 1)
        return k + (total - sums[k]) / rates[k]

    return _preserving("DDPM", (total, time_of), float(len(rates)), (ddpm_path, (betas,)))


def cosine_path(offset: float = 0.008) -> GaussianPath:
    r"""Returns the cosine path, which ends in pure noise at $t = 1$.

    $$\alpha = \frac{\cos \theta}{\cos \theta_0}, \qquad \sigma^2 = 1 - \alpha^2, \qquad
    \theta = \frac{t + s}{1 + s} \, \frac{\pi}{2}$$

    Reference:
        Nichol and Dhariwal, *Improved Denoising Diffusion Probabilistic Models*, 2021.

    Args:
        offset: Offset $s > 0$.

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

    return GaussianPath(name="cosine", level=level, time_of=time_of, max_time=1.0, factory=(cosine_path, (offset,)))


def rectified() -> GaussianPath:
    r"""Returns the linear path of rectified flows and flow matching: $\alpha = 1 - t$, $\sigma = t$.

    Reference:
        Liu, Gong and Liu, *Flow Straight and Fast*, 2023; Lipman et al., *Flow Matching for Generative Modeling*, 2023.

    Examples:
        >>> rectified().ratio(0.5), float(rectified().time_of(torch.tensor(float("inf"))))
        (tensor(1., dtype=torch.float64), 1.0)
    """

    def level(t: Tensor) -> NoiseLevel:
        one = torch.ones_like(t)
        return NoiseLevel(1 - t, t, -one, one)

    return GaussianPath(
        name="rectified",
        level=level,
        time_of=lambda ratio: 1 / (1 + 1 / _double(ratio)),
        max_time=1.0,
        factory=(rectified, ()),
    )


def _double(values: Sequence[float] | Tensor | float) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def _above(low: float, **values: float) -> None:
    for name, value in values.items():
        if not low < value < inf:
            raise ValueError(f"expected a finite {name} > {low:g}, got {value}")


def claims() -> Iterator[Claim]:
    """Rates are derivatives, and `time_of` inverts the noise ratio."""
    times = transformed(lambda x: 0.02 + 0.5 * torch.sigmoid(x), "n")
    for path in (edm(), variance_exploding(), variance_preserving(), sub_variance_preserving(), cosine_path()):

        def sigma(t: Tensor, path: GaussianPath = path) -> Tensor:
            return path.sigma(t).to(t)

        def sigma_rate(t: Tensor, path: GaussianPath = path) -> Tensor:
            return path.at(t).sigma_rate.to(t)

        def round_trip(t: Tensor, path: GaussianPath = path) -> Tensor:
            return path.time_of(path.ratio(t)).to(t)

        yield Claim(derivative(formula=sigma_rate), sigma, times, name=f"{path.name}: sigma")
        yield Claim(agreement(other=lambda t: t), round_trip, times, name=f"{path.name}: time_of inverts ratio")
