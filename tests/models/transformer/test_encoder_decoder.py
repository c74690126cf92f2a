from functools import partial

import pytest
import torch
from torch import nn

from lawful.blocks import post_norm, pre_norm, sandwich_norm
from lawful.functions.attention import Mask
from lawful.models.transformer import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    TransformerExtras,
    rotary_attention,
)

SOURCE, TARGET = torch.tensor([[1, 2, 3, 4], [4, 4, 1, 0]]), torch.tensor([[0, 5, 3, 2, 1], [0, 1, 1, 4, 5]])


def config(residual=pre_norm, order="(scf)*", **given):
    parts = {
        "d": 8,
        "depth": 2,
        "attention": partial(rotary_attention, heads=2),
        "residual": residual,
        "extras": TransformerExtras(),
    }
    decoder = DecoderConfig(vocab=6, order=order, **parts)
    return EncoderDecoderConfig(encoder=EncoderConfig(vocab=6, **parts), decoder=decoder, **given)


def made(config):
    torch.manual_seed(0)
    model = EncoderDecoder(config).double()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model


@pytest.mark.parametrize("residual", [pre_norm, post_norm, sandwich_norm])
@pytest.mark.parametrize("order", ["(scf)*", "(csf)*", "(hsch)*", "c2s2f"])
def test_the_cache_gives_what_the_full_pass_gives_and_reads_the_memory_once(residual, order):
    model = made(config(residual, order))
    there = torch.tensor([[True] * 4, [True] * 2 + [False] * 2])
    mask = Mask(padding=there)
    memory, cache = model.encode(SOURCE, source_mask=mask), model.cache()
    crossing = [
        layer.block for letter, layer in zip(model.decoder.order, model.decoder.layers, strict=True) if letter == "c"
    ]
    asked = []
    for block in crossing:
        block.key.register_forward_hook(lambda *_: asked.append(1))
    with torch.no_grad():
        pieces = [model.decode(p, memory, source_mask=mask, cache=cache) for p in TARGET.split([2, 1, 1, 1], dim=1)]
    assert len(asked) == len(crossing)
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(SOURCE, TARGET, source_mask=mask))


def test_rows_are_selected_and_tokens_forgotten_but_not_the_memory():
    model, rows = made(config()), torch.tensor([1, 0, 1])
    memory, cache = model.encode(SOURCE), model.cache()
    with torch.no_grad():
        model.decode(TARGET[:, :3], memory, cache=cache)
        beams = cache.select(rows)
        full = model(SOURCE, TARGET)
        torch.testing.assert_close(model.decode(TARGET[rows, 3:], memory[rows], cache=beams), full[rows, 3:])
        cache.trim(1)
        torch.testing.assert_close(model.decode(TARGET[:, 1:], memory, cache=cache), full[:, 1:])


def test_padding_of_the_source_has_no_influence():
    model = made(config())
    mask = Mask(padding=torch.tensor([[True] * 4, [True] * 3 + [False]]))
    found = model(SOURCE, TARGET, source_mask=mask)
    torch.testing.assert_close(found[1:], model(SOURCE[1:, :3], TARGET[1:]))


def test_one_embedding_for_both():
    model = made(config(shared=True))
    assert model.encoder.embedding.weight is model.decoder.embedding.weight


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="by a letter c: got '\\(sf\\)\\*'"):
        EncoderDecoder(config(order="(sf)*"))
    halves = EncoderConfig(vocab=5, d=8), DecoderConfig(vocab=5, d=16, order="(scf)*")
    with pytest.raises(ValueError, match="one width: got 8 and 16"):
        EncoderDecoder(EncoderDecoderConfig(encoder=halves[0], decoder=halves[1]))
