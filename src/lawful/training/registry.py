"""The recipes by name, recipes from flat options, the models of runs, and the limit on model sizes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lawful._files import check_memory
from lawful._json import Tagged, field_types, from_json, union_members
from lawful._suggest import did_you_mean
from lawful.training.checkpoint import load_module_state
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
        "classify-sequence": "lawful.recipes.classify_sequence:ClassifySequenceRecipe",
        "forecast": "lawful.recipes.forecast:ForecastRecipe",
        "node-classify": "lawful.recipes.node_classify:NodeClassifyRecipe",
        "graph-classify": "lawful.recipes.graph_classify:GraphClassifyRecipe",
        "molecules": "lawful.recipes.molecules:MoleculesRecipe",
        "pca": "lawful.recipes.pca:PCARecipe",
        "autoencode": "lawful.recipes.autoencode:AutoencodeRecipe",
        "vae": "lawful.recipes.vae:VAERecipe",
        "flow": "lawful.recipes.flow:FlowRecipe",
        "diffusion": "lawful.recipes.diffusion:DiffusionRecipe",
        "gan": "lawful.recipes.gan:GANRecipe",
        "attack": "lawful.recipes.attack:AttackRecipe",
        "memory": "lawful.recipes.memory:MemoryRecipe",
        "nbody": "lawful.recipes.nbody:NBodyRecipe",
        "symmetry": "lawful.recipes.symmetry:SymmetryRecipe",
        "double-descent": "lawful.recipes.double_descent:DoubleDescentRecipe",
        "modular": "lawful.recipes.modular:ModularRecipe",
    }
)
"""Every recipe by its name on the command line. Add your own with `RECIPES["name"] = MyRecipe`."""


_ALIASES: dict[str, tuple[str, ...]] = {
    "bs": ("batch_size",),
    "block_size": ("context_length",),
    "clip_grad_norm": ("grad_clip_norm",),
    "d_model": ("dim",),
    "depth": ("num_layers",),
    "early_stopping_patience": ("patience",),
    "embed_dim": ("dim",),
    "ema": ("ema_decay",),
    "grad_accum": ("grad_accumulation_steps",),
    "grad_clip": ("grad_clip_norm",),
    "gradient_accumulation_steps": ("grad_accumulation_steps",),
    "heads": ("num_heads",),
    "hidden_layer_sizes": ("hidden_dims",),
    "hidden_size": ("dim",),
    "hidden_sizes": ("hidden_dims",),
    "layers": ("num_layers",),
    "lr": ("learning_rate",),
    "lr_scheduler": ("schedule",),
    "max_epochs": ("epochs",),
    "max_iters": ("steps",),
    "max_grad_norm": ("grad_clip_norm",),
    "max_steps": ("steps",),
    "n_components": ("num_components", "latent_dim"),
    "n_embd": ("dim",),
    "n_estimators": ("num_members",),
    "n_head": ("num_heads",),
    "n_heads": ("num_heads",),
    "n_layer": ("num_layers",),
    "n_layers": ("num_layers",),
    "n_neighbors": ("num_neighbors",),
    "num_epochs": ("epochs",),
    "num_steps": ("steps",),
    "random_state": ("seed",),
    "scheduler": ("schedule",),
    "seq_len": ("context_length",),
    "test_size": ("test_fraction",),
    "val_fraction": ("validation_fraction",),
    "val_size": ("validation_fraction",),
    "warmup": ("warmup_steps",),
    "wd": ("weight_decay",),
    "z_dim": ("latent_dim",),
}
"""Other names of options, on the command line and in Python: each stands for the first that the recipe has."""
_RELATED: dict[str, tuple[str, ...]] = {
    "eval_every": ("num_evals", "eval_every_epochs"),
    "eval_interval": ("num_evals", "eval_every_epochs"),
    "eval_steps": ("num_evals", "eval_every_epochs"),
    "hidden_dim": ("hidden_dims", "dim", "channels"),
    "hidden_dims": ("hidden_dim", "dim", "channels"),
    "name": ("output_dir",),
    "run_name": ("output_dir",),
    "test_size": ("validation_fraction", "test_horizons"),
}
"""Options with another meaning that an unknown name may be about; the error names them."""


def build_recipe(recipe: str | type[Recipe[Any]] | Recipe[Any], options: Mapping[str, Any]) -> Recipe[Any]:
    """Builds a recipe from flat options, as the command line does.

    Options of the chosen model, or of another union, stand beside those of the recipe. Usual other names work as well,
    such as `lr` for `learning_rate`.

    Args:
        recipe: Name of the recipe, its class, or a recipe whose other options are kept.
        options: Values by name.

    Raises:
        ValueError: If there is no such recipe or option, or a value is invalid.

    Examples:
        >>> build_recipe("classify", {"data": "iris", "model": "mlp", "hidden_dims": (64, 64), "lr": 1e-3}).model
        MLPSpec(hidden_dims=(64, 64), dropout=0.3)
    """
    if isinstance(recipe, str) and recipe not in RECIPES:
        raise ValueError(_unknown_recipe(recipe))
    base = recipe if isinstance(recipe, Recipe) else (RECIPES[recipe] if isinstance(recipe, str) else recipe)()
    kind = type(base)
    members = {name: _find_member(name, kinds, options.get(name)) for name, kinds in _unions(kind).items()}
    chosen = {name: getattr(base, name) if member is None else member for name, member in members.items()}
    values: dict[str, Any] = {}
    for name, value in options.items():
        option = _find_option(kind, chosen, name)
        if option in values:
            raise ValueError(f"{option} is set twice: {name} is another name of it")
        if option not in chosen:
            values[option] = _to_field(value)
    own = {field.name for field in fields(kind)}
    for name, member in chosen.items():
        given = {f.name: values.pop(f.name) for f in fields(member) if f.name in values and f.name not in own}
        values[name] = replace(member, **given)
    return replace(base, **values)


def _unknown_recipe(name: str) -> str:
    return f"unknown recipe {name!r}{did_you_mean(name, RECIPES)} Recipes: {', '.join(RECIPES)}"


def _unions(kind: type[Any]) -> dict[str, tuple[type[Tagged], ...]]:
    """The fields of a recipe that are tagged unions, with their members."""
    hints = field_types(kind)
    members = {field.name: union_members(hints[field.name]) for field in fields(kind)}
    return {name: found for name, found in members.items() if len(found) > 1}


def _find_member(name: str, members: tuple[type[Tagged], ...], value: Any) -> Any:
    """The member of a union with the given name, with its defaults; a member itself is returned as it is."""
    if value is None or isinstance(value, members):
        return value
    found = [member for member in members if member.name == value]
    if not found:
        raise ValueError(f"{name} must be one of {', '.join(member.name for member in members)}, got {value!r}")
    return found[0]()


def _find_option(
    kind: type[Any], chosen: Mapping[str, Any], name: str, *, show: Callable[[str], str] = str, more: Iterable[str] = ()
) -> str:
    """Returns the name of the option that a name stands for.

    Args:
        kind: The recipe.
        chosen: The chosen member of each union.
        name: Name of an option, or another name of it.
        show: Formats a name for an error message.
        more: Names of options that are not part of the recipe.

    Raises:
        ValueError: If there is no such option. The message names the nearest one.
    """
    known = {f.name for part in (kind, *chosen.values()) for f in fields(part)} | set(more)
    candidates = (name, *_ALIASES.get(name, ()))
    for candidate in candidates:
        if candidate in known:
            return candidate
    for candidate in candidates:
        for union, members in _unions(kind).items():
            having = [member.name for member in members if any(f.name == candidate for f in fields(member))]  # type: ignore[arg-type]
            if having:
                actual = f"{show(union)} {chosen[union].name}"
                raise ValueError(f"{show(name)} needs {show(union)} {' or '.join(having)}, got {actual}")
    related = [show(option) for option in _RELATED.get(name, ()) if option in known]
    hint = f": use {' or '.join(related)}" if related else did_you_mean(show(name), map(show, known))
    raise ValueError(f"recipe {kind.name} has no option {show(name)}{hint}")


def _to_field(value: Any) -> Any:
    """Converts lists to tuples and paths to strings."""
    if isinstance(value, list | tuple):
        return tuple(map(_to_field, value))
    return str(value) if isinstance(value, Path) else value


def recipe_of(run: Run) -> Recipe[Any]:
    """Reads the recipe of a run from its configuration, and validates it.

    Raises:
        ValueError: If the configuration names no known recipe, or has invalid options.
    """
    run.verify("config.json")
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
        if weights.keys() == model.state_dict().keys():
            model.load_state_dict(weights)
        else:
            load_module_state(model, weights)  # a checkpoint stores shared weights once, and all buffers
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
        ValueError: If there are more than `_MAX_PARAMETERS`, or more than the memory holds.

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
    check_memory(8 * count, what=f"the model has {count:,} parameters, and", remedy="choose smaller sizes")
