"""What a law may state: the few kinds of statement, which the checker judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Values = Tensor | Sequence[Tensor]
"""One tensor, or several that are judged one by one."""

Region = Callable[[Tensor], Tensor]
"""From a tensor to a boolean one that broadcasts to it: the entries that a statement speaks of."""


@dataclass(frozen=True, eq=False)
class Equal:
    """States that `left` equals `right`, entry by entry, up to rounding.

    Args:
        where: The entries spoken of; all of them by default.
        atol: An error that the law itself knows of and can bound, such as that of a finite difference.
        exact: Whether both sides come from the same arithmetic on the same numbers, so that nothing but a
            dependence can tell them apart by more than rounding: a jump at a tie is not excused.
        exercised: Whether the statement put the map to the test. By default it did if the map was called
            with more than one input, state or mode, or alongside another map.
        names: What the report calls each of several tensors.
    """

    left: Values
    right: Values
    where: Region | Tensor | None = None
    atol: Tensor | float = 0.0
    exact: bool = False
    exercised: bool | None = None
    names: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class AtMost:
    """States that `left` is at most `right`, entry by entry, up to rounding.

    Args:
        where: The entries spoken of; all of them by default.
        ignore_noise: Whether the sides are themselves about rounding, so that no further noise is allowed for.
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
        include_extremes: Whether that is said of extreme inputs too: zero, constant, tiny and huge ones.
    """

    value: Values
    include_extremes: bool = False
    exercised: bool | None = True


@dataclass(frozen=True, eq=False)
class BitwiseEqual:
    """States that every bit is as it was."""

    before: Values
    after: Values
    exercised: bool | None = True
    names: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class FollowsCDF:
    """States that independent samples, of shape (n,), have the cumulative distribution function `cdf`.

    The uniform distribution on [0, 1] by default.
    """

    samples: Tensor
    cdf: Callable[[Tensor], Tensor] = lambda u: u.clamp(0, 1)
    exercised: bool | None = True


@dataclass(frozen=True, eq=False)
class HasMean:
    """States that independent samples, of shape (n,), have an expectation."""

    samples: Tensor
    mean: Tensor
    exercised: bool | None = True


@dataclass(frozen=True, eq=False)
class Occurs:
    """States that each of several things happens in some case, if not in this one.

    Args:
        names: What is to happen.
        occurred: Whether it did, one by one.
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
    """Speaks of the entries at positions 0 to `t` along `axis`."""
    return lambda y: index_along(y, axis) <= t


def at(i: int, *, axis: int) -> Region:
    """Speaks of the entries at position `i` along `axis`."""
    return lambda y: index_along(y, axis) == i


def between(first: int, end: int, *, axis: int) -> Region:
    """Speaks of the entries at positions `first` to `end - 1` along `axis`."""
    return lambda y: (index_along(y, axis) >= first) & (index_along(y, axis) < end)
