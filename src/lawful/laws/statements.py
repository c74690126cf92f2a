"""Statements: a law returns one, and the checker judges it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Values = Tensor | Sequence[Tensor]
"""One tensor, or several that are judged one by one."""

Region = Callable[[Tensor], Tensor]
"""Function from a tensor to a boolean mask that broadcasts to it: the entries a statement is about."""


@dataclass(frozen=True, eq=False)
class Equal:
    """States that `left` equals `right`, entry by entry, up to rounding.

    Args:
        where: Entries to compare. Defaults to all.
        atol: Absolute error that the law can bound itself, such as the error of a finite difference.
        exact: Whether both sides run the same arithmetic on the same numbers. If so, only a dependence can make
            them differ by more than rounding, and a jump at a tie is not excused.
        exercised: Whether the statement tests the map. By default it does if the map was called with more than one
            input, state or mode, or together with another map.
        names: Names of the tensors in the report, if there are several.
        causes: For each tensor, what a difference means, such as "the gradient of weight is wrong".
    """

    left: Values
    right: Values
    where: Region | Tensor | None = None
    atol: Tensor | float = 0.0
    exact: bool = False
    exercised: bool | None = None
    names: Sequence[str] = ()
    causes: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class AtMost:
    """States that `left <= right`, entry by entry, up to rounding.

    Args:
        where: Entries to compare. Defaults to all.
        ignore_noise: Whether both sides are rounding errors themselves, so that no noise is allowed on top.
        exercised: Whether the statement tests the map, as in `Equal`.
        names: Names of the tensors in the report, if there are several.
    """

    left: Values
    right: Values
    where: Region | Tensor | None = None
    ignore_noise: bool = False
    exercised: bool | None = True
    names: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Finite:
    """States that no entry is NaN or infinite.

    Args:
        include_extremes: Whether this must also hold for extreme inputs: zero, constant, tiny and huge.
        exercised: Whether the statement tests the map, as in `Equal`.
    """

    value: Values
    include_extremes: bool = False
    exercised: bool | None = True


@dataclass(frozen=True, eq=False)
class BitwiseEqual:
    """States that `after` has the same bits as `before`."""

    before: Values
    after: Values
    exercised: bool | None = True
    names: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class FollowsCDF:
    """States that independent samples, of shape (n,), have the cumulative distribution function `cdf`.

    The default is the uniform distribution on [0, 1].
    """

    samples: Tensor
    cdf: Callable[[Tensor], Tensor] = lambda u: u.clamp(0, 1)
    exercised: bool | None = True


@dataclass(frozen=True, eq=False)
class HasMean:
    """States that independent samples, of shape (n,), have the expectation `mean`."""

    samples: Tensor
    mean: Tensor
    exercised: bool | None = True


@dataclass(frozen=True, eq=False)
class Occurs:
    """States that each of several events occurs in at least one case.

    Args:
        names: Names of the events.
        occurred: Whether each event occurred in this case.
    """

    names: Sequence[str]
    occurred: Sequence[bool]
    exercised: bool | None = True


Statement = Equal | AtMost | Finite | BitwiseEqual | FollowsCDF | HasMean | Occurs


def index_along(x: Tensor, axis: int) -> Tensor:
    """Returns the position along `axis`, in a shape that broadcasts to `x`."""
    shape = [1] * x.dim()
    shape[axis] = x.shape[axis]
    return torch.arange(x.shape[axis], device=x.device).reshape(shape)


def up_to(t: int, *, axis: int) -> Region:
    """Selects positions 0 to `t` along `axis`."""
    return lambda y: index_along(y, axis) <= t


def after(t: int, *, axis: int) -> Region:
    """Selects positions after `t` along `axis`."""
    return lambda y: index_along(y, axis) > t


def at(i: int, *, axis: int) -> Region:
    """Selects position `i` along `axis`."""
    return lambda y: index_along(y, axis) == i


def between(first: int, end: int, *, axis: int) -> Region:
    """Selects positions `first` to `end - 1` along `axis`."""
    return lambda y: (index_along(y, axis) >= first) & (index_along(y, axis) < end)
