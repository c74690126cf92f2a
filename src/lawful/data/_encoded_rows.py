"""Encoded rows of a large table: a tensor whose rows are encoded when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils import _pytree as pytree

_MAX_DENSE_ROWS = 2**16
"""With more rows, an indexed part is encoded when it is read in turn."""
_BATCH_ROWS = 2**13
"""Number of rows that are encoded at a time."""

Block = tuple[Float[Tensor, "m k"], Int[Tensor, " n"] | None]
"""Features of the different values of a column, and the index of the value of each row; or features of each row."""


class EncodedRows(Tensor):
    """A float32 matrix that is stored by column: numbers as they are, categories and dates as indices.

    Reading a batch of rows encodes them. Any other operation encodes all rows, as for a plain tensor; the mean and the
    standard deviation over rows take a batch at a time.

    Args:
        blocks: One for each column of the table.
        rows: Rows of the matrix, as indices of the rows of the blocks. Defaults to all.

    Examples:
        >>> colors = torch.eye(3), torch.tensor([2, 0, 2])
        >>> x = EncodedRows([(torch.tensor([[0.5], [1.5], [2.5]]), None), colors])
        >>> x.shape, x[1:], x[torch.tensor([2])]
        (torch.Size([3, 4]), tensor([[1.5000, 1.0000, 0.0000, 0.0000],
                [2.5000, 0.0000, 0.0000, 1.0000]]), tensor([[2.5000, 0.0000, 0.0000, 1.0000]]))
    """

    _blocks: Sequence[Block]
    _rows: Tensor | None

    @staticmethod
    def __new__(cls: type[EncodedRows], blocks: Sequence[Block], rows: Int[Tensor, " r"] | None = None) -> EncodedRows:
        features, codes = blocks[0]
        n = len(features) if codes is None else len(codes)
        size = (n if rows is None else len(rows), sum(features.shape[1] for features, _ in blocks))
        made = torch.Tensor._make_wrapper_subclass(cls, size, dtype=torch.float32)
        made._blocks, made._rows = blocks, rows
        return made

    def encode(self, rows: Int[Tensor, " r"] | slice = slice(None)) -> Float[Tensor, "r d"]:
        """Returns some rows as a plain tensor."""
        if self._rows is not None:
            rows = self._rows[rows]
        parts = [features[rows] if codes is None else features[codes[rows].long()] for features, codes in self._blocks]
        return torch.cat(parts, 1)

    def take_rows(self, rows: Int[Tensor, " r"]) -> Tensor:
        """Returns some rows: a plain tensor, or encoded rows if there are many."""
        if len(rows) <= _MAX_DENSE_ROWS:
            return self.encode(rows)
        return EncodedRows(self._blocks, rows.to(torch.int32) if self._rows is None else self._rows[rows])

    def batches(self, size: int = _BATCH_ROWS) -> Iterator[Float[Tensor, "b d"]]:
        """Yields all rows as plain tensors."""
        for start in range(0, len(self), size):
            yield self.encode(slice(start, start + size))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"EncodedRows{tuple(self.shape)}"

    def __deepcopy__(self, memo: dict[int, Any]) -> EncodedRows:
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        if (read := _READING.get(func)) is not None:
            found = read(*args, **kwargs)
            if found is not NotImplemented:
                return found
        args, kwargs = pytree.tree_map_only(EncodedRows, EncodedRows.encode, (args, kwargs))
        return func(*args, **kwargs)


def _same(x: EncodedRows, *args: Any, **kwargs: Any) -> Any:
    return EncodedRows(x._blocks, x._rows)


def _index(x: Any, indices: Sequence[Any]) -> Any:
    if not isinstance(x, EncodedRows) or len(indices) != 1 or indices[0] is None or indices[0].dim() != 1:
        return NotImplemented
    rows = indices[0]
    return x.take_rows(rows.nonzero()[:, 0] if rows.dtype == torch.bool else rows % len(x))


def _index_select(x: Any, dim: int, index: Tensor) -> Any:
    return x.take_rows(index) if isinstance(x, EncodedRows) and dim == 0 else NotImplemented


def _slice(x: EncodedRows, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    if dim != 0:
        return NotImplemented
    return x.take_rows(torch.arange(*slice(start, end, step).indices(len(x))))


def _select(x: EncodedRows, dim: int, index: int) -> Any:
    return x.encode(torch.tensor([index % len(x)]))[0] if dim == 0 else NotImplemented


def _split(x: EncodedRows, size: int, dim: int = 0) -> Any:
    if dim != 0:
        return NotImplemented
    everything = torch.arange(len(x), dtype=torch.int32) if x._rows is None else x._rows
    return [EncodedRows(x._blocks, rows) for rows in everything.split(size)]


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    parts = [x for x in tensors if isinstance(x, EncodedRows) and x._rows is not None]
    if dim != 0 or len(parts) != len(tensors) or any(x._blocks is not parts[0]._blocks for x in parts):
        return NotImplemented
    return EncodedRows(parts[0]._blocks, torch.cat([x._rows for x in parts if x._rows is not None]))


def _moments(x: EncodedRows) -> tuple[Tensor, Tensor]:
    """Returns the mean, and the mean of the squared differences, in float64."""
    mean = sum((batch.double().sum(0) for batch in x.batches()), torch.zeros(())) / len(x)
    squares = sum(((batch.double() - mean).square().sum(0) for batch in x.batches()), torch.zeros(()))
    return mean, squares / len(x)


def _mean(x: EncodedRows, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if tuple(dim or ()) != (0,) or keepdim or dtype is not None:
        return NotImplemented
    return _moments(x)[0].float()


def _std(x: EncodedRows, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if tuple(dim or ()) != (0,) or keepdim:
        return NotImplemented
    correction = 1 if correction is None else correction
    return (_moments(x)[1] * len(x) / (len(x) - correction)).sqrt().float()


_aten = torch.ops.aten
_READING: dict[Any, Callable[..., Any]] = {
    _aten.detach.default: _same,
    _aten.alias.default: _same,
    _aten.index.Tensor: _index,
    _aten.index_select.default: _index_select,
    _aten.slice.Tensor: _slice,
    _aten.select.int: _select,
    _aten.split.Tensor: _split,
    _aten.cat.default: _cat,
    _aten.mean.dim: _mean,
    _aten.std.correction: _std,
}
"""Operations that do not encode all rows."""


def block_of(features: np.ndarray, codes: np.ndarray | None = None) -> Block:
    """Returns the block of a column; indices have the smallest dtype.

    Args:
        features: Features of the different values, or of each row.
        codes: Index of the value of each row.
    """
    if codes is None:
        return torch.from_numpy(features), None
    size = len(features)
    dtype = np.uint8 if size <= 2**8 else np.int16 if size <= 2**15 else np.int32
    return torch.from_numpy(features), torch.from_numpy(codes.astype(dtype))
