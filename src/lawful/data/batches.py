"""Batch sources: the batch of a step is a function of the step number, so that a resumed run sees the same batches."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor


def derive_seed(*numbers: int) -> int:
    """Hashes several integers into one seed.

    Args:
        numbers: Integers, such as a seed and an epoch number. The order matters.

    Examples:
        >>> derive_seed(0, 1) == derive_seed(0, 1), derive_seed(0, 1) == derive_seed(1, 0)
        (True, False)
    """
    digest = hashlib.blake2b(repr(tuple(map(int, numbers))).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def make_generator(*numbers: int) -> torch.Generator:
    """Returns a `torch.Generator` seeded with `derive_seed(*numbers)`. The global generator is not used.

    Args:
        numbers: Integers, such as a seed and an epoch number.

    Examples:
        >>> a, b = (torch.rand(3, generator=make_generator(0, 1)) for _ in range(2))
        >>> bool((a == b).all())
        True
    """
    return torch.Generator().manual_seed(derive_seed(*numbers))


Batch = tuple[Tensor, ...]
"""A tuple of tensors: inputs first, then targets, with the batch along dim 0."""


class BatchSource(Protocol):
    """A source of batches. `batch(step)` always returns the same batch for the same step."""

    def __len__(self) -> int:
        """Returns the number of steps per epoch."""
        ...

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step. Steps are counted from 0 over all epochs."""
        ...


class ShuffledBatches:
    """Batches of tensors, reshuffled every epoch.

    The permutation of an epoch depends on the seed and the epoch number only. The last batch of an epoch may be
    smaller.

    Args:
        tensors: Inputs and targets, with examples along dim 0.
        batch_size: Number of examples per batch.
        seed: Random seed of the permutations.

    Examples:
        >>> source = ShuffledBatches(torch.arange(5), batch_size=2, seed=0)
        >>> [len(source.batch(step)[0]) for step in range(len(source))]
        [2, 2, 1]
        >>> torch.cat([source.batch(step)[0] for step in (3, 4, 5)]).sort().values
        tensor([0, 1, 2, 3, 4])
    """

    def __init__(self, *tensors: Tensor, batch_size: int, seed: int) -> None:
        self.num_examples = _check(tensors, batch_size)
        self.tensors, self.batch_size, self.seed = tensors, batch_size, seed
        self._steps = -(-self.num_examples // batch_size)
        self._epoch: int | None = None
        self._indices: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return self._steps

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step."""
        epoch, position = divmod(step, self._steps)
        if epoch != self._epoch:
            self._indices, self._epoch = self._shuffle(epoch), epoch
        chosen = self._indices[position]
        return tuple([tensor.index_select(0, chosen) for tensor in self.tensors])

    def _shuffle(self, epoch: int) -> tuple[Tensor, ...]:
        """Returns the indices of each batch of an epoch."""
        if epoch < 0:
            raise IndexError("step must be non-negative")
        order = torch.randperm(self.num_examples, generator=make_generator(self.seed, epoch))
        return order.to(self.tensors[0].device).split(self.batch_size)


class SequentialBatches:
    """Batches of tensors in order, for evaluation.

    Args:
        tensors: Inputs and targets, with examples along dim 0.
        batch_size: Number of examples per batch. The last batch may be smaller.

    Examples:
        >>> [x.tolist() for (x,) in SequentialBatches(torch.arange(5), batch_size=2)]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, *tensors: Tensor, batch_size: int) -> None:
        self.num_examples = _check(tensors, batch_size)
        self.tensors, self.batch_size = tensors, batch_size

    def __len__(self) -> int:
        return -(-self.num_examples // self.batch_size)

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step."""
        if step < 0:
            raise IndexError(f"step must be non-negative, got {step}")
        start = step % len(self) * self.batch_size
        return tuple([tensor[start : start + self.batch_size] for tensor in self.tensors])

    def __iter__(self) -> Iterator[Batch]:
        """Iterates over one epoch."""
        return map(self.batch, range(len(self)))


def _check(tensors: tuple[Tensor, ...], batch_size: int) -> int:
    """Returns the number of examples."""
    lengths = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
    if len(set(lengths)) != 1 or not lengths[0]:
        raise ValueError(f"expected equal, non-zero lengths along dim 0, got {lengths}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    return lengths[0]


class DataLoaderBatches:
    """Batches of a `DataLoader`, or of any re-iterable.

    Each epoch restarts the loader with its random state seeded by the seed and the epoch number: PyTorch's, NumPy's and
    Python's global generators, and the generators of the loader and its samplers. The global random state is restored
    afterwards. Request steps in order: an earlier step, and resuming, replays the epoch.

    Args:
        loader: Iterable of batches. A batch is a tensor, or a tuple or list of tensors.
        seed: Random seed.
        length: Number of batches per epoch. Defaults to `len(loader)`.

    Examples:
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> source = DataLoaderBatches(DataLoader(TensorDataset(torch.arange(4)), batch_size=2, shuffle=True), seed=0)
        >>> torch.cat([source.batch(step)[0] for step in (2, 3)]).sort().values
        tensor([0, 1, 2, 3])
    """

    def __init__(self, loader: Iterable[Any], *, seed: int = 0, length: int | None = None) -> None:
        if isinstance(loader, Iterator) or not hasattr(loader, "__iter__"):
            raise TypeError(f"loader must be re-iterable, such as a DataLoader, got {type(loader).__name__}")
        if getattr(loader, "persistent_workers", False):
            raise ValueError("persistent workers cannot be replayed: set persistent_workers=False")
        self.loader, self.seed = loader, seed
        self._length = _length(loader) if length is None else length
        if self._length < 1:
            raise ValueError(f"loader must have at least 1 batch, got {self._length}")
        self._epoch = self._next = -1
        self._batches: Iterator[Any] = iter(())
        self._state: Any = None

    def __len__(self) -> int:
        return self._length

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step; replays the epoch if the step lies behind."""
        epoch, position = divmod(step, self._length)
        if epoch < 0:
            raise IndexError(f"step must be non-negative, got {step}")
        with _preserve_rng():
            if epoch != self._epoch or position < self._next:
                self._start(epoch)
            else:
                _set_rng_state(self._state)
            batch = None
            while self._next <= position:
                batch = self._next_batch()
            self._state = _rng_state()
        return _check_batch(batch)

    def _start(self, epoch: int) -> None:
        """Restarts the loader with the random state of an epoch."""
        seed = derive_seed(self.seed, epoch)
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

    def _next_batch(self) -> Any:
        try:
            batch = next(self._batches)
        except BaseException as error:
            self._epoch = -1
            if not isinstance(error, StopIteration):
                raise
            raise ValueError(f"loader ended after {self._next} batches, expected {self._length}") from None
        self._next += 1
        return batch


def _length(loader: Iterable[Any]) -> int:
    try:
        return len(loader)  # type: ignore
    except TypeError:
        raise ValueError("loader has no len(): pass length") from None


def _check_batch(batch: object) -> Batch:
    tensors = (batch,) if isinstance(batch, Tensor) else batch
    if not isinstance(tensors, tuple | list) or not tensors or not all(isinstance(x, Tensor) for x in tensors):
        items = f" of {sorted({type(x).__name__ for x in tensors})}" if isinstance(tensors, tuple | list) else ""
        raise TypeError(f"a batch must be a tuple or list of tensors, got {type(batch).__name__}{items}")
    lengths = [x.shape[0] if x.dim() else 0 for x in tensors]
    if len(set(lengths)) != 1:
        raise ValueError(f"the tensors of a batch must have equal lengths along dim 0, got {lengths}")
    return tuple(tensors)


def _rng_state() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _set_rng_state(state: tuple[Any, ...]) -> None:
    torch.set_rng_state(state[0])
    np.random.set_state(state[1])
    random.setstate(state[2])


@contextmanager
def _preserve_rng() -> Iterator[None]:
    """Restores the global random state on exit."""
    state = _rng_state()
    try:
        yield
    finally:
        _set_rng_state(state)
