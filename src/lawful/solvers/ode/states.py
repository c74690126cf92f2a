"""States of a differential equation: a tensor, or several that move together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor

State = TypeVar("State", Tensor, tuple[Tensor, ...])
Field = Callable[[State, Tensor], State]
"""From a state and a time to how fast the state changes."""


@dataclass(frozen=True, eq=False)
class Solution(Generic[State]):
    """Where a differential equation led, and what it cost."""

    x: State
    """The state at the end."""
    evaluations: int
    """How often the field was called."""


def parts(x: State) -> tuple[Tensor, ...]:
    """Returns the tensors of a state."""
    return x if isinstance(x, tuple) else (x,)


def alike(x: State, tensors: Iterable[Tensor]) -> State:
    """Returns tensors as a state of the kind of another."""
    tensors = tuple(tensors)
    return tensors if isinstance(x, tuple) else tensors[0]  # pyrefly: ignore


def moved(x: State, h: Tensor | float, rates: Sequence[State], weights: Sequence[float]) -> State:
    r"""Returns $x + h \sum_j w_j k_j$; $h$ is a number, or one for each sample."""
    used = [(parts(k), weight) for k, weight in zip(rates, weights, strict=False) if weight]
    return alike(x, (_moved(part, h, [(k[i], weight) for k, weight in used]) for i, part in enumerate(parts(x))))


def _moved(x: Tensor, h: Tensor | float, used: list[tuple[Tensor, float]]) -> Tensor:
    if not used:
        return x
    total = used[0][1] * used[0][0]
    for k, weight in used[1:]:
        total = total + weight * k
    if isinstance(h, Tensor):
        return x + h.to(x.dtype).reshape(-1, *(1,) * (x.dim() - 1)) * total
    return x + h * total


def finite(x: State, what: str) -> State:
    """Returns the state, and refuses one that is not finite."""
    if not all(bool(part.isfinite().all()) for part in parts(x)):
        raise ValueError(f"{what} is to be finite: got NaN or infinity")
    return x
