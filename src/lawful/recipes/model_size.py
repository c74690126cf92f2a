"""Limits on model sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

_MAX_PARAMETERS = 2 * 10**9
"""Largest number of parameters and buffer entries of a model."""


def _check_parameter_count(builders: Iterable[Callable[[], nn.Module]], *, copies: int = 1) -> None:
    """Counts the parameters of models on the meta device, without allocating memory.

    Args:
        builders: Functions that build the models.
        copies: Number of copies of each model.

    Raises:
        ValueError: If there are more than `_MAX_PARAMETERS`.

    Examples:
        >>> _check_parameter_count([lambda: nn.Linear(10**5, 10**5)])
        Traceback (most recent call last):
        ValueError: the model has 10,000,100,000 parameters, at most 2,000,000,000 are supported: choose smaller sizes
    """
    with torch.device("meta"):
        models = (build() for build in builders)
        count = copies * sum(t.numel() for model in models for t in (*model.parameters(), *model.buffers()))
    if count > _MAX_PARAMETERS:
        raise ValueError(
            f"the model has {count:,} parameters, at most {_MAX_PARAMETERS:,} are supported: choose smaller sizes"
        )
