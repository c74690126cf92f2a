import pytest
import torch
from torch import nn

from lawful.blocks import post_norm, pre_norm, sandwich_norm
from lawful.functions.attention import Mask
from lawful.models import EncoderDecoder, decoder, encoder

SOURCE, TARGET = torch.tensor([[1, 2, 3, 4], [4, 4, 1, 0]]), torch.tensor([[0, 5, 3, 2, 1], [0, 1, 1, 4, 5]])


def build(residual=pre_norm, layer_pattern="(scf)*", **options):
    torch.manual_seed(0)
    parts = {"vocab_size": 6, "dim": 8, "num_layers": 2, "num_heads": 2, "residual": residual, "init": None}
    model = EncoderDecoder(encoder(**parts), decoder(**parts, layer_pattern=layer_pattern), **options).double()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model


@pytest.mark.parametrize("residual", [pre_norm, post_norm, sandwich_norm])
@pytest.mark.parametrize("pattern", ["(scf)*", "(csf)*", "(hsch)*", "c2s2f"])
@pytest.mark.usefixtures("unchecked")
def test_cached_decoding_reads_memory_once(residual, pattern):
    model = build(residual, pattern)
    there = torch.tensor([[True] * 4, [True] * 2 + [False] * 2])
    mask = Mask(padding=there)
    memory, cache = model.encode(SOURCE, source_mask=mask), model.cache()
    crossing = [
        layer.block
        for letter, layer in zip(model.decoder.layer_pattern, model.decoder.layers, strict=True)
        if letter == "c"
    ]
    calls = []
    for block in crossing:
        block.key.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        pieces = [model.decode(p, memory, source_mask=mask, cache=cache) for p in TARGET.split([2, 1, 1, 1], dim=1)]
    assert len(calls) == len(crossing)
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(SOURCE, TARGET, source_mask=mask))


def test_cache_select_and_trim_keep_memory():
    model, rows = build(), torch.tensor([1, 0, 1])
    memory, cache = model.encode(SOURCE), model.cache()
    with torch.no_grad():
        model.decode(TARGET[:, :3], memory, cache=cache)
        beams = cache.select(rows)
        full = model(SOURCE, TARGET)
        torch.testing.assert_close(model.decode(TARGET[rows, 3:], memory[rows], cache=beams), full[rows, 3:])
        cache.trim(1)
        torch.testing.assert_close(model.decode(TARGET[:, 1:], memory, cache=cache), full[:, 1:])


def test_source_padding_has_no_influence():
    model = build()
    mask = Mask(padding=torch.tensor([[True] * 4, [True] * 3 + [False]]))
    found = model(SOURCE, TARGET, source_mask=mask)
    torch.testing.assert_close(found[1:], model(SOURCE[1:, :3], TARGET[1:]))


def test_shared_embeddings():
    model = build(share_embeddings=True)
    assert model.encoder.embedding.weight is model.decoder.embedding.weight


def test_errors():
    with pytest.raises(ValueError, match=r"needs cross-attention .* got 'sfsf'"):
        build(layer_pattern="(sf)*")
    with pytest.raises(ValueError, match="must have the same dim, got 8 and 16"):
        EncoderDecoder(encoder(vocab_size=5, dim=8), decoder(vocab_size=5, dim=16, layer_pattern="(scf)*"))
    halves = encoder(vocab_size=5, dim=8), decoder(vocab_size=6, dim=8, layer_pattern="(scf)*")
    with pytest.raises(ValueError, match="share_embeddings needs one vocab_size, got 5 and 6"):
        EncoderDecoder(*halves, share_embeddings=True)
