"""Continuous normalizing flows: neural ODEs with exact or estimated divergence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import Standardize
from lawful.functions.estimate import LogProbEstimate
from lawful.functions.random import normal_noise, resolve_seed, uniform_noise
from lawful.laws import Claim, density_integrates_to_one, log_determinant, shape
from lawful.models.generative.flow import NORMAL
from lawful.models.generative.protocols import (
    _check_finite,
    _check_shape,
    _check_sizes,
    _check_unlabeled,
    _sample_shape,
)
from lawful.solvers.ode import RK4, Tableau, odeint_fixed

_MAX_EXACT_DIM = 16  # the trace is exact up to this dimension


class VelocityField(nn.Module):
    """MLP with smooth activations from a point and a time to a velocity.

    Args:
        dim: Number of features of a point.
        hidden_dims: Hidden widths.

    Examples:
        >>> VelocityField(2)(torch.tensor(0.5), torch.zeros(3, 2)).shape
        torch.Size([3, 2])
    """

    def __init__(self, dim: int, *, hidden_dims: Sequence[int] = (64, 64)) -> None:
        super().__init__()
        sizes = [dim + 3, *hidden_dims]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))
        self.out = nn.Linear(sizes[-1], dim)

    def forward(self, t: Float[Tensor, ""], x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Returns the velocity of each point at time t."""
        angle = math.pi * t.to(x)
        time = torch.stack([t.to(x), angle.sin(), angle.cos()]).expand(len(x), 3)
        h = torch.cat([x, time], -1)
        for layer in self.layers:
            h = F.silu(layer(h))
        return self.out(h)


class ContinuousFlow(nn.Module):
    r"""Continuous normalizing flow along a velocity field, from data at time 0 to a standard normal at time 1.

    $$\dot z = v(z, t), \quad z(0) = \frac{x - \mu}{\sigma}, \qquad
    \log p(x) = \log N\bigl(z(1)\bigr) + \int_0^1 \operatorname{tr} \frac{\partial v}{\partial z} \, dt
    - \sum_i \log \sigma_i$$

    Up to 16 features the trace is exact. Beyond, it is the mean of $e^\mathsf{T} \frac{\partial v}{\partial z} e$ over
    random signs $e$ (Hutchinson's estimator), with a standard error. Steps have a fixed size; compare with more steps
    to see the discretization error.

    Reference:
        Chen, Rubanova, Bettencourt and Duvenaud, *Neural Ordinary Differential Equations*, 2018; Grathwohl, Chen,
        Bettencourt, Sutskever and Duvenaud, *FFJORD*, 2019.

    Args:
        velocity: Velocity field $v$, a module called with a time and points.
        shape: Shape of an example.
        steps: Number of steps.
        tableau: Runge-Kutta method.
        num_probes: Number of random signs beyond 16 features, at least 2.

    Examples:
        >>> flow = ContinuousFlow(VelocityField(2), shape=(2,), steps=4)
        >>> estimate = flow.log_prob_estimate(torch.zeros(1, 2))
        >>> estimate.error, estimate.evaluations
        (tensor([0.]), 16)
    """

    def __init__(
        self,
        velocity: nn.Module,
        *,
        shape: tuple[int, ...],
        steps: int = 16,
        tableau: Tableau = RK4,
        num_probes: int = 8,
    ) -> None:
        _check_sizes(shape)
        if steps < 1 or num_probes < 2:
            raise ValueError(f"expected steps >= 1 and num_probes >= 2, got {steps} and {num_probes}")
        super().__init__()
        self.velocity, self.shape, self.tableau = velocity, tuple(shape), tableau
        self.steps, self.num_probes = steps, num_probes
        self.normalizer = Standardize(math.prod(shape))

    def fit_normalizer(self, x: Float[Tensor, "n *shape"]) -> ContinuousFlow:
        """Fits the mean and standard deviation of the training data."""
        self.normalizer.fit(self._rows(x))
        return self

    def encode(
        self, x: Float[Tensor, "n *shape"], *, num_probes: int = 1, seed: int = 0
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "probes n"]]:
        """Maps examples to latents; returns log-determinants, one exact row or one row per probe."""
        z = self.normalizer(self._rows(x))
        n, d = z.shape
        if exact := d <= _MAX_EXACT_DIM:
            directions = torch.eye(d, dtype=z.dtype, device=z.device)[:, None].expand(d, n, d)
        else:
            noise = uniform_noise(n, num_probes, d, seed=seed, stream=1, dtype=z.dtype, device=z.device)
            directions = (noise.round() * 2 - 1).transpose(0, 1)
        differentiable = torch.is_grad_enabled()

        def rate(t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            with torch.enable_grad():
                point = state[0] if state[0].requires_grad else state[0].detach().requires_grad_()
                v = self.velocity(t, point)
                rows = [torch.autograd.grad(v, point, e, create_graph=True)[0] * e for e in directions]
            traces = torch.stack([row.sum(-1) for row in rows])
            return (v, traces) if differentiable else (v.detach(), traces.detach())

        start = (z, z.new_zeros(len(directions), n))
        z, traces = odeint_fixed(rate, start, 0.0, 1.0, steps=self.steps, tableau=self.tableau).y
        traces = traces.sum(0, keepdim=True) if exact else traces
        return z, traces - self.normalizer.std.log().sum()

    @torch.no_grad()
    def decode(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n *shape"]:
        """Maps latents to examples."""
        x = odeint_fixed(self.velocity, z, 1.0, 0.0, steps=self.steps, tableau=self.tableau).y
        return self.normalizer.inverse(x).reshape(len(z), *self.shape)

    def log_prob(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> Float[Tensor, " n"]:
        r"""Returns $\log p(x)$, differentiable; beyond 16 features, an unbiased estimate from one probe."""
        _check_unlabeled(labels)
        _check_finite(x)
        z, log_det = self.encode(x, seed=seed)
        return NORMAL.log_prob(z) + log_det[0]

    @torch.no_grad()
    def log_prob_estimate(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> LogProbEstimate:
        """Returns the log-density of each example, in nats, with the standard error of the trace."""
        _check_unlabeled(labels)
        _check_finite(x)
        z, log_det = self.encode(x, num_probes=self.num_probes, seed=seed)
        values, evaluations = NORMAL.log_prob(z) + log_det, self.steps * len(self.tableau.nodes)
        if len(values) == 1:
            return LogProbEstimate.exact(values[0], evaluations=evaluations)
        return LogProbEstimate.from_samples(values, evaluations=evaluations)

    @torch.no_grad()
    def sample(
        self,
        n: int | Sequence[int],
        seed: int | None = None,
        *,
        first: int = 0,
        labels: Int[Tensor, "*n"] | None = None,
    ) -> Float[Tensor, "*n *shape"]:
        """Draws samples: `sample(100)` or `sample((100,))`."""
        _check_unlabeled(labels)
        mean, sample_shape = self.normalizer.mean, _sample_shape(n)
        z = normal_noise(
            math.prod(sample_shape),
            len(mean),
            seed=resolve_seed(seed),
            first=first,
            dtype=mean.dtype,
            device=mean.device,
        )
        return self.decode(z).reshape(*sample_shape, *self.shape)

    def _rows(self, x: Tensor) -> Tensor:
        _check_shape(x, self.shape)
        return x.reshape(len(x), math.prod(self.shape))


def claims() -> Iterator[Claim]:
    """The log-determinant equals the Jacobian's, and the density is normalized."""
    flow = ContinuousFlow(VelocityField(2, hidden_dims=[4]), shape=(2,), steps=2)

    def encode(x: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = flow.encode(x)
        return z, log_det[0]

    def log_prob(x: Tensor) -> Tensor:
        return flow.log_prob_estimate(x.to(flow.normalizer.mean)).value

    yield Claim(replace(log_determinant(rtol=1e-3), cases=10), encode, shape("n 2"), name="ContinuousFlow")
    normalized = density_integrates_to_one(sample=lambda n: flow.sample(n), log_prob=log_prob)
    yield Claim(normalized, log_prob, shape("n 2"), name="ContinuousFlow")
