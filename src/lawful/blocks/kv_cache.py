"""Caches for decoding token by token: keys and values of earlier tokens, or the state of a recurrent layer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.functions.attention import Mask

_T = TypeVar("_T")


@runtime_checkable
class AttentionCache(Protocol):
    """Protocol of the caches of layers that decode: `KVCache`, `LinearAttentionState` and `RecurrentCache`."""

    length: int
    """Number of tokens seen."""

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        ...

    def select(self, rows: Int[Tensor, " n"]) -> AttentionCache:
        """Returns the cache of the given rows of the batch, for beam search."""
        ...

    def trim(self, length: int) -> None:
        """Drops all tokens but the first `length`."""
        ...


class KVCache:
    r"""Keys and values of the tokens seen so far, so that a new token costs one row of attention scores.

    $$K \leftarrow \begin{bmatrix} K \\ k \end{bmatrix}, \qquad V \leftarrow \begin{bmatrix} V \\ v \end{bmatrix}$$

    The buffers double when they are full. New keys and values are written in place, unless they require gradients.
    With a window, keys that no later query can see are dropped, so that time and memory per token are constant. A
    layer whose heads differ in size has one pair of buffers per head group.

    Args:
        window: Number of keys that a query sees, including its own. Defaults to all.

    Examples:
        >>> cache = KVCache()
        >>> for _ in range(3):
        ...     k, v = cache.append(torch.zeros(1, 4, 2, 8), torch.zeros(1, 4, 2, 8))
        >>> k.shape, cache.length
        (torch.Size([1, 4, 6, 8]), 6)
    """

    def __init__(self, *, window: int | None = None) -> None:
        if window is not None and window < 1:
            raise ValueError(f"window must be at least 1, got {window}")
        self.window, self.length = window, 0
        self._buffers: list[_Buffer] = []

    def __repr__(self) -> str:
        return f"KVCache(length={self.length}{'' if self.window is None else f', window={self.window}'})"

    def append(
        self, k: Float[Tensor, "*batch g t k"], v: Float[Tensor, "*batch g t v"], group: int = 0
    ) -> tuple[Float[Tensor, "*batch g s k"], Float[Tensor, "*batch g s v"]]:
        """Adds the keys and values of new tokens, and returns all keys and values that the new queries may see.

        Args:
            k: New keys.
            v: New values.
            group: Index of the head group.
        """
        if group == len(self._buffers):
            self._buffers.append(_Buffer(self.window))
        buffer = self._buffers[group]
        found = buffer.append(k, v)
        self.length = buffer.length
        return found

    def append_token(self, kv: Float[Tensor, "b 2 g 1 k"]) -> tuple[Float[Tensor, "b g s k"], Float[Tensor, "b g s k"]]:
        """Adds one token per row to a non-empty cache, without gradients: `append` with less overhead."""
        buffer = self._buffers[0]
        end, joint = buffer.end, buffer.joint
        if joint is None or end >= buffer.capacity or kv.shape[:-2] != joint.shape[:-2]:
            k, v = kv.unbind(1)
            return self.append(k, v)
        joint.narrow(-2, end, 1).copy_(kv)
        buffer.end, buffer.length = end + 1, buffer.length + 1
        self.length = buffer.length
        if self.window is None or end < self.window:
            keys, values = joint.narrow(-2, 0, end + 1).unbind(1)
            return keys, values
        return buffer.last(self.window)

    def get(self, group: int = 0) -> tuple[Float[Tensor, "*batch g s k"], Float[Tensor, "*batch g s v"]]:
        """Returns the keys and values of a head group."""
        if group >= len(self._buffers):
            raise ValueError("the cache is empty")
        return self._buffers[group].last(self._buffers[group].end)

    def select(self, rows: Int[Tensor, " n"]) -> KVCache:
        """Returns the cache of the given rows of the batch, for beam search."""
        selected = KVCache(window=self.window)
        selected.length, selected._buffers = self.length, [buffer.select(rows) for buffer in self._buffers]
        return selected

    def trim(self, length: int) -> None:
        """Drops all tokens but the first `length`."""
        for buffer in self._buffers:
            buffer.trim(length)
        if not self._buffers and length != self.length:
            raise ValueError(f"cannot trim a cache of {self.length} tokens to {length}")
        self.length = length

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(buffer.nbytes for buffer in self._buffers)


class RecurrentCache:
    """State of a recurrent layer, such as `StateSpace`: of constant size, however many tokens were seen.

    Examples:
        >>> cache = RecurrentCache()
        >>> cache.write([torch.ones(2, 3)], length=5)
        >>> cache.length, cache.nbytes, cache.select(torch.tensor([0])).state[0].shape
        (5, 24, torch.Size([1, 3]))
    """

    def __init__(self) -> None:
        self.state: tuple[Tensor, ...] = ()
        self.length = 0
        self._last: tuple[Hashable, Any] | None = None

    def __repr__(self) -> str:
        return f"RecurrentCache(length={self.length})"

    def write(self, state: Sequence[Tensor], length: int) -> None:
        """Replaces the state.

        Args:
            state: Tensors of the state, each with the batch as first dimension.
            length: Number of new tokens.
        """
        self.state, self.length = tuple(state), self.length + length

    def reuse(self, key: Hashable, compute: Callable[[], _T]) -> _T:
        """Returns what `compute` returned for the same key in the last call, or calls it.

        A layer computes what depends on its weights only, such as its discretization, once for many tokens.

        Args:
            key: Identifies what the result depends on.
            compute: Function that computes the result.
        """
        if self._last is None or self._last[0] != key:
            self._last = key, compute()
        return self._last[1]

    def select(self, rows: Int[Tensor, " n"]) -> RecurrentCache:
        """Returns the cache of the given rows of the batch, for beam search."""
        selected = RecurrentCache()
        selected.state, selected.length = tuple(x.index_select(0, rows) for x in self.state), self.length
        selected._last = self._last
        return selected

    def trim(self, length: int) -> None:
        """Drops all tokens (length 0) or none: a state cannot be undone."""
        if length not in (0, self.length):
            raise ValueError(f"RecurrentCache can only be trimmed to 0 or {self.length} tokens, got {length}")
        if length == 0:
            self.state, self.length = (), 0

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(x.nbytes for x in self.state)


class _Buffer:
    """Keys and values of one head group. Valid entries end at `end`; `capacity` is 0 where gradients are needed.

    Keys and values of equal size are views of one tensor, `joint`, so that one copy appends both.
    """

    def __init__(self, window: int | None) -> None:
        self.window, self.length = window, 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.joint: Tensor | None = None
        self.batch: list[int] = []
        self.capacity = self.end = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        *batch, t, _ = k.shape
        if self.keys is None:
            self.batch = batch
        elif batch != self.batch:
            raise ValueError(f"expected keys of shape {(*self.batch, 't', 'k')}, got {tuple(k.shape)}")
        if k.requires_grad or v.requires_grad or (self.window is not None and t > self.window):
            if self.keys is not None:
                before = self.last(self._visible)
                k, v = torch.cat([before[0], k], -2), torch.cat([before[1], v], -2)
            self.keys, self.values, self.joint, self.end, self.capacity = k, v, None, k.shape[-2], 0
        else:
            if self.keys is None or self.values is None or self.end + t > self.capacity:
                self.keys, self.values, self.joint = self._grow(k, v)
            self.keys.narrow(-2, self.end, t).copy_(k)
            self.values.narrow(-2, self.end, t).copy_(v)
            self.end += t
        self.length += t
        return self.last(self.end if self.window is None else self.window - 1 + t)

    def last(self, n: int) -> tuple[Tensor, Tensor]:
        """The last n keys and values, or all if there are fewer."""
        if self.keys is None or self.values is None:
            raise ValueError("the cache is empty")
        n = min(n, self.end)
        return self.keys.narrow(-2, self.end - n, n), self.values.narrow(-2, self.end - n, n)

    def select(self, rows: Tensor) -> _Buffer:
        selected = _Buffer(self.window)
        selected.length, selected.end, selected.capacity = self.length, self.end, self.capacity
        if self.keys is not None and self.values is not None:
            if self.joint is None:
                selected.keys, selected.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
            else:
                selected.joint = self.joint.index_select(0, rows)
                selected.keys, selected.values = selected.joint.unbind(1)
            selected.batch = [len(rows), *self.batch[1:]]
        return selected

    def trim(self, length: int) -> None:
        dropped = self.length - length
        needed = length if self.window is None else min(length, self.window - 1)
        if dropped < 0 or length < 0 or self.end - dropped < needed:
            raise ValueError(f"cannot trim a cache of {self.length} tokens to {length}")
        self.length, self.end = length, self.end - dropped

    @property
    def nbytes(self) -> int:
        return 0 if self.keys is None or self.values is None else self.keys.nbytes + self.values.nbytes

    @property
    def _visible(self) -> int:
        """Number of stored keys that later queries may see."""
        return self.end if self.window is None else min(self.window - 1, self.end)

    def _grow(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Allocates buffers for twice the needed tokens, and moves the visible ones there."""
        before = None if self.keys is None else self.last(self._visible)
        self.end = 0 if before is None else before[0].shape[-2]
        self.capacity = max(32, 2 * (self.end + k.shape[-2]))
        if k.shape == v.shape and k.dim() == 4 and k.dtype == v.dtype:
            joint = k.new_empty(k.shape[0], 2, k.shape[1], self.capacity, k.shape[3])
            keys, values = joint.unbind(1)
        else:
            joint = None
            keys, values = (x.new_empty(*x.shape[:-2], self.capacity, x.shape[-1]) for x in (k, v))
        if before is not None:
            keys.narrow(-2, 0, self.end).copy_(before[0])
            values.narrow(-2, 0, self.end).copy_(before[1])
        return keys, values, joint


def crop_mask(mask: Mask, s: int, *, total: int) -> Mask:
    """Restricts a mask over `total` keys to the last `s`, when a cache has dropped the others.

    Examples:
        >>> crop_mask(Mask(prefix=3, causal=True), 3, total=5).prefix
        1
    """
    if s == total:
        return mask
    padding, documents, pairs = (None if x is None else x[..., -s:] for x in (mask.padding, mask.documents, mask.pairs))
    if padding is documents is pairs is None and not mask.prefix:
        return mask
    prefix = max(0, mask.prefix - (total - s))
    return replace(mask, prefix=prefix, padding=padding, documents=documents, pairs=pairs)
