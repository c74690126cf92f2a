"""A recipe: a complete training from its options, and what a run says of it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch
from torch import nn

from lawful import _json as config
from lawful.checking.check import check_claims
from lawful.checking.verdict import Verdict
from lawful.training.run import Run
from lawful.training.setup import TrainerConfig, TrainingSetup

R = TypeVar("R")


@runtime_checkable
class Recipe(Protocol):
    """A complete training as a frozen dataclass: its fields are the options, and it builds the rest from them."""

    name: ClassVar[str]

    @property
    def engine(self) -> TrainerConfig:
        """How it is run."""
        ...

    def training(self) -> TrainingSetup:
        """Reads the data and builds everything; all that is random comes from PyTorch's, NumPy's or Python's state."""
        ...

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Draws figures and samples of the trained model, and returns its results."""
        ...

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run from what `Training.described` said, before its weights are put in."""
        ...


@runtime_checkable
class Ensembled(Recipe, Protocol):
    """A recipe of which several are trained, and made into one model."""

    def members(self) -> Sequence[Recipe]:
        """The recipes of the members; none where there is one model only."""
        ...

    def combined(self, models: Sequence[nn.Module]) -> nn.Module:
        """Makes one model of the trained members."""
        ...


def seeded(recipe: R, count: int) -> list[R]:
    """Returns a recipe, which is a dataclass with an `engine`, with as many seeds: its own and those that follow."""
    own: Any = recipe
    seeds = [(own.engine.seed + number) % 2**63 for number in range(count)]
    return [replace(own, engine=replace(own.engine, seed=seed)) for seed in seeds]


def name_of(recipe: Recipe | TrainingSetup) -> str:
    """What a run is called: by its recipe, or by its model."""
    return type(recipe.model).__name__.lower() if isinstance(recipe, TrainingSetup) else recipe.name


def facts_of(
    recipe: Recipe | TrainingSetup, training: TrainingSetup, *, threads: int, engine: TrainerConfig
) -> dict[str, Any]:
    """What stands in `config.json`."""
    made = isinstance(recipe, TrainingSetup)
    return {
        "recipe": None if made else recipe.name,
        "options": config.to_json(engine if made else recipe),
        "defaults": config.to_json(TrainerConfig() if made else type(recipe)()),
        "model": config.to_json(dict(training.described)),
        "data": training.fingerprint,
        "threads": threads,
        "device": engine.device,
        "platform": platform.platform(terse=True),
        "lawful": version("lawful"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def other_option(recipe: Recipe | TrainingSetup, run: Run) -> str | None:
    """Names the first option of a recipe that is not that of a run, apart from how it is run."""
    options = run.config.get("options")
    if isinstance(recipe, TrainingSetup) or not isinstance(options, dict):
        return None
    own = config.to_json(recipe)
    return next((name for name, value in own.items() if name != "engine" and options.get(name) != value), None)


def laws_of(training: TrainingSetup, engine: TrainerConfig) -> list[Verdict]:
    """Judges the laws of the trained model."""
    if training.claims is None or not engine.laws:
        return []
    return list(check_claims(training.claims(training.model), cases=engine.laws))
