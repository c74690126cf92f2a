"""Tall matrices in pieces that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

ENTRIES = 2**18
"""How many entries a piece has: two megabytes of float64."""


def pieces(x: Tensor) -> tuple[Tensor, ...]:
    """Splits a tensor along its first axis into views of at most `ENTRIES` entries, or one row each."""
    return x.split(max(1, ENTRIES // max(1, x[:1].numel())))


def for_numpy(*tensors: Tensor) -> bool:
    """Says whether NumPy may work on the memory of tensors: of one type that it has, with no gradient asked for."""
    kinds = {(x.dtype, x.device.type, x.requires_grad) for x in tensors}
    return len(kinds) == 1 and kinds <= {(dtype, "cpu", False) for dtype in (torch.float32, torch.float64)}


def row_by_row(function: Callable[..., Any], x: Tensor, mean: Tensor, factor: Tensor) -> Tensor:
    """Returns `function(x, mean, factor)`, of the shape of `x`, computed by NumPy in pieces where that can be.

    NumPy allocates large arrays in huge pages, and PyTorch does not: that is half of the time.
    """
    if x.dim() == mean.dim() or not for_numpy(x, mean, factor):
        return function(x, mean, factor)
    y = torch.from_numpy(np.empty(x.shape, dtype=x.numpy().dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        for rows, out in zip(pieces(x), pieces(y), strict=True):
            out.numpy()[...] = function(rows.numpy(), mean.numpy(), factor.numpy())
    return y
