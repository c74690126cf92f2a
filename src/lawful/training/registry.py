"""The recipes by name, the models of runs, and the limit on model sizes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lawful._json import from_json
from lawful._suggest import did_you_mean
from lawful.training.checkpoint import load_module_state, module_state
from lawful.training.run import Run
from lawful.training.setup import Recipe


class RecipeRegistry(MutableMapping[str, type[Recipe[Any]]]):
    """Recipes by name. Built-in recipes are imported on first use.

    Args:
        locations: Module and class of each built-in recipe, as "module:Class".
    """

    def __init__(self, locations: dict[str, str]) -> None:
        self._recipes: dict[str, str | type[Recipe[Any]]] = dict(locations)

    def __getitem__(self, name: str) -> type[Recipe[Any]]:
        recipe = self._recipes[name]
        if isinstance(recipe, str):
            module, _, attribute = recipe.partition(":")
            recipe = self._recipes[name] = getattr(importlib.import_module(module), attribute)
        return recipe

    def __setitem__(self, name: str, recipe: type[Recipe[Any]]) -> None:
        self._recipes[name] = recipe

    def __delitem__(self, name: str) -> None:
        del self._recipes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._recipes)

    def __len__(self) -> int:
        return len(self._recipes)


RECIPES = RecipeRegistry(
    {
        "classify": "lawful.recipes.classify:ClassifyRecipe",
        "regress": "lawful.recipes.regress:RegressRecipe",
        "text": "lawful.recipes.text:TextRecipe",
        "translate": "lawful.recipes.translate:TranslateRecipe",
        "classify-text": "lawful.recipes.classify_text:ClassifyTextRecipe",
        "forecast": "lawful.recipes.forecast:ForecastRecipe",
        "pca": "lawful.recipes.pca:PCARecipe",
        "autoencode": "lawful.recipes.autoencode:AutoencodeRecipe",
        "vae": "lawful.recipes.vae:VAERecipe",
        "flow": "lawful.recipes.flow:FlowRecipe",
        "diffusion": "lawful.recipes.diffusion:DiffusionRecipe",
        "gan": "lawful.recipes.gan:GANRecipe",
        "attack": "lawful.recipes.attack:AttackRecipe",
        "double-descent": "lawful.recipes.double_descent:DoubleDescentRecipe",
        "modular": "lawful.recipes.modular:ModularRecipe",
    }
)
"""Every recipe by its name on the command line. Add your own with `RECIPES["name"] = MyRecipe`."""


def recipe_of(run: Run) -> Recipe[Any]:
    """Reads the recipe of a run from its configuration, and validates it.

    Raises:
        ValueError: If the configuration names no known recipe, or has invalid options.
    """
    name = run.config.get("recipe")
    if name is None:
        raise ValueError(
            f"{run.path} was trained from Python without a recipe: resume with lawful.train(setup, resume=run)"
        )
    if not isinstance(name, str) or name not in RECIPES:
        raise ValueError(f"config.json has an unknown recipe {str(name)[:60]!r}{did_you_mean(str(name), RECIPES)}")
    return from_json(RECIPES[name], run.config.get("options", {}), at="options")


def load(run: Run | Path | str) -> nn.Module:
    """Loads the trained model of a run, in eval mode.

    Args:
        run: A run of a recipe, or its folder.

    Raises:
        ValueError: If the weights do not fit the configuration.
    """
    run = run if isinstance(run, Run) else Run(run)
    model_config = run.config.get("model")
    with torch.random.fork_rng(devices=()):
        model = recipe_of(run).build_model(model_config if isinstance(model_config, dict) else {})
    weights = run.weights()
    try:
        if weights.keys() == module_state(model).keys():  # a checkpoint stores shared weights once, and all buffers
            load_module_state(model, weights)
        else:
            model.load_state_dict(weights)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(f"the weights of {run.path} do not fit its configuration: {reason}") from None
    return model.eval()


_MAX_PARAMETERS = 2 * 10**9
"""Maximum number of parameters and buffer entries of a model."""


def _check_parameter_count(builders: Iterable[Callable[[], nn.Module]], *, copies: int = 1) -> None:
    """Counts the parameters of models on the meta device, without allocating memory.

    Args:
        builders: Functions that build the models.
        copies: Number of copies of each model.

    Raises:
        ValueError: If there are more than `_MAX_PARAMETERS`.

    Examples:
        >>> _check_parameter_count([lambda: nn.Linear(10**5, 10**5)])
        Traceback (most recent call last):
        ValueError: the model has 10,000,100,000 parameters, at most 2,000,000,000 are supported: choose smaller sizes
    """
    with torch.device("meta"):
        models = (build() for build in builders)
        count = copies * sum(t.numel() for model in models for t in (*model.parameters(), *model.buffers()))
    if count > _MAX_PARAMETERS:
        raise ValueError(
            f"the model has {count:,} parameters, at most {_MAX_PARAMETERS:,} are supported: choose smaller sizes"
        )
