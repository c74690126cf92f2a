"""The one loop, the run and its folder, checkpoints, metrics and the report."""

from lawful._json import MaxLength, Range, Tagged, from_json, validate
from lawful.training.errors import TrainingFailed
from lawful.training.loggers import Logger
from lawful.training.recipe import Recipe, seeded
from lawful.training.run import RUNS, Run, runs
from lawful.training.setup import LossFunction, LossFunction as Objective, OptimizerStep, TrainerConfig, TrainingSetup
from lawful.training.trainer import train

__all__ = [
    "RUNS",
    "Logger",
    "LossFunction",
    "MaxLength",
    "OptimizerStep",
    "Range",
    "Recipe",
    "Run",
    "Tagged",
    "TrainerConfig",
    "TrainingFailed",
    "TrainingSetup",
    "from_json",
    "runs",
    "train",
    "validate",
]
