"""Nonlinear least squares on vectors and Lie groups: Gauss-Newton and Levenberg-Marquardt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lawful.functions.linalg import ridge, solve_by_qr
from lawful.groups.so3 import SO3
from lawful.laws import Claim, agreement, batch_independence, shape, transformed

Residual = Callable[[Tensor], Tensor]
"""Function from points (*batch, n) to residuals (*batch, m); problems of a batch are independent."""


@runtime_checkable
class SupportsExp(Protocol):
    """Lie group of the unknowns, such as a `lawful.groups.LieGroup`."""

    @property
    def dim(self) -> int: ...

    def exp(self, v: Tensor) -> Tensor: ...

    def compose(self, g: Tensor, h: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class LeastSquaresResult:
    """Solution of a batch of least-squares problems."""

    x: Tensor
    """Solution, of shape (*batch, n), or (*batch, *element) on a group."""
    cost: Tensor
    r"""$\tfrac12 \lVert r(x) \rVert^2$, of shape (*batch,)."""
    num_steps: Tensor
    """Number of attempted steps, of shape (*batch,)."""
    converged: Tensor
    """Whether the problem converged within the maximum number of steps, of shape (*batch,)."""


@torch.no_grad()
def gauss_newton(
    residual: Residual, x0: Tensor, *, group: SupportsExp | None = None, max_steps: int = 50, tol: float | None = None
) -> LeastSquaresResult:
    r"""Minimizes a sum of squares by Gauss-Newton steps.

    $$\min_x \tfrac12 \lVert r(x) \rVert^2, \qquad \delta = \arg\min_\delta \lVert r(x) + J \delta \rVert, \quad
    x \leftarrow x + \delta$$

    On a group, $x \leftarrow x \exp(\delta)$ and $J$ is the derivative of $r(x \exp(\delta))$ at $\delta = 0$. It
    converges quadratically near a small residual and may diverge far away: see `levenberg_marquardt`. Steps are
    invariant under linear changes of coordinates. Each problem of a batch stops on its own: if the cosine between the
    residual and every column of $J$ is below `tol`, or if a step is below rounding. A problem with a rank-deficient $J$
    stops at its current point, not converged. A residual that is not finite raises an error.

    Args:
        residual: Differentiable residual $r$, from (*batch, n), or (*batch, *element) on a group, to (*batch, m).
        x0: Initial point.
        group: Lie group of $x$; its elements are real or complex tensors.
        max_steps: Maximum number of steps.
        tol: Tolerance of the cosine. Defaults to the machine epsilon to the power of 2/3.

    Examples:
        >>> result = gauss_newton(lambda x: x.square() - 2, torch.tensor([1.0], dtype=torch.float64))
        >>> result.x, result.converged
        (tensor([1.4142], dtype=torch.float64), tensor(True))
    """
    problems, r = _Problems.initialize(residual, x0, group=group, max_steps=max_steps, tol=tol)
    x, done = x0, torch.zeros(problems.batch, dtype=torch.bool, device=x0.device)
    singular, num_steps = torch.zeros_like(done), torch.zeros_like(done, dtype=torch.long)
    for _ in range(max_steps):
        j = problems.jacobian(x)
        done = done | problems.is_stationary(r, j)
        delta, dependent = solve_by_qr(j, -r)
        singular = singular | (dependent & ~done)
        stopped = done | singular
        if bool(stopped.all()):
            break
        delta = torch.where(stopped[..., None], 0.0, delta)
        moved = problems.where(stopped, x, problems.step(x, delta))
        new_r = problems.check_finite(residual(moved), "after a step")
        change = torch.einsum("...mn,...n->...m", j, delta)
        done = done | (problems.below_rounding(x, r, change=change, new_r=new_r) & ~stopped)
        x, r, num_steps = moved, new_r, num_steps + ~stopped
    return LeastSquaresResult(x, _cost(r), num_steps, done)


@torch.no_grad()
def levenberg_marquardt(
    residual: Residual,
    x0: Tensor,
    *,
    group: SupportsExp | None = None,
    max_steps: int = 100,
    tol: float | None = None,
    damping: float = 1e-3,
) -> LeastSquaresResult:
    r"""Minimizes a sum of squares by damped Gauss-Newton steps.

    $$\delta = \arg\min_\delta \lVert r + J \delta \rVert^2 + \mu \lVert D \delta \rVert^2, \qquad
    \rho = \frac{\lVert r(x) \rVert^2 - \lVert r(x + \delta) \rVert^2}
    {\lVert r \rVert^2 - \lVert r + J \delta \rVert^2}$$

    $D$ is diagonal with the largest norm of each column of $J$ so far, which makes the method independent of the units
    of the coordinates. The damping $\mu$ is the multiplier of a trust region $\lVert D \delta \rVert \le \Delta$. The
    gain $\rho$ compares the actual with the predicted decrease. A step that increases the cost is rejected and $\mu$ is
    multiplied by 2, 4, 8, ...; otherwise $\mu \leftarrow \mu \max(\tfrac13, 1 - (2 \rho - 1)^3)$. The cost never
    increases, and the Jacobian may be singular. A step to a residual that is not finite is rejected. Stopping is as in
    `gauss_newton`.

    Reference:
        Marquardt, *An algorithm for least-squares estimation of nonlinear parameters*, 1963; Nielsen, *Damping
        parameter in Marquardt's method*, 1999.

    Args:
        residual: Differentiable residual $r$, from (*batch, n), or (*batch, *element) on a group, to (*batch, m).
        x0: Initial point.
        group: Lie group of $x$; its elements are real or complex tensors.
        max_steps: Maximum number of steps, rejected ones included.
        tol: Tolerance of the cosine. Defaults to the machine epsilon to the power of 2/3.
        damping: Initial damping $\mu$, dimensionless.

    Examples:
        >>> result = levenberg_marquardt(lambda x: x.exp() - 2, torch.tensor([-5.0], dtype=torch.float64))
        >>> result.x, result.converged
        (tensor([0.6931], dtype=torch.float64), tensor(True))
    """
    if not 0 < damping < float("inf"):
        raise ValueError(f"expected a finite damping > 0, got {damping}")
    problems, r = _Problems.initialize(residual, x0, group=group, max_steps=max_steps, tol=tol)
    x, eps = x0, torch.finfo(x0.dtype).eps
    done = torch.zeros(problems.batch, dtype=torch.bool, device=x.device)
    num_steps = torch.zeros_like(done, dtype=torch.long)
    mu, growth = torch.full_like(r[..., 0], damping), torch.full_like(r[..., 0], 2.0)
    column_norms: Tensor | None = None
    for _ in range(max_steps):
        j = problems.jacobian(x)
        done = done | problems.is_stationary(r, j)
        if bool(done.all()):
            break
        column_norms = _norm(j, -2) if column_norms is None else torch.maximum(column_norms, _norm(j, -2))
        d, unit = _nonzero(column_norms), _nonzero(_norm(r))[..., None]
        a, b = j / d[..., None, :], r / unit
        floor = (eps + a.shape[-1] * (4 * sum(a.shape[-2:]) * eps) ** 2) * a.square().sum(-2).amax(-1)
        mu = torch.maximum(mu, floor).clamp(torch.finfo(x.dtype).tiny, eps**-2)
        y = torch.zeros_like(a[..., 0, :])
        y[~done] = ridge(a[~done], -b[~done], penalty=mu[~done])
        trial = problems.where(done, x, problems.step(x, unit * y / d))
        new_r = residual(trial)
        change = torch.einsum("...mn,...n->...m", a, y)
        predicted, actual = _cost(b) - _cost(b + change), _cost(b) - _cost(new_r / unit)
        gain = (actual / predicted).nan_to_num(0.0).clamp(0, 1)
        accepted = actual >= -4 * eps * _cost(b)
        mu = torch.where(accepted, mu * (1 - (2 * gain - 1) ** 3).clamp_min(1 / 3), mu * growth)
        growth = torch.where(accepted, 2.0, 2 * growth)
        num_steps = num_steps + ~done
        done = done | problems.below_rounding(x, r, change=unit * change, new_r=new_r)
        x, r = problems.where(accepted, trial, x), torch.where(accepted[..., None], new_r, r)
    return LeastSquaresResult(x, _cost(r), num_steps, done)


@dataclass(frozen=True, eq=False)
class _Problems:
    """A batch of least-squares problems over vectors or group elements."""

    residual: Residual
    group: SupportsExp | None
    tol: float
    batch: torch.Size

    @staticmethod
    def initialize(
        residual: Residual, x: Tensor, *, group: SupportsExp | None, max_steps: int, tol: float | None
    ) -> tuple[_Problems, Tensor]:
        """Validates the arguments; returns the problems and the initial residual."""
        if not isinstance(x, Tensor):
            raise TypeError(
                f"expected x0 to be a tensor (products of groups are not supported), got {type(x).__name__}"
            )
        if not (x.is_floating_point() or (group and x.is_complex())) or not x.numel():
            raise ValueError(f"expected a floating-point x0 with entries, got {x.dtype} of shape {tuple(x.shape)}")
        if not bool(x.isfinite().all()):
            raise ValueError("expected a finite x0, got NaN or infinity")
        tol = torch.finfo(x.dtype).eps ** (2 / 3) if tol is None else tol
        if max_steps < 0 or not 0 <= tol < 1:
            raise ValueError(f"expected max_steps >= 0 and 0 <= tol < 1, got max_steps={max_steps}, tol={tol}")
        r = residual(x)
        batch = r.shape[:-1]
        matches = r.dim() and x.shape[: len(batch)] == batch and (group or x.dim() == r.dim())
        if not matches or not r.numel() or r.dtype != x.real.dtype:
            raise ValueError(
                f"expected a residual of shape (*batch, m) and dtype {x.real.dtype} for x0 of shape {tuple(x.shape)},"
                f" got {tuple(r.shape)} and {r.dtype}"
            )
        problems = _Problems(residual, group, tol, batch)
        return problems, problems.check_finite(r, "at x0")

    def check_finite(self, r: Tensor, where: str) -> Tensor:
        bad = ~r.isfinite().all(-1)
        if bool(bad.any()):
            raise ValueError(f"the residual {where} is not finite in {int(bad.sum())} of {bad.numel()} problems")
        return r

    def step(self, x: Tensor, delta: Tensor) -> Tensor:
        r"""$x + \delta$, or $x \exp(\delta)$ on a group."""
        return x + delta if self.group is None else self.group.compose(x, self.group.exp(delta))

    def jacobian(self, x: Tensor) -> Tensor:
        r"""The derivative of the residual by a step, for all problems at once, (*batch, m, n).

        A column is $J e_i$, the derivative of $c \mapsto J^\top c$ applied to $e_i$: two reverse passes, which more
        operations support than forward mode, at the same cost.
        """
        n = x.shape[-1] if self.group is None else self.group.dim
        zero = x.real.new_zeros(*self.batch, n)
        r, pullback, *_ = torch.func.vjp(lambda delta: self.residual(self.step(x, delta)), zero)
        _, pushforward, *_ = torch.func.vjp(lambda c: pullback(c)[0], torch.zeros_like(r))
        axes = torch.eye(n, dtype=zero.dtype, device=x.device)
        j = torch.func.vmap(lambda axis: pushforward(axis.expand_as(zero))[0])(axes).movedim(0, -1)
        self.check_finite(j.flatten(-2), "has a Jacobian that")
        return j

    def is_stationary(self, r: Tensor, j: Tensor) -> Tensor:
        """Whether the residual is zero, or orthogonal to every column of its Jacobian."""
        columns, direction = j / _nonzero(_norm(j, -2))[..., None, :], r / _nonzero(_norm(r))[..., None]
        cosines = torch.einsum("...mn,...m->...n", columns, direction)
        return (cosines.abs() <= self.tol).all(-1)

    def below_rounding(self, x: Tensor, r: Tensor, *, change: Tensor, new_r: Tensor) -> Tensor:
        r"""Whether a step predicts less change than rounding $x$ does, and the cost has stopped decreasing.

        A step far below rounding counts regardless of the cost. Both are measured in the residual, so that the result
        does not depend on units.

        Args:
            x: Point before the step.
            r: Residual before the step.
            change: $J \delta$.
            new_r: Residual after the step.
        """
        entries = x.reshape(*self.batch, -1)
        weights = 2 + torch.arange(entries.shape[-1], device=x.device).to(r).cos()  # so that nothing cancels
        eps = torch.finfo(x.dtype).eps
        rounded = (entries * (1 + 2 * eps * weights)).reshape(x.shape)
        noise = (self.residual(rounded) - r).nan_to_num(0.0, 0.0, 0.0)
        decreases = _norm(new_r) < (1 - eps ** (1 / 3)) * _norm(r)
        return _norm(change) <= torch.where(decreases, eps, 1.0) * _norm(noise)

    def where(self, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return torch.where(condition.reshape(*self.batch, *(1,) * (x.dim() - len(self.batch))), x, y)


def _norm(v: Tensor, axis: int = -1) -> Tensor:
    """Euclidean norm without over- or underflow of squares."""
    top = v.abs().amax(axis, keepdim=True)
    return (torch.linalg.vector_norm(v / _nonzero(top), dim=axis, keepdim=True) * top).squeeze(axis)


def _nonzero(size: Tensor) -> Tensor:
    return torch.where(size > 0, size, 1.0)


def _cost(r: Tensor) -> Tensor:
    return r.square().sum(-1) / 2


def claims() -> Iterator[Claim]:
    """Problems of a batch do not mix; rotations are recovered."""

    def nonlinear(x: Tensor) -> Tensor:
        return torch.cat([x + x.sin() / 2, x.roll(1, -1).cos() - 3], -1)

    def recover_rotation(v: Tensor) -> Tensor:
        targets = SO3().exp(v)
        start = torch.eye(3).to(v).expand_as(targets)
        return gauss_newton(lambda g: (g - targets).flatten(-2), start, group=SO3(), max_steps=5).x

    for solver in (gauss_newton, levenberg_marquardt):

        def two_steps(x: Tensor, solver: Callable[..., LeastSquaresResult] = solver) -> Tensor:
            return solver(nonlinear, x, max_steps=2).x

        yield Claim(replace(batch_independence(), cases=20), two_steps, shape("b 3"), name=solver.__name__)
    small = transformed(lambda x: 0.4 * x / (1 + x.norm(dim=-1, keepdim=True)), "b 3")
    exact = replace(agreement(other=SO3().exp), cases=20)
    yield Claim(exact, recover_rotation, small, name="gauss_newton on SO(3)")
