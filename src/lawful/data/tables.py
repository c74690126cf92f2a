"""Tables of raw values, read from CSV, Parquet and NumPy files, or built from rows in Python."""

from __future__ import annotations

import ast
import csv
import importlib
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO
from zipfile import ZipFile

import numpy as np

from lawful._files import check_memory, format_bytes, open_file
from lawful.data._inputs import open_text
from lawful.data.dates import parse_dates

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "nat", "#n/a", "<na>", "?"})
"""Spellings of a missing value, case-insensitive."""


def _parse_number(text: str) -> float | None:
    """Parses a number. Returns NaN for a missing value and None for other text.

    Examples:
        >>> _parse_number(" 1e3 "), _parse_number("n/a"), _parse_number("1_000")
        (1000.0, nan, None)
    """
    if text.strip().lower() in _MISSING:
        return math.nan
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _format_number(value: float) -> str:
    """Formats a number, integers without a decimal point.

    Examples:
        >>> _format_number(3.0), _format_number(0.5)
        ('3', '0.5')
    """
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(float(value))


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """The values of a column: text, numbers, or both if the text parses as numbers."""

    text: Sequence[str] | None
    """Raw text, if the file is a text file."""
    numbers: np.ndarray | None
    """Parsed numbers, NaN where missing. None if a value is not a number."""

    @classmethod
    def from_text(cls, text: Sequence[str]) -> ColumnValues:
        """Parses numbers if all values are numbers."""
        try:
            numbers = np.array(list(map(float, text)), dtype=np.float64)
        except ValueError:
            return cls(text, _parse_numbers(text))
        return cls(text, None if any("_" in word for word in text) else numbers)

    def __len__(self) -> int:
        return len(self.numbers) if self.text is None and self.numbers is not None else len(self.text or ())

    @property
    def distinct(self) -> ColumnValues:
        """The different values, in the order of their first row."""
        return self._factorized[0]

    @property
    def codes(self) -> np.ndarray:
        """Index of each row in `distinct`."""
        return self._factorized[1]

    @property
    def counts(self) -> np.ndarray:
        """Number of rows of each value of `distinct`."""
        return np.bincount(self.codes, minlength=len(self.distinct))

    @cached_property
    def _factorized(self) -> tuple[ColumnValues, np.ndarray]:
        if self.text is None and self.numbers is not None:
            values, first, codes = np.unique(self.numbers, return_index=True, return_inverse=True)
            order = first.argsort()
            return ColumnValues(None, values[order]), order.argsort()[codes]
        index: dict[str, int] = {}
        codes = np.array([index.setdefault(word, len(index)) for word in self.text or ()], dtype=np.int64)
        return ColumnValues.from_text(list(index)), codes

    @cached_property
    def words(self) -> Sequence[str | None]:
        """Values as stripped text, None where missing."""
        if self.text is None:
            numbers = self.numbers if self.numbers is not None else []
            return [None if math.isnan(value) else _format_number(value) for value in numbers]
        stripped = (word.strip() for word in self.text)
        return [None if word.lower() in _MISSING else word for word in stripped]

    @cached_property
    def missing(self) -> np.ndarray:
        """Boolean mask of missing values."""
        if self.numbers is not None:
            return np.isnan(self.numbers)
        return np.fromiter((word is None for word in self.words), dtype=bool, count=len(self))

    def take(self, where: np.ndarray) -> ColumnValues:
        """Returns the rows where the mask is True."""
        if self.text is not None:
            return ColumnValues.from_text(list(compress(self.text, where)))
        return ColumnValues(None, None if self.numbers is None else self.numbers[where])


def _parse_numbers(text: Sequence[str]) -> np.ndarray | None:
    """Parses numbers with missing values. Returns None if a value is not a number."""
    numbers = []
    for word in text:
        if (value := _parse_number(word)) is None:
            return None
        numbers.append(value)
    return np.array(numbers, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length.

    Examples:
        >>> table = Table({"x": ColumnValues.from_text(["1", "2"])}, name="data.csv", lines=[2, 3])
        >>> len(table), table.place(1, "x")
        (2, "line 3 of data.csv, column 'x'")
    """

    columns: dict[str, ColumnValues]
    """Columns by name, in file order."""
    name: str
    """File name shown in messages."""
    lines: Sequence[int] | None = None
    """Line number of each row (its last line). Without it, messages count the rows from 1."""
    notes: tuple[str, ...] = ()
    """Notes for the user, such as dropped columns."""
    has_header: bool = True
    """Whether the column names come from the file."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def place(self, row: int, column: str) -> str:
        """Returns the location of a value, for error messages."""
        where = f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"
        return f"{where} of {self.name}, column {column!r}"

    def take(self, where: np.ndarray) -> Table:
        """Returns the rows where the mask is True."""
        lines = np.array(range(1, len(self) + 1) if self.lines is None else self.lines)[where].tolist()
        columns = {name: values.take(where) for name, values in self.columns.items()}
        return Table(columns, self.name, lines, self.notes, has_header=self.has_header)


def _column_names(names: Sequence[str], *, place: str) -> list[str]:
    """Names unnamed columns. Raises if a name repeats.

    Examples:
        >>> _column_names(["a", " ", "b"], place="data.csv")
        ['a', 'column 2', 'b']
    """
    names = [name.strip() or f"column {i}" for i, name in enumerate(names, 1)]
    first: dict[str, int] = {}
    for i, name in enumerate(names, 1):
        if name in first:
            raise ValueError(f"{place} has two columns named {name!r}, number {first[name]} and {i}: rename one")
        first[name] = i
    return names


_DELIMITERS = ",;\t|"
_HEADER_ROWS = 100
"""Number of rows inspected to detect a header."""


def read_delimited(path: str | Path, *, header: bool | None = None) -> Table:
    r"""Reads a CSV or TSV file.

    The delimiter (comma, semicolon, tab or bar) is detected from the first line; `.tsv` files use tabs. Quotes, a
    byte-order mark and any line ending are handled, and empty lines are skipped. Unnamed columns that are empty, and an
    unnamed first column that only counts the rows, are dropped. If the delimiter is not a comma, numbers such as 1,5
    and 1.234,56 are read with a decimal comma.

    Args:
        path: UTF-8 file.
        header: Whether the first row is a header. Detected by default. Without a header the columns are named `x1`,
            `x2`, ...

    Examples:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name) / "data.csv"
        >>> _ = path.write_text('size,color\n1.5,"red"\n2,blue\n')
        >>> table = read_delimited(path)
        >>> table.columns["size"].numbers, table.columns["color"].words
        (array([1.5, 2. ]), ['red', 'blue'])
        >>> folder.cleanup()
    """
    path = Path(path)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else None
    try:
        with open_text(path, encoding="utf-8-sig", newline="", memory_factor=_MEMORY_FACTOR) as lines:
            if os.fstat(lines.fileno()).st_size >= _LARGE:
                if (table := _read_large(path, lines, header=header, delimiter=delimiter)) is not None:
                    return table
                lines.seek(0)
            return _parse_delimited(lines, name=path.name, header=header, delimiter=delimiter)
    except UnicodeDecodeError as error:
        byte = f"{error.object[error.start]:#04x}"
        raise ValueError(f"{path.name} is not UTF-8 text: {error.reason} ({byte}): save it as UTF-8") from None


_LARGE = 2**22
"""Size in bytes from which a file is read with Arrow, into compact columns."""
_BLOCK = 2**20


def _read_large(path: Path, lines: TextIO, *, header: bool | None, delimiter: str | None) -> Table | None:
    """Reads a large file with Arrow. Returns None if Arrow cannot read it, or might read it differently."""
    try:
        import pyarrow as pa
        import pyarrow.csv

        pc: Any = importlib.import_module("pyarrow.compute")  # its functions are made at run time
    except ImportError:
        return None
    from lawful.data._arrow_columns import ArrowValues

    head = list(islice(lines, _HEADER_ROWS + 1))
    try:
        rows, _, delimiter = _read_rows(head, path.name, delimiter)
    except ValueError:
        return None
    if len(rows) < len(head) or len(rows[0]) < 2 or (count := _count_plain_lines(path, delimiter)) is None:
        return None
    names = [str(i) for i in range(len(rows[0]))]
    with open_file(path) as file:
        try:
            table = pa.csv.read_csv(
                file,
                pa.csv.ReadOptions(column_names=names, use_threads=False),
                pa.csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=False),
                pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
            )
        except pa.ArrowInvalid:
            return None
    pa.default_memory_pool().release_unused()
    if len(table) != count:
        return None
    is_tab = delimiter == "\t"
    arrays = [c if is_tab else pc.utf8_ltrim(c, characters=" ") for c in table.columns]
    has_header = _has_header(rows) if header is None else header
    columns = [ArrowValues(array.slice(has_header)) for array in arrays]
    header_missing = header is None and not has_header
    line_numbers = range(1 + has_header, count + 1)
    return _name_columns(
        rows[0], columns, line_numbers, path.name, delimiter, has_header=has_header, header_missing=header_missing
    )


def _count_plain_lines(path: Path, delimiter: str) -> int | None:
    """Counts the lines. Returns None if a field has a quote inside, or if there is a NUL byte."""
    mark = re.escape(delimiter.encode())
    inside = re.compile(rb'(?<![\n%s])"(?![\r\n%s])' % (mark, mark))
    count, end = 0, b"\n"
    with open_file(path) as file:
        if file.read(3) != b"\xef\xbb\xbf":
            file.seek(0)
        while block := file.read(_BLOCK) + file.readline():
            if b"\0" in block or (b'"' in block and inside.search(b"\n" + block)):
                return None
            count, end = count + block.count(b"\n"), block[-1:]
    return count + (end != b"\n")


def _parse_delimited(
    lines: Iterable[str], *, name: str, header: bool | None = None, delimiter: str | None = None
) -> Table:
    """Parses the lines of a delimited text.

    Examples:
        >>> list(_parse_delimited(["a;b", "1;2"], name="text").columns)
        ['a', 'b']
    """
    rows, line_numbers, delimiter = _read_rows(lines, name, delimiter)
    if not rows:
        raise ValueError(f"{name} is empty")
    header_missing = header is None and not _has_header(rows)
    header = not header_missing if header is None else header
    columns = [ColumnValues.from_text(text) for text in zip(*rows[header:], strict=True)]
    return _name_columns(
        rows[0], columns, line_numbers[header:], name, delimiter, has_header=header, header_missing=header_missing
    )


def _name_columns(
    first: Sequence[str],
    values: Sequence[ColumnValues],
    line_numbers: Sequence[int],
    name: str,
    delimiter: str,
    *,
    has_header: bool,
    header_missing: bool,
) -> Table:
    """Names the columns of a delimited text, drops unnamed columns without information and parses decimal commas."""
    names = _column_names(first, place=name) if has_header else [f"x{i}" for i, _ in enumerate(first, 1)]
    unnamed = [key for key, given in zip(names, first, strict=True) if has_header and not given.strip()]
    if not line_numbers:
        raise ValueError(f"{name} has a header but no rows: {', '.join(map(repr, names[:5]))}")
    columns = dict(zip(names, values, strict=True))
    changed = _parse_decimal_commas(columns) if delimiter != "," else {}
    columns |= changed
    dropped = [
        key for key in unnamed if columns[key].missing.all() or (key == names[0] and _is_row_number(columns[key]))
    ]
    kept = {key: values for key, values in columns.items() if key not in dropped}
    if not kept:
        raise ValueError(f"{name} has no named column with values")
    notes = [f"{name} has no header: its columns are named {_name_range(names)}"] if header_missing else []
    notes += [f"dropped unnamed {key}: it is empty or counts the rows" for key in dropped]
    notes += [f"{name} has decimal commas: 1,5 is 1.5 in column {_shorten([*changed])}"] if changed else []
    return Table(kept, name, line_numbers, tuple(notes), has_header=has_header)


_COMMA_NUMBER = re.compile(r"[+-]?(\d+|[1-9]\d{0,2}(\.\d{3})+)(,\d+)?")
"""A number with a decimal comma; dots separate thousands."""


def _parse_decimal_commas(columns: Mapping[str, ColumnValues]) -> dict[str, ColumnValues]:
    """Returns the columns with decimal commas, parsed. A column with dots only is among them if another has a comma."""
    candidates = {}
    for key, values in columns.items():
        words = [word for word in values.distinct.words if word is not None]
        if any("," in word or "." in word for word in words) and all(map(_COMMA_NUMBER.fullmatch, words)):
            candidates[key] = words
    has_comma = any("," in word for words in candidates.values() for word in words)
    return {key: _replace_decimal_commas(columns[key]) for key in candidates} if has_comma else {}


def _replace_decimal_commas(values: ColumnValues) -> ColumnValues:
    """Replaces decimal commas by points, and removes the dots between thousands."""
    return ColumnValues.from_text([(word or "").replace(".", "").replace(",", ".") for word in values.words])


def _name_range(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _is_row_number(values: ColumnValues) -> bool:
    numbers = values.numbers
    return numbers is not None and np.array_equal(numbers, numbers[0] + np.arange(len(numbers)))


def _read_rows(lines: Iterable[str], name: str, delimiter: str | None) -> tuple[list[list[str]], list[int], str]:
    """Returns the rows, which have equal numbers of fields, the last line number of each, and the delimiter."""
    lines, head = iter(lines), []
    for line in lines:
        head.append(line)
        if line.strip():
            break
    delimiter = delimiter or _delimiter("".join(head))
    reader = csv.reader(chain(head, lines), delimiter=delimiter, skipinitialspace=delimiter != "\t", strict=True)
    rows: list[list[str]] = []
    line_numbers: list[int] = []
    width = 0
    try:
        for row in reader:
            if not row or (len(row) == 1 != width and not row[0].strip()):
                continue
            if len(row) != width:
                if width:
                    at = f"line {reader.line_num} of {name}"
                    raise ValueError(f"{at} has {len(row)} fields, expected {width} as in line {line_numbers[0]}")
                width = len(row)
            rows.append(row)
            line_numbers.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num} of {name} cannot be read: {error}") from None
    return rows, line_numbers, delimiter


def _delimiter(line: str) -> str:
    """Returns the most frequent delimiter of the first line, outside quotes. In 1,5;2,5 it is the semicolon."""
    plain = re.sub('"[^"]*"?', "", line)
    other = max(_DELIMITERS[1:], key=plain.count)
    fields = plain.split(other)
    if len(fields) > 1 and all("," not in field or _COMMA_NUMBER.fullmatch(field.strip()) for field in fields):
        return other
    return max(_DELIMITERS, key=plain.count)


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Returns whether the first row has text above a numeric column, or only text and no date."""
    words = [not _is_number(field) and parse_dates([field]) is None for field in rows[0]]
    below = rows[1:_HEADER_ROWS]
    if not any(words) or not below:
        return any(words)
    over_numbers = any(word and all(_is_number(row[i]) for row in below) for i, word in enumerate(words))
    return over_numbers or all(word or not field.strip() for word, field in zip(words, rows[0], strict=True))


def _is_number(field: str) -> bool:
    return _parse_number(field) is not None or _COMMA_NUMBER.fullmatch(field.strip()) is not None


_MEMORY_FACTOR = 10
"""Memory for reading a text file or a Parquet file, relative to its size."""
_MAX_EXPANSION = 100
"""Maximum size of an unpacked archive, relative to its size."""
_MIN_LIMIT = 2**28
"""Size in bytes that an archive of any size may unpack to."""
_MAX_HEADER = 2**16
"""Maximum size of the header of an array, in bytes."""
_NUMERIC_TYPES, _TEXT_TYPES = ("integer", "floating", "decimal", "null"), ("string", "large_string", "boolean")
"""Supported Parquet types."""
_INPUT_NAMES, _TARGET_NAMES = ("x", "inputs", "data"), ("y", "targets", "target", "labels", "label")
"""Names of inputs and targets in an archive, case-insensitive."""


def read_parquet(path: str | Path) -> Table:
    """Reads a Parquet file. Strings, categories, booleans, dates and times are read as text.

    Args:
        path: Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet

    path = Path(path)
    with open_file(path) as file:
        try:
            archive = pyarrow.parquet.ParquetFile(file)
            metadata, schema = archive.metadata, archive.schema_arrow
            groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
            size = sum(max(0, group.total_byte_size) for group in groups)
            size = max(size, 8 * metadata.num_rows * metadata.num_columns)
        except Exception as error:
            raise ValueError(f"{path.name} cannot be read as Parquet: {_first_line(error)}") from None
        names = _column_names(schema.names, place=path.name)
        kinds = {name: _parquet_kind(field.type) for name, field in zip(names, schema, strict=True)}
        for name, field in zip(names, schema, strict=True):
            if kinds[name] is None and not name.startswith("__index_level_"):
                place = f"column {name!r} of {path.name}"
                raise ValueError(f"{place} has type {field.type}, expected numbers, text or dates")
        what = f"{path.name} has {metadata.num_rows:,} rows of {metadata.num_columns} columns, and reading it"
        check_memory(_MEMORY_FACTOR * size, what=what, remedy="use fewer rows or columns")
        try:
            read = archive.read()
        except Exception as error:
            raise ValueError(f"{path.name} cannot be read as Parquet: {_first_line(error)}") from None
    columns = {}
    for name, column in zip(names, read.columns, strict=True):
        if name.startswith("__index_level_"):
            continue
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if kinds[name] == "numbers":
            numbers = column.cast(kind).cast(pa.float64(), safe=False).to_numpy()
            columns[name] = ColumnValues(None, np.array(numbers, dtype=np.float64))
        elif kinds[name] == "text":
            words = ["" if word is None else str(word) for word in column.to_pylist()]
            columns[name] = ColumnValues.from_text(words)
        else:
            columns[name] = _from_objects(column.cast(kind).to_pylist())
    return _table(columns, path.name)


def _parquet_kind(kind: Any) -> str | None:
    """Returns "numbers", "text" or "dates" for a type, or None if it is not supported."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if any(getattr(pa.types, f"is_{number}")(kind) for number in _NUMERIC_TYPES):
        return "numbers"
    if any(getattr(pa.types, f"is_{word}")(kind) for word in _TEXT_TYPES):
        return "text"
    return "dates" if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else None


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Reads the arrays of a NumPy file, without unpickling.

    Args:
        path: A `.npz` file, or a `.npy` file, whose array has the name "".
    """
    path = Path(path)
    with open_file(path) as file:
        try:
            return {"": _map_array(file)} if path.suffix.lower() == ".npy" else _read_archive(file)
        except Exception as error:
            raise ValueError(f"{path.name} cannot be read as NumPy arrays: {_first_line(error)}") from None


def _read_archive(file: BinaryIO) -> dict[str, np.ndarray]:
    """Reads the arrays of a zip archive, whose sizes are checked before they are unpacked."""
    packed = os.fstat(file.fileno()).st_size
    with ZipFile(file) as archive:
        size, limit = sum(item.file_size for item in archive.infolist()), max(_MIN_LIMIT, _MAX_EXPANSION * packed)
        if size > limit:
            raise ValueError(
                f"it has {format_bytes(packed)} and unpacks to {format_bytes(size)}, the limit is "
                f"{format_bytes(_MIN_LIMIT)} or {_MAX_EXPANSION} times its size: save it with np.savez, not compressed"
            )
        check_memory(3 * size, what="it", remedy="use fewer examples")
        arrays = {}
        for item in archive.infolist():
            name = item.filename.removesuffix(".npy")
            if name in arrays:
                raise ValueError(f"it has two arrays named {name!r}")
            with archive.open(item) as stream:
                shape, _, dtype = _read_header(stream, repr(name))
                if stream.tell() + math.prod(shape) * dtype.itemsize != item.file_size:
                    raise ValueError(f"{name!r} has {item.file_size} bytes, which is not the size of its shape {shape}")
            with archive.open(item) as stream:
                arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
    return arrays


def _map_array(file: BinaryIO) -> np.ndarray:
    """Maps the array of a `.npy` file into memory."""
    shape, is_fortran, dtype = _read_header(file, "it")
    if not math.prod(shape) * dtype.itemsize:
        return np.zeros(shape, dtype)
    return np.memmap(file, dtype, "r", file.tell(), shape, "F" if is_fortran else "C")


def _read_header(file: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Returns the shape, the order and the dtype of an array."""
    try:
        version = np.lib.format.read_magic(file)
        length = int.from_bytes(file.read(2 if version[0] == 1 else 4), "little")
        if not 1 <= version[0] <= 3 or length > _MAX_HEADER:
            raise ValueError
        header = ast.literal_eval(file.read(length).decode("latin-1" if version[0] < 3 else "utf-8"))
        shape, is_fortran = header["shape"], header["fortran_order"]
        dtype = np.lib.format.descr_to_dtype(header["descr"])
        if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError
    except Exception:
        raise ValueError(f"{name} is not an array in NumPy's format: write it with np.save or np.savez") from None
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects, expected numbers or text: convert it, as in x.astype(float)")
    return shape, bool(is_fortran), dtype


def table_of(arrays: Mapping[str, np.ndarray], *, name: str) -> Table:
    """Converts arrays to a table: a matrix, a structured array, inputs `x` with targets `y`, or columns.

    Args:
        arrays: Arrays by name.
        name: Name shown in messages.

    Examples:
        >>> list(table_of({"x": np.zeros((3, 2)), "y": np.arange(3)}, name="data.npz").columns)
        ['x1', 'x2', 'y']
    """
    columns: dict[str, ColumnValues] = {}
    paired = _inputs_and_targets(arrays) is not None
    for key, array in arrays.items():
        if array.dtype.names:
            parts = {field: array[field] for field in array.dtype.names}
        elif array.ndim == 1 and key:
            parts = {key: array}
        elif array.ndim == 2 and (len(arrays) == 1 or paired):
            stem = "y" if paired and key.lower() in _TARGET_NAMES else "x"
            parts = {f"{stem}{i}": column for i, column in enumerate(array.T, 1)}
        else:
            where = f"{key!r} of {name}" if key else name
            raise ValueError(f"{where} has shape {array.shape}, expected columns or one matrix (n, d)")
        for field, column in parts.items():
            if field in columns:
                raise ValueError(f"{name} has two columns named {field!r}: rename one")
            columns[field] = _from_array(column, f"{field!r} of {name}")
    return _table(columns, name)


def _inputs_and_targets(arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns inputs and targets if the archive has exactly these two arrays."""
    x, y = _find_arrays(arrays, _INPUT_NAMES), _find_arrays(arrays, _TARGET_NAMES)
    paired = len(x) == len(y) == 1 and len(arrays) == 2 and min(x[0].ndim, y[0].ndim) > 0
    return (x[0], y[0]) if paired else None


def _find_arrays(arrays: Mapping[str, np.ndarray], names: Collection[str]) -> list[np.ndarray]:
    """Returns the arrays with one of the names, case-insensitive."""
    return [array for name, array in arrays.items() if name.lower() in names]


def _from_array(array: np.ndarray, place: str) -> ColumnValues:
    if array.ndim != 1:
        raise ValueError(f"{place} has shape {array.shape}, expected one value per row")
    if array.dtype.kind in "iuf":
        return ColumnValues(None, array.astype(np.float64))
    if array.dtype.kind in "Ub":
        return ColumnValues.from_text([str(word) for word in array.tolist()])
    if array.dtype.kind == "M":
        return ColumnValues.from_text([str(word) for word in array])
    raise ValueError(f"{place} has dtype {array.dtype}, expected numbers, text or dates")


def table_from_rows(rows: Any, *, columns: Sequence[str], name: str = "rows") -> Table:
    """Converts rows to a table.

    Args:
        rows: A list of dicts, a dict of columns, a data frame, or an array or list of rows without names. A key that a
            dict lacks, None and NaN are missing values.
        columns: Names of the columns of an array, in order.
        name: Name shown in messages.

    Examples:
        >>> table_from_rows([{"size": 1, "color": "red"}, {"size": None}], columns=()).columns["size"].numbers
        array([ 1., nan])
        >>> list(table_from_rows(np.zeros((3, 2)), columns=("a", "b")).columns)
        ['a', 'b']
    """
    if isinstance(rows, Table):
        return rows
    if isinstance(rows, np.ndarray) and rows.dtype.names:
        return table_of({"": rows}, name=name)
    if hasattr(rows, "columns") and hasattr(rows, "__getitem__") and not isinstance(rows, Mapping):
        rows = {str(key): rows[key] for key in rows.columns}
    if isinstance(rows, Mapping):
        listed = {str(key): _as_list(values) for key, values in rows.items()}
        return _table({key: _from_objects(values) for key, values in listed.items()}, name)
    rows = _as_list(rows)
    if rows and all(isinstance(row, Mapping) for row in rows):
        keys = dict.fromkeys(str(key) for row in rows for key in row)
        return _table({key: _from_objects([row.get(key) for row in rows]) for key in keys}, name)
    matrix = [_as_list(row) if _is_sequence(row) else None for row in rows]
    widths = {None if row is None else len(row) for row in matrix}
    if widths != {len(columns)}:
        got = "no rows" if not rows else f"rows of {next(iter(widths - {len(columns)})) or 'single'} values"
        expected = f"dicts, a data frame, or rows of the {len(columns)} columns {_shorten(columns)}"
        raise ValueError(f"{name} must be {expected}, got {got}")
    values = zip(*filter(None, matrix), strict=True)
    return _table({key: _from_objects(column) for key, column in zip(columns, values, strict=True)}, name)


def _is_sequence(values: Any) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, str | bytes)


def _as_list(values: Any) -> list[Any]:
    """Returns the values of a list, an array, a tensor or a data frame's column; one value becomes a list."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        return list(map(str, values))
    values = values.tolist() if hasattr(values, "tolist") else values
    return list(values) if _is_sequence(values) else [values]


def _from_objects(values: Sequence[Any]) -> ColumnValues:
    """Converts numbers, text, booleans and dates. None, NaN and NaT are missing."""
    values = [_to_python(value) for value in values]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values if value is not None):
        return ColumnValues(None, np.array([math.nan if v is None else v for v in values], dtype=np.float64))
    return ColumnValues.from_text(["" if value is None else str(value) for value in values])


def _to_python(value: Any) -> float | str | bool | None:
    """Converts a scalar to a Python number, a bool or text, and a missing value to None."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64):
        value = value.item()
    if isinstance(value, int | float | str):
        return None if isinstance(value, float) and math.isnan(value) else value
    text = "" if value is None else value.isoformat() if isinstance(value, date) else str(value)
    return None if text.lower() in _MISSING else text


def _shorten(names: Sequence[str], limit: int = 10) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(repr, names[:limit])) + more


def _table(columns: dict[str, ColumnValues], name: str) -> Table:
    lengths = sorted({len(values) for values in columns.values()})
    if len(lengths) != 1 or not lengths[0]:
        raise ValueError(f"{name} has columns of lengths {lengths}, expected equal, non-zero lengths")
    return Table(columns, name)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
