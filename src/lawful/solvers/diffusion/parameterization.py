"""What a network may predict: the score, the noise, the data, a velocity, or EDM's F; each gives all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, transformed
from lawful.solvers.diffusion.paths import GaussianPath, Times, expand_like, variance_preserving

Denoiser = Callable[[Tensor, Tensor], Tensor]
r"""From $x_t$, (n, *shape), and $t$, one number or (n,), to $D(x, t) = \mathbb{E}[x_0 \mid x_t = x]$."""


@dataclass(frozen=True, eq=False)
class Prediction:
    r"""Tells a kind of prediction $y$ by how the denoised data follow from it.

    $$D = a(t) \, x + b(t) \, y$$

    Args:
        name: What errors call it.
        coefficients: From a path and times to $a$ and $b$.
    """

    name: str
    coefficients: Callable[[GaussianPath, Times], tuple[Tensor, Tensor]]

    def __repr__(self) -> str:
        return f"Prediction({self.name})"


def _of_score(path: GaussianPath, t: Times) -> tuple[Tensor, Tensor]:
    level = path.at(t)
    return 1 / level.alpha, level.sigma.square() / level.alpha


def _of_noise(path: GaussianPath, t: Times) -> tuple[Tensor, Tensor]:
    level = path.at(t)
    return 1 / level.alpha, -level.sigma / level.alpha


def _of_denoised(path: GaussianPath, t: Times) -> tuple[Tensor, Tensor]:
    alpha = path.alpha(t)
    return 0 * alpha, 0 * alpha + 1


def _of_velocity(path: GaussianPath, t: Times) -> tuple[Tensor, Tensor]:
    level = path.at(t)
    square = level.alpha.square() + level.sigma.square()
    return level.alpha / square, -level.sigma / square


def _of_flow(path: GaussianPath, t: Times) -> tuple[Tensor, Tensor]:
    a, s, a_rate, s_rate = path.at(t)
    turn = a * s_rate - s * a_rate
    return s_rate / turn, -s / turn


SCORE = Prediction("score", _of_score)
r"""$y = \nabla \log p_t(x)$: $D = (x + \sigma^2 y) / \alpha$."""
NOISE = Prediction("noise", _of_noise)
r"""$y = \mathbb{E}[\varepsilon \mid x]$: $D = (x - \sigma y) / \alpha$."""
DENOISED = Prediction("denoised", _of_denoised)
r"""$y = \mathbb{E}[x_0 \mid x]$: $D = y$."""
VELOCITY = Prediction("velocity", _of_velocity)
r"""$y = \mathbb{E}[\alpha \varepsilon - \sigma x_0 \mid x]$: $D = (\alpha x - \sigma y) / (\alpha^2 + \sigma^2)$.

Reference: Salimans and Ho, *Progressive Distillation for Fast Sampling of Diffusion Models*, 2022."""
FLOW = Prediction("flow", _of_flow)
r"""$y = \mathbb{E}[\dot\alpha x_0 + \dot\sigma \varepsilon \mid x]$, what $\dot x$ is without chance:
$D = (\dot\sigma x - \sigma y) / (\alpha \dot\sigma - \sigma \dot\alpha)$.

Reference: Lipman et al., *Flow Matching for Generative Modeling*, 2023."""


def preconditioned(sigma_data: float = 0.5) -> Prediction:
    r"""Returns EDM's parametrisation, whose skip is weighted so that the network sees and predicts unit variance.

    $$D = \frac{\alpha s^2}{\sigma^2 + \alpha^2 s^2} \, x + \frac{\sigma s}{\sqrt{\sigma^2 + \alpha^2 s^2}} \, F,
    \qquad F = F\Bigl(\frac{x}{\sqrt{\sigma^2 + \alpha^2 s^2}}, \; t\Bigr)$$

    For data of standard deviation $s$ the target of $F$ has variance 1 at every noise level. Scale the data, or say
    their standard deviation: a wrong $s$ costs quality, not correctness.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        sigma_data: $s$, the standard deviation of the data.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> preconditioned(0.5).coefficients(edm(), 0.5)
        (tensor(0.5000, dtype=torch.float64), tensor(0.3536, dtype=torch.float64))
    """
    if not 0 < sigma_data < float("inf"):
        raise ValueError(f"sigma_data is to be above 0, and finite: got {sigma_data}")

    def coefficients(path: GaussianPath, t: Times) -> tuple[Tensor, Tensor]:
        level = path.at(t)
        inward = input_scale(path, t, sigma_data=sigma_data)
        return level.alpha * sigma_data**2 * inward.square(), level.sigma * sigma_data * inward

    return Prediction(f"F(sigma_data={sigma_data:g})", coefficients)


def input_scale(path: GaussianPath, t: Times, *, sigma_data: float = 0.5) -> Float[Tensor, "*n"]:
    r"""Returns what makes the input of a network one of unit variance, $1 / \sqrt{\sigma^2 + \alpha^2 s^2}$.

    Args:
        path: The path.
        t: $t$.
        sigma_data: $s$, the standard deviation of the data.

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
    given: Prediction,
    to: Prediction,
) -> Float[Tensor, "n *shape"]:
    r"""Turns one kind of prediction into another.

    $$y' = \frac{b}{b'} \, y + \frac{a - a'}{b'} \, x$$

    What cannot be had is refused: the data from the noise or the score where $\alpha = 0$, and the noise or the score
    where $\sigma = 0$.

    Args:
        y: The prediction.
        x: What it was made of, $x_t$.
        t: $t$, one number or one for each sample.
        path: The path.
        given: What $y$ is.
        to: What $y'$ is.

    Examples:
        >>> import torch
        >>> from lawful.solvers.diffusion.paths import rectified
        >>> convert(torch.ones(1, 2), torch.ones(1, 2), 0.5, rectified(), given=NOISE, to=DENOISED)
        tensor([[1., 1.]])
    """
    if given is to:
        return y
    (a, b), (a_to, b_to) = given.coefficients(path, t), to.coefficients(path, t)
    skip, scale = (a - a_to) / b_to, b / b_to
    if not bool((skip.isfinite() & scale.isfinite()).all()):
        level = path.at(t)
        raise ValueError(
            f"{given.name} does not tell {to.name} at t={_shown(t)} of the {path.name} path, where"
            f" alpha={_shown(level.alpha)} and sigma={_shown(level.sigma)}: predict what is finite"
            " there, such as denoised, velocity or F, or stay inside the path"
        )
    return expand_like(scale, x) * y + expand_like(skip, x) * x


def _shown(values: Times) -> str:
    return f"{float(values):g}" if not isinstance(values, Tensor) or not values.dim() else str(values.tolist())


def denoiser(network: Denoiser, path: GaussianPath, *, predicts: Prediction) -> Denoiser:
    r"""Makes a network that predicts anything into one that predicts the data, $D(x, t)$.

    Args:
        network: From $x_t$ and $t$ to $y$.
        path: The path.
        predicts: What $y$ is.

    Examples:
        >>> import torch
        >>> from lawful.solvers.diffusion.paths import edm
        >>> denoise = denoiser(lambda x, t: -x / (1 + t**2), edm(), predicts=SCORE)
        >>> denoise(torch.ones(1, 2), torch.tensor(1.0))
        tensor([[0.5000, 0.5000]])
    """

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        return convert(network(x, t), x, t, path, given=predicts, to=DENOISED)

    return denoise


def claims() -> Iterator[Claim]:
    """The laws that predictions obey."""
    path = variance_preserving()
    f = preconditioned(0.7)

    def truth(kind: Prediction, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """What a network of this kind should say where it knows the data and the noise."""
        a, s, a_rate, s_rate = (value[:, None].to(x) for value in path.at(t))
        length = (s.square() + (0.7 * a).square()).sqrt()
        return {
            SCORE: -noise / s,
            NOISE: noise,
            DENOISED: x,
            VELOCITY: a * noise - s * x,
            FLOW: a_rate * x + s_rate * noise,
            f: (x * length - a * 0.49 * (a * x + s * noise) / length) / (s * 0.7),
        }[kind]

    near = transformed(lambda x: 1 + torch.sigmoid(x), "n 2")
    inputs = (near, near, transformed(lambda x: 0.2 + 0.3 * torch.sigmoid(x), "n"))
    kinds = (SCORE, NOISE, DENOISED, VELOCITY, FLOW, f)
    for given, to in zip(kinds, (*kinds[1:], kinds[0]), strict=True):

        def converted(x: Tensor, noise: Tensor, t: Tensor, given: Prediction = given, to: Prediction = to) -> Tensor:
            y = truth(given, x, noise, t)
            return convert(y, path.noised(x, noise, t), t, path, given=given, to=to)

        other = agreement(other=lambda x, noise, t, to=to: truth(to, x, noise, t))
        yield Claim(other, converted, inputs, name=f"{given.name} to {to.name}")

    def unit(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return input_scale(path, t, sigma_data=0.7).to(x)

    def written(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return 1 / (path.sigma(t).square() + 0.49 * path.alpha(t).square()).sqrt().to(x)

    yield Claim(agreement(other=written), unit, inputs, name="input_scale")
