"""New texts for a classifier: with their classes where these are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lawful.recipes.language.labelled import BUILTIN, all_of, existing, files_of, longest, words_of

TABLES = (".csv", ".tsv", ".tab")
"""How the names of tables end, unless it is known that there are columns."""


@dataclass(frozen=True)
class Texts:
    """Texts, the number of the class of each where all are known, and the file of each where it has its own."""

    texts: tuple[str, ...]
    labels: tuple[int, ...] | None = None
    files: tuple[str, ...] | None = None


def read_texts(
    source: str | Path, *, classes: Sequence[str], text: str | None = None, target: str | None = None
) -> Texts:
    """Reads texts to classify: a row of a table each, or a file each.

    A folder with a folder for each class, and a table with the column of the classes, have labels.

    Args:
        source: A CSV or TSV file, another file of text, a folder of those, or the name of built-in texts.
        classes: The classes that are known.
        text: The column with the texts; by default that of the longest.
        target: The column with the classes; by default the last of the others, if it has nothing else.
    """
    if str(source) in BUILTIN:
        found = BUILTIN[str(source)]()
        if found.classes != tuple(classes):
            raise ValueError(f"{source} has other classes than this run: {', '.join(found.classes)}")
        return Texts(found.texts, found.labels)
    path = existing(str(source))
    if path.is_dir() or (text is None and path.suffix.lower() not in TABLES):
        return _of_files(path, classes)
    words = words_of(path, text)
    text = text or longest(words, but=target)
    others = [name for name in words if name != text]
    if target is None and others and set(words[others[-1]]) <= set(classes):
        target = others[-1]
    said = words.get(target or "", [])
    known = bool(said) and all(word.strip() for word in said)
    return Texts(tuple(words[text]), numbered(said, classes, of=path.name) if known else None)


def _of_files(path: Path, classes: Sequence[str]) -> Texts:
    files = files_of(path) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path.name} has no files: texts were wanted")
    parents = [file.relative_to(path).parts[0] for file in files] if path.is_dir() else []
    labels = numbered(parents, classes, of=path.name) if parents and set(parents) <= set(classes) else None
    return Texts(tuple(map(all_of, files)), labels, tuple(map(str, files)))


def numbered(said: Sequence[str], classes: Sequence[str], *, of: str) -> tuple[int, ...]:
    """The numbers of classes that are known.

    Examples:
        >>> numbered(["b", "a"], ["a", "b"], of="new.csv")
        (1, 0)
    """
    numbers = {name: number for number, name in enumerate(classes)}
    unknown = next((word for word in said if word not in numbers), None)
    if unknown is not None:
        raise ValueError(f"{of} has the unknown class {unknown!r}: known are {', '.join(map(repr, classes[:20]))}")
    return tuple(numbers[word] for word in said)
