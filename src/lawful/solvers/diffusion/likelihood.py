"""Likelihoods of a diffusion model by the probability-flow ODE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf, log, pi

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.estimate import LogProbEstimate
from lawful.functions.random import uniform_noise
from lawful.laws import Claim, agreement, batch_independence, transformed
from lawful.solvers.diffusion.parameterization import Denoiser
from lawful.solvers.diffusion.paths import GaussianPath, variance_preserving
from lawful.solvers.diffusion.samplers import SamplingContext
from lawful.solvers.diffusion.time_grids import angle_at, angular_rate, norm_at
from lawful.solvers.ode import RK4, RateFunction, Tableau, odeint_fixed

_MAX_EXACT_DIM = 16  # the trace is exact up to this dimension


@dataclass(frozen=True, kw_only=True)
class ProbabilityFlowLikelihood:
    r"""Log-density of data under the probability flow of a denoiser, in nats.

    $$\log p(x) = \log \mathcal{N}\Bigl(v_T; \, 0, \, \frac{\sigma_T^2 + \alpha_T^2 s_0^2}{r_T^2}\Bigr) - d \log s
    - \int_0^{\theta_T} \operatorname{tr} \frac{\partial F}{\partial v} \, d\theta, \qquad \frac{dv}{d\theta} = -F$$

    in the angle of `angular_rate`, starting from $v = x / s$ at the data. Up to 16 dimensions the trace is exact;
    beyond, it is the mean of $e^\top \frac{\partial F}{\partial v} e$ over random signs $e$ (Hutchinson's estimator),
    with a standard error. Two more errors are possible: the discretization error, seen by doubling the steps; and the
    error of the Gaussian prior at the last time, bounded by `prior_mismatch`. The path starts at $\sigma = 0$, so that
    there is no truncation error at the data.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021; Grathwohl et
        al., *FFJORD*, 2019; Hutchinson, *A Stochastic Estimator of the Trace of the Influence Matrix*, 1990.

    Args:
        steps: Number of steps, of four evaluations each with `RK4`.
        tableau: Runge-Kutta method.
        num_probes: Number of random signs beyond 16 dimensions, at least 2.
        scale: Scale $s$, about the standard deviation of the data; it sets the density of steps.
        prior_std: $s_0$, the standard deviation of the data in the prior.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> likelihood = ProbabilityFlowLikelihood(prior_std=1.0)
        >>> estimate = likelihood(lambda x, t: x / (1 + t**2), torch.zeros(1, 2), edm())
        >>> round(float(estimate.value), 4), float(estimate.error), estimate.evaluations
        (-1.8379, 0.0, 63)
    """

    steps: int = 16
    tableau: Tableau = RK4
    num_probes: int = 16
    scale: float = 0.5
    prior_std: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.num_probes < 2 or not 0 < self.scale < inf or not 0 <= self.prior_std < inf:
            raise ValueError(f"expected steps >= 1, num_probes >= 2, scale > 0 and prior_std >= 0, got {self}")

    def __call__(
        self, denoise: Denoiser, x: Float[Tensor, "n *shape"], path: GaussianPath, *, seed: int = 0, first: int = 0
    ) -> LogProbEstimate:
        """Returns the log-density of each sample; the denoiser must be differentiable by x."""
        ends = torch.tensor([path.max_time, 0.0], dtype=torch.float64)
        context, x = SamplingContext.create(denoise, x, path, ends, seed=seed, first=first)
        d = x.shape[1:].numel()
        exact = d <= _MAX_EXACT_DIM
        directions = _axes(x) if exact else _random_signs(x, self.num_probes, seed, first)
        evaluations = 0

        def denoise_with_grad(x: Tensor, t: Tensor) -> Tensor:
            nonlocal evaluations
            evaluations += 1
            denoised = context.denoise_with_grad(x, t)
            if not denoised.requires_grad:
                raise ValueError("the denoiser is not differentiable by x, which likelihoods need")
            return denoised

        rate = _with_traces(angular_rate(denoise_with_grad, path, scale=self.scale), directions)
        angle = float(angle_at(path, ends[0], scale=self.scale))
        start = (x / self.scale, x.new_zeros(len(directions), len(x)))
        v, traces = odeint_fixed(rate, start, 0.0, angle, steps=self.steps, tableau=self.tableau).y
        level, norm = path.at(ends[0]), norm_at(path, ends[0], scale=self.scale)
        variance = float((level.sigma.square() + (level.alpha * self.prior_std).square()) / norm.square())
        squares = v.square().reshape(len(x), d).sum(1)
        gaussian = -0.5 * (squares / variance + d * log(2 * pi * variance)) - d * log(self.scale)
        if exact:
            return LogProbEstimate.exact(gaussian + traces.sum(0), evaluations=evaluations)
        return LogProbEstimate.from_samples(gaussian + traces, evaluations=evaluations)


def prior_mismatch(path: GaussianPath, second_moment: float, *, prior_std: float = 0.0) -> float:
    r"""Bounds the divergence of the final distribution from its Gaussian prior, in nats per dimension.

    $$\tfrac12 \Bigl(\frac{\sigma^2 + \alpha^2 m}{\sigma^2 + \alpha^2 s_0^2} - 1 -
    \log \frac{\sigma^2}{\sigma^2 + \alpha^2 s_0^2}\Bigr)$$

    It bounds $\mathrm{KL}(p_T \Vert \mathcal{N})$ for any data with $\mathbb{E} x^2 = m$, since the entropy of
    $\alpha x + \sigma \varepsilon$ is at least the entropy of its noise.

    Args:
        path: Noise path.
        second_moment: Second moment $m$ of the data.
        prior_std: $s_0$, the standard deviation of the data in the prior.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> round(prior_mismatch(edm(), 0.25), 7)
        1.95e-05
    """
    if not 0 <= second_moment < inf:
        raise ValueError(f"expected a finite second_moment >= 0, got {second_moment}")
    level = path.at(path.max_time)
    variance, signal = float(level.sigma.square()), float(level.alpha.square())
    prior = variance + signal * prior_std**2
    return 0.5 * ((variance + signal * second_moment) / prior - 1 - log(variance / prior))


def _axes(x: Tensor) -> Tensor:
    """Unit vectors, (d, n, *shape)."""
    d = x.shape[1:].numel()
    return torch.eye(d, dtype=x.dtype, device=x.device).reshape(d, 1, *x.shape[1:]).expand(d, *x.shape)


def _random_signs(x: Tensor, num_probes: int, seed: int, first: int) -> Tensor:
    """Random signs, (num_probes, n, *shape)."""
    noise = uniform_noise(len(x), num_probes, *x.shape[1:], seed=seed, stream=1, first=first, dtype=x.dtype)
    return (noise.round() * 2 - 1).transpose(0, 1).to(x.device)


def _with_traces(rate: Callable[[Tensor, Tensor], Tensor], directions: Tensor) -> RateFunction[tuple[Tensor, ...]]:
    """A rate, and its divergence along each direction, (directions, n)."""

    def augmented(angle: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if not angle:
            return tuple(torch.zeros_like(part) for part in state)
        with torch.enable_grad():
            leaf = state[0].detach().requires_grad_()
            value = rate(angle, leaf)
            products = [torch.autograd.grad(value, leaf, e, retain_graph=True)[0] * e for e in directions]
        return value.detach(), torch.stack([p.reshape(len(p), p.shape[1:].numel()).sum(1) for p in products])

    return augmented


def claims() -> Iterator[Claim]:
    """Samples do not mix, and a Gaussian has its own density."""
    path = variance_preserving()

    def log_prob(x: Tensor) -> Tensor:
        """Standard normal data."""
        likelihood = ProbabilityFlowLikelihood(steps=4, scale=1.0, prior_std=1.0)
        return likelihood(lambda x, t: path.alpha(t).to(x) * x, x, path).value.to(x)

    gaussian = replace(agreement(other=lambda x: -0.5 * (x.square() + log(2 * pi)).sum(-1)), rtol=1e-3, cases=3)
    yield Claim(gaussian, log_prob, transformed(torch.tanh, "n:1..2 2"), name="ProbabilityFlowLikelihood of a Gaussian")
    few = replace(batch_independence(), cases=2)
    yield Claim(few, log_prob, transformed(torch.tanh, "n:2..3 1"), name="ProbabilityFlowLikelihood")
