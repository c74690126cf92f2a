"""What a run tells others while it goes: the protocol, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
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
