"""The recipes by name, and the way back from a run to its recipe and model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from lawful.recipes.classify import Classify
from lawful.recipes.double_descent import DoubleDescent
from lawful.recipes.generative.attack import Attack
from lawful.recipes.generative.autoencode import Autoencode
from lawful.recipes.generative.diffusion import Diffusion
from lawful.recipes.generative.flow import Flow
from lawful.recipes.generative.gan import Gan
from lawful.recipes.generative.pca import Pca
from lawful.recipes.generative.vae import Vae
from lawful.recipes.language import ClassifyText, Forecast, Sort, Text, Translate
from lawful.recipes.modular import Modular
from lawful.recipes.regress import Regress
from lawful.training import Recipe, Run, from_json, nearest
from lawful.training.storage.state import of_module, put_into_module

KINDS = (
    Classify,
    Regress,
    DoubleDescent,
    Modular,
    Text,
    Translate,
    ClassifyText,
    Forecast,
    Sort,
    Pca,
    Autoencode,
    Vae,
    Flow,
    Diffusion,
    Gan,
    Attack,
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
        raise ValueError(f"config.json names no recipe: got {str(name)[:60]!r}; {nearest(name, RECIPES)}")
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
        if weights.keys() == of_module(model).keys():  # a checkpoint has shared weights once, and all buffers
            put_into_module(model, weights)
        else:
            model.load_state_dict(weights)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"the weights of {run.path} do not fit its configuration: {str(error).splitlines()[-1].strip()}"
        ) from None
    return model.eval()
