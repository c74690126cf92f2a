"""Ctrl-C: once to finish the step, save and stop; twice to stop at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class Wish:
    """Whether somebody wants the training to stop."""

    def __init__(self) -> None:
        self.by: str | None = None

    def __bool__(self) -> bool:
        return self.by is not None


@contextmanager
def stoppable(say: Callable[[str], None]) -> Iterator[Wish]:
    """Turns the first Ctrl-C, or a request to terminate, into a wish; a second Ctrl-C interrupts as always."""
    wish = Wish()

    def heard(number: int, frame: FrameType | None) -> None:
        if wish:
            raise KeyboardInterrupt
        wish.by = signal.Signals(number).name
        with suppress(Exception):  # a signal may come in the middle of a print, which cannot be begun twice
            say("stopping after this step; once more to stop at once")

    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
