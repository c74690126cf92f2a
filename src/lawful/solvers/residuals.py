"""Nonlinear least squares: what its methods share, a batch of problems and how far each has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lawful.groups.rotations.so3 import SO3
from lawful.laws import Claim, agreement, made, shape

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


def claims() -> Iterator[Claim]:
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

    yield Claim(agreement(other=one_by_one), jacobian, made(torch.tanh, "b 3"), name="Problems.jacobian")
    rotations = made(SO3().exp, "b 3")
    yield Claim(agreement(other=by_generators), jacobian_on_rotations, rotations, name="Problems.jacobian on SO(3)")
    yield Claim(agreement(other=lambda v: torch.linalg.vector_norm(v, dim=-1)), length, shape("b 3"))

    def told(x: Tensor) -> Tensor:
        """Whether steps of these parts of the point, in each of which the residual ends so much smaller, settle it."""
        eps = torch.finfo(x.dtype).eps
        problems, r = Problems.at(torch.clone, x, group=None, steps=0, tolerance=None)
        steps = ((eps, 1.0), (20 * eps, 1.0), (eps, 0.5), (eps**2, 0.5))
        return torch.stack([problems.settled(x, r, change=part * r, after=left * r) for part, left in steps]).to(x)

    positive = made(lambda x: 1 + x.tanh().abs(), "b 3")
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
