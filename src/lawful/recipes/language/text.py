"""Text: a language model of any text, its samples and its report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful.data import Batch
from lawful.data.text import (
    BPE,
    Bytes,
    Characters,
    TextWindows,
    Tokenizer,
    read_text,
    tokenised,
    tokenizer_from_json,
)
from lawful.data.text.reading import Text as Read
from lawful.inference.decoding import Decodes, Pieces, Sampling, beam_search, complete, log_probabilities, write
from lawful.laws import Claim, batch_independence, cached_decoding, causality, tokens
from lawful.models.transformer import Decoder
from lawful.objectives import cross_entropy
from lawful.probe import figures, record
from lawful.recipes.language.asked import Asked
from lawful.recipes.language.counts import bits, counted
from lawful.recipes.language.descent import Descent
from lawful.recipes.language.transformer import Transformer, decoder_of
from lawful.training import AtMost, Between, Engine, Run, Training, validate

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
class Reading(Training):
    """A training together with the text that it was made of."""

    train: Tensor
    validation: Tensor
    tokenizer: Tokenizer


@dataclass(frozen=True, kw_only=True)
class Text:
    """Train a language model on a text file, a folder of them or built-in text."""

    name: ClassVar[str] = "text"

    data: Annotated[str, AtMost(4096)] = "python"
    """A text file, a folder of them, or python: the English reference that ships with Python."""
    validation: Annotated[float, Between(0.001, 0.9)] = 0.1
    """The share of the text, at its end, that is not trained on."""
    tokenizer: Literal["auto", "characters", "bytes", "bpe"] = "auto"
    """What a token is; auto: a character, or where there are too many different ones a byte."""
    vocab: Annotated[int, Between(256, 16_384)] = 1024
    """bpe: the number of tokens."""
    context: Annotated[int, Between(1, 10**6)] = 64
    """The tokens that are read at once."""
    transformer: Transformer = field(
        default_factory=lambda: Transformer(
            width=96, depth=2, heads=2, head_size=32, rows=7168, table_width=64, table_dropout=0.12
        )
    )
    learning: Descent = field(default_factory=lambda: Descent(table_rate=0.03, head_rate=0.02, beta1=0.7))
    engine: Engine = field(default_factory=Engine)

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
        found = tokenised(text, tokenizer)
        train, validation = found.split(fraction=1 - self.validation)
        if len(train) <= self.context or len(validation) < 2:
            raise ValueError(
                f"{text.name} is too short: of its {len(found):,} tokens {len(train):,} are to train on and "
                f"{len(validation):,} to validate with; a context of {self.context} takes at least {self.context + 1} "
                "and 2"
            )
        model = self.transformer.decoder(tokenizer.vocab, context=self.context)
        batches = TextWindows(train, context=self.context, size=self.learning.batch, seed=self.engine.seed)
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
            claims=partial(kept_by, vocab=tokenizer.vocab, context=self.context),
            described={"tokenizer": tokenizer.to_json()},
            fingerprint=found.fingerprint,
            notes=text.notes,
            train=train,
            validation=validation,
            tokenizer=tokenizer,
        )

    def finish(self, run: Run, training: Training) -> Mapping[str, Any]:
        """Measures the model on the whole validation text, beside counting, and lets it write."""
        if not isinstance(training, Reading):
            return {}
        model, tokenizer, validation = training.model, training.tokenizer, training.validation[:AT_LAST]
        loss = self.loss(model, validation)
        lengths = torch.tensor([len(piece) for piece in tokenizer.pieces])
        size = sum(int(lengths[part.long()].sum()) for part in validation[1:].split(MEASURED))
        per_byte = (len(validation) - 1) / size
        orders = counted(training.train, validation, vocab=tokenizer.vocab, orders=5)
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

    def write(self, model: nn.Module, tokenizer: Tokenizer, prompt: str, asked: Asked) -> Iterator[str]:
        """Writes on where a prompt ends."""
        if asked.beams > 1:
            read = tokenizer.encode(prompt or self.start(tokenizer))
            best, *_ = beam_search(decoder_of(model), read, tokens=asked.tokens, beams=asked.beams)
            pieces = Pieces(tokenizer, stop=asked.stop)
            yield "".join([*map(pieces.push, best.tokens), pieces.close()])
            return
        yield from write(
            decoder_of(model),
            tokenizer,
            prompt or self.start(tokenizer),
            tokens=asked.tokens,
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
            return Bytes()
        if self.tokenizer == "bpe":
            return BPE.trained(first(text.chunks(), size=int((1 - self.validation) * text.size)), vocab=self.vocab)
        letters: set[str] = set()
        for chunk in text.chunks():
            letters.update(chunk)
            if self.tokenizer == "auto" and len(letters) > LETTERS:
                return Bytes()
        return Characters.of(["".join(sorted(letters))])

    def loss(self, model: nn.Module, ids: Tensor) -> float:
        """The surprise at each token but the first, in nats, read in windows that do not overlap."""
        decoder = decoder_of(model)
        batch = max(1, min(64, LOGITS // (self.context * decoder.config.vocab)))
        return float(-log_probabilities(decoder, ids, batch=batch).mean(dtype=torch.float64))

    def draw(self, run: Run, model: Decoder, tokenizer: Tokenizer, ids: Tensor) -> None:
        """Draws where the heads of each attention layer look, on the first tokens of the validation text."""
        read = ids[: min(SHOWN, self.context)].long()
        names = [repr(tokenizer.decode([token]))[1:-1].replace(" ", "␣") for token in read.tolist()]
        for number in (i for i, letter in enumerate(model.order) if letter == "s"):
            name = f"layers.{number}.block.pattern"
            with torch.no_grad(), record(model, name) as tape:
                model(read[None])
            figures.save(
                figures.attention_pattern(tape[name][0], tokens=names), run.figures / f"attention_{number}.png"
            )

    def written(self, model: Decodes, tokenizer: Tokenizer) -> list[str]:
        """Texts that the model writes."""
        return complete(
            model,
            tokenizer,
            [self.start(tokenizer)] * SAMPLES,
            tokens=LENGTH,
            sampling=Sampling(temperature=0.8),
            seed=self.engine.seed,
        )


def objective(model: nn.Module, batch: Batch) -> Tensor:
    """The surprise at the next token."""
    inputs, targets = batch
    return cross_entropy(model(inputs), targets)


def kept_by(model: nn.Module, *, vocab: int, context: int) -> Iterator[Claim]:
    """What a language model is to keep: nothing is seen before it comes, a cache changes nothing, texts do not mix."""
    decoder = decoder_of(model)

    def step(piece: Tensor, cache: Any) -> tuple[Tensor, Any]:
        cache = decoder.cache() if cache is None else cache
        return decoder(piece, cache=cache), cache

    for law in (causality(time=1), cached_decoding(step=step), batch_independence()):
        yield Claim(law, model, tokens(f"b t:1..{min(context, 8)}", vocab=vocab), name="text")


def first(chunks: Iterable[str], *, size: int) -> Iterator[str]:
    """The first chunks, with about so many bytes."""
    for chunk in chunks:
        if size <= 0:
            return
        yield chunk
        size -= len(chunk.encode("utf-8", "replace"))
