"""Generators of random numbers that depend on a few integers and on nothing else.

Where batches come from: each is a function of the number of the step, and of nothing else.
A user's own loader as a source of batches.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor


def seed_of(*numbers: int) -> int:
    """Makes one seed of several integers; others give another seed.

    Args:
        numbers: The integers, in order: a seed and the number of an epoch, say.

    Examples:
        >>> seed_of(0, 1) == seed_of(0, 1), seed_of(0, 1) == seed_of(1, 0)
        (True, False)
    """
    digest = hashlib.blake2b(repr(tuple(map(int, numbers))).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def make_generator(*numbers: int) -> torch.Generator:
    """Starts a generator from several integers; the global one is left as it is.

    Args:
        numbers: The integers, in order.

    Examples:
        >>> a, b = (torch.rand(3, generator=make_generator(0, 1)) for _ in range(2))
        >>> bool((a == b).all())
        True
    """
    return torch.Generator().manual_seed(seed_of(*numbers))


Batch = tuple[Tensor, ...]
"""Inputs first, then targets; the first axis of each runs over examples."""


class BatchSource(Protocol):
    """Gives the batch of each step: the same whenever it is asked, so that resuming needs only its number."""

    def __len__(self) -> int:
        """The number of steps in an epoch."""
        ...

    def batch(self, step: int) -> Batch:
        """The batch of a step, counted from 0 on through all epochs."""
        ...


class ShuffledBatches:
    """Cuts examples into batches, in each epoch in another order.

    The order of an epoch is drawn from the seed and the number of the epoch by a generator of its own. The last batch
    of an epoch may be smaller.

    Args:
        tensors: Inputs and targets, with examples along the first axis.
        size: The number of examples in a batch.
        seed: What the orders depend on.

    Examples:
        >>> source = ShuffledBatches(torch.arange(5), size=2, seed=0)
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
        order = torch.randperm(self.examples, generator=make_generator(self.seed, epoch))
        return order.to(self.tensors[0].device).split(self.size)


class SequentialBatches:
    """Cuts examples into batches as they stand, for an evaluation; every epoch is the same.

    Args:
        tensors: Inputs and targets, with examples along the first axis.
        size: The number of examples in a batch; the last may be smaller.

    Examples:
        >>> [x.tolist() for (x,) in SequentialBatches(torch.arange(5), size=2)]
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


class DataLoaderBatches:
    """Takes the batches of a `DataLoader`, or of any iterable that can be started afresh.

    Each epoch starts the loader anew, with random numbers that depend on the seed and the number of the epoch alone
    (PyTorch's, NumPy's and Python's, and generators that the loader and its sampler hold); outside, the random state is
    left as it was. Steps are best asked for in order: for an earlier one, and on resuming, the epoch is replayed.

    Args:
        loader: What gives batches: tensors, or tuples or lists of them.
        seed: What the random numbers of the loader depend on.
        length: The number of batches in an epoch; by default `len(loader)`.

    Examples:
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> source = DataLoaderBatches(DataLoader(TensorDataset(torch.arange(4)), batch_size=2, shuffle=True), seed=0)
        >>> torch.cat([source.batch(step)[0] for step in (2, 3)]).sort().values
        tensor([0, 1, 2, 3])
    """

    def __init__(self, loader: Iterable[Any], *, seed: int = 0, length: int | None = None) -> None:
        if isinstance(loader, Iterator) or not hasattr(loader, "__iter__"):
            raise TypeError(f"a loader that can be started afresh was wanted: got {type(loader).__name__}")
        if getattr(loader, "persistent_workers", False):
            raise ValueError("workers that outlive an epoch cannot be replayed: set persistent_workers=False")
        self.loader, self.seed = loader, seed
        self._length = _length(loader) if length is None else length
        if self._length < 1:
            raise ValueError(f"a loader with at least 1 batch was wanted: got {self._length}")
        self._epoch = self._next = -1
        self._batches: Iterator[Any] = iter(())
        self._state: Any = None

    def __len__(self) -> int:
        return self._length

    def batch(self, step: int) -> Batch:
        """Takes the next batch of the loader, or goes to where the step is."""
        epoch, position = divmod(step, self._length)
        if epoch < 0:
            raise IndexError(f"steps are counted from 0: got {step}")
        with _restored():
            if epoch != self._epoch or position < self._next:
                self._start(epoch)
            else:
                _set_state(self._state)
            taken = None
            while self._next <= position:
                taken = self._take()
            self._state = _state()
        return _batch(taken)

    def _start(self, epoch: int) -> None:
        """Starts the loader from the random state of an epoch."""
        seed = seed_of(self.seed, epoch)
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        samplers = [getattr(self.loader, name, None) for name in ("sampler", "batch_sampler")]
        samplers.append(getattr(samplers[-1], "sampler", None))
        for holder in (self.loader, getattr(self.loader, "dataset", None), *samplers):
            if isinstance(generator := getattr(holder, "generator", None), torch.Generator):
                generator.manual_seed(seed)
            if callable(announce := getattr(holder, "set_epoch", None)):
                announce(epoch)
        self._batches, self._epoch, self._next = iter(self.loader), epoch, 0

    def _take(self) -> Any:
        """The next batch of the loader."""
        try:
            taken = next(self._batches)
        except BaseException as error:
            self._epoch = -1
            if not isinstance(error, StopIteration):
                raise
            raise ValueError(f"the loader ended after {self._next} batches: {self._length} were wanted") from None
        self._next += 1
        return taken


def _length(loader: Iterable[Any]) -> int:
    try:
        return len(loader)  # type: ignore
    except TypeError:
        raise ValueError("the loader does not say how many batches it has: give `length`") from None


def _batch(taken: object) -> Batch:
    """Refuses what is not made of tensors with one number of examples."""
    parts = (taken,) if isinstance(taken, Tensor) else taken
    if not isinstance(parts, tuple | list) or not parts or not all(isinstance(part, Tensor) for part in parts):
        held = f" of {sorted({type(p).__name__ for p in parts})}" if isinstance(parts, tuple | list) else ""
        raise TypeError(f"a batch is a tuple or a list of tensors: got {type(taken).__name__}{held}")
    lengths = [part.shape[0] if part.dim() else 0 for part in parts]
    if len(set(lengths)) != 1:
        raise ValueError(f"the tensors of a batch have one number of examples: got {lengths}")
    return tuple(parts)


def _state() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _set_state(state: tuple[Any, ...]) -> None:
    torch.set_rng_state(state[0])
    np.random.set_state(state[1])
    random.setstate(state[2])


@contextmanager
def _restored() -> Iterator[None]:
    """Puts the random state back at the end."""
    state = _state()
    try:
        yield
    finally:
        _set_state(state)
