"""Prediction types of diffusion networks: score, noise, denoised data, velocity, flow, EDM's F; and conversions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, transformed
from lawful.solvers.diffusion.paths import GaussianPath, Times, expand_like, variance_preserving

Denoiser = Callable[[Tensor, Tensor], Tensor]
r"""Function from $x_t$, (n, *shape), and $t$, scalar or (n,), to $D(x, t) = \mathbb{E}[x_0 \mid x_t = x]$."""


@dataclass(frozen=True, eq=False)
class Prediction:
    r"""Prediction type $y$ of a network, defined by its linear relation to the denoised data.

    $$D = a(t) \, x + b(t) \, y$$

    Args:
        name: Name, for error messages.
        coefficients: Function from a path and times to $a$ and $b$.
    """

    name: str
    coefficients: Callable[[GaussianPath, Times], tuple[Tensor, Tensor]]

    def __repr__(self) -> str:
        return f"Prediction({self.name})"


def _score_coefficients(path: GaussianPath, t: Times) -> tuple[Tensor, Tensor]:
    level = path.at(t)
    return 1 / level.alpha, level.sigma.square() / level.alpha


def _noise_coefficients(path: GaussianPath, t: Times) -> tuple[Tensor, Tensor]:
    level = path.at(t)
    return 1 / level.alpha, -level.sigma / level.alpha


def _denoised_coefficients(path: GaussianPath, t: Times) -> tuple[Tensor, Tensor]:
    alpha = path.alpha(t)
    return 0 * alpha, 0 * alpha + 1


def _velocity_coefficients(path: GaussianPath, t: Times) -> tuple[Tensor, Tensor]:
    level = path.at(t)
    square = level.alpha.square() + level.sigma.square()
    return level.alpha / square, -level.sigma / square


def _flow_coefficients(path: GaussianPath, t: Times) -> tuple[Tensor, Tensor]:
    a, s, a_rate, s_rate = path.at(t)
    determinant = a * s_rate - s * a_rate
    return s_rate / determinant, -s / determinant


SCORE = Prediction("score", _score_coefficients)
r"""$y = \nabla \log p_t(x)$: $D = (x + \sigma^2 y) / \alpha$."""
NOISE = Prediction("noise", _noise_coefficients)
r"""$y = \mathbb{E}[\varepsilon \mid x]$: $D = (x - \sigma y) / \alpha$."""
DENOISED = Prediction("denoised", _denoised_coefficients)
r"""$y = \mathbb{E}[x_0 \mid x]$: $D = y$."""
VELOCITY = Prediction("velocity", _velocity_coefficients)
r"""$y = \mathbb{E}[\alpha \varepsilon - \sigma x_0 \mid x]$: $D = (\alpha x - \sigma y) / (\alpha^2 + \sigma^2)$.

Reference: Salimans and Ho, *Progressive Distillation for Fast Sampling of Diffusion Models*, 2022."""
FLOW = Prediction("flow", _flow_coefficients)
r"""$y = \mathbb{E}[\dot\alpha x_0 + \dot\sigma \varepsilon \mid x]$, the velocity of the probability flow:
$D = (\dot\sigma x - \sigma y) / (\alpha \dot\sigma - \sigma \dot\alpha)$.

Reference: Lipman et al., *Flow Matching for Generative Modeling*, 2023."""


def preconditioned(sigma_data: float = 0.5) -> Prediction:
    r"""Returns EDM's prediction type $F$, with inputs and targets of unit variance.

    $$D = \frac{\alpha s^2}{\sigma^2 + \alpha^2 s^2} \, x + \frac{\sigma s}{\sqrt{\sigma^2 + \alpha^2 s^2}} \, F,
    \qquad F = F\Bigl(\frac{x}{\sqrt{\sigma^2 + \alpha^2 s^2}}, \; t\Bigr)$$

    For data of standard deviation $s$ the target of $F$ has variance 1 at every noise level.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        sigma_data: Standard deviation $s$ of the data.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> preconditioned(0.5).coefficients(edm(), 0.5)
        (tensor(0.5000, dtype=torch.float64), tensor(0.3536, dtype=torch.float64))
    """
    if not 0 < sigma_data < float("inf"):
        raise ValueError(f"expected a finite sigma_data > 0, got {sigma_data}")

    def coefficients(path: GaussianPath, t: Times) -> tuple[Tensor, Tensor]:
        level = path.at(t)
        scale = input_scale(path, t, sigma_data=sigma_data)
        return level.alpha * sigma_data**2 * scale.square(), level.sigma * sigma_data * scale

    return Prediction(f"F(sigma_data={sigma_data:g})", coefficients)


def input_scale(path: GaussianPath, t: Times, *, sigma_data: float = 0.5) -> Float[Tensor, "*n"]:
    r"""Returns the scale of the network's input for unit variance, $1 / \sqrt{\sigma^2 + \alpha^2 s^2}$.

    Args:
        path: Noise path.
        t: Time $t$.
        sigma_data: Standard deviation $s$ of the data.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> input_scale(edm(), 0.0, sigma_data=0.5)
        tensor(2., dtype=torch.float64)
    """
    level = path.at(t)
    return (level.sigma.square() + (level.alpha * sigma_data).square()).rsqrt()


def convert(
    y: Float[Tensor, "n *shape"],
    x: Float[Tensor, "n *shape"],
    t: Times,
    path: GaussianPath,
    *,
    source: Prediction,
    target: Prediction,
) -> Float[Tensor, "n *shape"]:
    r"""Converts a prediction from one type to another.

    $$y' = \frac{b}{b'} \, y + \frac{a - a'}{b'} \, x$$

    $a, b$ and $a', b'$ are the coefficients of the source and of the target. A conversion that does not exist raises an
    error: from noise or score where $\alpha = 0$, and to noise or score where $\sigma = 0$.

    Args:
        y: Prediction.
        x: Noisy data $x_t$.
        t: Time, or one per sample.
        path: Noise path.
        source: Type of $y$.
        target: Type of $y'$.

    Examples:
        >>> import torch
        >>> from lawful.solvers.diffusion.paths import rectified
        >>> convert(torch.ones(1, 2), torch.ones(1, 2), 0.5, rectified(), source=NOISE, target=DENOISED)
        tensor([[1., 1.]])
    """
    if source is target:
        return y
    (a, b), (a_to, b_to) = source.coefficients(path, t), target.coefficients(path, t)
    skip, scale = (a - a_to) / b_to, b / b_to
    if not bool((skip.isfinite() & scale.isfinite()).all()):
        level = path.at(t)
        raise ValueError(
            f"cannot convert {source.name} to {target.name} at t={_format(t)} of the {path.name} path, where"
            f" alpha={_format(level.alpha)} and sigma={_format(level.sigma)}: predict denoised, velocity or F, or use"
            " other times"
        )
    return expand_like(scale, x) * y + expand_like(skip, x) * x


def _format(values: Times) -> str:
    return f"{float(values):g}" if not isinstance(values, Tensor) or not values.dim() else str(values.tolist())


def denoiser(network: Denoiser, path: GaussianPath, *, prediction: Prediction) -> Denoiser:
    r"""Returns the denoiser $D(x, t)$ of a network with any prediction type.

    Args:
        network: Network, called with $x_t$ and $t$.
        path: Noise path.
        prediction: Prediction type of the network.

    Examples:
        >>> import torch
        >>> from lawful.solvers.diffusion.paths import edm
        >>> denoise = denoiser(lambda x, t: -x / (1 + t**2), edm(), prediction=SCORE)
        >>> denoise(torch.ones(1, 2), torch.tensor(1.0))
        tensor([[0.5000, 0.5000]])
    """

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        return convert(network(x, t), x, t, path, source=prediction, target=DENOISED)

    return denoise


def claims() -> Iterator[Claim]:
    """Converting a prediction to another type and back does not change it."""
    path = variance_preserving()
    kinds = (SCORE, NOISE, DENOISED, VELOCITY, FLOW, preconditioned(0.7))
    inputs = transformed(lambda x: 1 + torch.sigmoid(x), "n 2")
    times = transformed(lambda x: 0.2 + 0.3 * torch.sigmoid(x), "n")
    for a, b in zip(kinds, (*kinds[1:], kinds[0]), strict=True):

        def round_trip(y: Tensor, x: Tensor, t: Tensor, a: Prediction = a, b: Prediction = b) -> Tensor:
            return convert(convert(y, x, t, path, source=a, target=b), x, t, path, source=b, target=a)

        same = agreement(other=lambda y, x, t: y)
        yield Claim(same, round_trip, (inputs, inputs, times), name=f"{a.name} to {b.name} and back")
