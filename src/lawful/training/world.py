"""The processes that train together; here: one, by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from lawful.data.batches import Batch
from lawful.training.setup import TrainingSetup


class SingleProcess:
    """One process with the whole model and the whole batch."""

    rank = 0
    size = 1
    command = "lawful"

    def setup(self, training: TrainingSetup, *, device: str) -> None:
        """Takes the model and the turns that it is to call."""
        self.training, self.model, self.device = training, training.model, device

    def share(self, batch: Batch) -> tuple[Batch, float]:
        """Returns this process's part of a batch, and its size relative to an equal part."""
        return batch, 1.0

    def parts(self, batch: Batch) -> int:
        """Returns in how many parts every process takes its share of a batch."""
        return min(self.training.grad_accumulation_steps, len(batch[0]))

    def call(self, turn: int, part: Batch) -> Tensor | Mapping[str, Tensor]:
        """Returns the objective of a turn."""
        return self.training.optimizer_steps[turn].loss_fn(self.model, part)

    def together(self, *, last: bool) -> AbstractContextManager[object]:
        """Within it, a backward pass averages gradients over processes if it is the last of a step."""
        return nullcontext()

    def mean(self, figures: dict[str, float], weight: float) -> dict[str, float]:
        """Returns the mean of figures over processes, each with its weight."""
        return figures

    def settle(self, weight: float) -> None:
        """Makes buffers that a step changed, such as running means, the same in every process."""

    def evaluate(self) -> Mapping[str, float]:
        """Returns the figures of the model, the same in every process."""
        return self.training.evaluate(self.model) if self.training.evaluate else {}

    def any(self, flag: bool) -> bool:
        """Says whether a flag is set in any process."""
        return flag

    def first(self, text: str | None) -> str | None:
        """Returns the text of the first process that has one."""
        return text

    def wait(self) -> None:
        """Waits until every process is here."""

    def like(self, name: str, shape: Sequence[int]) -> Tensor | None:
        """Returns the shared-out tensor that a tensor of a checkpoint is shared out as, if it is."""
        return None

    def whole(self) -> nn.Module:
        """Returns the model with all of its weights, in the first process, to be used by that process alone."""
        return self.model

    def went_wrong(self, error: BaseException, sentence: str | None, *, step: int) -> str | None:
        """Says what went wrong anywhere; it is nothing where another process says it."""
        return sentence

    def leave(self, *, failed: bool) -> None:
        """Ends what the processes have in common."""
