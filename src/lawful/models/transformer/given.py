"""An encoder-decoder with its sources given: a decoder of their targets, which can be decoded as any other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.functions.attention import EVERYTHING, Mask
from lawful.laws import Claim, agreement, tokens
from lawful.laws import mask as masks
from lawful.models.transformer.cache import Cache
from lawful.models.transformer.decoder import DecoderConfig
from lawful.models.transformer.encoder import EncoderConfig
from lawful.models.transformer.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from lawful.models.transformer.stream import Extras


class GivenCache:
    """Keeps what a decoder has read of targets, and which tokens of the source of each are there.

    Args:
        kept: The cache of the decoder.
        there: True where there is a token of the source; all are there unless given.
    """

    def __init__(self, kept: Cache, there: Bool[Tensor, "b s"] | None) -> None:
        self.kept, self.there = kept, there

    def select(self, rows: Int[Tensor, " n"]) -> GivenCache:
        """Returns the cache of these targets, in this order."""
        return GivenCache(self.kept.select(rows), None if self.there is None else self.there[rows])


class Given(nn.Module):
    r"""Gives the logits of the next token of targets, by an encoder-decoder whose sources are fixed.

    $$p(y_{t+1} \mid y_{\le t}) = p(y_{t+1} \mid y_{\le t}, x)$$

    It is called as a decoder is, so that whatever decodes with one decodes with it: `generate`, `beam_search`. Of one
    source there may be several targets. With a cache, the sources are read once.

    Args:
        model: The encoder-decoder.
        source: The tokens $x$ of each source.
        there: True where there is one, for sources of unequal lengths.

    Examples:
        >>> import torch
        >>> halves = EncoderConfig(vocab=10, d=16), DecoderConfig(vocab=12, d=16, order="(scf)*")
        >>> model = EncoderDecoder(EncoderDecoderConfig(encoder=halves[0], decoder=halves[1]))
        >>> given = Given(model, torch.tensor([[1, 2, 3], [4, 5, 6]]))
        >>> given(torch.tensor([[0], [0]])).shape
        torch.Size([2, 1, 12])
    """

    source: Tensor
    there: Tensor | None

    def __init__(
        self, model: EncoderDecoder, source: Int[Tensor, "b s"], *, there: Bool[Tensor, "b s"] | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("source", source, persistent=False)
        self.register_buffer("there", there, persistent=False)

    def forward(self, target: Int[Tensor, "n t"], *, cache: GivenCache | None = None) -> Float[Tensor, "n t vocab"]:
        """Returns the logits of the token after each of the targets.

        Args:
            target: The tokens of each target, those after the ones that the cache has seen.
            cache: What is kept of earlier tokens, and of the sources.
        """
        if cache is None:
            cache = self.cache()
        memory = None
        if not cache.kept.length:
            memory = self.model.encode(self.source, source_mask=_mask(self.there))
            if len(memory) != len(target):
                if len(memory) > 1:
                    raise ValueError(f"a target for each of {len(memory)} sources was wanted: got {len(target)}")
                memory = memory.expand(len(target), -1, -1)
                cache.there = None if cache.there is None else cache.there.expand(len(target), -1)
        return self.model.decoder(target, cache=cache.kept, memory=memory, memory_mask=_mask(cache.there))

    def cache(self, padding: Bool[Tensor, "n t"] | None = None) -> GivenCache:
        """Returns an empty cache.

        Args:
            padding: True where there is a token, for beginnings of targets that are padded on the left.
        """
        return GivenCache(self.model.decoder.cache(padding), self.there)


def _mask(there: Tensor | None) -> Mask:
    return EVERYTHING if there is None else Mask(padding=there)


def claims() -> Iterator[Claim]:
    """The laws that an encoder-decoder with its sources given obeys."""
    parts = partial(MultiHeadAttention, heads=2, bias=False)
    read = EncoderConfig(vocab=5, d=4, depth=1, attention=parts, extras=Extras())
    write = DecoderConfig(vocab=6, d=4, depth=1, order="(scf)*", attention=parts, extras=Extras())
    model = EncoderDecoder(EncoderDecoderConfig(encoder=read, decoder=write))

    def selected(source: Tensor, there: Tensor, target: Tensor) -> Tensor:
        given = Given(model, source, there=there)
        cache = given.cache()
        given(target[:, :1], cache=cache)
        rows = target.new_tensor([1, 0, 1])
        return given(target[rows, 1:], cache=cache.select(rows))

    def whole(source: Tensor, there: Tensor, target: Tensor) -> Tensor:
        logits = model(source, target, source_mask=Mask(padding=there))[:, 1:]
        return logits[[1, 0, 1]]

    def several(source: Tensor, target: Tensor) -> Tensor:
        return Given(model, source[:1])(target)

    def repeated(source: Tensor, target: Tensor) -> Tensor:
        return model(source[:1].repeat(len(target), 1), target)

    source, target = tokens("2 s", vocab=5), tokens("2 t:2..4", vocab=6)
    for f, other, inputs, name in (
        (selected, whole, (source, masks("2 s"), target), "Given, targets selected"),
        (several, repeated, (source, target), "Given, several targets of a source"),
    ):
        yield Claim(replace(agreement(other=other), cases=20), f, inputs, name=name)
