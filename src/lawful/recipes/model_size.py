"""Sizes that would need more memory than any machine has are refused before it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

MOST = 2 * 10**9
"""The largest number of weights that is built."""


def check_parameter_count(builders: Iterable[Callable[[], nn.Module]], *, copies: int = 1) -> None:
    """Counts the weights of models without memory for them.

    Args:
        builders: What builds each model.
        copies: How many of each there are.

    Raises:
        ValueError: where there are too many.

    Examples:
        >>> check_parameter_count([lambda: nn.Linear(10**5, 10**5)])
        Traceback (most recent call last):
        ValueError: at most 2,000,000,000 weights were wanted: these sizes give 10,000,100,000
    """
    with torch.device("meta"):
        models = (build() for build in builders)
        count = copies * sum(t.numel() for model in models for t in (*model.parameters(), *model.buffers()))
    if count > MOST:
        raise ValueError(f"at most {MOST:,} weights were wanted: these sizes give {count:,}")
