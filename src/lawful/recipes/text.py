"""What a language model has to beat: counting which token comes after which.

The tokenizer of a recipe whose texts are many.
What a trained model of text is asked to write.
Text: a language model of any text, its samples and its report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn

from lawful.data import Batch
from lawful.data.text import (
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    ShuffledWindows,
    Tokenizer,
    read_text,
    tokenize_corpus,
    tokenizer_from_json,
)
from lawful.data.text.corpus import Corpus as Read
from lawful.inference.beam_search import beam_search
from lawful.inference.likelihood import token_log_probs
from lawful.inference.text import StreamingDetokenizer, generate_text, stream_text
from lawful.laws import Claim, batch_independence, cached_decoding, causality, tokens
from lawful.losses.classification import cross_entropy
from lawful.models.generation import CausalLM, SamplingConfig
from lawful.models.transformer import Decoder
from lawful.probe import figures, record
from lawful.recipes.optimization import Descent
from lawful.recipes.transformer import Transformer, decoder_of
from lawful.training import MaxLength, Range, Recipe, Run, TrainerConfig, TrainingSetup, validate

MOST, PART = 2**22, 2**18
"""The tokens that are counted, and those that are predicted, at most; and of the latter, at a time."""


def ngram_baseline(train: Shaped[Tensor, " n"], test: Shaped[Tensor, " m"], *, vocab: int, orders: int) -> list[float]:
    r"""Measures the surprise, in nats a token, of predicting by counts of runs of 1, 2, ... tokens.

    $$p_n(x \mid h) = \frac{c(h x) + |h \cdot| \, p_{n-1}(x \mid h')}{c(h) + |h \cdot|}, \qquad p_0 = \frac{1}{V}$$

    $c$ counts runs in the training text, $h$ is the $n - 1$ tokens before $x$, $h'$ the last $n - 2$ of them, and
    $|h \cdot|$ is how many different tokens came after $h$. Where $h$ was never seen, $p_n = p_{n-1}$.

    Reference:
        Witten and Bell, *The Zero-Frequency Problem*, 1991.

    Args:
        train: The tokens that are counted.
        test: The tokens that are predicted, all but the first.
        vocab: $V$, the number of tokens.
        orders: The longest run, as far as its number fits 63 bits.

    Examples:
        >>> ids = torch.tensor([0, 1] * 500)
        >>> [round(nats, 2) for nats in ngram_baseline(ids, ids, vocab=2, orders=2)]
        [0.69, 0.0]
    """
    train, test = train[:MOST].long(), test[:MOST].long()
    p = torch.full((len(test) - 1,), 1 / vocab, dtype=torch.float64)
    found = []
    for n in range(1, orders + 1):
        if vocab**n >= 2**63:
            break
        runs = runs_of(train, n, vocab)
        runs.numpy().sort()  # in place, without the places that torch.sort would give as well
        runs, times = runs.unique_consecutive(return_counts=True)
        heads, kinds = (runs // vocab).unique_consecutive(return_counts=True)
        totals = times.cumsum(0)[kinds.cumsum(0) - 1].diff(prepend=times.new_zeros(1))
        for first in range(max(n - 2, 0), len(p), PART):  # those with fewer tokens before keep what shorter runs say
            shorter = p[first : first + PART]
            asked = runs_of(test[first + 2 - n : first + 1 + len(shorter)], n, vocab)
            seen, before = looked_up(asked, runs, times), asked // vocab
            total, kind = looked_up(before, heads, totals), looked_up(before, heads, kinds)
            shorter.copy_(torch.where(total > 0, (seen + kind * shorter) / (total + kind).clamp_min(1), shorter))
        found.append(float(-p.log().mean()))
    return found


def runs_of(tokens: Int[Tensor, " n"], length: int, vocab: int) -> Int[Tensor, " m"]:
    """The number of each run of tokens, the first digit being the oldest token."""
    m = max(len(tokens) - length + 1, 0)
    found = tokens[:m].clone()
    for i in range(1, length):
        found.mul_(vocab).add_(tokens[i : i + m])
    return found


def looked_up(keys: Int[Tensor, " n"], known: Int[Tensor, " k"], values: Int[Tensor, " k"]) -> Int[Tensor, " n"]:
    """The values of keys, 0 for those that are not known; these are in order."""
    if not len(known):
        return values.new_zeros(len(keys))
    place = torch.searchsorted(known, keys).clamp_max(len(known) - 1)
    return torch.where(known[place] == keys, values[place], 0)


def bits(nats: float) -> float:
    """Nats as bits."""
    return nats / math.log(2)


Kind = Literal["characters", "bytes", "bpe"]


def tokenizer_of(kind: Kind, texts: Sequence[str], *, vocab: int) -> Tokenizer:
    """Finds the tokenizer of a kind in what is trained on.

    Args:
        kind: What a token is.
        texts: What is trained on.
        vocab: bpe: the number of tokens.

    Examples:
        >>> tokenizer_of("characters", ["abba"], vocab=0).encode("ab")
        [0, 1]
    """
    match kind:
        case "characters":
            return CharTokenizer.of(texts)
        case "bytes":
            return ByteTokenizer()
        case "bpe":
            return BPETokenizer.trained(texts, vocab=vocab)


def for_bpe(kind: Kind, *, vocab: int, default: int) -> None:
    """Refuses a number of tokens where they are not found in the texts."""
    if vocab != default and kind != "bpe":
        raise ValueError(f"vocab is for the tokenizer bpe: the tokenizer is {kind}")


AS_IT_SAYS = SamplingConfig()
"""Draws each token as the model says."""


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """How much is to be written, and how."""

    tokens: int = 256
    """The most tokens."""
    sampling: SamplingConfig = AS_IT_SAYS
    """How each is drawn."""
    stop: tuple[str, ...] = ()
    """Texts that end it, and are not shown."""
    seed: int = 0
    """What the draws depend on."""
    beams: int = 1
    """How many continuations are searched for a probable one; 1 draws instead."""

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.beams < 1:
            raise ValueError(f"tokens and beams are at least 1: got {self.tokens} and {self.beams}")
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"a seed has 64 bits: got {self.seed}")
        if self.beams > 1 and self.sampling != AS_IT_SAYS:
            raise ValueError(
                "beams look for the most probable text, and draw none: they go without a temperature, top-k, top-p, "
                "min-p and a repetition penalty"
            )


@runtime_checkable
class TextGenerator(Recipe, Protocol):
    """A recipe whose models write text."""

    def write(self, model: nn.Module, tokenizer: Tokenizer, prompt: str, asked: GenerationRequest) -> Iterator[str]:
        """Gives the text to a prompt, piece by piece."""
        ...


LETTERS = 256
"""The most different characters of a text that is read by characters unless it is said."""
MEASURED, AT_LAST = 2**18, 2**23
"""The tokens of the validation text that are measured on the way, and at the end, at most."""
LOGITS = 2**22
"""The scores of a batch that is measured, at most: a large vocabulary has fewer windows at a time."""
SAMPLES, LENGTH = 3, 400
"""How many texts are written at the end, and their tokens."""
SHOWN = 24
"""The tokens whose attention is drawn."""


@dataclass(frozen=True, kw_only=True)
class Reading(TrainingSetup):
    """A training together with the text that it was made of."""

    train: Tensor
    validation: Tensor
    tokenizer: Tokenizer


@dataclass(frozen=True, kw_only=True)
class TextRecipe:
    """Train a language model on a text file, a folder of them or built-in text."""

    name: ClassVar[str] = "text"

    data: Annotated[str, MaxLength(4096)] = "python"
    """A text file, a folder of them, or python: the English reference that ships with Python."""
    validation: Annotated[float, Range(0.001, 0.9)] = 0.1
    """The share of the text, at its end, that is not trained on."""
    tokenizer: Literal["auto", "characters", "bytes", "bpe"] = "auto"
    """What a token is; auto: a character, or where there are too many different ones a byte."""
    vocab: Annotated[int, Range(256, 16_384)] = 1024
    """bpe: the number of tokens."""
    context: Annotated[int, Range(1, 10**6)] = 64
    """The tokens that are read at once."""
    transformer: Transformer = field(
        default_factory=lambda: Transformer(
            width=96, depth=2, heads=2, head_size=32, rows=7168, table_width=64, table_dropout=0.12
        )
    )
    learning: Descent = field(default_factory=lambda: Descent(table_rate=0.03, head_rate=0.02, beta1=0.7))
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)
        if not self.data:
            raise ValueError("data is a file, a folder or a name: got an empty text")
        if self.vocab != type(self).vocab and self.tokenizer != "bpe":
            raise ValueError(f"vocab is for the tokenizer bpe: the tokenizer is {self.tokenizer}")

    def training(self) -> Reading:
        """Reads the text and builds the model."""
        text = read_text(self.data)
        tokenizer = self.tokenizer_of(text)
        found = tokenize_corpus(text, tokenizer)
        train, validation = found.split(fraction=1 - self.validation)
        if len(train) <= self.context or len(validation) < 2:
            raise ValueError(
                f"{text.name} is too short: of its {len(found):,} tokens {len(train):,} are to train on and "
                f"{len(validation):,} to validate with; a context of {self.context} takes at least {self.context + 1} "
                "and 2"
            )
        model = self.transformer.decoder(tokenizer.vocab, context=self.context)
        batches = ShuffledWindows(train, context=self.context, size=self.learning.batch, seed=self.engine.seed)
        steps = self.learning.length(len(batches))
        return Reading(
            model=model,
            turns=[self.learning.turn(model, objective, steps=steps)],
            batches=batches,
            steps=steps,
            evaluate=lambda model: {"loss": self.loss(model, validation[:MEASURED])},
            every=self.learning.every(steps),
            average=self.learning.average or None,
            accumulate=self.learning.accumulate,
            claims=partial(model_claims, vocab=tokenizer.vocab, context=self.context),
            described={"tokenizer": tokenizer.to_json()},
            fingerprint=found.fingerprint,
            notes=text.notes,
            train=train,
            validation=validation,
            tokenizer=tokenizer,
        )

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Measures the model on the whole validation text, beside counting, and lets it write."""
        if not isinstance(training, Reading):
            return {}
        model, tokenizer, validation = training.model, training.tokenizer, training.validation[:AT_LAST]
        loss = self.loss(model, validation)
        lengths = torch.tensor([len(piece) for piece in tokenizer.pieces])
        size = sum(int(lengths[part.long()].sum()) for part in validation[1:].split(MEASURED))
        per_byte = (len(validation) - 1) / size
        orders = ngram_baseline(training.train, validation, vocab=tokenizer.vocab, orders=5)
        self.draw(run, decoder_of(model), tokenizer, validation)
        for number, written in enumerate(self.written(decoder_of(model), tokenizer), 1):
            (run.samples / f"sample_{number}.txt").write_text(written, encoding="utf-8")
        return {
            "validation": {"loss": loss, "bits per byte": bits(loss) * per_byte, "perplexity": math.exp(loss)},
            "baselines": {f"counts of {n} tokens, loss": nats for n, nats in enumerate(orders, 1)},
            "tokens": {"train": len(training.train), "validation": len(validation), "vocabulary": tokenizer.vocab},
            "parameters": sum(p.numel() for p in model.parameters()),
        }

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its weights are put in."""
        return self.transformer.decoder(tokenizer_from_json(facts.get("tokenizer")).vocab, context=self.context)

    def write(self, model: nn.Module, tokenizer: Tokenizer, prompt: str, asked: GenerationRequest) -> Iterator[str]:
        """Writes on where a prompt ends."""
        if asked.beams > 1:
            read = tokenizer.encode(prompt or self.start(tokenizer))
            best, *_ = beam_search(decoder_of(model), read, max_new_tokens=asked.tokens, num_beams=asked.beams)
            pieces = StreamingDetokenizer(tokenizer, stop=asked.stop)
            yield "".join([*map(pieces.push, best.tokens), pieces.close()])
            return
        yield from stream_text(
            decoder_of(model),
            tokenizer,
            prompt or self.start(tokenizer),
            max_new_tokens=asked.tokens,
            sampling=asked.sampling,
            stop=asked.stop,
            seed=asked.seed,
        )

    # ------------------------------------------------------------ the parts

    @staticmethod
    def start(tokenizer: Tokenizer) -> str:
        """What a text without a prompt begins after: the end of a line, where there is one."""
        return "\n" if not tokenizer.unknown("\n") else tokenizer.decode([0])

    def tokenizer_of(self, text: Read) -> Tokenizer:
        """The tokenizer: an alphabet is that of the whole text, byte pairs are found in what is trained on."""
        if self.tokenizer == "bytes":
            return ByteTokenizer()
        if self.tokenizer == "bpe":
            return BPETokenizer.trained(
                first(text.chunks(), size=int((1 - self.validation) * text.size)), vocab=self.vocab
            )
        letters: set[str] = set()
        for chunk in text.chunks():
            letters.update(chunk)
            if self.tokenizer == "auto" and len(letters) > LETTERS:
                return ByteTokenizer()
        return CharTokenizer.of(["".join(sorted(letters))])

    def loss(self, model: nn.Module, ids: Tensor) -> float:
        """The surprise at each token but the first, in nats, read in windows that do not overlap."""
        decoder = decoder_of(model)
        batch = max(1, min(64, LOGITS // (self.context * decoder.vocab_size)))
        return float(-token_log_probs(decoder, ids, batch_size=batch).mean(dtype=torch.float64))

    def draw(self, run: Run, model: Decoder, tokenizer: Tokenizer, ids: Tensor) -> None:
        """Draws where the heads of each attention layer look, on the first tokens of the validation text."""
        read = ids[: min(SHOWN, self.context)].long()
        names = [repr(tokenizer.decode([token]))[1:-1].replace(" ", "␣") for token in read.tolist()]
        for number in (i for i, letter in enumerate(model.layer_pattern) if letter == "s"):
            name = f"layers.{number}.block.pattern"
            with torch.no_grad(), record(model, name) as tape:
                model(read[None])
            figures.save(
                figures.attention_pattern(tape[name][0], tokens=names), run.figures / f"attention_{number}.png"
            )

    def written(self, model: CausalLM, tokenizer: Tokenizer) -> list[str]:
        """Texts that the model writes."""
        return generate_text(
            model,
            tokenizer,
            [self.start(tokenizer)] * SAMPLES,
            max_new_tokens=LENGTH,
            sampling=SamplingConfig(temperature=0.8),
            seed=self.engine.seed,
        )


def objective(model: nn.Module, batch: Batch) -> Tensor:
    """The surprise at the next token."""
    inputs, targets = batch
    return cross_entropy(model(inputs), targets)


def model_claims(model: nn.Module, *, vocab: int, context: int) -> Iterator[Claim]:
    """What a language model is to keep: nothing is seen before it comes, a cache changes nothing, texts do not mix."""
    decoder = decoder_of(model)

    def step(piece: Tensor, cache: Any) -> tuple[Tensor, Any]:
        cache = decoder.cache() if cache is None else cache
        return decoder(piece, cache=cache), cache

    for law in (causality(time=1), cached_decoding(step=step), batch_independence()):
        yield Claim(law, model, tokens(f"b t:1..{min(context, 8)}", vocab_size=vocab), name="text")


def first(chunks: Iterable[str], *, size: int) -> Iterator[str]:
    """The first chunks, with about so many bytes."""
    for chunk in chunks:
        if size <= 0:
            return
        yield chunk
        size -= len(chunk.encode("utf-8", "replace"))
