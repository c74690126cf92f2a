"""Continuous flows: data carried to noise by a velocity field, with their density by the divergence of it."""

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
from lawful.functions.random import normal_noise, uniform_noise
from lawful.laws import Claim, agreement, density_integrates_to_one, log_determinant, shape
from lawful.models.generative.flow import NORMAL
from lawful.models.generative.protocols import finite, unconditional
from lawful.solvers.ode import RK4, Tableau, integrate

EXACT_UP_TO = 16
"""The number of dimensions up to which the trace is exact."""


class VelocityField(nn.Module):
    """Computes a velocity from a point and a time by dense layers, smooth ones, so that it has a divergence.

    Args:
        d: The number of entries of a point.
        hidden: The widths of the hidden layers.

    Examples:
        >>> VelocityField(2)(torch.zeros(3, 2), torch.tensor(0.5)).shape
        torch.Size([3, 2])
    """

    def __init__(self, d: int, *, hidden: Sequence[int] = (64, 64)) -> None:
        super().__init__()
        sizes = [d + 3, *hidden]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))
        self.out = nn.Linear(sizes[-1], d)

    def forward(self, x: Float[Tensor, "n d"], t: Float[Tensor, ""]) -> Float[Tensor, "n d"]:
        """Returns the velocity of each point at a time."""
        angle = math.pi * t.to(x)
        time = torch.stack([t.to(x), angle.sin(), angle.cos()]).expand(len(x), 3)
        h = torch.cat([x, time], -1)
        for layer in self.layers:
            h = F.silu(layer(h))
        return self.out(h)


class ContinuousFlow(nn.Module):
    r"""Carries examples to noise along a velocity field, from the time 0 to the time 1.

    $$\dot z = v(z, t), \quad z(0) = \frac{x - \mu}{\sigma}, \qquad
    \log p(x) = \log N\bigl(z(1)\bigr) + \int_0^1 \operatorname{tr} \frac{\partial v}{\partial z} \, dt
    - \sum_i \log \sigma_i$$

    Any smooth field will do: no block has to be invertible, as the way back is the same path in reverse. Up to 16
    entries the trace is exact. Beyond it is the mean of $e^\mathsf{T} \frac{\partial v}{\partial z} e$ over random
    signs $e$, and the standard error is reported. Steps are of equal length, so that the density costs the same
    everywhere and nothing hangs; what they miss is seen by taking more of them.

    Reference:
        Chen, Rubanova, Bettencourt and Duvenaud, *Neural Ordinary Differential Equations*, 2018; Grathwohl, Chen,
        Bettencourt, Sutskever and Duvenaud, *FFJORD*, 2019.

    Args:
        velocity: $v$, a module of points and a time.
        shape: The shape of an example.
        steps: The number of steps.
        tableau: The method of a step.
        probes: The number of random signs beyond 16 entries, 2 or more.

    Examples:
        >>> flow = ContinuousFlow(VelocityField(2), shape=(2,), steps=4)
        >>> found = flow.log_prob(torch.zeros(1, 2))
        >>> found.error, found.evaluations
        (tensor([0.]), 16)
    """

    def __init__(
        self, velocity: nn.Module, *, shape: tuple[int, ...], steps: int = 16, tableau: Tableau = RK4, probes: int = 8
    ) -> None:
        if not shape or min(shape) < 1 or steps < 1 or probes < 2:
            raise ValueError(
                f"sizes and steps of at least 1 and 2 probes were wanted: got {shape}, {steps} and {probes}"
            )
        super().__init__()
        self.velocity, self.shape, self.tableau = velocity, tuple(shape), tableau
        self.steps, self.probes = steps, probes
        self.units = Standardize(math.prod(shape))

    def fit(self, x: Float[Tensor, "n *shape"]) -> ContinuousFlow:
        """Reads the data's moments; it trains nothing."""
        self.units.fit(self._rows(x))
        return self

    def encode(
        self, x: Float[Tensor, "n *shape"], *, probes: int = 1, seed: int = 0
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "probes n"]]:
        """Carries examples to noise, and returns the log-determinants: one exact row, or one for each probe."""
        z = self.units(self._rows(x))
        n, d = z.shape
        if exact := d <= EXACT_UP_TO:
            directions = torch.eye(d, dtype=z.dtype, device=z.device)[:, None].expand(d, n, d)
        else:
            noise = uniform_noise(n, probes, d, seed=seed, stream=1, dtype=z.dtype, device=z.device)
            directions = (noise.round() * 2 - 1).transpose(0, 1)
        training = torch.is_grad_enabled()

        def field(state: tuple[Tensor, ...], t: Tensor) -> tuple[Tensor, ...]:
            with torch.enable_grad():
                at = state[0] if state[0].requires_grad else state[0].detach().requires_grad_()
                rate = self.velocity(at, t)
                rows = [torch.autograd.grad(rate, at, e, create_graph=True)[0] * e for e in directions]
            traces = torch.stack([row.sum(-1) for row in rows])
            return (rate, traces) if training else (rate.detach(), traces.detach())

        start = (z, z.new_zeros(len(directions), n))
        z, traces = integrate(field, start, 0.0, 1.0, steps=self.steps, tableau=self.tableau).x
        traces = traces.sum(0, keepdim=True) if exact else traces
        return z, traces - self.units.std.log().sum()

    @torch.no_grad()
    def decode(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n *shape"]:
        """Carries noise to examples."""
        x = integrate(self.velocity, z, 1.0, 0.0, steps=self.steps, tableau=self.tableau).x
        return self.units.inverse(x).reshape(len(z), *self.shape)

    def log_density(self, x: Float[Tensor, "n *shape"], *, seed: int = 0) -> Float[Tensor, " n"]:
        r"""$\log p(x)$, which lets gradients pass; beyond 16 entries an unbiased estimate with one probe."""
        z, log_det = self.encode(x, seed=seed)
        return NORMAL.log_density(z) + log_det[0]

    @torch.no_grad()
    def log_prob(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> LogProbEstimate:
        """Returns the log-density of each example, in nats, with the standard error of the trace."""
        unconditional(labels)
        finite(x)
        z, log_det = self.encode(x, probes=self.probes, seed=seed)
        value, calls = NORMAL.log_density(z) + log_det, self.steps * len(self.tableau.nodes)
        return (
            LogProbEstimate.exact(value[0], evaluations=calls)
            if len(value) == 1
            else LogProbEstimate.from_samples(value, evaluations=calls)
        )

    @torch.no_grad()
    def sample(
        self, n: int, seed: int = 0, *, first: int = 0, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *shape"]:
        """Draws examples."""
        unconditional(labels)
        mean = self.units.mean
        return self.decode(normal_noise(n, len(mean), seed=seed, first=first, dtype=mean.dtype, device=mean.device))

    def _rows(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.shape:
            raise ValueError(f"examples of shape {self.shape} were wanted: got shape {tuple(x.shape)}")
        return x.reshape(len(x), math.prod(self.shape))


class _Linear(nn.Module):
    """The velocity A z, whose flow is known."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[-0.5, 0.8], [-0.2, 0.3]]))

    def forward(self, x: Float[Tensor, "n d"], t: Float[Tensor, ""]) -> Float[Tensor, "n d"]:
        return x @ self.matrix.T


def claims() -> Iterator[Claim]:
    """The laws that continuous flows obey."""
    straight = ContinuousFlow(_Linear(), shape=(2,), steps=4).fit(torch.tensor([[1.0, -2.0], [3.0, 4.0]]))
    bent = ContinuousFlow(VelocityField(2, hidden=[4]), shape=(2,), steps=2)

    def gaussian(x: Tensor) -> Tensor:
        """A linear field makes a Gaussian of a Gaussian."""
        matrix = torch.matrix_exp(straight.velocity.get_parameter("matrix"))
        units = straight.units
        z = (x - units.mean) / units.std @ matrix.T
        return -0.5 * z.square().sum(-1) - math.log(2 * math.pi) + matrix.det().log() - units.std.log().sum()

    near = replace(agreement(other=gaussian, rtol=1e-4), cases=10)
    yield Claim(near, straight.log_density, shape("n 2"), name="linear field")

    def mapped(x: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = bent.encode(x)
        return z, log_det[0]

    yield Claim(replace(log_determinant(rtol=1e-3), cases=10), mapped, shape("n 2"), name="ContinuousFlow")

    def again(x: Tensor) -> Tensor:
        return bent.decode(bent.encode(x)[0]) + 2

    same = replace(agreement(other=lambda x: x + 2, rtol=1e-3), cases=10)
    yield Claim(same, again, shape("n 2"), name="there and back")

    def log_prob(x: Tensor) -> Tensor:
        return bent.log_prob(x.to(bent.units.mean)).value

    def sample(n: int) -> Tensor:
        return bent.sample(n, seed=int(torch.randint(2**31, ())))

    yield Claim(density_integrates_to_one(sample=sample, log_prob=log_prob), log_prob, shape("n 2"), name="its density")
