"""Where batches come from: each is a function of the number of the step, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from lawful.data.generators import generator_of

Batch = tuple[Tensor, ...]
"""Inputs first, then targets; the first axis of each runs over examples."""


class Source(Protocol):
    """Gives the batch of each step: the same whenever it is asked, so that resuming needs only its number."""

    def __len__(self) -> int:
        """The number of steps in an epoch."""
        ...

    def batch(self, step: int) -> Batch:
        """The batch of a step, counted from 0 on through all epochs."""
        ...


class Shuffled:
    """Cuts examples into batches, in each epoch in another order.

    The order of an epoch is drawn from the seed and the number of the epoch by a generator of its own. The last batch
    of an epoch may be smaller.

    Args:
        tensors: Inputs and targets, with examples along the first axis.
        size: The number of examples in a batch.
        seed: What the orders depend on.

    Examples:
        >>> source = Shuffled(torch.arange(5), size=2, seed=0)
        >>> [len(source.batch(step)[0]) for step in range(len(source))]
        [2, 2, 1]
        >>> torch.cat([source.batch(step)[0] for step in (3, 4, 5)]).sort().values
        tensor([0, 1, 2, 3, 4])
    """

    def __init__(self, *tensors: Tensor, size: int, seed: int) -> None:
        self.examples = _check(tensors, size)
        self.tensors, self.size, self.seed = tensors, size, seed
        self._steps = -(-self.examples // size)
        self._epoch: int | None = None
        self._order: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return self._steps

    def batch(self, step: int) -> Batch:
        """Takes the examples that the order of the epoch has at this step."""
        epoch, position = divmod(step, self._steps)
        if epoch != self._epoch:
            self._order, self._epoch = self._drawn(epoch), epoch
        chosen = self._order[position]
        return tuple([tensor.index_select(0, chosen) for tensor in self.tensors])

    def _drawn(self, epoch: int) -> tuple[Tensor, ...]:
        """The indices of the batches of an epoch."""
        if epoch < 0:
            raise IndexError("steps are counted from 0: got a negative one")
        order = torch.randperm(self.examples, generator=generator_of(self.seed, epoch))
        return order.to(self.tensors[0].device).split(self.size)


class InOrder:
    """Cuts examples into batches as they stand, for an evaluation; every epoch is the same.

    Args:
        tensors: Inputs and targets, with examples along the first axis.
        size: The number of examples in a batch; the last may be smaller.

    Examples:
        >>> [x.tolist() for (x,) in InOrder(torch.arange(5), size=2)]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, *tensors: Tensor, size: int) -> None:
        self.examples = _check(tensors, size)
        self.tensors, self.size = tensors, size

    def __len__(self) -> int:
        return -(-self.examples // self.size)

    def batch(self, step: int) -> Batch:
        """Takes the examples of this step."""
        if step < 0:
            raise IndexError(f"steps are counted from 0: got {step}")
        start = step % len(self) * self.size
        return tuple([tensor[start : start + self.size] for tensor in self.tensors])

    def __iter__(self) -> Iterator[Batch]:
        """Goes through one epoch."""
        return map(self.batch, range(len(self)))


def _check(tensors: tuple[Tensor, ...], size: int) -> int:
    """Returns the number of examples."""
    lengths = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
    if len(set(lengths)) != 1 or not lengths[0]:
        raise ValueError(f"tensors with one number of examples, at least 1, were wanted: got {lengths}")
    if size < 1:
        raise ValueError(f"size is at least 1: got {size}")
    return lengths[0]
