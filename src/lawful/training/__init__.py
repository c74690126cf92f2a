"""Training: `train`, the loop, runs, checkpoints, loggers and the report."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful._json import MaxLength, Range, Tagged, from_json, validate
    from lawful.training.checkpoint import (
        Checkpoint,
        Checkpoints,
        CorruptCheckpointError,
        load_module_state,
        module_state,
        preserve_rng,
        seed_everything,
    )
    from lawful.training.errors import NonFiniteError, TrainingFailed, user_message
    from lawful.training.loggers import ConsoleLogger, Logger, TensorBoardLogger, strip_control_characters, track
    from lawful.training.registry import RECIPES, RecipeRegistry, build_recipe, load, recipe_of
    from lawful.training.report import compare_with_baselines, write_report
    from lawful.training.run import RUNS, Run, runs
    from lawful.training.setup import LossFunction, OptimizerStep, Recipe, TrainerConfig, TrainingSetup
    from lawful.training.trainer import train

__all__ = [
    "RECIPES",
    "RUNS",
    "Checkpoint",
    "Checkpoints",
    "ConsoleLogger",
    "CorruptCheckpointError",
    "Logger",
    "LossFunction",
    "MaxLength",
    "NonFiniteError",
    "OptimizerStep",
    "Range",
    "Recipe",
    "RecipeRegistry",
    "Run",
    "Tagged",
    "TensorBoardLogger",
    "TrainerConfig",
    "TrainingFailed",
    "TrainingSetup",
    "build_recipe",
    "compare_with_baselines",
    "from_json",
    "load",
    "load_module_state",
    "module_state",
    "preserve_rng",
    "recipe_of",
    "runs",
    "seed_everything",
    "strip_control_characters",
    "track",
    "train",
    "user_message",
    "validate",
    "write_report",
]

_EXPORTS = {
    "MaxLength": "lawful._json",
    "Range": "lawful._json",
    "Tagged": "lawful._json",
    "from_json": "lawful._json",
    "validate": "lawful._json",
    "Checkpoint": "lawful.training.checkpoint",
    "Checkpoints": "lawful.training.checkpoint",
    "CorruptCheckpointError": "lawful.training.checkpoint",
    "load_module_state": "lawful.training.checkpoint",
    "module_state": "lawful.training.checkpoint",
    "preserve_rng": "lawful.training.checkpoint",
    "seed_everything": "lawful.training.checkpoint",
    "NonFiniteError": "lawful.training.errors",
    "TrainingFailed": "lawful.training.errors",
    "user_message": "lawful.training.errors",
    "ConsoleLogger": "lawful.training.loggers",
    "Logger": "lawful.training.loggers",
    "TensorBoardLogger": "lawful.training.loggers",
    "strip_control_characters": "lawful.training.loggers",
    "track": "lawful.training.loggers",
    "RECIPES": "lawful.training.registry",
    "RecipeRegistry": "lawful.training.registry",
    "build_recipe": "lawful.training.registry",
    "load": "lawful.training.registry",
    "recipe_of": "lawful.training.registry",
    "compare_with_baselines": "lawful.training.report",
    "write_report": "lawful.training.report",
    "RUNS": "lawful.training.run",
    "Run": "lawful.training.run",
    "runs": "lawful.training.run",
    "LossFunction": "lawful.training.setup",
    "OptimizerStep": "lawful.training.setup",
    "Recipe": "lawful.training.setup",
    "TrainerConfig": "lawful.training.setup",
    "TrainingSetup": "lawful.training.setup",
    "train": "lawful.training.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
