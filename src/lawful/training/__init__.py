"""Training: `train`, the loop, runs, checkpoints, loggers and the report."""

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
from lawful.training.loggers import ConsoleLogger, Logger, TensorBoardLogger, strip_control_characters
from lawful.training.recipe import Recipe, seeded  # noqa: F401
from lawful.training.report import write_report
from lawful.training.run import RUNS, Run, runs
from lawful.training.setup import LossFunction, OptimizerStep, TrainerConfig, TrainingSetup
from lawful.training.setup import LossFunction as Objective  # noqa: F401
from lawful.training.trainer import train

__all__ = [
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
    "Run",
    "Tagged",
    "TensorBoardLogger",
    "TrainerConfig",
    "TrainingFailed",
    "TrainingSetup",
    "from_json",
    "load_module_state",
    "module_state",
    "preserve_rng",
    "runs",
    "seed_everything",
    "strip_control_characters",
    "train",
    "user_message",
    "validate",
    "write_report",
]
