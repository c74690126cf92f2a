"""Modes: which modules of a model are in training while it is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(model: object, classes: tuple[type[nn.Module], ...] = ()) -> Iterator[None]:
    """Puts modules of some classes in training mode and all others in evaluation mode, and each back afterwards.

    Args:
        model: The model; anything but a module is left alone.
        classes: The classes in training; none by default.

    Examples:
        >>> model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3))
        >>> with eval_mode(model, (nn.Dropout,)):
        ...     [module.training for module in model]
        [True, False]
        >>> [module.training for module in model]
        [True, True]
    """
    modes = {module: module.training for module in (model.modules() if isinstance(model, nn.Module) else ())}
    try:
        for module in modes:
            module.training = isinstance(module, classes)
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
