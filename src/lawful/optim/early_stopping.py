"""Early stopping."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class EarlyStopping:
    """Tracks the best value of a metric and how many evaluations ago it was. All fields are JSON values.

    NaN and infinity are never the best.

    Examples:
        >>> stopping = EarlyStopping(patience=2)
        >>> for step, loss in enumerate([3.0, 1.0, 2.0, 2.0]):
        ...     stopping = stopping.update(loss, step)
        >>> stopping.best, stopping.best_step, stopping.should_stop
        (1.0, 1, True)
    """

    patience: int | None = None
    """Number of evaluations without improvement after which to stop; None never stops."""
    higher_is_better: bool = False
    """Whether higher values are better."""
    best: float | None = None
    """Best value so far."""
    best_step: int | None = None
    """Step of the best value."""
    num_bad_evals: int = 0
    """Number of evaluations since the best."""

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience must be at least 1, got {self.patience}")

    def update(self, value: float, step: int) -> EarlyStopping:
        """Returns the state after one more evaluation."""
        better = self.best is None or (value > self.best if self.higher_is_better else value < self.best)
        if better and math.isfinite(value):
            return replace(self, best=value, best_step=step, num_bad_evals=0)
        return replace(self, num_bad_evals=self.num_bad_evals + 1)

    @property
    def improved(self) -> bool:
        """Whether the last evaluation is the best."""
        return self.best is not None and self.num_bad_evals == 0

    @property
    def should_stop(self) -> bool:
        """Whether `patience` evaluations have not improved the best value."""
        return self.patience is not None and self.num_bad_evals >= self.patience
