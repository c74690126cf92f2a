"""The two interfaces a law works with: `Draw`, its source of random choices, and `Map`, the function under test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from lawful.laws._tree import Key
from lawful.laws.statements import Region

_Option = TypeVar("_Option")


class RejectCase(Exception):
    """Rejects a case that does not test the law: an empty range, or an assumption that does not hold."""


class Draw(ABC):
    """A source of random choices, which the checker varies, replays and shrinks.

    Tensors have the dtype of the run and the device of the map. A law takes all its randomness from here, so that
    the same seed gives the same counterexample.
    """

    samples: int
    """Number of samples that a statistical law draws."""

    @abstractmethod
    def integer(self, low: int, high: int, name: str = "") -> int:
        """Draws an integer from `low` to `high`, both included. Shrinks towards `low`.

        An empty range rejects the case. A named integer appears in the report.
        """

    @abstractmethod
    def normal(self, *shape: int) -> Tensor:
        """Draws independent standard normal entries."""

    @abstractmethod
    def values(self, *shape: int) -> Tensor:
        """Draws entries in one of the styles that reveal bugs: normal, one-hot, repeated, peaky, tiny, zero, ..."""

    @abstractmethod
    def like(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """Draws new values with the shape and the domain of the input `x` (real numbers, tokens, a mask).

        With `where`, only the selected entries are new.
        """

    @abstractmethod
    def inputs(self) -> tuple[Tensor, ...]:
        """Draws all inputs again, with other sizes; for laws about every input."""

    @abstractmethod
    def permutation(self, n: int) -> Tensor:
        """Draws a permutation of 0 to n - 1, of shape (n,). It is not the identity; n < 2 rejects the case."""

    @abstractmethod
    def observe(self, name: str, value: float) -> None:
        """Records a number; the report shows the largest value."""

    def boolean(self, name: str = "") -> bool:
        """Draws True or False. Shrinks towards False."""
        return bool(self.integer(0, 1, name))

    def choice(self, options: Sequence[_Option], name: str = "") -> _Option:
        """Draws one of the options. Shrinks towards the first."""
        return options[self.integer(0, len(options) - 1, name)]

    def assume(self, condition: bool | Tensor) -> None:
        """Rejects the case unless the condition, in every entry, is true."""
        if not bool(torch.as_tensor(condition).all()):
            raise RejectCase

    def replace(self, x: Tensor, region: Region) -> Tensor:
        """Returns `x` with new values in a region. An empty region rejects the case."""
        where = region(x).expand_as(x)
        self.assume(where.any())
        return self.like(x, where)


@runtime_checkable
class Map(Protocol):
    """The module or function under test, as a map from the law's inputs to the law's output.

    Inputs that the law does not name keep their drawn values. Every call starts from the same buffers and random
    state and gets copies of its inputs, so that calls differ only by the changes of the law.
    """

    def __call__(self, *inputs: Any) -> Any:
        """Returns the output: a tensor, or a tuple of all tensors for a law about every output."""

    def output(self, key: Key) -> Map:
        """Returns the map to another output."""

    def method(self, method: str | Callable[..., Any]) -> Map:
        """Returns a method of the module, or any function, as a map that is called with its arguments alone."""

    def with_function(self, function: str | Callable[..., Any]) -> Map:
        """Returns another function, or a method of the module, as a map of the same inputs to its first output."""

    def wrapped(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Map:
        """Returns the map with its function replaced by `wrapper(function)`."""

    def modified(self, change: Callable[[Any], object]) -> Map:
        """Returns the map after `change(target)`, which is applied before every call and undone afterwards."""

    def cast(self, dtype: torch.dtype) -> Map:
        """Returns the map with inputs, parameters and buffers cast to `dtype`."""

    def with_layout(self, layout: str) -> Map:
        """Returns the map on inputs with a memory layout: `"contiguous"`, `"transposed"` or `"strided"`."""

    def eval(self) -> Map:
        """Returns the map in eval mode."""

    def with_seed(self, seed: int) -> Map:
        """Returns the map with another random seed."""

    def call_sequence(self, *calls: tuple[Any, ...]) -> list[Any]:
        """Calls the map several times without a reset in between; returns the outputs."""

    def raw_output(self, *inputs: Any) -> Any:
        """Returns the whole output of a call, such as a tensor and a state."""

    def arguments_for(self, *inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the positional and keyword arguments of a call."""
        ...

    def input_axes(self, axis: int) -> list[tuple[int, ...]]:
        """Returns, for every input of the law, the axes that are the same as `axis` of the first input.

        Axes with the same letter are the same: for inputs `b t 8`, `b t` and `t t`, axis 1 is (1,), (1,) and (0, 1).
        """
        ...

    def stateful(self) -> Map:
        """Returns the map without the reset between calls: state carries over."""
        ...

    def inputs_after(self, *inputs: Any) -> tuple[Any, ...]:
        """Returns the inputs as they are after a call."""

    def parameters_after(self, *inputs: Any) -> dict[str, Tensor]:
        """Returns the parameters by name as they are after a call."""
        ...

    def buffers_after(self, *inputs: Any) -> dict[str, Tensor]:
        """Returns the buffers by name as they are after a call."""
        ...

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The buffers by name."""
        ...

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters that require a gradient, by name."""
        ...

    def with_parameters(self, values: Mapping[str, Tensor]) -> Map:
        """Returns the map with other values of some parameters."""

    @property
    def target(self) -> Any:
        """The module or function itself."""
        ...
