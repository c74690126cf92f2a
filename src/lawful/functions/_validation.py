"""What functions ask of a matrix, and whether anything can be seen of its values."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

Answer = TypeVar("Answer")


def matrix(a: Tensor) -> Tensor:
    """Returns the matrix, a batch of them in front or not, or says that it is none of real numbers."""
    if a.dim() < 2 or not a.is_floating_point():
        raise TypeError(f"a matrix of real numbers is wanted: got {a.dtype} of shape {tuple(a.shape)}")
    return a


def square(a: Tensor) -> Tensor:
    """Returns the matrix if it has as many rows as columns, or says that it has not."""
    if matrix(a).shape[-2] != a.shape[-1]:
        raise TypeError(f"a square matrix is wanted: got {a.shape[-2]} x {a.shape[-1]}")
    return a


def where_values_are_seen(check: Callable[..., Answer]) -> Callable[..., Answer | None]:
    """Makes a check of values one that passes where none can be looked at: in compiled code and in `torch.vmap`."""

    @wraps(check)
    def checked(*args: Any) -> Answer | None:
        if torch.compiler.is_compiling():
            return None
        try:
            return check(*args)
        except RuntimeError as error:
            if "vmap" not in str(error):
                raise
            return None

    return checked


@where_values_are_seen
def any_true(mask: Tensor) -> bool:
    """Says whether anything is true; not so where values cannot be looked at."""
    return bool(mask.any())
