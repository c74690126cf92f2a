"""Texts with labels: from a table, from a folder for each class, or built in.

New texts for a classifier: with their classes where these are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from lawful.data import read_delimited
from lawful.data.text import read_text

GROUPS = {
    "statements": ("assert", "assignment", "augassign", "class", "compound", "del", "for", "global", "import", "try"),
    "expressions": ("attribute-references", "calls", "comparisons", "operator-summary", "subscriptions", "slicings"),
    "objects": ("objects", "specialnames", "customization", "attribute-access", "types", "execmodel"),
    "containers": ("typesseq", "typesmapping", "typesseq-mutable", "sequence-types", "dict", "lists"),
    "strings": ("formatstrings", "string-methods", "strings"),
    "debugger": ("debugger",),
}
"""Topics of the Python reference, by what they are about."""
SHORTEST = 40
"""The characters that a paragraph of it has at least."""


@dataclass(frozen=True)
class Labelled:
    """Texts, the number of the class of each, and the names of the classes."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    name: str
    columns: tuple[str, str] | None = None
    """The names of the columns of the texts and of the classes, of a table."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]], *, name: str, columns: tuple[str, str] | None = None) -> Labelled:
        """Numbers the classes of pairs of a text and a class, in the order of the alphabet."""
        classes = tuple(sorted({label for _, label in pairs}))
        if len(classes) < 2:
            raise ValueError(f"{name} is to have texts of at least two classes: got {len(classes)}")
        numbers = {label: number for number, label in enumerate(classes)}
        texts, labels = tuple(text for text, _ in pairs), tuple(numbers[label] for _, label in pairs)
        return cls(texts, labels, classes, name, columns)

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, chosen: Sequence[int]) -> Labelled:
        """Some of the texts."""
        texts, labels = tuple(self.texts[i] for i in chosen), tuple(self.labels[i] for i in chosen)
        return replace(self, texts=texts, labels=labels)

    @property
    def fingerprint(self) -> str:
        """What tells them apart from others."""
        held = repr((self.texts, self.labels, self.classes)).encode("utf-8", "replace")
        return sha256(held).hexdigest()


def read_labelled(source: str, *, text: str | None = None, target: str | None = None) -> Labelled:
    """Reads texts with labels.

    Args:
        source: A CSV or TSV file, a folder with a folder of text files for each class, or `topics`.
        text: The column with the texts; by default that of the longest.
        target: The column with the classes; by default the last of the others.
    """
    if source in BUILTIN:
        return BUILTIN[source]()
    path = existing(source)
    if path.is_dir():
        return Labelled.of(list(_of_folder(path)), name=path.name)
    words = words_of(path, text, target)
    if len(words) < 2:
        raise ValueError(f"{path.name} is to have a column of texts and one of classes: it has {', '.join(words)}")
    text = text or longest(words, but=target)
    target = target or [name for name in words if name != text][-1]
    if text == target:
        raise ValueError(f"texts and classes are in two columns: got {text!r} for both")
    pairs = [pair for pair in zip(words[text], words[target], strict=True) if pair[0].strip() and pair[1].strip()]
    return Labelled.of(pairs, name=path.name, columns=(text, target))


def existing(source: str) -> Path:
    """The file or folder of a name, which is to be there, and not empty."""
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {source!r}; built in: {', '.join(BUILTIN)}")
    if path.is_file() and not path.stat().st_size:
        raise ValueError(f"{path.name} is empty: texts were wanted")
    return path


def words_of(path: Path, *wanted: str | None) -> dict[str, list[str]]:
    """The words of each column of a table, which is to have those that are wanted."""
    columns = read_delimited(path).columns
    for name in filter(None, wanted):
        if name not in columns:
            raise ValueError(f"{path.name} has no column {name!r}: it has {', '.join(columns)}")
    return {name: [word or "" for word in values.words] for name, values in columns.items()}


def longest(words: Mapping[str, Sequence[str]], *, but: str | None) -> str:
    """The column with the longest texts."""
    return max((name for name in words if name != but), key=lambda name: sum(map(len, words[name])))


def _of_folder(path: Path) -> Iterator[tuple[str, str]]:
    for folder in sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")):
        for file in files_of(folder):
            if file.stat().st_size:
                yield all_of(file), folder.name


def files_of(folder: Path) -> list[Path]:
    """The files in a folder and in its folders, but for hidden ones."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))


def all_of(file: Path) -> str:
    """The whole text of a file."""
    return "".join(read_text(file).chunks())


def topics() -> Labelled:
    """The paragraphs of the Python reference, by what their topic is about; those of several groups are left out.

    Examples:
        >>> topics().classes
        ('containers', 'debugger', 'expressions', 'objects', 'statements', 'strings')
    """
    from pydoc_data.topics import topics as found

    groups: dict[str, set[str]] = {}
    for group, names in GROUPS.items():
        for paragraph in (p for name in names for p in found.get(name, "").split("\n\n")):
            words = " ".join(paragraph.split())
            if len(words) >= SHORTEST:
                groups.setdefault(words, set()).add(group)
    return Labelled.of([(words, min(of)) for words, of in sorted(groups.items()) if len(of) == 1], name="topics")


BUILTIN: dict[str, Callable[[], Labelled]] = {"topics": topics}
"""Texts with labels that need no file."""


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
