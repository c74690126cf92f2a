"""A table of raw values, column by column, as a file has them.

Reading tables from text: CSV and its relatives.
Reading tables from Parquet and NumPy files.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress
from pathlib import Path
from zipfile import ZipFile

import numpy as np

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
"""What stands for a missing value, in small or capital letters."""


def number(text: str) -> float | None:
    """Reads a number: NaN where it is missing, nothing where it is a word.

    Examples:
        >>> number(" 1e3 "), number("n/a"), number("1_000")
        (1000.0, nan, None)
    """
    if text.strip().lower() in MISSING:
        return math.nan
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def written(value: float) -> str:
    """Writes a number as a word: a whole one without a point.

    Examples:
        >>> written(3.0), written(0.5)
        ('3', '0.5')
    """
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(float(value))


@dataclass(frozen=True, eq=False)
class Values:
    """Holds a column: as words, as numbers, or as both where words can be read as numbers."""

    text: Sequence[str] | None
    """What the file says, if it is text."""
    numbers: np.ndarray | None
    """As numbers, NaN where one is missing; nothing if some value is a word."""

    @classmethod
    def of_text(cls, text: Sequence[str]) -> Values:
        """Reads numbers if all are."""
        try:
            numbers = np.array(list(map(float, text)), dtype=np.float64)
        except ValueError:
            return cls(text, _numbers(text))
        return cls(text, None if any("_" in word for word in text) else numbers)

    def __len__(self) -> int:
        return len(self.numbers) if self.text is None and self.numbers is not None else len(self.text or ())

    @cached_property
    def words(self) -> list[str | None]:
        """As words; nothing where one is missing."""
        if self.text is None:
            numbers = self.numbers if self.numbers is not None else []
            return [None if math.isnan(value) else written(value) for value in numbers]
        stripped = (word.strip() for word in self.text)
        return [None if word.lower() in MISSING else word for word in stripped]

    @cached_property
    def missing(self) -> np.ndarray:
        """Where a value is missing."""
        if self.numbers is not None:
            return np.isnan(self.numbers)
        return np.fromiter((word is None for word in self.words), dtype=bool, count=len(self))

    def kept(self, where: np.ndarray) -> Values:
        """The column with some of its rows."""
        if self.text is not None:
            return Values.of_text(list(compress(self.text, where)))
        return Values(None, None if self.numbers is None else self.numbers[where])


def _numbers(text: Sequence[str]) -> np.ndarray | None:
    """Numbers of which some are missing; nothing at the first word."""
    numbers = []
    for word in text:
        if (value := number(word)) is None:
            return None
        numbers.append(value)
    return np.array(numbers, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Table:
    """Holds named columns of one length.

    Examples:
        >>> table = Table({"x": Values.of_text(["1", "2"])}, name="data.csv", lines=[2, 3])
        >>> len(table), table.place(1, "x")
        (2, "line 3 of data.csv, column 'x'")
    """

    columns: dict[str, Values]
    """The columns under their names, in order."""
    name: str
    """What the file is called in messages."""
    lines: Sequence[int] | None = None
    """The line of the file at which each row ends; without it, rows are counted from 1."""
    notes: tuple[str, ...] = ()
    """What the reader left out."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def place(self, row: int, column: str) -> str:
        """Says where a value stands."""
        where = f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"
        return f"{where} of {self.name}, column {column!r}"

    def kept(self, where: np.ndarray) -> Table:
        """The table with some of its rows."""
        lines = range(1, len(self) + 1) if self.lines is None else self.lines
        columns = {name: values.kept(where) for name, values in self.columns.items()}
        return Table(columns, self.name, list(compress(lines, where)), self.notes)


def named(names: Sequence[str], *, place: str) -> list[str]:
    """Gives columns without a name one, and refuses a name that stands twice.

    Examples:
        >>> named(["a", " ", "b"], place="data.csv")
        ['a', 'column 2', 'b']
    """
    names = [name.strip() or f"column {i}" for i, name in enumerate(names, 1)]
    first: dict[str, int] = {}
    for i, name in enumerate(names, 1):
        if name in first:
            raise ValueError(f"{place} has two columns {name!r}, the {first[name]}. and the {i}.: rename one")
        first[name] = i
    return names


DELIMITERS = ",;\t|"
LOOK = 100
"""How many rows decide whether the first is a header."""


def read_delimited(path: str | Path, *, header: bool | None = None) -> Table:
    r"""Reads a text file whose rows are lines and whose fields stand between commas, semicolons, tabs or bars.

    The first line says which of them, unless the file ends in `.tsv`. Quotes, a byte-order mark and any ending of lines
    are understood; empty lines are skipped. Of columns without a name, an empty one, and a first one that numbers the
    rows, are left out.

    Args:
        path: The file, in UTF-8.
        header: Whether the first row has the names; by default it has where it does not look like the rows below.
            Without names the columns are `x1`, `x2` and so on.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name) / "data.csv"
        >>> _ = path.write_text('size,colour\n1.5,"red"\n2,blue\n')
        >>> table = read_delimited(path)
        >>> table.columns["size"].numbers, table.columns["colour"].words
        (array([1.5, 2. ]), ['red', 'blue'])
        >>> folder.cleanup()
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            delimiter = "\t" if path.suffix.lower() == ".tsv" else None
            return parsed(lines, name=path.name, header=header, delimiter=delimiter)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 text: {error.reason} ({error.object[error.start]:#04x})") from None


def parsed(lines: Iterable[str], *, name: str, header: bool | None = None, delimiter: str | None = None) -> Table:
    """Makes a table of the lines of a text.

    Args:
        lines: The lines, each with its end.
        name: What to call the text in messages.
        header: Whether the first row has the names; by default it has where it does not look like the rows below.
        delimiter: What stands between fields; by default what the first line says.

    Examples:
        >>> list(parsed(["a;b", "1;2"], name="text").columns)
        ['a', 'b']
    """
    rows, ends = _rows(lines, name, delimiter)
    if not rows:
        raise ValueError(f"{name} is empty: a table with a header and rows was wanted")
    if header is None:
        header = _has_header(rows)
    names = named(rows[0], place=name) if header else [f"x{i}" for i, _ in enumerate(rows[0], 1)]
    unnamed = [key for key, given in zip(names, rows[0], strict=True) if header and not given.strip()]
    rows, ends = rows[header:], ends[header:]
    if not rows:
        raise ValueError(f"{name} has a header and no rows: {', '.join(map(repr, names[:5]))}")
    columns = {key: Values.of_text(text) for key, text in zip(names, zip(*rows, strict=True), strict=True)}
    idle = [key for key in unnamed if columns[key].missing.all() or (key == names[0] and _counts(columns[key]))]
    kept = {key: values for key, values in columns.items() if key not in idle}
    if not kept:
        raise ValueError(f"{name} has no column with a name and values")
    notes = tuple(f"{key}, without a name, is empty or numbers the rows: left out" for key in idle)
    return Table(kept, name, ends, notes)


def _counts(values: Values) -> bool:
    """Whether a column numbers the rows."""
    numbers = values.numbers
    return numbers is not None and np.array_equal(numbers, numbers[0] + np.arange(len(numbers)))


def _rows(lines: Iterable[str], name: str, delimiter: str | None) -> tuple[list[list[str]], list[int]]:
    """The rows, all with the same number of fields, and the line at which each ends."""
    lines, head = iter(lines), []
    for line in lines:
        head.append(line)
        if line.strip():
            break
    delimiter = delimiter or _delimiter("".join(head))
    reader = csv.reader(chain(head, lines), delimiter=delimiter, skipinitialspace=delimiter != "\t", strict=True)
    rows: list[list[str]] = []
    ends: list[int] = []
    width = 0
    try:
        for row in reader:
            if not row or (len(row) == 1 != width and not row[0].strip()):
                continue
            if len(row) != width:
                if width:
                    at = f"line {reader.line_num} of {name}"
                    raise ValueError(f"{at} has {len(row)} fields: {width} were wanted, as in line {ends[0]}")
                width = len(row)
            rows.append(row)
            ends.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num} of {name} cannot be read: {error}") from None
    return rows, ends


def _delimiter(line: str) -> str:
    """What stands most often in the first line, outside quotes."""
    plain = re.sub('"[^"]*"?', "", line)
    return max(DELIMITERS, key=plain.count)


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row is made of words over a column of numbers, or of words alone."""
    words = [number(field) is None for field in rows[0]]
    below = rows[1:LOOK]
    if not any(words) or not below:
        return any(words)
    over_numbers = any(word and all(number(row[i]) is not None for row in below) for i, word in enumerate(words))
    return over_numbers or all(word or not field.strip() for word, field in zip(words, rows[0], strict=True))


BYTES = 2**33
"""The largest archive of arrays that is unpacked."""
NUMBERS, WORDS = ("integer", "floating", "decimal", "null"), ("string", "large_string", "boolean")
"""The types of Parquet that are read."""
INPUTS, TARGETS = ("x", "inputs", "data"), ("y", "targets", "target", "labels", "label")
"""What inputs and targets may be called in an archive, in small or capital letters."""


def read_parquet(path: str | Path) -> Table:
    """Reads a Parquet file: numbers as numbers; text, categories and truth values as words.

    Args:
        path: The file.
    """
    import pyarrow as pa
    import pyarrow.parquet

    path = Path(path)
    try:
        read = pyarrow.parquet.ParquetFile(path).read()
    except Exception as error:
        raise ValueError(f"{path.name} cannot be read as Parquet: {_first_line(error)}") from None
    names = named(read.column_names, place=path.name)
    columns = {}
    for name, column in zip(names, read.columns, strict=True):
        if name.startswith("__index_level_"):
            continue
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if any(getattr(pa.types, f"is_{number}")(kind) for number in NUMBERS):
            numbers = column.cast(kind).cast(pa.float64(), safe=False).to_numpy()
            columns[name] = Values(None, np.array(numbers, dtype=np.float64))
        elif any(getattr(pa.types, f"is_{word}")(kind) for word in WORDS):
            words = ["" if word is None else str(word) for word in column.to_pylist()]
            columns[name] = Values.of_text(words)
        else:
            raise ValueError(f"column {name!r} of {path.name} is {column.type}: numbers or words were wanted")
    return _table(columns, path.name)


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Reads the arrays of a NumPy file; one that needs unpickling is refused.

    Args:
        path: A `.npz` file, or a `.npy` file, whose array has no name.
    """
    path = Path(path)
    try:
        if path.suffix.lower() == ".npy":
            return {"": np.load(path, mmap_mode="r", allow_pickle=False)}
        with ZipFile(path) as archive:
            if (size := sum(item.file_size for item in archive.infolist())) > BYTES:
                raise ValueError(f"it unpacks to {size} bytes: at most {BYTES} were wanted")
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:
        raise ValueError(f"{path.name} cannot be read as arrays of NumPy: {_first_line(error)}") from None


def table_of(arrays: Mapping[str, np.ndarray], *, name: str) -> Table:
    """Makes a table of arrays: of a matrix, of a structured array, of inputs `x` and targets `y`, or of columns.

    Args:
        arrays: The arrays under their names.
        name: What to call them in messages.

    Examples:
        >>> list(table_of({"x": np.zeros((3, 2)), "y": np.arange(3)}, name="data.npz").columns)
        ['x1', 'x2', 'y']
    """
    columns: dict[str, Values] = {}
    paired = inputs_and_targets(arrays) is not None
    for key, array in arrays.items():
        if array.dtype.names:
            parts = {field: array[field] for field in array.dtype.names}
        elif array.ndim == 1 and key:
            parts = {key: array}
        elif array.ndim == 2 and (len(arrays) == 1 or paired):
            stem = "y" if paired and key.lower() in TARGETS else "x"
            parts = {f"{stem}{i}": column for i, column in enumerate(array.T, 1)}
        else:
            shown = f"{key!r} of {name}" if key else name
            raise ValueError(f"{shown} has shape {array.shape}: columns, or one matrix n d, were wanted")
        for field, column in parts.items():
            if field in columns:
                raise ValueError(f"{name} has two columns {field!r}: rename one")
            columns[field] = _values(column, f"{field!r} of {name}")
    return _table(columns, name)


def inputs_and_targets(arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """The two arrays of an archive that has just inputs and targets, by their names."""
    x, y = find_arrays(arrays, INPUTS), find_arrays(arrays, TARGETS)
    paired = len(x) == len(y) == 1 and len(arrays) == 2 and min(x[0].ndim, y[0].ndim) > 0
    return (x[0], y[0]) if paired else None


def find_arrays(arrays: Mapping[str, np.ndarray], names: Collection[str]) -> list[np.ndarray]:
    """The arrays that have one of some names, in small or capital letters."""
    return [array for name, array in arrays.items() if name.lower() in names]


def _values(array: np.ndarray, place: str) -> Values:
    """A column of numbers or of words."""
    if array.ndim != 1:
        raise ValueError(f"{place} has shape {array.shape} in each row: one value was wanted")
    if array.dtype.kind in "iuf":
        return Values(None, array.astype(np.float64))
    if array.dtype.kind in "Ub":
        return Values.of_text([str(word) for word in array.tolist()])
    raise ValueError(f"{place} has type {array.dtype}: numbers or words were wanted")


def _table(columns: dict[str, Values], name: str) -> Table:
    """Refuses a table without columns or rows, or with columns of several lengths."""
    lengths = sorted({len(values) for values in columns.values()})
    if len(lengths) != 1 or not lengths[0]:
        raise ValueError(f"{name} has columns of lengths {lengths}: one length, at least 1, was wanted")
    return Table(columns, name)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
