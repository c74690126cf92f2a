"""The encoder: a transformer in which every token sees all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.normalization import RMSNorm
from lawful.blocks.positions import Sinusoidal
from lawful.blocks.residual import Residual, post_norm, pre_norm
from lawful.functions.attention import EVERYTHING, Mask
from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    masked_positions_have_no_influence,
    padding_invariance,
    permutation_equivariance,
    tokens,
)
from lawful.laws import mask as masks
from lawful.models.transformer.parts import ZERO_OUTPUTS, rotary_attention, squared_relu
from lawful.models.transformer.stream import Extras, Make, Stream


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The sizes and the parts of an encoder; the defaults make a small one of today."""

    vocab: int
    """The number of tokens."""
    d: int = 128
    """The width of the stream."""
    depth: int = 4
    """How often a star of the order repeats what it follows."""
    order: str = "(sf)*"
    """The order of the sublayers: s attends, f feeds forward, h does so by half a step."""
    attention: Callable[..., nn.Module] = rotary_attention
    """Makes an attention block of the width."""
    feed_forward: Make = squared_relu
    """Makes a feed-forward block of the width."""
    norm: Make = RMSNorm
    """Makes a norm of the width."""
    residual: Callable[..., Residual] = pre_norm
    """How a block and a norm are put on the stream: `pre_norm`, `post_norm`, `sandwich_norm`."""
    positions: Make | None = None
    """Makes what is added to the tokens for their positions: nothing where attention knows them."""
    mask: Mask = EVERYTHING
    """Which tokens each token sees."""
    extras: Extras = ZERO_OUTPUTS
    """What else there is."""


class Encoder(Stream):
    r"""Reads all tokens at once, and gives a vector for each that knows of the others.

    $$y = \operatorname{norm}(x_L), \qquad x_{l+1} = x_l + f_l(\operatorname{norm}(x_l))$$

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        config: The sizes and the parts.

    Examples:
        >>> Encoder(EncoderConfig(vocab=65, d=16, depth=2))(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 16])
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        if config.extras.initialise is not None:
            config.extras.initialise(self)

    def forward(self, tokens: Int[Tensor, "*batch t"], *, mask: Mask | None = None) -> Float[Tensor, "*batch t d"]:
        """Returns a vector for each token.

        Args:
            tokens: The tokens.
            mask: What is hidden besides what the model's own mask hides, such as padding.
        """
        return self.run(tokens, mask=self.config.mask if mask is None else self.config.mask & mask)


def claims() -> Iterator[Claim]:
    """The laws that an encoder obeys."""
    unplaced = partial(MultiHeadAttention, heads=2, bias=False)
    model = Encoder(EncoderConfig(vocab=5, d=4, depth=2, attention=unplaced, extras=Extras()))
    single = Encoder(replace(model.config, order="sf", residual=post_norm, positions=Sinusoidal))

    def padded(x: Tensor, there: Tensor) -> Tensor:
        return model(x, mask=Mask(padding=there))

    def equation(x: Tensor) -> Tensor:
        part = dict(single.named_modules())
        y = single.embedding.weight[x] + part["positions"](torch.arange(x.shape[-1]))
        y = part["layers.0.after"](y + part["layers.0.block"](y))
        return part["norm"](part["layers.1.after"](y + part["layers.1.block"](y)))

    ids, there = tokens("b t", vocab=5), masks("b t")
    for law, f, inputs, name in (
        (permutation_equivariance(axis=1), model, ids, "Encoder without positions"),
        (batch_independence(), model, ids, "Encoder"),
        (masked_positions_have_no_influence(), padded, (ids, there), "Encoder, padded"),
        (padding_invariance(), padded, (ids, there), "Encoder, padded"),
        (agreement(other=equation), single, ids, "Encoder of one layer"),
    ):
        yield Claim(replace(law, cases=20), f, inputs, name=name)
