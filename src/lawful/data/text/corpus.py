"""Text and tasks that need no file.

Reading text: a file, a folder or what is built in, piece by piece and never as a whole.
Tokens of a text in a file that is mapped into memory, so that a text may be larger than it.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from lawful._suggest import did_you_mean
from lawful.data.batches import make_generator
from lawful.data.text.pairs import Pairs
from lawful.data.text.tokenizers import Tokenizer, dtype_of


def python_topics() -> str:
    """The English reference of the language that ships with Python itself, topic by topic.

    It is about 460 thousand characters long; which ones depends on the version of Python.

    Examples:
        >>> python_topics()[:22]
        'The "assert" statement'
    """
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


TEXTS: dict[str, Callable[[], str]] = {"python": python_topics}
"""The texts that need no file, by name."""


def dates(*, samples: int = 10_000, seed: int = 0) -> Pairs:
    """Draws dates from 1900 to 2099 as people write them, to be written as the standard has it.

    Args:
        samples: How many dates.
        seed: What the draw depends on.

    Examples:
        >>> pairs = dates(samples=3)
        >>> len(pairs), len(pairs.targets[0])
        (3, 10)
    """
    _at_least_one(samples)
    generator = make_generator(seed)
    first = date(1900, 1, 1)
    days = torch.randint((date(2100, 1, 1) - first).days, (samples,), generator=generator).tolist()
    forms = torch.randint(len(_FORMS), (samples,), generator=generator).tolist()
    drawn = [first + timedelta(days=day) for day in days]
    return Pairs(
        tuple(_FORMS[form](day) for form, day in zip(forms, drawn, strict=True)),
        tuple(day.isoformat() for day in drawn),
        name="dates",
    )


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_FORMS: tuple[Callable[[date], str], ...] = (
    lambda day: f"{day.day} {_MONTHS[day.month - 1]} {day.year}",
    lambda day: f"{_MONTHS[day.month - 1]} {day.day}, {day.year}",
    lambda day: f"{_DAYS[day.weekday()]}, {day.day} {_MONTHS[day.month - 1][:3]} {day.year}",
    lambda day: f"{day.day}.{day.month}.{day.year}",
    lambda day: f"{day.month}/{day.day}/{day.year}",
    lambda day: f"{day.day} {_MONTHS[day.month - 1][:3].lower()} {day.year}",
)


def sorting(*, samples: int = 10_000, length: int = 6, digits: int = 3, seed: int = 0) -> Pairs:
    """Draws words of digits, to be sorted.

    Args:
        samples: How many words; few are distinct if they are short.
        length: The digits of each.
        digits: How many kinds of digits there are, from 0 on, at most 10.
        seed: What the draw depends on.

    Examples:
        >>> pairs = sorting(samples=100)
        >>> all("".join(sorted(x)) == y for x, y in zip(pairs.sources, pairs.targets))
        True
    """
    _at_least_one(samples)
    if length < 1 or not 2 <= digits <= 10:
        raise ValueError(f"a length of at least 1 and 2 to 10 digits were wanted: got {length} and {digits}")
    drawn = torch.randint(digits, (samples, length), generator=make_generator(seed))
    words = ["".join(map(str, row)) for row in drawn.tolist()]
    return Pairs(tuple(words), tuple("".join(sorted(word)) for word in words), name="sorting")


TASKS: dict[str, Callable[[], Pairs]] = {"dates": dates, "sorting": sorting}
"""The tasks that need no file, by name."""


def _at_least_one(samples: int) -> None:
    if samples < 1:
        raise ValueError(f"samples are at least 1: got {samples}")


CHUNK = 2**18
"""The bytes that are read at once."""


@dataclass(frozen=True)
class Corpus:
    r"""Is a text that may be larger than the memory: it is read in chunks, as often as is wanted.

    Of files, every ending of lines is read as `\n`, a byte-order mark is left out, and between two files stands one
    more `\n`.

    Examples:
        >>> list(Corpus("to be, or not", name="words").chunks(size=6))
        ['to be,', ' or no', 't']
    """

    content: str | tuple[Path, ...]
    """The text itself, or the files that have it."""
    name: str = "text"
    """What to call it in messages."""
    notes: tuple[str, ...] = ()
    """What is worth knowing."""

    def chunks(self, *, size: int = CHUNK) -> Iterator[str]:
        """Goes through the text; none of the chunks is empty."""
        if isinstance(self.content, str):
            yield from (self.content[i : i + size] for i in range(0, len(self.content), size))
            return
        for number, path in enumerate(self.content):
            if number:
                yield "\n"
            yield from filter(None, _decoded(path, size))

    @property
    def size(self) -> int:
        """The number of bytes."""
        if isinstance(self.content, str):
            return len(self.content.encode("utf-8", "replace"))
        return sum(path.stat().st_size for path in self.content)


def read_text(source: str | Path) -> Corpus:
    """Finds a text: built in, a file, or all text files of a folder.

    Of a folder every file in it and below counts, in the order of their paths, but hidden ones and those that are no
    text (which is noted). Files are looked into and not yet read.

    Args:
        source: The name of a built-in text, or a path; a file with such a name is meant by a path, `./python`.

    Examples:
        >>> next(read_text("python").chunks())[:22]
        'The "assert" statement'
    """
    if str(source) in TEXTS:
        return Corpus(TEXTS[str(source)](), name=str(source))
    path = Path(source)
    if path.is_file():
        if not path.stat().st_size:
            raise ValueError(f"{path.name} is empty: a text was wanted")
        return Corpus((path,), name=path.name)
    if path.is_dir():
        return _folder(path)
    beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    close = did_you_mean(path.name, [*beside, *TEXTS])
    raise FileNotFoundError(f"there is no text {str(source)!r}{close} Built in: {', '.join(TEXTS)}")


def _folder(path: Path) -> Corpus:
    found: list[Path] = []
    for folder, folders, files in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder) / name for name in files if not name.startswith(".")]
    files = sorted(file for file in found if file.is_file() and file.stat().st_size)
    kept = tuple(file for file in files if _is_text(file))
    if not kept:
        others = f", but {len(files)} others" if files else ": it is empty"
        raise ValueError(f"{path} has no text files{others}")
    other = [str(file.relative_to(path)) for file in files if file not in set(kept)]
    listed = ", ".join(other[:3]) + (", ..." if len(other) > 3 else "")
    return Corpus(kept, name=path.name, notes=(f"left out, as not text: {listed}",) if other else ())


def _is_text(path: Path) -> bool:
    """Whether a file begins as text does."""
    with path.open("rb") as file:
        head = file.read(CHUNK)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def _decoded(path: Path, size: int) -> Iterator[str]:
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
    done, block = 0, b" "
    with path.open("rb") as file:
        while block:
            block = file.read(size)
            if (zero := block.find(b"\0")) >= 0:
                raise ValueError(f"{path.name} is not text: byte {done + zero} is zero")
            done += len(block)
            try:
                yield decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                at = done - len(error.object) + error.start
                came = f"{error.object[error.start]:#04x} ({error.reason})"
                raise ValueError(f"{path.name} is not text in UTF-8: byte {at} is {came}") from None


@dataclass(frozen=True, eq=False)
class TokenizedCorpus:
    """Holds the tokens of a text, mapped into memory: only what is looked at is read.

    Examples:
        >>> from lawful.data.text import Bytes
        >>> first, rest = tokenize_corpus(Corpus("0123456789"), Bytes()).split()
        >>> first.tolist(), rest.tolist()
        ([48, 49, 50, 51, 52, 53, 54, 55, 56], [57])
    """

    ids: Shaped[Tensor, "n"]
    """The tokens, as whole numbers of 8, 16 or 32 bits without sign."""
    fingerprint: str
    """What tells them apart from others: a checksum."""

    def __len__(self) -> int:
        return len(self.ids)

    def split(self, *, fraction: float = 0.9) -> tuple[Shaped[Tensor, "_"], Shaped[Tensor, "_"]]:
        """The first tokens, to train on, and the rest, to validate with."""
        if not 0 < fraction < 1:
            raise ValueError(f"a fraction is between 0 and 1: got {fraction}")
        cut = int(fraction * len(self))
        return self.ids[:cut], self.ids[cut:]


def tokenize_corpus(text: Corpus, tokenizer: Tokenizer, *, into: str | Path | None = None) -> TokenizedCorpus:
    r"""Encodes a text chunk by chunk into a file, and maps that; the memory that it takes does not grow with the text.

    Chunks end at ends of lines, where no word and no blank is cut: so the tokens of byte pairs are those of the text as
    a whole, unless it has no single ends of lines for a long stretch.

    Args:
        text: The text.
        tokenizer: What numbers it.
        into: The file for the tokens; it is there once it is complete. By default one that the system forgets.

    Examples:
        >>> from lawful.data.text import Characters
        >>> tokenize_corpus(Corpus("abba"), Characters("ab")).ids
        tensor([0, 1, 1, 0], dtype=torch.uint8)
    """
    if into is None:
        with tempfile.TemporaryFile(prefix="lawful-") as file:
            return _mapped(file, *_written(text, tokenizer, file))
    path = Path(into)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w+b") as file:
            tokens = _mapped(file, *_written(text, tokenizer, file))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return tokens


def _written(text: Corpus, tokenizer: Tokenizer, file: BinaryIO) -> tuple[np.dtype, int, str]:
    """Writes tokens; returns their type, their number and their checksum."""
    dtype, digest, count = dtype_of(tokenizer.vocab), hashlib.sha256(), 0
    for chunk in _by_lines(text.chunks()):
        tokens = tokenizer.array(chunk).astype(dtype, copy=False)
        digest.update(tokens.data)
        tokens.tofile(file)
        count += len(tokens)
    if not count:
        raise ValueError(f"{text.name} is empty: a text was wanted")
    file.flush()
    return dtype, count, digest.hexdigest()


def _mapped(file: BinaryIO, dtype: np.dtype, count: int, digest: str) -> TokenizedCorpus:
    ids = np.memmap(file, dtype=dtype, mode="c", shape=(count,))
    return TokenizedCorpus(torch.from_numpy(ids), f"{dtype} {digest}")


def _by_lines(chunks: Iterator[str]) -> Iterator[str]:
    """Cuts a text behind ends of lines with no blank on either side, where there are any."""
    held = ""
    for chunk in chunks:
        held += chunk
        if end := _end(held):
            yield held[:end]
            held = held[end:]
    if held:
        yield held


def _end(text: str) -> int:
    """Where a text may be cut; in the middle of a line if there is no better place."""
    end = text.rfind("\n", 0, len(text) - 1)
    while end > 0:
        if not text[end - 1].isspace() and not text[end + 1].isspace():
            return end + 1
        end = text.rfind("\n", 0, end)
    return len(text)
