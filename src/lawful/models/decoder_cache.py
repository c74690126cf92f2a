"""The cache of a decoder, and the decoder of an encoder-decoder whose sources are fixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.kv_cache import AttentionCache
from lawful.functions.attention import NO_MASK, Mask
from lawful.models.generation import GenerationMixin

if TYPE_CHECKING:
    from lawful.models.transformer import EncoderDecoder


class DecoderCache:
    """The caches of all attention layers of a decoder, so that a new token costs one step.

    Rows of different lengths are padded on the left: `padding` is True at the valid ones of the first tokens. All later
    tokens are valid.

    Args:
        layers: Empty cache of each self-attention layer, in order.
        memory: Empty cache of each cross-attention layer, in order.
        padding: True at valid tokens. Defaults to no padding.
        memory_padding: True at valid tokens of the memory. Defaults to no padding.

    Examples:
        >>> from lawful.blocks import KVCache
        >>> cache = DecoderCache([KVCache(), KVCache()])
        >>> cache.length, len(cache.layers)
        (0, 2)
    """

    def __init__(
        self,
        layers: Sequence[AttentionCache],
        *,
        memory: Sequence[AttentionCache] = (),
        padding: Bool[Tensor, "b t"] | None = None,
        memory_padding: Bool[Tensor, "b s"] | None = None,
    ) -> None:
        self.layers, self.memory = list(layers), list(memory)
        self.padding, self.memory_padding = padding, memory_padding
        self.length = 0
        self._tokens: list[Tensor] = []

    def advance(self, tokens: Int[Tensor, "*batch t"]) -> None:
        """Counts tokens that the layers have appended."""
        self.length += tokens.shape[-1]
        self._tokens.append(tokens)

    def valid(self, t: int) -> Bool[Tensor, "b s"] | None:
        """Returns which of the cached tokens and the next `t` are valid; None if all are."""
        if self.padding is None:
            return None
        if (missing := self.length + t - self.padding.shape[1]) > 0:
            self.padding = F.pad(self.padding, (0, max(missing, self.length)), value=True)
        return self.padding[:, : self.length + t]

    def last_tokens(self, n: int) -> Int[Tensor, "*batch m"] | None:
        """Returns the last `n` tokens of each row, or fewer; None if the cache is empty."""
        return torch.cat(self._tokens[-n:], dim=-1)[..., -n:] if self._tokens and n else None

    def select(self, rows: Int[Tensor, " n"]) -> DecoderCache:
        """Returns the cache of the given rows of the batch, for beam search."""
        selected = DecoderCache(
            [cache.select(rows) for cache in self.layers],
            memory=[cache.select(rows) for cache in self.memory],
            padding=None if self.padding is None else self.padding[rows],
            memory_padding=None if self.memory_padding is None else self.memory_padding[rows],
        )
        selected.length = self.length
        selected._tokens = [torch.cat(self._tokens, dim=-1)[rows]] if self._tokens else []
        return selected

    def trim(self, length: int) -> None:
        """Drops all tokens but the first `length`; the memory stays."""
        for layer in self.layers:
            layer.trim(length)
        self._tokens = [torch.cat(self._tokens, dim=-1)[..., :length]] if self._tokens and length else []
        self.length = length

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(cache.nbytes for cache in (*self.layers, *self.memory))


class ConditionalDecoder(nn.Module, GenerationMixin):
    r"""An encoder-decoder with fixed sources, which decodes as a `Decoder` does: `generate`, `beam_search`.

    $$p(y_{t+1} \mid y_{\le t}) = p(y_{t+1} \mid y_{\le t}, x)$$

    One source may have several targets. With a cache the sources are encoded once.

    Args:
        model: The encoder-decoder.
        source: Source tokens.
        padding: True at valid source tokens, for sources of different lengths.

    Examples:
        >>> from lawful.models import encoder_decoder
        >>> model = encoder_decoder(vocab_size=10, dim=16)
        >>> given = ConditionalDecoder(model, torch.tensor([[1, 2, 3], [4, 5, 6]]))
        >>> given(torch.tensor([[0], [0]])).shape
        torch.Size([2, 1, 10])
    """

    source: Tensor
    padding: Tensor | None

    def __init__(
        self, model: EncoderDecoder, source: Int[Tensor, "b s"], *, padding: Bool[Tensor, "b s"] | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("source", source, persistent=False)
        self.register_buffer("padding", padding, persistent=False)

    def forward(
        self,
        target: Int[Tensor, "n t"],
        *,
        cache: DecoderCache | None = None,
        logits_to_keep: int | None = None,
    ) -> Float[Tensor, "n _ vocab"]:
        """Returns the logits of the next target token at each position.

        Args:
            target: Target tokens; with a cache, those after the cached ones.
            cache: Cache of earlier target tokens and of the sources.
            logits_to_keep: Number of last positions to compute logits for. Defaults to all.
        """
        cache = self.cache() if cache is None else cache
        memory = None
        if not cache.length:
            mask = NO_MASK if self.padding is None else Mask(padding=self.padding)
            memory = self.model.encode(self.source, source_mask=mask)
            if len(memory) != len(target):
                if len(memory) > 1:
                    raise ValueError(f"expected one target per source ({len(memory)}), got {len(target)}")
                memory = memory.expand(len(target), -1, -1)
                if cache.memory_padding is not None:
                    cache.memory_padding = cache.memory_padding.expand(len(target), -1)
        mask = NO_MASK if cache.memory_padding is None else Mask(padding=cache.memory_padding)
        return self.model.decoder(target, cache=cache, memory=memory, memory_mask=mask, logits_to_keep=logits_to_keep)

    def cache(self, padding: Bool[Tensor, "n t"] | None = None) -> DecoderCache:
        """Returns an empty cache.

        Args:
            padding: True at valid tokens, for left-padded targets of different lengths.
        """
        cache = self.model.decoder.cache(padding)
        cache.memory_padding = self.padding
        return cache
