"""Levenberg-Marquardt: Gauss-Newton on a leash, which lengthens as long as the linear part can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from lawful.functions.decompositions.examples import well_conditioned
from lawful.functions.least_squares import ridge
from lawful.laws import AtMost, Claim, Map, Statement, agreement, law, made, shape
from lawful.solvers.residuals import Minimum, Moves, Problems, Residual, cost, length, nonzero


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


@law("c_{s+1} ≤ c_s", cases=20, tries=None)
def costs_shrink(f: Map, x: Tensor) -> Statement:
    """The costs, in the order of the steps along the last axis, only ever shrink."""
    costs = f(x)
    return AtMost(costs[..., 1:], costs[..., :-1])


@law("|cos(J_i, r)| ≤ 1e-3 at f(x), for every column of J = Dr", cases=20, tries=None)
def gradient_vanishes(f: Map, x: Tensor, *, residual: Residual) -> Statement:
    """At what the method returns, the residual is at right angles to its derivative by each coordinate."""
    found = f(x)
    j = torch.stack([torch.func.jacfwd(residual)(point) for point in found])
    r = residual(found)
    sizes = j.norm(dim=-2) * r.norm(dim=-1, keepdim=True)
    return AtMost(torch.einsum("bmn,bm->bn", j, r).abs(), 1e-3 * sizes)


def claims() -> Iterator[Claim]:
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

    near = made(torch.tanh, "b 2")
    book = replace(agreement(other=lambda x: torch.stack([_by_the_book(p) for p in x])), cases=10)
    six = made(lambda x: 3 * x.tanh(), "b:1..2 2")
    yield Claim(book, lambda x: levenberg_marquardt(_valley, x, steps=6).x, six, name="levenberg_marquardt, six steps")
    units = made(lambda z: (5 * z.tanh()).exp(), "b 2")
    other = replace(agreement(other=three_steps_in_other_units), cases=20)
    yield Claim(other, three_steps, (near, units), name="levenberg_marquardt, in any units")
    yield Claim(costs_shrink(), costs, near, name="levenberg_marquardt")
    yield Claim(gradient_vanishes(residual=_valley), bottom, near, name="levenberg_marquardt")
    wide = (made(well_conditioned, "b 2 3"), shape("b 2"))
    yield Claim(agreement(other=shortest, within=1e-4), of_linear, wide, name="levenberg_marquardt, linear")


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
