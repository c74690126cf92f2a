"""`lawful sample`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from typing import Annotated

import tyro

from lawful.cli.words import USAGE, say


@dataclass(frozen=True, kw_only=True)
class Drawing:
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


AS_THE_MODEL_SAYS = Drawing()


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
    drawing: tyro.conf.OmitArgPrefixes[Drawing] = AS_THE_MODEL_SAYS,
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
    from lawful.cli.generative import generates, sampled

    if generates(run):
        usual = {"prompt": "", "tokens": 256, "drawing": AS_THE_MODEL_SAYS, "stop": (), "beams": 1}
        asked = {"prompt": prompt, "tokens": tokens, "drawing": drawing, "stop": stop, "beams": beams}
        for name, value in asked.items():
            if value != usual[name]:
                said = "how tokens are drawn" if name == "drawing" else name
                say(f"error: {said} is for a run of text: {run} is of a generative model, which takes n, label and out")
                return USAGE
        return sampled(run, seed=seed, **asdict(samples))
    from lawful.inference.decoding import Sampling
    from lawful.recipes.sample import sample as written
    from lawful.recipes.sample import tokenizer_of
    from lawful.training import Run
    from lawful.training.failures import explained
    from lawful.training.shown.characters import without_controls

    try:
        if samples != SIXTEEN:
            named = ", ".join(asdict(samples))
            raise ValueError(f"{named} are for a run of a generative model: {Run(run).path} is none")
        top_k = drawing.top_k
        sampling = Sampling(**{**asdict(drawing), "top_k": top_k or None})
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
        say(f"error: {explained(error) or error}")
        return USAGE
    return 0
