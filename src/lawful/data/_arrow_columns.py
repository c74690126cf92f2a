"""Columns of large tables in Arrow's memory: as compact as in the file, and converted when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, overload

import numpy as np

from lawful.data.tables import _MISSING, ColumnValues, _parse_number

_CHUNK = 2**16
"""Number of rows that are converted to Python objects at a time."""


class ArrowText(Sequence[str]):
    """Text of a column, read from Arrow's memory."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._array[int(index)].as_py()

    def __iter__(self) -> Iterator[str]:
        parts = (self._array.slice(i, _CHUNK).to_pylist() for i in range(0, len(self), _CHUNK))
        return chain.from_iterable(parts)


class _Gathered(Sequence[Any]):
    """Values that are chosen from a list by their index."""

    def __init__(self, values: Sequence[Any], codes: np.ndarray) -> None:
        self._values, self._codes = values, codes

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._values[i] for i in self._codes[index].tolist()]
        return self._values[self._codes[index]]

    def __iter__(self) -> Iterator[Any]:
        for i in range(0, len(self), _CHUNK):
            yield from map(self._values.__getitem__, self._codes[i : i + _CHUNK].tolist())


class ArrowValues(ColumnValues):
    """The values of a text column in Arrow's memory.

    Args:
        array: Strings without nulls, a `pyarrow.ChunkedArray`.

    Examples:
        >>> import pyarrow as pa
        >>> values = ArrowValues(pa.chunked_array([["1", " NA ", "2.5"]]))
        >>> values.numbers, list(values.words), values.missing
        (array([1. , nan, 2.5]), ['1', None, '2.5'], array([False,  True, False]))
    """

    def __init__(self, array: Any) -> None:
        object.__setattr__(self, "_array", array)

    _array: Any

    def __len__(self) -> int:
        return len(self._array)

    @property
    def text(self) -> Sequence[str]:  # type: ignore[override]
        """Raw text."""
        return ArrowText(self._array)

    @cached_property
    def numbers(self) -> np.ndarray | None:  # type: ignore[override]
        """Parsed numbers, NaN where missing. None if a value is not a number."""
        return _parse_array(self._array)

    @cached_property
    def _factorized(self) -> tuple[ColumnValues, np.ndarray]:
        coded = _one_chunk(self._array.dictionary_encode())
        return ColumnValues.from_text(coded.dictionary.to_pylist()), coded.indices.to_numpy()

    @property
    def words(self) -> Sequence[str | None]:  # type: ignore[override]
        """Values as stripped text, None where missing."""
        return _Gathered(self.distinct.words, self.codes)

    @cached_property
    def missing(self) -> np.ndarray:
        """Boolean mask of missing values."""
        return self.distinct.missing[self.codes] if self.numbers is None else np.isnan(self.numbers)

    def take(self, where: np.ndarray) -> ColumnValues:
        """Returns the rows where the mask is True."""
        import pyarrow as pa

        taken = ArrowValues(self._array.filter(pa.array(where)))
        if self.numbers is not None:
            taken.__dict__["numbers"] = self.numbers[where]
        return taken


def _parse_array(array: Any) -> np.ndarray | None:
    """Parses numbers with missing values. Returns None if a value is not a number."""
    import pyarrow as pa

    pc: Any = importlib.import_module("pyarrow.compute")  # its functions are made at run time
    try:
        return np.array(array.cast(pa.float64()).to_numpy())
    except pa.ArrowInvalid:
        pass
    words = pc.utf8_trim_whitespace(array)
    known = pc.if_else(pc.is_in(pc.utf8_lower(words), pa.array(sorted(_MISSING))), pa.scalar(None, pa.string()), words)
    try:
        return np.array(known.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    except pa.ArrowInvalid:
        pass
    distinct = []
    coded = _one_chunk(array.dictionary_encode())
    for word in ArrowText(coded.dictionary):  # stops at the first word
        if (value := _parse_number(word)) is None:
            return None
        distinct.append(value)
    return np.array(distinct)[coded.indices.to_numpy()]


def _one_chunk(array: Any) -> Any:
    """Returns the chunks of an array as one array; those of a dictionary share their values."""
    return array.chunk(0) if array.num_chunks == 1 else array.unify_dictionaries().combine_chunks()
