"""Taps: named values inside of a module, for recording and patching."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from torch import Tensor

from lawful.laws import Claim, agreement, shape


@runtime_checkable
class Recorder(Protocol):
    """Receives the value of every tap while it is open."""

    def wants(self, name: str) -> bool:
        """Returns whether the recorder needs the value `name` of the running module."""
        ...

    def on_value(self, name: str, x: Tensor) -> Tensor:
        """Receives the value of a tap, and returns the value to continue with."""
        ...


_recorders: list[Recorder] = []


def tap(name: str, x: Tensor) -> Tensor:
    r"""Returns its input, and lets the open recorders see or replace it.

    $$\operatorname{tap}(x) = x \quad \text{if no recorder is open}$$

    It names a value inside of a module, as in `scores = tap("scores", q @ k.mT)`, so that `record` finds it. It
    compiles, leaves no trace in the state dict, and takes far less than a microsecond if no recorder is open.

    Args:
        name: Name of the value within its module.
        x: Value.

    Examples:
        >>> import torch
        >>> tap("scores", torch.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """
    if not _recorders:
        return x
    for recorder in tuple(_recorders):
        x = recorder.on_value(name, x)
    return x


def is_recorded(*names: str) -> bool:
    """Returns whether an open recorder needs one of the named values of the running module.

    A module can then compute what only a recorder looks at.

    Args:
        names: Names of values within their module.

    Examples:
        >>> is_recorded("scores", "pattern")
        False
    """
    if not _recorders:
        return False
    expected = [
        recorder.wants(name) for recorder in tuple(_recorders) for name in names
    ]  # ask every recorder every name
    return any(expected)


def is_recording() -> bool:
    """Returns whether any recorder is open.

    Examples:
        >>> is_recording()
        False
    """
    return bool(_recorders)


@contextmanager
def open_recorder(recorder: Recorder) -> Iterator[None]:
    """Context manager that keeps a recorder open.

    Recorders can be nested: the first one opened receives a value first, the next one receives its return value.

    Args:
        recorder: Recorder that receives the taps.
    """
    _recorders.append(recorder)
    try:
        yield
    finally:
        del _recorders[next(i for i in reversed(range(len(_recorders))) if _recorders[i] is recorder)]


def claims() -> Iterator[Claim]:
    """Laws of taps."""
    yield Claim(agreement(other=lambda x: x), lambda x: tap("x", x), shape("b 4"), name="tap, no recorder open")
