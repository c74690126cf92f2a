"""Reading tables from text: CSV and its relatives."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from lawful.data.tables.table import Table, Values, named, number

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
