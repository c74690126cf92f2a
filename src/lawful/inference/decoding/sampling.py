"""Sampling: from scores to the probabilities that the next token is drawn from, and the draw."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lawful.data.generators import generator_of
from lawful.laws import Claim, agreement, permutation_equivariance, shape, shift_invariance, sums_to_one

BLOCK = 256
"""How many random numbers of a row are drawn at once."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    r"""Says how the next token is drawn from scores $x$: flatter or sharper, and which tokens may come at all.

    $$p = \mathrm{softmax}(x / T)$$

    with everything that is cut off at probability 0, and the rest adding up to 1 again. The cuts are made one after
    the other, in the order below. The most probable token is always left.

    Reference:
        Holtzman et al., *The Curious Case of Neural Text Degeneration*, 2020 (top-p); Nguyen et al., *Turning Up the
        Heat: Min-p Sampling*, 2024; Keskar et al., *CTRL*, 2019 (repetition penalty).

    Examples:
        >>> Sampling(top_k=2).probabilities(torch.tensor([0.0, 0.0, -1.0]))
        tensor([0.5000, 0.5000, 0.0000])
    """

    never: tuple[int, ...] = ()
    """Tokens that are never drawn."""
    repetition_penalty: float = 1.0
    """What the positive scores of tokens that a row has already are divided by, and the negative ones multiplied."""
    temperature: float = 1.0
    """$T$; at 0 the most probable token is taken, the first of several."""
    top_k: int | None = None
    """How many tokens may come, the most probable ones and those that tie with the last; above the vocabulary, all."""
    top_p: float = 1.0
    """The probability that the most probable tokens need to have together, when no more are let in."""
    min_p: float = 0.0
    """The least probability of a token, as a share of the largest."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is at least 0, which is greedy: got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is at least 1: got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is above 0 and at most 1: got {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p is from 0 to 1: got {self.min_p}")
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(f"repetition_penalty is above 0: got {self.repetition_penalty}")

    def scores(
        self, x: Float[Tensor, "*batch vocab"], *, seen: Bool[Tensor, "*batch vocab"] | None = None
    ) -> Float[Tensor, "*batch vocab"]:
        """The scores after the rules that know no probabilities; `seen` says which tokens a row has already."""
        if self.repetition_penalty != 1 and seen is not None:
            x = torch.where(seen, torch.where(x > 0, x / self.repetition_penalty, x * self.repetition_penalty), x)
        if self.never:
            x = x.index_fill(-1, torch.tensor(self.never, device=x.device), -math.inf)
        return x

    def probabilities(
        self, x: Float[Tensor, "*batch vocab"], *, seen: Bool[Tensor, "*batch vocab"] | None = None
    ) -> Float[Tensor, "*batch vocab"]:
        """The probabilities of the next token; at temperature 0 all of it is the most probable one's."""
        x = self.scores(x, seen=seen)
        if self.temperature == 0:
            return torch.zeros_like(x).scatter(-1, x.argmax(-1, keepdim=True), 1.0)
        if self.temperature != 1:
            x = (x - x.amax(-1, keepdim=True)) / self.temperature
        if self.top_k is not None and self.top_k < x.shape[-1]:
            x = x.masked_fill(x < x.topk(self.top_k).values[..., -1:], -math.inf)
        if self.top_p < 1:
            p, order = x.softmax(-1).sort(dim=-1, descending=True, stable=True)
            cut = torch.empty_like(order, dtype=torch.bool).scatter(-1, order, p.cumsum(-1) - p >= self.top_p)
            x = x.masked_fill(cut, -math.inf)
        if self.min_p > 0:
            x = x.masked_fill(x < x.amax(-1, keepdim=True) + math.log(self.min_p), -math.inf)
        return x.softmax(-1)


PURE = Sampling()
"""Draws from the probabilities of the model as they are."""
GREEDY = Sampling(temperature=0.0)
"""Takes the most probable token."""


class Draws:
    """Draws the next token of each row, in a way that depends on nothing but the seed and the number of the row.

    A row takes one random number $u$ a token, from a generator of its own, and the token is the first whose
    probability, added to those before it, exceeds $u$: so a row comes out the same whatever else is in the batch.

    Args:
        sampling: The rules.
        rows: The tokens that each row has already.
        vocab: The number of tokens that there are.
        seed: What the random numbers depend on.
        first: The number of the first row, where the rows are a part of more.
    """

    def __init__(self, sampling: Sampling, rows: list[Tensor], *, vocab: int, seed: int = 0, first: int = 0) -> None:
        if bad := [token for token in sampling.never if not 0 <= token < vocab]:
            raise ValueError(f"never is to have tokens from 0 to {vocab - 1}: got {bad[0]}")
        if len(set(sampling.never)) >= vocab:
            raise ValueError(f"never leaves none of the {vocab} tokens")
        self.sampling, self.seen = sampling, None
        self.plain = not sampling.never and sampling.repetition_penalty == 1
        if sampling.repetition_penalty != 1:
            self.seen = torch.zeros(len(rows), vocab, dtype=torch.bool, device=rows[0].device)
            for row, tokens in zip(self.seen, rows, strict=True):
                row[tokens] = True
        self._generators = [generator_of(seed, first + i) for i in range(len(rows))]
        self._numbers: Iterator[Tensor] = iter(())

    def __call__(self, logits: Float[Tensor, "b vocab"]) -> Int[Tensor, "b"]:
        """Draws a token for each row."""
        if self.sampling.temperature == 0:
            tokens = (logits if self.plain else self.sampling.scores(logits, seen=self.seen)).argmax(-1)
        else:
            p = self.sampling.probabilities(logits.double(), seen=self.seen).cumsum(-1)
            tokens = torch.searchsorted(p, self._uniform(logits.device) * p[:, -1:], right=True)[:, 0]
        if self.seen is not None:
            self.seen.scatter_(1, tokens[:, None], True)
        return tokens

    def _uniform(self, device: torch.device) -> Float[Tensor, "b 1"]:
        """One number for each row, from 0 to a little below 1, so that its product with a sum is below the sum."""
        number = next(self._numbers, None)
        if number is None:
            block = torch.stack([torch.rand(BLOCK, generator=g, dtype=torch.float64) for g in self._generators])
            self._numbers = iter((block * (1 - 2**-50)).to(device).split(1, dim=1))
            number = next(self._numbers)
        return number


def claims() -> Iterator[Claim]:
    """The laws that sampling obeys."""
    rules = Sampling(temperature=0.7, top_k=5, top_p=0.66, min_p=0.03)

    def cut(x: Tensor) -> Tensor:
        """Token by token, with the cuts written as counts and sums over those that are more probable."""
        larger = x[..., None, :] > x[..., :, None]
        left = larger.sum(-1) < 5
        p = torch.where(left, (x - x.amax(-1, keepdim=True)).div(0.7).exp(), 0.0)
        p = p / p.sum(-1, keepdim=True)
        first = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool).tril(-1)
        before = larger | ((x[..., None, :] == x[..., :, None]) & first)
        left = (before * p[..., None, :]).sum(-1) < 0.66
        p = torch.where(left & (p >= 0.03 * p.amax(-1, keepdim=True)), p, 0.0)
        return p / p.sum(-1, keepdim=True)

    def penalised(x: Tensor) -> Tensor:
        seen = torch.arange(x.shape[-1]) % 2 == 0
        return Sampling(repetition_penalty=1.5, never=(1,)).probabilities(x, seen=seen.expand_as(x))

    def by_hand(x: Tensor) -> Tensor:
        powers = [2 / 3 if v > 0 else 1.5 for v in x[..., 0::2].flatten()]
        scores = x.clone()
        scores[..., 0::2] *= x.new_tensor(powers).view_as(x[..., 0::2])
        kept = torch.arange(x.shape[-1]) != 1
        p = (scores - scores[..., kept].amax(-1, keepdim=True)).exp() * kept
        return p / p.sum(-1, keepdim=True)

    def drawn(x: Tensor) -> Tensor:
        rows = [torch.tensor([0]) for _ in x]
        draw = Draws(Sampling(top_k=2), rows, vocab=x.shape[-1], seed=1)
        return torch.stack([draw(x) for _ in range(3)]).to(x)

    def inverted(x: Tensor) -> Tensor:
        numbers = torch.stack(
            [torch.rand(BLOCK, generator=generator_of(1, i), dtype=torch.float64) for i in range(len(x))]
        )
        total = Sampling(top_k=2).probabilities(x.double()).cumsum(-1)
        return torch.stack([(total <= numbers[:, n, None]).sum(-1) for n in range(3)]).to(x)

    yield Claim(sums_to_one(), rules.probabilities, shape("b n"), name="Sampling")
    yield Claim(agreement(other=cut), rules.probabilities, shape("b n:1..9"), name="Sampling, cuts")
    yield Claim(shift_invariance(axis=-1), rules.probabilities, shape("b n"), name="Sampling")
    yield Claim(permutation_equivariance(axis=-1), Sampling(top_k=3, min_p=0.1).probabilities, shape("b n"))
    yield Claim(agreement(other=by_hand), penalised, shape("b n:2..7"), name="Sampling, penalty and never")
    yield Claim(agreement(other=inverted), drawn, shape("b:1..3 n:2..5"), name="Draws")
