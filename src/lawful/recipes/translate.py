"""Translate: from pairs of texts to a model that writes the second when it reads the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lawful.data import Batch
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
from lawful.losses.classification import cross_entropy
from lawful.models.generation import GREEDY, SamplingConfig, generate
from lawful.models.decoder_cache import ConditionalDecoder
from lawful.models.transformer import EncoderDecoder
from lawful.recipes.optimization import Descent
from lawful.recipes.text import GenerationRequest, Kind, for_bpe, tokenizer_of
from lawful.recipes.transformer import Transformer
from lawful.training import MaxLength, Range, Run, TrainerConfig, TrainingSetup, validate

MEASURED = 500
"""The held-back pairs that are measured on the way, at most."""
LONGEST = 10_000
"""The most tokens of a text."""


@dataclass(frozen=True, kw_only=True)
class Translating(TrainingSetup):
    """A training together with its pairs."""

    train: Pairs
    held: Pairs
    tokenizer: Tokenizer


@dataclass(frozen=True, kw_only=True)
class TranslateRecipe:
    """Train an encoder-decoder on pairs of texts, or on built-in ones."""

    name: ClassVar[str] = "translate"

    data: Annotated[str, MaxLength(4096)] = "dates"
    """A text file with a pair a line and a tab between, or a name: dates, sorting."""
    header: bool = False
    """Whether the first line of the file has names; otherwise it is a pair as any other."""
    held: Annotated[int, Range(2, 1000)] = 10
    """One source in so many is not trained on; the same source is never in both parts."""
    tokenizer: Kind = "characters"
    """What a token is."""
    vocab: Annotated[int, Range(256, 16_384)] = 1024
    """bpe: the number of tokens."""
    transformer: Transformer = field(default_factory=lambda: Transformer(depth=2, ngrams=(), shortcut=False))
    learning: Descent = field(default_factory=lambda: Descent(steps=800, batch=64))
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)
        for_bpe(self.tokenizer, vocab=self.vocab, default=type(self).vocab)

    def training(self) -> Translating:
        """Reads the pairs and builds the model."""
        pairs = TASKS[self.data]() if self.data in TASKS else read_pairs(self.data, header=self.header)
        train, held = pairs.split(every=self.held)
        tokenizer = tokenizer_of(self.tokenizer, (*train.sources, *train.targets), vocab=self.vocab)
        longest = max(len(tokenizer.encode(text)) for text in (*pairs.sources, *pairs.targets))
        if longest > LONGEST:
            raise ValueError(f"a text has at most {LONGEST:,} tokens: {pairs.name} has one of {longest:,}")
        model = self.model(tokenizer, context=longest + 1)
        batches = PairBatches(train, tokenizer, size=self.learning.batch, seed=self.engine.seed)
        steps = self.learning.length(len(batches))
        some = Pairs(held.sources[:MEASURED], held.targets[:MEASURED], held.name)
        return Translating(
            model=model,
            turns=[self.learning.turn(model, partial(objective, padding=batches.marks.padding), steps=steps)],
            batches=batches,
            steps=steps,
            evaluate=lambda model: {"accuracy": float(right(model, tokenizer, some).double().mean())},
            every=self.learning.every(steps),
            watch="accuracy",
            higher_is_better=True,
            average=self.learning.average or None,
            accumulate=self.learning.accumulate,
            claims=partial(model_claims, vocab=batches.marks.vocab),
            described={"tokenizer": tokenizer.to_json(), "context": longest + 1},
            fingerprint=sha256("\n".join((*pairs.sources, "", *pairs.targets)).encode("utf-8", "replace")).hexdigest(),
            train=train,
            held=held,
            tokenizer=tokenizer,
        )

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Says how many held-back sources come out as they should, and shows some."""
        if not isinstance(training, Translating):
            return {}
        held, model, tokenizer = training.held, training.model, training.tokenizer
        found = translated(model, tokenizer, held.sources)
        triples = zip(held.sources, found, held.targets, strict=True)
        rows = [f"{x}\n  {y}" + ("" if y == z else f"   (wanted: {z})") for x, y, z in triples]
        (run.samples / "held_back.txt").write_text("\n".join(rows[:20]) + "\n", encoding="utf-8")
        hit = torch.tensor([y == z for y, z in zip(found, held.targets, strict=True)], dtype=torch.float64)
        commonest, _ = Counter(training.train.targets).most_common(1)[0]
        return {
            "test": {"accuracy": bootstrap(torch.mean, hit).json()},
            "baselines": {
                "commonest target": share(y == commonest for y in held.targets),
                "the source itself": share(x == y for x, y in zip(held.sources, held.targets, strict=True)),
                "target of the likest source": share(
                    x == y for x, y in zip(of_likest(training.train, held.sources), held.targets, strict=True)
                ),
            },
            "pairs": {"train": len(training.train), "held back": len(held)},
            "parameters": sum(p.numel() for p in model.parameters()),
        }

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its weights are put in."""
        context = facts.get("context")
        if type(context) is not int or not 1 <= context <= LONGEST + 1:
            raise ValueError(f"model.context in config.json is from 1 to {LONGEST + 1}: got {str(context)[:60]}")
        return self.model(tokenizer_from_json(facts.get("tokenizer")), context=context)

    def write(self, model: nn.Module, tokenizer: Tokenizer, prompt: str, asked: GenerationRequest) -> Iterator[str]:
        """Writes what the prompt becomes; without further wishes the most probable text, letter by letter."""
        if not prompt:
            raise ValueError("a text to translate was wanted: got an empty prompt")
        sampling = GREEDY if asked.sampling == SamplingConfig() else asked.sampling
        marks = SpecialTokens(tokenizer.vocab)
        writer = given(model, [tokenizer.encode(prompt)], marks)
        if asked.beams > 1:
            best, *_ = beam_search(
                writer,
                [marks.start],
                max_new_tokens=asked.tokens,
                num_beams=asked.beams,
                stop_tokens=[marks.end],
            )
            found = list(best.tokens)
        else:
            drawn = generate(
                writer,
                [marks.start],
                max_new_tokens=asked.tokens,
                sampling=sampling,
                stop_tokens=[marks.end],
                seed=asked.seed,
            )
            found = drawn[0].tolist()
        pieces = StreamingDetokenizer(tokenizer, stop=asked.stop)
        yield "".join([*map(pieces.push, until(found, marks)), pieces.close()])

    # ------------------------------------------------------------ the parts

    def model(self, tokenizer: Tokenizer, *, context: int) -> EncoderDecoder:
        return self.transformer.encoder_decoder(SpecialTokens(tokenizer.vocab).vocab, context=context)


def given(model: nn.Module, sources: Sequence[Sequence[int]], marks: SpecialTokens) -> ConditionalDecoder:
    """A model that writes the targets of these sources token by token."""
    if not isinstance(model, EncoderDecoder):
        raise TypeError(f"an encoder-decoder was wanted: got {type(model).__name__}")
    source = pad_sequences(sources, marks.padding).to(next(model.parameters()).device)
    return ConditionalDecoder(model, source, padding=source != marks.padding)


def objective(model: nn.Module, batch: Batch, *, padding: int) -> Tensor:
    """The surprise at the next token of the targets, those that fill them up not counted."""
    source, given, wanted = batch
    logits = model(source, given, source_mask=Mask(padding=source != padding))
    there = wanted != padding
    return cross_entropy(logits[there], wanted[there])


@torch.no_grad()
def translated(model: nn.Module, tokenizer: Tokenizer, sources: Sequence[str], *, batch: int = 500) -> list[str]:
    """What sources become, the most probable token at each place."""
    marks, found = SpecialTokens(tokenizer.vocab), []
    for i in range(0, len(sources), batch):
        read = [tokenizer.encode(text) for text in sources[i : i + batch]]
        writer, most = given(model, read, marks), 2 * max(map(len, read)) + 20
        starts = [[marks.start]] * len(read)
        rows = generate(writer, starts, max_new_tokens=most, sampling=GREEDY, stop_tokens=[marks.end])
        found += [tokenizer.decode(until(row, marks)) for row in rows.tolist()]
    return found


def until(row: Sequence[int], marks: SpecialTokens) -> list[int]:
    """The tokens of a target up to its end, without marks."""
    ended = row[: row.index(marks.end)] if marks.end in row else row
    return [token for token in ended if token < marks.tokens]


def right(model: nn.Module, tokenizer: Tokenizer, pairs: Pairs) -> Bool[Tensor, " n"]:
    """Which sources come out as they should, to the letter."""
    found = translated(model, tokenizer, pairs.sources)
    return torch.tensor([y == z for y, z in zip(found, pairs.targets, strict=True)])


def share(hits: Any) -> float:
    """The share of what is true."""
    listed = list(hits)
    return sum(listed) / len(listed)


def of_likest(train: Pairs, sources: Sequence[str], *, most: int = 2000) -> list[str]:
    """The targets of those training sources that share most pairs of letters with each, relative to their length."""
    number: dict[str, int] = {}

    def counts(texts: Sequence[str]) -> Float[Tensor, "n k"]:
        rows = [[number.setdefault(text[i : i + 2], len(number)) for i in range(len(text) - 1)] for text in texts]
        found = torch.zeros(len(texts), max(1, len(number)))
        for row, places in enumerate(rows):
            found[row].index_add_(0, torch.tensor(places, dtype=torch.int64), torch.ones(len(places)))
        return nn.functional.normalize(found, dim=1)

    known = counts(train.sources[:most])
    number, kept = dict(number), len(number)
    asked = counts(sources)[:, :kept]
    return [train.targets[i] for i in (asked @ known.T).argmax(1).tolist()]


def model_claims(model: nn.Module, *, vocab: int) -> Iterator[Claim]:
    """What an encoder-decoder is to keep: a target is not seen before it comes, and pairs do not mix."""
    pair = (tokens("b s:2..5", vocab_size=vocab), tokens("b t:2..5", vocab_size=vocab))
    yield Claim(causality(time=1, input=1), model, pair, name="translate, target")
    yield Claim(batch_independence(), model, pair, name="translate")
