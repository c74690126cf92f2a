"""Early stopping: the best value so far, and how long ago it was."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class EarlyStopping:
    """Records the best value, and says when none has come for long. Its fields are numbers, for JSON.

    NaN and infinity are never the best.

    Examples:
        >>> record = EarlyStopping(patience=2)
        >>> for step, loss in enumerate([3.0, 1.0, 2.0, 2.0]):
        ...     record = record.seen(loss, step)
        >>> record.best, record.step, record.stop
        (1.0, 1, True)
    """

    patience: int | None = None
    """How many evaluations without a better value are enough; None never stops."""
    higher_is_better: bool = False
    """Whether larger is better."""
    best: float | None = None
    """The best value so far."""
    step: int | None = None
    """The step that gave it."""
    since: int = 0
    """Evaluations since then."""

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience is at least 1: got {self.patience}")

    def seen(self, value: float, step: int) -> EarlyStopping:
        """The record after one more evaluation."""
        better = self.best is None or (value > self.best if self.higher_is_better else value < self.best)
        if better and math.isfinite(value):
            return replace(self, best=value, step=step, since=0)
        return replace(self, since=self.since + 1)

    @property
    def improved(self) -> bool:
        """Whether the last evaluation is the best."""
        return self.best is not None and self.since == 0

    @property
    def stop(self) -> bool:
        """Whether it is time to stop."""
        return self.patience is not None and self.since >= self.patience
