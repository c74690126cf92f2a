"""Pairs of texts: one is given, the other is wanted."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from lawful.data.batches import Batch, ShuffledBatches
from lawful.data.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Pairs:
    """Holds texts and what each is to become.

    Examples:
        >>> len(Pairs(("one", "two"), ("un", "deux")))
        2
    """

    sources: tuple[str, ...]
    """What is given."""
    targets: tuple[str, ...]
    """What is wanted, one for each."""
    name: str = "pairs"
    """What to call them in messages."""

    def __post_init__(self) -> None:
        if not self.sources or len(self.sources) != len(self.targets):
            came = f"{len(self.sources)} and {len(self.targets)}"
            raise ValueError(f"at least one pair was wanted, each text with its target: got {came}")

    def __len__(self) -> int:
        return len(self.sources)

    def split(self, *, every: int = 10) -> tuple[Pairs, Pairs]:
        """Holds about one source in `every` back, by a checksum of it: no source, however frequent, is in both parts.

        Returns what is left, and what is held back.
        """
        held = [zlib.crc32(source.encode("utf-8", "replace")) % every == 0 for source in self.sources]
        if len(set(held)) < 2:
            raise ValueError(f"{self.name} has too few distinct sources, {len(set(self.sources))}, to hold some back")
        return self._those([not h for h in held]), self._those(held)

    def _those(self, chosen: Sequence[bool]) -> Pairs:
        sources = tuple(x for x, c in zip(self.sources, chosen, strict=True) if c)
        return Pairs(sources, tuple(y for y, c in zip(self.targets, chosen, strict=True) if c), self.name)


def read_pairs(path: str | Path, *, header: bool = False) -> Pairs:
    r"""Reads pairs from a text file: a pair a line, a tab between its texts.

    Empty lines are skipped; fields beyond the second, such as a licence, are left out.

    Args:
        path: The file, in UTF-8.
        header: Whether the first line has names, and is no pair.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name) / "pairs.tsv"
        >>> _ = path.write_text("one\tun\ntwo\tdeux\n")
        >>> read_pairs(path).targets
        ('un', 'deux')
        >>> folder.cleanup()
    """
    path = Path(path)
    sources, targets = [], []
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if not (line := line.rstrip("\n")).strip() or (header and number == 1):
                    continue
                source, *rest = line.split("\t")
                if not rest or not source or not rest[0]:
                    raise ValueError(f"line {number} of {path.name} is to have two texts with a tab between")
                sources.append(source)
                targets.append(rest[0])
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not text in UTF-8: {error.reason}") from None
    if not sources:
        raise ValueError(f"{path.name} is empty: pairs of texts were wanted")
    return Pairs(tuple(sources), tuple(targets), path.name)


@dataclass(frozen=True)
class SpecialTokens:
    """Says which tokens, after those of a tokenizer, begin and end a target and fill what is short.

    Examples:
        >>> SpecialTokens(10).vocab, SpecialTokens(10).start, SpecialTokens(10).end, SpecialTokens(10).padding
        (13, 10, 11, 12)
    """

    tokens: int
    """The vocabulary of the tokenizer."""

    @property
    def start(self) -> int:
        """The token before a target."""
        return self.tokens

    @property
    def end(self) -> int:
        """The token after a target."""
        return self.tokens + 1

    @property
    def padding(self) -> int:
        """What stands after a text that is shorter than others."""
        return self.tokens + 2

    @property
    def vocab(self) -> int:
        """The vocabulary of a model of pairs."""
        return self.tokens + 3


def pad_sequences(rows: Iterable[Sequence[int]], fill: int) -> Int[Tensor, "b t"]:
    """Stacks rows of tokens, those that are short filled at their ends.

    Examples:
        >>> pad_sequences([[1, 2], [3]], fill=9)
        tensor([[1, 2],
                [3, 9]])
    """
    return torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row, dtype=torch.int64) for row in rows], batch_first=True, padding_value=fill
    )


class PairBatches:
    """Cuts pairs into batches, in each epoch in another order: sources, targets from the start on, targets to the end.

    A batch is `(source, given, wanted)`: at each place of `given`, which begins with `start`, the model is to say what
    `wanted` has there, up to `end`. Each is as wide as its longest text; `padding` fills the others.

    Args:
        pairs: The texts.
        tokenizer: What numbers both.
        size: The pairs of a batch; the last of an epoch may be smaller.
        seed: What the orders depend on.

    Examples:
        >>> from lawful.data.text import Bytes
        >>> source, given, wanted = PairBatches(Pairs(("ab",), ("c",)), Bytes(), size=1, seed=0).batch(0)
        >>> source.tolist(), given.tolist(), wanted.tolist()
        ([[97, 98]], [[256, 99]], [[99, 257]])
    """

    def __init__(self, pairs: Pairs, tokenizer: Tokenizer, *, size: int, seed: int) -> None:
        self.marks = SpecialTokens(tokenizer.vocab)
        self._sources = [tokenizer.encode(text) for text in pairs.sources]
        self._targets = [tokenizer.encode(text) for text in pairs.targets]
        self._order = ShuffledBatches(torch.arange(len(pairs)), size=size, seed=seed)

    def __len__(self) -> int:
        return len(self._order)

    def batch(self, step: int) -> Batch:
        """The pairs that the order of the epoch has at this step."""
        (chosen,) = self._order.batch(step)
        return self.of(chosen.tolist())

    def of(self, chosen: Iterable[int]) -> Batch:
        """The batch of these pairs."""
        marks, chosen = self.marks, list(chosen)
        targets = [self._targets[i] for i in chosen]
        return (
            pad_sequences((self._sources[i] for i in chosen), marks.padding),
            pad_sequences(([marks.start, *target] for target in targets), marks.padding),
            pad_sequences(([*target, marks.end] for target in targets), marks.padding),
        )
