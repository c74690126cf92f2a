"""What a part of an optimizer is: something that turns updates into updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple, Protocol

from torch import Tensor


class Point(NamedTuple):
    """Where a step stands: parameters of one device and type, what is kept of each, and the options of their group."""

    params: list[Tensor]
    states: list[dict[str, Tensor]]
    options: Mapping[str, Any]

    def kept(self, name: str) -> list[Tensor]:
        """What is kept under a name, of each parameter."""
        return [state[name] for state in self.states]


class Part(Protocol):
    """A frozen dataclass that turns updates into updates.

    Its fields that are numbers are options, which a group of parameters may set for itself: a part reads them from
    `at.options`, not from itself. It may change what is kept, but not the updates that it is given.
    """

    def start(self, p: Tensor) -> dict[str, Tensor]:
        """What is kept of a parameter, before the first step."""
        ...

    def __call__(self, updates: list[Tensor], at: Point) -> list[Tensor]:
        """The next updates, one for each parameter."""
        ...


def options_of(part: Any) -> dict[str, float]:
    """The fields of a part that are numbers."""
    found = {field.name: getattr(part, field.name) for field in fields(part)}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}
