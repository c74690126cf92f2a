"""The decoder: a transformer that says which token comes next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lawful.blocks.dense import Dense
from lawful.blocks.normalization import RMSNorm
from lawful.blocks.transformer import MACARON, LayerScale, Mix, NGramEmbedding, softcap
from lawful.blocks.tying import tie
from lawful.functions.attention import CAUSAL, EVERYTHING, Linear, Mask
from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    cached_decoding,
    causality,
    every_parameter_receives_a_gradient,
    locality,
    masked_positions_have_no_influence,
    ragged_batches,
    tokens,
)
from lawful.laws import mask as masks
from lawful.models.transformer.cache import Cache
from lawful.models.transformer.config import StreamConfig
from lawful.models.transformer.parts import rotary_attention
from lawful.models.transformer.stream import Extras, Stream


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(StreamConfig):
    """The sizes and the parts of a decoder."""

    mask: Mask = CAUSAL
    """Which tokens each token sees."""
    tied: bool = False
    """Whether the head has the weight of the embedding."""


class Decoder(Stream):
    r"""Reads tokens from left to right, and gives the logits of the next one at each.

    $$p(x_{t+1} \mid x_{\le t}) = \operatorname{softmax}(W \operatorname{norm}(x_L))$$

    With a cache it reads on where it has stopped, and gives what one pass over all tokens gives.

    Reference:
        Radford, Narasimhan, Salimans and Sutskever, *Improving Language Understanding by Generative Pre-Training*,
        2018.

    Args:
        config: The sizes and the parts.

    Examples:
        >>> model = Decoder(DecoderConfig(vocab=65, d=16, depth=2))
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 65])
        >>> cache = model.cache()
        >>> for token in (1, 2, 3):
        ...     logits = model(torch.tensor([[token]]), cache=cache)
        >>> logits.shape, cache.length
        (torch.Size([1, 1, 65]), 3)
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.head = Dense(config.d, config.vocab, bias=False)
        if config.tied:
            tie(self.embedding, "weight", self.head, "weight")
        if config.extras.initialise is not None:
            config.extras.initialise(self)

    def forward(
        self,
        tokens: Int[Tensor, "*batch t"],
        *,
        cache: Cache | None = None,
        mask: Mask | None = None,
        memory: Float[Tensor, "*batch s d"] | None = None,
        memory_mask: Mask = EVERYTHING,
    ) -> Float[Tensor, "*batch t vocab"]:
        """Returns the logits of the token after each.

        Args:
            tokens: The tokens, those after the ones that the cache has seen.
            cache: What is kept of earlier tokens, and takes in these.
            mask: What is hidden besides what the model's own mask hides, such as padding.
            memory: What the sublayers c attend to; with a cache, only the first time.
            memory_mask: What of the memory is hidden.
        """
        seen = self.config.mask if mask is None else self.config.mask & mask
        return self.logits(self.run(tokens, mask=seen, cache=cache, memory=memory, memory_mask=memory_mask))

    def logits(self, x: Float[Tensor, "*batch t d"]) -> Float[Tensor, "*batch t vocab"]:
        """Returns the logits for what `run` has given, or for some of its positions."""
        y, cap = self.head(x), self.config.extras.softcap
        return y if cap is None else softcap(y, cap=cap)

    def cache(self, padding: Bool[Tensor, "b t"] | None = None) -> Cache:
        """Returns an empty cache.

        Args:
            padding: True where there is a token, for prompts of unequal lengths that are padded on the left.
        """
        return self.new_cache(padding)

    def step(
        self, tokens: Int[Tensor, "*batch t"], cache: Cache | None = None
    ) -> tuple[Float[Tensor, "*batch t vocab"], Cache]:
        """Reads on: returns the logits and the cache, a new one to begin with."""
        cache = self.cache() if cache is None else cache
        return self(tokens, cache=cache), cache


def claims() -> Iterator[Claim]:
    """The laws that a decoder obeys."""
    sizes = DecoderConfig(vocab=5, d=4, depth=2, attention=partial(rotary_attention, heads=2), extras=Extras())
    near = Decoder(replace(sizes, depth=1, mask=Mask(causal=True, window=2)))
    summed = Decoder(replace(sizes, attention=partial(rotary_attention, heads=2, kernel=Linear())))
    mixing = partial(Mix, start=(0.7, 0.4))
    gated = Extras(shortcut=mixing, gate=partial(LayerScale, start=0.5), softcap=2.0)
    single = Decoder(replace(sizes, order="sf", extras=gated))
    extras = replace(
        gated, ngrams=(NGramEmbedding, partial(NGramEmbedding, n=3, rows=7)), entry=RMSNorm, value_residual=mixing
    )
    rich = Decoder(replace(sizes, order=MACARON, extras=extras))

    def padded(x: Tensor, there: Tensor) -> Tensor:
        return rich(x, mask=Mask(padding=there))

    def padded_on_the_left(x: Tensor) -> Tensor:
        wide = torch.cat([x[:, :1], x[:, :1], x], dim=1)
        cache = summed.cache(torch.arange(wide.shape[1]).expand_as(wide) >= 2)
        return torch.cat([summed(piece, cache=cache) for piece in wide.split(3, dim=1)], dim=1)[:, 2:]

    def equation(x: Tensor) -> Tensor:
        w, part = dict(single.named_parameters()), dict(single.named_modules())
        y = start = w["embedding.weight"][x]
        y = y + w["layers.0.gate.weight"] * part["layers.0.block"](part["layers.0.norm"](y), mask=CAUSAL)
        y = y + w["layers.1.gate.weight"] * part["layers.1.block"](part["layers.1.norm"](y))
        y = w["shortcuts.0.weight"][0] * y + w["shortcuts.0.weight"][1] * start
        return 2 * torch.tanh(single.norm(y) @ single.head.weight.T / 2)

    ids, there = tokens("b t", vocab=5), masks("b t")
    for law, model, inputs, name in (
        (causality(time=1), rich, ids, "Decoder with extras"),
        (batch_independence(), rich, ids, "Decoder with extras"),
        (cached_decoding(), rich, ids, "Decoder with extras"),
        (cached_decoding(), near, ids, "Decoder with a window"),
        (locality(radius=1, axis=1), near, ids, "Decoder of one layer, a window of 2"),
        (every_parameter_receives_a_gradient(), rich, tokens("2 4", vocab=5), "Decoder with extras"),
        (masked_positions_have_no_influence(), padded, (ids, there), "Decoder, padded"),
        (ragged_batches(), padded, (ids, there), "Decoder, padded"),
        (agreement(other=summed), padded_on_the_left, ids, "Decoder of rotary linear attention, padded on the left"),
        (agreement(other=equation), single, ids, "Decoder of one layer"),
    ):
        yield Claim(replace(law, cases=15), model, inputs, name=name)
