"""Pairs of source and target texts, for sequence-to-sequence training."""

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
    """Source texts with their target texts.

    Examples:
        >>> len(Pairs(("one", "two"), ("un", "deux")))
        2
    """

    sources: tuple[str, ...]
    """Source texts."""
    targets: tuple[str, ...]
    """Target texts, one per source."""
    name: str = "pairs"
    """Name shown in messages."""

    def __post_init__(self) -> None:
        if not self.sources or len(self.sources) != len(self.targets):
            lengths = f"{len(self.sources)} and {len(self.targets)}"
            raise ValueError(f"sources and targets must have equal, non-zero lengths: got {lengths}")

    def __len__(self) -> int:
        return len(self.sources)

    def split(self, *, every: int = 10) -> tuple[Pairs, Pairs]:
        """Splits into training and held-out pairs. About one source in `every` is held out.

        A checksum of the source decides, so that equal sources land in the same part.
        """
        held_out = [zlib.crc32(source.encode("utf-8", "replace")) % every == 0 for source in self.sources]
        if len(set(held_out)) < 2:
            raise ValueError(f"{self.name} has too few distinct sources to split: got {len(set(self.sources))}")
        return self._take([not h for h in held_out]), self._take(held_out)

    def _take(self, chosen: Sequence[bool]) -> Pairs:
        sources = tuple(x for x, c in zip(self.sources, chosen, strict=True) if c)
        return Pairs(sources, tuple(y for y, c in zip(self.targets, chosen, strict=True) if c), self.name)


def read_pairs(path: str | Path, *, header: bool = False) -> Pairs:
    r"""Reads tab-separated pairs, one per line.

    Skips empty lines and ignores fields after the second.

    Args:
        path: UTF-8 text file.
        header: Whether the first line is a header.

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
                    raise ValueError(f"line {number} of {path.name}: expected two texts separated by a tab")
                sources.append(source)
                targets.append(rest[0])
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 text: {error.reason}") from None
    if not sources:
        raise ValueError(f"{path.name} has no pairs")
    return Pairs(tuple(sources), tuple(targets), path.name)


@dataclass(frozen=True)
class SpecialTokens:
    """Special token ids for sequence-to-sequence models, after the ids of the tokenizer.

    Examples:
        >>> SpecialTokens(10).vocab_size, SpecialTokens(10).start, SpecialTokens(10).end, SpecialTokens(10).padding
        (13, 10, 11, 12)
    """

    tokenizer_vocab_size: int
    """Vocabulary size of the tokenizer."""

    @property
    def start(self) -> int:
        """Start-of-sequence id."""
        return self.tokenizer_vocab_size

    @property
    def end(self) -> int:
        """End-of-sequence id."""
        return self.tokenizer_vocab_size + 1

    @property
    def padding(self) -> int:
        """Padding id."""
        return self.tokenizer_vocab_size + 2

    @property
    def vocab_size(self) -> int:
        """Vocabulary size of the model."""
        return self.tokenizer_vocab_size + 3


def pad_sequences(rows: Iterable[Sequence[int]], padding: int) -> Int[Tensor, "b t"]:
    """Stacks token sequences, padded on the right.

    Examples:
        >>> pad_sequences([[1, 2], [3]], padding=9)
        tensor([[1, 2],
                [3, 9]])
    """
    return torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row, dtype=torch.int64) for row in rows], batch_first=True, padding_value=padding
    )


class PairBatches:
    """Shuffled batches of tokenized pairs, for teacher forcing.

    A batch is `(source, target_inputs, targets)`. `target_inputs` begin with the start token, `targets` end with the
    end token. Shorter sequences are padded.

    Args:
        pairs: Source and target texts.
        tokenizer: Tokenizer of both.
        batch_size: Number of pairs per batch. The last batch of an epoch may be smaller.
        seed: Random seed of the permutations.

    Examples:
        >>> from lawful.data.text import ByteTokenizer
        >>> batches = PairBatches(Pairs(("ab",), ("c",)), ByteTokenizer(), batch_size=1, seed=0)
        >>> source, target_inputs, targets = batches.batch(0)
        >>> source.tolist(), target_inputs.tolist(), targets.tolist()
        ([[97, 98]], [[256, 99]], [[99, 257]])
    """

    def __init__(self, pairs: Pairs, tokenizer: Tokenizer, *, batch_size: int, seed: int) -> None:
        self.special_tokens = SpecialTokens(tokenizer.vocab_size)
        self._sources = [tokenizer.encode(text) for text in pairs.sources]
        self._targets = [tokenizer.encode(text) for text in pairs.targets]
        self._indices = ShuffledBatches(torch.arange(len(pairs)), batch_size=batch_size, seed=seed)

    def __len__(self) -> int:
        return len(self._indices)

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step."""
        (indices,) = self._indices.batch(step)
        return self.collate(indices.tolist())

    def collate(self, indices: Iterable[int]) -> Batch:
        """Returns the pairs at `indices` as one batch."""
        special, indices = self.special_tokens, list(indices)
        targets = [self._targets[i] for i in indices]
        return (
            pad_sequences((self._sources[i] for i in indices), special.padding),
            pad_sequences(([special.start, *target] for target in targets), special.padding),
            pad_sequences(([*target, special.end] for target in targets), special.padding),
        )
