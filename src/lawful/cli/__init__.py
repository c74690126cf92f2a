"""The command line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import tyro

from lawful.cli.check import check, discover, laws
from lawful.cli.console import INTERNAL, INTERRUPTED, USAGE, say
from lawful.cli.generate import complete, sample, score
from lawful.cli.train import predict, runs, train


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code, as pytest's are."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["train"]:  # whose options are those of the recipe
            return train(given[1:])
        return tyro.extras.subcommand_cli_from_dict(
            {
                "check": check,
                "discover": discover,
                "laws": laws,
                "train": _train,
                "runs": runs,
                "predict": predict,
                "sample": sample,
                "score": score,
                "complete": complete,
            },
            prog="lawful",
            description="The building blocks of modern machine learning, each with the laws it obeys.",
            args=given,
        )
    except SystemExit as ended:  # tyro has shown its help, or what is wrong with the arguments
        return 0 if not ended.code else USAGE
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except Exception as error:
        say(f"internal error: {type(error).__name__}: {error}")
        if "--debug" in given:
            traceback.print_exc()
        return INTERNAL


def _train() -> int:
    """Train a recipe on your data or built-in data, or go on with a run; lawful train --help lists the recipes."""
    return USAGE
