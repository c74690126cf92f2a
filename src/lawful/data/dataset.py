"""Examples to learn from: inputs and targets, with the names that their numbers stand for.

Inputs of any shape, given as arrays: what new ones are to look like.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from lawful._json import entry, fields, items, text, whole
from lawful.data.table_encoding import Column
from lawful.data.tables import table_of


def fingerprint(*tensors: Tensor) -> str:
    """Returns the SHA-256 of tensors: of their types, shapes and values, bit for bit.

    Args:
        tensors: The tensors, in order.

    Examples:
        >>> fingerprint(torch.zeros(2)) == fingerprint(torch.zeros(2)), len(fingerprint(torch.zeros(2, 1)))
        (True, 64)
    """
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(f"{tensor.dtype} {tuple(tensor.shape)};".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        whole.update(flat.view(torch.uint8).numpy().data)
    return whole.hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class SupervisedDataset:
    """Holds inputs and targets that belong together.

    Examples:
        >>> xor = SupervisedDataset(inputs=torch.eye(2), targets=torch.tensor([0, 1]), classes=("no", "yes"), name="two")
        >>> len(xor), xor.take(torch.tensor([1])).targets
        (2, tensor([1]))
    """

    inputs: Shaped[Tensor, "n *shape"]
    """Of a table `n d`, of images `n c h w`, of series `n c t`."""
    targets: Shaped[Tensor, "_ *values"]
    """The numbers of the classes, `n`; or the values of a regression, `n m`."""
    classes: tuple[str, ...] | None = None
    """The names of the classes; none in a regression."""
    columns: tuple[str, ...] | None = None
    """The names of the inputs of a table."""
    name: str = "data"
    """What to call them in a report."""

    def __post_init__(self) -> None:
        n, targets = len(self.inputs), self.targets
        if n < 1 or len(targets) != n:
            raise ValueError(f"at least 1 example, each with its target, was wanted: got {n} and {len(targets)}")
        if self.columns is not None and self.inputs.shape[1:] != (len(self.columns),):
            raise ValueError(f"{len(self.columns)} columns are named: got inputs of shape {tuple(self.inputs.shape)}")
        if self.classes is None:
            if targets.dim() != 2 or not targets.is_floating_point():
                raise ValueError(f"real targets n m were wanted: got {targets.dtype} of shape {tuple(targets.shape)}")
        elif targets.dim() != 1 or targets.dtype != torch.int64:
            raise ValueError(f"integer targets n were wanted: got {targets.dtype} of shape {tuple(targets.shape)}")
        elif not 0 <= int(targets.min()) <= int(targets.max()) < len(self.classes):
            raise ValueError(f"targets are from 0 to {len(self.classes) - 1}: got one outside")

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, chosen: Int[Tensor, "k"]) -> SupervisedDataset:
        """Returns some of the examples, in this order."""
        return replace(self, inputs=self.inputs[chosen], targets=self.targets[chosen])

    def fingerprint(self) -> str:
        """The fingerprint of inputs and targets."""
        return fingerprint(self.inputs, self.targets)


@dataclass(frozen=True)
class Arrays:
    """Says which shape an example has, and what the classes are called.

    Examples:
        >>> arrays = Arrays((1, 8, 8), ("cat", "dog"))
        >>> arrays.inputs(np.zeros((5, 1, 8, 8)), name="new.npy").shape
        torch.Size([5, 1, 8, 8])
        >>> Arrays.from_json(arrays.to_json()) == arrays
        True
    """

    shape: tuple[int, ...]
    """The shape of one example."""
    classes: tuple[str, ...] | None = None
    """The names of the classes; none in a regression."""

    def inputs(self, array: np.ndarray, *, name: str) -> Float[Tensor, "n *shape"]:
        """The inputs of an array, which is to have finite numbers and the right shape."""
        if array.shape[1:] != self.shape:
            raise ValueError(f"{name} is to have shape (n, {', '.join(map(str, self.shape))}): got {array.shape}")
        return finite(array, name=name)

    def targets(self, array: np.ndarray, *, n: int, name: str) -> Shaped[Tensor, "n *values"]:
        """The targets of an array, one for each input: the numbers of classes, or numbers as `n m`."""
        if array.shape[:1] != (n,) or (self.classes is not None and array.size != n):
            raise ValueError(f"the targets of {name} are to be {n}, one for each input: got shape {array.shape}")
        if self.classes is None:
            return finite(array, name=f"the targets of {name}").reshape(n, -1)
        table = table_of({"target": array.reshape(-1)}, name=name)
        return torch.from_numpy(Column("target", self.classes).places(table))

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        classes = None if self.classes is None else list(self.classes)
        return {"kind": "arrays", "shape": list(self.shape), "classes": classes}

    @classmethod
    def from_json(cls, value: object) -> Arrays:
        """Reads what `to_json` gave, from a file that nobody vouches for: anything else is refused."""
        held = fields(value, ("kind", "shape", "classes"), where="encoding")
        entry(held["kind"], ("arrays",), where="encoding.kind")
        axes = items(held["shape"], 8, where="encoding.shape")
        shape = tuple(whole(axis, 1, 2**31, where="encoding.shape") for axis in axes)
        return cls(shape, classes_from_json(held["classes"]))


def classes_from_json(value: object) -> tuple[str, ...] | None:
    """The names of classes, from a file that nobody vouches for.

    Examples:
        >>> classes_from_json(["cat", "dog"])
        ('cat', 'dog')
    """
    if value is None:
        return None
    where = "encoding.classes"
    classes = tuple(text(name, where=where) for name in items(value, 100_000, where=where))
    if len(classes) < 2 or len(set(classes)) != len(classes):
        raise ValueError(f"{where} is to have at least 2 names, none of them twice")
    return classes


def finite(array: np.ndarray, *, name: str) -> Float[Tensor, "*shape"]:
    """Makes a tensor of 32 bits; what is not a number, or not finite in it, is refused with its place.

    Examples:
        >>> finite(np.arange(2), name="x")
        tensor([0., 1.])
    """
    if array.dtype.kind not in "biuf" or not array.size:
        raise ValueError(f"{name} is to have numbers, at least one: got {array.dtype} of shape {array.shape}")
    with np.errstate(over="ignore"):
        numbers = np.array(array, dtype=np.float32)
    if not (good := np.isfinite(numbers)).all():
        place = tuple(int(i) for i in np.argwhere(~good)[0])
        raise ValueError(f"{name} is to have finite numbers of 32 bits: got {array[place]} at {place}")
    return torch.from_numpy(numbers)
