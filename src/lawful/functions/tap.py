"""Taps: the names of what a module computes on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from torch import Tensor

from lawful.laws import Claim, agreement, shape


@runtime_checkable
class Recorder(Protocol):
    """What hears of every tap while it is open."""

    def wants(self, name: str) -> bool:
        """Says whether the value of this name, in the module that is running, is asked for."""
        ...

    def heard(self, name: str, x: Tensor) -> Tensor:
        """Takes the value of a name; the computation goes on with what is returned."""
        ...


_open: list[Recorder] = []


def tap(name: str, x: Tensor) -> Tensor:
    r"""Returns its input, and lets the open recorders see it, or put another in its place.

    $$\operatorname{tap}(x) = x \quad \text{unless a recorder is open}$$

    It names a value in the middle of a module, as in `scores = tap("scores", q @ k.mT)`, so that `record` can find it
    there. It compiles, leaves no trace in the state dict, and costs far less than a microsecond while no
    recorder is open.

    Args:
        name: What the value is called within its module.
        x: The value.

    Examples:
        >>> import torch
        >>> tap("scores", torch.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """
    if not _open:
        return x
    for recorder in tuple(_open):
        x = recorder.heard(name, x)
    return x


def is_recorded(*names: str) -> bool:
    """Says whether an open recorder asks for one of these names in the module that is running.

    What only a recorder would look at is then computed on demand.

    Args:
        names: What the values are called within their module.

    Examples:
        >>> is_recorded("scores", "pattern")
        False
    """
    if not _open:
        return False
    wanted = [recorder.wants(name) for recorder in tuple(_open) for name in names]  # every recorder hears of every name
    return any(wanted)


@contextmanager
def open_recorder(recorder: Recorder) -> Iterator[None]:
    """Keeps a recorder open for as long as the block lasts, however it ends.

    Recorders may be nested: the one that was opened first hears first, and the next hears what it returned.

    Args:
        recorder: What is to hear of the taps.
    """
    _open.append(recorder)
    try:
        yield
    finally:
        del _open[next(i for i in reversed(range(len(_open))) if _open[i] is recorder)]


class _Affine:
    """A recorder that puts a x + b in the place of the values of one name."""

    def __init__(self, name: str, a: float, b: float) -> None:
        self.name, self.a, self.b = name, a, b

    def wants(self, name: str) -> bool:
        return name == self.name

    def heard(self, name: str, x: Tensor) -> Tensor:
        return self.a * x + self.b if self.wants(name) else x


def claims() -> Iterator[Claim]:
    """The laws that taps obey."""

    def block(x: Tensor) -> Tensor:
        y = tap("square", x * x)
        return tap("sum", x + y) + (100 if is_recorded("sum", "difference") else 0)

    def edited(x: Tensor) -> Tensor:
        with (
            open_recorder(_Affine("square", 2.0, 0.0)),
            open_recorder(_Affine("square", 1.0, 3.0)),
            open_recorder(_Affine("sum", -1.0, 0.0)),
        ):
            return block(x)

    def after(x: Tensor) -> Tensor:
        edited(x)
        return block(x)

    def by_hand(x: Tensor) -> Tensor:
        return 100 - (x + 2 * x**2 + 3)

    yield Claim(agreement(other=lambda x: x + x * x), block, shape("b 4"), name="no recorder open")
    yield Claim(agreement(other=by_hand), edited, shape("b 4"), name="three recorders open")
    yield Claim(agreement(other=lambda x: x + x * x), after, shape("b 4"), name="recorders closed again")
