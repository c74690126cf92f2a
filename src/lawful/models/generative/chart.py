"""A decoder as a chart: lengths, distances and shortest ways on the surface that it parametrises."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import AtMost, Claim, Draw, Map, Statement, agreement, law, shape, transformed


@dataclass(frozen=True, eq=False)
class Chart:
    r"""Measures codes by what a decoder makes of them.

    $$G(z) = J(z)^\mathsf{T} J(z), \qquad L(\gamma) = \int_0^1 \sqrt{\dot\gamma^\mathsf{T} G \, \dot\gamma} \; dt
    = \int_0^1 \Bigl\lVert \frac{d}{dt} D(\gamma) \Bigr\rVert dt, \qquad
    E(\gamma) = \tfrac12 \int_0^1 \dot\gamma^\mathsf{T} G \, \dot\gamma \; dt$$

    $J$ is the derivative of the decoder $D$: it pulls the metric of the data back to the codes. A curve is given by
    points at equal steps of $t$, and what is between their images counts as straight. $L^2 \le 2 E$, with equality at
    constant speed, so that the curve of least energy between two codes is a shortest one.

    Reference:
        Arvanitidis, Hansen and Hauberg, *Latent Space Oddity: on the Curvature of Deep Generative Models*, 2018.

    Args:
        decode: $D$, from codes to examples of any shape, each by itself.

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
        """Returns $J$ at each code, a column for each of its entries."""
        columns = []
        for i in range(z.shape[1]):
            along = torch.zeros_like(z)
            along[:, i] = 1.0
            columns.append(torch.func.jvp(self._flat, (z,), (along,))[1])
        return torch.stack(columns, dim=-1)

    def metric(self, z: Float[Tensor, "n k"]) -> Float[Tensor, "n k k"]:
        """Returns $G$ at each code."""
        j = self.jacobian(z)
        return j.mT @ j

    def volume(self, z: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
        r"""Returns $\sqrt{\det G}$: by how much the decoder stretches a small volume of codes."""
        j = self.jacobian(z)
        return torch.linalg.svdvals(j).prod(-1) if j.shape[1] >= j.shape[2] else z.new_zeros(len(z))

    def length(self, curve: Float[Tensor, "t k"]) -> Float[Tensor, ""]:
        """Returns $L$."""
        return self._steps(curve).square().sum(-1).sqrt().sum()

    def energy(self, curve: Float[Tensor, "t k"]) -> Float[Tensor, ""]:
        """Returns $E$."""
        return 0.5 * (len(curve) - 1) * self._steps(curve).square().sum()

    def geodesic(
        self, a: Float[Tensor, " k"], b: Float[Tensor, " k"], *, points: int = 64, modes: int = 16, steps: int = 100
    ) -> Float[Tensor, "points k"]:
        r"""Finds a curve of least energy between two codes, by descent (L-BFGS) from the straight line.

        $$\gamma(t) = (1 - t) \, a + t \, b + \sum_{m = 1}^{M} \frac{c_m}{m} \sin(\pi m t)$$

        It has less energy than the straight line, or is that line. Where there are several shortest ways, or longer
        ones that no small change makes shorter, it is the one that the descent comes to.

        Args:
            a: Where it begins.
            b: Where it ends.
            points: The points of the curve, ends included.
            modes: $M$, how many waves it may have.
            steps: The most steps of the descent.
        """
        if points < 2 or modes < 1 or steps < 0:
            raise ValueError(f"at least 2 points, 1 mode and 0 steps were wanted: got {points}, {modes} and {steps}")
        if a.shape != b.shape or a.dim() != 1:
            raise ValueError(f"two codes of one size were wanted: got shapes {tuple(a.shape)} and {tuple(b.shape)}")
        t = torch.linspace(0, 1, points).to(a)[:, None]
        m = torch.arange(1, modes + 1).to(a)
        waves = torch.sin(math.pi * m * t) / m
        waves[-1] = 0.0
        straight = a + t * (b - a)
        straight[-1] = b
        c = torch.zeros(modes, len(a), requires_grad=True, dtype=a.dtype, device=a.device)
        scale = self.energy(straight).detach()
        if not bool(scale.isfinite()):
            raise ValueError("finite codes with finite images were wanted: got NaN or infinite ones on the way")
        descent = torch.optim.LBFGS([c], max_iter=steps, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            with torch.enable_grad():
                energy = self.energy(straight + waves @ c) / scale
                c.grad = torch.autograd.grad(energy, c)[0]
            return energy.detach()

        if steps and bool(scale > 0):
            descent.step(closure)
        found = straight + waves @ c.detach()
        return found if bool(self.energy(found) < scale) else straight

    def distance(self, a: Float[Tensor, " k"], b: Float[Tensor, " k"], *, points: int = 64) -> float:
        """Measures the way between two codes along the surface: the length of `geodesic`."""
        with torch.no_grad():
            return float(self.length(self.geodesic(a, b, points=points)))

    def _flat(self, z: Tensor) -> Tensor:
        return self.decode(z).flatten(1)

    def _steps(self, curve: Tensor) -> Tensor:
        if len(curve) < 2:
            raise ValueError(f"a curve of at least 2 points was wanted: got {len(curve)}")
        return self._flat(curve).diff(dim=0)


@law("L(γ)² ≤ 2 E(γ)", discover_with=None)
def length_by_energy(f: Map, curve: Tensor, *, draw: Draw) -> Statement:
    """The square of a curve's length is at most twice its energy, by Cauchy and Schwarz.

    `f` returns length and energy.

    Satisfied by: both of one metric.
    Broken by: an energy without its factor; a length of codes in place of their images.
    """
    length, energy = f.raw_output(curve)
    return AtMost(length.square(), 2 * energy)


def claims() -> Iterator[Claim]:
    """The laws that a chart obeys, on surfaces that are known."""

    def sphere(z: Tensor) -> Tensor:
        x, y = z.unbind(-1)
        return 2 * torch.stack([x.cos() * y.cos(), x.sin() * y.cos(), y.sin()], dim=-1)

    chart, near = Chart(sphere), transformed(torch.tanh, "n 2")

    def first_form(z: Tensor) -> Tensor:
        return torch.diag_embed(4 * torch.stack([z[:, 1].cos().square(), torch.ones_like(z[:, 1])], -1))

    yield Claim(agreement(other=first_form), chart.metric, near, name="Chart.metric of a sphere")
    yield Claim(agreement(other=lambda z: 4 * z[:, 1].cos()), chart.volume, near, name="Chart.volume of a sphere")

    def both(curve: Tensor) -> tuple[Tensor, Tensor]:
        return chart.length(curve), chart.energy(curve)

    yield Claim(length_by_energy(), both, shape("t:2..6 2"), name="Chart")

    def flat(curve: Tensor) -> Tensor:
        """Lengths and energies in a plane that is bent but not stretched, of a meridian and a parallel."""
        bent = Chart(lambda z: torch.stack([z[:, 0], 3 * (z[:, 1] / 3).cos(), 3 * (z[:, 1] / 3).sin()], dim=-1))
        return torch.stack([bent.length(curve), bent.energy(curve)])

    def written_out(curve: Tensor) -> Tensor:
        along, around = curve.diff(dim=0).unbind(-1)
        chord = (along.square() + (6 * (around / 6).sin()).square()).sqrt()
        return torch.stack([chord.sum(), chord.square().sum() * len(along) / 2])

    yield Claim(agreement(other=written_out), flat, shape("t:2..6 2"), name="Chart of a cylinder: length and energy")
