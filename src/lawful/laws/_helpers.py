"""Preconditions and comparisons that several laws share."""

from __future__ import annotations

import torch
from torch import Tensor

from lawful.laws.law import Inapplicable


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


def is_positive(distance: Tensor, p: Tensor, q: Tensor, bound: Tensor | float = 0.0) -> Tensor:
    """Returns 1 where a distance is above `bound` or p and q are very close, else 0."""
    axes = tuple(range(distance.dim(), p.dim()))
    gap = (p - q).abs()
    far = (gap.amax(axes) if axes else gap.reshape(distance.shape)) > 1e-3
    return torch.where(distance.isfinite(), torch.where(far, (distance > bound).to(distance), 1.0), distance)
