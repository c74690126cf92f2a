"""Translation: sequence-to-sequence training on pairs of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import MaxLength, Range
from lawful.data.batches import Batch
from lawful.data.text import (
    TASKS,
    PairBatches,
    Pairs,
    SpecialTokens,
    Tokenizer,
    pad_sequences,
    read_pairs,
    read_sources,
    tokenizer_from_json,
)
from lawful.functions.attention import Mask
from lawful.inference.beam_search import beam_search
from lawful.inference.metrics.intervals import bootstrap
from lawful.inference.text import StreamingDetokenizer
from lawful.laws import Claim, batch_independence, causality, tokens
from lawful.models.generation import DEFAULT_SAMPLING, GREEDY, ConditionalDecoder, SamplingConfig, generate
from lawful.models.transformer import Decoder, Encoder, EncoderDecoder
from lawful.recipes.optimization import EvaluationConfig, TransformerOptimizationConfig, _PositiveInt, _Steps
from lawful.recipes.text import (
    CharTokenizerSpec,
    GenerationRequest,
    _TokenizerSpec,
    _train_tokenizer,
)
from lawful.recipes.transformer import DecoderConfig
from lawful.training import Recipe, Run, TrainingSetup, compare_with_baselines

_EVAL_PAIRS = 500
"""Maximum number of validation pairs that are evaluated during training."""
_MAX_LENGTH = 10_000
"""Maximum number of tokens of a text."""
_BATCH_SIZE, _MAX_SCORES = 500, 2**24
"""Maximum number of sources, and of pairs of source tokens, that are translated at a time."""


class Translator(EncoderDecoder):
    """An encoder-decoder with its tokenizer, which translates texts.

    `lawful.load` returns it for a run of the recipe `translate`.

    Args:
        encoder: Encoder of the source.
        decoder: Decoder of the target.
        tokenizer: Tokenizer of both. The model has three more tokens, see `SpecialTokens`.
        max_new_tokens: Maximum number of tokens of a translation, with its end token.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, *, tokenizer: Tokenizer, max_new_tokens: int) -> None:
        super().__init__(encoder, decoder)
        self.tokenizer, self.max_new_tokens = tokenizer, max_new_tokens

    @overload
    def translate(self, texts: str, *, num_beams: int = ...) -> str: ...

    @overload
    def translate(self, texts: Sequence[str], *, num_beams: int = ...) -> list[str]: ...

    def translate(self, texts: str | Sequence[str], *, num_beams: int = 1) -> str | list[str]:
        """Translates one text or several, by greedy decoding or beam search.

        Args:
            texts: A text, or several.
            num_beams: Number of beams of beam search; 1 is greedy.
        """
        if isinstance(texts, str):
            return self.translate([texts], num_beams=num_beams)[0]
        sources = [self._encode(text) for text in texts]
        if num_beams > 1:
            return [self._decode(self._search(source, num_beams, self.max_new_tokens)) for source in sources]
        batch_size = max(1, min(_BATCH_SIZE, _MAX_SCORES // max(map(len, sources), default=1) ** 2))
        translations = []
        for i in range(0, len(sources), batch_size):
            rows = self._generate(sources[i : i + batch_size], self.max_new_tokens)
            translations += map(self._decode, rows)
        return translations

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Translates texts by greedy decoding, as `translate` does."""
        return self.translate(list(texts))

    def _encode(self, text: str) -> list[int]:
        if not text:
            raise ValueError("expected a text to translate, got an empty string")
        tokens = self.tokenizer.encode(text)
        if len(tokens) > _MAX_LENGTH:
            raise ValueError(
                f"a text to translate has {len(tokens):,} tokens, at most {_MAX_LENGTH:,} are supported: "
                "translate it in parts"
            )
        return tokens

    def _decode(self, row: Sequence[int]) -> str:
        return self.tokenizer.decode(_until_end(row, SpecialTokens(self.tokenizer.vocab_size)))

    def _condition(self, sources: Sequence[Sequence[int]]) -> ConditionalDecoder:
        """The decoder, conditioned on sources."""
        padding = SpecialTokens(self.tokenizer.vocab_size).padding
        source = pad_sequences(sources, padding).to(next(self.parameters()).device)
        return ConditionalDecoder(self, source, padding=source != padding)

    def _generate(
        self,
        sources: Sequence[Sequence[int]],
        max_new_tokens: int,
        *,
        sampling: SamplingConfig = GREEDY,
        seed: int = 0,
    ) -> list[list[int]]:
        special = SpecialTokens(self.tokenizer.vocab_size)
        return generate(
            self._condition(sources),
            [[special.start]] * len(sources),
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            stop_tokens=[special.end],
            seed=seed,
        ).tolist()

    def _search(
        self,
        source: Sequence[int],
        num_beams: int,
        max_new_tokens: int,
        *,
        sampling: SamplingConfig = DEFAULT_SAMPLING,
        seed: int = 0,
    ) -> list[int]:
        special = SpecialTokens(self.tokenizer.vocab_size)
        best, *_ = beam_search(
            self._condition([source]),
            [special.start],
            max_new_tokens=max_new_tokens,
            num_beams=num_beams,
            stop_tokens=[special.end],
            sampling=sampling,
            seed=seed,
        )
        return list(best.tokens)


@dataclass(frozen=True)
class TranslationData:
    """Training, validation and test pairs, and their tokenizer."""

    train: Pairs
    validation: Pairs
    test: Pairs
    tokenizer: Tokenizer


@dataclass(frozen=True, kw_only=True)
class TranslateRecipe(DecoderConfig, TransformerOptimizationConfig, EvaluationConfig, Recipe[TranslationData]):
    """Train an encoder-decoder on pairs of texts or on built-in pairs."""

    name: ClassVar[str] = "translate"

    data: Annotated[str, MaxLength(4096)] = "dates"
    """Text file with one tab-separated pair per line, CSV file, or a name: dates, sorting."""
    header: bool | None = None
    """Whether the first line of the file is a header. By default, detected from names such as source and target."""
    test_fraction: Annotated[float, Range(0.01, 0.9)] = 0.1
    """Fraction of the pairs used for the test. Pairs with equal sources are in the same split."""
    validation_fraction: Annotated[float, Range(0.01, 0.9)] = 0.1
    """Fraction of the remaining pairs used for validation."""
    tokenizer: _TokenizerSpec = field(default_factory=CharTokenizerSpec)
    """Tokenizer."""
    num_layers: Annotated[int, Range(1, 1000)] = 2
    ngrams: Annotated[tuple[Annotated[int, Range(2, 16)], ...], MaxLength(8)] = ()
    embedding_skip: bool = False
    steps: _Steps = 800
    batch_size: _PositiveInt | None = 64
    num_evals: Annotated[int, Range(1, 10**6)] | None = 5

    def setup(self) -> TrainingSetup[TranslationData]:
        """Reads the pairs and builds the model."""
        pairs = TASKS[self.data]() if self.data in TASKS else read_pairs(_find(self.data), header=self.header)
        rest = 1 - self.test_fraction
        fractions = (rest * (1 - self.validation_fraction), rest * self.validation_fraction, self.test_fraction)
        train, validation, test = pairs.split(fractions=fractions)
        tokenizer = _train_tokenizer(self.tokenizer, (*train.sources, *train.targets))
        longest = max(len(tokenizer.encode(text)) for text in (*pairs.sources, *pairs.targets))
        if longest > _MAX_LENGTH:
            raise ValueError(f"{pairs.name} has a text of {longest:,} tokens, at most {_MAX_LENGTH:,} are supported")
        max_new_tokens = 2 * max(len(tokenizer.encode(text)) for text in train.targets) + 1
        context_length = max(longest + 1, max_new_tokens)
        model = self._build(tokenizer, context_length=context_length, max_new_tokens=max_new_tokens)
        batches = PairBatches(train, tokenizer, batch_size=self.batch_size or 64, seed=self.seed)
        special = batches.special_tokens
        steps = self.num_steps(len(batches))
        texts = [text for part in (train, validation, test) for text in (*part.sources, "", *part.targets, "")]
        some = validation.select(range(0, len(validation), -(-len(validation) // _EVAL_PAIRS)))
        loss_fn = partial(_loss, padding=special.padding)
        return TrainingSetup(
            model=model,
            optimizer_steps=[self.optimizer_step(model, loss_fn, steps=steps)],
            batches=batches,
            steps=steps,
            evaluate=partial(_evaluate, pairs=some, loss_fn=loss_fn),
            eval_every=self.eval_every(steps, steps_per_epoch=len(batches)),
            monitor="character error rate",
            patience=self.patience or None,
            restore_best=True,
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=partial(_claims, vocab_size=special.vocab_size),
            model_config={
                "tokenizer": tokenizer.to_json(),
                "context_length": context_length,
                "max_new_tokens": max_new_tokens,
                "columns": pairs.columns,
            },
            data_fingerprint=sha256("\n".join(texts).encode("utf-8", "replace")).hexdigest(),
            notes=(
                f"{pairs.name}: {len(pairs):,} pairs, the first: {pairs.sources[0][:60]!r}, {pairs.targets[0][:60]!r}; "
                f"{len(train):,} for training, {len(validation):,} for validation, {len(test):,} for the test",
            ),
            warnings=pairs.notes,
            data=TranslationData(train, validation, test, tokenizer),
        )

    def finish(self, run: Run, setup: TrainingSetup[TranslationData]) -> Mapping[str, Any]:
        """Measures exact matches and character errors on the test pairs, and writes some translations."""
        train, test, model = setup.data.train, setup.data.test, _as_translator(setup.model)
        translations = model.translate(test.sources)
        triples = zip(test.sources, translations, test.targets, strict=True)
        rows = [f"{x}\n  {y}" + ("" if y == z else f"   (expected: {z})") for x, y, z in triples]
        run.write("samples/test_translations.txt", "\n".join(rows[:20]) + "\n")
        exact = _exact_matches(translations, test.targets)
        most_frequent, _ = Counter(train.targets).most_common(1)[0]
        baselines = {
            "most frequent target": [most_frequent] * len(test),
            "copy of the source": test.sources,
            "target of the most similar source": _most_similar_targets(train, test.sources),
        }
        accuracies = {name: float(_exact_matches(texts, test.targets).mean()) for name, texts in baselines.items()}
        errors, lengths = _character_errors(translations, test.targets)
        accuracy = bootstrap(torch.mean, exact).json()
        return {
            "summary": compare_with_baselines(
                "test accuracy (exact match)", accuracy, accuracies, higher_is_better=True
            ),
            "test": {
                "accuracy": accuracy,
                "character error rate": bootstrap(_error_rate, errors, lengths).json(),
            },
            "baselines": accuracies,
            "pairs": {"train": len(train), "validation": len(setup.data.validation), "test": len(test)},
            "parameters": sum(p.numel() for p in model.parameters()),
            **({"warnings": list(setup.warnings)} if setup.warnings else {}),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        sizes: dict[str, int] = {}
        for name, limit in (("context_length", 2 * _MAX_LENGTH + 1), ("max_new_tokens", 2 * _MAX_LENGTH + 1)):
            size = model_config.get(name)
            if not isinstance(size, int) or not 1 <= size <= limit:
                raise ValueError(f"model.{name} in config.json must be in [1, {limit}], got {str(size)[:60]}")
            sizes[name] = size
        return self._build(tokenizer_from_json(model_config.get("tokenizer")), **sizes)

    def load_sources(
        self, source: str | Path, model_config: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """Reads new sources, with their targets if the file has them."""
        if str(source) in TASKS:
            pairs = TASKS[str(source)]()
            return pairs.sources, pairs.targets
        columns = model_config.get("columns")
        named = isinstance(columns, list) and len(columns) == 2 and all(isinstance(name, str) for name in columns)
        return read_sources(_find(source), columns=(columns[0], columns[1]) if named and columns else None)

    def generate(
        self, model: nn.Module, tokenizer: Tokenizer, prompt: str, request: GenerationRequest
    ) -> Iterator[str]:
        """Translates a prompt, greedily by default."""
        translator = _as_translator(model)
        source, limit = translator._encode(prompt), request.max_new_tokens or translator.max_new_tokens
        if request.num_beams > 1:
            output = translator._search(source, request.num_beams, limit, sampling=request.sampling, seed=request.seed)
        else:
            sampling = GREEDY if request.sampling == DEFAULT_SAMPLING else request.sampling
            (output,) = translator._generate([source], limit, sampling=sampling, seed=request.seed)
        detokenizer = StreamingDetokenizer(tokenizer, stop=request.stop)
        tokens = _until_end(output, SpecialTokens(tokenizer.vocab_size))
        yield "".join([*map(detokenizer.push, tokens), detokenizer.close()])

    def _build(self, tokenizer: Tokenizer, *, context_length: int, max_new_tokens: int) -> Translator:
        vocab_size = SpecialTokens(tokenizer.vocab_size).vocab_size
        model = self.build_encoder_decoder(vocab_size, context_length=context_length)
        return Translator(model.encoder, model.decoder, tokenizer=tokenizer, max_new_tokens=max_new_tokens)


def _find(data: str | Path) -> Path:
    """Returns the path of a file."""
    path = Path(data)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {str(data)!r}. Built-in pairs: {', '.join(TASKS)}")
    return path


def _as_translator(model: nn.Module) -> Translator:
    if not isinstance(model, Translator):
        raise TypeError(f"expected a Translator, got {type(model).__name__}")
    return model


@torch.no_grad()
def _evaluate(model: nn.Module, *, pairs: Pairs, loss_fn: Callable[[nn.Module, Batch], Tensor]) -> dict[str, float]:
    """Next-token loss, exact matches and character errors of pairs."""
    translator = _as_translator(model)
    translations = translator.translate(pairs.sources)
    batches = PairBatches(pairs, translator.tokenizer, batch_size=64, seed=0)
    device, sums, count = next(model.parameters()).device, 0.0, 0
    for i in range(0, len(pairs), 64):
        source, inputs, targets = (x.to(device) for x in batches.collate(range(i, min(i + 64, len(pairs)))))
        num_tokens = int((targets != batches.special_tokens.padding).sum())
        sums += num_tokens * float(loss_fn(model, (source, inputs, targets)))
        count += num_tokens
    return {
        "loss": sums / count,
        "accuracy": float(_exact_matches(translations, pairs.targets).mean()),
        "character error rate": float(_error_rate(*_character_errors(translations, pairs.targets))),
    }


def _loss(model: nn.Module, batch: Batch, *, padding: int) -> Tensor:
    """Mean next-token cross-entropy of the targets, without padding."""
    source, inputs, targets = batch
    logits = model(source, inputs, source_mask=Mask(padding=source != padding))
    valid = targets != padding
    return F.cross_entropy(logits[valid], targets[valid])


def _until_end(row: Sequence[int], special: SpecialTokens) -> list[int]:
    """Tokens before the end token, without special tokens."""
    ended = row[: row.index(special.end)] if special.end in row else row
    return [token for token in ended if token < special.start]


def _exact_matches(texts: Sequence[str], targets: Sequence[str]) -> Float[Tensor, " n"]:
    """1 where a text equals its target, otherwise 0."""
    return torch.tensor([y == z for y, z in zip(texts, targets, strict=True)], dtype=torch.float64)


def _character_errors(texts: Sequence[str], targets: Sequence[str]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Edit distance of each text to its target, and number of characters of the target."""
    errors = [_edit_distance(y, z) for y, z in zip(texts, targets, strict=True)]
    return torch.tensor(errors, dtype=torch.float64), torch.tensor(list(map(len, targets)), dtype=torch.float64)


def _error_rate(errors: Tensor, lengths: Tensor) -> Tensor:
    return errors.sum() / lengths.sum()


def _edit_distance(x: str, y: str) -> int:
    r"""Number of insertions, deletions and substitutions between two texts (Levenshtein).

    $$d_{ij} = \min(d_{i-1, j} + 1, \; d_{i, j-1} + 1, \; d_{i-1, j-1} + [x_i \ne y_j])$$

    A row is computed at once: $d_{ij} = j + \min_{k \le j} (e_k - k)$, where $e$ is the minimum without $d_{i, j-1}$.

    Examples:
        >>> _edit_distance("kitten", "sitting"), _edit_distance("", "abc"), _edit_distance("abc", "abc")
        (3, 3, 0)
    """
    if x == y:
        return 0
    letters, columns = np.array([ord(c) for c in y]), np.arange(len(y) + 1)
    row = columns
    for letter in map(ord, x):
        new = np.append(row[0] + 1, np.minimum(row[1:] + 1, row[:-1] + (letters != letter)))
        row = columns + np.minimum.accumulate(new - columns)
    return int(row[-1])


def _most_similar_targets(train: Pairs, sources: Sequence[str], *, max_train: int = 2000) -> list[str]:
    """Targets of the training sources with the largest cosine similarity of character bigrams."""
    index: dict[str, int] = {}

    def bigram_counts(texts: Sequence[str]) -> Float[Tensor, "n k"]:
        rows = [[index.setdefault(text[i : i + 2], len(index)) for i in range(len(text) - 1)] for text in texts]
        counts = torch.zeros(len(texts), max(1, len(index)))
        for row, columns in enumerate(rows):
            counts[row].index_add_(0, torch.tensor(columns, dtype=torch.int64), torch.ones(len(columns)))
        return F.normalize(counts, dim=1)

    n = len(train.sources)
    some = torch.linspace(0, n - 1, min(n, max_train)).round().long().tolist()  # files are often sorted
    known = bigram_counts([train.sources[i] for i in some])
    index, num_known = dict(index), len(index)
    queries = bigram_counts(sources)[:, :num_known]
    return [train.targets[some[i]] for i in (queries @ known.T).argmax(1).tolist()]


def _claims(model: nn.Module, *, vocab_size: int) -> Iterator[Claim]:
    """An encoder-decoder is causal in the target and treats pairs independently."""
    pair = (tokens("b s:2..5", vocab_size=vocab_size), tokens("b t:2..5", vocab_size=vocab_size))
    yield Claim(causality(time=1, input=1), model, pair, name="translate, target")
    yield Claim(batch_independence(), model, pair, name="translate")
