"""Finding the encoding of a table: which columns are numbers and which are words, and what the target is."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import numpy as np

from lawful.data.tables.encoding import LEVELS, WIDTH, Column, Encoding
from lawful.data.tables.table import Table, number, written
from lawful.laws.language.law import nearest

Task = Literal["classify", "regress"]


def fitted(
    table: Table,
    *,
    target: str | None = None,
    task: Task | None = None,
    categorical: Collection[str] = (),
    ignore: Collection[str] = (),
    drop_missing: bool = False,
) -> tuple[Encoding, Table, tuple[str, ...]]:
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
        >>> from lawful.data.tables.delimited import parsed
        >>> table = parsed(["size,colour,price", "1,red,2", "3,blue,4"], name="data.csv")
        >>> fitted(table)[0].names
        ('size', 'colour=blue', 'colour=red')
    """
    target = list(table.columns)[-1] if target is None else target
    for name in (target, *categorical, *ignore):
        if name not in table.columns:
            close = nearest(name, table.columns)
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
    encoding = Encoding(columns, _target(table, target, task, categorical))
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
