"""Parts of transformers: ready-made attention and feed-forward, and how weights begin."""

from __future__ import annotations

from torch import nn

from lawful.blocks.attention import Heads, MultiHeadAttention
from lawful.blocks.feed_forward import FeedForward
from lawful.blocks.normalization import RMSNorm
from lawful.blocks.positions import Rotary
from lawful.functions.activations import relu_squared
from lawful.functions.attention import Kernel, fused_attention
from lawful.models.transformer.stream import Extras


def rotary_attention(
    d: int, *, heads: int = 4, groups: int | None = None, context: int | None = None, kernel: Kernel = fused_attention
) -> MultiHeadAttention:
    """Makes attention with rotary positions and normalised queries and keys, without biases.

    Args:
        d: The width.
        heads: The number of heads.
        groups: The number of heads of keys and values; as many as heads unless given.
        context: The width of a memory that keys and values are read from; there are no positions then.
        kernel: How attention is computed.

    Examples:
        >>> import torch
        >>> rotary_attention(16)(torch.zeros(2, 3, 16)).shape
        torch.Size([2, 3, 16])
    """
    rotary = Rotary(d // heads) if context is None else None
    sets = [Heads(count=heads, groups=groups)]
    return MultiHeadAttention(d, heads=sets, context=context, norm=RMSNorm, rotary=rotary, kernel=kernel, bias=False)


def squared_relu(d: int, *, hidden: int | None = None) -> FeedForward:
    """Makes a feed-forward block with a squared ReLU, without biases.

    Args:
        d: The width.
        hidden: The number of features; four times the width unless given.

    Examples:
        >>> import torch
        >>> squared_relu(4)(torch.zeros(2, 4)).shape
        torch.Size([2, 4])
    """
    return FeedForward(d, hidden=hidden, activation=relu_squared, bias=False)


OUTPUTS = "out.weight", "down.weight"


def zero_outputs(model: nn.Module) -> None:
    """Sets the matrices that write into the stream, and an untied head, to 0.

    Every sublayer is then the identity and all tokens are equally probable, until training says otherwise.

    Args:
        model: The transformer.
    """
    for name, weight in model.named_parameters():
        if name.endswith((*OUTPUTS, "head.weight")):
            nn.init.zeros_(weight)


ZERO_OUTPUTS = Extras(initialise=zero_outputs)


def small_normal(model: nn.Module, *, deviation: float = 0.02) -> None:
    r"""Draws all matrices as GPT-2 does, and sets biases to 0.

    $$W_{ij} \sim \mathcal{N}(0, \sigma^2), \qquad
    W_{ij} \sim \mathcal{N}\bigl(0, \tfrac{\sigma^2}{n}\bigr) \text{ where one of } n \text{ sublayers writes}$$

    Reference:
        Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019.

    Args:
        model: The transformer.
        deviation: $\sigma$.
    """
    writers = [p for name, p in model.named_parameters() if name.endswith(OUTPUTS)]
    narrow = {id(p) for p in writers}
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=deviation / (len(writers) ** 0.5 if id(weight) in narrow else 1))
        elif name.endswith("bias"):
            nn.init.zeros_(weight)
