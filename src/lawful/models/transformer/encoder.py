"""The encoder: a transformer in which every token sees all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.positions import Sinusoidal
from lawful.blocks.residual import post_norm
from lawful.functions.attention import Mask
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
from lawful.models.transformer.config import StreamConfig
from lawful.models.transformer.stream import Extras, Stream


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(StreamConfig):
    """The sizes and the parts of an encoder."""


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
