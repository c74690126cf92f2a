"""Encoding of tables: numbers, dates and one-hot categories, fitted once and applied to new rows."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from lawful._json import require_choice, require_fields, require_list, require_text
from lawful._names import quote
from lawful._suggest import did_you_mean
from lawful.data._encoded_rows import Block, EncodedRows, block_of
from lawful.data.dates import DateOrder, Dates, parse_dates
from lawful.data.tables import ColumnValues, Table, _format_number, _parse_number, _shorten

_MAX_LEVELS = 1000
"""Maximum number of categories of a column."""
_MAX_WIDTH = 100_000
"""Maximum number of columns, and of features per row."""
_MAX_DENSE = 2**24
"""Maximum number of features of all rows that are encoded at once."""
_MIN_REPEATS = 4
"""A column is stored by its different values if each has this number of rows on average."""
_DAY = np.timedelta64(1, "D")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

DateCycle = Literal["month", "weekday", "hour"]
"""A cycle of the calendar."""


@dataclass(frozen=True)
class DateEncoding:
    """Encoding of dates as numbers: days since an origin, and the position in cycles of the calendar.

    The month is a point on the circle of the year, the hour a point on the circle of the day, and the weekday is
    one-hot.

    Examples:
        >>> dates = DateEncoding(order="year first", origin="2024-01-01", cycles=("weekday",))
        >>> dates.features[:2], dates.encode(np.array(["2024-01-02"], dtype="datetime64[us]"))[0, :3]
        (('time', 'weekday=Monday'), array([1., 0., 1.]))
    """

    order: DateOrder = "year first"
    """Order of day and month."""
    origin: str = "2000-01-01"
    """Date whose time is 0."""
    cycles: tuple[DateCycle, ...] = ("month", "weekday")
    """Cycles of the calendar."""

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        names = {
            "month": ("month sin", "month cos"),
            "weekday": tuple(f"weekday={day}" for day in _WEEKDAYS),
            "hour": ("hour sin", "hour cos"),
        }
        return ("time", *(name for cycle in self.cycles for name in names[cycle]))

    @cached_property
    def _origin(self) -> np.datetime64:
        return np.datetime64(self.origin, "us")

    @classmethod
    def fit(cls, dates: Dates) -> DateEncoding:
        """Chooses the origin, and the cycles that the dates span. The month needs nearly a year of dates."""
        known = dates.values[~np.isnat(dates.values)]
        first, last = known.min(), known.max()
        days, months = known.astype("datetime64[D]"), known.astype("datetime64[M]")
        cycles: list[DateCycle] = ["month"] if (last - first) / _DAY >= _MIN_YEAR_DAYS else []
        if dates.precision != "month" and len(np.unique((days - months).astype(int))) > 1:
            cycles.append("weekday")
        if len(np.unique((known - days).astype("timedelta64[h]"))) > 1:
            cycles.append("hour")
        return cls(dates.order, str(first.astype("datetime64[D]")), tuple(cycles))

    def parse(self, values: ColumnValues) -> np.ndarray:
        """Parses dates as `datetime64`, NaT where a value is missing or not a date."""
        words, order = [_with_dashes(word or "") for word in values.distinct.words], self.order
        order = None if order == "year first" else order
        if (dates := parse_dates(words, order=order, codes=values.codes)) is not None:
            return dates.values
        each = [parse_dates([word], order=order) for word in words]
        known = [np.datetime64("NaT") if date is None else date.values[0] for date in each]
        return np.array(known, "datetime64[us]")[values.codes]

    def days(self, dates: np.ndarray) -> np.ndarray:
        """Returns the days since the origin."""
        return (dates - self._origin) / _DAY

    def encode(self, dates: np.ndarray) -> np.ndarray:
        """Returns the features of dates, one row each."""
        days = dates.astype("datetime64[D]")
        year = dates.astype("datetime64[Y]").astype("datetime64[us]")
        parts = [self.days(dates)[:, None]]
        for cycle in self.cycles:
            if cycle == "weekday":
                parts.append(np.eye(7)[(days.astype(np.int64) + 3) % 7])
            else:
                turn = (dates - year) / _DAY / 365.25 if cycle == "month" else (dates - days) / _DAY
                parts.append(np.stack([np.sin(2 * np.pi * turn), np.cos(2 * np.pi * turn)], axis=1))
        return np.concatenate(parts, axis=1)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary."""
        return {"order": self.order, "origin": self.origin, "cycles": list(self.cycles)}

    @classmethod
    def from_json(cls, value: object, *, where: str) -> DateEncoding:
        """Rebuilds the encoding from untrusted JSON. Raises ValueError if it is malformed."""
        loaded = require_fields(value, ("order", "origin", "cycles"), where=where)
        order: Any = require_choice(loaded["order"], get_args(DateOrder), where=f"{where}.order")
        origin = require_text(loaded["origin"], where=f"{where}.origin")
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", origin, re.ASCII) or parse_dates([origin]) is None:
            raise ValueError(f"{where}.origin must be a date such as 2024-01-31, got {origin[:100]!r}")
        cycles = loaded["cycles"]
        if not isinstance(cycles, list) or len(cycles) > 3 or len({*map(str, cycles)}) < len(cycles):
            raise ValueError(f"{where}.cycles must be a list of different cycles, got {str(cycles)[:100]}")
        named: Any = tuple(require_choice(cycle, get_args(DateCycle), where=f"{where}.cycles") for cycle in cycles)
        return cls(order, origin, named)


_MIN_YEAR_DAYS = 300
"""Smallest span of dates, in days, for the cycle of the year."""


def _with_dashes(word: str) -> str:
    """Writes a compact date with dashes.

    Examples:
        >>> _with_dashes("20240131"), _with_dashes("31.1.2024")
        ('2024-01-31', '31.1.2024')
    """
    return f"{word[:4]}-{word[4:6]}-{word[6:]}" if len(word) == 8 and word.isascii() and word.isdigit() else word


@dataclass(frozen=True)
class Column:
    """Encoding of a column: a number, a date, or a category with a list of levels.

    Examples:
        >>> Column("color", ("blue", "red")).features
        ('color=blue', 'color=red')
        >>> Column("size", fill=1.5, indicator=True).features
        ('size', 'size is missing')
    """

    name: str
    """Column name."""
    levels: tuple[str, ...] | None = None
    """Categories in order; None for a number or a date."""
    by_number: bool = False
    """Whether levels compare as numbers, so that 1, 1.0 and 01 are equal."""
    other: bool = False
    """Whether one more level stands for rare and unknown categories."""
    dates: DateEncoding | None = None
    """Encoding of dates; None for a number or a category."""
    fill: float | str | None = None
    """Value for missing entries: a number, days since the origin of dates, or a level. None makes missing values and
    unknown categories an error."""
    indicator: bool = False
    """Whether one more feature marks missing values."""

    @property
    def kind(self) -> Literal["number", "date", "category"]:
        """Kind of the column."""
        return "category" if self.levels is not None else "number" if self.dates is None else "date"

    @property
    def features(self) -> tuple[str, ...]:
        """Feature names: the column itself, one per level, or the parts of a date; then the indicator."""
        if self.levels is not None:
            names = [f"{self.name}={level}" for level in self.levels] + [f"{self.name}=(other)"] * self.other
        else:
            names = [self.name] if self.dates is None else [f"{self.name}: {part}" for part in self.dates.features]
        return (*names, *[f"{self.name} is missing"] * self.indicator)

    @cached_property
    def keys(self) -> dict[str | float | None, int]:
        """Index of each level."""
        return {self._key(level): i for i, level in enumerate(self.levels or ())}

    @cached_property
    def is_boolean(self) -> bool:
        """Whether the levels are true and false, in any case: TRUE of a file is True of Python."""
        words = [level.lower() for level in self.levels or ()]
        return bool(words) and {*words} <= {"true", "false"} and len({*words}) == len(words)

    def _key(self, word: str | None) -> str | float | None:
        """Returns what a value is compared by."""
        if self.by_number:
            return _parse_number(word or "")
        return word.lower() if self.is_boolean and word is not None else word

    def encode(self, table: Table) -> Float[np.ndarray, "n d"]:
        """Returns the features of the column.

        Raises:
            ValueError: If a value is not a number or a date, or is not finite in float32; without `fill` also if it is
                missing or an unknown category.
        """
        values = _column(table, self.name)
        missing = values.missing
        if self.fill is None:
            _check_no_missing(table, self.name)
        matrix = np.zeros((len(table), len(self.features)), dtype=np.float32)
        if self.levels is not None:
            found = self._level_indices(table)
            if self.fill is None:
                self._check_known(table, found)
            unknown = len(self.levels) if self.other else -1
            filled = self.keys.get(self._key(str(self.fill)), -1)
            indices = np.where(missing, filled, np.where(found < 0, unknown, found))
            rows = np.flatnonzero(indices >= 0)
            matrix[rows, indices[rows]] = 1
        elif self.dates is not None:
            dates = self._parse_dates(table, self.dates)
            fill = self.dates._origin + np.timedelta64(round(86_400_000_000 * float(self.fill or 0)), "us")
            matrix[:, : len(self.dates.features)] = self.dates.encode(np.where(missing, fill, dates))
        else:
            matrix[:, 0] = np.where(missing, float(self.fill or 0), self.numbers(table, allow_missing=True))
        if self.indicator:
            matrix[:, -1] = missing
        return matrix

    def _block(self, table: Table) -> Block:
        """Returns the features of the different values, and the index of each row; or the features of each row."""
        values = _column(table, self.name)
        if self.kind == "number" or len(values.distinct) > len(values) / _MIN_REPEATS:
            return block_of(self.encode(table))
        try:
            return block_of(self.encode(Table({self.name: values.distinct}, table.name)), values.codes)
        except ValueError:
            return block_of(self.encode(table))  # raises with the place of the value

    def numbers(self, table: Table, *, allow_missing: bool = False) -> np.ndarray:
        """Returns the numbers of the column. Raises if a value is text, missing or not finite in float32."""
        values = _column(table, self.name)
        if values.numbers is None:
            row, word = next((i, word) for i, word in enumerate(values.text or ()) if _parse_number(word) is None)
            raise ValueError(f"{table.place(row, self.name)}: expected a number, got {word!r}")
        if not allow_missing:
            _check_no_missing(table, self.name)
        with np.errstate(over="ignore"):
            infinite = np.flatnonzero(np.isinf(values.numbers.astype(np.float32)))
        if len(infinite):
            row = int(infinite[0])
            place = table.place(row, self.name)
            raise ValueError(f"{place}: expected a finite float32 number, got {values.numbers[row]}")
        return values.numbers

    def indices(self, table: Table) -> np.ndarray:
        """Returns the level index of each row. Raises if a value is missing or unknown."""
        _column(table, self.name)
        _check_no_missing(table, self.name)
        found = self._level_indices(table)
        self._check_known(table, found)
        return found

    def unknown(self, table: Table) -> tuple[str, ...]:
        """Returns the values of a categorical column that are unknown categories."""
        if self.levels is None:
            return ()
        words, found = _column(table, self.name).words, self._level_indices(table)
        return tuple(word for row in np.flatnonzero(found < 0).tolist() if (word := words[row]) is not None)

    def fit_fill(self, table: Table) -> Column:
        """Returns a copy that fills missing values as in these rows: with the median, or the most frequent level."""
        values = _column(table, self.name)
        if values.missing.all():
            return self
        fill: float | str
        if self.levels is not None:
            found = self._level_indices(table)
            fill = self.levels[int(np.bincount(found[found >= 0], minlength=1).argmax())]
        elif self.dates is not None:
            days = self.dates.days(self._parse_dates(table, self.dates))
            fill = float(np.median(days[~values.missing]))
        else:
            fill = float(np.nanmedian(self.numbers(table, allow_missing=True)))
        return replace(self, fill=fill)

    def _level_indices(self, table: Table) -> Int[np.ndarray, " n"]:
        """Returns the level index of each row, -1 where it is missing or unknown."""
        values = _column(table, self.name)
        distinct, keys = values.distinct, self.keys
        if self.by_number and distinct.numbers is not None:
            found = [keys.get(number, -1) for number in distinct.numbers.tolist()]
        else:
            found = [keys.get(self._key(word), -1) for word in distinct.words]
        return np.array(found, dtype=np.int64)[values.codes]

    def _check_known(self, table: Table, found: Int[np.ndarray, " n"]) -> None:
        if (found < 0).any():
            row = int((found < 0).argmax())
            word, levels = table.columns[self.name].words[row], self.levels or ()
            known = ", ".join(map(repr, levels[:10])) + (", ..." if len(levels) > 10 else "")
            raise ValueError(f"{table.place(row, self.name)}: unknown category {word!r}, expected {known}")

    def _parse_dates(self, table: Table, encoding: DateEncoding) -> np.ndarray:
        values = _column(table, self.name)
        dates = encoding.parse(values)
        wrong = np.flatnonzero(np.isnat(dates) & ~values.missing)
        if len(wrong):
            row = int(wrong[0])
            raise ValueError(f"{table.place(row, self.name)}: expected a date, got {values.words[row]!r}")
        return dates

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary."""
        return {
            "name": self.name,
            "levels": None if self.levels is None else list(self.levels),
            "by_number": self.by_number,
            "other": self.other,
            "dates": None if self.dates is None else self.dates.to_json(),
            "fill": self.fill,
            "indicator": self.indicator,
        }

    @classmethod
    def from_json(cls, value: object, *, where: str) -> Column:
        """Rebuilds the column from untrusted JSON. Raises ValueError if it is malformed."""
        names = ("name", "levels", "by_number", "other", "dates", "fill", "indicator")
        loaded = require_fields(value, names, where=where)
        for name in ("by_number", "other", "indicator"):
            if not isinstance(loaded[name], bool):
                raise ValueError(f"{where}.{name} must be true or false, got {str(loaded[name])[:100]}")
        levels, by_number = loaded["levels"], loaded["by_number"]
        if levels is not None:
            levels = tuple(
                require_text(level, where=f"{where}.levels")
                for level in require_list(levels, _MAX_LEVELS, where=f"{where}.levels")
            )
        dates = None if loaded["dates"] is None else DateEncoding.from_json(loaded["dates"], where=f"{where}.dates")
        column = cls(
            require_text(loaded["name"], where=f"{where}.name"),
            levels,
            by_number,
            loaded["other"],
            dates,
            _fill_from_json(loaded["fill"], levels, where=f"{where}.fill"),
            loaded["indicator"],
        )
        if by_number and any((n := _parse_number(level)) is None or not np.isfinite(n) for level in levels or ()):
            raise ValueError(f"{where}.levels must be finite numbers")
        if levels is not None and len(column.keys) != len(levels):
            raise ValueError(f"{where}.levels must be distinct")
        if levels is not None and dates is not None:
            raise ValueError(f"{where} must not have both levels and dates")
        return column


def _fill_from_json(value: object, levels: tuple[str, ...] | None, *, where: str) -> float | str | None:
    if value is None:
        return None
    if levels is not None:
        return require_choice(value, levels, where=where)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 3e38:
        raise ValueError(f"{where} must be a finite float32 number, got {str(value)[:100]}")
    return float(value)


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
        """Returns the encoded inputs: numbers, dates as numbers, one-hot categories, and indicators.

        The rows of a large table are encoded when they are read.
        """
        self._check_columns(table)
        if len(table) * len(self.names) > 2**31:
            raise ValueError(f"{table.name} has too many values: {len(table)} rows of {len(self.names)} features")
        if len(table) * len(self.names) > _MAX_DENSE:
            return EncodedRows([column._block(table) for column in self.columns])
        return torch.from_numpy(np.concatenate([column.encode(table) for column in self.columns], axis=1))

    def targets(self, table: Table) -> Shaped[Tensor, "n *one"]:
        """Returns class indices of shape (n,), or values of shape (n, 1)."""
        if self.target.levels is not None:
            return torch.from_numpy(self.target.indices(table))
        return torch.from_numpy(self.target.numbers(table).astype(np.float32))[:, None]

    def fit_fill(self, table: Table, where: Bool[np.ndarray, " n"] | None = None) -> TableEncoding:
        """Returns a copy that fills missing values as in these rows, such as the training rows.

        Args:
            table: Rows.
            where: Mask of the rows to use. Defaults to all.
        """

        def fit(column: Column) -> Column:
            if column.fill is None:
                return column
            values = _column(table, column.name)  # one column at a time is copied
            return column.fit_fill(table if where is None else Table({column.name: values.take(where)}, table.name))

        return replace(self, columns=tuple(map(fit, self.columns)))

    def describe(self, table: Table, summaries: Sequence[ColumnSummary]) -> tuple[ColumnSummary, ...]:
        """Returns the summaries of the columns, with the values that this encoding fills in.

        Args:
            table: Rows that the encoding was fitted to.
            summaries: What each column was taken for.
        """
        filled = {column.name: column for column in self.columns if column.indicator}
        return tuple(s._replace(detail=_describe(table, filled[s.name])) if s.name in filled else s for s in summaries)

    def complete(self, table: Table) -> Shaped[np.ndarray, "n"]:
        """Returns a mask of the rows without missing inputs."""
        self._check_columns(table)
        return ~np.any([_column(table, column.name).missing for column in self.columns], axis=0)

    def _check_columns(self, table: Table) -> None:
        """Raises ValueError if a column is absent, with the remedy if no column has a similar name."""
        for column in self.columns:
            try:
                _column(table, column.name)
            except ValueError as error:
                if not str(error).endswith(f"{column.name!r}."):
                    raise
                empty = "" if column.fill is None else ", empty where unknown,"
                raise ValueError(
                    f"{error} It is an input of the model: add it{empty} or train without it (--ignore-columns "
                    f"{shlex.quote(column.name)})"
                ) from None

    def notes(self, table: Table, *, hint: str = "") -> tuple[str, ...]:
        """Returns what the encoding changes in new rows: filled values and unknown categories.

        Args:
            table: New rows.
            hint: End of the note on filled values.
        """
        missing = {c.name: int(table.columns[c.name].missing.sum()) for c in self.columns if c.fill is not None}
        notes = [_filled_note(missing) + hint] if any(missing.values()) else []
        for column in self.columns:
            if column.fill is not None and (unknown := column.unknown(table)):
                one = "1 value is an unknown category, which counts as other"
                many = f"{len(unknown)} values are unknown categories, which count as other"
                which = _shorten(list(dict.fromkeys(unknown)), 3)
                notes.append(f"column {column.name!r}: {one if len(unknown) == 1 else many}: {which}")
        return tuple(notes)

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
        hint = "" if table.has_header else f" {table.name} has no header."
        raise ValueError(f"{table.name} has no column {name!r}{did_you_mean(name, table.columns)}{hint}")
    return table.columns[name]


def _check_no_missing(table: Table, name: str) -> None:
    missing = table.columns[name].missing
    if missing.any():
        place = table.place(int(missing.argmax()), name)
        raise ValueError(f"missing value at {place}, the first of {int(missing.sum())} in the column")


def _filled_note(missing: Mapping[str, int]) -> str:
    total, names = sum(missing.values()), [name for name, count in missing.items() if count]
    values = "1 missing value" if total == 1 else f"{total} missing values"
    columns = f"column {names[0]!r}" if len(names) == 1 else f"{len(names)} columns, {_shorten(names, 5)}"
    return f"filled {values} of {columns}"


_DROP_HINT = "; to drop these rows, use --drop-missing (drop_missing=True)"
"""What to do about filled values, where there is such an option."""


# ---------------------------------------------------------------- fitting

Task = Literal["classify", "regress"]

_MIN_ID_ROWS, _MAX_ID_FRACTION = 20, 0.5
"""A column with at least this number of rows is an identifier if more than this fraction of its values is distinct."""
_RARE, _RARE_FRACTION = 5, 0.01
"""Categories with fewer rows than both are merged to `(other)`."""
_ID_NAME = re.compile(r"(?i:id|ids|idx|index|key|uuid|guid|row|(.*[\s_.-])(id|uuid|guid|key))|.*[a-z](Id|ID)")
"""Names of numeric identifiers."""
_DATE_NAME = re.compile(r"(?i).*(date|day|time|datum)")


class ColumnSummary(NamedTuple):
    """Summary of a column: its kind, its missing values and details."""

    name: str
    kind: str
    """`number`, `category`, `date`, `target` or `left out`."""
    missing: int
    """Number of missing values."""
    detail: str
    """Range or categories, and how missing values are filled; or the reason to leave the column out."""


class FittedTable(NamedTuple):
    """A table with its fitted encoding."""

    encoding: TableEncoding
    table: Table
    """The rows that are used."""
    notes: tuple[str, ...]
    """Notes for the user: left-out columns, filled values, dropped rows."""
    columns: tuple[ColumnSummary, ...]
    """How each column is used."""


def fit_table_encoding(
    table: Table,
    *,
    target: str | None = None,
    task: Task | None = None,
    categorical_columns: Collection[str] = (),
    ignore_columns: Collection[str] = (),
    keep_columns: Collection[str] = (),
    drop_missing: bool = False,
    impute: bool = True,
) -> FittedTable:
    """Fits the encoding of a table.

    Numbers are kept. Dates become the days since the first date and the position in the year, the week and the day.
    Other text becomes one-hot; rare categories share one feature. Digits with leading zeros, such as 00042, are text.
    Empty columns and identifiers, whose values are mostly distinct, are left out. Missing numbers and dates
    are filled with the median and missing categories with the most frequent one; one more feature marks them. Rows
    without a target are dropped.

    Args:
        table: Raw values.
        target: Target column. Defaults to the last column.
        task: "classify" or "regress". By default a text target is classified and a numeric one regressed.
        categorical_columns: Columns to treat as text even if they look like numbers or dates.
        ignore_columns: Columns to leave out.
        keep_columns: Columns to use although they look like identifiers.
        drop_missing: Whether to drop rows with missing values instead.
        impute: Whether to fill missing values, and to encode unknown categories of new data. Otherwise both are errors.

    Examples:
        >>> import numpy as np
        >>> from lawful.data import table_of
        >>> columns = {"size": np.array([1, 3]), "color": np.array(["red", "blue"]), "price": np.array([2, 4])}
        >>> fit_table_encoding(table_of(columns, name="data")).encoding.names
        ('size', 'color=blue', 'color=red')
    """
    is_default = target is None
    target = list(table.columns)[-1] if target is None else target
    for name in (target, *categorical_columns, *ignore_columns, *keep_columns):
        if name not in table.columns:
            close = did_you_mean(name, table.columns)
            raise ValueError(f"{table.name} has no column {name!r}{close} It has {_shorten(list(table.columns))}")
    if target in ignore_columns:
        raise ValueError(f"ignore_columns must not contain the target {target!r}")
    left_out: dict[str, str] = {}
    for name, values in table.columns.items():
        if name in ignore_columns:
            left_out[name] = "ignored"
        elif values.missing.all():
            left_out[name] = "empty"
    empty = [name for name, reason in left_out.items() if reason == "empty"]
    notes = [*table.notes, *(f"left out column {name!r}: it has no values" for name in empty)]
    inputs = [name for name in table.columns if name != target and name not in left_out]
    if not inputs or target in empty:
        raise ValueError(
            f"{table.name} needs a target and another column with values, it has {_shorten(list(table.columns))}"
        )
    if len(inputs) > _MAX_WIDTH:
        raise ValueError(f"{table.name} has {len(inputs)} columns, at most {_MAX_WIDTH} are allowed")
    whole, summaries = table, []
    table, dropped = _drop_rows(table, inputs, target, drop_missing=drop_missing, impute=impute)
    if dropped:
        notes.append(dropped)
    columns = []
    for name in inputs:
        column = _fit_input(table, name, categorical_columns, keep_columns)
        if isinstance(column, str):
            left_out[name] = column
            notes.append(f"left out column {name!r}: {column}; to use it, list it in --keep-columns")
            continue
        if impute and not table.columns[name].missing.all():
            column = column.fit_fill(table)
            column = replace(column, indicator=bool(table.columns[name].missing.any()))
        columns.append(column)
    if not columns:
        raise ValueError(f"{table.name} has no input column left: {'; '.join(notes)}")
    missing = {column.name: int(table.columns[column.name].missing.sum()) for column in columns}
    if any(missing.values()):
        notes.append(_filled_note(missing) + _DROP_HINT)
    notes += [f"column {column.name!r} is constant" for column in columns if _is_constant(table, column)]
    notes += [
        f"column {column.name!r}: day and month are ambiguous; read as {column.dates.order}"
        for column in columns
        if column.dates is not None and _is_ambiguous(table, column)
    ]
    encoding = TableEncoding(tuple(columns), _fit_target(table, target, task, categorical_columns))
    if len(encoding.names) > _MAX_WIDTH:
        raise ValueError(f"{table.name} has {len(encoding.names)} features, at most {_MAX_WIDTH} are allowed")
    fitted = {column.name: column for column in columns}
    for name, values in whole.columns.items():
        missing_count = int(values.missing.sum())
        if name == target:
            detail = _describe_target(table, encoding.target, is_default=is_default)
            summaries.append(ColumnSummary(name, "target", missing_count, detail))
        elif name in left_out:
            summaries.append(ColumnSummary(name, "left out", missing_count, left_out[name]))
        else:
            detail = _describe(table, fitted[name])
            summaries.append(ColumnSummary(name, fitted[name].kind, missing_count, detail))
    return FittedTable(encoding, table, tuple(notes), tuple(summaries))


def _drop_rows(
    table: Table, inputs: Collection[str], target: str, *, drop_missing: bool, impute: bool
) -> tuple[Table, str]:
    """Drops the rows without a target, and with `drop_missing` those with a missing value. Returns a note."""
    names = (*inputs, target)
    missing = table.columns[target].missing.copy()
    note = "dropped {} rows without a target" if impute else ""
    if drop_missing:
        note = "dropped {} rows with missing values"
        missing |= np.any([table.columns[name].missing for name in names], axis=0)
    elif not impute:
        for name in names:
            here = table.columns[name].missing
            if here.any():
                total = sum(int(table.columns[other].missing.sum()) for other in names)
                place = table.place(int(here.argmax()), name)
                raise ValueError(
                    f"missing value at {place}, the first of {total}: fill them in, or drop the rows with "
                    "--drop-missing (drop_missing=True)"
                )
    count = int(missing.sum())
    if count:
        table = table.take(~missing)
    if len(table) < 2:
        raise ValueError(f"{table.name} has {len(table)} complete rows, expected at least 2")
    return table, note.format(count).replace("1 rows", "1 row") if count else ""


def _fit_input(table: Table, name: str, categorical: Collection[str], keep: Collection[str]) -> Column | str:
    """Returns the encoding of a column, without `fill`, or the reason to leave it out."""
    values = table.columns[name]
    if name in categorical:
        return _fit_levels(table, name, categorical, keep_rare=True)
    if values.numbers is not None:
        dates = _compact_dates(name, values)
        if dates is None and not _has_leading_zeros(values):
            reason = "" if name in keep else _identifier(name, values)
            column = Column(name)
            column.numbers(table, allow_missing=True)
            return reason or column
    else:
        dates = parse_dates(values.distinct.words, codes=values.codes)
    if dates is not None:
        if dates.invalid:
            row = dates.invalid[0]
            raise ValueError(
                f"{table.place(row, name)}: got {str(values.words[row])[:50]!r} among dates, correct it or list the "
                "column in --categorical-columns"
            )
        return Column(name, dates=DateEncoding.fit(dates))
    reason = "" if name in keep else _identifier(name, values)
    column = _fit_levels(table, name, categorical, keep_rare=name in keep)
    if not column.levels:
        reason = reason or f"none of its categories has {_RARE} rows or more"
    return reason or column


def _compact_dates(name: str, values: ColumnValues) -> Dates | None:
    """Parses dates such as 20240131, if the column is named like one."""
    if not _DATE_NAME.match(name):
        return None
    words = [word for word in values.distinct.words if word is not None]
    if not words or not all(len(word) == 8 and word.isascii() and word.isdigit() for word in words):
        return None
    dates = parse_dates([_with_dashes(word or "") for word in values.distinct.words], codes=values.codes)
    return None if dates is None or dates.invalid else dates


def _has_leading_zeros(values: ColumnValues) -> bool:
    """Returns whether numbers are codes, such as 00042: digits only, some with a leading zero."""
    if values.text is None:
        return False
    words = [word for word in values.distinct.words if word is not None]
    return all(word.isdigit() for word in words) and any(len(word) > 1 and word[0] == "0" for word in words)


def _identifier(name: str, values: ColumnValues) -> str:
    """Returns the reason to treat a column as an identifier; an empty string if it is not one."""
    if values.numbers is not None and not _has_leading_zeros(values):
        known = values.numbers[~values.missing]
        if not _ID_NAME.fullmatch(name.strip()) or not np.array_equal(known, np.floor(known)):
            return ""
        count, rows = len(np.unique(known)), len(known)
    else:
        count = len({word for word in values.distinct.words if word is not None})
        rows = len(values) - int(values.missing.sum())
    if rows < _MIN_ID_ROWS or count <= _MAX_ID_FRACTION * rows:
        return ""
    return f"it looks like an identifier, with {count} different values in {rows} rows"


def _fit_target(table: Table, name: str, task: Task | None, categorical: Collection[str]) -> Column:
    values = table.columns[name]
    numeric = (
        values.numbers is not None and name not in categorical and not (task is None and _has_leading_zeros(values))
    )
    column = Column(name)
    if task == "regress" or (task is None and numeric):
        if values.numbers is None and parse_dates(values.distinct.words, codes=values.codes) is not None:
            raise ValueError(f"target {name!r} of {table.name} is a date, expected numbers: choose another target")
        try:
            column.numbers(table)
        except ValueError as error:
            numeric = [key for key, other in table.columns.items() if other.numbers is not None]
            if values.numbers is not None or not numeric:
                raise
            raise ValueError(f"{error}. Numeric columns, to set as target: {_shorten(numeric)}") from None
        return column
    column = _fit_levels(table, name, categorical, target=True)
    levels = column.levels or ()
    if len(levels) < 2:
        raise ValueError(f"target {name!r} of {table.name} has only the class {levels[0]!r}, expected at least 2")
    return column


def _fit_levels(
    table: Table, name: str, categorical: Collection[str], *, target: bool = False, keep_rare: bool = False
) -> Column:
    """Returns a categorical column with its distinct values, sorted. Rare levels of an input are merged."""
    values = table.columns[name]
    text = values.text is not None and (name in categorical or _has_leading_zeros(values))
    by_number = values.numbers is not None and not text
    if values.numbers is not None and by_number:
        Column(name).numbers(table, allow_missing=True)
        numbers, times = np.unique(values.numbers[~values.missing], return_counts=True)
        counts = dict(zip(map(_format_number, numbers.tolist()), times.tolist(), strict=True))
        levels = sorted(counts, key=float)
    else:
        if name not in categorical and not text:
            _check_not_numeric(table, name, target=target)
        counts = Counter()
        for word, number in zip(values.distinct.words, values.counts.tolist(), strict=True):
            if word is not None:
                counts[word] += number
        levels = sorted(counts) if values.numbers is None else sorted(counts, key=lambda word: (float(word), word))
    if target:
        if len(levels) > _MAX_LEVELS:
            count = f"{len(levels)} distinct values, at most {_MAX_LEVELS} are allowed"
            raise ValueError(f"column {name!r} of {table.name} has {count}: for a numeric target, use task='regress'")
        return Column(name, tuple(levels), by_number)
    limit = 0 if keep_rare else min(_RARE, _RARE_FRACTION * len(table))
    frequent = sorted((level for level in levels if counts[level] >= limit), key=lambda level: -counts[level])
    kept = set(frequent[:_MAX_LEVELS])
    return Column(name, tuple(level for level in levels if level in kept), by_number, other=len(kept) < len(levels))


_NUMBER_WITH_UNIT = re.compile(r"[+-]?[$€£¥] ?[\d.,]+|[+-]?[\d.,]+ ?[%$€£¥]")


def _check_not_numeric(table: Table, name: str, *, target: bool) -> None:
    """Raises for decimal commas, for numbers with a unit, and for a few text values among many numbers."""
    values = table.columns[name]
    text = values.distinct.text or ()
    where = [i for i, word in enumerate(text) if _parse_number(word) is None]
    place, word = table.place(int((values.codes == where[0]).argmax()), name), text[where[0]]
    if all("," in text[i] and _parse_number(text[i].replace(",", "")) is not None for i in where):
        raise ValueError(f"{place}: got {word[:50]!r}, use a decimal point and no comma in numbers")
    if not target and all(_NUMBER_WITH_UNIT.fullmatch(text[i].strip()) for i in where):
        raise ValueError(
            f"{place}: got {word[:50]!r}, write numbers without a unit or list the column in --categorical-columns"
        )
    others = int(values.counts[where].sum())
    numbers = len(values) - others - int(values.missing.sum())
    if others < 0.1 * (numbers + others):
        raise ValueError(
            f"{place}: got {word[:50]!r} among {numbers} numbers, correct it or list the column in "
            "--categorical-columns"
        )


def _is_constant(table: Table, column: Column) -> bool:
    values = table.columns[column.name]
    if values.numbers is not None:
        known = values.numbers[~values.missing]
        return bool((known == known[:1]).all()) and not column.indicator
    return len({word for word in values.distinct.words if word is not None}) == 1 and not column.indicator


def _is_ambiguous(table: Table, column: Column) -> bool:
    values = table.columns[column.name]
    dates = parse_dates(values.distinct.words, codes=values.codes)
    return dates is not None and dates.ambiguous


def _describe(table: Table, column: Column) -> str:
    """Describes the values of an input column in a few words."""
    return "; ".join(_descriptions(table, column))


def _describe_target(table: Table, column: Column, *, is_default: bool) -> str:
    text = _describe(table, column).replace(" categories: ", " classes: ", 1)
    return f"{text}; the last column, choose another with --target" if is_default else text


def _descriptions(table: Table, column: Column) -> Iterator[str]:
    values, fill = table.columns[column.name], column.fill
    if column.levels is not None:
        levels = ", ".join(quote(level[:30]) for level in column.levels[:5]) + (
            ", ..." if len(column.levels) > 5 else ""
        )
        yield f"{len(column.levels)} {'category' if len(column.levels) == 1 else 'categories'}: {levels}"
        if column.other:
            yield "the rare ones are merged"
    elif column.dates is not None:
        dates = column.dates.parse(values)
        known = dates[~np.isnat(dates)].astype("datetime64[D]")
        yield f"{known.min()} to {known.max()}"
        yield f"used as time{''.join(f', {cycle}' for cycle in column.dates.cycles)}"
        fill = None if fill is None else str((column.dates._origin + _DAY * round(float(fill))).astype("datetime64[D]"))
    elif values.numbers is not None:
        low, high = np.nanmin(values.numbers), np.nanmax(values.numbers)
        yield " to ".join(f"{value:.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:.6g}" for value in (low, high))
    if column.indicator:
        what = "most frequent" if column.levels is not None else "median"
        count = int(values.missing.sum())
        value = quote(fill) if isinstance(fill, str) else f"{fill:.6g}"
        yield f"{count} missing value{'s' if count > 1 else ''}, filled with the {what}, {value}"
