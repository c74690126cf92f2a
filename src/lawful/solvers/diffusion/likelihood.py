"""Likelihoods of a diffusion model by the probability-flow ODE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import asinh, hypot, inf, log, pi, sinh

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.estimate import LogProbEstimate
from lawful.functions.random import uniform_noise
from lawful.laws import Claim, agreement, batch_independence, transformed
from lawful.solvers.diffusion.parameterization import Denoiser
from lawful.solvers.diffusion.paths import GaussianPath, variance_preserving
from lawful.solvers.diffusion.samplers import SamplingContext
from lawful.solvers.diffusion.time_grids import angle_at, angular_rate
from lawful.solvers.ode import RateFunction

_MAX_EXACT_DIM = 16  # the trace is exact up to this dimension


@dataclass(frozen=True, kw_only=True)
class ProbabilityFlowLikelihood:
    r"""Log-density of data under the probability flow of a denoiser, in nats.

    $$\log p(x) = \log \mathcal{N}(v; \, 0, 1) - d \log s
    - \int_0^{\pi / 2} \operatorname{tr} \frac{\partial F}{\partial v} \, d\theta, \qquad
    \frac{dv}{d\theta} = -F$$

    in the angle of `angular_rate`, where Gaussian data of standard deviation $s$ do not move, from $v = x / s$ at the
    data to pure noise. Steps are uniform in $\operatorname{arsinh}(\theta / 0.1)$: an Adams-Bashforth-Moulton method
    of order 4, which starts at full order since $F$ is odd in $\theta$. Where the path ends before pure noise, $F$ is
    extrapolated.

    Up to 16 dimensions the trace is exact; beyond, it is the mean of $e^\top \frac{\partial F}{\partial v} e$ over
    random signs $e$ (Hutchinson's estimator). The error has three parts: twice the difference from the solution with
    half as many steps, the difference of two extrapolations to pure noise, and the standard error of the random signs.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021; Grathwohl et
        al., *FFJORD*, 2019; Hutchinson, *A Stochastic Estimator of the Trace of the Influence Matrix*, 1990; Hairer,
        Nørsett and Wanner, *Solving Ordinary Differential Equations I*, 1993, III.1.

    Args:
        steps: Number of steps, at least 2. With the solution for the error there are 1.5 evaluations per step.
        num_probes: Number of random signs beyond 16 dimensions, at least 2.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> likelihood = ProbabilityFlowLikelihood()
        >>> estimate = likelihood(lambda x, t: x / (1 + t**2), torch.zeros(1, 2), edm())
        >>> round(float(estimate.value), 4), round(float(estimate.error), 4), estimate.evaluations
        (-1.8379, 0.0, 63)
    """

    steps: int = 41
    num_probes: int = 16

    def __post_init__(self) -> None:
        if self.steps < 2 or self.num_probes < 2:
            raise ValueError(f"expected steps >= 2 and num_probes >= 2, got {self}")

    def __call__(
        self,
        denoise: Denoiser,
        x: Float[Tensor, "n *shape"],
        path: GaussianPath,
        *,
        sigma_data: float = 1.0,
        seed: int = 0,
        first: int = 0,
    ) -> LogProbEstimate:
        """Returns the log-density of each sample.

        Args:
            denoise: Denoiser, differentiable by x.
            x: Samples.
            path: Noise path.
            sigma_data: Standard deviation $s$ of the data, root mean square over coordinates.
            seed: Random seed of the random signs.
            first: Index of the first sample.
        """
        ends = torch.tensor([path.max_time, 0.0], dtype=torch.float64)
        context, x = SamplingContext.create(denoise, x, path, ends, sigma_data=sigma_data, seed=seed, first=first)
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

        rate = _with_traces(angular_rate(denoise_with_grad, path, scale=sigma_data), directions)
        last = float(angle_at(path, ends[0], scale=sigma_data))

        def solve(steps: int) -> tuple[Tensor, Tensor]:
            """Log-densities by the traces of each direction, and the error of the extrapolation to pure noise."""
            start = (x / sigma_data, x.new_zeros(len(directions), len(x)))
            (other_v, other_traces), (v, traces) = _integrate(rate, start, last, steps)
            norms = [part.reshape(len(x), d).norm(dim=1) for part in (v, v - other_v)]
            extrapolation = norms[0] * norms[1] + (traces - other_traces).mean(0).abs() * (d if exact else 1)
            gaussian = -0.5 * (norms[0].square() + d * log(2 * pi)) - d * log(sigma_data)
            return gaussian + (traces.sum(0, keepdim=True) if exact else traces), extrapolation

        (values, extrapolation), (coarse, _) = solve(self.steps), solve(self.steps // 2)
        error = _SAFETY * (values.mean(0) - coarse.mean(0)).abs() + extrapolation
        if not exact:
            error = torch.hypot(error, LogProbEstimate.from_samples(values, evaluations=evaluations).error)
        return LogProbEstimate(values.mean(0), error, evaluations)


_State = tuple[Tensor, ...]
_SAFETY = 2.0  # networks are less smooth than exact denoisers, above all near the data
_WIDTH = 0.1  # angle below which steps are uniform; above it they grow
_PREDICTOR, _CORRECTOR = 3, 4  # numbers of rates in a step


def _integrate(rate: RateFunction[_State], state: _State, last: float, steps: int) -> tuple[_State, _State]:
    """Integrates from angle 0 to the last, and extrapolates to pi / 2 with two rates and with three."""
    step = asinh(last / _WIDTH) / steps
    angles = [_WIDTH * sinh(i * step) for i in range(steps)] + [last]
    rates = {0: tuple(torch.zeros_like(part) for part in state)}  # by the variable of uniform steps
    for i in range(steps):
        proposal = _adams_step(state, rates, i, _PREDICTOR, step)
        for _ in range(2 if i == 0 else 1):  # the first proposal is the start
            slope = rate(torch.tensor(angles[i + 1], dtype=torch.float64), proposal)
            rates[i + 1] = tuple(hypot(angles[i + 1], _WIDTH) * part for part in slope)
            proposal = _adams_step(state, rates, i, _CORRECTOR, step)
        state = proposal
        rates.pop(i - _CORRECTOR, None)
    rest = asinh(pi / 2 / _WIDTH) / step - steps
    two, three = (_adams_step(state, rates, steps, count, step, rest) for count in (_PREDICTOR - 1, _PREDICTOR))
    return two, three


def _adams_step(
    state: _State, rates: dict[int, _State], i: int, count: int, step: float, length: float = 1.0
) -> _State:
    """The step from node i with the latest rates, at most `count`; rates are odd in the node."""
    newest = max(rates)
    nodes = [j for j in range(newest, newest - count, -1) if abs(j) <= newest]
    weights = _adams_weights(tuple(j - i for j in nodes), length)
    for j, weight in zip(nodes, weights, strict=True):
        signed = step * weight if j >= 0 else -step * weight
        state = tuple(part + signed * r for part, r in zip(state, rates[abs(j)], strict=True))
    return state


@cache
def _adams_weights(nodes: tuple[int, ...], length: float) -> tuple[float, ...]:
    """Weights of the integral from 0 to `length` of the polynomial through values at the nodes."""
    powers = np.arange(len(nodes))
    moments = length ** (powers + 1) / (powers + 1)
    return tuple(np.linalg.solve(np.array(nodes, float) ** powers[:, None], moments).tolist())


def prior_mismatch(path: GaussianPath, second_moment: float, *, sigma_data: float = 0.0) -> float:
    r"""Bounds the divergence of the final distribution from its Gaussian prior, in nats per dimension.

    $$\tfrac12 \Bigl(\frac{\sigma^2 + \alpha^2 m}{\sigma^2 + \alpha^2 s_0^2} - 1 -
    \log \frac{\sigma^2}{\sigma^2 + \alpha^2 s_0^2}\Bigr)$$

    It bounds $\mathrm{KL}(p_T \Vert \mathcal{N})$ for any data with $\mathbb{E} x^2 = m$, since the entropy of
    $\alpha x + \sigma \varepsilon$ is at least the entropy of its noise.

    Args:
        path: Noise path.
        second_moment: Second moment $m$ of the data.
        sigma_data: $s_0$, the standard deviation of the data in the prior.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> round(prior_mismatch(edm(), 0.25), 7)
        1.95e-05
    """
    if not 0 <= second_moment < inf:
        raise ValueError(f"expected a finite second_moment >= 0, got {second_moment}")
    level = path.at(path.max_time)
    variance, signal = float(level.sigma.square()), float(level.alpha.square())
    prior = variance + signal * sigma_data**2
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
        likelihood = ProbabilityFlowLikelihood(steps=4)
        return likelihood(lambda x, t: path.alpha(t).to(x) * x, x, path).value.to(x)

    gaussian = replace(agreement(other=lambda x: -0.5 * (x.square() + log(2 * pi)).sum(-1)), rtol=1e-3, cases=3)
    yield Claim(gaussian, log_prob, transformed(torch.tanh, "n:1..2 2"), name="ProbabilityFlowLikelihood of a Gaussian")
    few = replace(batch_independence(), cases=2)
    yield Claim(few, log_prob, transformed(torch.tanh, "n:2..3 1"), name="ProbabilityFlowLikelihood")
