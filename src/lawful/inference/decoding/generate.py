"""Generating tokens: a model goes on where prompts end."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Int
from torch import Tensor, nn

from lawful.blocks.modes import in_training
from lawful.inference.decoding.bigrams import Bigrams
from lawful.inference.decoding.decodes import Decodes, Prompts, Reader
from lawful.inference.decoding.sampling import GREEDY, PURE, Draws, Sampling
from lawful.laws import Claim, agreement, shape


def generate(
    model: Decodes,
    prompts: Prompts,
    *,
    tokens: int,
    sampling: Sampling = PURE,
    stop: Collection[int] = (),
    seed: int = 0,
    first: int = 0,
    context: int | None = None,
) -> Int[Tensor, "b n"]:
    """Writes on where prompts end, token by token with a cache, in evaluation mode.

    The prompts may be of any lengths: each comes out as it does alone. With a seed, prompt `i` gives the same whatever
    the others are, and `first=i` gives it alone.

    Args:
        model: The model.
        prompts: One row of tokens, or several; none is empty.
        tokens: How many tokens are written, at most.
        sampling: How each is drawn; `GREEDY` takes the most probable.
        stop: Tokens that end a row. A row that has one repeats it, until all rows have ended.
        seed: What the draws depend on.
        first: The number of the first prompt, where these are a part of more.
        context: How many tokens the model sees; by default its own limit. Beyond it, the older half is forgotten.

    Examples:
        >>> from lawful.models.transformer import Decoder, DecoderConfig
        >>> generate(Decoder(DecoderConfig(vocab=5, d=8)), [[1, 2], [4]], tokens=3).shape
        torch.Size([2, 3])
    """
    _check(tokens)
    with torch.inference_mode(), evaluating(model):
        found = list(_drawn(model, prompts, tokens, sampling, stop, seed, first, context))
    return torch.stack(found, dim=1)


@torch.inference_mode()
def stream(
    model: Decodes,
    prompts: Prompts,
    *,
    tokens: int,
    sampling: Sampling = PURE,
    stop: Collection[int] = (),
    seed: int = 0,
    first: int = 0,
    context: int | None = None,
) -> Generator[list[int], None, None]:
    """Writes as `generate` does, and gives each token, one for each prompt, as soon as it is there.

    The model is in evaluation mode until the stream ends or is closed.

    Args:
        model: The model.
        prompts: One row of tokens, or several; none is empty.
        tokens: How many tokens are written, at most.
        sampling: How each is drawn.
        stop: Tokens that end a row.
        seed: What the draws depend on.
        first: The number of the first prompt.
        context: How many tokens the model sees.

    Examples:
        >>> after = torch.eye(5).roll(1, dims=1)
        >>> list(stream(Bigrams(after), [[1, 2], [4]], tokens=3, sampling=GREEDY))
        [[3, 0], [4, 1], [0, 2]]
    """
    _check(tokens)
    with evaluating(model):
        for drawn in _drawn(model, prompts, tokens, sampling, stop, seed, first, context):
            yield drawn.tolist()


def _drawn(
    model: Decodes,
    prompts: Prompts,
    tokens: int,
    sampling: Sampling,
    stop: Collection[int],
    seed: int,
    first: int,
    context: int | None,
) -> Iterator[Tensor]:
    reader = Reader(model, prompts, context=context)
    logits = reader.logits
    draw = Draws(sampling, reader.prompts, vocab=logits.shape[-1], seed=seed, first=first)
    ended: dict[int, int] = {}
    for left in range(tokens, 0, -1):
        drawn = draw(logits)
        if stop:
            for row, token in ended.items():
                drawn[row] = token
            ended |= {row: token for row, token in enumerate(drawn.tolist()) if token in stop}
        yield drawn
        if left == 1 or len(ended) == len(drawn):
            return
        logits = reader.feed(drawn)


def _check(tokens: int) -> None:
    if tokens < 1:
        raise ValueError(f"tokens are at least 1: got {tokens}")


def evaluating(model: Decodes) -> AbstractContextManager[None]:
    """Puts a module in evaluation mode, and back afterwards."""
    return in_training(model) if isinstance(model, nn.Module) else nullcontext()


def claims() -> Iterator[Claim]:
    """The laws that generation obeys."""
    prompts = [[0, 1], [2], [1, 1, 0]]

    def greedy(x: Tensor) -> Tensor:
        return generate(Bigrams(x), prompts, tokens=4, sampling=GREEDY).to(x)

    def followed(x: Tensor) -> Tensor:
        best = [int(row.argmax()) for row in x]
        rows = [[*prompt] for prompt in prompts]
        for row in rows:
            for _ in range(4):
                row.append(best[row[-1]])
        return x.new_tensor([row[-4:] for row in rows])

    def together(x: Tensor) -> Tensor:
        return generate(Bigrams(x), prompts, tokens=5, seed=3).to(x)

    def alone(x: Tensor) -> Tensor:
        rows = [generate(Bigrams(x), prompt, tokens=5, seed=3, first=i) for i, prompt in enumerate(prompts)]
        return torch.cat(rows).to(x)

    yield Claim(agreement(other=followed), greedy, shape("3 3"), name="generate, greedy")
    yield Claim(agreement(other=alone), together, shape("3 3"), name="generate, sampled: ragged prompts one by one")
