"""`lawful sample`.

`lawful score` and `lawful complete`, and what `lawful sample` does with a generative model.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from lawful.cli.console import USAGE, say


@dataclass(frozen=True, kw_only=True)
class DecodingFlags:
    """How each token is drawn."""

    temperature: float = 1.0
    """How bold it is: 0 takes the most probable token, 1 draws as the model says."""
    top_k: int = 0
    """How many tokens may come, the most probable; 0 for all."""
    top_p: float = 1.0
    """The probability that the tokens which may come have together."""
    min_p: float = 0.0
    """The least probability of a token, as a share of the largest."""
    repetition_penalty: float = 1.0
    """What the scores of tokens that are there already are divided by; 1 for nothing."""


AS_THE_MODEL_SAYS = DecodingFlags()


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Which samples of a generative model are drawn, and where they go."""

    n: int = 16
    """A generative model: how many samples."""
    label: str | None = None
    """A conditional one: the label that they have."""
    guidance: float | None = None
    """Diffusion: how strongly samples are led to the label, 1 for as it was learnt; by default as in the run."""
    steps: int | None = None
    """Diffusion: in how many steps samples are drawn; by default as in the run."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] | None = None
    """A generative model: the .png, .npy or .csv file to write; by default CSV to standard output, images to a file."""


SIXTEEN = Samples()


def sample(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    prompt: str = "",
    tokens: int = 256,
    drawing: tyro.conf.OmitArgPrefixes[DecodingFlags] = AS_THE_MODEL_SAYS,
    seed: int = 0,
    stop: Annotated[
        tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="[STR [STR ...]]")
    ] = (),
    beams: int = 1,
    samples: tyro.conf.OmitArgPrefixes[Samples] = SIXTEEN,
) -> int:
    """Let a trained run write, on where the prompt ends or what the prompt becomes; or draw samples of its data.

    Args:
        run: The folder of the run.
        prompt: The text to begin with.
        tokens: How many tokens to write, at most.
        drawing: How each token is drawn.
        seed: What the draws begin from.
        stop: Texts that end it, and are not shown.
        beams: How many continuations are searched for a probable one; 1 draws instead.
        samples: Which samples of a generative model are drawn.
    """
    pass

    if generates(run):
        usual = {"prompt": "", "tokens": 256, "drawing": AS_THE_MODEL_SAYS, "stop": (), "beams": 1}
        asked = {"prompt": prompt, "tokens": tokens, "drawing": drawing, "stop": stop, "beams": beams}
        for name, value in asked.items():
            if value != usual[name]:
                said = "how tokens are drawn" if name == "drawing" else name
                say(f"error: {said} is for a run of text: {run} is of a generative model, which takes n, label and out")
                return USAGE
        return sampled(run, seed=seed, **asdict(samples))
    from lawful.models.generation import SamplingConfig
    from lawful.recipes.generate import sample as written
    from lawful.recipes.generate import tokenizer_of
    from lawful.training import Run
    from lawful.training.errors import user_message
    from lawful.training.loggers import without_controls

    try:
        if samples != SIXTEEN:
            named = ", ".join(asdict(samples))
            raise ValueError(f"{named} are for a run of a generative model: {Run(run).path} is none")
        top_k = drawing.top_k
        sampling = SamplingConfig(**{**asdict(drawing), "top_k": top_k or None})
        pieces = written(run, prompt, tokens=tokens, sampling=sampling, stop=sum(stop, ()), seed=seed, beams=beams)
        tokenizer = tokenizer_of(run)
        if unknown := tokenizer.unknown(prompt):
            say(f"note: the run knows no {', '.join(map(ascii, unknown[:10]))}: read as an unknown character")
        if top_k > tokenizer.vocab:
            say(f"note: top-k {top_k} is above the vocabulary, which has {tokenizer.vocab} tokens: all may come")
        clean = without_controls if sys.stdout.isatty() else str
        encoding = sys.stdout.encoding or "utf-8"
        for piece in pieces:
            sys.stdout.write(clean(piece).encode(encoding, "replace").decode(encoding))
            sys.stdout.flush()
        sys.stdout.write("\n")
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as error:
        say(f"error: {user_message(error) or error}")
        return USAGE
    return 0


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
    from lawful.recipes.generate import as_csv, drawn, opened, save_samples
    from lawful.training import Run
    from lawful.training.errors import user_message

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
        say(f"error: {user_message(error) or error}")
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
    from lawful.recipes.generate import score as scored
    from lawful.training.errors import user_message

    try:
        found = scored(run, data, seed=seed, draws=draws)
        if out == "-":
            _write(found.csv())
        else:
            Path(out).write_text(found.csv(), encoding="utf-8")
    except (ValueError, OSError) as error:
        say(f"error: {user_message(error) or error}")
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
    from lawful.recipes.generate import by_model, by_patches, opened, write_image
    from lawful.training.errors import user_message

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
        say(f"error: {user_message(error) or error}")
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
