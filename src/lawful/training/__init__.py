"""The one loop, the run and its folder, checkpoints, metrics and the report."""

from lawful.training.failures import TrainingFailed
from lawful.training.options import Engine
from lawful.training.plan import Objective, Training, Turn
from lawful.training.recipe import Ensembled, Recipe, seeded
from lawful.training.run import RUNS, Run, runs
from lawful.training.storage.config import AtMost, Between, from_json, nearest, validate
from lawful.training.trackers import Tracker
from lawful.training.train import train

__all__ = [
    "RUNS",
    "AtMost",
    "Between",
    "Engine",
    "Ensembled",
    "Objective",
    "Recipe",
    "Run",
    "Tracker",
    "Training",
    "TrainingFailed",
    "Turn",
    "from_json",
    "nearest",
    "runs",
    "seeded",
    "train",
    "validate",
]
