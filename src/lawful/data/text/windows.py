"""Windows of a token stream: inputs and next-token targets."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Shaped
from torch import Tensor

from lawful.data.batches import Batch, make_generator
from lawful.laws import Claim, agreement
from lawful.laws import tokens as some_tokens

_SHARD = 2**20
"""Maximum number of windows that are shuffled at once."""


class ShuffledWindows:
    """Batches of non-overlapping windows, reshuffled every epoch.

    Each epoch starts at a random offset below `context_length`, so that a token appears at every position of a window
    over the epochs. A long corpus is shuffled in shards: the shards in random order, and the windows within a shard in
    random order. An incomplete last batch is dropped.

    Args:
        tokens: Token ids, in memory or memory-mapped.
        context_length: Number of tokens in a window.
        batch_size: Number of windows per batch. A short corpus gives smaller batches.
        seed: Random seed of the offsets and permutations.

    Examples:
        >>> source = ShuffledWindows(torch.arange(100), context_length=4, batch_size=2, seed=0)
        >>> inputs, targets = source.batch(0)
        >>> inputs.shape, bool((targets == inputs + 1).all())
        (torch.Size([2, 4]), True)
    """

    def __init__(self, tokens: Shaped[Tensor, "n"], *, context_length: int, batch_size: int, seed: int) -> None:
        _check(context_length, batch_size)
        n = len(tokens)
        if n < context_length + 1:
            raise ValueError(
                f"context_length={context_length} needs at least {context_length + 1} tokens, got {n}: "
                "use a longer text or a smaller context_length"
            )
        self.tokens, self.seed = tokens, seed
        self.context_length, self.batch_size = context_length, batch_size
        windows = max(1, n // context_length - 1)
        self.offsets = min(context_length, n - windows * context_length)
        self.shards = -(-windows // max(_SHARD, batch_size))
        self.width = windows // self.shards
        self._steps = max(1, self.width // batch_size)
        self._current: tuple[int, int] | None = None
        self._windows = tokens
        self._order: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return self.shards * self._steps

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step."""
        if step < 0:
            raise IndexError(f"step must be non-negative, got {step}")
        epoch, position = divmod(step, len(self))
        shard, place = divmod(position, self._steps)
        if (epoch, shard) != self._current:
            self._shuffle(epoch, shard)
        chosen = self._windows.index_select(0, self._order[place]).long()
        return chosen[:, :-1], chosen[:, 1:]

    def _shuffle(self, epoch: int, shard: int) -> None:
        """Selects and shuffles the windows of a shard."""
        generator = make_generator(self.seed, epoch)
        offset = int(torch.randint(self.offsets, (), generator=generator))
        position = int(torch.randperm(self.shards, generator=generator)[shard])
        start = offset + position * self.width * self.context_length
        part = self.tokens[start : start + self.width * self.context_length + 1]
        self._windows = part.unfold(0, self.context_length + 1, self.context_length)
        order = torch.randperm(self.width, generator=make_generator(self.seed, epoch, shard))
        self._order = order.to(self.tokens.device).split(self.batch_size)
        self._current = epoch, shard


class SequentialWindows:
    """Batches of consecutive windows, for evaluation: every token but the first is a target exactly once.

    Windows do not overlap and share no state. A shorter last window is a separate batch.

    Args:
        tokens: Token ids, in memory or memory-mapped.
        context_length: Number of tokens in a window.
        batch_size: Number of windows per batch.

    Examples:
        >>> [targets.tolist() for _, targets in SequentialWindows(torch.arange(8), context_length=2, batch_size=2)]
        [[[1, 2], [3, 4]], [[5, 6]], [[7]]]
    """

    def __init__(self, tokens: Shaped[Tensor, "n"], *, context_length: int, batch_size: int) -> None:
        _check(context_length, batch_size)
        if len(tokens) < 2:
            raise ValueError(f"expected at least 2 tokens, one input and one target, got {len(tokens)}")
        self.tokens, self.context_length, self.batch_size = tokens, context_length, batch_size
        self._full_windows, self._remainder = divmod(len(tokens) - 1, context_length)

    def __len__(self) -> int:
        return -(-self._full_windows // self.batch_size) + (self._remainder > 0)

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step."""
        if step < 0:
            raise IndexError(f"step must be non-negative, got {step}")
        first, t = step % len(self) * self.batch_size, self.context_length
        if first >= self._full_windows:
            last = self.tokens[self._full_windows * t :].long()[None]
            return last[:, :-1], last[:, 1:]
        end = min(first + self.batch_size, self._full_windows)
        part = self.tokens[first * t : end * t + 1].long()
        return part[:-1].reshape(-1, t), part[1:].reshape(-1, t)

    def __iter__(self) -> Iterator[Batch]:
        """Iterates over the tokens once."""
        return map(self.batch, range(len(self)))


def _check(context_length: int, batch_size: int) -> None:
    if context_length < 1 or batch_size < 1:
        raise ValueError(f"context_length and batch_size must be at least 1, got {context_length} and {batch_size}")


def claims() -> Iterator[Claim]:
    """Windows cover the tokens, and each target is the next token."""
    described = some_tokens("n:5..40", vocab_size=9)

    def in_order(x: Tensor) -> Tensor:
        parts = [
            torch.stack([inputs.flatten(), targets.flatten()])
            for inputs, targets in SequentialWindows(x, context_length=4, batch_size=2)
        ]
        return torch.cat(parts, dim=1).double()

    def pairs(x: Tensor) -> Tensor:
        return torch.stack([x[:-1], x[1:]]).double()

    def windows_of(x: Tensor) -> tuple[Tensor, Tensor]:
        source = ShuffledWindows(x, context_length=3, batch_size=2, seed=1)
        inputs, targets = (torch.cat(part) for part in zip(*map(source.batch, range(len(source))), strict=True))
        return inputs, targets

    def first_and_last(x: Tensor) -> Tensor:
        """Looks up the tokens at windows of positions."""
        inputs, targets = windows_of(torch.arange(len(x)))
        return torch.stack([x[inputs], x[targets - 1], x[inputs + 1]]).double()

    def both(x: Tensor) -> Tensor:
        inputs, targets = windows_of(x)
        return torch.stack([inputs, inputs, targets]).double()

    yield Claim(agreement(other=pairs), in_order, described, name="SequentialWindows: every pair of neighbors once")
    yield Claim(agreement(other=first_and_last), both, described, name="ShuffledWindows: each target is the next token")
