"""Windows of a text: what is read, and at each place the token that comes next."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Shaped
from torch import Tensor

from lawful.data.batches import Batch, make_generator
from lawful.laws import Claim, agreement
from lawful.laws import tokens as some_tokens

SHARD = 2**20
"""The most windows that are put in order at once."""


class ShuffledWindows:
    """Cuts a text into windows that do not overlap, and those into batches, in each epoch otherwise.

    An epoch begins at an offset of its own, below the length of a window, so that every token comes at every place of a
    window, and goes through the windows in an order of its own. A very long text is taken in shards, in random order,
    with the windows of each in random order. What does not fill a batch is left for other epochs.

    Args:
        tokens: The tokens, in memory or mapped.
        context: The length of a window: how many tokens are read, and how many predicted.
        size: The windows of a batch; fewer if the text has no more.
        seed: What offsets and orders depend on.

    Examples:
        >>> source = ShuffledWindows(torch.arange(100), context=4, size=2, seed=0)
        >>> inputs, targets = source.batch(0)
        >>> inputs.shape, bool((targets == inputs + 1).all())
        (torch.Size([2, 4]), True)
    """

    def __init__(self, tokens: Shaped[Tensor, "n"], *, context: int, size: int, seed: int) -> None:
        _check(context, size)
        n = len(tokens)
        if n < context + 1:
            raise ValueError(
                f"a window of context {context} takes {context + 1} tokens: the text has {n}; give a longer text or a "
                "shorter context"
            )
        self.tokens, self.context, self.size, self.seed = tokens, context, size, seed
        windows = max(1, n // context - 1)
        self.offsets = min(context, n - windows * context)
        self.shards = -(-windows // max(SHARD, size))
        self.width = windows // self.shards
        self._steps = max(1, self.width // size)
        self._kept: tuple[int, int] | None = None
        self._windows = tokens
        self._order: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return self.shards * self._steps

    def batch(self, step: int) -> Batch:
        """Takes the windows that the order of the epoch has at this step."""
        if step < 0:
            raise IndexError(f"steps are counted from 0: got {step}")
        epoch, position = divmod(step, len(self))
        shard, place = divmod(position, self._steps)
        if (epoch, shard) != self._kept:
            self._draw(epoch, shard)
        chosen = self._windows.index_select(0, self._order[place]).long()
        return chosen[:, :-1], chosen[:, 1:]

    def _draw(self, epoch: int, shard: int) -> None:
        """Finds the windows of a shard, and their order."""
        generator = make_generator(self.seed, epoch)
        offset = int(torch.randint(self.offsets, (), generator=generator))
        shard_drawn = int(torch.randperm(self.shards, generator=generator)[shard])
        start = offset + shard_drawn * self.width * self.context
        part = self.tokens[start : start + self.width * self.context + 1]
        self._windows = part.unfold(0, self.context + 1, self.context)
        order = torch.randperm(self.width, generator=make_generator(self.seed, epoch, shard))
        self._order = order.to(self.tokens.device).split(self.size)
        self._kept = epoch, shard


class SequentialWindows:
    """Cuts a text into windows as they stand, for an evaluation: every token but the first is predicted once.

    A window reads `context` tokens; the next one reads on where it ends, and knows nothing of it. The last window, if
    it is shorter, is a batch of its own.

    Args:
        tokens: The tokens, in memory or mapped.
        context: The length of a window.
        size: The windows of a batch.

    Examples:
        >>> [targets.tolist() for _, targets in SequentialWindows(torch.arange(8), context=2, size=2)]
        [[[1, 2], [3, 4]], [[5, 6]], [[7]]]
    """

    def __init__(self, tokens: Shaped[Tensor, "n"], *, context: int, size: int) -> None:
        _check(context, size)
        if len(tokens) < 2:
            raise ValueError(f"at least 2 tokens were wanted, one to read and one to predict: got {len(tokens)}")
        self.tokens, self.context, self.size = tokens, context, size
        self.whole, self.rest = divmod(len(tokens) - 1, context)

    def __len__(self) -> int:
        return -(-self.whole // self.size) + (self.rest > 0)

    def batch(self, step: int) -> Batch:
        """Takes the windows of this step."""
        if step < 0:
            raise IndexError(f"steps are counted from 0: got {step}")
        first = step % len(self) * self.size
        if first >= self.whole:
            read = self.tokens[self.whole * self.context :].long()[None]
            return read[:, :-1], read[:, 1:]
        end = min(first + self.size, self.whole)
        part = self.tokens[first * self.context : end * self.context + 1].long()
        return part[:-1].reshape(-1, self.context), part[1:].reshape(-1, self.context)

    def __iter__(self) -> Iterator[Batch]:
        """Goes through the text once."""
        return map(self.batch, range(len(self)))


def _check(context: int, size: int) -> None:
    if context < 1 or size < 1:
        raise ValueError(f"context and size are at least 1: got {context} and {size}")


def claims() -> Iterator[Claim]:
    """The laws that windows obey."""
    described = some_tokens("n:5..40", vocab_size=9)

    def in_order(x: Tensor) -> Tensor:
        parts = [
            torch.stack([inputs.flatten(), targets.flatten()])
            for inputs, targets in SequentialWindows(x, context=4, size=2)
        ]
        return torch.cat(parts, dim=1).double()

    def pairs(x: Tensor) -> Tensor:
        return torch.stack([x[:-1], x[1:]]).double()

    def windows_of(x: Tensor) -> tuple[Tensor, Tensor]:
        source = ShuffledWindows(x, context=3, size=2, seed=1)
        inputs, targets = (torch.cat(part) for part in zip(*map(source.batch, range(len(source))), strict=True))
        return inputs, targets

    def first_and_last(x: Tensor) -> Tensor:
        """The windows by their numbers: those of the places, at which the text is looked up."""
        inputs, targets = windows_of(torch.arange(len(x)))
        return torch.stack([x[inputs], x[targets - 1], x[inputs + 1]]).double()

    def both(x: Tensor) -> Tensor:
        inputs, targets = windows_of(x)
        return torch.stack([inputs, inputs, targets]).double()

    yield Claim(agreement(other=pairs), in_order, described, name="WindowsInOrder: every pair of neighbours once")
    yield Claim(agreement(other=first_and_last), both, described, name="TextWindows: each target is the next token")
