"""Beam search: the most probable continuations, several at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from lawful.inference.decoding.bigrams import Bigrams
from lawful.inference.decoding.decodes import Decodes, Reader
from lawful.inference.decoding.generate import evaluating
from lawful.laws import Claim, agreement, shape


class Found(NamedTuple):
    """A continuation, and the logarithm of its probability."""

    tokens: tuple[int, ...]
    log_probability: float


@torch.inference_mode()
def beam_search(
    model: Decodes,
    prompt: Sequence[int] | Int[Tensor, "t"],
    *,
    tokens: int,
    beams: int = 4,
    stop: Collection[int] = (),
    power: float = 1.0,
    context: int | None = None,
) -> list[Found]:
    r"""Searches for probable continuations of a prompt, and keeps the best of each length.

    $$\max_y \frac{\log p(y \mid x)}{|y|^a}$$

    With as many beams as there are continuations it finds the best; with one it is greedy. A continuation that ends in
    a stop token has ended, and is kept; the search is over when none of the others can be among the best any more.

    Args:
        model: The model.
        prompt: The tokens $x$, at least one.
        tokens: The most tokens of $y$.
        beams: How many continuations are kept.
        stop: Tokens that end one; they are part of it.
        power: $a$, which is what keeps the short ones from winning; 0 compares probabilities as they are.
        context: How many tokens the model sees, as in `generate`.

    Returns:
        The continuations, the best first.

    Examples:
        >>> from lawful.models.transformer import Decoder, DecoderConfig
        >>> best, *others = beam_search(Decoder(DecoderConfig(vocab=5, d=8)), [1, 2], tokens=3, beams=2)
        >>> len(best.tokens), len(others)
        (3, 1)
    """
    if tokens < 1 or beams < 1 or power < 0:
        came = f"{tokens}, {beams} and {power}"
        raise ValueError(f"tokens and beams of at least 1 and a power of at least 0 were wanted: got {came}")
    with evaluating(model):
        reader = Reader(model, torch.as_tensor(prompt), context=context)
        if len(reader.rows) != 1:
            raise ValueError(f"beam search takes one prompt: got {len(reader.rows)}")
        alive: list[Found] = [Found((), 0.0)]
        ended: list[Found] = []

        def score(found: Found) -> float:
            return found.log_probability / len(found.tokens) ** power

        for length in range(1, tokens + 1):
            sums = torch.tensor([found.log_probability for found in alive], dtype=torch.float64, device=reader.device)
            total = sums[:, None] + reader.logits.double().log_softmax(-1)
            vocab = total.shape[1]
            values, places = total.flatten().topk(min(total.numel(), beams + len(alive) * len(set(stop))))
            following: list[Found] = []
            parents: list[int] = []
            for value, place in zip(values.tolist(), places.tolist(), strict=True):
                parent, token = divmod(place, vocab)
                found = Found((*alive[parent].tokens, token), value)
                if token in stop:
                    ended.append(found)
                elif len(following) < beams:
                    following.append(found)
                    parents.append(parent)
            alive = following
            ended = sorted(ended, key=score, reverse=True)[:beams]
            out_of_reach = not alive or alive[0].log_probability / tokens**power <= score(ended[-1]) if ended else False
            if length == tokens or not alive or (len(ended) == beams and out_of_reach):
                break
            reader.select(torch.tensor(parents, device=reader.device))
            reader.feed(torch.tensor([found.tokens[-1] for found in alive], device=reader.device))
    return sorted([*ended, *alive], key=score, reverse=True)[:beams]


def claims() -> Iterator[Claim]:
    """The laws that beam search obeys."""

    def searched(x: Tensor) -> Tensor:
        found = beam_search(Bigrams(x), [0], tokens=4, beams=9)
        return x.new_tensor([found[0].log_probability, sum(len(one.tokens) for one in found)])

    def best_path(x: Tensor) -> Tensor:
        steps = x.log_softmax(-1)
        reached = steps[0]
        for _ in range(3):
            reached = (reached[:, None] + steps).amax(0)
        return torch.stack([reached.amax(), x.new_tensor(36.0)])

    def ending(x: Tensor) -> Tensor:
        found = beam_search(Bigrams(x), [0], tokens=3, beams=50, stop={2}, power=0.0)
        return x.new_tensor([one.log_probability for one in found]).exp().sum()

    yield Claim(agreement(other=best_path), searched, shape("3 3"), name="beam_search finds the best path")
    yield Claim(agreement(other=lambda x: x.new_ones(())), ending, shape("3 3"), name="beam_search, all that can come")
