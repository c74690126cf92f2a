"""Denoising over noise levels: what is lost where a network predicts noise, data, a velocity or EDM's F."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, made, shape
from lawful.objectives.over_data import Reduce
from lawful.solvers.diffusion.gaussian_path import GaussianPath, beside
from lawful.solvers.diffusion.parametrisations import (
    DENOISED,
    FLOW,
    NOISE,
    SCORE,
    VELOCITY,
    Denoiser,
    Prediction,
    preconditioned,
)
from lawful.solvers.diffusion.paths import variance_preserving


def denoising_error(
    network: Denoiser,
    x: Float[Tensor, "n *shape"],
    t: Float[Tensor, " n"],
    path: GaussianPath,
    *,
    noise: Float[Tensor, "n *shape"],
    predicts: Prediction,
    counted: Prediction | None = None,
    reduce: Reduce = torch.mean,
) -> Float[Tensor, "*reduced"]:
    r"""Averages the square of what a network is off by, on data with noise, at any noise levels.

    $$\ell = \frac{w(t)}{d} \bigl\lVert y(x_t, t) - y^* \bigr\rVert^2, \qquad y^* = \frac{x - a x_t}{b}, \qquad
    w = \frac{b^2}{b'^2}$$

    A prediction $y$ says $D = a x_t + b y$ of the clean data. The errors of one kind of prediction are those of another
    times a number that depends on the noise level alone, so that a weighting of the noise levels is a kind to count
    in: `SCORE` for denoising score matching, `NOISE` for DDPM's simple loss, `preconditioned(s)` for EDM's, `FLOW` for
    flow matching's. All are least at the same network.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        network: $y$, from $x_t$ and $t$.
        x: The clean data.
        t: A time for each example: see `NoiseLevels`.
        path: The path.
        noise: $\varepsilon$, standard normal.
        predicts: What $y$ is, with its $a$ and $b$.
        counted: What is counted in, with its $b'$; the same unless given.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> x, t = torch.ones(1, 2), torch.tensor([2.0], dtype=torch.float64)
        >>> denoising_error(lambda x, t: x, x, t, edm(), noise=torch.ones(1, 2), predicts=DENOISED)
        tensor(4.)
    """
    noisy = path.noised(x, noise, t)
    a, b = predicts.coefficients(path, t)
    off = network(noisy, t) - (x - beside(a, x) * noisy) / beside(b, x)
    errors = off.square().flatten(1).mean(1)
    if counted is not None and counted is not predicts:
        errors = errors * (b / counted.coefficients(path, t)[1]).square().to(errors)
    return reduce(errors)


def flow_matching(
    velocity: Denoiser,
    x: Float[Tensor, "n *shape"],
    t: Float[Tensor, " n"],
    path: GaussianPath,
    *,
    noise: Float[Tensor, "n *shape"],
    reduce: Reduce = torch.mean,
) -> Float[Tensor, "*reduced"]:
    r"""Compares a velocity with that of a straight journey of each example to its own noise.

    $$\ell = \frac1d \bigl\lVert v(x_t, t) - (\dot\alpha x + \dot\sigma \varepsilon) \bigr\rVert^2$$

    It is least at the velocity of the probability flow, the mean of all journeys that pass by. On the rectified path
    the target is $\varepsilon - x$.

    Reference:
        Lipman, Chen, Ben-Hamu, Nickel and Le, *Flow Matching for Generative Modeling*, 2023.

    Args:
        velocity: $v$, from $x_t$ and $t$.
        x: The clean data, at time 0.
        t: A time for each example.
        path: The path.
        noise: $\varepsilon$, standard normal.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> from lawful.solvers.diffusion.paths import rectified
        >>> t = torch.tensor([0.5], dtype=torch.float64)
        >>> flow_matching(lambda x, t: 0 * x, torch.ones(1, 2), t, rectified(), noise=-torch.ones(1, 2))
        tensor(4.)
    """
    level = path.at(t)
    target = beside(level.alpha_rate, x) * x + beside(level.sigma_rate, x) * noise
    return reduce((velocity(path.noised(x, noise, t), t) - target).square().flatten(1).mean(1))


def claims() -> Iterator[Claim]:
    """The laws that denoising losses obey."""
    path = variance_preserving()
    f = preconditioned(0.7)
    inputs = (shape("n 2"), shape("n 2"), made(lambda x: 0.1 + 0.6 * torch.sigmoid(x), "n"))

    def each(values: Tensor) -> Tensor:
        return values

    def target(kind: Prediction, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
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

    for kind in (SCORE, NOISE, DENOISED, VELOCITY, FLOW, f):

        def found(x: Tensor, noise: Tensor, t: Tensor, kind: Prediction = kind) -> Tensor:
            return denoising_error(lambda y, t: y.sin(), x, t, path, noise=noise, predicts=kind, reduce=each)

        def written(x: Tensor, noise: Tensor, t: Tensor, kind: Prediction = kind) -> Tensor:
            return (path.noised(x, noise, t).sin() - target(kind, x, noise, t)).square().mean(1)

        yield Claim(agreement(other=written), found, inputs, name=f"denoising_error of {kind.name}")

    def converted(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return denoising_error(
            lambda y, t: y.sin(), x, t, path, noise=noise, predicts=DENOISED, counted=NOISE, reduce=each
        )

    def in_noise(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        y = path.noised(x, noise, t)
        a, s = path.alpha(t)[:, None].to(x), path.sigma(t)[:, None].to(x)
        return ((y - a * y.sin()) / s - noise).square().mean(1)

    yield Claim(agreement(other=in_noise), converted, inputs, name="denoised data, counted in noise")

    def matched(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return flow_matching(lambda y, t: y.sin(), x, t, path, noise=noise, reduce=each)

    def as_flow(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return (path.noised(x, noise, t).sin() - target(FLOW, x, noise, t)).square().mean(1)

    yield Claim(agreement(other=as_flow), matched, inputs, name="flow_matching")

    nodes, weights = np.polynomial.hermite_e.hermegauss(4)
    pairs = torch.cartesian_prod(torch.tensor(nodes), torch.tensor(nodes))
    masses = torch.outer(torch.tensor(weights), torch.tensor(weights)).flatten() / weights.sum() ** 2

    def least(u: Tensor) -> Tensor:
        """The loss of D = c x_t is least at the true c = a τ² / (a² τ² + σ²), for data of deviation τ = 0.7."""
        x, noise = 0.7 * pairs[:, :1].to(u), pairs[:, 1:].to(u)
        t = (0.1 + 0.6 * torch.sigmoid(u)).double().expand(len(x))
        a, s = path.alpha(t[0]).to(u), path.sigma(t[0]).to(u)
        true = a * 0.49 / (a * a * 0.49 + s * s)
        with torch.enable_grad():
            c = true.detach().clone().requires_grad_()
            loss = denoising_error(
                lambda y, t: c * y,
                x,
                t,
                path,
                noise=noise,
                predicts=DENOISED,
                reduce=lambda e: (masses.to(e) * e).sum(),
            )
            return 1 + torch.autograd.grad(loss, c)[0]

    yield Claim(agreement(other=torch.ones_like), least, shape(""), name="least at the true denoiser")
