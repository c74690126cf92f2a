"""Nonlinear least squares: what its methods share, a batch of problems and how far each has come.

Gauss-Newton: least squares of the residual's linear part, over and over.
Levenberg-Marquardt: Gauss-Newton on a leash, which lengthens as long as the linear part can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lawful.functions.decompositions import well_conditioned
from lawful.functions.linalg import ridge, solve_by_qr
from lawful.groups.so3 import SO3
from lawful.laws import AtMost, Claim, Map, Statement, agreement, batch_independence, law, shape, transformed

Residual = Callable[[Tensor], Tensor]
"""From points, (*batch, n), to residuals, (*batch, m); each of a batch depends on its own point only."""


@runtime_checkable
class Moves(Protocol):
    """What is asked of a group whose elements are solved for: `lawful.groups.LieGroup` has it."""

    @property
    def dim(self) -> int: ...

    def exp(self, v: Tensor) -> Tensor: ...

    def compose(self, g: Tensor, h: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a method ended, problem by problem."""

    x: Tensor
    """The point that was found; shape (*batch, n), or (*batch, *element) on a group."""
    cost: Tensor
    """Half the squared length of the residual there; shape (*batch,)."""
    steps: Tensor
    """How many steps were tried; shape (*batch,)."""
    converged: Tensor
    """Whether the problem was settled before the steps ran out; shape (*batch,)."""


@dataclass(frozen=True, eq=False)
class Problems:
    """A residual for each of a batch, over vectors or, with a group, over its elements."""

    residual: Residual
    group: Moves | None
    tolerance: float
    batch: torch.Size

    @staticmethod
    def at(
        residual: Residual, x: Tensor, *, group: Moves | None, steps: int, tolerance: float | None
    ) -> tuple[Problems, Tensor]:
        """Looks at the start, refuses one at which the residual is no number, and returns the residual too."""
        if not isinstance(x, Tensor):
            raise TypeError(f"a start that is one tensor is wanted (no product of groups): got {type(x).__name__}")
        if not (x.is_floating_point() or (group and x.is_complex())) or not x.numel():
            raise ValueError(f"a start of real numbers is wanted: got {x.dtype} of shape {tuple(x.shape)}")
        if not bool(x.isfinite().all()):
            raise ValueError("a finite start is wanted: got NaN or infinity")
        kind = torch.finfo(x.dtype)
        tolerance = kind.eps ** (2 / 3) if tolerance is None else tolerance
        if steps < 0 or not 0 <= tolerance < 1:
            raise ValueError(f"steps are at least 0, a tolerance 0 to 1: got steps={steps}, tolerance={tolerance}")
        r = residual(x)
        batch = r.shape[:-1]
        fits = r.dim() and x.shape[: len(batch)] == batch and (group or x.dim() == r.dim())
        if not fits or not r.numel() or r.dtype != x.real.dtype:
            raise ValueError(
                f"for a start {x.dtype} {tuple(x.shape)} the residual is to be real, of that precision, with the batch"
                f" in front, (*batch, m): got {r.dtype} {tuple(r.shape)}"
            )
        problems = Problems(residual, group, tolerance, batch)
        return problems, problems.finite(r, "at the start")

    def finite(self, r: Tensor, where: str) -> Tensor:
        """Returns the residual, and refuses one that is no number."""
        bad = ~r.isfinite().all(-1)
        if bool(bad.any()):
            raise ValueError(f"the residual {where} is to be finite: it is not in {int(bad.sum())} of {bad.numel()}")
        return r

    def moved(self, x: Tensor, delta: Tensor) -> Tensor:
        r"""Takes a step: $x + \delta$, or $x \exp(\delta)$ on a group."""
        return x + delta if self.group is None else self.group.compose(x, self.group.exp(delta))

    def jacobian(self, x: Tensor) -> Tensor:
        r"""Differentiates the residual by a step, at no step, for all problems at once; shape (*batch, m, n).

        A column is $J e_i$, the derivative of $c \mapsto J^\top c$ applied to $e_i$: two reverse passes, which more
        operations have than the forward one, in the same time.
        """
        n = x.shape[-1] if self.group is None else self.group.dim
        zero = x.real.new_zeros(*self.batch, n)
        r, pull, *_ = torch.func.vjp(lambda delta: self.residual(self.moved(x, delta)), zero)
        _, push, *_ = torch.func.vjp(lambda c: pull(c)[0], torch.zeros_like(r))
        axes = torch.eye(n, dtype=zero.dtype, device=x.device)
        j = torch.func.vmap(lambda axis: push(axis.expand_as(zero))[0])(axes).movedim(0, -1)
        self.finite(j.flatten(-2), "by a step")
        return j

    def stationary(self, r: Tensor, j: Tensor) -> Tensor:
        """Says where the residual is zero, or at right angles to every column of its Jacobian."""
        columns, side = j / nonzero(length(j, -2))[..., None, :], r / nonzero(length(r))[..., None]
        cosines = torch.einsum("...mn,...m->...n", columns, side)
        return (cosines.abs() <= self.tolerance).all(-1)

    def settled(self, x: Tensor, r: Tensor, *, change: Tensor, after: Tensor) -> Tensor:
        r"""Says where a step promises no more than rounding $x$ does, and the cost has stopped falling.

        Such a step can no longer be told from noise; nor can a part of the rounding, whatever the cost does. It is
        measured in the residual, so that units make no difference.

        Args:
            change: $J \delta$.
            after: The residual after the step.
        """
        entries = x.reshape(*self.batch, -1)
        weights = 2 + torch.arange(entries.shape[-1], device=x.device).to(r).cos()  # such that nothing cancels
        eps = torch.finfo(x.dtype).eps
        rounded = (entries * (1 + 2 * eps * weights)).reshape(x.shape)
        noise = (self.residual(rounded) - r).nan_to_num(0.0, 0.0, 0.0)
        falls = length(after) < (1 - eps ** (1 / 3)) * length(r)
        return length(change) <= torch.where(falls, eps, 1.0) * length(noise)

    def where(self, chosen: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Takes the points `x` of some problems and the points `y` of the others."""
        return torch.where(chosen.reshape(*self.batch, *(1,) * (x.dim() - len(self.batch))), x, y)


def length(v: Tensor, axis: int = -1) -> Tensor:
    """Measures vectors, without squares that over- or underflow."""
    top = v.abs().amax(axis, keepdim=True)
    return (torch.linalg.vector_norm(v / nonzero(top), dim=axis, keepdim=True) * top).squeeze(axis)


def nonzero(size: Tensor) -> Tensor:
    """Returns sizes to divide by: 1 for none."""
    return torch.where(size > 0, size, 1.0)


def cost(r: Tensor) -> Tensor:
    """Halves the squared length of the residual."""
    return r.square().sum(-1) / 2


def _residuals_claims() -> Iterator[Claim]:
    """The laws that the Jacobian and the length obey."""

    def bent(x: Tensor) -> Tensor:
        return torch.cat([x.sin() * x.roll(1, -1), x[..., :1].exp()], -1)

    def turned(g: Tensor) -> Tensor:
        return g.square().flatten(-2)

    def jacobian(x: Tensor) -> Tensor:
        return Problems.at(bent, x, group=None, steps=0, tolerance=None)[0].jacobian(x)

    def one_by_one(x: Tensor) -> Tensor:
        return torch.stack([torch.func.jacfwd(bent)(point) for point in x])

    def jacobian_on_rotations(g: Tensor) -> Tensor:
        return Problems.at(turned, g, group=SO3(), steps=0, tolerance=None)[0].jacobian(g)

    def by_generators(g: Tensor) -> Tensor:
        moved = g[..., None, :, :] @ SO3().hat(torch.eye(3).to(g))
        return (2 * g[..., None, :, :] * moved).flatten(-2).mT

    yield Claim(agreement(other=one_by_one), jacobian, transformed(torch.tanh, "b 3"), name="Problems.jacobian")
    rotations = transformed(SO3().exp, "b 3")
    yield Claim(agreement(other=by_generators), jacobian_on_rotations, rotations, name="Problems.jacobian on SO(3)")
    yield Claim(agreement(other=lambda v: torch.linalg.vector_norm(v, dim=-1)), length, shape("b 3"))

    def told(x: Tensor) -> Tensor:
        """Whether steps of these parts of the point, in each of which the residual ends so much smaller, settle it."""
        eps = torch.finfo(x.dtype).eps
        problems, r = Problems.at(torch.clone, x, group=None, steps=0, tolerance=None)
        steps = ((eps, 1.0), (20 * eps, 1.0), (eps, 0.5), (eps**2, 0.5))
        return torch.stack([problems.settled(x, r, change=part * r, after=left * r) for part, left in steps]).to(x)

    positive = transformed(lambda x: 1 + x.tanh().abs(), "b 3")
    yield Claim(
        agreement(other=lambda x: x.new_tensor([[1], [0], [0], [1]]).expand(4, len(x))),
        told,
        positive,
        name="Problems.settled",
    )

    def stationary(x: Tensor) -> Tensor:
        problems, r = Problems.at(torch.clone, x, group=None, steps=0, tolerance=0.1)
        side = x.roll(1, -1) * x.new_tensor([1, -1, 0])
        across = side - x * (x * side).sum(-1, keepdim=True) / x.square().sum(-1, keepdim=True)
        pairs = ((across + x / 1000, -2 * across), (across + x, across - x), (across, x))
        along = [torch.stack(pair, -1) for pair in pairs]
        return torch.stack([problems.stationary(r, j) for j in along]).to(x)

    yield Claim(
        agreement(other=lambda x: x.new_tensor([[1], [0], [0]]).expand(3, len(x))),
        stationary,
        positive,
        name="Problems.stationary",
    )


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


def _gauss_newton_claims() -> Iterator[Claim]:
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

    regular = transformed(well_conditioned, "b 4 3")
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

    once = (transformed(well_conditioned, "b:1..2 4 3"), transformed(torch.tanh, "b:1..2 4"))
    yield Claim(replace(agreement(other=least), cases=20), told, once, name="gauss_newton, what it reports")

    def downhill(x: Tensor) -> Tensor:
        found = gauss_newton(torch.exp, x[..., None])
        return torch.stack([found.x[..., 0], found.steps.to(x), found.converged.to(x)])

    for_ever = agreement(other=lambda x: torch.stack([x - 50, 0 * x + 50, 0 * x]))
    yield Claim(replace(for_ever, cases=10), downhill, transformed(torch.tanh, "b:1..2"), name="gauss_newton of exp")
    affine = agreement(other=two_steps_in_other_coordinates)
    coordinates = (transformed(torch.tanh, "b 3"), transformed(well_conditioned, "b 3 3"))
    yield Claim(affine, two_steps, coordinates, name="gauss_newton, two steps")
    yield Claim(batch_independence(), lambda x: gauss_newton(_bent, x, steps=2).x, shape("b 3"), name="gauss_newton")
    rotations = replace(agreement(other=SO3().exp), cases=20)
    yield Claim(rotations, turned_back, transformed(below_a_radian, "b 3"), name="gauss_newton on SO(3)")


@torch.no_grad()
def levenberg_marquardt(
    residual: Residual,
    x: Tensor,
    *,
    group: Moves | None = None,
    steps: int = 100,
    tolerance: float | None = None,
    damping: float = 1e-3,
) -> Minimum:
    r"""Minimises the length of a residual by steps that are as long as its linear part can be trusted.

    $$\delta = \arg\min_\delta \lVert r + J \delta \rVert^2 + \mu \lVert D \delta \rVert^2, \qquad
    \rho = \frac{\lVert r(x) \rVert^2 - \lVert r(x + \delta) \rVert^2}
    {\lVert r \rVert^2 - \lVert r + J \delta \rVert^2}$$

    $D$ is diagonal: the largest length that each column of $J$ has had, so that the units of a coordinate make no
    difference. The damping does what a trust region $\lVert D \delta \rVert \le \Delta$ does, whose multiplier it is.
    The gain $\rho$ compares what a step brought with what the linear part promised. A step that brings nothing is
    taken back and $\mu$ doubles, then quadruples, and so on; one that does is kept and
    $\mu \leftarrow \mu \max(\tfrac13, 1 - (2 \rho - 1)^3)$. The cost never grows, and the Jacobian may be singular. All
    else is as in `gauss_newton`; a step to where the residual is not finite is taken back too.

    Reference:
        Marquardt, *An algorithm for least-squares estimation of nonlinear parameters*, 1963; Nielsen, *Damping
        parameter in Marquardt's method*, 1999.

    Args:
        residual: $r$, from (*batch, n), or (*batch, *element) on a group, to (*batch, m): a function that PyTorch can
            differentiate, in which each of the batch depends on its own point only.
        x: Where to start.
        group: The group that $x$ is of, with `exp`, `compose` and `dim`; its elements are tensors, real or complex.
        steps: The largest number of steps, those that are taken back included.
        tolerance: Of the cosine; the two thirds power of the machine epsilon unless given.
        damping: The first $\mu$, without units.

    Examples:
        >>> found = levenberg_marquardt(lambda x: x.exp() - 2, torch.tensor([-5.0], dtype=torch.float64))
        >>> found.x, found.converged
        (tensor([0.6931], dtype=torch.float64), tensor(True))
    """
    if not 0 < damping < float("inf"):
        raise ValueError(f"damping is to be finite and above 0: got {damping}")
    problems, r = Problems.at(residual, x, group=group, steps=steps, tolerance=tolerance)
    eps = torch.finfo(x.dtype).eps
    done = torch.zeros(problems.batch, dtype=torch.bool, device=x.device)
    tried = torch.zeros_like(done, dtype=torch.long)
    mu, growth = torch.full_like(r[..., 0], damping), torch.full_like(r[..., 0], 2.0)
    largest: Tensor | None = None
    for _ in range(steps):
        j = problems.jacobian(x)
        done = done | problems.stationary(r, j)
        if bool(done.all()):
            break
        largest = length(j, -2) if largest is None else torch.maximum(largest, length(j, -2))
        d, unit = nonzero(largest), nonzero(length(r))[..., None]
        a, b = j / d[..., None, :], r / unit
        floor = (eps + a.shape[-1] * (4 * sum(a.shape[-2:]) * eps) ** 2) * a.square().sum(-2).amax(-1)
        mu = torch.maximum(mu, floor).clamp(torch.finfo(x.dtype).tiny, eps**-2)
        y = torch.zeros_like(a[..., 0, :])
        y[~done] = ridge(a[~done], -b[~done], penalty=mu[~done])
        trial = problems.where(done, x, problems.moved(x, unit * y / d))
        after = residual(trial)
        change = torch.einsum("...mn,...n->...m", a, y)
        promised, brought = cost(b) - cost(b + change), cost(b) - cost(after / unit)
        gain = (brought / promised).nan_to_num(0.0).clamp(0, 1)
        kept = brought >= -4 * eps * cost(b)
        mu = torch.where(kept, mu * (1 - (2 * gain - 1) ** 3).clamp_min(1 / 3), mu * growth)
        growth = torch.where(kept, 2.0, 2 * growth)
        tried = tried + ~done
        done = done | problems.settled(x, r, change=unit * change, after=after)
        x, r = problems.where(kept, trial, x), torch.where(kept[..., None], after, r)
    return Minimum(x, cost(r), tried, done)


def _valley(x: Tensor) -> Tensor:
    """Rosenbrock's valley, with a floor: steep walls, a bend, and no zero."""
    u, v = x.unbind(-1)
    return torch.stack([3 * (v - u.square()), 1 - u, 1 + v / 10], -1)


@law("c_{s+1} ≤ c_s", cases=20, discover_with=None)
def costs_shrink(f: Map, x: Tensor) -> Statement:
    """The costs, in the order of the steps along the last axis, only ever shrink."""
    costs = f(x)
    return AtMost(costs[..., 1:], costs[..., :-1])


@law("|cos(J_i, r)| ≤ 1e-3 at f(x), for every column of J = Dr", cases=20, discover_with=None)
def gradient_vanishes(f: Map, x: Tensor, *, residual: Residual) -> Statement:
    """At what the method returns, the residual is at right angles to its derivative by each coordinate."""
    found = f(x)
    j = torch.stack([torch.func.jacfwd(residual)(point) for point in found])
    r = residual(found)
    sizes = j.norm(dim=-2) * r.norm(dim=-1, keepdim=True)
    return AtMost(torch.einsum("bmn,bm->bn", j, r).abs(), 1e-3 * sizes)


def _levenberg_marquardt_claims() -> Iterator[Claim]:
    """The laws that Levenberg-Marquardt obeys."""

    def costs(x: Tensor) -> Tensor:
        return torch.stack([levenberg_marquardt(_valley, x, steps=n).cost for n in range(4)], -1)

    def bottom(x: Tensor) -> Tensor:
        return levenberg_marquardt(_valley, x, steps=15).x

    def of_linear(a: Tensor, b: Tensor) -> Tensor:
        def linear(x: Tensor) -> Tensor:
            return (a @ x[..., None])[..., 0] - b

        return levenberg_marquardt(linear, torch.zeros_like(a[..., 0, :]), damping=1e-4, steps=3).x

    def shortest(a: Tensor, b: Tensor) -> Tensor:
        """The shortest solution, each coordinate measured by the length of its column."""
        d = a.norm(dim=-2)
        return (torch.linalg.pinv(a / d[..., None, :]) @ b[..., None])[..., 0] / d

    def three_steps(x: Tensor, s: Tensor) -> Tensor:
        return levenberg_marquardt(_valley, x, steps=3).x

    def three_steps_in_other_units(x: Tensor, s: Tensor) -> Tensor:
        return s * levenberg_marquardt(lambda y: _valley(s * y), x / s, steps=3).x

    near = transformed(torch.tanh, "b 2")
    book = replace(agreement(other=lambda x: torch.stack([_by_the_book(p) for p in x])), cases=10)
    six = transformed(lambda x: 3 * x.tanh(), "b:1..2 2")
    yield Claim(book, lambda x: levenberg_marquardt(_valley, x, steps=6).x, six, name="levenberg_marquardt, six steps")
    units = transformed(lambda z: (5 * z.tanh()).exp(), "b 2")
    other = replace(agreement(other=three_steps_in_other_units), cases=20)
    yield Claim(other, three_steps, (near, units), name="levenberg_marquardt, in any units")
    yield Claim(costs_shrink(), costs, near, name="levenberg_marquardt")
    yield Claim(gradient_vanishes(residual=_valley), bottom, near, name="levenberg_marquardt")
    wide = (transformed(well_conditioned, "b 2 3"), shape("b 2"))
    yield Claim(agreement(other=shortest, rtol=1e-4), of_linear, wide, name="levenberg_marquardt, linear")


def _by_the_book(x: Tensor) -> Tensor:
    """Six steps from one point, by the normal equations."""
    mu, growth, d = 1e-3, 2.0, torch.zeros_like(x)
    for _ in range(6):
        r, j = _valley(x), torch.func.jacrev(_valley)(x)
        d = torch.maximum(d, j.square().sum(0).sqrt())
        delta = torch.linalg.solve(j.T @ j + mu * torch.diag(d.square()), -j.T @ r)
        brought, promised = (r.square().sum() - s.square().sum() for s in (_valley(x + delta), r + j @ delta))
        gain = float((brought / promised).nan_to_num(0.0))
        if brought >= 0:
            x, mu, growth = x + delta, mu * max(1 / 3, 1 - (2 * gain - 1) ** 3), 2.0
        else:
            mu, growth = mu * growth, 2 * growth
    return x


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _residuals_claims()
    yield from _gauss_newton_claims()
    yield from _levenberg_marquardt_claims()
