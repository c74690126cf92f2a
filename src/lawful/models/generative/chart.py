"""Riemannian geometry of a decoder: pullback metric, lengths and geodesics in latent space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, transformed


@dataclass(frozen=True, eq=False)
class Chart:
    r"""Pullback metric of a decoder on its latent space.

    $$G(z) = J(z)^\mathsf{T} J(z), \qquad L(\gamma) = \int_0^1 \sqrt{\dot\gamma^\mathsf{T} G \, \dot\gamma} \; dt
    = \int_0^1 \Bigl\lVert \frac{d}{dt} D(\gamma) \Bigr\rVert dt, \qquad
    E(\gamma) = \tfrac12 \int_0^1 \dot\gamma^\mathsf{T} G \, \dot\gamma \; dt$$

    $J$ is the Jacobian of the decoder $D$. A curve is a sequence of points at equal steps of $t$; its image is taken as
    piecewise linear. $L^2 \le 2 E$, with equality at constant speed, so that a curve of minimal energy is a shortest
    one.

    Reference:
        Arvanitidis, Hansen and Hauberg, *Latent Space Oddity: on the Curvature of Deep Generative Models*, 2018.

    Args:
        decode: Decoder $D$, from a batch of latents to examples of any shape.

    Examples:
        >>> cylinder = Chart(lambda z: torch.stack([z[:, 0].cos(), z[:, 0].sin(), z[:, 1]], dim=1))
        >>> cylinder.metric(torch.zeros(1, 2))
        tensor([[[1., 0.],
                 [0., 1.]]])
        >>> round(cylinder.distance(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 4.0])), 2)
        5.0
    """

    decode: Callable[[Tensor], Tensor]

    def jacobian(self, z: Float[Tensor, "n k"]) -> Float[Tensor, "n d k"]:
        """Returns $J$ at each latent."""
        columns = []
        for i in range(z.shape[1]):
            direction = torch.zeros_like(z)
            direction[:, i] = 1.0
            columns.append(torch.func.jvp(self._flat, (z,), (direction,))[1])
        return torch.stack(columns, dim=-1)

    def metric(self, z: Float[Tensor, "n k"]) -> Float[Tensor, "n k k"]:
        """Returns $G$ at each latent."""
        j = self.jacobian(z)
        return j.mT @ j

    def volume(self, z: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
        r"""Returns the volume factor $\sqrt{\det G}$ at each latent."""
        j = self.jacobian(z)
        return torch.linalg.svdvals(j).prod(-1) if j.shape[1] >= j.shape[2] else z.new_zeros(len(z))

    def length(self, curve: Float[Tensor, "t k"]) -> Float[Tensor, ""]:
        """Returns the length $L$ of a curve."""
        return self._differences(curve).square().sum(-1).sqrt().sum()

    def energy(self, curve: Float[Tensor, "t k"]) -> Float[Tensor, ""]:
        """Returns the energy $E$ of a curve."""
        return 0.5 * (len(curve) - 1) * self._differences(curve).square().sum()

    def geodesic(
        self,
        a: Float[Tensor, " k"],
        b: Float[Tensor, " k"],
        *,
        num_points: int = 64,
        num_modes: int = 16,
        max_steps: int = 100,
    ) -> Float[Tensor, "points k"]:
        r"""Minimizes the energy of a curve between two latents by L-BFGS, from the straight line.

        $$\gamma(t) = (1 - t) \, a + t \, b + \sum_{m = 1}^{M} \frac{c_m}{m} \sin(\pi m t)$$

        The result has at most the energy of the straight line. It may be a local minimum.

        Args:
            a: Start.
            b: End.
            num_points: Number of points of the curve, ends included.
            num_modes: Number $M$ of sine modes.
            max_steps: Maximum number of L-BFGS iterations.
        """
        if num_points < 2 or num_modes < 1 or max_steps < 0:
            raise ValueError(
                f"expected num_points >= 2, num_modes >= 1 and max_steps >= 0, got {num_points}, {num_modes} and"
                f" {max_steps}"
            )
        if a.shape != b.shape or a.dim() != 1:
            raise ValueError(f"expected a and b of one shape (k,), got {tuple(a.shape)} and {tuple(b.shape)}")
        t = torch.linspace(0, 1, num_points).to(a)[:, None]
        m = torch.arange(1, num_modes + 1).to(a)
        modes = torch.sin(math.pi * m * t) / m
        modes[-1] = 0.0
        line = a + t * (b - a)
        line[-1] = b
        c = torch.zeros(num_modes, len(a), requires_grad=True, dtype=a.dtype, device=a.device)
        scale = self.energy(line).detach()
        if not bool(scale.isfinite()):
            raise ValueError("expected finite latents with finite images, got NaN or infinity along the line")
        optimizer = torch.optim.LBFGS([c], max_iter=max_steps, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            with torch.enable_grad():
                energy = self.energy(line + modes @ c) / scale
                c.grad = torch.autograd.grad(energy, c)[0]
            return energy.detach()

        if max_steps and bool(scale > 0):
            optimizer.step(closure)
        curve = line + modes @ c.detach()
        return curve if bool(self.energy(curve) < scale) else line

    def distance(self, a: Float[Tensor, " k"], b: Float[Tensor, " k"], *, num_points: int = 64) -> float:
        """Returns the length of the `geodesic` between two latents."""
        with torch.no_grad():
            return float(self.length(self.geodesic(a, b, num_points=num_points)))

    def _flat(self, z: Tensor) -> Tensor:
        return self.decode(z).flatten(1)

    def _differences(self, curve: Tensor) -> Tensor:
        if len(curve) < 2:
            raise ValueError(f"expected a curve of at least 2 points, got {len(curve)}")
        return self._flat(curve).diff(dim=0)


def claims() -> Iterator[Claim]:
    """The metric and volume of a sphere of radius 2."""

    def sphere(z: Tensor) -> Tensor:
        x, y = z.unbind(-1)
        return 2 * torch.stack([x.cos() * y.cos(), x.sin() * y.cos(), y.sin()], dim=-1)

    def first_form(z: Tensor) -> Tensor:
        return torch.diag_embed(4 * torch.stack([z[:, 1].cos().square(), torch.ones_like(z[:, 1])], -1))

    chart, inputs = Chart(sphere), transformed(torch.tanh, "n 2")
    yield Claim(agreement(other=first_form), chart.metric, inputs, name="Chart.metric of a sphere")
    yield Claim(agreement(other=lambda z: 4 * z[:, 1].cos()), chart.volume, inputs, name="Chart.volume of a sphere")
