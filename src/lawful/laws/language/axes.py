"""Axes that a law names: their size in the input, and the same axis in the output."""

from __future__ import annotations

from torch import Tensor

from lawful.laws.language.law import Inapplicable


def length(x: Tensor, axis: int, name: str = "axis") -> int:
    """Returns the size of the axis that the law's parameter `name` gives, or says that there is none."""
    if not -x.dim() <= axis < x.dim():
        raise ValueError(f"{name}={axis} is out of range: the input has shape {tuple(x.shape)}")
    return x.shape[axis]


def real(x: Tensor) -> Tensor:
    """Returns the input if it is made of real numbers, or says that the law does not apply."""
    if not x.is_floating_point():
        raise Inapplicable(f"the input is to be made of real numbers: got {x.dtype}")
    return x


def along(y: Tensor, x: Tensor, axis: int, name: str = "axis") -> Tensor:
    """Returns the output `y` if it runs along `axis` as the input `x` does, or says that the law does not apply."""
    n = length(x, axis, name)
    if not -y.dim() <= axis < y.dim() or y.shape[axis] != n:
        raise Inapplicable(
            f"the output does not run along the input's axis {axis}: input {tuple(x.shape)}, output {tuple(y.shape)}"
        )
    return y
