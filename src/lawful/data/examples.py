"""Examples to learn from: inputs and targets, with the names that their numbers stand for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int, Shaped
from torch import Tensor


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
class Examples:
    """Holds inputs and targets that belong together.

    Examples:
        >>> xor = Examples(inputs=torch.eye(2), targets=torch.tensor([0, 1]), classes=("no", "yes"), name="two")
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

    def take(self, chosen: Int[Tensor, "k"]) -> Examples:
        """Returns some of the examples, in this order."""
        return replace(self, inputs=self.inputs[chosen], targets=self.targets[chosen])

    def fingerprint(self) -> str:
        """The fingerprint of inputs and targets."""
        return fingerprint(self.inputs, self.targets)
