"""The cache of an attention layer: the keys and values of the tokens so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.functions.attention import Mask
from lawful.laws import Claim, agreement, cached_decoding, shape, tokens
from lawful.laws import mask as masks


@runtime_checkable
class LinearAttentionState(Protocol):
    """A summary of the tokens so far that new queries can look at, such as that of linear attention."""

    length: int

    @property
    def nbytes(self) -> int: ...

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask, bias: Any) -> Tensor: ...

    def select(self, rows: Tensor) -> LinearAttentionState: ...


class KVCache:
    r"""Keeps the keys and values of the tokens that were seen, so that a new token costs one row of the scores.

    $$K \leftarrow \begin{bmatrix} K \\ k \end{bmatrix}, \qquad V \leftarrow \begin{bmatrix} V \\ v \end{bmatrix}$$

    The room for them doubles when it is full, and new ones are written in place, unless gradients are asked for.
    Under a window the keys that no query will see again are forgotten, so that neither time nor memory grows: once in
    as many tokens as the window has, the last ones move to a new room of twice that size.

    Args:
        window: How many keys a query sees, its own among them; all unless given.

    Examples:
        >>> cache = KVCache()
        >>> for _ in range(3):
        ...     k, v = cache.append(torch.zeros(1, 4, 2, 8), torch.zeros(1, 4, 2, 8))
        >>> k.shape, cache.length
        (torch.Size([1, 4, 6, 8]), 6)
    """

    def __init__(self, *, window: int | None = None) -> None:
        if window is not None and window < 1:
            raise ValueError(f"window must be at least 1: got {window}")
        self.window, self.length = window, 0
        self._room: tuple[Tensor, Tensor] | None = None
        self._batch: list[int] = []
        self._size = self._end = 0

    def append(
        self, k: Float[Tensor, "*batch g t k"], v: Float[Tensor, "*batch g t v"]
    ) -> tuple[Float[Tensor, "*batch g s k"], Float[Tensor, "*batch g s v"]]:
        """Takes in new keys and values; returns all that the new queries may see."""
        *batch, t, _ = k.shape
        if self._room is None:
            self._batch = batch
        elif batch != self._batch:
            raise ValueError(f"the cache holds {tuple(self._batch)}: got {tuple(batch)}")
        if k.requires_grad or v.requires_grad or (self.window is not None and t > self.window):
            before = self._needed()
            self._room = (k, v) if before is None else (torch.cat([before[0], k], -2), torch.cat([before[1], v], -2))
            end, self._size = self._room[0].shape[-2], 0
        else:
            if self._room is None or self._end + t > self._size:
                self._room = self._grown(k, v)
            (keys, values), end = self._room, self._end + t
            keys.narrow(-2, self._end, t).copy_(k)
            values.narrow(-2, self._end, t).copy_(v)
        self._end = end
        self.length += t
        return self._last(end if self.window is None else self.window - 1 + t)

    def all(self) -> tuple[Float[Tensor, "*batch g s k"], Float[Tensor, "*batch g s v"]]:
        """Returns the keys and values that are there."""
        return self._last(self._end)

    def select(self, rows: Int[Tensor, " n"]) -> KVCache:
        """Returns the cache of these rows of the batch, in this order, as a search over beams asks for."""
        made = KVCache(window=self.window)
        made.length, made._end, made._size = self.length, self._end, self._size
        if self._room is not None:
            keys, values = self._room
            made._room = keys.index_select(0, rows), values.index_select(0, rows)
            made._batch = [len(rows), *self._batch[1:]]
        return made

    def trim(self, length: int) -> None:
        """Forgets all tokens but the first so many."""
        dropped = self.length - length
        needed = length if self.window is None else min(length, self.window - 1)
        if dropped < 0 or length < 0 or self._end - dropped < needed:
            raise ValueError(f"the cache, of {self.length} tokens, cannot go back to {length}")
        self.length, self._end = length, self._end - dropped

    @property
    def nbytes(self) -> int:
        """The memory that is taken."""
        return 0 if self._room is None else sum(x.nbytes for x in self._room)

    def _last(self, n: int) -> tuple[Tensor, Tensor]:
        """The last n keys and values, or all if there are fewer."""
        if self._room is None:
            raise ValueError("the cache is empty")
        n = min(n, self._end)
        keys, values = self._room
        return keys.narrow(-2, self._end - n, n), values.narrow(-2, self._end - n, n)

    def _needed(self) -> tuple[Tensor, Tensor] | None:
        """The keys and values that later queries may see."""
        return None if self._room is None else self._last(self._end if self.window is None else self.window - 1)

    def _grown(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """A room that is at least twice as large as what is to be kept, with that moved there."""
        before = self._needed()
        self._end = 0 if before is None else before[0].shape[-2]
        self._size = max(32, 2 * (self._end + k.shape[-2]))
        keys, values = (x.new_empty(*x.shape[:-2], self._size, x.shape[-1]) for x in (k, v))
        if before is not None:
            keys.narrow(-2, 0, self._end).copy_(before[0])
            values.narrow(-2, 0, self._end).copy_(before[1])
        return keys, values


class Caches:
    """Keeps the caches of the sets of heads of one layer, which are asked together.

    Args:
        sets: The caches, one for each set.

    Examples:
        >>> Caches([KVCache(), KVCache()]).length
        0
    """

    def __init__(self, sets: Sequence[KVCache | LinearAttentionState]) -> None:
        self.sets = tuple(sets)

    @property
    def length(self) -> int:
        """How many tokens were seen."""
        return self.sets[0].length

    @property
    def nbytes(self) -> int:
        """The memory that is taken."""
        return sum(cache.nbytes for cache in self.sets)

    def select(self, rows: Int[Tensor, " n"]) -> Caches:
        """Returns the caches of these rows of the batch."""
        return Caches([cache.select(rows) for cache in self.sets])

    def trim(self, length: int) -> None:
        """Forgets all tokens but the first so many; a summary of them cannot."""
        for cache in self.sets:
            if not isinstance(cache, KVCache):
                raise ValueError(f"a cache of keys and values is wanted to go back: got {type(cache).__name__}")
            cache.trim(length)


def over_last(mask: Mask, s: int, *, seen: int) -> Mask:
    """Returns a mask over the last s keys, where `seen` have been seen in all and the others are not kept."""
    if s == seen:
        return mask
    padding, documents, pairs = (None if x is None else x[..., -s:] for x in (mask.padding, mask.documents, mask.pairs))
    if padding is documents is pairs is None and not mask.prefix:
        return mask
    prefix = max(0, mask.prefix - (seen - s))
    return replace(mask, prefix=prefix, padding=padding, documents=documents, pairs=pairs)


def claims() -> Iterator[Claim]:
    """The laws that caches obey."""

    def in_pieces(k: Tensor, v: Tensor, *, window: int | None = None) -> KVCache:
        cache = KVCache(window=window)
        for piece in zip(k.split((1, 40, 2, 1, 3), -2), v.split((1, 40, 2, 1, 3), -2), strict=True):
            cache.append(*piece)
        return cache

    def joined(k: Tensor, v: Tensor) -> Tensor:
        return torch.cat(in_pieces(k, v).all(), dim=-1)

    def within(k: Tensor, v: Tensor) -> Tensor:
        cache = in_pieces(k[..., :-3, :], v[..., :-3, :], window=4)
        return torch.cat(cache.append(k[..., -3:, :], v[..., -3:, :]), dim=-1)

    def taken_back(k: Tensor, v: Tensor) -> Tensor:
        cache = in_pieces(k, v).select(torch.tensor([1, 1, 0]))
        cache.trim(39)
        return torch.cat([*cache.append(k[[1, 1, 0], :, 39:], v[[1, 1, 0], :, 39:])], dim=-1)

    def side_by_side(k: Tensor, v: Tensor) -> Tensor:
        return torch.cat([k, v], dim=-1)

    def last(k: Tensor, v: Tensor) -> Tensor:
        return side_by_side(k, v)[..., -6:, :]

    def selected(k: Tensor, v: Tensor) -> Tensor:
        return side_by_side(k, v)[[1, 1, 0]]

    inputs, longer = ((shape(f"2 g {t} 2"), shape(f"2 g {t} 3")) for t in (47, 50))
    yield Claim(agreement(other=side_by_side), joined, inputs, name="KeyValues, in pieces")
    yield Claim(agreement(other=last), within, longer, name="KeyValues(window=4)")
    yield Claim(agreement(other=selected), taken_back, inputs, name="KeyValues, select and trim")

    def rules(there: Tensor, which: Tensor) -> tuple[Mask, ...]:
        pairs = there.unsqueeze(-1) | which.bool().unsqueeze(-2)
        return Mask(prefix=3, padding=there), Mask(causal=True, documents=which), Mask(pairs=pairs), Mask(window=2)

    def of_the_last(there: Tensor, which: Tensor) -> Tensor:
        made = (over_last(mask, s, seen=5).dense(2, s) for mask in rules(there, which) for s in (3, 5))
        return torch.cat([seen.expand(2, 2, -1) for seen in made if seen is not None], dim=-1).double()

    def last_of_all(there: Tensor, which: Tensor) -> Tensor:
        found = (mask.dense(2, 5) for mask in rules(there, which) for _ in range(2))
        cut = zip(found, [3, 5] * 4, strict=True)
        return torch.cat([seen.expand(2, 2, -1)[..., -s:] for seen, s in cut if seen is not None], dim=-1).double()

    places = masks("2 5"), tokens("2 5", vocab=2)
    yield Claim(replace(agreement(other=last_of_all), cases=20), of_the_last, places, name="over_last")

    from lawful.blocks.attention import MultiHeadAttention

    layer = MultiHeadAttention(4, heads=2)
    for window in (None, 3):
        rule = Mask(causal=True, window=window)

        def whole(x: Tensor, rule: Mask = rule) -> Tensor:
            return layer(x, mask=rule)

        def step(x: Tensor, memory: object, rule: Mask = rule) -> tuple[Tensor, object]:
            memory = layer.cache(window=rule.window) if memory is None else memory
            return layer(x, mask=rule, cache=memory), memory

        yield Claim(cached_decoding(step=step), whole, shape("b t:1..9 4"), name=f"attention with {window=}")
