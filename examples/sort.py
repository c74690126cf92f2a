"""A recipe of your own: a decoder learns to sort digits, the task of minGPT's demonstration.

    python examples/sort.py

It shows what a recipe is: a frozen dataclass with `setup`, `finish` and `build_model`. The transformer and its
optimizer come from two mixins; the loop, checkpoints and the report from `lawful.train`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn import functional as F

import lawful
from lawful.data import Batch, make_generator
from lawful.data.text import CharTokenizer, Tokenizer
from lawful.inference.metrics.intervals import bootstrap
from lawful.models.generation import GREEDY, generate
from lawful.recipes import RECIPES, DecoderConfig, TransformerOptimizationConfig
from lawful.recipes.optimization import LearningRates
from lawful.recipes.text import GenerationRequest, language_model_claims
from lawful.recipes.transformer import as_decoder
from lawful.training import MaxLength, Range, Recipe, Run, TrainingSetup


@dataclass(frozen=True, kw_only=True)
class SortRecipe(DecoderConfig, TransformerOptimizationConfig, Recipe[None]):
    """Train a decoder to sort digits."""

    name: ClassVar[str] = "sort"
    default_learning_rates: ClassVar[LearningRates] = LearningRates(muon=0.01, adam=0.003)

    length: Annotated[int, Range(2, 100)] = 6
    """Number of digits in a list."""
    num_digits: Annotated[int, Range(2, 10)] = 3
    """Number of different digits."""
    num_test_lists: Annotated[int, Range(1, 10**7)] = 5000
    """Number of unseen lists in the test, drawn with replacement."""
    dim: Annotated[int, Range(1, 10**5)] = 48
    num_layers: Annotated[int, Range(1, 1000)] = 3
    num_heads: Annotated[int, Range(1, 1000)] = 3
    positions: Literal["rotary", "learned", "sinusoidal", "alibi", "t5", "none"] = "learned"
    ngrams: Annotated[tuple[Annotated[int, Range(2, 16)], ...], MaxLength(8)] = ()
    embedding_skip: bool = False
    steps: Annotated[int, Range(1, 10**9)] | None = 500
    batch_size: Annotated[int, Range(1, 10**9)] | None = 64

    def setup(self) -> TrainingSetup[None]:
        """Builds the model; lists are drawn on the fly."""
        model, steps = self.build_model({}), self.num_steps(1)
        batches = DigitLists(
            length=self.length, num_digits=self.num_digits, batch_size=self.batch_size or 64, seed=self.seed
        )
        return TrainingSetup(
            model=model,
            optimizer_steps=[self.optimizer_step(model, self.loss, steps=steps)],
            batches=batches,
            steps=steps,
            evaluate=lambda model: {"accuracy": float(self.is_sorted(model, self.test_lists()[:500]).double().mean())},
            eval_every=max(1, steps // 5),
            monitor="accuracy",
            higher_is_better=True,
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=partial(language_model_claims, vocab_size=self.tokenizer.vocab_size, context_length=2 * self.length),
            model_config={"tokenizer": self.tokenizer.to_json()},
            data_fingerprint=f"{self.length} of {self.num_digits}",
        )

    def finish(self, run: Run, setup: TrainingSetup[None]) -> Mapping[str, Any]:
        """Measures how many unseen lists are sorted, and writes some of them."""
        lists = self.test_lists()
        correct = self.is_sorted(setup.model, lists)
        outputs = generate(as_decoder(setup.model), lists[:10], max_new_tokens=self.length, sampling=GREEDY)
        lines = [f"{to_text(x)} -> {to_text(y)}" for x, y in zip(lists[:10], outputs, strict=True)]
        run.write("samples/unseen_lists.txt", "\n".join(lines) + "\n")
        return {
            "test": {"accuracy": bootstrap(torch.mean, correct.double()).json()},
            "baselines": {"guessing": self.num_digits**-self.length},
            "lists": {"tested": len(lists), "distinct": len(lists.unique(dim=0))},
            "parameters": sum(p.numel() for p in setup.model.parameters()),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Builds the decoder."""
        return self.build_decoder(self.tokenizer.vocab_size, context_length=2 * self.length)

    def generate(
        self, model: nn.Module, tokenizer: Tokenizer, prompt: str, request: GenerationRequest
    ) -> Iterator[str]:
        """Sorts the digits of a prompt, for `lawful generate`."""
        if len(prompt) != self.length or tokenizer.unknown_characters(prompt):
            expected = f"{self.length} digits from 0 to {self.num_digits - 1}"
            raise ValueError(f"prompt must be {expected}, got {prompt[:100]!r}")
        output = generate(
            as_decoder(model),
            tokenizer.encode(prompt),
            max_new_tokens=self.length,
            sampling=request.sampling,
            seed=request.seed,
        )
        yield tokenizer.decode(output[0].tolist())

    @property
    def tokenizer(self) -> CharTokenizer:
        """One token per digit."""
        return CharTokenizer("0123456789"[: self.num_digits])

    def test_lists(self) -> Int[Tensor, "n length"]:
        """Lists that are never trained on, the same for every seed."""
        source = DigitLists(
            length=self.length, num_digits=self.num_digits, batch_size=self.num_test_lists, seed=0, held_out=True
        )
        return source.lists(0)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy of the sorted digits."""
        inputs, targets = batch
        logits = model(inputs)[:, self.length - 1 :]
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def is_sorted(self, model: nn.Module, lists: Int[Tensor, "n length"]) -> Bool[Tensor, " n"]:
        """Which lists the model sorts without a mistake."""
        outputs = [
            generate(as_decoder(model), part, max_new_tokens=self.length, sampling=GREEDY) for part in lists.split(1000)
        ]
        return (torch.cat(outputs).cpu() == lists.sort(-1).values).all(-1)


class DigitLists:
    """Batches of random lists of digits with the sorted list as target.

    A hash of the list decides whether it is held out, about one in four. Half of the training lists have at most two
    different digits, so that long repeats occur.
    """

    def __init__(self, *, length: int, num_digits: int, batch_size: int, seed: int, held_out: bool = False) -> None:
        self.length, self.num_digits, self.batch_size = length, num_digits, batch_size
        self.seed, self.held_out = seed, held_out

    def __len__(self) -> int:
        return 1

    def batch(self, step: int) -> Batch:
        """Returns each list followed by its sorted digits except the last, and the sorted digits."""
        lists = self.lists(step)
        targets = lists.sort(-1).values
        return torch.cat([lists, targets[:, :-1]], dim=1), targets

    def lists(self, step: int) -> Int[Tensor, "n length"]:
        """Returns the lists of a step."""
        generator, parts, count = make_generator(self.seed, step), [], 0
        while count < self.batch_size:
            if len(parts) == 1000:
                raise ValueError(
                    f"lists of length {self.length} with {self.num_digits} digits are too few to hold some out: "
                    "choose longer lists"
                )
            drawn = torch.randint(self.num_digits, (2 * self.batch_size, self.length), generator=generator)
            if not self.held_out:
                two = torch.randint(2, (self.batch_size, self.length), generator=generator)
                drawn[::2] = drawn[::2, :2].gather(1, two)
            parts.append(drawn[is_held_out(drawn) == self.held_out])
            count += len(parts[-1])
        return torch.cat(parts)[: self.batch_size]


def is_held_out(lists: Int[Tensor, "n length"]) -> Bool[Tensor, " n"]:
    """Which lists are never trained on. A list that is already sorted may be, so that every answer is seen."""
    code = torch.zeros(len(lists), dtype=torch.int64)
    for digit in lists.unbind(1):
        code = (code * 31 + digit + 7) % 1_000_003
    return (code * 7919 % 1_000_003 % 4 == 0) & (lists != lists.sort(-1).values).any(-1)


def to_text(digits: Int[Tensor, " n"]) -> str:
    """Digits as text."""
    return "".join(map(str, digits.tolist()))


RECIPES["sort"] = SortRecipe  # so that lawful.load and lawful generate know it

if __name__ == "__main__":
    run = lawful.train(SortRecipe())
    print((run.samples / "unseen_lists.txt").read_text())
