"""Text classification: bag-of-words baselines, the pooled encoder and the recipe."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import Config, MaxLength, Range, from_json
from lawful.data import Batch, ShuffledBatches, split_indices
from lawful.data.text import Tokenizer, pad_sequences, tokenizer_from_json
from lawful.data.text.labeled import LabeledTexts, NewTexts, read_labeled_texts, read_texts
from lawful.functions.attention import Mask
from lawful.inference.metrics import accuracy
from lawful.laws import Claim, agreement, batch_independence, sums_to_one, tokens
from lawful.models import SoftmaxRegression
from lawful.models.transformer import Encoder
from lawful.optim import adamw, linear_schedule
from lawful.recipes.optimization import (
    LearningRates,
    TransformerOptimizationConfig,
    _classification_loss,
    _Decay,
    _Fraction,
    _Probability,
    _Steps,
)
from lawful.recipes.text import CharTokenizerSpec, _TokenizerSpec, _train_tokenizer
from lawful.recipes.transformer import TransformerConfig
from lawful.training import Recipe, Run, TrainingSetup

# ---------------------------------------------------------------- baselines

_BAG_SIZE, _MAX_NGRAM, _BAG_STEPS = 4096, 3, 150
"""Features of a bag, longest character n-gram, and training steps of the baseline."""


def _character_ngrams(text: str) -> list[str]:
    """Returns the character n-grams of length 1 to 3.

    Examples:
        >>> _character_ngrams("abc")
        ['a', 'b', 'c', 'ab', 'bc', 'abc']
    """
    return [text[i : i + n] for n in range(1, _MAX_NGRAM + 1) for i in range(len(text) - n + 1)]


def _split_words(text: str) -> list[str]:
    """Returns the words of a text.

    Examples:
        >>> _split_words("a cat, and milk")
        ['a', 'cat', 'and', 'milk']
    """
    return re.findall(r"\w+", text)


def _hashed_bag(
    texts: Sequence[str], *, split: Callable[[str], list[str]], max_characters: int = 5000
) -> Float[Tensor, "n k"]:
    """Returns log(1 + count) of the hashed features of each text, in lower case.

    Args:
        texts: Texts.
        split: Splits a text into features: `_character_ngrams` or `_split_words`.
        max_characters: Number of characters to read of each text.
    """
    counts = torch.zeros(len(texts), _BAG_SIZE)
    for row, text in enumerate(text[:max_characters].lower() for text in texts):
        columns = [zlib.crc32(part.encode("utf-8", "replace")) % _BAG_SIZE for part in split(text)]
        counts[row] = torch.bincount(torch.tensor(columns, dtype=torch.int64), minlength=_BAG_SIZE).float()
    return counts.log1p()


def _bag_baseline(train: LabeledTexts, test: LabeledTexts, *, split: Callable[[str], list[str]]) -> float:
    r"""Returns the accuracy of a softmax regression on TF-IDF features.

    A feature that $n_i$ of $n$ texts have is weighted by $1 + \log \frac{1 + n}{1 + n_i}$; rows have norm 1.
    """
    counts, y = _hashed_bag(train.texts, split=split), torch.tensor(train.labels)
    idf = 1 + ((1 + len(counts)) / (1 + (counts > 0).sum(0))).log()

    def tf_idf(x: Tensor) -> Tensor:
        return F.normalize(x * idf, dim=1)

    x = tf_idf(counts)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        model = SoftmaxRegression(_BAG_SIZE, len(train.classes))
    optimizer, schedule = adamw(model.parameters(), lr=0.1, weight_decay=1e-3), linear_schedule(steps=_BAG_STEPS)
    for step in range(_BAG_STEPS):
        optimizer.param_groups[0]["lr"] = 0.1 * schedule(step)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        predicted = model(tf_idf(_hashed_bag(test.texts, split=split))).argmax(-1)
    return float((predicted == torch.tensor(test.labels)).double().mean())


_BAGS = {"bag of words": _split_words, "bag of character n-grams": _character_ngrams}


# ---------------------------------------------------------------- the model


class _PooledEncoder(nn.Module):
    r"""Text classifier: the mean of the encoder's outputs, and a linear layer.

    $$y = W \frac{1}{n} \sum_{i \le n} x_i + b$$

    Padding is masked. In training, random tokens are left out of the mean, so that the class can be predicted from any
    part of a text.

    Args:
        encoder: Encoder with outputs $x$.
        num_classes: Number of classes.
        padding: Padding id.
        token_dropout: _Probability of leaving a token out of the mean in training.

    Examples:
        >>> from lawful.models.transformer import encoder
        >>> model = _PooledEncoder(encoder(vocab_size=5, dim=8, num_layers=1), num_classes=3, padding=4)
        >>> model(torch.tensor([[1, 2, 3], [1, 4, 4]])).shape
        torch.Size([2, 3])
    """

    def __init__(self, encoder: Encoder, *, num_classes: int, padding: int, token_dropout: float = 0.0) -> None:
        super().__init__()
        self.encoder, self.padding, self.token_dropout = encoder, padding, nn.Dropout(token_dropout)
        self.head = nn.Linear(encoder.dim, num_classes)

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b classes"]:
        """Returns the logits of the classes."""
        valid = tokens != self.padding
        counted = self.token_dropout(valid.float()) > 0
        x = self.encoder(tokens, mask=Mask(padding=valid)).masked_fill(~counted[..., None], 0.0)
        return self.head(x.sum(1) / counted.sum(1, keepdim=True).clamp_min(1))


class _PaddedBatches:
    """Shuffled batches of token sequences of different lengths, padded.

    Args:
        rows: Tokens of each text.
        labels: Class of each text.
        padding: Padding id.
        batch_size: Number of texts per batch.
        seed: Random seed of the shuffling.
    """

    def __init__(
        self, rows: Sequence[Sequence[int]], labels: Sequence[int], *, padding: int, batch_size: int, seed: int
    ) -> None:
        self._rows, self._labels, self._padding = rows, torch.tensor(labels), padding
        self._indices = ShuffledBatches(torch.arange(len(rows)), batch_size=batch_size, seed=seed)

    def __len__(self) -> int:
        return len(self._indices)

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step."""
        (indices,) = self._indices.batch(step)
        return pad_sequences((self._rows[i] for i in indices.tolist()), self._padding), self._labels[indices]


# ---------------------------------------------------------------- the recipe


@dataclass(frozen=True, kw_only=True)
class TextSpec(Config):
    """Classes and columns of the training texts; saved in `config.json`."""

    classes: Annotated[tuple[str, ...], MaxLength(10_000)]
    """Class names."""
    text: Annotated[str, MaxLength(4096)] | None = None
    """Column with the texts."""
    target: Annotated[str, MaxLength(4096)] | None = None
    """Column with the classes."""

    @classmethod
    def from_config(cls, model_config: Mapping[str, Any]) -> TextSpec:
        """Reads the specification from the configuration of a run, and validates it."""
        return from_json(cls, model_config.get("text_spec"), at="model.text_spec")


@dataclass(frozen=True)
class LabeledTextData:
    """Training and test texts, and their tokenizer."""

    train: LabeledTexts
    test: LabeledTexts
    tokenizer: Tokenizer


@dataclass(frozen=True, kw_only=True)
class ClassifyTextRecipe(TransformerConfig, TransformerOptimizationConfig, Recipe[LabeledTextData]):
    """Train a text classifier on a table, on one folder per class or on built-in paragraphs."""

    name: ClassVar[str] = "classify-text"
    default_learning_rates: ClassVar[LearningRates] = LearningRates(muon=0.002)

    data: Annotated[str, MaxLength(4096)] = "topics"
    """CSV or TSV file, folder with one folder of text files per class, or topics: parts of Python's reference."""
    text: Annotated[str, MaxLength(4096)] | None = None
    """Column with the texts. Defaults to the column with the longest texts."""
    target: Annotated[str, MaxLength(4096)] | None = None
    """Column with the classes. Defaults to the last other column."""
    test_fraction: Annotated[float, Range(0.01, 0.9)] = 0.2
    """Fraction of the texts used for the test."""
    tokenizer: _TokenizerSpec = field(default_factory=CharTokenizerSpec)
    """Tokenizer."""
    context_length: Annotated[int, Range(1, 10**5)] = 256
    """Number of tokens to read of a text, from its start."""
    token_dropout: _Probability = 0.5
    """Probability of leaving a token out of the mean over a text in training."""
    label_smoothing: _Fraction = 0.05
    """Label smoothing."""
    dim: Annotated[int, Range(1, 10**5)] = 32
    layer_pattern: Annotated[str, MaxLength(1000)] = "f*"
    ngrams: Annotated[tuple[Annotated[int, Range(2, 16)], ...], MaxLength(8)] = (2, 3, 4, 5)
    ngram_rows: Annotated[int, Range(1, 10**8)] = 32768
    embedding_norm: bool = False
    embedding_skip: bool = False
    zero_init_outputs: bool = False
    steps: _Steps = None
    epochs: Annotated[int, Range(1, 10**7)] | None = None
    """Number of passes over the training data. Defaults to 8, unless `steps` is given."""
    betas: tuple[_Decay, _Decay] | None = (0.9, 0.99)

    def setup(self) -> TrainingSetup[LabeledTextData]:
        """Reads the texts and builds the classifier."""
        texts = read_labeled_texts(self.data, text=self.text, target=self.target)
        rows = split_indices(
            len(texts),
            fractions=(1 - self.test_fraction, self.test_fraction),
            labels=torch.tensor(texts.labels),
            classes=texts.classes,
        )
        train, test = (texts.select(part.tolist()) for part in rows)
        if not len(train) or not len(test):
            raise ValueError(f"{texts.name} has {len(texts)} texts, too few for a training and a test split")
        tokenizer = _train_tokenizer(self.tokenizer, train.texts)
        model = self._build(tokenizer, num_classes=len(texts.classes))
        batches = _PaddedBatches(
            self._token_rows(tokenizer, train.texts),
            train.labels,
            padding=tokenizer.vocab_size,
            batch_size=self.batch_size or 32,
            seed=self.seed,
        )
        optimization = self if self.steps else self.with_defaults(epochs=8)
        steps = optimization.num_steps(len(batches))
        text, target = texts.columns or (None, None)
        return TrainingSetup(
            model=model,
            optimizer_steps=[self.optimizer_step(model, self._loss, steps=steps)],
            batches=batches,
            steps=steps,
            grad_accumulation_steps=self.grad_accumulation_steps,
            ema_decay=self.ema_decay or None,
            claims=partial(_claims, vocab_size=tokenizer.vocab_size),
            model_config={
                "tokenizer": tokenizer.to_json(),
                "text_spec": TextSpec(classes=texts.classes, text=text, target=target),
            },
            data_fingerprint=texts.fingerprint,
            data=LabeledTextData(train, test, tokenizer),
        )

    def finish(self, run: Run, setup: TrainingSetup[LabeledTextData]) -> Mapping[str, Any]:
        """Compares the classifier with baselines on the test texts, and writes its mistakes."""
        train, test = setup.data.train, setup.data.test
        labels = torch.tensor(test.labels)
        logits = self._predict_logits(setup.model, setup.data.tokenizer, test.texts)
        predicted = logits.argmax(-1)
        wrong = [i for i in range(len(test)) if predicted[i] != labels[i]][:20]
        lines = [
            f"{test.classes[test.labels[i]]}, predicted {test.classes[int(predicted[i])]}: {test.texts[i][:300]}"
            for i in wrong
        ]
        (run.samples / "mistakes.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8", errors="replace")
        most_frequent, _ = Counter(train.labels).most_common(1)[0]
        return {
            "test": {"accuracy": accuracy(logits.softmax(-1), labels).json()},
            "baselines": {
                "most frequent class": float((labels == most_frequent).double().mean()),
                **{name: _bag_baseline(train, test, split=split) for name, split in _BAGS.items()},
            },
            "texts": {"train": len(train), "test": len(test), "classes": len(test.classes)},
            "parameters": sum(p.numel() for p in setup.model.parameters()),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        spec = TextSpec.from_config(model_config)
        return self._build(tokenizer_from_json(model_config.get("tokenizer")), num_classes=len(spec.classes))

    def load_texts(self, source: str | Path, model_config: Mapping[str, Any]) -> tuple[Int[Tensor, "n t"], NewTexts]:
        """Reads new texts and tokenizes them as the run does."""
        spec = TextSpec.from_config(model_config)
        new = read_texts(source, classes=spec.classes, text=spec.text, target=spec.target)
        tokenizer = tokenizer_from_json(model_config.get("tokenizer"))
        return pad_sequences(self._token_rows(tokenizer, new.texts), tokenizer.vocab_size), new

    def _build(self, tokenizer: Tokenizer, *, num_classes: int) -> _PooledEncoder:
        """An encoder without a final norm, so that uninformative tokens can be small in the mean."""
        padding = tokenizer.vocab_size
        encoder = self.build_encoder(padding + 1, context_length=self.context_length, final_norm=nn.Identity)
        return _PooledEncoder(encoder, num_classes=num_classes, padding=padding, token_dropout=self.token_dropout)

    def _token_rows(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """The first tokens of each text; one padding token for an empty text."""
        length = self.context_length
        return [tokenizer.encode(text[: 64 * length])[:length] or [tokenizer.vocab_size] for text in texts]

    @torch.no_grad()
    def _predict_logits(
        self, model: nn.Module, tokenizer: Tokenizer, texts: Sequence[str]
    ) -> Float[Tensor, "n classes"]:
        rows, device = self._token_rows(tokenizer, texts), next(model.parameters()).device
        parts = [pad_sequences(rows[i : i + 64], tokenizer.vocab_size) for i in range(0, len(rows), 64)]
        return torch.cat([model(part.to(device)).cpu() for part in parts])

    def _loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy and accuracy."""
        x, y = batch
        logits = model(x)
        return _classification_loss(logits, y, label_smoothing=self.label_smoothing)


def _claims(model: nn.Module, *, vocab_size: int) -> Iterator[Claim]:
    """A text classifier treats texts independently, ignores padding and returns probabilities."""

    def padded(x: Int[Tensor, "b t"]) -> Tensor:
        return model(F.pad(x, (0, 3), value=vocab_size))

    text = tokens("b t:1..8", vocab_size=vocab_size)
    yield Claim(batch_independence(), model, text, name="classify-text")
    yield Claim(agreement(other=padded), model, text, name="classify-text, padded")
    yield Claim(sums_to_one(axis=-1), nn.Sequential(model, nn.Softmax(-1)), text, name="classify-text, probabilities")
