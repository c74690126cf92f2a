"""The encoding of a table: from raw values to numbers, in the same way for new rows as for those it was made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from lawful.data.tables.table import Table, Values, number
from lawful.data.untrusted import entry, fields, items, text
from lawful.laws.language.law import nearest

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
class Encoding:
    """Says which columns of a table become inputs, in which order and how, and which one is the target.

    Other columns are ignored, and the order of columns in a table is free.

    Examples:
        >>> from lawful.data.tables.delimited import parsed
        >>> encoding = Encoding((Column("size"), Column("colour", ("blue", "red"))), Column("price"))
        >>> encoding.inputs(parsed(["colour,size", "red,3"], name="new.csv"))
        tensor([[3., 0., 1.]])
        >>> Encoding.from_json(encoding.to_json()) == encoding
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
    def from_json(cls, value: object) -> Encoding:
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
        raise ValueError(f"{table.name} has no column {name!r}{nearest(name, table.columns)}")
    return table.columns[name]


def _refuse_missing(table: Table, name: str) -> None:
    missing = table.columns[name].missing
    if missing.any():
        place = table.place(int(missing.argmax()), name)
        raise ValueError(f"a value is missing in {place}, the first of {int(missing.sum())} in the column")
