"""Reading text: a file, a folder or what is built in, piece by piece and never as a whole."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lawful.data.text.builtin import TEXTS
from lawful.laws.language.law import nearest

CHUNK = 2**18
"""The bytes that are read at once."""


@dataclass(frozen=True)
class Text:
    r"""Is a text that may be larger than the memory: it is read in chunks, as often as is wanted.

    Of files, every ending of lines is read as `\n`, a byte-order mark is left out, and between two files stands one
    more `\n`.

    Examples:
        >>> list(Text("to be, or not", name="words").chunks(size=6))
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


def read_text(source: str | Path) -> Text:
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
        return Text(TEXTS[str(source)](), name=str(source))
    path = Path(source)
    if path.is_file():
        if not path.stat().st_size:
            raise ValueError(f"{path.name} is empty: a text was wanted")
        return Text((path,), name=path.name)
    if path.is_dir():
        return _folder(path)
    beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    close = nearest(path.name, [*beside, *TEXTS])
    raise FileNotFoundError(f"there is no text {str(source)!r}{close} Built in: {', '.join(TEXTS)}")


def _folder(path: Path) -> Text:
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
    return Text(kept, name=path.name, notes=(f"left out, as not text: {listed}",) if other else ())


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
