"""Texts for classification: labeled texts for training, and new texts for prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from lawful._files import open_file
from lawful.data._inputs import list_files
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
_CLASS_COLUMNS = ("label", "labels", "class", "target", "category")
"""Usual names of a class column, case-insensitive."""


@dataclass(frozen=True)
class LabeledTexts:
    """Texts with class labels."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    name: str
    columns: tuple[str, str] | None = None
    """Column names of the texts and labels, if read from a table."""
    has_header: bool = True
    """Whether the column names come from the file."""
    notes: tuple[str, ...] = ()
    """Notes for the user, such as rows that were left out."""

    @classmethod
    def from_pairs(
        cls, pairs: Sequence[tuple[str, str]], *, name: str, columns: tuple[str, str] | None = None
    ) -> LabeledTexts:
        """Builds the dataset from pairs of text and class name. Classes are sorted."""
        classes = tuple(sorted({label for _, label in pairs}))
        if len(classes) < 2:
            found = f": {classes[0]!r}" if classes else ""
            raise ValueError(f"{name} must have texts of at least 2 classes, got {len(classes)}{found}")
        numbers = {label: number for number, label in enumerate(classes)}
        texts, labels = tuple(text for text, _ in pairs), tuple(numbers[label] for _, label in pairs)
        return cls(texts, labels, classes, name, columns)

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, indices: Iterable[int]) -> LabeledTexts:
        """Returns the texts at these indices."""
        chosen = list(indices)
        texts, labels = tuple(self.texts[i] for i in chosen), tuple(self.labels[i] for i in chosen)
        return replace(self, texts=texts, labels=labels)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of texts, labels and classes."""
        return sha256(repr((self.texts, self.labels, self.classes)).encode("utf-8", "replace")).hexdigest()


def read_labeled_texts(source: str, *, text: str | None = None, target: str | None = None) -> LabeledTexts:
    """Reads labeled texts. Rows without a text or a class, and empty files, are left out with a note.

    A table has no header if its first row has a class that occurs below; its columns are then named `x1`, `x2`, ...

    Args:
        source: A CSV or TSV file, a folder with one subfolder of text files per class, or the built-in `topics`.
        text: Column of the texts. Defaults to the column with the longest texts.
        target: Column of the classes. Defaults to a column with a usual name, such as label, or the last other column.
    """
    if source in _BUILTIN:
        return _BUILTIN[source]()
    path = _resolve(source)
    if path.is_dir():
        return _read_class_folders(path)
    has_header, chosen = True, _choose_columns(_read_columns(path), path.name, text, target)
    if text is None and target is None and chosen.is_row(chosen.target):
        has_header, chosen = False, _choose_columns(_read_columns(path, header=False), path.name)
    rows = list(zip(chosen.words[chosen.text], chosen.words[chosen.target], strict=True))
    pairs = [(words, label) for words, label in rows if words and label]
    labeled = LabeledTexts.from_pairs(pairs, name=path.name, columns=(chosen.text, chosen.target))
    if len(labeled.classes) > len(labeled) / 2:
        others = [name for name in chosen.words if name not in (chosen.text, chosen.target)]
        remedy = f"choose another target: {', '.join(others)}" if others else "several texts per class are needed"
        counts = f"{len(labeled.classes)} classes in {len(labeled)} texts"
        raise ValueError(f"column {chosen.target!r} of {path.name} has {counts}: {remedy}")
    notes = [] if has_header else [f"{path.name} has no header: its columns are named {', '.join(chosen.words)}"]
    if left := len(rows) - len(pairs):
        missing = [f"{sum(not row[i] for row in rows)} without a {what}" for i, what in enumerate(("text", "class"))]
        notes.append(f"left out {left} of {len(rows)} rows of {path.name}: {', '.join(missing)}")
    return replace(labeled, has_header=has_header, notes=tuple(notes))


@dataclass(frozen=True)
class _Columns:
    """The columns of a table, with those of the texts and classes."""

    words: Mapping[str, Sequence[str]]
    text: str
    target: str

    def is_row(self, name: str) -> bool:
        """Returns whether the name of the class column is a class: the first row is no header."""
        return name in set(self.words[self.target])


def _choose_columns(
    words: Mapping[str, Sequence[str]], name: str, text: str | None = None, target: str | None = None
) -> _Columns:
    """Chooses the columns of the texts and classes."""
    _check_columns(words, name, text, target)
    if len(words) < 2:
        raise ValueError(f"{name} needs a text column and a class column, it has {', '.join(words)}")
    usual = next((key for key in words if key.lower() in _CLASS_COLUMNS and key != text), None)
    text = text or _longest_column(words, exclude=target or usual)
    target = target or usual or [key for key in words if key != text][-1]
    if text == target:
        raise ValueError(f"text and target must be different columns, got {text!r} for both")
    return _Columns(words, text, target)


def _resolve(source: str) -> Path:
    """Returns the path of a non-empty file or a folder."""
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"no such file or folder: {source!r}. Built-in texts: {', '.join(_BUILTIN)}")
    if not path.is_dir():
        open_file(path).close()
        if not path.stat().st_size:
            raise ValueError(f"{path.name} is empty")
    return path


def _read_columns(path: Path, *, header: bool | None = None) -> dict[str, list[str]]:
    """Reads the columns of a table as strings. Only an empty value is missing: `null` and `NA` are texts."""
    columns = read_delimited(path, header=header).columns
    return {name: [word.strip() for word in values.text or ()] for name, values in columns.items()}


def _check_columns(words: Mapping[str, Sequence[str]], where: str, *required: str | None) -> None:
    """Raises if a table does not have a column."""
    for name in filter(None, required):
        if name not in words:
            raise ValueError(f"{where} has no column {name!r}, it has {', '.join(words)}")


def _longest_column(words: Mapping[str, Sequence[str]], *, exclude: str | None) -> str:
    """Returns the column with the longest texts."""
    return max((name for name in words if name != exclude), key=lambda name: sum(map(len, words[name])))


def _read_class_folders(path: Path) -> LabeledTexts:
    """Reads one subfolder of text files per class."""
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not folders:
        raise ValueError(f"{path.name} has no subfolders, expected one folder of text files per class")
    files = [(file, folder.name) for folder in folders for file in list_files(folder)]
    pairs = [(text, label) for file, label in files if (text := _read_file(file)).strip()]
    labeled = LabeledTexts.from_pairs(pairs, name=path.name)
    left = len(files) - len(pairs)
    return replace(labeled, notes=(f"left out {left} of {len(files)} files of {path.name}: empty",) if left else ())


def _read_file(file: Path) -> str:
    return "".join(read_text(file).chunks()) if file.stat().st_size else ""


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
    source: str | Path,
    *,
    classes: Sequence[str],
    text: str | None = None,
    target: str | None = None,
    has_header: bool | None = None,
) -> NewTexts:
    """Reads texts to classify: the rows of a table, or whole files.

    Labels are read if the folder has one subfolder per class, or the table has a class column.

    Args:
        source: A CSV or TSV file, a text file, a folder of text files, or the built-in `topics`. With `text`, a text
            file has one text per line, unless it is a table with this column.
        classes: Class names of the classifier.
        text: Column of the texts. Defaults to the column with the longest texts.
        target: Column of the classes. Defaults to the last other column, if it holds only known classes.
        has_header: Whether the first row of a table is a header. Detected by default.
    """
    if str(source) in _BUILTIN:
        builtin = _BUILTIN[str(source)]()
        if builtin.classes != tuple(classes):
            raise ValueError(f"{source} has other classes than this run: {', '.join(builtin.classes)}")
        return NewTexts(builtin.texts, builtin.labels)
    path = _resolve(str(source))
    if path.is_dir() or (text is None and path.suffix.lower() not in _TABLES):
        return _read_files(path, classes)
    if path.suffix.lower() == ".txt" and has_header is not False:
        lines = [line.strip() for line in _read_file(path).splitlines() if line.strip()]
        if lines and not any(text in lines[0].split(mark) for mark in ",;\t|"):
            return NewTexts(tuple(lines))
    words = _read_columns(path, header=has_header)
    if len(words) == 1 and has_header is False:
        text, target = next(iter(words)), None
    _check_columns(words, path.name, text)
    text = text or _longest_column(words, exclude=target)
    others = [name for name in words if name != text]
    if target is None and others and set(words[others[-1]]) <= set(classes):
        target = others[-1]
    labels = words.get(target or "", [])
    known = bool(labels) and all(word.strip() for word in labels)
    return NewTexts(tuple(words[text]), _class_indices(labels, classes, where=path.name) if known else None)


def _read_files(path: Path, classes: Sequence[str]) -> NewTexts:
    files = list_files(path) if path.is_dir() else [path]
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
