from functools import partial

import pytest
import torch
from torch import nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.functions.attention import Mask
from lawful.models.transformer import Encoder, EncoderConfig, TransformerExtras, rotary_attention

TOKENS = torch.tensor([[1, 2, 3, 4, 0], [4, 4, 1, 0, 2]])


def made(attention, **given):
    torch.manual_seed(0)
    model = Encoder(
        EncoderConfig(vocab=5, d=8, depth=2, attention=attention, extras=TransformerExtras(), **given)
    ).double()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model


def test_without_positions_the_order_does_not_matter_and_with_them_it_does():
    flipped = torch.tensor([4, 3, 2, 1, 0])
    for attention, matters in (
        (partial(MultiHeadAttention, num_heads=2), False),
        (partial(rotary_attention, heads=2), True),
    ):
        model = made(attention)
        assert torch.allclose(model(TOKENS[:, flipped]), model(TOKENS)[:, flipped]) is not matters


def test_padding_has_no_influence():
    model = made(partial(rotary_attention, heads=2))
    there = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    found = model(TOKENS, mask=Mask(padding=there))
    torch.testing.assert_close(found[1, :3], model(TOKENS[1:, :3])[0])
    torch.testing.assert_close(found[0], model(TOKENS[:1])[0])


def test_a_window_is_a_mask():
    model = made(partial(rotary_attention, heads=2), mask=Mask(window=2), order="sf")
    changed = TOKENS.clone()
    changed[:, 0] = 3
    assert torch.equal(model(changed)[:, 2:], model(TOKENS)[:, 2:])
    assert not torch.equal(model(changed)[:, 1], model(TOKENS)[:, 1])


def test_every_order_and_the_defaults_work():
    for order in ("(sf)*", "(hsh)*", "s2f2", "s*", "f*"):
        assert Encoder(EncoderConfig(vocab=5, d=8, depth=2, order=order))(TOKENS).shape == (2, 5, 8)


def test_an_encoder_has_no_memory():
    with pytest.raises(ValueError, match="a memory is wanted"):
        Encoder(EncoderConfig(vocab=5, d=8, order="scf"))(TOKENS)
