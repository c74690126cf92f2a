"""What the decompositions ask of a matrix, and whether an answer can be had from its values."""

from __future__ import annotations

import torch
from torch import Tensor


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


def seen(mask: Tensor) -> bool:
    """Says whether anything is true; no where values cannot be looked at: in compiled code and inside `torch.vmap`."""
    if torch.compiler.is_compiling():
        return False
    try:
        return bool(mask.any())
    except RuntimeError as error:
        if "vmap" not in str(error):
            raise
        return False
