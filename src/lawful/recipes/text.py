"""Language modeling: n-gram baseline, tokenizers, generation and the recipe."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import Config, MaxLength, Range, Tagged
from lawful.data.batches import Batch
from lawful.data.text import (
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    Corpus,
    ShuffledWindows,
    Tokenizer,
    read_text,
    tokenize_corpus,
    tokenizer_from_json,
)
from lawful.inference.beam_search import beam_search
from lawful.inference.likelihood import token_log_probs
from lawful.inference.text import StreamingDetokenizer, generate_text, stream_text
from lawful.laws import Claim, batch_independence, cached_decoding, causality, tokens
from lawful.models.generation import DEFAULT_SAMPLING, SamplingConfig
from lawful.models.transformer import Decoder
from lawful.recipes.optimization import (
    EvaluationConfig,
    LearningRates,
    TransformerOptimizationConfig,
    _Decay,
    _Steps,
)
from lawful.recipes.transformer import (
    DecoderConfig,
    _HeadDim,
    _NgramDim,
    _NgramDropout,
    _NgramRows,
    _NumHeads,
    as_decoder,
)
from lawful.training import Recipe, Run, TrainingSetup, compare_with_baselines

# ---------------------------------------------------------------- n-gram baseline

_MAX_TOKENS, _CHUNK = 2**22, 2**18
"""Maximum number of tokens that are counted or predicted, and number of tokens predicted at a time."""


def ngram_baseline(
    train: Shaped[Tensor, " n"], test: Shaped[Tensor, " m"], *, vocab_size: int, max_order: int
) -> list[float]:
    r"""Returns the cross-entropy of interpolated n-gram models, in nats per token, for n = 1, 2, ...

    $$p_n(x \mid h) = \frac{c(h x) + |h \cdot| \, p_{n-1}(x \mid h')}{c(h) + |h \cdot|}, \qquad p_0 = \frac{1}{V}$$

    $c$ counts n-grams in the training text, $h$ is the $n - 1$ tokens before $x$, $h'$ the last $n - 2$ of them, and
    $|h \cdot|$ the number of distinct tokens after $h$. For an unseen $h$, $p_n = p_{n-1}$.

    Reference:
        Witten and Bell, *The Zero-Frequency Problem*, 1991.

    Args:
        train: Training tokens.
        test: Tokens to predict, all except the first.
        vocab_size: Vocabulary size $V$.
        max_order: Largest n; orders with $V^n \ge 2^{63}$ are skipped.

    Examples:
        >>> ids = torch.tensor([0, 1] * 500)
        >>> [round(nats, 2) for nats in ngram_baseline(ids, ids, vocab_size=2, max_order=2)]
        [0.69, 0.0]
    """
    train, test = train[:_MAX_TOKENS].long(), test[:_MAX_TOKENS].long()
    p = torch.full((len(test) - 1,), 1 / vocab_size, dtype=torch.float64)
    losses = []
    for n in range(1, max_order + 1):
        if vocab_size**n >= 2**63:
            break
        ngrams = _ngram_ids(train, n, vocab_size)
        ngrams.numpy().sort()  # in place, without the indices that torch.sort would return
        ngrams, counts = ngrams.unique_consecutive(return_counts=True)
        contexts, distinct = (ngrams // vocab_size).unique_consecutive(return_counts=True)
        totals = counts.cumsum(0)[distinct.cumsum(0) - 1].diff(prepend=counts.new_zeros(1))
        for first in range(max(n - 2, 0), len(p), _CHUNK):  # tokens with a shorter context keep the lower order
            shorter = p[first : first + _CHUNK]
            queries = _ngram_ids(test[first + 2 - n : first + 1 + len(shorter)], n, vocab_size)
            count, context = _look_up(queries, ngrams, counts), queries // vocab_size
            total, kinds = _look_up(context, contexts, totals), _look_up(context, contexts, distinct)
            mixed = (count + kinds * shorter) / (total + kinds).clamp_min(1)
            shorter.copy_(torch.where(total > 0, mixed, shorter))
        losses.append(float(-p.log().mean()))
    return losses


def _ngram_ids(tokens: Int[Tensor, " n"], length: int, vocab_size: int) -> Int[Tensor, " m"]:
    """Encodes each n-gram as one number; the first token is the most significant digit."""
    m = max(len(tokens) - length + 1, 0)
    ids = tokens[:m].clone()
    for i in range(1, length):
        ids.mul_(vocab_size).add_(tokens[i : i + m])
    return ids


def _look_up(keys: Int[Tensor, " n"], known: Int[Tensor, " k"], values: Int[Tensor, " k"]) -> Int[Tensor, " n"]:
    """Values of keys in a sorted table; 0 for missing keys."""
    if not len(known):
        return values.new_zeros(len(keys))
    index = torch.searchsorted(known, keys).clamp_max(len(known) - 1)
    return torch.where(known[index] == keys, values[index], 0)


# ---------------------------------------------------------------- tokenizers


@dataclass(frozen=True, kw_only=True)
class AutoTokenizerSpec(Config, Tagged):
    """Characters, or bytes if there are more than 256 distinct characters."""

    name: ClassVar[str] = "auto"


@dataclass(frozen=True, kw_only=True)
class CharTokenizerSpec(Config, Tagged):
    """One token per character."""

    name: ClassVar[str] = "characters"


@dataclass(frozen=True, kw_only=True)
class ByteTokenizerSpec(Config, Tagged):
    """One token per byte."""

    name: ClassVar[str] = "bytes"


@dataclass(frozen=True, kw_only=True)
class BPETokenizerSpec(Config, Tagged):
    """Byte pair encoding."""

    name: ClassVar[str] = "bpe"

    vocab_size: Annotated[int, Range(256, 16_384)] = 1024
    """Vocabulary size."""


_TokenizerSpec = CharTokenizerSpec | ByteTokenizerSpec | BPETokenizerSpec
"""Tokenizers of recipes with many texts."""


def _train_tokenizer(spec: _TokenizerSpec, texts: Sequence[str]) -> Tokenizer:
    """Trains a tokenizer on texts.

    Examples:
        >>> _train_tokenizer(CharTokenizerSpec(), ["abba"]).encode("ab")
        [0, 1]
    """
    match spec:
        case CharTokenizerSpec():
            return CharTokenizer.train(texts)
        case ByteTokenizerSpec():
            return ByteTokenizer()
        case BPETokenizerSpec():
            return BPETokenizer.train(texts, vocab_size=spec.vocab_size)


# ---------------------------------------------------------------- generation

_MAX_TOKENS, _MAX_BEAMS = 10**6, 1000
"""Maximum numbers of new tokens and of beams."""


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """Options of text generation."""

    max_new_tokens: int | None = None
    """Maximum number of new tokens. Defaults to 256, or for a translation to the limit of the run."""
    sampling: SamplingConfig = DEFAULT_SAMPLING
    """How tokens are sampled."""
    stop: tuple[str, ...] = ()
    """Stop strings; they are not part of the text."""
    seed: int = 0
    """Random seed."""
    num_beams: int = 1
    """Number of beams; 1 disables beam search. With a temperature, `top_k`, `top_p` or `min_p`, beams are sampled."""

    def __post_init__(self) -> None:
        for name, most in (("max_new_tokens", _MAX_TOKENS), ("num_beams", _MAX_BEAMS)):
            if getattr(self, name) is not None and not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be from 1 to {most:,}, got {getattr(self, name)}")
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed must be a 64-bit integer, got {self.seed}")


@runtime_checkable
class TextGenerator(Protocol):
    """A recipe whose models generate text."""

    def generate(
        self, model: nn.Module, tokenizer: Tokenizer, prompt: str, request: GenerationRequest
    ) -> Iterator[str]:
        """Yields the generated text piece by piece."""
        ...


# ---------------------------------------------------------------- the recipe

_MAX_CHARACTERS = 256
"""Maximum number of distinct characters for which tokenizer=auto chooses characters."""
_EVAL_TOKENS, _FINAL_EVAL_TOKENS = 2**18, 2**23
"""Maximum number of validation tokens during training and at the end."""
_MAX_LOGITS = 2**22
"""Maximum number of logits of an evaluation batch."""
_NUM_SAMPLES, _SAMPLE_TOKENS = 3, 400
_MAX_NEW_TOKENS = 256
"""Default number of new tokens."""
_ATTENTION_TOKENS = 24
"""Number of tokens in the attention figures."""


@dataclass(frozen=True)
class TextData:
    """Training and validation tokens, and their tokenizer."""

    train: Tensor
    validation: Tensor
    tokenizer: Tokenizer


@dataclass(frozen=True, kw_only=True)
class TextRecipe(DecoderConfig, TransformerOptimizationConfig, EvaluationConfig, Recipe[TextData]):
    """Train a language model on a text file, a folder of text files or built-in text."""

    name: ClassVar[str] = "text"
    default_learning_rates: ClassVar[LearningRates] = LearningRates(ngram=0.03, head=0.02)

    data: Annotated[str, MaxLength(4096)] = "python"
    """Text file, folder of text files, or python: the reference that ships with Python."""
    validation_fraction: Annotated[float, Range(0.001, 0.9)] = 0.1
    """Fraction of the text, at its end, used for validation."""
    tokenizer: AutoTokenizerSpec | _TokenizerSpec = field(default_factory=AutoTokenizerSpec)
    """Tokenizer."""
    context_length: Annotated[int, Range(1, 10**6)] = 64
    """Number of tokens in a training window, and largest context of the model."""
    dim: Annotated[int, Range(1, 10**5)] = 96
    num_layers: Annotated[int, Range(1, 1000)] = 2
    num_heads: _NumHeads = 2
    head_dim: _HeadDim = 32
    ngram_rows: _NgramRows = 7168
    ngram_dim: _NgramDim = 64
    ngram_dropout: _NgramDropout = 0.12
    steps: _Steps = None
    """Number of training steps. Defaults to 400, or to 8 epochs of a short text, but not below 25."""
    betas: tuple[_Decay, _Decay] | None = (0.7, 0.95)
    num_evals: Annotated[int, Range(1, 10**6)] | None = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data:
            raise ValueError("data must be a file, a folder or a built-in text, got an empty string")

    def setup(self) -> TrainingSetup[TextData]:
        """Reads and tokenizes the text and builds the model."""
        corpus = read_text(self.data)
        tokenizer = self._train_tokenizer(corpus)
        tokenized = tokenize_corpus(corpus, tokenizer)
        train, validation = tokenized.split(fraction=1 - self.validation_fraction)
        if len(train) <= self.context_length or len(validation) < 2:
            raise ValueError(
                f"{corpus.name} is too short: context_length={self.context_length} needs at least "
                f"{self.context_length + 1} training and 2 validation tokens, got {len(train):,} and "
                f"{len(validation):,}"
            )
        model = self.build_decoder(tokenizer.vocab_size, context_length=self.context_length)
        batches = ShuffledWindows(
            train, context_length=self.context_length, batch_size=self.batch_size or 32, seed=self.seed
        )
        defaults = self if self.epochs else self.with_defaults(steps=max(25, min(400, 8 * len(batches))))
        steps = defaults.num_steps(len(batches))
        return TrainingSetup(
            model=model,
            optimizer_steps=[self.optimizer_step(model, _next_token_loss, steps=steps)],
            batches=batches,
            steps=steps,
            evaluate=lambda model: {"loss": self._evaluate(model, validation[:_EVAL_TOKENS])},
            eval_every=self.eval_every(steps, steps_per_epoch=len(batches)),
            patience=self.patience or None,
            restore_best=True,
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=partial(language_model_claims, vocab_size=tokenizer.vocab_size, context_length=self.context_length),
            model_config={"tokenizer": tokenizer.to_json()},
            data_fingerprint=f"{tokenized.fingerprint}:{len(train)}",
            notes=(
                f"{corpus.name}: {len(tokenized):,} tokens ({tokenizer.to_json()['kind']}, vocabulary "
                f"{tokenizer.vocab_size:,}), {len(train):,} for training, {len(validation):,} for validation",
            ),
            warnings=corpus.notes,
            data=TextData(train, validation, tokenizer),
        )

    def finish(self, run: Run, setup: TrainingSetup[TextData]) -> Mapping[str, Any]:
        """Compares the model with n-gram models on the whole validation text, and writes samples."""
        model, tokenizer = as_decoder(setup.model), setup.data.tokenizer
        train, validation = setup.data.train, setup.data.validation[:_FINAL_EVAL_TOKENS]
        loss = self._evaluate(model, validation)
        lengths = torch.tensor([len(piece) for piece in tokenizer.token_bytes])
        num_bytes = sum(int(lengths[part.long()].sum()) for part in validation[1:].split(_EVAL_TOKENS))
        bits_per_byte = loss / math.log(2) * (len(validation) - 1) / num_bytes
        baselines = ngram_baseline(train, validation, vocab_size=tokenizer.vocab_size, max_order=5)
        self._plot_attention(run, model, tokenizer, validation)
        samples = generate_text(
            model,
            tokenizer,
            [self._default_prompt(tokenizer)] * _NUM_SAMPLES,
            max_new_tokens=_SAMPLE_TOKENS,
            sampling=SamplingConfig(temperature=0.8),
            seed=self.seed,
        )
        for number, sample in enumerate(samples, 1):
            run.write(f"samples/sample_{number}.txt", sample)
        real = tokenizer.decode(validation[:_SAMPLE_TOKENS].tolist())
        run.write("samples/validation_text.txt", real)
        ngrams = {f"{n}-gram model": nats for n, nats in enumerate(baselines, 1)}
        return {
            "summary": compare_with_baselines("validation loss (nats per token)", loss, ngrams, higher_is_better=False),
            "validation": {"loss": loss, "bits per byte": bits_per_byte, "perplexity": math.exp(loss)},
            "baselines": ngrams,
            "tokens": {"train": len(train), "validation": len(validation), "vocabulary": tokenizer.vocab_size},
            "parameters": sum(p.numel() for p in model.parameters()),
            "warnings": list(setup.warnings),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        tokenizer = tokenizer_from_json(model_config.get("tokenizer"))
        model = self.build_decoder(tokenizer.vocab_size, context_length=self.context_length)
        model.tokenizer = tokenizer
        return model

    def generate(
        self, model: nn.Module, tokenizer: Tokenizer, prompt: str, request: GenerationRequest
    ) -> Iterator[str]:
        """Continues a prompt."""
        prompt = prompt or self._default_prompt(tokenizer)
        if request.num_beams > 1:
            best, *_ = beam_search(
                as_decoder(model),
                tokenizer.encode(prompt),
                max_new_tokens=request.max_new_tokens or _MAX_NEW_TOKENS,
                num_beams=request.num_beams,
                sampling=replace(
                    request.sampling, suppress_tokens=(*request.sampling.suppress_tokens, *tokenizer.reserved_ids)
                ),
                seed=request.seed,
            )
            detokenizer = StreamingDetokenizer(tokenizer, stop=request.stop)
            yield "".join([*map(detokenizer.push, best.tokens), detokenizer.close()])
            return
        yield from stream_text(
            as_decoder(model),
            tokenizer,
            prompt,
            max_new_tokens=request.max_new_tokens or _MAX_NEW_TOKENS,
            sampling=request.sampling,
            stop=request.stop,
            seed=request.seed,
        )

    @staticmethod
    def _default_prompt(tokenizer: Tokenizer) -> str:
        """A newline, or the first token if the tokenizer has no newline."""
        return "\n" if not tokenizer.unknown_characters("\n") else tokenizer.decode([0])

    def _train_tokenizer(self, corpus: Corpus) -> Tokenizer:
        """Builds the tokenizer: characters from the whole text, BPE from the training text."""
        auto = isinstance(self.tokenizer, AutoTokenizerSpec)
        if isinstance(self.tokenizer, ByteTokenizerSpec):
            return ByteTokenizer()
        if isinstance(self.tokenizer, BPETokenizerSpec):
            train = _first_chunks(corpus.chunks(), num_bytes=int((1 - self.validation_fraction) * corpus.size))
            return BPETokenizer.train(train, vocab_size=self.tokenizer.vocab_size)
        characters: set[str] = set()
        for chunk in corpus.chunks():
            characters.update(chunk)
            if auto and len(characters) > _MAX_CHARACTERS:
                return ByteTokenizer()
        return CharTokenizer.train(["".join(sorted(characters))])

    def _evaluate(self, model: nn.Module, ids: Tensor) -> float:
        """Mean cross-entropy per token, in nats, over windows that do not overlap."""
        decoder = as_decoder(model)
        batch_size = max(1, min(64, _MAX_LOGITS // (self.context_length * decoder.vocab_size)))
        return float(-token_log_probs(decoder, ids, batch_size=batch_size).mean(dtype=torch.float64))

    def _plot_attention(self, run: Run, model: Decoder, tokenizer: Tokenizer, ids: Tensor) -> None:
        """Plots the attention patterns of each layer on the first tokens of the validation text."""
        from lawful.probe import figures, record

        prompt = ids[: min(_ATTENTION_TOKENS, self.context_length)].long()
        names = [repr(tokenizer.decode([token]))[1:-1].replace(" ", "␣") for token in prompt.tolist()]
        for layer in (i for i, letter in enumerate(model.layer_pattern) if letter == "s"):
            name = f"layers.{layer}.attention.pattern"
            with torch.no_grad(), record(model, name) as cache:
                model(prompt[None])
            figure = figures.attention_pattern(cache[name][0], tokens=names)
            figures.save(figure, run.figures / f"attention_layers.{layer}.png", root=run.root)


def _next_token_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean next-token cross-entropy, in nats."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten().long())


def language_model_claims(
    model: nn.Module, *, vocab_size: int, context_length: int, name: str = "text"
) -> Iterator[Claim]:
    """A language model is causal, decodes with a cache as without, and treats texts independently."""
    decoder = as_decoder(model)

    def step(piece: Tensor, cache: Any) -> tuple[Tensor, Any]:
        cache = decoder.cache() if cache is None else cache
        return decoder(piece, cache=cache), cache

    prompt = tokens(f"b t:1..{min(context_length, 8)}", vocab_size=vocab_size)
    for law in (causality(time=1), cached_decoding(step=step), batch_independence()):
        yield Claim(law, model, prompt, name=name)


def _first_chunks(chunks: Iterable[str], *, num_bytes: int) -> Iterator[str]:
    for chunk in chunks:
        if num_bytes <= 0:
            return
        yield chunk
        num_bytes -= len(chunk.encode("utf-8", "replace"))
