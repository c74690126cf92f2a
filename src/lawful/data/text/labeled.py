"""Texts for classification: labeled texts for training, and new texts for prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from lawful.data.tables import read_delimited
from lawful.data.text.corpus import read_text

_GROUPS = {
    "statements": ("assert", "assignment", "augassign", "class", "compound", "del", "for", "global", "import", "try"),
    "expressions": ("attribute-references", "calls", "comparisons", "operator-summary", "subscriptions", "slicings"),
    "objects": ("objects", "specialnames", "customization", "attribute-access", "types", "execmodel"),
    "containers": ("typesseq", "typesmapping", "typesseq-mutable", "sequence-types", "dict", "lists"),
    "strings": ("formatstrings", "string-methods", "strings"),
    "debugger": ("debugger",),
}
"""Topics of the Python reference by class."""
_MIN_PARAGRAPH = 40
"""Minimum number of characters of a paragraph."""


@dataclass(frozen=True)
class LabeledTexts:
    """Texts with class labels."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    name: str
    columns: tuple[str, str] | None = None
    """Column names of the texts and labels, if read from a table."""

    @classmethod
    def from_pairs(
        cls, pairs: Sequence[tuple[str, str]], *, name: str, columns: tuple[str, str] | None = None
    ) -> LabeledTexts:
        """Builds the dataset from pairs of text and class name. Classes are sorted."""
        classes = tuple(sorted({label for _, label in pairs}))
        if len(classes) < 2:
            raise ValueError(f"{name} must have texts of at least 2 classes, got {len(classes)}")
        numbers = {label: number for number, label in enumerate(classes)}
        texts, labels = tuple(text for text, _ in pairs), tuple(numbers[label] for _, label in pairs)
        return cls(texts, labels, classes, name, columns)

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, chosen: Sequence[int]) -> LabeledTexts:
        """Returns the texts at these indices."""
        texts, labels = tuple(self.texts[i] for i in chosen), tuple(self.labels[i] for i in chosen)
        return replace(self, texts=texts, labels=labels)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of texts, labels and classes."""
        return sha256(repr((self.texts, self.labels, self.classes)).encode("utf-8", "replace")).hexdigest()


def read_labeled_texts(source: str, *, text: str | None = None, target: str | None = None) -> LabeledTexts:
    """Reads labeled texts.

    Args:
        source: A CSV or TSV file, a folder with one subfolder of text files per class, or the built-in `topics`.
        text: Column of the texts. Defaults to the column with the longest texts.
        target: Column of the classes. Defaults to the last other column.
    """
    if source in _BUILTIN:
        return _BUILTIN[source]()
    path = _resolve(source)
    if path.is_dir():
        return LabeledTexts.from_pairs(list(_read_folder(path)), name=path.name)
    words = _read_columns(path, text, target)
    if len(words) < 2:
        raise ValueError(f"{path.name} needs a text column and a class column, it has {', '.join(words)}")
    text = text or _longest_column(words, exclude=target)
    target = target or [name for name in words if name != text][-1]
    if text == target:
        raise ValueError(f"text and target must be different columns, got {text!r} for both")
    pairs = [pair for pair in zip(words[text], words[target], strict=True) if pair[0].strip() and pair[1].strip()]
    return LabeledTexts.from_pairs(pairs, name=path.name, columns=(text, target))


def _resolve(source: str) -> Path:
    """Returns the path of a non-empty file or a folder."""
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"no such file or folder: {source!r}. Built-in texts: {', '.join(_BUILTIN)}")
    if path.is_file() and not path.stat().st_size:
        raise ValueError(f"{path.name} is empty")
    return path


def _read_columns(path: Path, *required: str | None) -> dict[str, list[str]]:
    """Reads the columns of a table as strings."""
    columns = read_delimited(path).columns
    for name in filter(None, required):
        if name not in columns:
            raise ValueError(f"{path.name} has no column {name!r}, it has {', '.join(columns)}")
    return {name: [word or "" for word in values.words] for name, values in columns.items()}


def _longest_column(words: Mapping[str, Sequence[str]], *, exclude: str | None) -> str:
    """Returns the column with the longest texts."""
    return max((name for name in words if name != exclude), key=lambda name: sum(map(len, words[name])))


def _read_folder(path: Path) -> Iterator[tuple[str, str]]:
    for folder in sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")):
        for file in _list_files(folder):
            if file.stat().st_size:
                yield _read_file(file), folder.name


def _list_files(folder: Path) -> list[Path]:
    """Returns all files below a folder except hidden ones."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))


def _read_file(file: Path) -> str:
    return "".join(read_text(file).chunks())


def topics() -> LabeledTexts:
    """Returns paragraphs of the Python reference, labeled by topic. Paragraphs of several topics are left out.

    Examples:
        >>> topics().classes
        ('containers', 'debugger', 'expressions', 'objects', 'statements', 'strings')
    """
    from pydoc_data.topics import topics as pages

    groups: dict[str, set[str]] = {}
    for group, names in _GROUPS.items():
        for paragraph in (p for name in names for p in pages.get(name, "").split("\n\n")):
            words = " ".join(paragraph.split())
            if len(words) >= _MIN_PARAGRAPH:
                groups.setdefault(words, set()).add(group)
    unique = [(words, min(of)) for words, of in sorted(groups.items()) if len(of) == 1]
    return LabeledTexts.from_pairs(unique, name="topics")


_BUILTIN: dict[str, Callable[[], LabeledTexts]] = {"topics": topics}


_TABLES = (".csv", ".tsv", ".tab")


@dataclass(frozen=True)
class NewTexts:
    """Texts to classify, with labels and file names where known."""

    texts: tuple[str, ...]
    labels: tuple[int, ...] | None = None
    files: tuple[str, ...] | None = None


def read_texts(
    source: str | Path, *, classes: Sequence[str], text: str | None = None, target: str | None = None
) -> NewTexts:
    """Reads texts to classify: the rows of a table, or whole files.

    Labels are read if the folder has one subfolder per class, or the table has a class column.

    Args:
        source: A CSV or TSV file, a text file, a folder of text files, or the built-in `topics`.
        classes: Class names of the classifier.
        text: Column of the texts. Defaults to the column with the longest texts.
        target: Column of the classes. Defaults to the last other column, if it holds only known classes.
    """
    if str(source) in _BUILTIN:
        builtin = _BUILTIN[str(source)]()
        if builtin.classes != tuple(classes):
            raise ValueError(f"{source} has other classes than this run: {', '.join(builtin.classes)}")
        return NewTexts(builtin.texts, builtin.labels)
    path = _resolve(str(source))
    if path.is_dir() or (text is None and path.suffix.lower() not in _TABLES):
        return _read_files(path, classes)
    words = _read_columns(path, text)
    text = text or _longest_column(words, exclude=target)
    others = [name for name in words if name != text]
    if target is None and others and set(words[others[-1]]) <= set(classes):
        target = others[-1]
    labels = words.get(target or "", [])
    known = bool(labels) and all(word.strip() for word in labels)
    return NewTexts(tuple(words[text]), _class_indices(labels, classes, where=path.name) if known else None)


def _read_files(path: Path, classes: Sequence[str]) -> NewTexts:
    files = _list_files(path) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path.name} has no files")
    parents = [file.relative_to(path).parts[0] for file in files] if path.is_dir() else []
    labels = _class_indices(parents, classes, where=path.name) if parents and set(parents) <= set(classes) else None
    return NewTexts(tuple(map(_read_file, files)), labels, tuple(map(str, files)))


def _class_indices(labels: Sequence[str], classes: Sequence[str], *, where: str) -> tuple[int, ...]:
    """Returns the index of each label.

    Examples:
        >>> _class_indices(["b", "a"], ["a", "b"], where="new.csv")
        (1, 0)
    """
    numbers = {name: number for number, name in enumerate(classes)}
    unknown = next((word for word in labels if word not in numbers), None)
    if unknown is not None:
        raise ValueError(f"{where} has the unknown class {unknown!r}, expected {', '.join(map(repr, classes[:20]))}")
    return tuple(numbers[word] for word in labels)
