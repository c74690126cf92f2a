"""The encoding of a table: from raw values to numbers, in the same way for new rows as for those it was made of.

Finding the encoding of a table: which columns are numbers and which are words, and what the target is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from lawful._json import entry, fields, items, text
from lawful._suggest import did_you_mean
from lawful.data.tables import Table, Values, number, written

LEVELS = 1000
"""The most levels that a column of words, or classes that a target, may have."""
WIDTH = 100_000
"""The most columns of a table, and the most numbers that encode a row."""


@dataclass(frozen=True)
class Column:
    """Says how a column is read: as numbers, or as one of some words.

    Examples:
        >>> Column("colour", ("blue", "red")).encoded
        ('colour=blue', 'colour=red')
    """

    name: str
    """Its name in the table."""
    levels: tuple[str, ...] | None = None
    """The words that it may have, in order; none if it has numbers."""
    by_number: bool = False
    """Whether the levels are numbers, so that 1, 1.0 and 01 are the same; as words, such as zip codes, they are not."""

    @property
    def encoded(self) -> tuple[str, ...]:
        """The names of the numbers that it becomes: one, or one for each level."""
        return (self.name,) if self.levels is None else tuple(f"{self.name}={level}" for level in self.levels)

    @cached_property
    def keys(self) -> dict[str | float | None, int]:
        """The places of the levels, by number or by word."""
        return {number(level) if self.by_number else level: i for i, level in enumerate(self.levels or ())}

    def numbers(self, table: Table) -> np.ndarray:
        """The numbers of a table; a word, a missing value and an infinite one are refused with their place."""
        values = _column(table, self.name)
        if values.numbers is None:
            row, word = next((i, word) for i, word in enumerate(values.text or ()) if number(word) is None)
            raise ValueError(f"a number was wanted in {table.place(row, self.name)}: got {word!r}")
        _refuse_missing(table, self.name)
        with np.errstate(over="ignore"):
            infinite = np.flatnonzero(~np.isfinite(values.numbers.astype(np.float32)))
        if len(infinite):
            row = int(infinite[0])
            place, came = table.place(row, self.name), values.numbers[row]
            raise ValueError(f"a finite number of 32 bits was wanted in {place}: got {came}")
        return values.numbers

    def places(self, table: Table) -> np.ndarray:
        """The place of each word among the levels; a missing one and an unknown one are refused with their place."""
        values = _column(table, self.name)
        _refuse_missing(table, self.name)
        if self.by_number and values.numbers is not None:
            found = list(map(self.keys.get, values.numbers.tolist()))
        else:
            found = [self.keys.get(number(word or "") if self.by_number else word) for word in values.words]
        if None in found:
            row = found.index(None)
            known = ", ".join(map(repr, (self.levels or ())[:10])) + (", ..." if len(self.levels or ()) > 10 else "")
            raise ValueError(f"{table.place(row, self.name)}, has the unknown {values.words[row]!r}: known are {known}")
        return np.array(found, dtype=np.int64)

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        levels = None if self.levels is None else list(self.levels)
        return {"name": self.name, "levels": levels, "by_number": self.by_number}

    @classmethod
    def from_json(cls, value: object, *, where: str) -> Column:
        """From untrusted JSON."""
        held = fields(value, ("name", "levels", "by_number"), where=where)
        levels, by_number = held["levels"], held["by_number"]
        if not isinstance(by_number, bool):
            raise ValueError(f"{where}.by_number is to be true or false: got {str(by_number)[:100]}")
        if levels is not None:
            levels = tuple(
                text(level, where=f"{where}.levels") for level in items(levels, LEVELS, where=f"{where}.levels")
            )
        column = cls(text(held["name"], where=f"{where}.name"), levels, by_number)
        if by_number and any((n := number(level)) is None or not np.isfinite(n) for level in levels or ()):
            raise ValueError(f"{where}.levels is to have finite numbers")
        if levels is not None and len(column.keys) != len(levels):
            raise ValueError(f"{where}.levels is to have no word twice")
        return column


@dataclass(frozen=True)
class TableEncoding:
    """Says which columns of a table become inputs, in which order and how, and which one is the target.

    Other columns are ignored, and the order of columns in a table is free.

    Examples:
        >>> from lawful.data.tables import parsed
        >>> encoding = TableEncoding((Column("size"), Column("colour", ("blue", "red"))), Column("price"))
        >>> encoding.inputs(parsed(["colour,size", "red,3"], name="new.csv"))
        tensor([[3., 0., 1.]])
        >>> TableEncoding.from_json(encoding.to_json()) == encoding
        True
    """

    columns: tuple[Column, ...]
    """The inputs."""
    target: Column
    """The target; its levels are the classes."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the numbers that encode a row."""
        return tuple(name for column in self.columns for name in column.encoded)

    def inputs(self, table: Table) -> Float[Tensor, "n d"]:
        """The inputs of a table: its numbers, and a 1 at the level of each word."""
        if len(table) * len(self.names) > 2**31:
            raise ValueError(f"{table.name} becomes {len(table)} rows of {len(self.names)} numbers: that is too many")
        matrix = np.zeros((len(table), len(self.names)), dtype=np.float32)
        start = 0
        for column in self.columns:
            if column.levels is None:
                matrix[:, start] = column.numbers(table)
            else:
                matrix[np.arange(len(table)), start + column.places(table)] = 1
            start += len(column.encoded)
        return torch.from_numpy(matrix)

    def targets(self, table: Table) -> Shaped[Tensor, "n *one"]:
        """The targets of a table: the numbers of classes, or numbers as `n 1`."""
        if self.target.levels is not None:
            return torch.from_numpy(self.target.places(table))
        return torch.from_numpy(self.target.numbers(table).astype(np.float32))[:, None]

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"kind": "table", "columns": [c.to_json() for c in self.columns], "target": self.target.to_json()}

    @classmethod
    def from_json(cls, value: object) -> TableEncoding:
        """Reads what `to_json` gave, from a file that nobody vouches for: anything else is refused."""
        held = fields(value, ("kind", "columns", "target"), where="encoding")
        entry(held["kind"], ("table",), where="encoding.kind")
        listed = items(held["columns"], WIDTH, where="encoding.columns")
        columns = tuple(Column.from_json(c, where=f"encoding.columns[{i}]") for i, c in enumerate(listed))
        target = Column.from_json(held["target"], where="encoding.target")
        names = [column.name for column in (*columns, target)]
        if len(set(names)) != len(names):
            raise ValueError("encoding is to have no column twice")
        if target.levels is not None and len(target.levels) < 2:
            raise ValueError(f"encoding.target is to have at least 2 classes: got {len(target.levels)}")
        encoding = cls(columns, target)
        if len(encoding.names) > WIDTH:
            raise ValueError(f"encoding is to make at most {WIDTH} numbers of a row: got {len(encoding.names)}")
        return encoding


def _column(table: Table, name: str) -> Values:
    if name not in table.columns:
        raise ValueError(f"{table.name} has no column {name!r}{did_you_mean(name, table.columns)}")
    return table.columns[name]


def _refuse_missing(table: Table, name: str) -> None:
    missing = table.columns[name].missing
    if missing.any():
        place = table.place(int(missing.argmax()), name)
        raise ValueError(f"a value is missing in {place}, the first of {int(missing.sum())} in the column")


Task = Literal["classify", "regress"]


def fit_table_encoding(
    table: Table,
    *,
    target: str | None = None,
    task: Task | None = None,
    categorical: Collection[str] = (),
    ignore: Collection[str] = (),
    drop_missing: bool = False,
) -> tuple[TableEncoding, Table, tuple[str, ...]]:
    """Finds the encoding of a table; returns it, the rows that are complete, and what is worth knowing.

    A column of numbers stays as it is; one of words becomes a number for each level, 1 at the level and 0 elsewhere. A
    column without any value is left out.

    Args:
        table: The raw values.
        target: The name of the target; by default that of the last column.
        task: What the target is: classes to `classify`, or numbers to `regress`. By default words are classes.
        categorical: Columns whose values are words even if they look like numbers; 01234 is then not 1234.
        ignore: Columns that are not inputs.
        drop_missing: Whether rows with a missing value are dropped; otherwise they are refused.

    Examples:
        >>> from lawful.data.tables import parsed
        >>> table = parsed(["size,colour,price", "1,red,2", "3,blue,4"], name="data.csv")
        >>> fit_table_encoding(table)[0].names
        ('size', 'colour=blue', 'colour=red')
    """
    target = list(table.columns)[-1] if target is None else target
    for name in (target, *categorical, *ignore):
        if name not in table.columns:
            close = did_you_mean(name, table.columns)
            raise ValueError(f"{table.name} has no column {name!r}{close} It has {_listed(table)}")
    if target in ignore:
        raise ValueError(f"the target {target!r} cannot be ignored")
    empty = [name for name, values in table.columns.items() if values.missing.all() and name not in ignore]
    notes = [*table.notes, *(f"column {name!r} has no values: left out" for name in empty)]
    inputs = [name for name in table.columns if name != target and name not in ignore and name not in empty]
    if not inputs or target in empty:
        raise ValueError(f"a target and another column with values were wanted: {table.name} has {_listed(table)}")
    if len(inputs) > WIDTH:
        raise ValueError(f"{table.name} is to have at most {WIDTH} columns: got {len(inputs)}")
    table, dropped = _complete(table, (*inputs, target), drop_missing)
    if dropped:
        notes.append(f"{dropped} rows with a missing value are dropped")
    columns = tuple(_input(table, name, categorical) for name in inputs)
    notes += [f"column {column.name!r} is constant" for column in columns if _constant(table, column)]
    encoding = TableEncoding(columns, _target(table, target, task, categorical))
    if len(encoding.names) > WIDTH:
        raise ValueError(f"{table.name} becomes {len(encoding.names)} numbers a row: at most {WIDTH} were wanted")
    return encoding, table, tuple(notes)


def _listed(table: Table) -> str:
    shown = [repr(name) for name in table.columns]
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")


def _complete(table: Table, names: Collection[str], drop: bool) -> tuple[Table, int]:
    """The rows without a missing value, and how many others there are; without leave to drop, these are refused."""
    missing = np.zeros(len(table), dtype=bool)
    for name in names:
        here = table.columns[name].missing
        if here.any() and not drop:
            total = sum(int(table.columns[other].missing.sum()) for other in names)
            place = table.place(int(here.argmax()), name)
            raise ValueError(f"a value is missing in {place}, the first of {total}: fill them in, or drop these rows")
        missing |= here
    if missing.any():
        table = table.kept(~missing)
    if len(table) < 2:
        raise ValueError(f"{table.name} has {len(table)} complete rows: at least 2 were wanted")
    return table, int(missing.sum())


def _input(table: Table, name: str, categorical: Collection[str]) -> Column:
    """How an input is read."""
    values = table.columns[name]
    if values.numbers is not None and name not in categorical:
        column = Column(name)
        column.numbers(table)
        return column
    return _levelled(table, name, categorical, "leave the column out")


def _target(table: Table, name: str, task: Task | None, categorical: Collection[str]) -> Column:
    """How the target is read."""
    numeric = table.columns[name].numbers is not None and name not in categorical
    column = Column(name)
    if task == "regress" or (task is None and numeric):
        column.numbers(table)
        return column
    column = _levelled(table, name, categorical, "to fit numbers, regress")
    levels = column.levels or ()
    if len(levels) < 2:
        raise ValueError(f"the target {name!r} of {table.name} has the one class {levels[0]!r}: at least 2 were wanted")
    return column


def _levelled(table: Table, name: str, categorical: Collection[str], advice: str) -> Column:
    """A column with its different values, numbers by size and words by letter.

    Text that is called categorical stays text, so that 01234 is not 1234.
    """
    values = table.columns[name]
    by_number = values.numbers is not None and (values.text is None or name not in categorical)
    if values.numbers is not None and by_number:
        Column(name).numbers(table)
        levels = tuple(written(value) for value in np.unique(values.numbers).tolist())
    else:
        if name not in categorical:
            _refuse_nearly_numbers(table, name)
        words = {word for word in values.words if word is not None}
        levels = tuple(sorted(words) if values.numbers is None else sorted(words, key=lambda word: (float(word), word)))
    if len(levels) > LEVELS:
        count = f"{len(levels)} different values, more than {LEVELS}"
        raise ValueError(f"column {name!r} of {table.name} has {count}: {advice}")
    return Column(name, levels, by_number)


def _refuse_nearly_numbers(table: Table, name: str) -> None:
    """Refuses words that are numbers in another notation, and a few words among many numbers."""
    text = table.columns[name].text or ()
    where = [i for i, word in enumerate(text) if number(word) is None]
    place, word = table.place(where[0], name), text[where[0]]
    if all("," in text[i] and number(text[i].replace(",", "")) is not None for i in where):
        raise ValueError(f"{place}, has {word[:50]!r}: numbers are to have a decimal point and no comma")
    if len(where) < 0.1 * len(text):
        raise ValueError(
            f"{place}, has {word[:50]!r} among {len(text) - len(where)} numbers: "
            "correct it, or call the column categorical"
        )


def _constant(table: Table, column: Column) -> bool:
    numbers = table.columns[column.name].numbers
    if column.levels is not None or numbers is None:
        return len(column.levels or ()) == 1
    return bool((numbers == numbers[0]).all())
