"""A table of raw values, column by column, as a file has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress

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
