"""The recipes by name, and the way back from a run to its recipe and model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from lawful._suggest import did_you_mean
from lawful.recipes.attack import AttackRecipe
from lawful.recipes.autoencode import AutoencodeRecipe
from lawful.recipes.classify import ClassifyRecipe
from lawful.recipes.classify_text import ClassifyTextRecipe
from lawful.recipes.diffusion import DiffusionRecipe
from lawful.recipes.double_descent import DoubleDescentRecipe
from lawful.recipes.flow import FlowRecipe
from lawful.recipes.forecast import ForecastRecipe
from lawful.recipes.gan import GANRecipe
from lawful.recipes.modular import ModularRecipe
from lawful.recipes.pca import PCARecipe
from lawful.recipes.regress import RegressRecipe
from lawful.recipes.sort import SortRecipe
from lawful.recipes.text import TextRecipe
from lawful.recipes.translate import TranslateRecipe
from lawful.recipes.vae import VAERecipe
from lawful.training import Recipe, Run, from_json
from lawful.training.checkpoint import load_module_state, module_state

KINDS = (
    ClassifyRecipe,
    RegressRecipe,
    DoubleDescentRecipe,
    ModularRecipe,
    TextRecipe,
    TranslateRecipe,
    ClassifyTextRecipe,
    ForecastRecipe,
    SortRecipe,
    PCARecipe,
    AutoencodeRecipe,
    VAERecipe,
    FlowRecipe,
    DiffusionRecipe,
    GANRecipe,
    AttackRecipe,
)
RECIPES: dict[str, Any] = {kind.name: kind for kind in KINDS}
"""Every recipe, by the name that the command line calls it."""


def recipe_of(run: Run) -> Recipe:
    """Reads the recipe of a run from its configuration, which nobody vouches for.

    Raises:
        ValueError: where it names no recipe, or has options that the recipe has not.
    """
    name = run.config.get("recipe")
    if name is None:
        raise ValueError(
            f"{run.path} was trained from Python, without a recipe: go on with lawful.train(training, resume=run)"
        )
    if not isinstance(name, str) or name not in RECIPES:
        raise ValueError(f"config.json names no recipe: got {str(name)[:60]!r}; {did_you_mean(name, RECIPES)}")
    return from_json(RECIPES[name], run.config.get("options", {}), at="options")


def load(run: Run | Path | str) -> nn.Module:
    """Returns the trained model of a run, in evaluation mode.

    Args:
        run: A run of a recipe, or its folder.

    Raises:
        ValueError: where the weights do not fit the configuration.
    """
    run = run if isinstance(run, Run) else Run(run)
    facts = run.config.get("model")
    with torch.random.fork_rng(devices=()):
        model = recipe_of(run).restored(facts if isinstance(facts, dict) else {})
    weights = run.weights()
    try:
        if weights.keys() == module_state(model).keys():  # a checkpoint has shared weights once, and all buffers
            load_module_state(model, weights)
        else:
            model.load_state_dict(weights)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"the weights of {run.path} do not fit its configuration: {str(error).splitlines()[-1].strip()}"
        ) from None
    return model.eval()
