"""The parts of a training: `TrainingSetup`, `TrainerConfig`, and `Recipe`, a complete training as a dataclass."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from lawful import _json
from lawful._json import Config, Range
from lawful.data.batches import Batch, BatchSource
from lawful.laws import Claim
from lawful.training.loggers import track

if TYPE_CHECKING:
    from lawful.checking.verdict import Verdict
    from lawful.training.run import Run

LossFunction = Callable[[nn.Module, Batch], Tensor | Mapping[str, Tensor]]
"""Maps a model and a batch to the mean loss, or to a mapping with the key `loss` and more metrics.

If the mapping has the key `objective`, it is minimized instead of `loss`: for example the loss plus a penalty, or the
loss of smoothed labels. `loss` is then the quantity that `TrainingSetup.evaluate` returns too: they share a plot.
"""


def _as_metrics(output: Tensor | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Returns the output of a loss function as a mapping."""
    return {"loss": output} if isinstance(output, Tensor) else output


def _objective_name(metrics: Mapping[str, Any]) -> str:
    """Returns the key of the value that is minimized."""
    return "objective" if "objective" in metrics else "loss"


_Data = TypeVar("_Data")
"""The data of a `TrainingSetup`."""


def _constant_schedule(step: int) -> float:
    return 1.0


@dataclass(frozen=True, kw_only=True)
class OptimizerStep:
    """One loss and the optimizer that minimizes it. A training step runs all of them in order (a GAN has two)."""

    loss_fn: LossFunction
    """Loss of a batch."""
    optimizer: torch.optim.Optimizer
    """Optimizer of the parameters that this loss trains."""
    schedule: Callable[[int], float] = _constant_schedule
    """Factor of the learning rate at a step, counted from 0."""
    grad_clip_norm: float | None = None
    """Maximum norm of the gradient; None disables clipping."""
    name: str = ""
    """Prefix of the metrics, if there are several optimizer steps."""


@dataclass(frozen=True, kw_only=True)
class TrainingSetup(Generic[_Data]):
    """Everything that the training loop needs: model, losses, optimizers, batches and evaluation."""

    model: nn.Module
    """Model to train."""
    optimizer_steps: Sequence[OptimizerStep]
    """Losses and optimizers of one training step."""
    batches: BatchSource
    """Source of the training batches."""
    steps: int
    """Number of training steps; 0 for a model that was fitted in closed form."""
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None
    """Returns validation metrics of the model."""
    eval_every: int = 100
    """Steps between evaluations."""
    monitor: str | None = "loss"
    """Validation metric that selects the best weights; None keeps the last."""
    higher_is_better: bool = False
    """Whether a higher `monitor` is better."""
    patience: int | None = None
    """Evaluations without improvement before training stops and the best weights are restored."""
    restore_best: bool = False
    """Whether the best weights are restored at the end without `patience` as well."""
    augment: Callable[[Batch], Batch] | None = None
    """Augmentation of a training batch. It may use PyTorch's global generator."""
    constrain: Callable[[nn.Module], None] | None = None
    """Called with the model after each step, for example to clip weight norms."""
    ema_decay: float | None = None
    """Decay of the moving average of the weights, which is evaluated and saved. It is smaller in the first steps."""
    grad_accumulation_steps: int = 1
    """Number of parts of a batch that are processed one after the other; the gradient is the same."""
    claims: Callable[[nn.Module], Iterable[Claim]] | None = None
    """Returns the laws to check on the trained model."""
    model_config: Mapping[str, Any] = field(default_factory=dict)
    """What `Recipe.build_model` needs to rebuild the model without the data; saved in `config.json`."""
    data_fingerprint: str = ""
    """Hash of the data. A run can only be resumed with the same data."""
    warnings: Sequence[str] = ()
    """Messages to print before the first step, for example about duplicates between the splits."""
    notes: Sequence[str] = ()
    """Lines to print before the warnings, such as how each column of a table is used."""
    data: _Data = cast(Any, None)  # noqa: RUF009
    """Data for `Recipe.finish`, for example the splits."""

    def __post_init__(self) -> None:
        for name, value in (
            ("eval_every", self.eval_every),
            ("grad_accumulation_steps", self.grad_accumulation_steps),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.steps < 0:
            raise ValueError(f"steps must be at least 0, got {self.steps}")
        if self.steps and not self.optimizer_steps:
            raise ValueError(f"expected at least one OptimizerStep for steps={self.steps}, got none")
        if self.ema_decay is not None and not 0 <= self.ema_decay < 1:
            raise ValueError(f"ema_decay must be in [0, 1), got {self.ema_decay}")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience must be at least 1 or None, got {self.patience}")
        if self.patience is not None and (self.evaluate is None or self.monitor is None):
            raise ValueError("patience needs evaluate and monitor")
        if self.restore_best and (self.evaluate is None or self.monitor is None):
            raise ValueError("restore_best needs evaluate and monitor")
        names = [step.name for step in self.optimizer_steps]
        if len(set(names)) < len(names):
            raise ValueError(f"several optimizer steps need different names, got {names}")


@dataclass(frozen=True, kw_only=True)
class TrainerConfig(Config):
    """Options of the trainer: seed, device, precision, checkpoints."""

    seed: Annotated[int, Range(0, 2**63 - 1)] = 0
    """Random seed. The same seed gives the same run."""
    threads: Annotated[int, Range(0, 1024)] = 0
    """CPU threads; 0 measures a few steps and uses the fastest number."""
    device: Literal["cpu", "cuda", "mps"] = "cpu"
    """Device to train on."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Autocast dtype; weights stay float32."""
    compile: bool = False
    """Compile the model with torch.compile."""
    parallel: Literal["data", "sharded"] = "data"
    """With torchrun: replicate the model on each process (DDP) or shard it (FSDP)."""
    checkpoint_every: Annotated[int, Range(1, 10**9)] = 1000
    """Steps between checkpoints. The best evaluation and the last step are saved as well."""
    checkpoint_minutes: Annotated[float, Range(0, 10**6)] = 10.0
    """Maximum time between checkpoints, in minutes; 0 disables it."""
    keep_checkpoints: Annotated[int, Range(1, 10**6)] = 2
    """Number of checkpoints to keep besides the best."""
    tensorboard: bool = False
    """Write metrics for TensorBoard."""
    law_cases: Annotated[int, Range(0, 10**6)] = 30
    """Test cases for each law of the trained model; 0 skips the laws."""


_R = TypeVar("_R", bound="Recipe[Any]")


@dataclass(frozen=True, kw_only=True)
class Recipe(TrainerConfig, Generic[_Data]):
    """A complete training. The fields are its options; subclasses add fields and implement three methods.

    Examples:
        >>> from lawful.recipes import TextRecipe
        >>> TextRecipe(data="book.txt", steps=500, seed=1).steps
        500
    """

    name: ClassVar[str]
    """Name on the command line."""

    def setup(self) -> TrainingSetup[_Data]:
        """Loads the data and builds the model, optimizers and batches. Global random states are seeded before."""
        raise NotImplementedError(f"{type(self).__name__} must implement setup()")

    def finish(self, run: Run, setup: TrainingSetup[_Data]) -> Mapping[str, Any]:
        """Writes figures and samples of the trained model to the run, and returns the results."""
        return {}

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run from `TrainingSetup.model_config`, without its weights."""
        raise NotImplementedError(f"{type(self).__name__} must implement build_model()")

    def ensemble_members(self: _R) -> Sequence[_R]:
        """Returns the recipes of an ensemble's members, or nothing if there is only one model."""
        return ()

    def combine(self, models: Sequence[nn.Module]) -> nn.Module:
        """Combines the trained members of an ensemble into one model."""
        raise NotImplementedError(f"{type(self).__name__} must implement combine()")

    def with_seeds(self: _R, count: int) -> list[_R]:
        """Returns `count` copies of the recipe, with consecutive seeds."""
        return [replace(self, seed=(self.seed + i) % 2**63) for i in range(count)]


def _with_trainer_config(recipe: Recipe[_Data], trainer: TrainerConfig) -> Recipe[_Data]:
    """Returns the recipe with the trainer options of `trainer`."""
    return replace(recipe, **{field.name: getattr(trainer, field.name) for field in fields(TrainerConfig)})


def _run_name(recipe: Recipe[Any] | TrainingSetup[Any]) -> str:
    """Returns the first part of the run's folder name: the recipe's name, or the model's class."""
    return type(recipe.model).__name__.lower() if isinstance(recipe, TrainingSetup) else recipe.name


def _run_config(
    recipe: Recipe[Any] | TrainingSetup[Any], setup: TrainingSetup[Any], *, threads: int, trainer: TrainerConfig
) -> dict[str, Any]:
    """Returns the content of `config.json`."""
    custom = isinstance(recipe, TrainingSetup)
    return {
        "recipe": None if custom else recipe.name,
        "options": _json.to_json(trainer if custom else recipe),
        "defaults": _json.to_json(TrainerConfig() if custom else type(recipe)()),
        "model": _json.to_json(dict(setup.model_config)),
        "data": setup.data_fingerprint,
        **({"setup": _setup_facts(setup)} if custom else {}),
        "threads": threads,
        "device": trainer.device,
        "platform": platform.platform(terse=True),
        "lawful": version("lawful"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _setup_facts(setup: TrainingSetup[Any]) -> dict[str, Any]:
    """Returns the optimizers of a setup without a recipe, their options, and the size of the batches."""
    size = getattr(setup.batches, "batch_size", None)
    facts: dict[str, Any] = {} if size is None else {"batch_size": size}
    for number, step in enumerate(setup.optimizer_steps):
        prefix = f"optimizer{number or ''}"
        facts[prefix] = type(step.optimizer).__name__
        for index, group in enumerate(step.optimizer.param_groups):
            named = {name: value for name, value in group.items() if name != "params" and _is_plain(value)}
            facts |= {f"{prefix}.{f'{index}.' if index else ''}{name}": value for name, value in named.items()}
    return _json.to_json(facts)


def _is_plain(value: Any) -> bool:
    """Returns whether JSON has the value."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _changed_options(
    recipe: Recipe[Any] | TrainingSetup[Any], setup: TrainingSetup[Any], trainer: TrainerConfig, run: Run
) -> dict[str, tuple[Any, Any]]:
    """Returns the options that differ between a run and a training that resumes it, as old and new values.

    Options of the trainer may differ, except for the seed.
    """
    kept = {field.name for field in fields(TrainerConfig)} - {"seed"}
    old, new = run.config.get("options"), _json.to_json(trainer if isinstance(recipe, TrainingSetup) else recipe)
    old = old if isinstance(old, dict) else {}
    if isinstance(recipe, TrainingSetup) and isinstance(facts := run.config.get("setup"), dict):
        old, new = old | facts, new | _setup_facts(setup)
    return {
        name: (old[name], value) for name, value in new.items() if name not in kept and old.get(name, value) != value
    }


def _check_trained_model(setup: TrainingSetup[Any], trainer: TrainerConfig) -> list[Verdict]:
    """Checks the laws of the trained model."""
    if setup.claims is None or not trainer.law_cases:
        return []
    from lawful.checking import check_claims

    claims = track([*setup.claims(setup.model)], "checking the laws of the trained model")
    return list(check_claims(claims, cases=trainer.law_cases))


def _verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Returns the verdicts on the trained model, one line each."""
    lines = [f"  {v.status:<8} {v.law}: {v.formula} ({v.target})" for v in verdicts]
    return ["laws of the trained model:", *lines] if lines else []
