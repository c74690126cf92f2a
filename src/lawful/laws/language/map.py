"""The map that a law speaks of, as the law sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from lawful.laws.language.tree import Key


@runtime_checkable
class Map(Protocol):
    """A module or function, seen as a map from the inputs that the law names to the output that it names.

    Inputs that the law does not name keep their drawn values. Every call starts from the same buffers and the
    same random state, and gets copies of its inputs, so that only what the law changes is different.
    """

    def __call__(self, *inputs: Any) -> Any:
        """Returns the output (a tensor; all of them in a tuple where the law speaks of every output)."""

    def output(self, key: Key) -> Map:
        """The same map, read at another output."""

    def method(self, method: str | Callable[..., Any]) -> Map:
        """Another function of the same object, by name, or any callable; called with just what it is given."""

    def other(self, other: Callable[..., Any]) -> Map:
        """Another map, called with the same inputs and read at its first output."""

    def through(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]], said: str = "") -> Map:
        """The same map, called through a wrapper of it; `said` is that in Python, such as `"torch.compile({f})"`."""

    def after(self, change: Callable[[Any], object], said: str = "", *tensors: Tensor) -> Map:
        """The same map after something was done to it.

        `said` is that in Python, such as `"{f}.train()"` or, with a tensor, `"{f}({0})"`.
        """

    def cast(self, dtype: torch.dtype) -> Map:
        """The same map with its inputs, parameters and buffers in another precision."""

    def laid(self, layout: str) -> Map:
        """The same map on inputs that are `"contiguous"`, `"transposed"` or `"strided"` in memory."""

    def eval(self) -> Map:
        """The same map in evaluation mode."""

    def seeded(self, seed: int) -> Map:
        """The same map, started from another random state."""

    def in_turn(self, *calls: tuple[Any, ...]) -> list[Any]:
        """Calls one after another, each with its inputs, with nothing put back in between."""

    def whole(self, *inputs: Any) -> Any:
        """Returns all that a call returns, as it is: a tensor and a state, say."""

    def arguments_for(self, *inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments of a call."""
        ...

    def running(self) -> Map:
        """The same map, with nothing put back between its calls: each goes on where the one before ended."""
        ...

    def inputs_after(self, *inputs: Any) -> tuple[Any, ...]:
        """Returns the inputs as a call has left them."""

    def parameters_after(self, *inputs: Any) -> dict[str, Tensor]:
        """Returns the parameters as a call has left them, by name."""
        ...

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters that take a gradient, by name."""
        ...

    def with_parameters(self, values: Mapping[str, Tensor]) -> Map:
        """The same map with other values of some parameters."""

    @property
    def target(self) -> Any:
        """The module or function itself."""
        ...
