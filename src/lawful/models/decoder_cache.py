"""The cache of a transformer: what its attention layers keep of the tokens that they have seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F


@runtime_checkable
class DecoderState(Protocol):
    """What one attention layer keeps: keys and values, or a summary of them."""

    @property
    def length(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def select(self, rows: Tensor) -> DecoderState: ...

    def trim(self, length: int) -> None: ...


class Cache:
    """Keeps the keys and values of every attention layer, so that a token costs one step and not a pass over all.

    Rows of unequal lengths end together: `padding` says which of the first tokens are there. Tokens that come later
    all are.

    Args:
        layers: One empty cache for each layer of self-attention, in order.
        memory: One empty cache for each layer that attends to a memory, in order.
        padding: True where there is a token, for the first tokens of each row; all are there unless given.

    Examples:
        >>> from lawful.blocks.attention import KeyValues
        >>> cache = Cache([KeyValues(), KeyValues()])
        >>> cache.length, len(cache.layers)
        (0, 2)
    """

    def __init__(
        self,
        layers: Sequence[DecoderState],
        *,
        memory: Sequence[DecoderState] = (),
        padding: Bool[Tensor, "b t"] | None = None,
    ) -> None:
        self.layers, self.memory, self.padding = list(layers), list(memory), padding
        self._tokens: list[Tensor] = []
        self.length = 0

    def advance(self, tokens: Int[Tensor, "*batch t"]) -> None:
        """Notes tokens that the layers have taken in."""
        self.length += tokens.shape[-1]
        self._tokens.append(tokens)

    def there(self, t: int) -> Bool[Tensor, "b s"] | None:
        """Says of all tokens, the next t among them, whether they are there; None if all are."""
        if self.padding is None:
            return None
        if (missing := self.length + t - self.padding.shape[1]) > 0:
            self.padding = F.pad(self.padding, (0, max(missing, self.length)), value=True)
        return self.padding[:, : self.length + t]

    def last(self, n: int) -> Int[Tensor, "*batch m"] | None:
        """The last n tokens of each row, or as many as there were; None before the first."""
        return torch.cat(self._tokens[-n:], dim=-1)[..., -n:] if self._tokens and n else None

    def select(self, rows: Int[Tensor, " n"]) -> Cache:
        """Returns the cache of these rows of the batch, in this order, as a search over beams asks for."""
        layers, memory = ([one.select(rows) for one in several] for several in (self.layers, self.memory))
        made = Cache(layers, memory=memory, padding=None if self.padding is None else self.padding[rows])
        made.length, made._tokens = self.length, [torch.cat(self._tokens, dim=-1)[rows]] if self._tokens else []
        return made

    def trim(self, length: int) -> None:
        """Forgets all tokens but the first so many; the memory stays."""
        for layer in self.layers:
            layer.trim(length)
        self._tokens = [torch.cat(self._tokens, dim=-1)[..., :length]] if self._tokens and length else []
        self.length = length

    @property
    def nbytes(self) -> int:
        """The memory that the layers take."""
        return sum(layer.nbytes for layer in (*self.layers, *self.memory))
