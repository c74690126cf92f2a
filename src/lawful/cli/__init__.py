"""The command line."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version

import tyro

from lawful._files import LinkError
from lawful._names import quote
from lawful._suggest import did_you_mean
from lawful.cli.approximate import approximate
from lawful.cli.check import check, discover, laws
from lawful.cli.console import INTERNAL, INTERRUPTED, USAGE, discard_output, optional_values, say
from lawful.cli.export import export
from lawful.cli.generate import generate, inpaint, sample, score
from lawful.cli.train import predict, runs, train


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            return _run(args)
        finally:
            sys.stdout.flush()  # here a reader that has left is no error
    except SystemExit as exit:  # 2: tyro has printed an error; 1: rich has found that the reader has left
        return 0 if not exit.code else INTERRUPTED if exit.code == 1 else USAGE
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has left, such as `head`
        discard_output()
        return INTERRUPTED
    except LinkError as error:
        say(f"error: {error}")
        return USAGE
    except Exception as error:
        say(f"internal error: {type(error).__name__}: {error}")
        if "--debug" in args:
            traceback.print_exc()
        return INTERNAL


def _run(args: list[str]) -> int:
    if args == ["--version"]:
        print(f"lawful {version('lawful')}")
        return 0
    if any("\0" in arg for arg in args):
        say("error: an argument contains a NUL character")
        return USAGE
    if args[:1] == ["train"]:  # its options depend on the recipe
        return train(args[1:])
    if args[:1] == ["approximate"] and args[1:2] != ["-h"] and args[1:] and re.match("-[^-]", args[1]):
        args[1] = f"({args[1]})"  # an expression such as -x is not an option
    name = args[0] if args else ""
    if name and not name.startswith("-") and name not in _COMMANDS:
        say(f"error: there is no command {quote(name)}{did_you_mean(name, _COMMANDS)} See lawful --help")
        return USAGE
    with optional_values():
        if name in _COMMANDS:
            return tyro.cli(_COMMANDS[name], prog=f"lawful {name}", args=args[1:])
        return tyro.extras.subcommand_cli_from_dict(
            {key: _summary(command) for key, command in _COMMANDS.items()},
            prog="lawful",
            description="Building blocks of modern machine learning on PyTorch, with the laws they satisfy.\n\n"
            "lawful COMMAND --help shows the options of a command, lawful --version the version.",
            args=args,
        )


def _train() -> int:
    """Train a model on your data or on built-in data. lawful train --help lists the recipes."""
    return USAGE


_COMMANDS: dict[str, Callable[..., int]] = {
    "check": check,
    "discover": discover,
    "laws": laws,
    "train": _train,
    "runs": runs,
    "predict": predict,
    "generate": generate,
    "sample": sample,
    "score": score,
    "inpaint": inpaint,
    "export": export,
    "approximate": approximate,
}


def _summary(command: Callable[..., int]) -> Callable[[], int]:
    """Returns a stand-in for a command in the list of commands, with the first paragraph of its help."""

    def summary() -> int:
        return USAGE

    summary.__doc__ = inspect.cleandoc(command.__doc__ or "").partition("\n\n")[0]
    return summary
