"""Beam search: the most probable continuations, several at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.laws import Claim, agreement, shape
from lawful.models.generation import Bigrams, CausalLM, PromptReader, Prompts, evaluating


class BeamHypothesis(NamedTuple):
    """A continuation, and the logarithm of its probability."""

    tokens: tuple[int, ...]
    log_probability: float


def beam_search(
    model: CausalLM,
    prompt: Sequence[int] | Int[Tensor, "t"],
    *,
    tokens: int,
    beams: int = 4,
    stop: Collection[int] = (),
    power: float = 1.0,
    context: int | None = None,
) -> list[BeamHypothesis]:
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
    row = torch.as_tensor(prompt)
    if row.dim() != 1:
        raise ValueError(f"beam_search takes one prompt, beam_searches several: got shape {tuple(row.shape)}")
    return beam_searches(model, row, tokens=tokens, beams=beams, stop=stop, power=power, context=context)[0]


@torch.inference_mode()
def beam_searches(
    model: CausalLM,
    prompts: Prompts,
    *,
    tokens: int,
    beams: int = 4,
    stop: Collection[int] = (),
    power: float = 1.0,
    context: int | None = None,
) -> list[list[BeamHypothesis]]:
    """Searches for probable continuations of several prompts at once, which come out as each does alone.

    Args:
        model: The model.
        prompts: One row of tokens, or several, of any lengths; none is empty.
        tokens: The most tokens of a continuation.
        beams: How many continuations of each prompt are kept.
        stop: Tokens that end one.
        power: How much length counts, as in `beam_search`.
        context: How many tokens the model sees.

    Returns:
        The continuations of each prompt, the best first.

    Examples:
        >>> after = torch.eye(5).roll(1, dims=1)
        >>> [best.tokens for best, *_ in beam_searches(Bigrams(after), [[1, 2], [4]], tokens=3)]
        [(3, 4, 0), (0, 1, 2)]
    """
    if tokens < 1 or beams < 1 or power < 0:
        came = f"{tokens}, {beams} and {power}"
        raise ValueError(f"tokens and beams of at least 1 and a power of at least 0 were wanted: got {came}")
    with evaluating(model):
        reader = PromptReader(model, prompts, context=context)
        searches = [_BeamSearch(tokens=tokens, beams=beams, stop=frozenset(stop), power=power) for _ in reader.rows]
        for _ in range(tokens):
            scores = reader.logits.double().log_softmax(-1)
            parents, first = [], 0
            for search, own in zip(searches, scores.split([len(search.alive) for search in searches]), strict=True):
                parents += [first + parent for parent in search.extend(own)]
                first += len(own)
            if not parents:
                break
            reader.select(torch.tensor(parents, device=reader.device))
            last = [found.tokens[-1] for search in searches for found in search.alive]
            reader.feed(torch.tensor(last, device=reader.device))
    return [search.best for search in searches]


class _BeamSearch:
    """The continuations of one prompt: those that may go on, and those that are there."""

    def __init__(self, *, tokens: int, beams: int, stop: frozenset[int], power: float) -> None:
        self.tokens, self.beams, self.stop, self.power = tokens, beams, stop, power
        self.alive: list[BeamHypothesis] = [BeamHypothesis((), 0.0)]
        self.best: list[BeamHypothesis] = []

    def score(self, found: BeamHypothesis, length: int | None = None) -> float:
        return found.log_probability / (length or len(found.tokens)) ** self.power

    def extend(self, scores: Float[Tensor, "n vocab"]) -> list[int]:
        """Adds a token to those that may go on; returns which of them each of the new ones goes on."""
        if not self.alive:
            return []
        total = scores + scores.new_tensor([found.log_probability for found in self.alive])[:, None]
        values, places = total.flatten().topk(min(total.numel(), self.beams + len(self.alive) * len(self.stop)))
        ended: list[BeamHypothesis] = []
        going: list[BeamHypothesis] = []
        parents: list[int] = []
        for value, place in zip(values.tolist(), places.tolist(), strict=True):
            parent, token = divmod(place, total.shape[1])
            found = BeamHypothesis((*self.alive[parent].tokens, token), value)
            if token in self.stop:
                ended.append(found)
            elif len(going) < self.beams:
                going.append(found)
                parents.append(parent)
        if going and len(going[0].tokens) == self.tokens:
            ended, going = ended + going, []
        self.best = sorted([*self.best, *ended], key=self.score, reverse=True)[: self.beams]
        if len(self.best) == self.beams and going and self.score(going[0], self.tokens) <= self.score(self.best[-1]):
            going = []
        self.alive = going
        return parents if going else []


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

    def numbers(found: list[list[BeamHypothesis]], x: Tensor) -> Tensor:
        return x.new_tensor([[one.log_probability, *one.tokens][:2] for best in found for one in best])

    def together(x: Tensor) -> Tensor:
        return numbers(beam_searches(Bigrams(x), [[1, 0], [2], [1]], tokens=3, beams=2, stop={2}), x)

    def one_by_one(x: Tensor) -> Tensor:
        found = [beam_search(Bigrams(x), prompt, tokens=3, beams=2, stop={2}) for prompt in ([0], [2], [1])]
        return numbers(found, x)

    yield Claim(agreement(other=one_by_one), together, shape("3 3"), name="beam_searches, one by one")
    yield Claim(agreement(other=best_path), searched, shape("3 3"), name="beam_search finds the best path")
    yield Claim(agreement(other=lambda x: x.new_ones(())), ending, shape("3 3"), name="beam_search, all that can come")
