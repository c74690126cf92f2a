"""Sampling from a run: a prompt in, text out piece by piece."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from lawful.data.text import Tokenizer, tokenizer_from_json
from lawful.inference.decoding import Sampling
from lawful.inference.decoding.text import one_or_several
from lawful.recipes.catalogue import load, recipe_of
from lawful.recipes.language.asked import AS_IT_SAYS, Asked, Writes
from lawful.training import Run


def tokenizer_of(run: Run | Path | str) -> Tokenizer:
    """Reads the tokenizer of a run of text.

    Raises:
        ValueError: where it has none.
    """
    run = run if isinstance(run, Run) else Run(run)
    facts = run.config.get("model")
    if not isinstance(facts, dict) or "tokenizer" not in facts:
        raise ValueError(f"{run.path} has no tokenizer: it is a run of {run.config.get('recipe') or 'your own model'}")
    return tokenizer_from_json(facts["tokenizer"])


def sample(
    run: Run | Path | str,
    prompt: str = "",
    *,
    tokens: int = 256,
    sampling: Sampling = AS_IT_SAYS,
    stop: str | Collection[str] = (),
    seed: int = 0,
    beams: int = 1,
) -> Iterator[str]:
    """Lets the model of a run write on where a prompt ends, and gives the text piece by piece.

    A model of pairs writes what the prompt becomes. Characters of the prompt that the model does not know are read as
    one token for them all: `tokenizer_of(run).unknown(prompt)` says which.

    Args:
        run: A run of text, or its folder.
        prompt: The text to begin with; it is not repeated.
        tokens: How many tokens are written, at most.
        sampling: How each is drawn.
        stop: A text that ends it, and is not shown, or several.
        seed: What the draws depend on.
        beams: How many continuations are searched for a probable one; 1 draws instead.

    Raises:
        ValueError: where the run does not write, or what is asked for cannot be.
    """
    run = run if isinstance(run, Run) else Run(run)
    asked = Asked(tokens=tokens, sampling=sampling, stop=one_or_several(stop), seed=seed, beams=beams)
    recipe = recipe_of(run)
    if not isinstance(recipe, Writes):
        raise ValueError(f"lawful sample takes a run that writes text or draws samples: {run.path} is of {recipe.name}")
    return recipe.write(load(run), tokenizer_of(run), prompt, asked)
