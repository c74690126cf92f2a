"""The building blocks of modern machine learning on PyTorch, and the laws they satisfy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful import (
        blocks,
        checking,
        data,
        functions,
        groups,
        inference,
        laws,
        losses,
        models,
        optim,
        probe,
        pytorch,
        recipes,
        solvers,
        testing,
        theory,
        training,
    )
    from lawful.checking.check import check
    from lawful.checking.discover import Discovery, discover
    from lawful.checking.verdict import LawRefuted, Report, Verdict
    from lawful.laws.inputs import mask, probabilities, shape, tokens, transformed
    from lawful.recipes.model_export import export
    from lawful.training.registry import load
    from lawful.training.run import Run
    from lawful.training.setup import OptimizerStep, Recipe, TrainerConfig, TrainingSetup
    from lawful.training.trainer import train

    __version__: str

_SUBMODULES = (
    "blocks",
    "checking",
    "data",
    "functions",
    "groups",
    "inference",
    "laws",
    "losses",
    "models",
    "optim",
    "probe",
    "pytorch",
    "recipes",
    "solvers",
    "testing",
    "theory",
    "training",
)
_MODULES = {
    "Discovery": "lawful.checking.discover",
    "LawRefuted": "lawful.checking.verdict",
    "OptimizerStep": "lawful.training.setup",
    "Recipe": "lawful.training.setup",
    "Report": "lawful.checking.verdict",
    "Run": "lawful.training.run",
    "TrainerConfig": "lawful.training.setup",
    "TrainingSetup": "lawful.training.setup",
    "Verdict": "lawful.checking.verdict",
    "check": "lawful.checking.check",
    "discover": "lawful.checking.discover",
    "export": "lawful.recipes.model_export",
    "load": "lawful.training.registry",
    "mask": "lawful.laws.inputs",
    "probabilities": "lawful.laws.inputs",
    "shape": "lawful.laws.inputs",
    "tokens": "lawful.laws.inputs",
    "train": "lawful.training.trainer",
    "transformed": "lawful.laws.inputs",
}

__all__ = [
    "Discovery",
    "LawRefuted",
    "OptimizerStep",
    "Recipe",
    "Report",
    "Run",
    "TrainerConfig",
    "TrainingSetup",
    "Verdict",
    "__version__",
    "blocks",
    "check",
    "checking",
    "data",
    "discover",
    "export",
    "functions",
    "groups",
    "inference",
    "laws",
    "load",
    "losses",
    "mask",
    "models",
    "optim",
    "probabilities",
    "probe",
    "pytorch",
    "recipes",
    "shape",
    "solvers",
    "testing",
    "theory",
    "tokens",
    "train",
    "training",
    "transformed",
]


def __getattr__(name: str) -> Any:
    """Imports a name on first use, so that `import lawful` is fast."""
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name in _SUBMODULES:
        return importlib.import_module(f"lawful.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("lawful")
    raise AttributeError(f"module 'lawful' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
