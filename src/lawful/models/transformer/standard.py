"""The classical decoder: that of GPT-2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.dropout import Dropout
from lawful.blocks.feed_forward import FeedForward
from lawful.blocks.positions import Learned
from lawful.functions.activations import gelu_tanh
from lawful.laws import Claim, agreement, cached_decoding, tokens, weight_sharing
from lawful.models.transformer.decoder import Decoder, DecoderConfig
from lawful.models.transformer.parts import small_normal
from lawful.models.transformer.stream import Extras


def gpt2_config(
    *,
    vocab: int = 50257,
    d: int = 768,
    depth: int = 12,
    heads: int = 12,
    context: int = 1024,
    bias: bool = True,
    dropout: float = 0.0,
) -> DecoderConfig:
    """Returns the classical decoder: learned positions, layer norms, a GELU and a tied head.

    Reference:
        Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019.

    Args:
        vocab: The number of tokens.
        d: The width.
        depth: The number of attention sublayers, and of feed-forward ones.
        heads: The number of heads.
        context: The number of positions.
        bias: Whether affine maps and norms have biases.
        dropout: The probability that an entry of what is embedded, or of what is added to the stream, is dropped.

    Examples:
        >>> model = Decoder(gpt2_config(vocab=65, d=128, depth=4, heads=4, context=64, bias=False))
        >>> sum(p.numel() for p in model.parameters())
        804096
    """

    def drop(_: int) -> nn.Module:
        return Dropout(dropout)

    return DecoderConfig(
        vocab=vocab,
        d=d,
        depth=depth,
        attention=partial(MultiHeadAttention, heads=heads, bias=bias),
        feed_forward=partial(FeedForward, activation=gelu_tanh, bias=bias),
        norm=partial(nn.LayerNorm, bias=bias),
        positions=partial(Learned, context),
        tied=True,
        extras=Extras(initialise=small_normal, entry=drop if dropout else None, gate=drop if dropout else None),
    )


def claims() -> Iterator[Claim]:
    """The laws that the classical decoder obeys."""
    model = Decoder(gpt2_config(vocab=5, d=4, depth=1, heads=1, context=8))

    def equation(x: Tensor) -> Tensor:
        w = dict(model.named_parameters())
        y = w["embedding.weight"][x] + w["positions.weight"][: x.shape[1]]

        def normal(y: Tensor, name: str) -> Tensor:
            scaled = (y - y.mean(-1, keepdim=True)) / (y.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
            return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

        def affine(y: Tensor, name: str) -> Tensor:
            return y @ w[f"{name}.weight"].T + w[f"{name}.bias"]

        q, k, v = (affine(normal(y, "layers.0.norm"), f"layers.0.block.{name}") for name in ("query", "key", "value"))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = (q @ k.mT / 2).masked_fill(later, -torch.inf).softmax(-1)
        y = y + affine(weights @ v, "layers.0.block.out")
        z = affine(normal(y, "layers.1.norm"), "layers.1.block.up")
        bent = z / 2 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (z + 0.044715 * z**3)))
        return normal(y + affine(bent, "layers.1.block.down"), "norm") @ w["embedding.weight"].T

    for law in (
        agreement(other=equation),
        cached_decoding(),
        weight_sharing(names=("embedding.weight", "head.weight")),
    ):
        yield Claim(replace(law, cases=20), model, tokens("b t:1..8", vocab=5), name="GPT-2")
