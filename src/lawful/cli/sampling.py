"""`lawful sample`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import tyro

from lawful.cli.words import USAGE, say


def sample(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    prompt: str = "",
    tokens: int = 256,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int = 0,
    stop: tuple[str, ...] = (),
    beams: int = 1,
) -> int:
    """Let a trained run write: on where the prompt ends, or what the prompt becomes.

    Args:
        run: The folder of the run.
        prompt: The text to begin with.
        tokens: How many tokens to write, at most.
        temperature: How bold it is: 0 takes the most probable token, 1 draws as the model says.
        top_k: How many tokens may come, the most probable; 0 for all.
        top_p: The probability that the tokens which may come have together.
        min_p: The least probability of a token, as a share of the largest.
        repetition_penalty: What the scores of tokens that are there already are divided by; 1 for nothing.
        seed: What the draws begin from.
        stop: Texts that end it, and are not shown.
        beams: How many continuations are searched for a probable one; 1 draws instead.
    """
    from lawful.inference.decoding import Sampling
    from lawful.recipes.sample import sample as written
    from lawful.recipes.sample import tokenizer_of
    from lawful.training.failures import explained
    from lawful.training.shown.characters import without_controls

    try:
        sampling = Sampling(
            temperature=temperature,
            top_k=top_k or None,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
        )
        pieces = written(run, prompt, tokens=tokens, sampling=sampling, stop=stop, seed=seed, beams=beams)
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
