"""The building blocks of modern machine learning on PyTorch, each with the laws it obeys."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.checking.check import check
    from lawful.checking.discover import Discovery, discover
    from lawful.checking.verdict import LawRefuted, Report, Verdict
    from lawful.laws.inputs import mask, probabilities, shape, tokens, transformed
    from lawful.recipes.registry import load
    from lawful.training.run import Run
    from lawful.training.setup import OptimizerStep, TrainerConfig, TrainingSetup
    from lawful.training.trainer import train

__all__ = [
    "Discovery",
    "LawRefuted",
    "OptimizerStep",
    "Report",
    "Run",
    "TrainerConfig",
    "TrainingSetup",
    "Verdict",
    "check",
    "discover",
    "load",
    "mask",
    "probabilities",
    "shape",
    "tokens",
    "train",
    "transformed",
]

_HOMES = {
    "TrainerConfig": "lawful.training.setup",
    "Run": "lawful.training.run",
    "TrainingSetup": "lawful.training.setup",
    "OptimizerStep": "lawful.training.setup",
    "load": "lawful.recipes.registry",
    "train": "lawful.training.trainer",
    "check": "lawful.checking.check",
    "discover": "lawful.checking.discover",
    "Discovery": "lawful.checking.discover",
    "LawRefuted": "lawful.checking.verdict",
    "Report": "lawful.checking.verdict",
    "Verdict": "lawful.checking.verdict",
    "transformed": "lawful.laws.inputs",
    "mask": "lawful.laws.inputs",
    "probabilities": "lawful.laws.inputs",
    "shape": "lawful.laws.inputs",
    "tokens": "lawful.laws.inputs",
}


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used, so that the command line answers before PyTorch is loaded."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lawful' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
