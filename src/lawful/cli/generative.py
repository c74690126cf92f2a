"""`lawful score` and `lawful complete`, and what `lawful sample` does with a generative model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import tyro

from lawful.cli.words import USAGE, say


def generates(run: str) -> bool:
    """Whether a folder has a run of a generative model; where there is no run, what is asked next says so."""
    from lawful.training import Run

    try:
        facts = Run(run).config.get("model")
    except (ValueError, OSError):
        return False
    return isinstance(facts, dict) and "form" in facts


def sampled(
    run: str, *, n: int, seed: int, label: str | None, guidance: float | None, steps: int | None, out: str | None
) -> int:
    """Draws samples of a generative model to a file, or as CSV to standard output."""
    from lawful.recipes.ask import opened
    from lawful.recipes.generative.asked import as_csv, drawn, save_samples
    from lawful.training import Run
    from lawful.training.failures import explained

    try:
        of = opened(run)
        x = drawn(of, n=n, seed=seed, label=label, guidance=guidance, steps=steps)
        if out is None and len(of.form.shape) == 1:
            _write(as_csv(x, of.form))
            return 0
        named = f"{seed}" if label is None else f"{seed}, {Path(label).name}"
        path = Path(out) if out else Run(run).samples / f"samples of seed {named}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_samples(x, path, of.form)
        print(f"{n} samples: {path}", file=sys.stderr)
    except (ValueError, OSError) as error:
        say(f"error: {explained(error) or error}")
        return USAGE
    return 0


def score(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = "-",
    seed: int = 0,
    draws: int = 1,
) -> int:
    """Score data with a trained generative model: a CSV line for each row, with the nats that it is given.

    What is least probable is named on standard error: it is least like the data of the run.

    Args:
        run: The folder of the run.
        data: Data of the kind that it was trained on: a file, a folder of images, or built-in data.
        out: The CSV file to write; `-` for standard output.
        seed: What noise begins from.
        draws: Over how many draws of noise each score is averaged, where it has some.
    """
    from lawful.recipes.ask import score as scored
    from lawful.training.failures import explained

    try:
        found = scored(run, data, seed=seed, draws=draws)
        if out == "-":
            _write(found.csv())
        else:
            Path(out).write_text(found.csv(), encoding="utf-8")
    except (ValueError, OSError) as error:
        say(f"error: {explained(error) or error}")
        return USAGE
    print(found.summary, file=sys.stderr)
    return 0


def complete(
    given: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[RUN] IMAGE")],
    mask: Annotated[str, tyro.conf.arg(metavar="MASK")],
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = "completed.png",
    seed: int = 0,
) -> int:
    """Fill in the missing part of an image: by a trained model, or without a run by the image's own patches.

    Args:
        given: The folder of a run of images, if there is one, and the image.
        mask: An image of the same size, white where the image is missing.
        out: The PNG file to write.
        seed: What is drawn begins from.
    """
    from lawful.recipes.ask import opened
    from lawful.recipes.generative.completing import by_model, by_patches, write_image
    from lawful.training.failures import explained

    try:
        if len(given) not in (1, 2):
            raise ValueError(
                f"lawful complete takes an image, or a run and an image: got {' '.join(given) or 'nothing'}"
            )
        if Path(out).suffix.lower() != ".png":
            raise ValueError(f"the completed image is written as .png: got {out}")
        of = opened(given[0]) if len(given) == 2 else None
        x = by_patches(given[-1], mask, seed=seed) if of is None else by_model(of, given[-1], mask, seed=seed)
        write_image(x, Path(out), of)
    except (ValueError, OSError) as error:
        say(f"error: {explained(error) or error}")
        return USAGE
    print(f"completed: {out}", file=sys.stderr)
    return 0


def _write(text: str) -> None:
    """Writes to standard output, as far as somebody reads."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
