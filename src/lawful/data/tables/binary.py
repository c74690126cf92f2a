"""Reading tables from Parquet and NumPy files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from lawful.data.tables.table import Table, Values, named

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
    x, y = called(arrays, INPUTS), called(arrays, TARGETS)
    paired = len(x) == len(y) == 1 and len(arrays) == 2 and min(x[0].ndim, y[0].ndim) > 0
    return (x[0], y[0]) if paired else None


def called(arrays: Mapping[str, np.ndarray], names: Collection[str]) -> list[np.ndarray]:
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
