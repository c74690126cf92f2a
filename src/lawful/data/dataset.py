"""Supervised datasets: inputs and targets, with the names of classes and columns."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from lawful._json import require_choice, require_fields, require_int, require_list, require_text
from lawful.data._encoded_rows import EncodedRows
from lawful.data.table_encoding import Column
from lawful.data.tables import table_of

_HASHED_ROWS = 2**13


def fingerprint(*tensors: Tensor) -> str:
    """Returns the SHA-256 of the dtypes, shapes and bytes of tensors.

    Args:
        tensors: Tensors to hash. The order matters.

    Examples:
        >>> fingerprint(torch.zeros(2)) == fingerprint(torch.zeros(2)), len(fingerprint(torch.zeros(2, 1)))
        (True, 64)
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)};".encode())
        for part in tensor.detach().split(_HASHED_ROWS) if tensor.dim() else (tensor.detach(),):
            flat = (part + 0 if isinstance(part, EncodedRows) else part).cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class SupervisedDataset:
    """Inputs with their targets.

    Examples:
        >>> data = SupervisedDataset(inputs=torch.eye(2), targets=torch.tensor([0, 1]), classes=("no", "yes"))
        >>> len(data), data.take(torch.tensor([1])).targets
        (2, tensor([1]))
    """

    inputs: Shaped[Tensor, "n *shape"]
    """Tables have shape (n, d), images (n, c, h, w), series (n, c, t)."""
    targets: Shaped[Tensor, "_ *values"]
    """Class indices of shape (n,), or regression values of shape (n, m)."""
    classes: tuple[str, ...] | None = None
    """Class names; None for regression."""
    columns: tuple[str, ...] | None = None
    """Feature names of a table."""
    name: str = "data"
    """Name shown in reports."""

    def __post_init__(self) -> None:
        n, targets = len(self.inputs), self.targets
        if n < 1 or len(targets) != n:
            raise ValueError(f"inputs and targets must have equal, non-zero lengths: got {n} and {len(targets)}")
        if self.columns is not None and self.inputs.shape[1:] != (len(self.columns),):
            raise ValueError(
                f"expected inputs of shape (n, {len(self.columns)}) for {len(self.columns)} column names, "
                f"got {tuple(self.inputs.shape)}"
            )
        if self.classes is None:
            if targets.dim() != 2 or not targets.is_floating_point():
                raise ValueError(f"expected float targets of shape (n, m), got {targets.dtype}, {tuple(targets.shape)}")
        elif targets.dim() != 1 or targets.dtype != torch.int64:
            raise ValueError(f"expected int64 targets of shape (n,), got {targets.dtype}, {tuple(targets.shape)}")
        elif not 0 <= int(targets.min()) <= int(targets.max()) < len(self.classes):
            raise ValueError(f"targets must be between 0 and {len(self.classes) - 1}")

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, indices: Int[Tensor, "k"]) -> SupervisedDataset:
        """Returns the examples at `indices`."""
        return replace(self, inputs=self.inputs[indices], targets=self.targets[indices])

    def fingerprint(self) -> str:
        """Returns the SHA-256 of inputs and targets."""
        return fingerprint(self.inputs, self.targets)


@dataclass(frozen=True)
class Arrays:
    """Encoding of arrays: the shape of an example and the class names.

    Examples:
        >>> arrays = Arrays((1, 8, 8), ("cat", "dog"))
        >>> arrays.inputs(np.zeros((5, 1, 8, 8)), name="new.npy").shape
        torch.Size([5, 1, 8, 8])
        >>> Arrays.from_json(arrays.to_json()) == arrays
        True
    """

    shape: tuple[int, ...]
    """Shape of one example."""
    classes: tuple[str, ...] | None = None
    """Class names; None for regression."""

    def inputs(self, array: np.ndarray, *, name: str) -> Float[Tensor, "n *shape"]:
        """Converts an array of examples to a float32 tensor."""
        array = array if array.shape[1:] == self.shape else _channels_first(array)[0]
        if array.ndim == 3 and array.shape[1:] == self.shape[::-1]:
            array = array.swapaxes(1, 2)  # series of shape (t, c), as the recipe classify-sequence accepts them
        if array.shape[1:] != self.shape:
            raise ValueError(f"expected {name} of shape (n, {', '.join(map(str, self.shape))}), got {array.shape}")
        return _to_finite(array, name=name)

    def targets(self, array: np.ndarray, *, n: int, name: str) -> Shaped[Tensor, "n *values"]:
        """Converts an array of targets to class indices of shape (n,), or values of shape (n, m)."""
        if array.shape[:1] != (n,) or (self.classes is not None and array.size != n):
            raise ValueError(f"expected {n} targets in {name}, one per input, got shape {array.shape}")
        if self.classes is None:
            return _to_finite(array, name=f"the targets of {name}").reshape(n, -1)
        table = table_of({"target": array.reshape(-1)}, name=name)
        return torch.from_numpy(Column("target", self.classes).indices(table))

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary."""
        classes = None if self.classes is None else list(self.classes)
        return {"kind": "arrays", "shape": list(self.shape), "classes": classes}

    @classmethod
    def from_json(cls, value: object) -> Arrays:
        """Rebuilds the encoding from untrusted JSON.

        Raises:
            ValueError: If `value` is not what `to_json` returns.
        """
        loaded = require_fields(value, ("kind", "shape", "classes"), where="encoding")
        require_choice(loaded["kind"], ("arrays",), where="encoding.kind")
        axes = require_list(loaded["shape"], 8, where="encoding.shape")
        shape = tuple(require_int(axis, 1, 2**31, where="encoding.shape") for axis in axes)
        return cls(shape, _classes_from_json(loaded["classes"]))


def _channels_first(array: np.ndarray) -> tuple[np.ndarray, str | None]:
    """Returns images as n c h w, and a note if they had another shape: n h w c, or n h w of 8 bits."""
    shape = array.shape
    if array.ndim == 4 and shape[3] in (1, 3) and shape[1] > 4:
        return np.moveaxis(array, 3, 1), f"the array of shape {shape} has channels-last images"
    if array.ndim == 3 and array.dtype == np.uint8:
        return array[:, None], f"the 8-bit array of shape {shape} has grayscale images"
    return array, None


_MAX_AXES = 4


def _check_axes(array: np.ndarray, *, name: str) -> None:
    """Raises if an array does not hold vectors, series or images."""
    if array.ndim > _MAX_AXES:
        raise ValueError(
            f"{name} has shape {array.shape}, expected vectors (n, d), series (n, c, t) or images (n, c, h, w)"
        )


def _classes_from_json(value: object) -> tuple[str, ...] | None:
    """Reads class names from untrusted JSON."""
    if value is None:
        return None
    where = "encoding.classes"
    classes = tuple(require_text(name, where=where) for name in require_list(value, 100_000, where=where))
    if len(classes) < 2 or len(set(classes)) != len(classes):
        raise ValueError(f"{where} must have at least 2 distinct names")
    return classes


def _to_finite(array: np.ndarray, *, name: str) -> Float[Tensor, "*shape"]:
    """Converts an array to float32; raises if an entry is not a finite number.

    Examples:
        >>> _to_finite(np.arange(2), name="x")
        tensor([0., 1.])
    """
    if array.dtype.kind not in "biuf" or not array.size:
        raise ValueError(f"{name} must be a non-empty numeric array, got {array.dtype} of shape {array.shape}")
    with np.errstate(over="ignore"):
        numbers = np.array(array, dtype=np.float32)
    if not (good := np.isfinite(numbers)).all():
        place = tuple(int(i) for i in np.argwhere(~good)[0])
        raise ValueError(f"{name} must be finite in float32: got {array[place]} at index {place}")
    return torch.from_numpy(numbers)
