"""A context manager for eval mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(model: object, train_classes: tuple[type[nn.Module], ...] = ()) -> Iterator[None]:
    """Switches a model to eval mode, except modules of `train_classes`, and restores all modes on exit.

    Args:
        model: The model. Nothing happens if it is not an `nn.Module`.
        train_classes: Classes of modules to switch to training mode instead, such as `nn.Dropout`.

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
            module.training = isinstance(module, train_classes)
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
