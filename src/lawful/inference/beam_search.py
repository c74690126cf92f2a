"""Beam search: the most probable continuations of a prompt, searched for or sampled."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.blocks.modes import eval_mode
from lawful.data.batches import make_generator
from lawful.models.generation import DEFAULT_SAMPLING, CausalLM, PromptReader, Prompts, SamplingConfig


class BeamHypothesis(NamedTuple):
    """A continuation and its log-probability."""

    tokens: tuple[int, ...]
    log_prob: float


def beam_search(
    model: CausalLM,
    prompt: Sequence[int] | Int[Tensor, "t"],
    *,
    max_new_tokens: int,
    num_beams: int = 4,
    stop_tokens: Collection[int] = (),
    length_penalty: float = 1.0,
    sampling: SamplingConfig = DEFAULT_SAMPLING,
    seed: int = 0,
    context_length: int | None = None,
) -> list[BeamHypothesis]:
    r"""Searches for the most probable continuations of a prompt.

    $$\max_y \frac{\log p(y \mid x)}{|y|^a}$$

    One beam is greedy decoding; with as many beams as there are continuations the result is exact. A continuation that
    ends in a stop token is complete. The search ends when no other continuation can become one of the best.

    With a temperature, `top_k`, `top_p` or `min_p` the beams are sampled: each step draws the next beams without
    replacement from the probabilities of all extensions, by the Gumbel-top-k trick. $p$ then is the distribution that
    is sampled from. Temperature 0 searches.

    Reference:
        Kool et al., *Stochastic Beams and Where to Find Them*, 2019.

    Args:
        model: Language model.
        prompt: Tokens $x$ of the prompt, at least one.
        max_new_tokens: Maximum number of tokens of $y$.
        num_beams: Number of continuations to keep.
        stop_tokens: Tokens that end a continuation; they are part of it.
        length_penalty: $a$; larger values favor longer continuations, 0 compares log-probabilities.
        sampling: Sampling rules.
        seed: Random seed of the sampling.
        context_length: Number of tokens that the model sees, as in `generate`.

    Returns:
        The continuations, best first.

    Examples:
        >>> from lawful.models import decoder
        >>> best, *others = beam_search(decoder(vocab_size=5, dim=8), [1, 2], max_new_tokens=3, num_beams=2)
        >>> len(best.tokens), len(others)
        (3, 1)
    """
    row = torch.as_tensor(prompt)
    if row.dim() != 1:
        shape = tuple(row.shape)
        raise ValueError(f"expected one prompt of shape (t,), got {shape}: use beam_search_batch for several")
    return beam_search_batch(
        model,
        row,
        max_new_tokens=max_new_tokens,
        num_beams=num_beams,
        stop_tokens=stop_tokens,
        length_penalty=length_penalty,
        sampling=sampling,
        seed=seed,
        context_length=context_length,
    )[0]


@torch.inference_mode()
def beam_search_batch(
    model: CausalLM,
    prompts: Prompts,
    *,
    max_new_tokens: int,
    num_beams: int = 4,
    stop_tokens: Collection[int] = (),
    length_penalty: float = 1.0,
    sampling: SamplingConfig = DEFAULT_SAMPLING,
    seed: int = 0,
    context_length: int | None = None,
) -> list[list[BeamHypothesis]]:
    """Runs `beam_search` on several prompts at once; each searches as alone, and samples with its own random numbers.

    Args:
        model: Language model.
        prompts: Tokens of the prompts, of any lengths.
        max_new_tokens: Maximum number of tokens of a continuation.
        num_beams: Number of continuations of each prompt to keep.
        stop_tokens: Tokens that end a continuation.
        length_penalty: Exponent of the length.
        sampling: Sampling rules.
        seed: Random seed of the sampling.
        context_length: Number of tokens that the model sees.

    Returns:
        The continuations of each prompt, best first.

    Examples:
        >>> from lawful.models import decoder
        >>> found = beam_search_batch(decoder(vocab_size=5, dim=8), [[1, 2], [4]], max_new_tokens=3)
        >>> [len(hypotheses) for hypotheses in found]
        [4, 4]
    """
    if max_new_tokens < 1 or num_beams < 1:
        raise ValueError(f"max_new_tokens and num_beams must be at least 1: got {max_new_tokens=}, {num_beams=}")
    if length_penalty < 0:
        raise ValueError(f"length_penalty must be at least 0, got {length_penalty}")
    with eval_mode(model):
        reader = PromptReader(model, prompts, context_length=context_length)
        stop = frozenset(stop_tokens)
        generators = [make_generator(seed, i) if _samples(sampling) else None for i in range(len(reader.rows))]
        searches = [_BeamSearch(max_new_tokens, num_beams, stop, length_penalty, g) for g in generators]
        for _ in range(max_new_tokens):
            log_probs = _log_probs(reader, searches, sampling)
            parents, first = [], 0
            for search, own in zip(searches, log_probs.split([len(search.active) for search in searches]), strict=True):
                parents += [first + parent for parent in search.extend(own)]
                first += len(own)
            if not parents:
                break
            reader.select(torch.tensor(parents, device=reader.device))
            last = [hypothesis.tokens[-1] for search in searches for hypothesis in search.active]
            reader.feed(torch.tensor(last, device=reader.device))
    return [search.best for search in searches]


def _samples(sampling: SamplingConfig) -> bool:
    """Returns whether beams are sampled: whether a rule is set that shapes the distribution."""
    rules = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    default = DEFAULT_SAMPLING.temperature, DEFAULT_SAMPLING.top_k, DEFAULT_SAMPLING.top_p, DEFAULT_SAMPLING.min_p
    return sampling.temperature > 0 and rules != default


def _log_probs(
    reader: PromptReader, searches: Sequence[_BeamSearch], sampling: SamplingConfig
) -> Float[Tensor, "n vocab"]:
    """Log-probabilities of the next token of all active continuations; excluded tokens have -inf."""
    logits, seen = reader.logits.double(), None
    if sampling.repetition_penalty != 1:
        seen = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
        active = [hypothesis for search in searches for hypothesis in search.active]
        for row, prompt, hypothesis in zip(seen, reader.rows, active, strict=True):
            row[prompt] = True
            row[list(hypothesis.tokens)] = True
    if _samples(sampling):
        return sampling.probabilities(logits, seen=seen).log()
    return sampling.process_logits(logits, seen=seen).log_softmax(-1)


class _BeamSearch:
    """The search for one prompt: continuations that may be extended, and the best complete ones."""

    def __init__(
        self,
        max_new_tokens: int,
        num_beams: int,
        stop: frozenset[int],
        length_penalty: float,
        generator: torch.Generator | None = None,
    ) -> None:
        self.max_new_tokens, self.num_beams, self.stop, self.length_penalty = (
            max_new_tokens,
            num_beams,
            stop,
            length_penalty,
        )
        self.generator = generator
        self.active: list[BeamHypothesis] = [BeamHypothesis((), 0.0)]
        self.best: list[BeamHypothesis] = []

    def score(self, hypothesis: BeamHypothesis, length: int | None = None) -> float:
        return hypothesis.log_prob / (length or len(hypothesis.tokens)) ** self.length_penalty

    def extend(self, log_probs: Float[Tensor, "n vocab"]) -> list[int]:
        """Appends a token to the active continuations; returns the parent of each new one."""
        if not self.active:
            return []
        total = log_probs + log_probs.new_tensor([hypothesis.log_prob for hypothesis in self.active])[:, None]
        count = min(total.numel(), self.num_beams + len(self.active) * len(self.stop))
        flat = total.flatten()
        if self.generator is None:
            values, indices = flat.topk(count)
        else:
            uniform = torch.rand(flat.shape, generator=self.generator, dtype=flat.dtype).to(flat.device)
            drawn = (flat - (-uniform.log()).log()).topk(count).indices  # Gumbel-top-k: without replacement
            values, order = flat[drawn].sort(descending=True)
            indices = drawn[order]
        complete: list[BeamHypothesis] = []
        active: list[BeamHypothesis] = []
        parents: list[int] = []
        for value, index in zip(values.tolist(), indices.tolist(), strict=True):
            if value == -math.inf:
                break
            parent, token = divmod(index, total.shape[1])
            hypothesis = BeamHypothesis((*self.active[parent].tokens, token), value)
            if token in self.stop:
                complete.append(hypothesis)
            elif len(active) < self.num_beams:
                active.append(hypothesis)
                parents.append(parent)
        if active and len(active[0].tokens) == self.max_new_tokens:
            complete, active = complete + active, []
        self.best = sorted([*self.best, *complete], key=self.score, reverse=True)[: self.num_beams]
        if len(self.best) == self.num_beams and active:
            bound = self.score(active[0], self.max_new_tokens)  # no extension of an active one can score higher
            if bound <= self.score(self.best[-1]):
                active = []
        self.active = active
        return parents if active else []
