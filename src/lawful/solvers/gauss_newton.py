"""Gauss-Newton: least squares of the residual's linear part, over and over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from lawful.functions.decompositions.examples import well_conditioned
from lawful.functions.least_squares import solve_by_qr
from lawful.groups.rotations.so3 import SO3
from lawful.laws import Claim, agreement, batch_independence, made, shape
from lawful.solvers.residuals import Minimum, Moves, Problems, Residual, cost


@torch.no_grad()
def gauss_newton(
    residual: Residual, x: Tensor, *, group: Moves | None = None, steps: int = 50, tolerance: float | None = None
) -> Minimum:
    r"""Minimises the length of a residual by solving its linear part for a step, until there is nothing to gain.

    $$\min_x \tfrac12 \lVert r(x) \rVert^2, \qquad \delta = \arg\min_\delta \lVert r(x) + J \delta \rVert, \quad
    x \leftarrow x + \delta$$

    On a group, $x \leftarrow x \exp(\delta)$ and $J$ is the derivative of $r(x \exp(\delta))$ at $\delta = 0$. Close
    to a small residual it converges quadratically; far away it may diverge, for which there is `levenberg_marquardt`.
    A linear change of coordinates changes no step. Each problem of a batch stops on its own: where the cosine between
    the residual and every column of $J$ is below the tolerance, or where a step promises less than rounding. One whose
    $J$ has dependent columns stays where it is, not converged. NaN and infinity are refused.

    Args:
        residual: $r$, from (*batch, n), or (*batch, *element) on a group, to (*batch, m): a function that PyTorch can
            differentiate, in which each of the batch depends on its own point only.
        x: Where to start.
        group: The group that $x$ is of, with `exp`, `compose` and `dim`; its elements are tensors, real or complex.
        steps: The largest number of steps.
        tolerance: Of the cosine; the two thirds power of the machine epsilon unless given.

    Examples:
        >>> found = gauss_newton(lambda x: x.square() - 2, torch.tensor([1.0], dtype=torch.float64))
        >>> found.x, found.converged
        (tensor([1.4142], dtype=torch.float64), tensor(True))
    """
    problems, r = Problems.at(residual, x, group=group, steps=steps, tolerance=tolerance)
    done = torch.zeros(problems.batch, dtype=torch.bool, device=x.device)
    stuck, tried = torch.zeros_like(done), torch.zeros_like(done, dtype=torch.long)
    for _ in range(steps):
        j = problems.jacobian(x)
        done = done | problems.stationary(r, j)
        delta, dependent = solve_by_qr(j, -r)
        stuck = stuck | (dependent & ~done)
        still = done | stuck
        if bool(still.all()):
            break
        delta = torch.where(still[..., None], 0.0, delta)
        moved = problems.where(still, x, problems.moved(x, delta))
        after = problems.finite(residual(moved), "after a step")
        change = torch.einsum("...mn,...n->...m", j, delta)
        done = done | (problems.settled(x, r, change=change, after=after) & ~still)
        x, r, tried = moved, after, tried + ~still
    return Minimum(x, cost(r), tried, done)


def _bent(x: Tensor) -> Tensor:
    """A residual that is not linear, with independent columns everywhere and no zero."""
    return torch.cat([x + x.sin() / 2, x.roll(1, -1).cos() - 3], -1)


def claims() -> Iterator[Claim]:
    """The laws that Gauss-Newton obeys."""

    def one_step(a: Tensor, b: Tensor) -> Tensor:
        def linear(x: Tensor) -> Tensor:
            return (a @ x[..., None])[..., 0] - b

        return gauss_newton(linear, torch.zeros_like(a[..., 0, :]), steps=1).x

    def two_steps(x: Tensor, s: Tensor) -> Tensor:
        return gauss_newton(_bent, x, steps=2).x

    def two_steps_in_other_coordinates(x: Tensor, s: Tensor) -> Tensor:
        def back(y: Tensor) -> Tensor:
            return (s @ y[..., None])[..., 0]

        start = torch.linalg.solve(s, x)
        return back(gauss_newton(lambda y: _bent(back(y)), start, steps=2).x)

    def turned_back(v: Tensor) -> Tensor:
        targets = SO3().exp(v)
        start = torch.eye(3).to(v).expand_as(targets)
        return gauss_newton(lambda g: (g - targets).flatten(-2), start, group=SO3(), steps=5).x

    def below_a_radian(x: Tensor) -> Tensor:
        return 0.4 * x / (1 + x.norm(dim=-1, keepdim=True))

    regular = made(well_conditioned, "b 4 3")
    pseudo_inverse = agreement(other=lambda a, b: (torch.linalg.pinv(a) @ b[..., None])[..., 0])
    yield Claim(pseudo_inverse, one_step, (regular, shape("b 4")), name="gauss_newton, one step of a linear problem")

    def told(a: Tensor, b: Tensor) -> Tensor:
        flat = torch.cat([a[..., :2], 2 * a[..., :1]], -1)
        found, lost = (
            gauss_newton(lambda x, a=a: (a @ x[..., None])[..., 0] - 1 - b.abs(), torch.ones_like(b[..., :3]), steps=9)
            for a in (a, flat)
        )
        kept = (lost.x == 1).all(-1) & (lost.steps == 0) & ~lost.converged
        return torch.stack([found.cost, found.converged.to(a), (found.steps < 4).to(a), kept.to(a)], -1)

    def least(a: Tensor, b: Tensor) -> Tensor:
        b = 1 + b.abs()
        r = (a @ torch.linalg.pinv(a) @ b[..., None])[..., 0] - b
        one = torch.ones_like(b[..., 0])
        return torch.stack([r.square().sum(-1) / 2, one, one, one], -1)

    once = (made(well_conditioned, "b:1..2 4 3"), made(torch.tanh, "b:1..2 4"))
    yield Claim(replace(agreement(other=least), cases=20), told, once, name="gauss_newton, what it reports")

    def downhill(x: Tensor) -> Tensor:
        found = gauss_newton(torch.exp, x[..., None])
        return torch.stack([found.x[..., 0], found.steps.to(x), found.converged.to(x)])

    for_ever = agreement(other=lambda x: torch.stack([x - 50, 0 * x + 50, 0 * x]))
    yield Claim(replace(for_ever, cases=10), downhill, made(torch.tanh, "b:1..2"), name="gauss_newton of exp")
    affine = agreement(other=two_steps_in_other_coordinates)
    coordinates = (made(torch.tanh, "b 3"), made(well_conditioned, "b 3 3"))
    yield Claim(affine, two_steps, coordinates, name="gauss_newton, two steps")
    yield Claim(batch_independence(), lambda x: gauss_newton(_bent, x, steps=2).x, shape("b 3"), name="gauss_newton")
    rotations = replace(agreement(other=SO3().exp), cases=20)
    yield Claim(rotations, turned_back, made(below_a_radian, "b 3"), name="gauss_newton on SO(3)")
