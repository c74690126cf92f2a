"""Where a law and an input description take their choices from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from lawful.laws.language.statement import Region

Choice = TypeVar("Choice")


class Discard(Exception):
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
    def fresh(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """Draws new values of the kind that the input `x` has (real numbers, tokens, a mask), in its shape.

        With `where`, only those entries are new.
        """

    @abstractmethod
    def another(self) -> tuple[Tensor, ...]:
        """Draws all inputs once more, in other sizes; for a law that speaks of every input."""

    @abstractmethod
    def permutation(self, n: int) -> Tensor:
        """Draws a permutation of 0 to n - 1, other than the identity if there is one; shape (n,)."""

    @abstractmethod
    def observe(self, name: str, value: float) -> None:
        """Says a number that the report should know the largest value of."""

    def flag(self, name: str = "") -> bool:
        """Draws yes or no; shrinks towards no."""
        return bool(self.integer(0, 1, name))

    def choice(self, options: Sequence[Choice], name: str = "") -> Choice:
        """Draws one of the options; shrinks towards the first."""
        return options[self.integer(0, len(options) - 1, name)]

    def assume(self, condition: bool | Tensor) -> None:
        """Discards the case unless the condition (every entry of it) holds."""
        if not bool(torch.as_tensor(condition).all()):
            raise Discard

    def replace(self, x: Tensor, region: Region) -> Tensor:
        """Returns `x` with fresh values in a region, and discards the case if the region is empty."""
        where = region(x).expand_as(x)
        self.assume(where.any())
        return self.fresh(x, where)
