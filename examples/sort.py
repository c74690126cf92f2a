"""Sort: a decoder learns to put digits in order, on lists that it has seen and lists that it has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.data import Batch, make_generator
from lawful.data.text import CharTokenizer, Tokenizer
from lawful.inference.metrics.intervals import bootstrap
from lawful.models.generation import GREEDY, generate
from lawful.recipes.optimization import Descent
from lawful.recipes.text import GenerationRequest, model_claims
from lawful.recipes.transformer import Transformer, decoder_of
from lawful.training import Range, Run, TrainerConfig, TrainingSetup, validate

HELD = 4
"""One list in so many is never trained on."""


@dataclass(frozen=True, kw_only=True)
class SortRecipe:
    """Train a decoder to sort digits, the task of minGPT's demonstration."""

    name: ClassVar[str] = "sort"

    length: Annotated[int, Range(2, 100)] = 6
    """The digits of a list."""
    kinds: Annotated[int, Range(2, 10)] = 3
    """How many different digits there are."""
    tests: Annotated[int, Range(1, 10**7)] = 5000
    """How many unseen lists are drawn for the test; some come more than once where there are fewer."""
    transformer: Transformer = field(
        default_factory=lambda: Transformer(width=48, depth=3, heads=3, positions="learned", ngrams=(), shortcut=False)
    )
    learning: Descent = field(default_factory=lambda: Descent(steps=500, batch=64, learning_rate=0.01, adam_rate=0.003))
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)

    def training(self) -> TrainingSetup:
        """Builds the model; lists are drawn as they are needed."""
        model, steps = self.restored({}), self.learning.steps
        if self.learning.epochs is not None:
            raise ValueError("lists are drawn without end: give steps, not epochs")
        return TrainingSetup(
            model=model,
            turns=[self.learning.turn(model, self.objective, steps=steps)],
            batches=Lists(length=self.length, kinds=self.kinds, size=self.learning.batch, seed=self.engine.seed),
            steps=steps,
            evaluate=lambda model: {"accuracy": float(self.right(model, self.drawn()[:500]).double().mean())},
            every=self.learning.every(steps),
            watch="accuracy",
            higher_is_better=True,
            average=self.learning.average or None,
            accumulate=self.learning.accumulate,
            claims=partial(model_claims, vocab=self.tokenizer.vocab_size, context=2 * self.length),
            described={"tokenizer": self.tokenizer.to_json()},
            fingerprint=f"{self.length} of {self.kinds}",
        )

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Says how many unseen lists are sorted, and shows some."""
        lists = self.drawn()
        right = self.right(training.model, lists)
        shown = generate(decoder_of(training.model), lists[:10], max_new_tokens=self.length, sampling=GREEDY)
        lines = [f"{word(x)} -> {word(y)}" for x, y in zip(lists[:10], shown, strict=True)]
        (run.samples / "unseen_lists.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return {
            "test": {"accuracy": bootstrap(torch.mean, right.double()).json()},
            "baselines": {"guessing": self.kinds**-self.length},
            "lists": {"tested": len(lists), "of them different": len(lists.unique(dim=0))},
            "parameters": sum(p.numel() for p in training.model.parameters()),
        }

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its weights are put in."""
        return self.transformer.decoder(self.tokenizer.vocab_size, context=2 * self.length)

    def write(self, model: nn.Module, tokenizer: Tokenizer, prompt: str, asked: GenerationRequest) -> Iterator[str]:
        """Sorts the digits of a prompt."""
        if len(prompt) != self.length or tokenizer.unknown_characters(prompt):
            known = f"{self.length} digits from 0 to {self.kinds - 1}"
            raise ValueError(f"the prompt is to be {known}: got {prompt[:100]!r}")
        found = generate(
            decoder_of(model),
            tokenizer.encode(prompt),
            max_new_tokens=self.length,
            sampling=asked.sampling,
            seed=asked.seed,
        )
        yield tokenizer.decode(found[0].tolist())

    # ------------------------------------------------------------ the parts

    @property
    def tokenizer(self) -> CharTokenizer:
        """The digits."""
        return CharTokenizer("0123456789"[: self.kinds])

    def drawn(self) -> Int[Tensor, "n length"]:
        """Lists that are never trained on, the same for every seed of the training."""
        source = Lists(length=self.length, kinds=self.kinds, size=self.tests, seed=0, unseen=True)
        return source.lists(0)

    def objective(self, model: nn.Module, batch: Batch) -> Tensor:
        """The surprise at the digits in order, after those of the list."""
        inputs, targets = batch
        return F.cross_entropy(model(inputs)[:, self.length - 1 :].flatten(0, 1), targets.flatten())

    def right(self, model: nn.Module, lists: Int[Tensor, "n length"]) -> Bool[Tensor, " n"]:
        """Which lists the model sorts without a mistake."""
        decoder = decoder_of(model)
        found = [generate(decoder, part, max_new_tokens=self.length, sampling=GREEDY) for part in lists.split(1000)]
        return (torch.cat(found).cpu() == lists.sort(-1).values).all(-1)


class Lists:
    """Draws lists of digits without end: those to train on, or those that are held back.

    Which ones are held back is decided by the list itself, about one in four, so that none is in both. Of those to
    train on, half have at most two different digits, so that long repeats are seen as well.

    Args:
        length: The digits of a list.
        kinds: How many different digits there are.
        size: The lists of a batch.
        seed: What they depend on.
        unseen: Whether the ones held back are drawn.

    Examples:
        >>> inputs, targets = Lists(length=3, kinds=3, size=2, seed=0).batch(0)
        >>> inputs.shape, targets.shape
        (torch.Size([2, 5]), torch.Size([2, 3]))
    """

    def __init__(self, *, length: int, kinds: int, size: int, seed: int, unseen: bool = False) -> None:
        self.length, self.kinds, self.size, self.seed, self.unseen = length, kinds, size, seed, unseen

    def __len__(self) -> int:
        return 1

    def batch(self, step: int) -> Batch:
        """Lists with their digits in order behind them, but for the last; and these."""
        lists = self.lists(step)
        targets = lists.sort(-1).values
        return torch.cat([lists, targets[:, :-1]], dim=1), targets

    def lists(self, step: int) -> Int[Tensor, "n length"]:
        """The lists of a step."""
        generator, found, count = make_generator(self.seed, step), [], 0
        while count < self.size:
            if len(found) == 1000:
                which = f"{self.length} digits of {self.kinds} kinds"
                raise ValueError(f"lists of {which} are too few to hold some back: take longer ones")
            drawn = torch.randint(self.kinds, (2 * self.size, self.length), generator=generator)
            if not self.unseen:
                few = torch.randint(2, (self.size, self.length), generator=generator)
                drawn[::2] = drawn[::2, :2].gather(1, few)
            found.append(drawn[held_back(drawn) == self.unseen])
            count += len(found[-1])
        return torch.cat(found)[: self.size]


def held_back(lists: Int[Tensor, "n length"]) -> Bool[Tensor, " n"]:
    """Which lists are never trained on; one that is sorted already may be, so that every answer is known."""
    mixed = torch.zeros(len(lists), dtype=torch.int64)
    for digit in lists.unbind(1):
        mixed = (mixed * 31 + digit + 7) % 1_000_003
    return (mixed * 7919 % 1_000_003 % HELD == 0) & (lists != lists.sort(-1).values).any(-1)


def word(digits: Int[Tensor, " n"]) -> str:
    """Digits as text."""
    return "".join(map(str, digits.tolist()))
