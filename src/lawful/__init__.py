"""The building blocks of modern machine learning on PyTorch, each with the laws it obeys."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.checking.check import check
    from lawful.checking.discover import discover
    from lawful.checking.discovered import Discovery
    from lawful.checking.verdict import LawRefuted, Report, Verdict
    from lawful.laws.language.inputs import made, mask, probabilities, shape, tokens
    from lawful.recipes.catalogue import load
    from lawful.training.options import Engine
    from lawful.training.plan import Training, Turn
    from lawful.training.run import Run
    from lawful.training.train import train

__all__ = [
    "Discovery",
    "Engine",
    "LawRefuted",
    "Report",
    "Run",
    "Training",
    "Turn",
    "Verdict",
    "check",
    "discover",
    "load",
    "made",
    "mask",
    "probabilities",
    "shape",
    "tokens",
    "train",
]

_HOMES = {
    "Engine": "lawful.training.options",
    "Run": "lawful.training.run",
    "Training": "lawful.training.plan",
    "Turn": "lawful.training.plan",
    "load": "lawful.recipes.catalogue",
    "train": "lawful.training.train",
    "check": "lawful.checking.check",
    "discover": "lawful.checking.discover",
    "Discovery": "lawful.checking.discovered",
    "LawRefuted": "lawful.checking.verdict",
    "Report": "lawful.checking.verdict",
    "Verdict": "lawful.checking.verdict",
    "made": "lawful.laws.language.inputs",
    "mask": "lawful.laws.language.inputs",
    "probabilities": "lawful.laws.language.inputs",
    "shape": "lawful.laws.language.inputs",
    "tokens": "lawful.laws.language.inputs",
}


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used, so that the command line answers before PyTorch is loaded."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lawful' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
