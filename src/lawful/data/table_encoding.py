"""Encoding of tables: numeric columns and one-hot categories, fitted once and applied to new rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from lawful._json import require_choice, require_fields, require_list, require_text
from lawful._suggest import did_you_mean
from lawful.data.tables import ColumnValues, Table, _format_number, _parse_number

_MAX_LEVELS = 1000
"""Maximum number of categories of a column."""
_MAX_WIDTH = 100_000
"""Maximum number of columns, and of features per row."""


@dataclass(frozen=True)
class Column:
    """Encoding of a column: numeric, or categorical with a list of levels.

    Examples:
        >>> Column("color", ("blue", "red")).features
        ('color=blue', 'color=red')
    """

    name: str
    """Column name."""
    levels: tuple[str, ...] | None = None
    """Categories in order; None for a numeric column."""
    by_number: bool = False
    """Whether levels compare as numbers, so that 1, 1.0 and 01 are equal."""

    @property
    def features(self) -> tuple[str, ...]:
        """Feature names: the column itself, or one per level."""
        return (self.name,) if self.levels is None else tuple(f"{self.name}={level}" for level in self.levels)

    @cached_property
    def keys(self) -> dict[str | float | None, int]:
        """Index of each level."""
        return {_parse_number(level) if self.by_number else level: i for i, level in enumerate(self.levels or ())}

    def numbers(self, table: Table) -> np.ndarray:
        """Returns the numbers of the column. Raises if a value is text, missing or not finite in float32."""
        values = _column(table, self.name)
        if values.numbers is None:
            row, word = next((i, word) for i, word in enumerate(values.text or ()) if _parse_number(word) is None)
            raise ValueError(f"{table.place(row, self.name)}: expected a number, got {word!r}")
        _check_no_missing(table, self.name)
        with np.errstate(over="ignore"):
            infinite = np.flatnonzero(~np.isfinite(values.numbers.astype(np.float32)))
        if len(infinite):
            row = int(infinite[0])
            place = table.place(row, self.name)
            raise ValueError(f"{place}: expected a finite float32 number, got {values.numbers[row]}")
        return values.numbers

    def indices(self, table: Table) -> np.ndarray:
        """Returns the level index of each row. Raises if a value is missing or unknown."""
        values = _column(table, self.name)
        _check_no_missing(table, self.name)
        if self.by_number and values.numbers is not None:
            found = list(map(self.keys.get, values.numbers.tolist()))
        else:
            found = [self.keys.get(_parse_number(word or "") if self.by_number else word) for word in values.words]
        if None in found:
            row = found.index(None)
            known = ", ".join(map(repr, (self.levels or ())[:10])) + (", ..." if len(self.levels or ()) > 10 else "")
            raise ValueError(f"{table.place(row, self.name)}: unknown category {values.words[row]!r}, expected {known}")
        return np.array(found, dtype=np.int64)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary."""
        levels = None if self.levels is None else list(self.levels)
        return {"name": self.name, "levels": levels, "by_number": self.by_number}

    @classmethod
    def from_json(cls, value: object, *, where: str) -> Column:
        """Rebuilds the column from untrusted JSON. Raises ValueError if it is malformed."""
        loaded = require_fields(value, ("name", "levels", "by_number"), where=where)
        levels, by_number = loaded["levels"], loaded["by_number"]
        if not isinstance(by_number, bool):
            raise ValueError(f"{where}.by_number must be true or false, got {str(by_number)[:100]}")
        if levels is not None:
            levels = tuple(
                require_text(level, where=f"{where}.levels")
                for level in require_list(levels, _MAX_LEVELS, where=f"{where}.levels")
            )
        column = cls(require_text(loaded["name"], where=f"{where}.name"), levels, by_number)
        if by_number and any((n := _parse_number(level)) is None or not np.isfinite(n) for level in levels or ()):
            raise ValueError(f"{where}.levels must be finite numbers")
        if levels is not None and len(column.keys) != len(levels):
            raise ValueError(f"{where}.levels must be distinct")
        return column


@dataclass(frozen=True)
class TableEncoding:
    """Encoding of a table: the input columns in order, and the target.

    Columns are found by name. Other columns of a table are ignored.

    Examples:
        >>> import numpy as np
        >>> from lawful.data import table_of
        >>> encoding = TableEncoding((Column("size"), Column("color", ("blue", "red"))), Column("price"))
        >>> table = table_of({"color": np.array(["red"]), "size": np.array([3.0])}, name="new.npz")
        >>> encoding.inputs(table)
        tensor([[3., 0., 1.]])
        >>> TableEncoding.from_json(encoding.to_json()) == encoding
        True
    """

    columns: tuple[Column, ...]
    """Input columns."""
    target: Column
    """Target column; its levels are the classes."""

    @property
    def names(self) -> tuple[str, ...]:
        """Feature names of the encoded inputs."""
        return tuple(name for column in self.columns for name in column.features)

    def inputs(self, table: Table) -> Float[Tensor, "n d"]:
        """Returns the encoded inputs: numbers and one-hot categories."""
        if len(table) * len(self.names) > 2**31:
            raise ValueError(f"{table.name} has too many values: {len(table)} rows of {len(self.names)} features")
        matrix = np.zeros((len(table), len(self.names)), dtype=np.float32)
        start = 0
        for column in self.columns:
            if column.levels is None:
                matrix[:, start] = column.numbers(table)
            else:
                matrix[np.arange(len(table)), start + column.indices(table)] = 1
            start += len(column.features)
        return torch.from_numpy(matrix)

    def targets(self, table: Table) -> Shaped[Tensor, "n *one"]:
        """Returns class indices of shape (n,), or values of shape (n, 1)."""
        if self.target.levels is not None:
            return torch.from_numpy(self.target.indices(table))
        return torch.from_numpy(self.target.numbers(table).astype(np.float32))[:, None]

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary."""
        return {"kind": "table", "columns": [c.to_json() for c in self.columns], "target": self.target.to_json()}

    @classmethod
    def from_json(cls, value: object) -> TableEncoding:
        """Rebuilds the encoding from untrusted JSON. Raises ValueError if it is malformed."""
        loaded = require_fields(value, ("kind", "columns", "target"), where="encoding")
        require_choice(loaded["kind"], ("table",), where="encoding.kind")
        listed = require_list(loaded["columns"], _MAX_WIDTH, where="encoding.columns")
        columns = tuple(Column.from_json(c, where=f"encoding.columns[{i}]") for i, c in enumerate(listed))
        target = Column.from_json(loaded["target"], where="encoding.target")
        names = [column.name for column in (*columns, target)]
        if len(set(names)) != len(names):
            raise ValueError("encoding must not repeat a column")
        if target.levels is not None and len(target.levels) < 2:
            raise ValueError(f"encoding.target must have at least 2 classes, got {len(target.levels)}")
        encoding = cls(columns, target)
        if len(encoding.names) > _MAX_WIDTH:
            raise ValueError(f"encoding must have at most {_MAX_WIDTH} features, got {len(encoding.names)}")
        return encoding


def _column(table: Table, name: str) -> ColumnValues:
    if name not in table.columns:
        raise ValueError(f"{table.name} has no column {name!r}{did_you_mean(name, table.columns)}")
    return table.columns[name]


def _check_no_missing(table: Table, name: str) -> None:
    missing = table.columns[name].missing
    if missing.any():
        place = table.place(int(missing.argmax()), name)
        raise ValueError(f"missing value at {place}, the first of {int(missing.sum())} in the column")


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
    """Fits the encoding of a table. Returns the encoding, the complete rows, and notes for the user.

    Numeric columns are kept, text columns become one-hot features, and empty columns are dropped.

    Args:
        table: Raw values.
        target: Target column. Defaults to the last column.
        task: "classify" or "regress". By default a text target is classified and a numeric one regressed.
        categorical: Columns to treat as text even if they look like numbers, so that 01234 is not 1234.
        ignore: Columns to leave out.
        drop_missing: Whether to drop rows with missing values. Otherwise they raise an error.

    Examples:
        >>> import numpy as np
        >>> from lawful.data import table_of
        >>> columns = {"size": np.array([1, 3]), "color": np.array(["red", "blue"]), "price": np.array([2, 4])}
        >>> fit_table_encoding(table_of(columns, name="data"))[0].names
        ('size', 'color=blue', 'color=red')
    """
    target = list(table.columns)[-1] if target is None else target
    for name in (target, *categorical, *ignore):
        if name not in table.columns:
            close = did_you_mean(name, table.columns)
            raise ValueError(f"{table.name} has no column {name!r}{close} It has {_list_columns(table)}")
    if target in ignore:
        raise ValueError(f"ignore must not contain the target {target!r}")
    empty = [name for name, values in table.columns.items() if values.missing.all() and name not in ignore]
    notes = [*table.notes, *(f"dropped column {name!r}: it has no values" for name in empty)]
    inputs = [name for name in table.columns if name != target and name not in ignore and name not in empty]
    if not inputs or target in empty:
        raise ValueError(f"{table.name} needs a target and another column with values, it has {_list_columns(table)}")
    if len(inputs) > _MAX_WIDTH:
        raise ValueError(f"{table.name} has {len(inputs)} columns, at most {_MAX_WIDTH} are allowed")
    table, dropped = _complete_rows(table, (*inputs, target), drop_missing)
    if dropped:
        notes.append(f"dropped {dropped} rows with missing values")
    columns = tuple(_fit_input(table, name, categorical) for name in inputs)
    notes += [f"column {column.name!r} is constant" for column in columns if _is_constant(table, column)]
    encoding = TableEncoding(columns, _fit_target(table, target, task, categorical))
    if len(encoding.names) > _MAX_WIDTH:
        raise ValueError(f"{table.name} has {len(encoding.names)} features, at most {_MAX_WIDTH} are allowed")
    return encoding, table, tuple(notes)


def _list_columns(table: Table) -> str:
    shown = [repr(name) for name in table.columns]
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")


def _complete_rows(table: Table, names: Collection[str], drop: bool) -> tuple[Table, int]:
    """Returns the rows without missing values and the number of dropped rows. Raises unless `drop` is True."""
    missing = np.zeros(len(table), dtype=bool)
    for name in names:
        here = table.columns[name].missing
        if here.any() and not drop:
            total = sum(int(table.columns[other].missing.sum()) for other in names)
            place = table.place(int(here.argmax()), name)
            raise ValueError(f"missing value at {place}, the first of {total}: fill them in, or set drop_missing=True")
        missing |= here
    if missing.any():
        table = table.take(~missing)
    if len(table) < 2:
        raise ValueError(f"{table.name} has {len(table)} complete rows, expected at least 2")
    return table, int(missing.sum())


def _fit_input(table: Table, name: str, categorical: Collection[str]) -> Column:
    values = table.columns[name]
    if values.numbers is not None and name not in categorical:
        column = Column(name)
        column.numbers(table)
        return column
    return _fit_levels(table, name, categorical, "ignore the column")


def _fit_target(table: Table, name: str, task: Task | None, categorical: Collection[str]) -> Column:
    numeric = table.columns[name].numbers is not None and name not in categorical
    column = Column(name)
    if task == "regress" or (task is None and numeric):
        column.numbers(table)
        return column
    column = _fit_levels(table, name, categorical, "for a numeric target, use task='regress'")
    levels = column.levels or ()
    if len(levels) < 2:
        raise ValueError(f"target {name!r} of {table.name} has only the class {levels[0]!r}, expected at least 2")
    return column


def _fit_levels(table: Table, name: str, categorical: Collection[str], advice: str) -> Column:
    """Returns a categorical column with its distinct values, sorted. Columns in `categorical` stay text."""
    values = table.columns[name]
    by_number = values.numbers is not None and (values.text is None or name not in categorical)
    if values.numbers is not None and by_number:
        Column(name).numbers(table)
        levels = tuple(_format_number(value) for value in np.unique(values.numbers).tolist())
    else:
        if name not in categorical:
            _check_not_numeric(table, name)
        words = {word for word in values.words if word is not None}
        levels = tuple(sorted(words) if values.numbers is None else sorted(words, key=lambda word: (float(word), word)))
    if len(levels) > _MAX_LEVELS:
        count = f"{len(levels)} distinct values, at most {_MAX_LEVELS} are allowed"
        raise ValueError(f"column {name!r} of {table.name} has {count}: {advice}")
    return Column(name, levels, by_number)


def _check_not_numeric(table: Table, name: str) -> None:
    """Raises for decimal commas, and for a few text values among many numbers."""
    text = table.columns[name].text or ()
    where = [i for i, word in enumerate(text) if _parse_number(word) is None]
    place, word = table.place(where[0], name), text[where[0]]
    if all("," in text[i] and _parse_number(text[i].replace(",", "")) is not None for i in where):
        raise ValueError(f"{place}: got {word[:50]!r}, use a decimal point and no comma in numbers")
    if len(where) < 0.1 * len(text):
        raise ValueError(
            f"{place}: got {word[:50]!r} among {len(text) - len(where)} numbers, "
            "correct it or list the column in categorical"
        )


def _is_constant(table: Table, column: Column) -> bool:
    numbers = table.columns[column.name].numbers
    if column.levels is not None or numbers is None:
        return len(column.levels or ()) == 1
    return bool((numbers == numbers[0]).all())
