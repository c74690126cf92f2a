"""Text corpora: files, folders and built-in texts, read in chunks and tokenized into a memory-mapped file."""

from __future__ import annotations

import codecs
import hashlib
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from lawful._files import open_file, written_files
from lawful._suggest import did_you_mean
from lawful.data._inputs import walk_folder
from lawful.data.batches import make_generator
from lawful.data.text.pairs import Pairs
from lawful.data.text.tokenizers import Tokenizer, _id_dtype


def python_topics() -> str:
    """Returns the language reference that ships with Python, about 460,000 characters of English.

    The text depends on the Python version.

    Examples:
        >>> python_topics()[:22]
        'The "assert" statement'
    """
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


TEXTS: dict[str, Callable[[], str]] = {"python": python_topics}
"""Built-in texts by name."""


def dates(*, samples: int = 10_000, seed: int = 0) -> Pairs:
    """Returns random dates in human formats, paired with their ISO 8601 form.

    Args:
        samples: Number of dates, between 1900 and 2099.
        seed: Random seed.

    Examples:
        >>> pairs = dates(samples=3)
        >>> len(pairs), len(pairs.targets[0])
        (3, 10)
    """
    _check_samples(samples)
    generator = make_generator(seed)
    first = date(1900, 1, 1)
    days = torch.randint((date(2100, 1, 1) - first).days, (samples,), generator=generator).tolist()
    forms = torch.randint(len(_FORMS), (samples,), generator=generator).tolist()
    sampled = [first + timedelta(days=day) for day in days]
    return Pairs(
        tuple(_FORMS[form](day) for form, day in zip(forms, sampled, strict=True)),
        tuple(day.isoformat() for day in sampled),
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
    """Returns random strings of digits, paired with their sorted form.

    Args:
        samples: Number of strings. Short strings repeat.
        length: Digits per string.
        digits: Number of distinct digits, between 2 and 10.
        seed: Random seed.

    Examples:
        >>> pairs = sorting(samples=100)
        >>> all("".join(sorted(x)) == y for x, y in zip(pairs.sources, pairs.targets))
        True
    """
    _check_samples(samples)
    if length < 1 or not 2 <= digits <= 10:
        raise ValueError(f"length must be at least 1 and digits between 2 and 10: got {length} and {digits}")
    sampled = torch.randint(digits, (samples, length), generator=make_generator(seed))
    words = ["".join(map(str, row)) for row in sampled.tolist()]
    return Pairs(tuple(words), tuple("".join(sorted(word)) for word in words), name="sorting")


TASKS: dict[str, Callable[[], Pairs]] = {"dates": dates, "sorting": sorting}
"""Built-in sequence-to-sequence tasks by name."""


def _check_samples(samples: int) -> None:
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")


_CHUNK = 2**18
"""Number of bytes read at a time."""


@dataclass(frozen=True)
class Corpus:
    r"""A text that may be larger than memory. It is read in chunks.

    Files are decoded as UTF-8 with universal newlines and without a byte-order mark, and joined by `\n`.

    Examples:
        >>> list(Corpus("to be, or not", name="words").chunks(size=6))
        ['to be,', ' or no', 't']
    """

    content: str | tuple[Path, ...]
    """The text, or the paths of its files."""
    name: str = "text"
    """Name shown in messages."""
    notes: tuple[str, ...] = ()
    """Notes for the user, such as skipped files."""

    def chunks(self, *, size: int = _CHUNK) -> Iterator[str]:
        """Yields the text in non-empty chunks."""
        if isinstance(self.content, str):
            yield from (self.content[i : i + size] for i in range(0, len(self.content), size))
            return
        for number, path in enumerate(self.content):
            if number:
                yield "\n"
            yield from filter(None, _read_chunks(path, size))

    @property
    def size(self) -> int:
        """Number of bytes."""
        if isinstance(self.content, str):
            return len(self.content.encode("utf-8", "replace"))
        return sum(path.stat().st_size for path in self.content)


def read_text(source: str | Path) -> Corpus:
    """Opens a built-in text, a file, or all text files below a folder.

    Files of a folder are sorted by path. Hidden files are skipped; so are files that are not UTF-8 text, with a note.

    Args:
        source: Name of a built-in text, or a path. Write `./python` for a file named like a built-in text.

    Examples:
        >>> next(read_text("python").chunks())[:22]
        'The "assert" statement'
    """
    if str(source) in TEXTS:
        return Corpus(TEXTS[str(source)](), name=str(source))
    path = Path(source)
    if path.is_file():
        if not path.stat().st_size:
            raise ValueError(f"{path.name} is empty")
        return Corpus((path,), name=path.name)
    if path.is_dir():
        return _folder(path)
    if path.exists():
        open_file(path).close()
    beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    close = did_you_mean(path.name, [*beside, *TEXTS])
    raise FileNotFoundError(f"no such text: {str(source)!r}{close} Built-in texts: {', '.join(TEXTS)}")


def _folder(path: Path) -> Corpus:
    found = walk_folder(path)
    files = [file for file in found.files if file.stat().st_size]
    texts = tuple(file for file in files if _is_text(file))
    if not texts:
        raise ValueError(f"{path} has no text files among {len(files)} non-empty files")
    other = [str(file.relative_to(path)) for file in files if file not in set(texts)]
    outside = [str(link.relative_to(path)) for link in found.links]
    notes = [f"skipped files that are not UTF-8 text: {_listed(other)}"] if other else []
    notes += [f"skipped links out of the folder: {_listed(outside)}"] if outside else []
    return Corpus(texts, name=path.name, notes=tuple(notes))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _is_text(path: Path) -> bool:
    """Returns whether the head of a file is valid UTF-8 text."""
    with open_file(path) as file:
        head = file.read(_CHUNK)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def _read_chunks(path: Path, size: int) -> Iterator[str]:
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
    done, block = 0, b" "
    with open_file(path) as file:
        while block:
            block = file.read(size)
            if (zero := block.find(b"\0")) >= 0:
                raise ValueError(f"{path.name} is not text: byte {done + zero} is NUL")
            done += len(block)
            try:
                yield decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                at = done - len(error.object) + error.start
                byte = f"{error.object[error.start]:#04x} ({error.reason})"
                raise ValueError(f"{path.name} is not UTF-8 text: byte {at} is {byte}") from None


@dataclass(frozen=True, eq=False)
class TokenizedCorpus:
    """Memory-mapped token ids of a corpus.

    Examples:
        >>> from lawful.data.text import ByteTokenizer
        >>> first, rest = tokenize_corpus(Corpus("0123456789"), ByteTokenizer()).split()
        >>> first.tolist(), rest.tolist()
        ([48, 49, 50, 51, 52, 53, 54, 55, 56], [57])
    """

    ids: Shaped[Tensor, "n"]
    """Token ids as uint8, uint16 or uint32."""
    fingerprint: str
    """Checksum of the token ids."""

    def __len__(self) -> int:
        return len(self.ids)

    def split(self, *, fraction: float = 0.9) -> tuple[Shaped[Tensor, "_"], Shaped[Tensor, "_"]]:
        """Returns the leading tokens for training and the rest for validation."""
        if not 0 < fraction < 1:
            raise ValueError(f"fraction must be between 0 and 1, got {fraction}")
        cut = int(fraction * len(self))
        return self.ids[:cut], self.ids[cut:]


def tokenize_corpus(text: Corpus, tokenizer: Tokenizer, *, into: str | Path | None = None) -> TokenizedCorpus:
    r"""Tokenizes a corpus in constant memory, chunk by chunk, into a memory-mapped file.

    Chunks end at newlines between words, so that byte-pair encoding gives the same tokens as on the whole text, unless
    the text has long stretches without newlines.

    Args:
        text: Corpus.
        tokenizer: Tokenizer.
        into: Output file, written atomically. Defaults to an unnamed temporary file.

    Examples:
        >>> from lawful.data.text import CharTokenizer
        >>> tokenize_corpus(Corpus("abba"), CharTokenizer("ab")).ids
        tensor([0, 1, 1, 0], dtype=torch.uint8)
    """
    if into is None:
        with tempfile.TemporaryFile(prefix="lawful-") as file:
            return _memory_map(file, *_write_tokens(text, tokenizer, file))
    with written_files(Path(into)) as path, path.open("x+b") as file:
        return _memory_map(file, *_write_tokens(text, tokenizer, file))


def _write_tokens(text: Corpus, tokenizer: Tokenizer, file: BinaryIO) -> tuple[np.dtype, int, str]:
    """Writes the token ids. Returns their dtype, count and checksum."""
    dtype, digest, count = _id_dtype(tokenizer.vocab_size), hashlib.sha256(), 0
    for chunk in _by_lines(text.chunks()):
        tokens = tokenizer.encode_array(chunk).astype(dtype, copy=False)
        digest.update(tokens.data)
        tokens.tofile(file)
        count += len(tokens)
    if not count:
        raise ValueError(f"{text.name} is empty")
    file.flush()
    return dtype, count, digest.hexdigest()


def _memory_map(file: BinaryIO, dtype: np.dtype, count: int, digest: str) -> TokenizedCorpus:
    ids = np.memmap(file, dtype=dtype, mode="c", shape=(count,))
    return TokenizedCorpus(torch.from_numpy(ids), f"{dtype} {digest}")


def _by_lines(chunks: Iterator[str]) -> Iterator[str]:
    """Rechunks a text at newlines without whitespace on either side, where possible."""
    pending = ""
    for chunk in chunks:
        pending += chunk
        if end := _cut_position(pending):
            yield pending[:end]
            pending = pending[end:]
    if pending:
        yield pending


def _cut_position(text: str) -> int:
    """Returns where to cut a text: after a newline if possible, else at its end."""
    end = text.rfind("\n", 0, len(text) - 1)
    while end > 0:
        if not text[end - 1].isspace() and not text[end + 1].isspace():
            return end + 1
        end = text.rfind("\n", 0, end)
    return len(text)
