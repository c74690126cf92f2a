"""Where a law and an input description take their choices from.

The map that a law speaks of, as the law sees it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from lawful.laws._tree import Key
from lawful.laws.statements import Region

Choice = TypeVar("Choice")


class RejectCase(Exception):
    """Ends a case that has nothing to say: an empty range, an antecedent that does not hold."""


class Draw(ABC):
    """A source of choices. The checker varies them, replays them, and shrinks them to the simplest that fail.

    Tensors come in the precision of the run and on the device of the map. Whatever is random in a law has to
    come from here: then the same seed gives the same counterexample.
    """

    samples: int
    """How many samples a statistical law should take."""

    @abstractmethod
    def integer(self, low: int, high: int, name: str = "") -> int:
        """Draws an integer from `low` to `high`, both included; shrinks towards `low`.

        An empty range discards the case. With a name it stands in the report.
        """

    @abstractmethod
    def normal(self, *shape: int) -> Tensor:
        """Draws independent standard normal entries: a direction, a cotangent, the seed of a group element."""

    @abstractmethod
    def values(self, *shape: int) -> Tensor:
        """Draws entries in one of the styles that hide bugs: normal, one-hot, repeated, peaky, tiny, zero, ..."""

    @abstractmethod
    def like(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """Draws new values of the kind that the input `x` has (real numbers, tokens, a mask), in its shape.

        With `where`, only those entries are new.
        """

    @abstractmethod
    def inputs(self) -> tuple[Tensor, ...]:
        """Draws all inputs once more, in other sizes; for a law that speaks of every input."""

    @abstractmethod
    def permutation(self, n: int) -> Tensor:
        """Draws a permutation of 0 to n - 1, other than the identity if there is one; shape (n,)."""

    @abstractmethod
    def observe(self, name: str, value: float) -> None:
        """Says a number that the report should know the largest value of."""

    def boolean(self, name: str = "") -> bool:
        """Draws yes or no; shrinks towards no."""
        return bool(self.integer(0, 1, name))

    def choice(self, options: Sequence[Choice], name: str = "") -> Choice:
        """Draws one of the options; shrinks towards the first."""
        return options[self.integer(0, len(options) - 1, name)]

    def assume(self, condition: bool | Tensor) -> None:
        """Discards the case unless the condition (every entry of it) holds."""
        if not bool(torch.as_tensor(condition).all()):
            raise RejectCase

    def replace(self, x: Tensor, region: Region) -> Tensor:
        """Returns `x` with fresh values in a region, and discards the case if the region is empty."""
        where = region(x).expand_as(x)
        self.assume(where.any())
        return self.like(x, where)


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

    def with_function(self, other: Callable[..., Any]) -> Map:
        """Another map, called with the same inputs and read at its first output."""

    def wrapped(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]], said: str = "") -> Map:
        """The same map, called through a wrapper of it; `said` is that in Python, such as `"torch.compile({f})"`."""

    def modified(self, change: Callable[[Any], object], said: str = "", *tensors: Tensor) -> Map:
        """The same map after something was done to it.

        `said` is that in Python, such as `"{f}.train()"` or, with a tensor, `"{f}({0})"`.
        """

    def cast(self, dtype: torch.dtype) -> Map:
        """The same map with its inputs, parameters and buffers in another precision."""

    def with_layout(self, layout: str) -> Map:
        """The same map on inputs that are `"contiguous"`, `"transposed"` or `"strided"` in memory."""

    def eval(self) -> Map:
        """The same map in evaluation mode."""

    def with_seed(self, seed: int) -> Map:
        """The same map, started from another random state."""

    def call_sequence(self, *calls: tuple[Any, ...]) -> list[Any]:
        """Calls one after another, each with its inputs, with nothing put back in between."""

    def raw_output(self, *inputs: Any) -> Any:
        """Returns all that a call returns, as it is: a tensor and a state, say."""

    def arguments_for(self, *inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments of a call."""
        ...

    def stateful(self) -> Map:
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
