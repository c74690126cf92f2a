"""The likelihood of data under a denoiser: by the probability-flow equation, with its divergence."""

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
from lawful.solvers.diffusion.time_grids import angle_of, length_of, turning
from lawful.solvers.ode import RK4, Field, Tableau, integrate

EXACT_UP_TO = 16
"""The number of dimensions up to which the trace is exact."""


@dataclass(frozen=True, kw_only=True)
class Likelihood:
    r"""Finds the log-density of any data, in nats, under the law that the probability flow makes of noise.

    $$\log p(x) = \log \mathcal{N}\Bigl(v_T; \, 0, \, \frac{\sigma_T^2 + \alpha_T^2 s_0^2}{r_T^2}\Bigr) - d \log s
    - \int_0^{\theta_T} \operatorname{tr} \frac{\partial F}{\partial v} \, d\theta, \qquad \frac{dv}{d\theta} = -F$$

    in the angle of `turning`, from $v = x / s$ at the data. Up to 16 dimensions the trace is exact, and nothing is left
    to chance; beyond, it is the mean of $e^\top \frac{\partial F}{\partial v} e$ over random signs $e$, the same along
    the way, and the standard error comes from their spread (Hutchinson's estimate). Two more errors are possible, and
    neither is hidden: of the steps, seen by taking twice as many; and of the end, since the law at the last time is
    taken as Gaussian, of the size of `prior_mismatch`. There is none of the beginning: the path is followed from
    $\sigma = 0$, where the field is 0 for data that have a density.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021; Grathwohl et
        al., *FFJORD*, 2019; Hutchinson, *A Stochastic Estimator of the Trace of the Influence Matrix*, 1990.

    Args:
        steps: The number of steps, of four evaluations each with `RK4`.
        tableau: The method.
        probes: The number of random signs beyond 16 dimensions, at least 2.
        scale: $s$, about the standard deviation of the data: it sets where the steps are.
        spread: $s_0$, as in `begin`.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> found = Likelihood(spread=1.0)(lambda x, t: x / (1 + t**2), torch.zeros(1, 2), edm())
        >>> round(float(found.value), 4), float(found.error), found.evaluations
        (-1.8379, 0.0, 63)
    """

    steps: int = 16
    tableau: Tableau = RK4
    probes: int = 16
    scale: float = 0.5
    spread: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.probes < 2 or not 0 < self.scale < inf or not 0 <= self.spread < inf:
            raise ValueError(f"at least 1 step and 2 probes, and finite scales above 0, are wanted: got {self}")

    def __call__(
        self, denoise: Denoiser, x: Float[Tensor, "n *shape"], path: GaussianPath, *, seed: int = 0, first: int = 0
    ) -> LogProbEstimate:
        """Returns the log-density of each sample; gradients by x have to pass through the denoiser."""
        ends = torch.tensor([path.last, 0.0], dtype=torch.float64)
        walk, x = SamplingContext.of(denoise, x, path, ends, seed=seed, first=first)
        d = x.shape[1:].numel()
        exact = d <= EXACT_UP_TO
        directions = _axes(x) if exact else _signs(x, self.probes, seed, first)
        calls = 0

        def denoised(x: Tensor, t: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            answer = walk.asked(x, t)
            if not answer.requires_grad:
                raise ValueError("the denoiser passes no gradient: the likelihood needs its derivative by x")
            return answer

        field = _with_traces(turning(denoised, path, scale=self.scale), directions)
        angle = float(angle_of(path, ends[0], scale=self.scale))
        start = (x / self.scale, x.new_zeros(len(directions), len(x)))
        v, traces = integrate(field, start, 0.0, angle, steps=self.steps, tableau=self.tableau).x
        level, length = path.at(ends[0]), length_of(path, ends[0], scale=self.scale)
        variance = float((level.sigma.square() + (level.alpha * self.spread).square()) / length.square())
        squares = v.square().reshape(len(x), d).sum(1)
        gaussian = -0.5 * (squares / variance + d * log(2 * pi * variance)) - d * log(self.scale)
        if exact:
            return LogProbEstimate.exact(gaussian + traces.sum(0), evaluations=calls)
        return LogProbEstimate.from_samples(gaussian + traces, evaluations=calls)


def prior_mismatch(path: GaussianPath, second_moment: float, *, spread: float = 0.0) -> float:
    r"""Returns how far the law at the last time is from the Gaussian that stands for it, in nats a dimension, at most.

    $$\tfrac12 \Bigl(\frac{\sigma^2 + \alpha^2 m}{\sigma^2 + \alpha^2 s_0^2} - 1 -
    \log \frac{\sigma^2}{\sigma^2 + \alpha^2 s_0^2}\Bigr)$$

    It bounds the divergence $\mathrm{KL}(p_T \Vert \mathcal{N})$ for any data with $\mathbb{E} x^2 = m$, since the
    entropy of $\alpha x + \sigma \varepsilon$ is at least that of its noise.

    Args:
        path: The path.
        second_moment: $m$.
        spread: $s_0$, as in `begin`.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> round(prior_mismatch(edm(), 0.25), 7)
        1.95e-05
    """
    if not 0 <= second_moment < inf:
        raise ValueError(f"a second moment of at least 0 is wanted: got {second_moment}")
    level = path.at(path.last)
    variance, signal = float(level.sigma.square()), float(level.alpha.square())
    taken = variance + signal * spread**2
    return 0.5 * ((variance + signal * second_moment) / taken - 1 - log(variance / taken))


def _axes(x: Tensor) -> Tensor:
    """The coordinate axes, each for all samples: (d, n, *shape)."""
    d = x.shape[1:].numel()
    return torch.eye(d, dtype=x.dtype, device=x.device).reshape(d, 1, *x.shape[1:]).expand(d, *x.shape)


def _signs(x: Tensor, probes: int, seed: int, first: int) -> Tensor:
    """Random signs: (probes, n, *shape)."""
    noise = uniform_noise(len(x), probes, *x.shape[1:], seed=seed, stream=1, first=first, dtype=x.dtype)
    return (noise.round() * 2 - 1).transpose(0, 1).to(x.device)


def _with_traces(field: Callable[[Tensor, Tensor], Tensor], directions: Tensor) -> Field[tuple[Tensor, ...]]:
    """A field, and the part of its divergence in each of some directions: (directions, n)."""

    def both(state: tuple[Tensor, ...], angle: Tensor) -> tuple[Tensor, ...]:
        if not angle:
            return tuple(torch.zeros_like(part) for part in state)
        with torch.enable_grad():
            leaf = state[0].detach().requires_grad_()
            rate = field(leaf, angle)
            products = [torch.autograd.grad(rate, leaf, e, retain_graph=True)[0] * e for e in directions]
        return rate.detach(), torch.stack([p.reshape(len(p), p.shape[1:].numel()).sum(1) for p in products])

    return both


def claims() -> Iterator[Claim]:
    """The laws that the likelihood obeys."""
    path, weights = variance_preserving(), torch.tensor([0.3, 0.7], dtype=torch.float64)

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        """Two Gaussians of variance 1 at 1 and -1, in each coordinate."""
        a, s = path.alpha(t).to(x), path.sigma(t).to(x)
        total = s.square() + a.square()
        side = torch.tanh(a * x / total + 0.5 * (weights[1] / weights[0]).log().to(x))
        return (a * x + s.square() * side) / total

    def log_prob(x: Tensor) -> Tensor:
        logs = [weights[i].log().to(x) - (x - side).square() / 2 for i, side in enumerate((-1, 1))]
        return (torch.logaddexp(*logs) - 0.5 * log(2 * pi)).sum(-1)

    def found(x: Tensor) -> Tensor:
        return Likelihood(steps=4, scale=1.0, spread=1.4)(denoise, x, path).value.to(x)

    near = replace(agreement(other=log_prob), rtol=1e-2, cases=3)
    yield Claim(near, found, transformed(lambda x: 2 * torch.tanh(x), "n:1..2 2"), name="Likelihood of a mixture")
    yield Claim(replace(batch_independence(), cases=2), found, transformed(torch.tanh, "n:2..3 1"), name="Likelihood")

    def of_many(x: Tensor) -> Tensor:
        """A Gaussian in 18 dimensions: the Jacobian is diagonal, so that random signs make no error."""

        def shrink(x: Tensor, t: Tensor) -> Tensor:
            return path.alpha(t).to(x) * x

        estimate = Likelihood(steps=1, scale=1.0, probes=2)(shrink, x, path)
        return (estimate.value + estimate.error).to(x)

    gaussian = replace(agreement(other=lambda x: -0.5 * (x.square() + log(2 * pi)).sum(-1)), rtol=1e-3, cases=3)
    yield Claim(gaussian, of_many, transformed(torch.tanh, "n:1..2 18"), name="Likelihood, Hutchinson")
