"""Preconditions and comparisons that several laws share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Inapplicable
from lawful.laws.statements import index_along


def axis_size(x: Tensor, axis: int, name: str = "axis") -> int:
    """Returns the size of `axis`.

    Raises:
        ValueError: If the input has no such axis; the message contains the name of the law's parameter.
    """
    if not -x.dim() <= axis < x.dim():
        raise ValueError(f"{name}={axis} is out of range for an input of shape {tuple(x.shape)}")
    return x.shape[axis]


def require_real(x: Tensor) -> Tensor:
    """Returns the input if it is floating point."""
    if not x.is_floating_point():
        raise Inapplicable(f"expected a floating-point input, got {x.dtype}")
    return x


def require_axis(y: Tensor, x: Tensor, axis: int, name: str = "axis") -> Tensor:
    """Returns the output `y` if it has the same size along `axis` as the input `x`."""
    n = axis_size(x, axis, name)
    if not -y.dim() <= axis < y.dim() or y.shape[axis] != n:
        raise Inapplicable(
            f"the output and the input have different sizes along axis {axis}: "
            f"input shape {tuple(x.shape)}, output shape {tuple(y.shape)}"
        )
    return y


def last_mask(xs: Sequence[Tensor]) -> int:
    """Returns the index of the mask, the last boolean input."""
    found = [k for k, x in enumerate(xs) if x.dtype is torch.bool]
    if not found:
        raise Inapplicable(f"expected a boolean mask among the inputs, got {', '.join(str(x.dtype) for x in xs)}")
    return found[-1]


def replace_along(
    f: Map, xs: Sequence[Tensor], axis: int, selected: Callable[[Tensor], Tensor], draw: Draw
) -> list[Tensor]:
    """Returns the inputs with new values at the selected positions along an axis of the first input.

    In an input that has the axis twice, such as an attention mask, one selected position is enough.
    """

    def replace(x: Tensor, axes: tuple[int, ...]) -> Tensor:
        where = selected(index_along(x, axes[0]))
        for other in axes[1:]:
            where = where | selected(index_along(x, other))
        return draw.replace(x, lambda _: where)

    return [replace(x, axes) for x, axes in zip(xs, f.input_axes(axis), strict=True)]


def transform_along(f: Map, xs: Sequence[Tensor], axis: int, function: Callable[[Tensor, int], Tensor]) -> list[Tensor]:
    """Returns the inputs after `function(x, axis)`, for an axis of the first input and the same axes of the others."""
    found = []
    for x, axes in zip(xs, f.input_axes(axis), strict=True):
        for same in axes:
            x = function(x, same)
        found.append(x)
    return found


def is_positive(distance: Tensor, p: Tensor, q: Tensor, bound: Tensor | float = 0.0) -> Tensor:
    """Returns 1 where a distance is above `bound` or p and q are very close, else 0."""
    axes = tuple(range(distance.dim(), p.dim()))
    gap = (p - q).abs()
    far = (gap.amax(axes) if axes else gap.reshape(distance.shape)) > 1e-3
    return torch.where(distance.isfinite(), torch.where(far, (distance > bound).to(distance), 1.0), distance)
