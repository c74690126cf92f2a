"""Labels as targets of a regression: 1 at the class, 0 elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import Claim, agreement, sums_to_one, tokens


def one_hot(labels: Int[Tensor, " n"], *, classes: int) -> Float[Tensor, "n classes"]:
    r"""Turns each class into a unit vector, $k \mapsto e_k$, after a look at whether there is such a class.

    Args:
        labels: The classes $k$, from 0.
        classes: How many there are.

    Examples:
        >>> one_hot(torch.tensor([0, 2]), classes=3)
        tensor([[1., 0., 0.],
                [0., 0., 1.]])
    """
    if labels.is_floating_point() or labels.dim() != 1:
        raise TypeError(f"a row of integers was wanted: got {labels.dtype} of shape {tuple(labels.shape)}")
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        bounds = f"{int(labels.min())} to {int(labels.max())}"
        raise ValueError(f"labels from 0 to {classes - 1} were wanted: got {bounds}")
    return F.one_hot(labels.long(), classes).to(torch.get_default_dtype())


def claims() -> Iterator[Claim]:
    """The laws that targets of labels obey."""

    def vectors(labels: Tensor) -> Tensor:
        return one_hot(labels, classes=3)

    yield Claim(sums_to_one(), vectors, tokens("n", vocab=3), name="one_hot")
    yield Claim(agreement(other=lambda k: torch.eye(3)[k]), vectors, tokens("n", vocab=3), name="one_hot")
