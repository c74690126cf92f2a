from functools import partial

import pytest
import torch
from torch import nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.functions.attention import Mask
from lawful.models import encoder, rotary_attention

TOKENS = torch.tensor([[1, 2, 3, 4, 0], [4, 4, 1, 0, 2]])


def build(attention, **given):
    torch.manual_seed(0)
    model = encoder(vocab_size=5, dim=8, num_layers=2, attention=attention, init=None, **given).double()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model


def test_permutation_equivariant_only_without_positions():
    flipped = torch.tensor([4, 3, 2, 1, 0])
    for attention, matters in (
        (partial(MultiHeadAttention, num_heads=2), False),
        (partial(rotary_attention, num_heads=2), True),
    ):
        model = build(attention)
        assert torch.allclose(model(TOKENS[:, flipped]), model(TOKENS)[:, flipped]) is not matters


def test_encoder_ignores_padding():
    model = build(partial(rotary_attention, num_heads=2))
    there = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    found = model(TOKENS, mask=Mask(padding=there))
    torch.testing.assert_close(found[1, :3], model(TOKENS[1:, :3])[0])
    torch.testing.assert_close(found[0], model(TOKENS[:1])[0])


def test_window_mask():
    model = build(partial(rotary_attention, num_heads=2), mask=Mask(window=2), layer_pattern="sf")
    changed = TOKENS.clone()
    changed[:, 0] = 3
    assert torch.equal(model(changed)[:, 2:], model(TOKENS)[:, 2:])
    assert not torch.equal(model(changed)[:, 1], model(TOKENS)[:, 1])


def test_layer_patterns():
    for pattern in ("(sf)*", "(hsh)*", "s2f2", "s*", "f*"):
        assert encoder(vocab_size=5, dim=8, num_layers=2, layer_pattern=pattern)(TOKENS).shape == (2, 5, 8)


def test_encoder_rejects_cross_attention():
    with pytest.raises(ValueError, match="has cross-attention: pass memory"):
        encoder(vocab_size=5, dim=8, layer_pattern="scf")(TOKENS)
