"""The layouts of PyTorch's own transformers, which have neither embedding nor head."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from lawful.blocks.residual import Residual
from lawful.models.transformer.encoder_decoder import EncoderDecoder
from lawful.models.transformer.layouts.layout import Layout, Row
from lawful.models.transformer.stream import Stream

ATTENTIONS = {"s": "self_attn", "c": "multihead_attn"}


def rows(model: nn.Module, *, pattern: str, theirs: str = "", ours: str = "") -> Iterator[Row]:
    """Returns the table for a stream in a given order, and the names before all of its own."""
    if not isinstance(model, Stream) or model.order.replace(pattern, ""):
        raise TypeError(f"a model in the order ({pattern})* is wanted: got {getattr(model, 'order', type(model))}")
    for i, (letter, layer) in enumerate(zip(model.order, model.layers, strict=True)):
        number, place = divmod(i, len(pattern))
        at, here = f"{theirs}layers.{number}", f"{ours}layers.{i}"
        norm = "after" if isinstance(layer, Residual) and layer.norm is None else "norm"
        for kind in ("weight", "bias"):
            yield Row(f"{at}.norm{place + 1}.{kind}", (f"{here}.{norm}.{kind}",))
            if letter == "f":
                yield Row(f"{at}.linear1.{kind}", (f"{here}.block.up.{kind}",))
                yield Row(f"{at}.linear2.{kind}", (f"{here}.block.down.{kind}",))
            else:
                attention = f"{at}.{ATTENTIONS[letter]}"
                projections = tuple(f"{here}.block.{name}.{kind}" for name in ("query", "key", "value"))
                yield Row(f"{attention}.in_proj_{kind}", projections)
                yield Row(f"{attention}.out_proj.{kind}", (f"{here}.block.out.{kind}",))
    if not isinstance(model.norm, nn.Identity):
        for kind in ("weight", "bias"):
            yield Row(f"{theirs}norm.{kind}", (f"{ours}norm.{kind}",))


def encoder_rows(model: nn.Module) -> Iterator[Row]:
    """Returns the table of `nn.TransformerEncoder`, for an encoder."""
    return rows(model, pattern="sf")


def decoder_rows(model: nn.Module) -> Iterator[Row]:
    """Returns the table of `nn.TransformerDecoder`, for a decoder that attends to a memory."""
    return rows(model, pattern="scf")


def both_rows(model: nn.Module) -> Iterator[Row]:
    """Returns the table of `nn.Transformer`, for an encoder-decoder."""
    if not isinstance(model, EncoderDecoder):
        raise TypeError(f"an encoder-decoder is wanted: got {type(model).__name__}")
    yield from rows(model.encoder, pattern="sf", theirs="encoder.", ours="encoder.")
    yield from rows(model.decoder, pattern="scf", theirs="decoder.", ours="decoder.")


_APART = "embedding.", "positions.", "head."
TORCH_ENCODER = Layout(encoder_rows, apart=_APART)
"""That of `nn.TransformerEncoder`."""
TORCH_DECODER = Layout(decoder_rows, apart=_APART)
"""That of `nn.TransformerDecoder`."""
TORCH_TRANSFORMER = Layout(
    both_rows, apart=tuple(f"{half}.{name}" for half in ("encoder", "decoder") for name in _APART)
)
"""That of `nn.Transformer`."""
