"""What is trained, on what, and how: everything that the loop needs.

How a training is run, whatever it trains: where, how exact, how safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from lawful._json import Range, validate
from lawful.data.batches import Batch, BatchSource
from lawful.laws import Claim

Objective = Callable[[nn.Module, Batch], Tensor | Mapping[str, Tensor]]
"""From the model and a batch to the mean loss over its examples; or a mapping with it as `loss`, and more figures."""


def unchanged(step: int) -> float:
    """The schedule that leaves the learning rate as it is."""
    return 1.0


@dataclass(frozen=True, kw_only=True)
class OptimizerStep:
    """An objective and the optimizer that lowers it. A step takes every turn once; most trainings have one."""

    objective: Objective
    """The loss, from the model and a batch."""
    optimizer: torch.optim.Optimizer
    """What changes its own parameters, and no others."""
    schedule: Callable[[int], float] = unchanged
    """The factor of the learning rate at a step, counted from 0."""
    clip: float | None = None
    """The largest norm of the gradient; a longer one is shortened to it."""
    name: str = ""
    """What its figures are called, where there are several turns."""


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """A model, its turns and its batches, and what happens to them from the first step to the last."""

    model: nn.Module
    """What is trained."""
    turns: Sequence[OptimizerStep]
    """What a step does: one turn, or several for several players."""
    batches: BatchSource
    """Where batches come from."""
    steps: int
    """The number of steps; 0 for a model that is already fitted, in closed form."""
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None
    """Figures of the model, on data that it is not trained on."""
    every: int = 100
    """The steps from one evaluation to the next."""
    watch: str | None = "loss"
    """The figure of `evaluate` that says which weights are the best; None where none are."""
    higher_is_better: bool = False
    """Whether the best is the highest, and not the lowest."""
    patience: int | None = None
    """How many evaluations without a better one end the training; the best weights are then put back."""
    augment: Callable[[Batch], Batch] | None = None
    """What is done to a batch before a step; it may draw from PyTorch's random state."""
    constrain: Callable[[nn.Module], None] | None = None
    """What is done to the model after a step."""
    average: float | None = None
    """The decay of the moving average of the weights, which is then what is evaluated and kept."""
    accumulate: int = 1
    """In how many parts a batch is taken, to need less memory; the gradient is the same."""
    claims: Callable[[nn.Module], Iterable[Claim]] | None = None
    """The laws that the trained model is to keep."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """What is needed to build the model again, without the data; it stands in `config.json`."""
    fingerprint: str = ""
    """What tells the data apart from other data; a run is resumed on the same data only."""
    notes: Sequence[str] = ()
    """What a user should know before the first step, such as faults of the data."""

    def __post_init__(self) -> None:
        for name, value in (("every", self.every), ("accumulate", self.accumulate)):
            if value < 1:
                raise ValueError(f"{name} is at least 1: got {value}")
        if self.steps < 0 or (self.steps and not self.turns):
            raise ValueError(f"steps is at least 0, and wants turns: got {self.steps} and {len(self.turns)}")
        if self.average is not None and not 0 <= self.average < 1:
            raise ValueError(f"average is a decay from 0 to below 1: got {self.average}")
        if self.patience is not None and (self.patience < 1 or self.evaluate is None or self.watch is None):
            raise ValueError(f"patience is at least 1, and wants evaluate and watch: got {self.patience}")
        if len({turn.name for turn in self.turns}) < len(self.turns):
            raise ValueError(f"several turns want a name each: got {[turn.name for turn in self.turns]}")


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """How a training is run."""

    seed: Annotated[int, Range(0, 2**63 - 1)] = 0
    """Decides every random choice: the same seed gives the same run."""
    threads: Annotated[int, Range(0, 1024)] = 0
    """Processor threads; 0 measures a few steps with each number and takes the fastest."""
    device: Literal["cpu", "cuda", "mps"] = "cpu"
    """Where the model is."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """The numbers that layers compute with; weights and their updates stay in float32."""
    compile: bool = False
    """Whether to compile the model."""
    parallel: Literal["data", "sharded"] = "data"
    """Under torchrun: whether every process holds the whole model, or a share of it."""
    save: Annotated[int, Range(1, 10**9)] = 1000
    """Steps from one checkpoint to the next; there is one of the best evaluation and at the end too."""
    keep: Annotated[int, Range(1, 10**6)] = 2
    """How many checkpoints to keep besides the best."""
    tensorboard: bool = False
    """Whether to write figures for TensorBoard too."""
    laws: Annotated[int, Range(0, 10**6)] = 30
    """Cases that each law of the trained model is tried on; 0 leaves the laws out."""

    def __post_init__(self) -> None:
        validate(self)
