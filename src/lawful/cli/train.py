"""`lawful train`, `lawful runs` and `lawful predict`."""

from __future__ import annotations

import ast
import gc
import inspect
import io
import json
import os
import re
import sys
import typing
from collections.abc import Iterator, Sequence
from dataclasses import field, fields, is_dataclass, make_dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from lawful._files import list_folder, write_file
from lawful._json import field_types
from lawful._names import printable, quote
from lawful.checking.formatting import format_number
from lawful.cli.console import (
    FAILED,
    INTERRUPTED,
    OPTIONAL,
    USAGE,
    check_output,
    note,
    optional_values,
    say,
    write_output,
)

if TYPE_CHECKING:
    from lawful.recipes.predict import Predictions

# ---------------------------------------------------------------- lawful train


def train(arguments: Sequence[str]) -> int:
    """Trains a model with a recipe, or resumes a run."""
    from lawful.training import Run, TrainingFailed
    from lawful.training import train as start
    from lawful.training.registry import RECIPES, _unknown_recipe, build_recipe, recipe_of

    if not arguments or arguments[0] in ("-h", "--help"):
        print(_list_recipes(RECIPES))
        return 0 if arguments else USAGE
    run, output_dir, override = None, Path("runs"), {}
    try:
        if any(word.partition("=")[0] == "--resume" for word in arguments):
            folder, override = _parse_resume(arguments)
            run = Run(folder)
            recipe, output_dir = recipe_of(run), run.path.parent
            build_recipe(recipe, override)
        elif arguments[0] not in RECIPES:
            say(f"error: {_unknown_recipe(arguments[0])}")
            return USAGE
        else:
            recipe, output_dir = parse_recipe(RECIPES[arguments[0]], arguments[1:])
    except (ValueError, OSError) as error:
        say(f"error: {error}")
        return USAGE
    try:
        finished = start(recipe, resume=run, output_dir=output_dir, override=override)
    except TrainingFailed as error:
        say(f"error: {error}")
        if isinstance(error.__cause__, KeyboardInterrupt):
            return INTERRUPTED
        wrong_input = error.run is None and isinstance(error.__cause__, ValueError | FileNotFoundError)
        return USAGE if wrong_input else FAILED
    if finished.interrupted:
        return INTERRUPTED
    if not int(os.environ.get("RANK", "0")):
        if "test" in finished.results and finished.summary:
            print(printable(f"test: {finished.summary}"))
        for name in ("validation", "mean absolute error", "baselines"):
            if line := _format_numbers(finished.results.get(name)):
                print(printable(f"{name}: {line}"))
    return 0


def _parse_resume(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Parses `--resume RUN` with any number of `--override NAME=VALUE`. Values are JSON or words."""
    usage = f"lawful train --resume RUN takes no other arguments than --override NAME=VALUE, got {' '.join(arguments)}"
    folder, override = None, {}
    words = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        value = value if equals else next(words, "")
        if flag == "--resume" and folder is None and value:
            folder = value
        elif flag == "--override" and "=" in value:
            name, _, text = value.partition("=")
            override[name.removeprefix("--").replace("-", "_")] = _parse_value(text)
        else:
            raise ValueError(usage)
    if folder is None:
        raise ValueError(usage)
    return folder, override


def _parse_value(text: str) -> Any:
    """Parses JSON; other text is a word.

    Examples:
        >>> _parse_value("1e-3"), _parse_value("[64, 32]"), _parse_value("adamw")
        (0.001, [64, 32], 'adamw')
    """
    try:
        return json.loads(text)
    except ValueError:
        return text


def _format_numbers(results: Any) -> str:
    numbers = results.items() if isinstance(results, dict) else ()
    named = ((quote(name), value) for name, value in numbers if isinstance(value, int | float))
    return "; ".join(f"{name} {format_number(value)}" for name, value in named)


def _list_recipes(recipes: typing.Mapping[str, Any]) -> str:
    lines = [
        "usage: lawful train RECIPE [OPTIONS]",
        "       lawful train --resume RUN [--override NAME=VALUE ...]",
        "",
        "recipes:",
    ]
    width = max(map(len, recipes))
    for name, kind in recipes.items():
        lines.append(f"  {name:<{width}} {(kind.__doc__ or '').strip().splitlines()[0]}")
    return "\n".join([*lines, "", "lawful train RECIPE --help shows the options of a recipe"])


# ---------------------------------------------------------------- options of a recipe


def parse_recipe(kind: type[Any], arguments: Sequence[str]) -> tuple[Any, Path]:
    """Parses the options of a recipe and `--output-dir`.

    A field that is a tagged union, such as `model`, becomes `--model NAME` with the options of that member.

    Raises:
        ValueError: If an option is unknown, invalid, or belongs to another member of a union.
    """
    from lawful.training.registry import _unions

    hints, defaults, unions = field_types(kind), kind(), _unions(kind)
    chosen = {name: _choose(name, members, getattr(defaults, name), arguments) for name, members in unions.items()}
    arguments = _resolve_flags(kind, chosen, arguments)

    docs, groups = _field_docs(kind), []
    for title, names in _groups(kind):
        entries = []
        for name in names:
            if name in unions:
                options = tuple(member.name for member in unions[name])
                summaries = "; ".join(f"{member.name}: {_summary(member)}" for member in unions[name])
                kind_of_name = Annotated[Literal[options], tyro.conf.arg(help=f"{docs.get(name, '')} {summaries}.")]  # type: ignore[valid-type]
                entries.append((name, kind_of_name, chosen[name].name))
            else:
                entries.append(_option(name, hints[name], docs.get(name, ""), getattr(defaults, name)))
        groups.append((title, _dataclass(title, entries)))
    specs = [_member_options(name, spec) for name, spec in chosen.items() if fields(spec)]
    top = [(title, group, group()) for title, group in groups]
    output = ("output_dir", Annotated[str, tyro.conf.arg(help="Folder for the runs.")], "runs")
    options_type = _dataclass("options", [*top[:1], *specs, *top[1:], output], doc=kind.__doc__)
    with optional_values():
        parsed = tyro.cli(
            tyro.conf.OmitArgPrefixes[options_type],
            prog=f"lawful train {kind.name}",
            description=kind.__doc__,
            args=list(arguments),
        )
    values = {f.name: getattr(getattr(parsed, title), f.name) for title, group in groups for f in fields(group)}
    for name, spec in chosen.items():
        options = getattr(parsed, _member_title(name, spec), None)
        values[name] = replace(spec, **vars(options)) if options else spec
    return kind(**values), Path(parsed.output_dir)


def _member_title(name: str, spec: Any) -> str:
    return f"{name}_{spec.name}".replace("-", "_")


def _member_options(name: str, spec: Any) -> tuple[str, type[Any], Any]:
    """The options of the chosen member of a union."""
    title, hints, docs = _member_title(name, spec), field_types(type(spec)), _field_docs(type(spec))
    entries = [_option(f.name, hints[f.name], docs.get(f.name, ""), getattr(spec, f.name)) for f in fields(spec)]
    options = _dataclass(title, entries, doc=type(spec).__doc__)
    return title, options, options()


def _option(name: str, hint: Any, doc: str, default: Any) -> tuple[str, Any, Any]:
    """An option with its help text. Sentences about the default are only shown if it is not a plain value."""
    sentences = re.split(r"(?<=\.)\s+", doc)
    about_default = [s for s in sentences if s.startswith(("Defaults to ", "The default depends on "))]
    help = " ".join(s for s in sentences if s not in about_default)
    shown = None if default not in (None, ()) else " ".join(about_default) or "(optional)"
    return name, Annotated[hint, tyro.conf.arg(help=help, help_behavior_hint=shown)], default


def _dataclass(name: str, entries: Sequence[tuple[str, Any, Any]], *, doc: str | None = "") -> type[Any]:
    made = make_dataclass(
        name,
        [(key, hint, field(default_factory=lambda value=value: value)) for key, hint, value in entries],
        kw_only=True,
    )
    made.__doc__ = doc
    made.__module__ = "builtins"  # it has no source: tyro would parse that of the module for every field
    return made


def _choose(name: str, members: Sequence[Any], default: Any, arguments: Sequence[str]) -> Any:
    """The member of a union that `--name NAME` selects, with its default options."""
    flags = (f"--{name}", _flag(name))
    for i, word in enumerate(arguments):
        flag, equals, value = word.partition("=")
        if flag in flags:
            selected = value if equals else (list(arguments[i + 1 :]) or [""])[0]
            found = [member for member in members if member.name == selected]
            if found:
                return default if isinstance(default, found[0]) else found[0]()
    return default


def _resolve_flags(kind: type[Any], chosen: dict[str, Any], arguments: Sequence[str]) -> list[str]:
    """Replaces other names of options, such as `--lr`, and refuses unknown options and those of other members."""
    from lawful.training.registry import _find_option

    words = []
    for word in arguments:
        flag, equals, value = word.partition("=")
        negated = "--no-" if flag.startswith("--no-") else "--"
        if not flag.startswith("--") or flag == "--help":
            words.append(word)
            continue
        name = flag.removeprefix(negated).replace("-", "_")
        option = _find_option(kind, chosen, name, show=_flag, more=("output_dir",))
        words.append(f"{negated}{option.replace('_', '-')}{equals}{value}")
    return words


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _groups(kind: type[Any]) -> Iterator[tuple[str, list[str]]]:
    """The options of a recipe, grouped by the class that declares them: its own first, the trainer's last."""
    from lawful.training import Recipe, TrainerConfig

    def configs(cls: type[Any]) -> Iterator[type[Any]]:
        for base in cls.__bases__:
            if base is Recipe:
                yield TrainerConfig
            elif is_dataclass(base) and issubclass(base, Recipe):
                yield from configs(base)
            elif is_dataclass(base) and fields(base):
                yield base

    grouped: dict[str, list[str]] = {}
    taken: set[str] = set()
    for base in dict.fromkeys(configs(kind)):
        names = [f.name for f in fields(base) if f.name not in taken]
        taken.update(names)
        grouped.setdefault(_title(base), []).extend(names)
    yield "recipe", [f.name for f in fields(kind) if f.name not in taken]
    yield from sorted(grouped.items(), key=lambda item: item[0] == "trainer")


def _title(config: type[Any]) -> str:
    name = config.__name__.removesuffix("Config")
    return next((word.lower() for word in ("Data", "Optimization") if name.endswith(word)), name.lower())


def _summary(cls: type[Any]) -> str:
    """The first line of the docstring, as part of a sentence."""
    line = (cls.__doc__ or "").strip().splitlines()[0].removesuffix(".")
    proper_noun = line[:2].isupper() or line[1:2] == "-" or line.startswith("Gaussian")
    return line if proper_noun else line[:1].lower() + line[1:]


def _field_docs(cls: type[Any]) -> dict[str, str]:
    """The docstrings under the fields of a dataclass and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if is_dataclass(base) and (definition := _class_definitions(base.__module__).get(base.__name__)):
            for statement, following in pairwise(definition.body):
                match statement, following:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        docs[name] = " ".join(text.split())
    return docs


@cache
def _class_definitions(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module by name, or none without its source."""
    collecting = gc.isenabled()
    gc.disable()  # CPython 3.11 raises SystemError if a collection callback runs Python code within ast.parse
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, SyntaxError, TypeError):
        return {}
    finally:
        if collecting:
            gc.enable()
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


# ---------------------------------------------------------------- lawful runs, lawful predict


def runs(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")] = "runs",
    verify: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """List the runs of a folder with their recipe, data, status and result.

    Args:
        folder: Folder of the runs. With --verify, it may be a run.
        verify: Compare all files with their checksums instead; the exit code is 1 if one was edited or is damaged.
    """
    from lawful.training import runs as list_runs

    if verify:
        return _verify_runs(Path(folder))
    listed = list_runs(folder)
    if not listed:
        say(f"{folder} has no runs")
        return 0
    table = Table(box=None, pad_edge=False)
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _FILE_WIDTH)
    for heading in ("run", "recipe", "data", "status", "result"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("run", "status"))
    for run in listed:
        try:
            columns = run.status, run.summary if console.width >= _WIDE else run.summary.partition("; ")[0]
        except (ValueError, OSError) as error:
            columns = "damaged", str(error)
        options = run.config.get("options")
        options = options if isinstance(options, dict) else {}
        attacked, data = options.get("run"), options.get("data")
        data = str(attacked) if attacked else Path(str(data or "-")).name
        table.add_row(*map(quote, (run.path, run.config.get("recipe") or "-", data, *columns)))
    console.print(table)
    return 0


def _verify_runs(folder: Path) -> int:
    """Compares the files of runs with their checksums, and prints what differs."""
    from lawful.training import Run

    names = list_folder(folder)
    paths = [folder] if "config.json" in names else [folder / name for name in names]
    paths = [path for path in paths if "config.json" in list_folder(path)]
    damaged = 0
    for path in paths:
        try:
            problems = Run(path).problems()
        except (ValueError, OSError) as error:
            problems = [str(error)]
        damaged += bool(problems)
        print(f"{quote(path)}: {'intact' if not problems else 'damaged'}")
        for problem in problems:
            print(printable(f"  {problem}"))
    if not paths:
        say(f"{quote(folder)} has no runs")
    return FAILED if damaged else 0


_FILE_WIDTH = 1000
"""Largest width of the list of runs in a file or a pipe."""
_WIDE = 120
"""A narrower terminal shows the first metric only."""


def _write_predictions(table: Predictions, output: str, *, escape: bool) -> None:
    """Writes predictions as CSV, or positions of particles as an NPZ file."""
    if not output.lower().endswith(".npz"):
        write_output(table.csv(escape=escape), output)
    elif table.positions is None:
        raise ValueError(f"the predictions of this run are a table: --output must be a CSV file, got {output}")
    else:
        import numpy as np

        data = io.BytesIO()
        np.savez(data, positions=table.positions)
        write_file(output, data.getvalue())


def predict(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    data: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]", help_behavior_hint="(optional)")
    ] = None,
    nodes: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(optional)")] = None,
    output: Annotated[str, tyro.conf.arg(metavar="FILE")] = "-",
    horizon: Annotated[int | None, OPTIONAL] = None,
    drop_missing: bool = False,
    num_samples: int = 0,
    seed: int = 0,
    escape: bool = True,
) -> int:
    """Predict new data with a trained run: one CSV row per example, with probabilities and uncertainty.

    A forecast run needs no data: `lawful predict RUN --horizon 14` continues its series. Without data, a run of
    node-classify predicts the unlabeled nodes of its graph. A run of nbody takes an NPZ file, and writes arrays if the
    output is an NPZ file.

    Args:
        run: Folder of the run.
        data: New data in the format of the training data. A forecast run continues this series instead of its own.
        nodes: Table of the nodes, if the data are the edges of a graph.
        output: CSV file to write, or an NPZ file for a run of nbody; `-` for standard output.
        horizon: Number of values to forecast. Defaults to the horizon of the run.
        drop_missing: Drop rows with missing values. By default, they are imputed as in training.
        num_samples: Number of Monte Carlo dropout samples for the uncertainty; 0 means 32 for models with dropout.
        seed: Random seed of the dropout samples.
        escape: Whether names in the table are made safe for spreadsheets and terminals.
    """
    from lawful.recipes.predict import predictions
    from lawful.training.errors import user_message

    try:
        if num_samples < 0:
            raise ValueError(f"--num-samples must be at least 0, got {num_samples}")
        check_output(output)
        table = predictions(
            run, data, nodes=nodes, horizon=horizon, num_samples=num_samples, seed=seed, drop_missing=drop_missing
        )
        _write_predictions(table, output, escape=escape)
    except (ValueError, OSError) as error:
        say(f"error: {user_message(error) or error}")
        return USAGE
    for text in table.notes:
        note(f"warning: {text}")
    if table.summary:
        note(table.summary)
    return 0
