"""The encoder-decoder: from one sequence to another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.tying import tie
from lawful.functions.attention import EVERYTHING, Mask
from lawful.laws import (
    Claim,
    agreement,
    causality,
    masked_positions_have_no_influence,
    permutation_invariance,
    tokens,
    weight_sharing,
)
from lawful.laws import mask as masks
from lawful.models.transformer.cache import Cache
from lawful.models.transformer.decoder import Decoder, DecoderConfig
from lawful.models.transformer.encoder import Encoder, EncoderConfig
from lawful.models.transformer.stream import Extras


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig:
    """The two halves of an encoder-decoder."""

    encoder: EncoderConfig
    """The half that reads the source."""
    decoder: DecoderConfig
    """The half that writes the target; its order has the letter c where it attends to the source."""
    shared: bool = False
    """Whether both have one embedding."""


class EncoderDecoder(nn.Module):
    r"""Reads a source, and gives the logits of the next token of a target that looks at it.

    $$p(y_{t+1} \mid y_{\le t}, x) = \operatorname{decoder}(y_{\le t}, \operatorname{encoder}(x))$$

    With a cache, the keys and values of the source are computed once.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        config: The two halves.

    Examples:
        >>> halves = EncoderConfig(vocab=10, d=16), DecoderConfig(vocab=12, d=16, order="(scf)*")
        >>> model = EncoderDecoder(EncoderDecoderConfig(encoder=halves[0], decoder=halves[1]))
        >>> model(torch.tensor([[1, 2, 3]]), torch.tensor([[1, 2]])).shape
        torch.Size([1, 2, 12])
    """

    def __init__(self, config: EncoderDecoderConfig) -> None:
        if config.encoder.d != config.decoder.d:
            raise ValueError(f"both halves are to have one width: got {config.encoder.d} and {config.decoder.d}")
        super().__init__()
        self.config = config
        self.encoder, self.decoder = Encoder(config.encoder), Decoder(config.decoder)
        if "c" not in self.decoder.order:
            raise ValueError(f"the decoder is to attend to the source, by a letter c: got {config.decoder.order!r}")
        if config.shared:
            tie(self.decoder.embedding, "weight", self.encoder.embedding, "weight")

    def forward(
        self, source: Int[Tensor, "*batch s"], target: Int[Tensor, "*batch t"], *, source_mask: Mask = EVERYTHING
    ) -> Float[Tensor, "*batch t vocab"]:
        """Returns the logits of the token after each of the target.

        Args:
            source: The tokens of the source.
            target: Those of the target, so far.
            source_mask: What of the source is hidden, such as padding.
        """
        return self.decode(target, self.encode(source, source_mask=source_mask), source_mask=source_mask)

    def encode(self, source: Int[Tensor, "*batch s"], *, source_mask: Mask = EVERYTHING) -> Float[Tensor, "*batch s d"]:
        """Returns the memory: a vector for each token of the source."""
        return self.encoder(source, mask=source_mask)

    def decode(
        self,
        target: Int[Tensor, "*batch t"],
        memory: Float[Tensor, "*batch s d"],
        *,
        source_mask: Mask = EVERYTHING,
        cache: Cache | None = None,
    ) -> Float[Tensor, "*batch t vocab"]:
        """Returns the logits of the token after each of the target, given the memory.

        Args:
            target: The tokens of the target, those after the ones that the cache has seen.
            memory: What `encode` gave. A cache reads it the first time, and no more.
            source_mask: What of the memory is hidden.
            cache: What is kept of earlier tokens, and of the memory.
        """
        return self.decoder(target, cache=cache, memory=memory, memory_mask=source_mask)

    def cache(self) -> Cache:
        """Returns an empty cache."""
        return self.decoder.cache()


def claims() -> Iterator[Claim]:
    """The laws that an encoder-decoder obeys."""
    parts = partial(MultiHeadAttention, heads=2, bias=False)
    read = EncoderConfig(vocab=5, d=4, depth=1, attention=parts, extras=Extras())
    write = DecoderConfig(vocab=6, d=4, depth=1, order="(scf)*", attention=parts, extras=Extras())
    model = EncoderDecoder(EncoderDecoderConfig(encoder=read, decoder=write))
    shared = EncoderDecoder(EncoderDecoderConfig(encoder=read, decoder=replace(write, vocab=5), shared=True))

    def padded(source: Tensor, there: Tensor) -> Tensor:
        return model(source, source[:, :1] * 0, source_mask=Mask(padding=there)).expand(-1, source.shape[1], -1)

    def one_by_one(source: Tensor, target: Tensor) -> Tensor:
        memory, cache = model.encode(source), model.cache()
        pieces = [model.decode(piece, memory, cache=cache) for piece in target.split(1, dim=1)]
        return torch.cat(pieces, dim=1)

    given = {"source": tokens("b s", vocab=5), "target": tokens("b t", vocab=6)}
    names = "encoder.embedding.weight", "decoder.embedding.weight"
    both = tokens("b s", vocab=5), tokens("b t", vocab=5)
    for law, f, inputs, name in (
        (causality(time=1, input="target"), model, given, "EncoderDecoder"),
        (permutation_invariance(axis=1, input="source"), model, given, "EncoderDecoder without positions"),
        (agreement(other=one_by_one), model, given, "EncoderDecoder, one token at a time"),
        (masked_positions_have_no_influence(), padded, (both[0], masks("b s")), "EncoderDecoder, padded source"),
        (weight_sharing(names=names), shared, both, "EncoderDecoder with one embedding"),
    ):
        yield Claim(replace(law, cases=20), f, inputs, name=name)
