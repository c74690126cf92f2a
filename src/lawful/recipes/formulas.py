"""Formulas to learn: what a network that is laid out well shows the structure of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Task:
    """A formula to learn, and how its authors trained it."""

    inputs: int
    formulas: tuple[str, ...]
    values: Callable[[Tensor], tuple[Tensor, ...]]
    """From the columns to the values of the formulas."""
    hidden: tuple[int, ...] = (20, 20)
    rise: float = 10.0
    """By how much the penalty counts more from a quarter of the steps on."""
    fall: float = 10.0
    """By how much it counts less from three quarters on."""
    published: float
    """The test loss that the authors got, with one seed and 100 test examples."""


TASKS: Mapping[str, Task] = {
    "independence": Task(
        inputs=4,
        formulas=("(a + c)³", "b² + sin πd"),
        values=lambda x: ((x[0] + x[2]) ** 3, x[1] ** 2 + (torch.pi * x[3]).sin()),
        published=7.4e-3,
    ),
    "feature-sharing": Task(
        inputs=3,
        formulas=("a²", "a² + b²", "a² + b² + c²"),
        values=lambda x: tuple(x.square().cumsum(0)),
        published=8.5e-5,
    ),
    "compositionality": Task(
        inputs=4,
        formulas=("√((a - b)² + (c - d)²)",),
        values=lambda x: (torch.hypot(x[0] - x[1], x[2] - x[3]),),
        hidden=(20, 20, 20, 20),
        rise=3.0,
        fall=1.0,
        published=1.3e-3,
    ),
}
"""The three formulas of the paper."""
