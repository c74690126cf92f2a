"""What a classifier of texts has to beat: counting words, and counting runs of letters.

The pooled encoder: a classifier of texts.
Classify text: from texts with labels to a classifier, beside counting words and letters.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks import Dense, Dropout
from lawful.data import Batch, ShuffledBatches, split_indices
from lawful.data.text import Tokenizer, pad_sequences, tokenizer_from_json
from lawful.data.text.labeled import Labelled, Texts, read_labelled, read_texts
from lawful.functions.attention import Mask
from lawful.inference.metrics import accuracy
from lawful.laws import Claim, agreement, batch_independence, sums_to_one, tokens
from lawful.losses.classification import cross_entropy
from lawful.models import SoftmaxRegression, SoftmaxRegressionConfig
from lawful.models.transformer import Encoder
from lawful.optim import adamw, linear_schedule
from lawful.recipes.optimization import Descent, Dropped, Fraction
from lawful.recipes.text import Kind, for_bpe, tokenizer_of
from lawful.recipes.transformer import Transformer, built
from lawful.training import MaxLength, Range, Run, TrainerConfig, TrainingSetup, from_json, validate

FEATURES, LONGEST, STEPS = 4096, 3, 150
"""The numbers of a bag, the letters of the longest run, and the steps of the regression."""


def letters(text: str) -> list[str]:
    """The runs of one to three letters.

    Examples:
        >>> letters("abc")
        ['a', 'b', 'c', 'ab', 'bc', 'abc']
    """
    return [text[i : i + n] for n in range(1, LONGEST + 1) for i in range(len(text) - n + 1)]


def words(text: str) -> list[str]:
    """The words.

    Examples:
        >>> words("a cat, and milk")
        ['a', 'cat', 'and', 'milk']
    """
    return re.findall(r"\w+", text)


def bag(texts: Sequence[str], *, parts: Callable[[str], list[str]], most: int = 5000) -> Float[Tensor, "n k"]:
    """Counts the parts of each text, in small letters; a number is the logarithm of 1 and the count.

    Parts share the numbers by a checksum.

    Args:
        texts: The texts.
        parts: What is counted: `letters`, `words`.
        most: The letters of a text that are looked at.
    """
    found = torch.zeros(len(texts), FEATURES)
    for row, text in enumerate(text[:most].lower() for text in texts):
        places = [zlib.crc32(part.encode("utf-8", "replace")) % FEATURES for part in parts(text)]
        found[row] = torch.bincount(torch.tensor(places, dtype=torch.int64), minlength=FEATURES).float()
    return found.log1p()


def bag_accuracy(train: Labelled, test: Labelled, *, parts: Callable[[str], list[str]]) -> float:
    r"""The accuracy of a softmax regression on bags, in which what few texts have counts more.

    The weight of a part is $1 + \log \frac{1 + n}{1 + n_i}$, where $n_i$ of $n$ texts have it; a bag has length 1.
    """
    counts, y = bag(train.texts, parts=parts), torch.tensor(train.labels)
    rare = 1 + ((1 + len(counts)) / (1 + (counts > 0).sum(0))).log()

    def weighed(x: Tensor) -> Tensor:
        return torch.nn.functional.normalize(x * rare, dim=1)

    x = weighed(counts)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        model = SoftmaxRegression(SoftmaxRegressionConfig(d=FEATURES, classes=len(train.classes)))
    optimizer, falling = adamw(model.parameters(), lr=0.1, weight_decay=1e-3), linear_schedule(steps=STEPS)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.1 * falling(step)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        said = model(weighed(bag(test.texts, parts=parts))).argmax(-1)
    return float((said == torch.tensor(test.labels)).double().mean())


BAGS = {"bag of words": words, "bag of runs of letters": letters}
"""What is counted, by name."""


class Pooled(nn.Module):
    r"""Averages the vectors that an encoder gives to the tokens of a text, and scores the classes.

    $$y = W \frac{1}{n} \sum_{i \le n} x_i + b$$

    Tokens that are padding are not seen, and not counted. In training others are left out of the average, at random: a
    class is then to be told from any part of a text, and few texts are harder to learn by heart.

    Args:
        encoder: What gives $x$.
        classes: The number of classes.
        padding: The token that stands where there is none.
        hide: The probability that a token is left out of the average in training.

    Examples:
        >>> import torch
        >>> from lawful.models import encoder
        >>> model = Pooled(encoder(vocab_size=5, dim=8, num_layers=1), classes=3, padding=4)
        >>> model(torch.tensor([[1, 2, 3], [1, 4, 4]])).shape
        torch.Size([2, 3])
    """

    def __init__(self, encoder: Encoder, *, classes: int, padding: int, hide: float = 0.0) -> None:
        super().__init__()
        self.encoder, self.padding, self.hide = encoder, padding, Dropout(hide)
        self.head = Dense(encoder.dim, classes)

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b classes"]:
        """The scores of the classes."""
        there = tokens != self.padding
        counted = self.hide(there.float()) > 0
        x = self.encoder(tokens, mask=Mask(padding=there)).masked_fill(~counted[..., None], 0.0)
        return self.head(x.sum(1) / counted.sum(1, keepdim=True).clamp_min(1))


LAYOUT = 2
"""How a classifier is put together: since 2 there is no norm before its average."""


@dataclass(frozen=True, kw_only=True)
class Sized:
    """What a classifier of texts has to know of its data."""

    classes: Annotated[tuple[str, ...], MaxLength(10_000)]
    text: Annotated[str, MaxLength(4096)] | None = None
    """The column of the texts, of a table."""
    target: Annotated[str, MaxLength(4096)] | None = None
    """That of the classes."""
    layout: int = 1
    """How the classifier is put together."""

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True, kw_only=True)
class Classifying(TrainingSetup):
    """A training together with its texts."""

    train: Labelled
    test: Labelled
    tokenizer: Tokenizer


@dataclass(frozen=True, kw_only=True)
class ClassifyTextRecipe:
    """Train a classifier of texts on a table, on a folder for each class or on built-in paragraphs."""

    name: ClassVar[str] = "classify-text"

    data: Annotated[str, MaxLength(4096)] = "topics"
    """A CSV or TSV file, a folder with a folder of text files for each class, or topics: paragraphs of Python's own."""
    text: Annotated[str, MaxLength(4096)] | None = None
    """The column with the texts; by default that of the longest."""
    target: Annotated[str, MaxLength(4096)] | None = None
    """The column with the classes; by default the last of the others."""
    test: Annotated[float, Range(0.01, 0.9)] = 0.2
    """The share of the texts that is for the test alone."""
    tokenizer: Kind = "characters"
    """What a token is."""
    vocab: Annotated[int, Range(256, 16_384)] = 2048
    """bpe: the number of tokens."""
    context: Annotated[int, Range(1, 10**5)] = 256
    """The tokens that are read of a text, the first ones."""
    hide: Dropped = 0.5
    """The share of the tokens of a text that is left out of its average in training."""
    smoothing: Fraction = 0.05
    """How much of the target is spread over all classes."""
    transformer: Transformer = field(
        default_factory=lambda: Transformer(
            width=32, order="f*", ngrams=(2, 3, 4, 5), rows=32768, entry_norm=False, shortcut=False, zero_outputs=False
        )
    )
    learning: Descent = field(
        default_factory=lambda: Descent(epochs=8, batch=32, learning_rate=0.002, beta1=0.9, beta2=0.99)
    )
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)
        for_bpe(self.tokenizer, vocab=self.vocab, default=type(self).vocab)

    def training(self) -> Classifying:
        """Reads the texts and builds the classifier."""
        found = read_labelled(self.data, text=self.text, target=self.target)
        kept, asked = split_indices(
            len(found), fractions=(1 - self.test, self.test), labels=torch.tensor(found.labels), classes=found.classes
        )
        train, test = found.take(kept.tolist()), found.take(asked.tolist())
        if not len(train) or not len(test):
            raise ValueError(f"{found.name} has too few texts to hold some back: {len(found)}")
        tokenizer = tokenizer_of(self.tokenizer, train.texts, vocab=self.vocab)
        model = self.model(tokenizer, classes=len(found.classes))
        rows, size, seed = self.rows(tokenizer, train.texts), self.learning.batch, self.engine.seed
        batches = Rows(rows, train.labels, fill=tokenizer.vocab, size=size, seed=seed)
        steps = self.learning.length(len(batches))
        text, target = found.columns or (None, None)
        sizes = Sized(classes=found.classes, text=text, target=target, layout=LAYOUT)
        return Classifying(
            model=model,
            turns=[self.learning.turn(model, self.objective, steps=steps)],
            batches=batches,
            steps=steps,
            accumulate=self.learning.accumulate,
            average=self.learning.average or None,
            claims=partial(model_claims, vocab=tokenizer.vocab),
            described={"tokenizer": tokenizer.to_json(), "sizes": sizes},
            fingerprint=found.fingerprint,
            train=train,
            test=test,
            tokenizer=tokenizer,
        )

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Measures the classifier on the test, beside the commonest class and bags."""
        if not isinstance(training, Classifying):
            return {}
        train, test, tokenizer = training.train, training.test, training.tokenizer
        labels = torch.tensor(test.labels)
        scores = self.scores(training.model, tokenizer, test.texts)
        said = scores.argmax(-1)
        wrong = [i for i in range(len(test)) if said[i] != labels[i]][:20]
        lines = [
            f"{test.classes[test.labels[i]]}, taken for {test.classes[int(said[i])]}: {test.texts[i][:300]}"
            for i in wrong
        ]
        (run.samples / "mistakes.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8", errors="replace")
        commonest, _ = Counter(train.labels).most_common(1)[0]
        return {
            "test": {"accuracy": accuracy(scores.softmax(-1), labels).json()},
            "baselines": {
                "commonest class": float((labels == commonest).double().mean()),
                **{name: bag_accuracy(train, test, parts=parts) for name, parts in BAGS.items()},
            },
            "texts": {"train": len(train), "test": len(test), "classes": len(test.classes)},
            "parameters": sum(p.numel() for p in training.model.parameters()),
        }

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its weights are put in."""
        sizes = from_json(Sized, facts.get("sizes"), at="model.sizes")
        if sizes.layout != LAYOUT:
            raise ValueError("the run is of an earlier classify-text, which averaged texts otherwise: train it again")
        return self.model(tokenizer_from_json(facts.get("tokenizer")), classes=len(sizes.classes))

    def encoded(self, source: str | Path, facts: Mapping[str, Any]) -> tuple[Int[Tensor, "n t"], Texts]:
        """Reads new texts, and the tokens of them, as a run has them."""
        sizes = from_json(Sized, facts.get("sizes"), at="model.sizes")
        new = read_texts(source, classes=sizes.classes, text=sizes.text, target=sizes.target)
        tokenizer = tokenizer_from_json(facts.get("tokenizer"))
        return pad_sequences(self.rows(tokenizer, new.texts), tokenizer.vocab), new

    # ------------------------------------------------------------ the parts

    def model(self, tokenizer: Tokenizer, *, classes: int) -> Pooled:
        """An encoder whose vectors are averaged; the token after the last stands where there is none.

        There is no norm before the average, so that a token that says nothing of the class can be small.
        """

        def build() -> Pooled:
            encoder = self.transformer.new_encoder(tokenizer.vocab + 1, context=self.context, final_norm=nn.Identity)
            return Pooled(encoder, classes=classes, padding=tokenizer.vocab, hide=self.hide)

        return built(build)

    def rows(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """The first tokens of each text."""
        return [tokenizer.encode(text[: 64 * self.context])[: self.context] or [tokenizer.vocab] for text in texts]

    @torch.no_grad()
    def scores(self, model: nn.Module, tokenizer: Tokenizer, texts: Sequence[str]) -> Float[Tensor, "n classes"]:
        """The scores of texts, in evaluation mode."""
        rows, device = self.rows(tokenizer, texts), next(model.parameters()).device
        parts = [pad_sequences(rows[i : i + 64], tokenizer.vocab) for i in range(0, len(rows), 64)]
        return torch.cat([model(part.to(device)).cpu() for part in parts])

    def objective(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The surprise at the right classes, and how often they are the likeliest."""
        x, y = batch
        scores = model(x)
        right = (scores.detach().argmax(-1) == y).float().mean()
        return {"loss": cross_entropy(scores, y, smoothing=self.smoothing), "accuracy": right}


class Rows:
    """Cuts rows of unequal lengths into batches, in each epoch in another order, those that are short filled up.

    Args:
        rows: The tokens of each text.
        labels: The class of each.
        fill: What stands where there is no token.
        size: The texts of a batch.
        seed: What the orders depend on.
    """

    def __init__(
        self, rows: Sequence[Sequence[int]], labels: Sequence[int], *, fill: int, size: int, seed: int
    ) -> None:
        self.rows, self.labels, self.fill = rows, torch.tensor(labels), fill
        self._order = ShuffledBatches(torch.arange(len(rows)), size=size, seed=seed)

    def __len__(self) -> int:
        return len(self._order)

    def batch(self, step: int) -> Batch:
        """The texts that the order of the epoch has at this step."""
        (chosen,) = self._order.batch(step)
        return pad_sequences((self.rows[i] for i in chosen.tolist()), self.fill), self.labels[chosen]


def model_claims(model: nn.Module, *, vocab: int) -> Iterator[Claim]:
    """What a classifier of texts is to keep: they do not mix, filling up changes nothing, probabilities add up to 1."""

    def filled(x: Int[Tensor, "b t"]) -> Tensor:
        return model(nn.functional.pad(x, (0, 3), value=vocab))

    text = tokens("b t:1..8", vocab_size=vocab)
    yield Claim(batch_independence(), model, text, name="classify-text")
    yield Claim(agreement(other=filled), model, text, name="classify-text, filled up")
    yield Claim(sums_to_one(axis=-1), nn.Sequential(model, nn.Softmax(-1)), text, name="classify-text, probabilities")
