"""`Recipe`: a complete training as a frozen dataclass."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import nn

from lawful import _json as config
from lawful.checking.check import check_claims
from lawful.checking.verdict import Verdict
from lawful.training.run import Run
from lawful.training.setup import Data, TrainerConfig, TrainingSetup

_R = TypeVar("_R", bound="Recipe[Any]")


@dataclass(frozen=True, kw_only=True)
class Recipe(TrainerConfig, Generic[Data]):
    """A complete training. The fields are its options; subclasses add fields and implement three methods.

    Examples:
        >>> from lawful.recipes import TextRecipe
        >>> TextRecipe(data="book.txt", steps=500, seed=1).steps
        500
    """

    name: ClassVar[str]
    """Name on the command line."""

    def setup(self) -> TrainingSetup[Data]:
        """Loads the data and builds the model, optimizers and batches. Global random states are seeded before."""
        raise NotImplementedError(f"{type(self).__name__} must implement setup()")

    def finish(self, run: Run, setup: TrainingSetup[Data]) -> Mapping[str, Any]:
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


def with_trainer_config(recipe: Recipe[Data], trainer: TrainerConfig) -> Recipe[Data]:
    """Returns the recipe with the trainer options of `trainer`."""
    return replace(recipe, **{field.name: getattr(trainer, field.name) for field in fields(TrainerConfig)})


def run_name(recipe: Recipe[Any] | TrainingSetup[Any]) -> str:
    """Returns the first part of the run's folder name: the recipe's name, or the model's class."""
    return type(recipe.model).__name__.lower() if isinstance(recipe, TrainingSetup) else recipe.name


def run_config(
    recipe: Recipe[Any] | TrainingSetup[Any], setup: TrainingSetup[Any], *, threads: int, trainer: TrainerConfig
) -> dict[str, Any]:
    """Returns the content of `config.json`."""
    custom = isinstance(recipe, TrainingSetup)
    return {
        "recipe": None if custom else recipe.name,
        "options": config.to_json(trainer if custom else recipe),
        "defaults": config.to_json(TrainerConfig() if custom else type(recipe)()),
        "model": config.to_json(dict(setup.model_config)),
        "data": setup.data_fingerprint,
        "threads": threads,
        "device": trainer.device,
        "platform": platform.platform(terse=True),
        "lawful": version("lawful"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def changed_option(recipe: Recipe[Any] | TrainingSetup[Any], run: Run) -> str | None:
    """Returns the first option in which a recipe differs from a run. Trainer options may differ."""
    options = run.config.get("options")
    if isinstance(recipe, TrainingSetup) or not isinstance(options, dict):
        return None
    trainer = {field.name for field in fields(TrainerConfig)}
    own = config.to_json(recipe)
    return next((name for name, value in own.items() if name not in trainer and options.get(name) != value), None)


def check_trained_model(setup: TrainingSetup[Any], trainer: TrainerConfig) -> list[Verdict]:
    """Checks the laws of the trained model."""
    if setup.claims is None or not trainer.law_cases:
        return []
    return list(check_claims(setup.claims(setup.model), cases=trainer.law_cases))
