"""What GPT-2 is made of: whether a decoder computes what GPT-2's files can say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.dropout import Dropout
from lawful.blocks.feed_forward import FeedForward
from lawful.blocks.normalization import LayerNorm
from lawful.blocks.positions import Learned
from lawful.blocks.residual import Residual
from lawful.functions.activations import gelu, gelu_tanh, identity, relu, silu
from lawful.functions.attention import Chunked, fused_attention, plain_attention
from lawful.models.transformer.decoder import Decoder

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "gelu": gelu,
    "relu": relu,
    "silu": silu,
}
"""The activations that both know, by the names in GPT-2's `config.json`."""
_ALSO: dict[Any, Callable[..., Any]] = {torch.relu: relu, F.relu: relu, F.gelu: gelu, F.silu: silu}


def activation_of(model: Decoder) -> str:
    """Returns the name of the activation of a decoder that is GPT-2's."""
    one = model._blocks("f")[0].up.activation
    return next(name for name, f in ACTIVATIONS.items() if f is _ALSO.get(one, one))


def check_gpt2(model: Decoder) -> None:
    """Refuses a decoder that GPT-2's files cannot say, naming what it has and GPT-2 has not.

    Args:
        model: A decoder whose attention and feed-forward blocks take turns.
    """
    for what in _foreign(model):
        raise ValueError(f"GPT-2's files cannot say what this model computes: GPT-2 has no {what}")


def _foreign(model: Decoder) -> Iterator[str]:
    """What a decoder has that GPT-2 has not."""
    extras, d = model.config.extras, model.config.d
    if not model.config.mask.is_triangle:
        yield f"mask but a causal one: got {model.config.mask}"
    if not isinstance(model.positions, Learned):
        yield f"positions but learned ones: got {_named(model.positions)}"
    for name in ("ngrams", "shortcut", "value_embedding", "softcap"):
        if getattr(extras, name):
            yield name
    if not isinstance(model.entry, Dropout | nn.Dropout | None):
        yield f"entry but dropout: got {_named(model.entry)}"
    for layer in model.layers:
        if type(layer) is not Residual or layer.inner is not None or layer.after is not None or layer.step != 1:
            yield f"residual but pre_norm: got {layer}"
        if not isinstance(layer.gate, Dropout | nn.Dropout | None):
            yield f"gate but dropout: got {_named(layer.gate)}"
    norms: list[Any] = [model.norm, *(layer.norm for layer in model.layers)]
    for norm in norms:
        if not isinstance(norm, LayerNorm | nn.LayerNorm) or norm.weight is None:
            yield f"norm but a layer norm with weights: got {_named(norm)}"
        elif norm.eps != norms[0].eps:
            yield f"norms of different eps: got {norms[0].eps} and {norm.eps}"
    first = model._blocks("s")[0].sets if isinstance(model._blocks("s")[0], MultiHeadAttention) else ()
    for block in model._blocks("s"):
        yield from _foreign_attention(block, d)
        if block.sets != first:
            yield "layers with different heads"
    ups = [block.up if type(block) is FeedForward else None for block in model._blocks("f")]
    for block, up in zip(model._blocks("f"), ups, strict=True):
        if up is None or block.down.activation is not identity:
            yield f"feed-forward block but FeedForward: got {_named(block)}"
        elif _ALSO.get(up.activation, up.activation) not in ACTIVATIONS.values():
            yield f"activation {_named(up.activation)}"
        elif ups[0] is not None and (up.activation is not ups[0].activation or up.weight.shape != ups[0].weight.shape):
            yield "feed-forward blocks that differ in size or activation"


def _foreign_attention(block: nn.Module, d: int) -> Iterator[str]:
    """What an attention block has that GPT-2's has not."""
    if type(block) is not MultiHeadAttention:
        yield f"attention but MultiHeadAttention: got {_named(block)}"
        return
    for name in ("rotary", "bias_by", "query_norm", "mix"):
        if getattr(block, name) is not None:
            yield f"{name}: got {_named(getattr(block, name))}"
    kernel = block.kernel
    if kernel not in (fused_attention, plain_attention) and not isinstance(kernel, Chunked):
        yield f"kernel but a softmax over all keys: got {_named(kernel)}"
    one = block.sets[0]
    if len(block.sets) > 1 or one.groups != one.count or (one.key, one.value) != (d // one.count,) * 2:
        yield f"heads but alike ones of size d / heads: got {block.sets}"


def _named(part: object) -> str:
    return "none" if part is None else getattr(part, "__name__", type(part).__name__)
