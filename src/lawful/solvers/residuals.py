"""Nonlinear least squares: what its methods share, a batch of problems and how far each has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

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
    def at(residual: Residual, x: Tensor, *, group: Moves | None, tolerance: float | None) -> tuple[Problems, Tensor]:
        """Looks at the start, refuses one at which the residual is no number, and returns the residual too."""
        if not x.is_floating_point() or not x.numel():
            raise ValueError(f"a start of real numbers is wanted: got {x.dtype} of shape {tuple(x.shape)}")
        if not bool(x.isfinite().all()):
            raise ValueError("a finite start is wanted: got NaN or infinity")
        r = residual(x)
        batch = r.shape[:-1]
        if not r.dim() or r.dtype != x.dtype or x.shape[: len(batch)] != batch or x.dim() == len(batch):
            raise ValueError(
                f"for a start {x.dtype} {tuple(x.shape)} the residual is to have that type and the batch in front,"
                f" (*batch, m): got {r.dtype} {tuple(r.shape)}"
            )
        default = torch.finfo(x.dtype).eps ** (2 / 3)
        problems = Problems(residual, group, default if tolerance is None else tolerance, batch)
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
        zero = x.new_zeros(*self.batch, n)
        r, pull, *_ = torch.func.vjp(lambda delta: self.residual(self.moved(x, delta)), zero)
        _, push, *_ = torch.func.vjp(lambda c: pull(c)[0], torch.zeros_like(r))
        axes = torch.eye(n, dtype=x.dtype, device=x.device)
        return torch.func.vmap(lambda axis: push(axis.expand_as(zero))[0])(axes).movedim(0, -1)

    def stationary(self, r: Tensor, j: Tensor) -> Tensor:
        """Says where the residual is zero, or at right angles to every column of its Jacobian."""
        slopes = torch.einsum("...mn,...m->...n", j, r).abs()
        sizes = torch.linalg.vector_norm(j, dim=-2) * torch.linalg.vector_norm(r, dim=-1, keepdim=True)
        return (slopes <= self.tolerance * sizes).all(-1)

    def short(self, x: Tensor, delta: Tensor) -> Tensor:
        """Says where a step is nothing beside the point that it starts from."""
        size = torch.linalg.vector_norm(x.reshape(*self.batch, -1), dim=-1)
        return torch.linalg.vector_norm(delta, dim=-1) <= self.tolerance * (self.tolerance + size)

    def where(self, chosen: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Takes the points `x` of some problems and the points `y` of the others."""
        return torch.where(chosen.reshape(*self.batch, *(1,) * (x.dim() - len(self.batch))), x, y)


def cost(r: Tensor) -> Tensor:
    """Halves the squared length of the residual."""
    return r.square().sum(-1) / 2
