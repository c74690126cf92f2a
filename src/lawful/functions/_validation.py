"""Checks of arguments, shared by functions, groups, losses and inference."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def check_matrix(a: Tensor) -> Tensor:
    """Returns `a` if it is a matrix, or a batch of matrices, of real numbers.

    Raises:
        TypeError: If it has fewer than two dimensions or another dtype.
    """
    if a.dim() < 2 or not a.is_floating_point():
        raise TypeError(f"expected a real matrix of shape (*batch, m, n), got {a.dtype} of shape {tuple(a.shape)}")
    return a


def check_square(a: Tensor) -> Tensor:
    """Returns `a` if it is a square matrix, or a batch of square matrices.

    Raises:
        TypeError: If it is not a real square matrix.
    """
    if check_matrix(a).shape[-2] != a.shape[-1]:
        raise TypeError(f"expected a square matrix, got shape {tuple(a.shape)}")
    return a


def check_same_size(x: Tensor, y: Tensor, *, dim: int = -1) -> None:
    """Raises ValueError if `x` and `y` differ in size along `dim`; size 1 is not broadcast."""
    dim = dim if dim < 0 else dim - max(x.dim(), y.dim())
    sizes = [t.shape[dim] if t.dim() >= -dim else 1 for t in (x, y)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"expected vectors of equal size along dim {dim}, got {tuple(x.shape)} and {tuple(y.shape)}")


def unless_traced(check: Callable[..., T]) -> Callable[..., T | None]:
    """Makes a check of values return None where values are not available: `torch.compile`, `torch.vmap`, `make_fx`."""

    @wraps(check)
    def checked(*args: Any) -> T | None:
        if torch.compiler.is_compiling():
            return None
        try:
            return check(*args)
        except RuntimeError as error:
            if "vmap" not in str(error) and "tracing tensor" not in str(error):
                raise
            return None

    return checked


@unless_traced
def any_true(mask: Tensor) -> bool:
    """Returns whether any entry is True; falsy where values are not available."""
    return bool(mask.any())
