"""What a run tells others while it goes, and how: those that cannot be reached do not stop it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lawful.training.plan import Training
    from lawful.training.run import Run


@runtime_checkable
class Tracker(Protocol):
    """Receives the figures of a run: anything with these three methods will do.

    Examples:
        Keep the smallest loss:

        >>> class Smallest:
        ...     def start(self, run, training):
        ...         self.loss = float("inf")
        ...
        ...     def log(self, step, figures):
        ...         self.loss = min(self.loss, figures["loss"])
        ...
        ...     def close(self):
        ...         pass
        >>> tracker = Smallest()
        >>> isinstance(tracker, Tracker)
        True
    """

    def start(self, run: Run, training: Training) -> None:
        """Begins, before the first step, or before the next one of a run that is resumed."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Takes the figures after a step: `loss`, `learning_rate` and more.

        Those of an evaluation begin with `validation/`. It is called at every step: it is quick, or seldom does much.
        """

    def close(self) -> None:
        """Ends, also after an error or an interruption."""


class Trackers:
    """Tells several trackers the same; one that cannot be reached is told no more, and the training goes on.

    Args:
        told: The trackers.
        say: Where to say that one is told no more.
    """

    def __init__(self, told: list[Tracker], say: Callable[[str], None]) -> None:
        self.told, self.say = told, say

    def start(self, run: Run, training: Training) -> None:
        """Lets all begin."""
        for tracker in self.told:
            tracker.start(run, training)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Tells all the figures after a step."""
        for tracker in self.told:
            try:
                tracker.log(step, figures)
            except OSError as error:  # a dashboard that cannot be reached is not to end the training
                self.told = [other for other in self.told if other is not tracker]
                self.say(f"{type(tracker).__name__} is told no more: {type(error).__name__}: {error}")

    def close(self) -> None:
        """Lets all end; one that cannot is not to keep others from it."""
        for tracker in self.told:
            with suppress(Exception):
                tracker.close()
