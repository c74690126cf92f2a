"""Text classification: logistic regression on n-grams plus an encoder with mean pooling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import Config, MaxLength, Range, from_json
from lawful.blocks.modes import eval_mode
from lawful.data import Batch, ShuffledBatches, split_indices
from lawful.data.text import Tokenizer, pad_sequences, tokenizer_from_json
from lawful.data.text.labeled import LabeledTexts, NewTexts, read_labeled_texts, read_texts
from lawful.functions.attention import Mask
from lawful.inference.metrics import accuracy
from lawful.laws import Claim, agreement, batch_independence, sums_to_one, tokens
from lawful.models.transformer import Encoder
from lawful.recipes.optimization import (
    EvaluationConfig,
    LearningRates,
    TransformerOptimizationConfig,
    _classification_loss,
    _Decay,
    _Fraction,
    _Probability,
    _Steps,
)
from lawful.recipes.text import CharTokenizerSpec, _TokenizerSpec, _train_tokenizer
from lawful.recipes.transformer import TransformerConfig, _NgramRows
from lawful.training import Recipe, Run, TrainingSetup, compare_with_baselines

# ---------------------------------------------------------------- n-grams

_MAX_NGRAM, _HASH = 5, 6_364_136_223_846_793_005
"""Longest n-gram of tokens, and the odd factor of the hash."""
_INVERSE_HASH = pow(_HASH, -1, 2**64) - 2**64 * (pow(_HASH, -1, 2**64) >= 2**63)
"""Inverse of the factor in 64-bit integers."""


def _power_tables(base: int) -> Int[Tensor, "3 256"]:
    """Returns the powers, in 64-bit integers, whose exponents are a digit times 1, 256 and 256 ** 2."""
    powers = ([pow(base, n * place, 2**64) for n in range(256)] for place in (1, 256, 256**2))
    return torch.tensor([[power - 2**64 * (power >= 2**63) for power in row] for row in powers])


_POWERS, _INVERSE_POWERS = _power_tables(_HASH), _power_tables(_INVERSE_HASH)
"""Powers of the factor of the hash and of its inverse."""
_INVERSE_PENALTY = 30.0
"""Inverse strength of the L2 penalty of logistic regression, scikit-learn's C."""
_FOLDS, _MAX_WEIGHTS, _MAX_ENTRIES = 5, 2**24, 2**24
"""Folds of cross-validation, maximum number of weights, and of n-grams of all texts to fit on."""


class NGramClassifier(nn.Module):
    r"""Logistic regression on TF-IDF weights of n-grams of 1 to 5 tokens, words, and pairs of words.

    $$y = b + \frac{u W}{\lVert u \rVert} + \frac{v W}{\lVert v \rVert}, \qquad
    u_k = [c_k > 0] \, (1 + \log c_k) \left(1 + \log \frac{1 + n}{1 + n_k}\right)$$

    A text has $c_k$ n-grams with hash $k$, and $n_k$ of the $n$ training texts have one. $u$ is for n-grams of tokens,
    $v$ for words and pairs of words. `fit` sets the weights.

    Args:
        num_classes: Number of classes.
        num_rows: Number of hash values; odd.
        letters: True at tokens that are letters of words.
        padding: Padding id.
    """

    letters: Tensor
    idf: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, num_classes: int, *, num_rows: int, letters: Bool[Tensor, " v"], padding: int) -> None:
        super().__init__()
        self.num_rows, self.padding = num_rows, padding
        self.register_buffer("letters", letters, persistent=False)
        self.register_buffer("idf", torch.zeros(num_rows + 1))  # the last row is for padding
        self.register_buffer("weight", torch.zeros(num_rows + 1, num_classes))
        self.register_buffer("bias", torch.zeros(num_classes))

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b classes"]:
        """Returns the logits of the classes."""
        logits = self.bias
        for rows, counts in self.count(tokens):
            tf_idf = self.idf[rows] * (1 + counts.log())  # of each n-gram, at each of its places
            norm = (tf_idf.square() / counts).sum(1, keepdim=True).sqrt().clamp_min(1e-6)
            scale = tf_idf / counts / norm
            logits = logits + F.embedding_bag(rows, self.weight, per_sample_weights=scale, mode="sum")
        return logits

    def count(self, tokens: Int[Tensor, "b t"]) -> list[tuple[Int[Tensor, "b _"], Float[Tensor, "b _"]]]:
        """Returns the sorted hashes of n-grams and of words, and how often each occurs in its text."""
        found = []
        for keys, valid in _ngram_keys(tokens, self.letters, padding=self.padding):
            rows = torch.where(valid, keys % self.num_rows, self.num_rows).sort(1).values
            group = F.pad((rows[:, 1:] != rows[:, :-1]).long().cumsum(1), (1, 0))
            ones = torch.ones(rows.shape, dtype=self.idf.dtype, device=rows.device)
            found.append((rows, torch.zeros_like(ones).scatter_add(1, group, ones).gather(1, group)))
        return found

    def fit(self, texts: Sequence[Sequence[int]], labels: Sequence[int]) -> Float[Tensor, "n classes"]:
        """Fits the weights. Returns out-of-fold logits: those of a text come from a fit to the other folds (5 folds).

        Args:
            texts: Tokens of each text.
            labels: Class of each text.
        """
        from scipy.sparse import diags_array
        from sklearn.preprocessing import normalize

        parts, y = self._count_matrices(texts), np.array(labels)
        frequency = sum(np.bincount(part.indices, minlength=self.num_rows + 1) for part in parts)
        idf = np.where(frequency > 0, 1 + np.log((1 + len(texts)) / (1 + frequency)), 0.0)
        for part in parts:
            part.data = 1 + np.log(part.data)
        grams, words = (normalize(part @ diags_array(idf)) for part in parts)
        x = (grams + words).tocsr()
        size = max(1, round(len(texts) * min(1.0, _MAX_ENTRIES / max(1, x.nnz))))
        some = np.sort(np.random.default_rng(0).permutation(len(texts))[:size])
        self.idf.copy_(torch.from_numpy(idf))
        logits, fold = np.zeros((len(texts), len(self.bias))), np.full(len(texts), -1)
        fold[some[np.argsort(y[some], kind="stable")]] = np.arange(len(some)) % _FOLDS
        for number in range(_FOLDS):
            known, new = (fold >= 0) & (fold != number), (fold == number) | ((fold < 0) & (number == 0))
            if len(set(y[known])) > 1 and new.any():
                weight, bias = self._solve(x[known], y[known])
                logits[new] = x[new] @ weight + bias
        weight, bias = self._solve(x[some], y[some])
        self.weight.copy_(torch.from_numpy(weight))
        self.bias.copy_(torch.from_numpy(bias))
        return torch.from_numpy(logits).float()

    def _solve(self, x: Any, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fits logistic regression. Classes without texts get a small logit."""
        used = np.unique(x.indices)
        model = _logistic_regression().fit(x[:, used], y)
        weight, bias = np.zeros((x.shape[1], len(self.bias))), np.full(len(self.bias), -10.0)
        binary = len(model.classes_) == 2
        coefficients = np.concatenate([-model.coef_, model.coef_]) / 2 if binary else model.coef_
        weight[np.ix_(used, model.classes_)] = coefficients.T
        bias[model.classes_] = np.concatenate([-model.intercept_, model.intercept_]) / 2 if binary else model.intercept_
        return weight, bias

    def _count_matrices(self, texts: Sequence[Sequence[int]]) -> list[Any]:
        """Returns how often each hash occurs in each text, as sparse matrices: of n-grams, and of words."""
        from scipy.sparse import csr_array

        starts, columns, values = [[0], [0]], [[], []], [[], []]
        for i in range(0, len(texts), 64):
            for part, found in enumerate(self.count(pad_sequences(texts[i : i + 64], self.padding))):
                for rows, counts in zip(*found, strict=True):
                    unique, first = np.unique(rows.numpy(), return_index=True)
                    kept = unique < self.num_rows
                    columns[part].append(unique[kept])
                    values[part].append(counts.numpy()[first[kept]])
                    starts[part].append(starts[part][-1] + int(kept.sum()))
        shape = (len(texts), self.num_rows + 1)
        return [
            csr_array((np.concatenate(v).astype(np.float64), np.concatenate(c), np.array(s)), shape=shape)
            for v, c, s in zip(values, columns, starts, strict=True)
        ]


def _ngram_keys(
    tokens: Int[Tensor, "b t"], letters: Bool[Tensor, " v"], *, padding: int
) -> list[tuple[Int[Tensor, "b _"], Bool[Tensor, "b _"]]]:
    r"""Hashes the n-grams of tokens, the words, and the pairs of successive words.

    $$h(x_1, \dots, x_n) = \sum_i a^i (x_i + 1)$$

    in 64-bit integers. The hash of a word from $s$ to $e$ is a difference of cumulative sums, divided by $a^s$.

    Returns:
        For n-grams and for words, the hash at each position, and whether one ends there.
    """
    t, x = tokens.shape[1], tokens + 1
    index = torch.arange(t, device=x.device).expand_as(x)
    key, keys, valid = torch.zeros_like(x), [], []
    for n in range(1, _MAX_NGRAM + 1):
        key = key * _HASH + F.pad(x, (n - 1, 0))[:, :t]
        keys.append(key)
        valid.append((tokens != padding) & (index >= n - 1))
    is_letter = letters[tokens]
    start = _count_to_last(~is_letter).clamp_max(t - 1)
    powers, inverse = (_integer_powers(tables, index[0]) for tables in (_POWERS, _INVERSE_POWERS))
    sums = (x * powers).cumsum(1)
    word = (sums - F.pad(sums, (1, 0))[:, :t].gather(1, start)) * inverse[start]
    is_end = is_letter & ~F.pad(is_letter, (0, 1))[:, 1:]
    previous = F.pad(_count_to_last(is_end), (1, 0))[:, :t].gather(1, start) - 1
    pair = _HASH * (3 * word + 2) + word.gather(1, previous.clamp_min(0))
    words = torch.cat([3 * word + 1, pair], 1), torch.cat([is_end, is_end & (previous >= 0)], 1)
    return [(torch.cat(keys, 1), torch.cat(valid, 1)), words]


def _count_to_last(mask: Bool[Tensor, "b t"]) -> Int[Tensor, "b t"]:
    """Returns the number of positions up to the last True at or before each position; 0 if there is none.

    ONNX has no cumulative maximum.

    Examples:
        >>> _count_to_last(torch.tensor([[False, True, False, True]]))
        tensor([[0, 2, 2, 4]])
    """
    positions, rank = torch.arange(1, mask.shape[1] + 1, device=mask.device), mask.long().cumsum(1)
    by_rank = F.pad(torch.zeros_like(rank), (1, 0)).scatter_add(1, rank, mask * positions)
    return by_rank.gather(1, rank)


def _integer_powers(tables: Int[Tensor, "3 256"], exponents: Int[Tensor, " t"]) -> Int[Tensor, " t"]:
    """Returns powers of the base of `_power_tables`. ONNX has no cumulative product.

    Examples:
        >>> _integer_powers(_power_tables(3), torch.arange(4))
        tensor([ 1,  3,  9, 27])
    """
    low, middle, high = tables.to(exponents.device)
    return low[exponents % 256] * middle[exponents // 256 % 256] * high[exponents // 256**2]


def _logistic_regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=_INVERSE_PENALTY, max_iter=200, tol=1e-3)


def _linear_baselines(train: LabeledTexts, test: LabeledTexts) -> dict[str, float]:
    """Returns the accuracy of logistic regression on TF-IDF weights of letter n-grams, and of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizers = {
        "letter n-grams": TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True),
        "words": TfidfVectorizer(token_pattern=r"\w+", sublinear_tf=True),
    }
    found = {}
    for name, vectorizer in vectorizers.items():
        try:
            x = vectorizer.fit_transform(train.texts)
        except ValueError:  # no text has a word
            continue
        model = _logistic_regression().fit(x, train.labels)
        found[name] = float(model.score(vectorizer.transform(test.texts), test.labels))
    return found


# ---------------------------------------------------------------- the model


class TextClassifier(nn.Module):
    r"""Text classifier: an encoder with mean pooling and a linear head, plus an n-gram classifier.

    $$y = W \frac{1}{n} \sum_{i \le n} x_i + b + \text{n-grams}$$

    Padding is masked. In training, random tokens are dropped from the mean, so that the class can be predicted from any
    part of a text. `lawful.load` returns it for a run of the recipe `classify-text`.

    Args:
        encoder: Encoder with outputs $x$.
        classes: Class names.
        tokenizer: Tokenizer. The model has two more tokens: the boundary of a text, and padding.
        lowercase: Whether texts are converted to lower case.
        ngrams: N-gram classifier. None for the encoder alone.
        token_dropout: Probability of dropping a token from the mean in training.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        classes: Sequence[str],
        tokenizer: Tokenizer,
        lowercase: bool = True,
        ngrams: NGramClassifier | None = None,
        token_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder, self.ngrams, self.token_dropout = encoder, ngrams, nn.Dropout(token_dropout)
        self.head = nn.Linear(encoder.dim, len(classes))
        self.classes, self.tokenizer, self.lowercase = tuple(classes), tokenizer, lowercase
        self.padding = tokenizer.vocab_size + 1
        if ngrams is not None:
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b classes"]:
        """Returns the logits of the classes."""
        logits = self.encoder_logits(tokens)
        return logits if self.ngrams is None else logits + self.ngrams(tokens)

    def encoder_logits(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b classes"]:
        """Returns the logits without the n-gram classifier."""
        valid = tokens != self.padding
        counted = self.token_dropout(valid.float()) > 0
        x = self.encoder(tokens, mask=Mask(padding=valid)).masked_fill(~counted[..., None], 0.0)
        return self.head(x.sum(1) / counted.sum(1, keepdim=True).clamp_min(1))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the first tokens of each text, between two boundaries."""
        length, boundary = self.encoder.context_length or 10**9, self.tokenizer.vocab_size
        rows = []
        for text in texts:
            start = text[: 64 * length]
            ids = self.tokenizer.encode(start.lower() if self.lowercase else start)
            rows.append([boundary, *ids[: length - 2], boundary])
        return rows

    def predict(self, texts: str | Sequence[str]) -> np.ndarray:
        """Returns the class of each text."""
        return np.array(self.classes)[self.predict_proba(texts).argmax(-1)]

    def predict_proba(self, texts: str | Sequence[str]) -> np.ndarray:
        """Returns the probability of each class, `(n, classes)`."""
        return self.logits([texts] if isinstance(texts, str) else list(texts)).softmax(-1).numpy()

    @torch.no_grad()
    def logits(self, texts: Sequence[str]) -> Float[Tensor, "n classes"]:
        """Returns the logits of each text, in eval mode."""
        device, rows = self.head.weight.device, self.encode(texts)
        with eval_mode(self):
            parts = [pad_sequences(rows[i : i + 64], self.padding) for i in range(0, len(rows), 64)]
            logits = [self(part.to(device)).cpu() for part in parts]
        return torch.cat(logits) if logits else torch.zeros(0, len(self.classes))


def _letters(tokenizer: Tokenizer) -> Bool[Tensor, " v"]:
    """True at tokens that are one letter or digit of a word; False at the boundary and padding."""
    pieces = [piece.decode("utf-8", "replace") for piece in tokenizer.token_bytes]
    words = [len(piece) == 1 and (piece.isalnum() or piece == "\ufffd") for piece in pieces]
    return torch.tensor([*words, False, False])


class _PaddedBatches:
    """Shuffled batches of token sequences of different lengths, padded.

    Args:
        rows: Tokens of each text.
        labels: Class of each text.
        offsets: Logits to which the encoder's logits are added.
        padding: Padding id.
        batch_size: Number of texts per batch.
        seed: Random seed of the shuffling.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[int]],
        labels: Sequence[int],
        offsets: Float[Tensor, "n classes"],
        *,
        padding: int,
        batch_size: int,
        seed: int,
    ) -> None:
        self._rows, self._labels, self._offsets, self._padding = rows, torch.tensor(labels), offsets, padding
        self._indices = ShuffledBatches(torch.arange(len(rows)), batch_size=batch_size, seed=seed)

    def __len__(self) -> int:
        return len(self._indices)

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step."""
        (indices,) = self._indices.batch(step)
        return self.collate(indices.tolist())

    def collate(self, indices: Sequence[int]) -> Batch:
        """Returns the batch of the texts at these indices."""
        rows = pad_sequences((self._rows[i] for i in indices), self._padding)
        return rows, self._labels[indices], self._offsets[indices]


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
    has_header: bool = True
    """Whether the column names come from the file."""
    ngram_rows: Annotated[int, Range(0, 2**30)] = 0
    """Number of hash values of the n-gram classifier; 0 for none."""

    @classmethod
    def from_config(cls, model_config: Mapping[str, Any]) -> TextSpec:
        """Reads the specification from the configuration of a run, and validates it."""
        return from_json(cls, model_config.get("text_spec"), at="model.text_spec")


@dataclass(frozen=True)
class LabeledTextData:
    """Training, validation and test texts."""

    train: LabeledTexts
    validation: LabeledTexts
    test: LabeledTexts


@dataclass(frozen=True, kw_only=True)
class ClassifyTextRecipe(TransformerConfig, TransformerOptimizationConfig, EvaluationConfig, Recipe[LabeledTextData]):
    """Train a text classifier on a table, on one folder per class or on built-in paragraphs."""

    name: ClassVar[str] = "classify-text"
    default_learning_rates: ClassVar[LearningRates] = LearningRates(muon=0.002)

    data: Annotated[str, MaxLength(4096)] = "topics"
    """CSV or TSV file, folder with one folder of text files per class, or topics: parts of Python's reference."""
    text: Annotated[str, MaxLength(4096)] | None = None
    """Column with the texts. Defaults to the column with the longest texts."""
    target: Annotated[str, MaxLength(4096)] | None = None
    """Column with the classes. Defaults to the column named label, class, target or category, or else the last one."""
    test_fraction: Annotated[float, Range(0.01, 0.9)] = 0.1
    """Fraction of the texts used for the test."""
    validation_fraction: Annotated[float, Range(0.01, 0.9)] = 0.1
    """Fraction of the remaining texts used for validation."""
    tokenizer: _TokenizerSpec = field(default_factory=CharTokenizerSpec)
    """Tokenizer."""
    lowercase: bool = True
    """Convert texts to lower case."""
    context_length: Annotated[int, Range(3, 10**5)] = 1024
    """Maximum number of tokens per text, with the start and end tokens; longer texts are truncated."""
    ngram_classifier: bool = True
    """Add the logits of a logistic regression on n-grams of letters and words to the logits of the encoder."""
    token_dropout: _Probability = 0.5
    """Probability of dropping a token from mean pooling in training."""
    label_smoothing: _Fraction = 0.05
    """Label smoothing."""
    dim: Annotated[int, Range(1, 10**5)] = 32
    layer_pattern: Annotated[str, MaxLength(1000)] = "f*"
    ngrams: Annotated[tuple[Annotated[int, Range(2, 16)], ...], MaxLength(8)] = (2, 3, 4, 5)
    ngram_rows: _NgramRows = 32768
    embedding_norm: bool = False
    embedding_skip: bool = False
    zero_init_outputs: bool = False
    steps: _Steps = None
    epochs: Annotated[int, Range(1, 10**7)] | None = None
    """Number of passes over the training data. Defaults to 8, unless `steps` is given."""
    betas: tuple[_Decay, _Decay] | None = (0.9, 0.99)

    def setup(self) -> TrainingSetup[LabeledTextData]:
        """Reads the texts, fits the n-gram classifier and builds the encoder."""
        texts = read_labeled_texts(self.data, text=self.text, target=self.target)
        data = self._split(texts)
        known = texts.select(i for part in (data.train, data.validation) for i in part)
        train, validation, test = (texts.select(part) for part in (data.train, data.validation, data.test))
        tokenizer = _train_tokenizer(self.tokenizer, [self._normalize(text) for text in known.texts])
        text, target = texts.columns or (None, None)
        spec = TextSpec(classes=texts.classes, text=text, target=target, has_header=texts.has_header)
        spec = replace(spec, ngram_rows=self._count_ngrams(tokenizer, spec, known) if self.ngram_classifier else 0)
        model = self._build(tokenizer, spec)
        rows = model.encode(known.texts)
        offsets = torch.zeros(len(known), len(texts.classes))
        if model.ngrams is not None:
            offsets = model.ngrams.fit(rows, known.labels)
        n = len(train)
        options: dict[str, Any] = {"padding": model.padding, "batch_size": self.batch_size or 32, "seed": self.seed}
        batches = _PaddedBatches(rows[:n], train.labels, offsets[:n], **options)
        validation_batches = _PaddedBatches(rows[n:], validation.labels, offsets[n:], **options)
        optimization = self if self.steps else self.with_defaults(epochs=8)
        steps = optimization.num_steps(len(batches))
        return TrainingSetup(
            model=model,
            optimizer_steps=[self.optimizer_step(model, self._loss, steps=steps)],
            batches=batches,
            steps=steps,
            evaluate=partial(_evaluate, batches=validation_batches, size=len(validation)),
            eval_every=self.eval_every(steps, steps_per_epoch=len(batches)),
            patience=self.patience or None,
            restore_best=True,
            grad_accumulation_steps=self.grad_accumulation_steps,
            ema_decay=self.ema_decay or None,
            claims=partial(_claims, vocab_size=tokenizer.vocab_size),
            model_config={"tokenizer": tokenizer.to_json(), "text_spec": spec},
            data_fingerprint=":".join(part.fingerprint for part in (train, validation, test)),
            notes=_describe(texts),
            warnings=(*texts.notes, *_leaks(train, test)),
            data=LabeledTextData(train, validation, test),
        )

    def finish(self, run: Run, setup: TrainingSetup[LabeledTextData]) -> Mapping[str, Any]:
        """Compares the classifier with baselines on the test texts, and writes its mistakes."""
        train, validation, test = setup.data.train, setup.data.validation, setup.data.test
        model, labels = _as_classifier(setup.model), torch.tensor(test.labels)
        logits = model.logits(test.texts)
        predicted = logits.argmax(-1)
        wrong = [i for i in range(len(test)) if predicted[i] != labels[i]][:20]
        lines = [
            f"{test.classes[test.labels[i]]}, predicted {test.classes[int(predicted[i])]}: {test.texts[i][:300]}"
            for i in wrong
        ]
        run.write("samples/mistakes.txt", "\n\n".join(lines) + "\n")
        known = replace(train, texts=(*train.texts, *validation.texts), labels=(*train.labels, *validation.labels))
        most_frequent, _ = Counter(known.labels).most_common(1)[0]
        measured = accuracy(logits.softmax(-1), labels).json()
        baselines = {
            "most frequent class": float((labels == most_frequent).double().mean()),
            **_linear_baselines(known, test),
        }
        return {
            "summary": compare_with_baselines("test accuracy", measured, baselines, higher_is_better=True),
            "test": {"accuracy": measured},
            "baselines": baselines,
            "texts": {
                **{name: len(getattr(setup.data, name)) for name in ("train", "validation", "test")},
                "classes": len(test.classes),
            },
            "parameters": sum(p.numel() for p in setup.model.parameters()),
            **({"warnings": list(setup.warnings)} if setup.warnings else {}),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        return self._build(tokenizer_from_json(model_config.get("tokenizer")), TextSpec.from_config(model_config))

    def load_texts(self, source: str | Path, model_config: Mapping[str, Any]) -> NewTexts:
        """Reads new texts in the format of the training texts."""
        spec = TextSpec.from_config(model_config)
        has_header = None if spec.has_header else False
        return read_texts(source, classes=spec.classes, text=spec.text, target=spec.target, has_header=has_header)

    def _split(self, texts: LabeledTexts) -> _Split:
        """Splits the texts at random, stratified by class."""
        rare = [(texts.classes[label], count) for label, count in Counter(texts.labels).items() if count < 3]
        if rare:
            name, count = min(rare)
            place = f"column {texts.columns[1]!r} of {texts.name}" if texts.columns else texts.name
            raise ValueError(
                f"class {name!r} of {place} has {count} text{'s' * (count > 1)}, at least 3 are needed for training, "
                "validation and test: add texts, leave the class out, or choose another target"
            )
        rest = 1 - self.test_fraction
        parts = split_indices(
            len(texts),
            fractions=(rest * (1 - self.validation_fraction), rest * self.validation_fraction, self.test_fraction),
            labels=torch.tensor(texts.labels),
            classes=texts.classes,
        )
        return _Split(*(part.tolist() for part in parts))

    def _normalize(self, text: str) -> str:
        return text.lower() if self.lowercase else text

    def _count_ngrams(self, tokenizer: Tokenizer, spec: TextSpec, texts: LabeledTexts) -> int:
        """Returns the number of hash values: about four for each n-gram of the texts, up to a limit, and odd."""
        rows, padding = self._build(tokenizer, spec).encode(texts.texts), tokenizer.vocab_size + 1
        letters = _letters(tokenizer)
        found: set[int] = set()
        limit = max(1024, _MAX_WEIGHTS // len(spec.classes))
        for i in range(0, len(rows), 64):
            for keys, valid in _ngram_keys(pad_sequences(rows[i : i + 64], padding), letters, padding=padding):
                found.update(keys[valid].unique().tolist())
            if 4 * len(found) > limit:
                break
        return min(4 * len(found), limit) | 1

    def _build(self, tokenizer: Tokenizer, spec: TextSpec) -> TextClassifier:
        """Builds the model. The encoder has no final norm, so that uninformative tokens can be small in the mean."""
        vocab_size = tokenizer.vocab_size + 2
        encoder = self.build_encoder(vocab_size, context_length=self.context_length, final_norm=nn.Identity)
        ngrams, size = None, {"num_rows": spec.ngram_rows, "padding": vocab_size - 1}
        if spec.ngram_rows:
            ngrams = NGramClassifier(len(spec.classes), letters=_letters(tokenizer), **size)
        return TextClassifier(
            encoder,
            classes=spec.classes,
            tokenizer=tokenizer,
            lowercase=self.lowercase,
            ngrams=ngrams,
            token_dropout=self.token_dropout,
        )

    def _loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy and accuracy, with the out-of-fold logits of the n-gram classifier."""
        x, y, offsets = batch
        logits = _as_classifier(model).encoder_logits(x) + offsets
        return _classification_loss(logits, y, label_smoothing=self.label_smoothing)


class _Split(NamedTuple):
    """Indices of each part."""

    train: list[int]
    validation: list[int]
    test: list[int]


def _as_classifier(model: nn.Module) -> TextClassifier:
    if not isinstance(model, TextClassifier):
        raise TypeError(f"expected a TextClassifier, got {type(model).__name__}")
    return model


@torch.no_grad()
def _evaluate(model: nn.Module, *, batches: _PaddedBatches, size: int) -> dict[str, float]:
    """Loss and accuracy of validation texts."""
    classifier, loss, hits = _as_classifier(model), 0.0, 0
    device = classifier.head.weight.device
    for i in range(0, size, 64):
        x, y, offsets = (part.to(device) for part in batches.collate(list(range(i, min(i + 64, size)))))
        logits = classifier.encoder_logits(x) + offsets
        loss += float(F.cross_entropy(logits, y, reduction="sum"))
        hits += int((logits.argmax(-1) == y).sum())
    return {"loss": loss / size, "accuracy": hits / size}


def _describe(texts: LabeledTexts) -> list[str]:
    """Describes the texts: the columns, and the number of texts per class."""
    counts = Counter(texts.labels)
    listed = [f"{name} {counts[i]}" for i, name in enumerate(texts.classes[:20])]
    more = f" and {len(texts.classes) - 20} more classes" if len(texts.classes) > 20 else ""
    columns = f"text column {texts.columns[0]!r}, class column {texts.columns[1]!r}; " if texts.columns else ""
    return [f"{texts.name}: {columns}{len(texts)} texts: {', '.join(listed)}{more}"]


def _leaks(train: LabeledTexts, test: LabeledTexts) -> list[str]:
    """Warns about test texts that also occur in training."""
    known = set(train.texts)
    count = sum(text in known for text in test.texts)
    return [f"{count} of {len(test)} test texts also occur in training"] if count else []


def _claims(model: nn.Module, *, vocab_size: int) -> Iterator[Claim]:
    """A text classifier treats texts independently, ignores padding and returns probabilities."""

    def padded(x: Int[Tensor, "b t"]) -> Tensor:
        return model(F.pad(x, (0, 3), value=vocab_size + 1))

    text = tokens("b t:1..8", vocab_size=vocab_size + 1)
    yield Claim(batch_independence(), model, text, name="classify-text")
    yield Claim(agreement(other=padded), model, text, name="classify-text, padded")
    yield Claim(sums_to_one(axis=-1), nn.Sequential(model, nn.Softmax(-1)), text, name="classify-text, probabilities")
