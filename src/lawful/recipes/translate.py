"""Translation: sequence-to-sequence training on pairs of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Bool, Float
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
    tokenizer_from_json,
)
from lawful.functions.attention import Mask
from lawful.inference.beam_search import beam_search
from lawful.inference.metrics.intervals import bootstrap
from lawful.inference.text import StreamingDetokenizer
from lawful.laws import Claim, batch_independence, causality, tokens
from lawful.models.generation import DEFAULT_SAMPLING, GREEDY, ConditionalDecoder, generate
from lawful.models.transformer import EncoderDecoder
from lawful.recipes.optimization import EvaluationConfig, TransformerOptimizationConfig, _PositiveInt
from lawful.recipes.text import (
    CharTokenizerSpec,
    GenerationRequest,
    _TokenizerSpec,
    _train_tokenizer,
)
from lawful.recipes.transformer import TransformerConfig
from lawful.training import Recipe, Run, TrainingSetup

_EVAL_PAIRS = 500
"""Maximum number of test pairs that are evaluated during training."""
_MAX_LENGTH = 10_000
"""Maximum number of tokens of a text."""


@dataclass(frozen=True)
class TranslationData:
    """Training and test pairs, and their tokenizer."""

    train: Pairs
    test: Pairs
    tokenizer: Tokenizer


@dataclass(frozen=True, kw_only=True)
class TranslateRecipe(TransformerConfig, TransformerOptimizationConfig, EvaluationConfig, Recipe[TranslationData]):
    """Train an encoder-decoder on pairs of texts or on built-in pairs."""

    name: ClassVar[str] = "translate"

    data: Annotated[str, MaxLength(4096)] = "dates"
    """Text file with one tab-separated pair per line, or a name: dates, sorting."""
    header: bool = False
    """The first line of the file is a header."""
    test_every: Annotated[int, Range(2, 1000)] = 10
    """Use one of this many sources for the test. Equal sources are in the same split."""
    tokenizer: _TokenizerSpec = field(default_factory=CharTokenizerSpec)
    """Tokenizer."""
    num_layers: Annotated[int, Range(1, 1000)] = 2
    ngrams: Annotated[tuple[Annotated[int, Range(2, 16)], ...], MaxLength(8)] = ()
    embedding_skip: bool = False
    steps: _PositiveInt | None = 800
    batch_size: _PositiveInt | None = 64
    num_evals: Annotated[int, Range(1, 10**6)] | None = 5

    def setup(self) -> TrainingSetup[TranslationData]:
        """Reads the pairs and builds the model."""
        pairs = TASKS[self.data]() if self.data in TASKS else read_pairs(self.data, header=self.header)
        train, test = pairs.split(every=self.test_every)
        tokenizer = _train_tokenizer(self.tokenizer, (*train.sources, *train.targets))
        longest = max(len(tokenizer.encode(text)) for text in (*pairs.sources, *pairs.targets))
        if longest > _MAX_LENGTH:
            raise ValueError(f"{pairs.name} has a text of {longest:,} tokens, at most {_MAX_LENGTH:,} are supported")
        model = self._build(tokenizer, context_length=longest + 1)
        batches = PairBatches(train, tokenizer, batch_size=self.batch_size or 64, seed=self.seed)
        special = batches.special_tokens
        steps = self.num_steps(len(batches))
        some = Pairs(test.sources[:_EVAL_PAIRS], test.targets[:_EVAL_PAIRS], test.name)
        return TrainingSetup(
            model=model,
            optimizer_steps=[self.optimizer_step(model, partial(_loss, padding=special.padding), steps=steps)],
            batches=batches,
            steps=steps,
            evaluate=lambda model: {"accuracy": float(_exact_matches(model, tokenizer, some).double().mean())},
            eval_every=self.eval_every(steps, steps_per_epoch=len(batches)),
            monitor="accuracy",
            higher_is_better=True,
            patience=self.patience or None,
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=partial(_claims, vocab_size=special.vocab_size),
            model_config={"tokenizer": tokenizer.to_json(), "context_length": longest + 1},
            data_fingerprint=sha256(
                "\n".join((*pairs.sources, "", *pairs.targets)).encode("utf-8", "replace")
            ).hexdigest(),
            data=TranslationData(train, test, tokenizer),
        )

    def finish(self, run: Run, setup: TrainingSetup[TranslationData]) -> Mapping[str, Any]:
        """Measures exact matches on the test pairs and writes some translations."""
        train, test, model = setup.data.train, setup.data.test, setup.model
        translations = translate(model, setup.data.tokenizer, test.sources)
        triples = zip(test.sources, translations, test.targets, strict=True)
        rows = [f"{x}\n  {y}" + ("" if y == z else f"   (expected: {z})") for x, y, z in triples]
        (run.samples / "test_translations.txt").write_text("\n".join(rows[:20]) + "\n", encoding="utf-8")
        exact = torch.tensor([y == z for y, z in zip(translations, test.targets, strict=True)], dtype=torch.float64)
        most_frequent, _ = Counter(train.targets).most_common(1)[0]
        similar = _most_similar_targets(train, test.sources)
        return {
            "test": {"accuracy": bootstrap(torch.mean, exact).json()},
            "baselines": {
                "most frequent target": _mean(y == most_frequent for y in test.targets),
                "copy of the source": _mean(x == y for x, y in zip(test.sources, test.targets, strict=True)),
                "target of the most similar source": _mean(x == y for x, y in zip(similar, test.targets, strict=True)),
            },
            "pairs": {"train": len(train), "test": len(test)},
            "parameters": sum(p.numel() for p in model.parameters()),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        context_length = model_config.get("context_length")
        if type(context_length) is not int or not 1 <= context_length <= _MAX_LENGTH + 1:
            raise ValueError(
                f"model.context_length in config.json must be in [1, {_MAX_LENGTH + 1}], got {str(context_length)[:60]}"
            )
        return self._build(tokenizer_from_json(model_config.get("tokenizer")), context_length=context_length)

    def generate(
        self, model: nn.Module, tokenizer: Tokenizer, prompt: str, request: GenerationRequest
    ) -> Iterator[str]:
        """Translates a prompt, greedily by default."""
        if not prompt:
            raise ValueError("translation needs a prompt, got an empty string")
        special = SpecialTokens(tokenizer.vocab_size)
        decoder = _condition(model, [tokenizer.encode(prompt)], special)
        if request.num_beams > 1:
            best, *_ = beam_search(
                decoder,
                [special.start],
                max_new_tokens=request.max_new_tokens,
                num_beams=request.num_beams,
                stop_tokens=[special.end],
            )
            output = list(best.tokens)
        else:
            output = generate(
                decoder,
                [special.start],
                max_new_tokens=request.max_new_tokens,
                sampling=GREEDY if request.sampling == DEFAULT_SAMPLING else request.sampling,
                stop_tokens=[special.end],
                seed=request.seed,
            )[0].tolist()
        detokenizer = StreamingDetokenizer(tokenizer, stop=request.stop)
        yield "".join([*map(detokenizer.push, _until_end(output, special)), detokenizer.close()])

    def _build(self, tokenizer: Tokenizer, *, context_length: int) -> EncoderDecoder:
        vocab_size = SpecialTokens(tokenizer.vocab_size).vocab_size
        return self.build_encoder_decoder(vocab_size, context_length=context_length)


@torch.no_grad()
def translate(model: nn.Module, tokenizer: Tokenizer, sources: Sequence[str], *, batch_size: int = 500) -> list[str]:
    """Translates sources by greedy decoding."""
    special, translations = SpecialTokens(tokenizer.vocab_size), []
    for i in range(0, len(sources), batch_size):
        source_ids = [tokenizer.encode(text) for text in sources[i : i + batch_size]]
        rows = generate(
            _condition(model, source_ids, special),
            [[special.start]] * len(source_ids),
            max_new_tokens=2 * max(map(len, source_ids)) + 20,
            sampling=GREEDY,
            stop_tokens=[special.end],
        )
        translations += [tokenizer.decode(_until_end(row, special)) for row in rows.tolist()]
    return translations


def _condition(model: nn.Module, sources: Sequence[Sequence[int]], special: SpecialTokens) -> ConditionalDecoder:
    """The decoder of an encoder-decoder, conditioned on sources."""
    if not isinstance(model, EncoderDecoder):
        raise TypeError(f"expected an EncoderDecoder, got {type(model).__name__}")
    source = pad_sequences(sources, special.padding).to(next(model.parameters()).device)
    return ConditionalDecoder(model, source, padding=source != special.padding)


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


def _exact_matches(model: nn.Module, tokenizer: Tokenizer, pairs: Pairs) -> Bool[Tensor, " n"]:
    translations = translate(model, tokenizer, pairs.sources)
    return torch.tensor([y == z for y, z in zip(translations, pairs.targets, strict=True)])


def _mean(hits: Iterable[bool]) -> float:
    values = list(hits)
    return sum(values) / len(values)


def _most_similar_targets(train: Pairs, sources: Sequence[str], *, max_train: int = 2000) -> list[str]:
    """Targets of the training sources with the largest cosine similarity of character bigrams."""
    index: dict[str, int] = {}

    def bigram_counts(texts: Sequence[str]) -> Float[Tensor, "n k"]:
        rows = [[index.setdefault(text[i : i + 2], len(index)) for i in range(len(text) - 1)] for text in texts]
        counts = torch.zeros(len(texts), max(1, len(index)))
        for row, columns in enumerate(rows):
            counts[row].index_add_(0, torch.tensor(columns, dtype=torch.int64), torch.ones(len(columns)))
        return F.normalize(counts, dim=1)

    known = bigram_counts(train.sources[:max_train])
    index, num_known = dict(index), len(index)
    queries = bigram_counts(sources)[:, :num_known]
    return [train.targets[i] for i in (queries @ known.T).argmax(1).tolist()]


def _claims(model: nn.Module, *, vocab_size: int) -> Iterator[Claim]:
    """An encoder-decoder is causal in the target and treats pairs independently."""
    pair = (tokens("b s:2..5", vocab_size=vocab_size), tokens("b t:2..5", vocab_size=vocab_size))
    yield Claim(causality(time=1, input=1), model, pair, name="translate, target")
    yield Claim(batch_independence(), model, pair, name="translate")
