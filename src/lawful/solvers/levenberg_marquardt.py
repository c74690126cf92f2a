"""Levenberg-Marquardt: Gauss-Newton on a leash, which lengthens as long as the linear part can be trusted."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from lawful.functions.decompositions.examples import well_conditioned
from lawful.functions.least_squares import ridge
from lawful.laws import AtMost, Claim, Map, Statement, agreement, law, made, shape
from lawful.solvers.residuals import Minimum, Moves, Problems, Residual, cost


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

    $$\delta = \arg\min_\delta \lVert r + J \delta \rVert^2 + \mu \lVert \delta \rVert^2, \qquad
    \rho = \frac{\lVert r(x) \rVert^2 - \lVert r(x + \delta) \rVert^2}
    {\lVert r \rVert^2 - \lVert r + J \delta \rVert^2}$$

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
        group: The group that $x$ is of, with `exp`, `compose` and `dim`.
        steps: The largest number of steps, those that are taken back included.
        tolerance: The two thirds power of the machine epsilon unless given.
        damping: The first $\mu$, as a part of the largest entry on the diagonal of $J^\top J$.

    Examples:
        >>> found = levenberg_marquardt(lambda x: x.exp() - 2, torch.tensor([-5.0], dtype=torch.float64))
        >>> found.x, found.converged
        (tensor([0.6931], dtype=torch.float64), tensor(True))
    """
    if not damping > 0:
        raise ValueError(f"damping is to be above 0: got {damping}")
    problems, r = Problems.at(residual, x, group=group, tolerance=tolerance)
    kind = torch.finfo(x.dtype)
    done = torch.zeros(problems.batch, dtype=torch.bool, device=x.device)
    tried = torch.zeros_like(done, dtype=torch.long)
    growth = torch.full_like(cost(r), 2.0)
    mu: Tensor | None = None
    for _ in range(steps):
        j = problems.jacobian(x)
        done = done | problems.stationary(r, j)
        if bool(done.all()):
            break
        steepest = j.square().sum(-2).amax(-1)
        mu = torch.maximum(damping * steepest if mu is None else mu, kind.eps * steepest).clamp_min(kind.tiny)
        delta = torch.zeros_like(j[..., 0, :])
        delta[~done] = ridge(j[~done], -r[~done], penalty=mu[~done])
        trial = problems.where(done, x, problems.moved(x, delta))
        s = residual(trial)
        promised = cost(r) - cost(r + torch.einsum("...mn,...n->...m", j, delta))
        gain = ((cost(r) - cost(s)) / promised).nan_to_num(0.0).clamp(0, 1)
        kept = cost(s) <= cost(r) * (1 + 4 * kind.eps)
        mu = torch.where(kept, mu * (1 - (2 * gain - 1) ** 3).clamp_min(1 / 3), mu * growth)
        growth = torch.where(kept, 2.0, 2 * growth)
        short = problems.short(x, delta)
        problems.finite(torch.where(short[..., None], s, r), "next to x")
        x, r = problems.where(kept, trial, x), torch.where(kept[..., None], s, r)
        tried = tried + ~done
        done = done | short
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
        return (torch.linalg.pinv(a) @ b[..., None])[..., 0]

    near = made(torch.tanh, "b 2")
    yield Claim(costs_shrink(), costs, near, name="levenberg_marquardt")
    yield Claim(gradient_vanishes(residual=_valley), bottom, near, name="levenberg_marquardt")
    wide = (made(well_conditioned, "b 2 3"), shape("b 2"))
    yield Claim(agreement(other=shortest, within=1e-4), of_linear, wide, name="levenberg_marquardt, linear")
