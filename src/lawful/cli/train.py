"""`lawful train`, `lawful runs` and `lawful predict`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

import tyro
from rich.console import Console
from rich.table import Table
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from lawful.cli.console import FAILED, INTERRUPTED, USAGE, say


def train(arguments: Sequence[str]) -> int:
    """Train a recipe, or go on with a run."""
    from lawful._suggest import did_you_mean
    from lawful.recipes import RECIPES, recipe_of
    from lawful.training import Recipe, Run, TrainingFailed
    from lawful.training import train as start

    if not arguments or arguments[0] in ("-h", "--help"):
        print(_recipes(RECIPES))
        return 0 if arguments else USAGE
    try:
        run = None
        if any(word.partition("=")[0] == "--resume" for word in arguments):
            words = [part for word in arguments for part in word.split("=", 1)]
            if len(words) != 2 or words[0] != "--resume":
                said = " ".join(arguments)
                say(f"error: lawful train --resume RUN takes the folder of a run and nothing else: got {said}")
                return USAGE
            run = Run(words[1])
            recipe: Recipe = recipe_of(run)
        elif arguments[0] not in RECIPES:
            say(f"error: there is no recipe {arguments[0]!r}{did_you_mean(arguments[0], RECIPES)}")
            return USAGE
        else:
            kind = tyro.conf.OmitArgPrefixes[RECIPES[arguments[0]]]
            with _optional_values():
                recipe = tyro.cli(kind, prog=f"lawful train {arguments[0]}", args=list(arguments[1:]))
    except (ValueError, OSError) as error:
        say(f"error: {error}")
        return USAGE
    try:
        ended = start(recipe, resume=run, folder=run.path.parent if run else Path("runs"))
    except TrainingFailed as error:
        say(f"error: {error}")
        return INTERRUPTED if isinstance(error.__cause__, KeyboardInterrupt) else FAILED
    if ended.interrupted:
        return INTERRUPTED
    if not int(os.environ.get("RANK", "0")):
        if ended.summary:
            print(f"test: {ended.summary}")
        for name in ("validation", "mean absolute error", "baselines"):
            if said := _figures(ended.results.get(name)):
                print(f"{name}: {said}")
    return 0


def _figures(found: Any) -> str:
    """The numbers of a result in a line."""
    numbers = found.items() if isinstance(found, dict) else ()
    return ", ".join(f"{name} {value:.4g}" for name, value in numbers if isinstance(value, int | float))


def _optional_values() -> ConstructorRegistry:
    """Shows a value that may be left open as `INT`, and not as `{None}|INT`."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        kinds = get_args(info.type)
        inner = [kind for kind in kinds if kind is not NoneType]
        if NoneType not in kinds or len(inner) != 1:
            return None
        spec = registry.get_primitive_spec(PrimitiveTypeInfo.make(inner[0], info.markers))
        if not isinstance(spec, PrimitiveConstructorSpec):
            return None
        return replace(
            spec,
            is_instance=lambda value: value is None or spec.is_instance(value),
            str_from_instance=lambda value: ["unset"] if value is None else spec.str_from_instance(value),
        )

    return registry


def _recipes(recipes: dict[str, Any]) -> str:
    lines = ["usage: lawful train RECIPE [--field value]...", "       lawful train --resume RUN", "", "recipes:"]
    for name, kind in recipes.items():
        lines.append(f"  {name:<16} {(kind.__doc__ or '').strip().splitlines()[0]}")
    return "\n".join([*lines, "", "lawful train RECIPE --help shows its fields"])


def runs(folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")] = "runs") -> int:
    """List the runs of a folder: what each trained, how far it is, what it came to.

    Args:
        folder: Where the runs are.
    """
    from lawful.training import runs as found

    listed = found(folder)
    if not listed:
        say(f"there are no runs in {folder}")
        return 0
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "recipe", "state", "result"):
        table.add_column(heading, overflow="fold")
    for run in listed:
        try:
            told = run.state, run.summary
        except (ValueError, OSError) as error:
            told = "damaged", str(error)
        table.add_row(str(run.path), str(run.config.get("recipe") or "-"), *told)
    Console(highlight=False, markup=False).print(table)
    return 0


def predict(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    output: Annotated[str, tyro.conf.arg(metavar="FILE")] = "-",
    samples: int = 0,
    seed: int = 0,
) -> int:
    """Predict with a trained run: a CSV line for each row, with probabilities and, where it can be had, an uncertainty.

    Args:
        run: The folder of the run.
        data: New data of the kind that it was trained on: a file, a folder of images or texts, or built-in data.
        output: The CSV file to write; `-` for standard output.
        samples: How often each row is predicted with dropout on, for the uncertainty; 0 for 32 where there is dropout.
        seed: What those random numbers begin from.
    """
    from lawful.recipes.predict import predictions
    from lawful.training.errors import user_message

    try:
        if samples < 0:
            raise ValueError(f"samples is at least 0: got {samples}")
        found = predictions(run, data, samples=samples, seed=seed)
        if output == "-":
            sys.stdout.write(found.csv())
        else:
            Path(output).write_text(found.csv(), encoding="utf-8")
    except (ValueError, OSError) as error:
        say(f"error: {user_message(error) or error}")
        return USAGE
    if found.summary:
        print(found.summary, file=sys.stderr)
    return 0
