"""A user's own loader as a source of batches."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lawful.data.batches import Batch
from lawful.data.generators import seed_of


class Loaded:
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
        >>> source = Loaded(DataLoader(TensorDataset(torch.arange(4)), batch_size=2, shuffle=True), seed=0)
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
