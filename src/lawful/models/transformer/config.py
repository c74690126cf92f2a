"""The sizes and the parts that all transformers have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from lawful.blocks.normalization import RMSNorm
from lawful.blocks.residual import Residual, pre_norm
from lawful.functions.attention import EVERYTHING, Mask
from lawful.models.transformer.parts import ZERO_OUTPUTS, rotary_attention, squared_relu
from lawful.models.transformer.stream import Extras, Make


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """The sizes and the parts of a transformer; the defaults make a small one of today."""

    vocab: int
    """The number of tokens."""
    d: int = 128
    """The width of the stream."""
    depth: int = 4
    """How often a star of the order repeats what it follows."""
    order: str = "(sf)*"
    """The order of the sublayers: s attends, f feeds forward, h does so by half a step, c attends to a memory."""
    attention: Callable[..., nn.Module] = rotary_attention
    """Makes an attention block of the width, or with `context=` one that reads a memory of that width."""
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
    context: int | None = None
    """How many tokens it is trained to see, if that is said: decoding then shows it no more."""
