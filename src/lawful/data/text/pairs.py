"""Pairs of source and target texts, for sequence-to-sequence training."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from lawful.data._inputs import open_text
from lawful.data.batches import Batch, ShuffledBatches
from lawful.data.splits import split_indices
from lawful.data.tables import _MEMORY_FACTOR, _delimiter
from lawful.data.text.tokenizers import Tokenizer

_HEADERS = {
    ("source", "target"),
    ("src", "tgt"),
    ("input", "output"),
    ("inputs", "outputs"),
    ("inputs", "targets"),
    ("x", "y"),
    ("from", "to"),
    ("text", "translation"),
    ("question", "answer"),
    ("prompt", "completion"),
}
"""Names of columns that are recognized as a header."""
_LANGUAGES = {
    *("ar", "cs", "da", "de", "en", "es", "fi", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "sv", "tr", "uk", "zh"),
    *("arabic", "chinese", "czech", "danish", "dutch", "english", "finnish", "french", "german", "italian"),
    *("japanese", "korean", "polish", "portuguese", "russian", "spanish", "swedish", "turkish", "ukrainian"),
}
"""Names of languages; two different ones are a header."""
_MIN_ROWS = 10
"""Number of lines from which a column without letters tells a header from a text."""


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
    columns: tuple[str, str] | None = None
    """Names of the source and target columns, if the file has a header."""
    notes: tuple[str, ...] = ()
    """Notes for the user, such as lines that were left out."""

    def __post_init__(self) -> None:
        if not self.sources or len(self.sources) != len(self.targets):
            lengths = f"{len(self.sources)} and {len(self.targets)}"
            raise ValueError(f"sources and targets must have equal, non-zero lengths: got {lengths}")

    def __len__(self) -> int:
        return len(self.sources)

    def select(self, indices: Iterable[int]) -> Pairs:
        """Returns the pairs at these indices."""
        chosen = list(indices)
        sources, targets = (tuple(texts[i] for i in chosen) for texts in (self.sources, self.targets))
        return replace(self, sources=sources, targets=targets)

    def split(self, *, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0) -> tuple[Pairs, ...]:
        """Splits the pairs at random. Equal sources are in the same part.

        Args:
            fractions: Fraction of the distinct sources of each part. They sum to 1.
            seed: Random seed.

        Examples:
            >>> pairs = Pairs(tuple("abcdefghij"), tuple("ABCDEFGHIJ"))
            >>> [len(part) for part in pairs.split(fractions=(0.7, 0.3))]
            [7, 3]
        """
        groups: dict[str, list[int]] = {}
        for index, source in enumerate(self.sources):
            groups.setdefault(source, []).append(index)
        members = list(groups.values())
        if min(round(fraction * len(members)) for fraction in fractions) < 1:
            shares = ", ".join(f"{fraction:.3g}" for fraction in fractions)
            raise ValueError(
                f"{self.name} has too few distinct sources for a split into fractions {shares}: got {len(members)}"
            )
        parts = split_indices(len(members), fractions=fractions, seed=seed)
        return tuple(self.select(sorted(i for group in part.tolist() for i in members[group])) for part in parts)


def read_pairs(path: str | Path, *, header: bool | None = None) -> Pairs:
    r"""Reads pairs of texts, one per line.

    A `.csv` file has commas or semicolons and quotes; any other file has tabs and no quotes. Fields after the second
    are ignored. Empty lines are skipped; lines without a source or a target are left out with a note.

    Args:
        path: UTF-8 text file.
        header: Whether the first line is a header. By default it is one if it has usual names, such as source and
            target, or two languages, or a word above a column without Latin letters.

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
    rows = list(_read_fields(path))
    columns, notes = None, []
    if rows and (header or (header is None and _has_header([fields for _, fields in rows]))):
        columns = _pair_of(path, *rows.pop(0))
        if header is None:
            notes.append(f"the first line of {path.name} is a header: {', '.join(columns)}")
    complete, incomplete = [], []
    for line, fields in rows:
        pair = _pair_of(path, line, fields)
        if all(pair):
            complete.append(pair)
        else:
            incomplete.append(line)
    if incomplete:
        listed = ", ".join(map(str, incomplete[:10])) + (", ..." if len(incomplete) > 10 else "")
        notes.append(
            f"left out {len(incomplete)} of {len(rows)} lines of {path.name} without a source or a target: "
            f"line{'s' * (len(incomplete) > 1)} {listed}"
        )
    if not complete:
        raise ValueError(f"{path.name} has no pairs of a source and a target")
    targets: dict[str, set[str]] = {}
    for source, target in complete:
        targets.setdefault(source, set()).add(target)
    if several := sum(len(found) > 1 for found in targets.values()):
        notes.append(
            f"{several} of {len(targets)} sources have different targets: at most one of them can be predicted"
        )
    sources, outputs = zip(*complete, strict=True)
    return Pairs(sources, outputs, path.name, columns, tuple(notes))


def read_sources(
    path: str | Path, *, columns: tuple[str, str] | None = None
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    r"""Reads new sources, one per line, in the format of `read_pairs`; and their targets, if every line has one.

    Args:
        path: UTF-8 text file.
        columns: Names of the source and target columns of the training file. A first line with the name of the source
            column is a header, and its columns may have any order.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name) / "new.txt"
        >>> _ = path.write_text("one\ntwo\n")
        >>> read_sources(path)
        (('one', 'two'), None)
        >>> folder.cleanup()
    """
    path = Path(path)
    rows = list(_read_fields(path))
    at, target_at = 0, 1
    if rows and columns is not None and columns[0] in rows[0][1]:
        names = rows.pop(0)[1]
        at, target_at = names.index(columns[0]), names.index(columns[1]) if columns[1] in names else len(names)
    elif rows and _has_usual_names(rows[0][1]):
        rows.pop(0)
    sources = []
    for line, fields in rows:
        if len(fields) <= at or not fields[at]:
            raise ValueError(f"line {line} of {path.name} has no source: expected a text")
        sources.append(fields[at])
    if not sources:
        raise ValueError(f"{path.name} has no sources")
    targets = tuple(fields[target_at] if len(fields) > target_at else "" for _, fields in rows)
    return tuple(sources), targets if all(targets) else None


def _read_fields(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the number of each line that is not empty, and its fields without surrounding spaces."""
    is_csv = path.suffix.lower() == ".csv"
    try:
        newline = "" if is_csv else None
        with open_text(path, encoding="utf-8-sig", newline=newline, memory_factor=_MEMORY_FACTOR) as lines:
            if is_csv:
                delimiter = _delimiter(lines.readline())
                lines.seek(0)
                reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
                rows = ((reader.line_num, row) for row in reader)
            else:
                rows = ((number, line.split("\t")) for number, line in enumerate(lines, 1))
            for number, row in rows:
                fields = [field.strip() for field in row]
                if any(fields):
                    yield number, fields
    except csv.Error as error:
        raise ValueError(f"{path.name} cannot be read as CSV: {error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 text: {error.reason}") from None


def _has_usual_names(fields: Sequence[str]) -> bool:
    """Returns whether a line has the names of columns, such as source and target."""
    names = tuple(field.lower() for field in fields[:2])
    languages = len(set(names)) == 2 and set(names) <= _LANGUAGES
    return names in _HEADERS or languages or (len(names) == 1 and names[0] == "source")


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Returns whether the first line has the names of columns.

    Examples:
        >>> _has_header([["words", "number"], *([word, str(i)] for i, word in enumerate(["one", "two"] * 5))])
        True
    """
    if _has_usual_names(rows[0]) or len(rows) <= _MIN_ROWS:
        return _has_usual_names(rows[0])
    for i, name in enumerate(rows[0][:2]):
        others = (fields[i] for fields in rows[1:] if len(fields) > i)
        if re.fullmatch(r"[A-Za-z][A-Za-z _-]+", name) and not any(re.search("[A-Za-z]", other) for other in others):
            return True
    return False


def _pair_of(path: Path, line: int, fields: Sequence[str]) -> tuple[str, str]:
    """Returns the first two fields of a line."""
    if len(fields) < 2:
        separator = "comma" if path.suffix.lower() == ".csv" else "tab"
        remedy = "" if separator == "comma" or "," not in fields[0] else ". Name a comma-separated file .csv"
        expected = f"expected a source and a target separated by a {separator}"
        raise ValueError(f"line {line} of {path.name}: {expected}, got {fields[0][:60]!r}{remedy}")
    return fields[0], fields[1]


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
