from functools import partial

import pytest
import torch
from torch import nn

from lawful.blocks import FeedForward, post_norm, pre_norm
from lawful.blocks.attention import MultiHeadAttention
from lawful.functions.attention import CAUSAL, Mask
from lawful.models import (
    TORCH_DECODER_WEIGHTS,
    TORCH_ENCODER_WEIGHTS,
    TORCH_TRANSFORMER_WEIGHTS,
    EncoderDecoder,
    TransformerExtras,
    decoder,
    encoder,
)

VOCAB, D, HEADS = 7, 8, 2


def parts(first, *, last=nn.LayerNorm, bias=True):
    return {
        "vocab_size": VOCAB,
        "dim": D,
        "num_layers": 2,
        "attention": partial(MultiHeadAttention, num_heads=HEADS, bias=bias),
        "feed_forward": partial(FeedForward, hidden_dim=12, bias=bias),
        "norm": partial(nn.LayerNorm, bias=bias),
        "residual": pre_norm if first else post_norm,
        "extras": TransformerExtras(final_norm=last),
        "init": None,
    }


def layer(kind, first, bias=True):
    return kind(D, HEADS, 12, dropout=0.0, norm_first=first, batch_first=True, bias=bias)


def shaken(model):
    torch.manual_seed(0)
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model


def run(model, tokens, **given):
    """The stream of our model, before its head."""
    return model.encode_tokens(tokens, **{"mask": model.mask} | given)


def check_both_ways(layout, ours, theirs, other):
    layout.load_state_dict(ours, theirs.state_dict())
    other.load_state_dict(layout.state_dict(ours))
    for one, two in zip(other.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, two)


TOKENS = torch.tensor([[1, 2, 3, 4, 5], [6, 5, 0, 0, 1]])
THERE = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])


@pytest.mark.parametrize(("first", "last", "bias"), [(True, True, True), (False, False, True), (False, True, False)])
def test_encoder_equals_pytorch(first, last, bias):
    def made():
        norm = nn.LayerNorm(D, bias=bias) if last else None
        return nn.TransformerEncoder(
            layer(nn.TransformerEncoderLayer, first, bias), 2, norm, enable_nested_tensor=False
        )

    norm = partial(nn.LayerNorm, bias=bias) if last else nn.Identity
    ours, theirs = shaken(encoder(**parts(first, last=norm, bias=bias))), shaken(made())
    check_both_ways(TORCH_ENCODER_WEIGHTS, ours, theirs, made())
    found = ours(TOKENS, mask=Mask(padding=THERE))
    expected = theirs(ours.embedding(TOKENS), src_key_padding_mask=~THERE)
    torch.testing.assert_close(found[THERE], expected[THERE], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("first", [True, False])
def test_decoder_equals_pytorch(first):
    def made():
        return nn.TransformerDecoder(layer(nn.TransformerDecoderLayer, first), 2, nn.LayerNorm(D))

    ours, theirs = shaken(decoder(layer_pattern="(scf)*", **parts(first))), shaken(made())
    check_both_ways(TORCH_DECODER_WEIGHTS, ours, theirs, made())
    memory = torch.randn(2, 3, D, generator=torch.Generator().manual_seed(0))
    expected = theirs(ours.embedding(TOKENS), memory, tgt_mask=nn.Transformer.generate_square_subsequent_mask(5))
    torch.testing.assert_close(run(ours, TOKENS, memory=memory), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("first", [True, False])
def test_encoder_decoder_equals_pytorch(first):
    def made():
        return nn.Transformer(D, HEADS, 2, 2, 12, dropout=0.0, norm_first=first, batch_first=True)

    halves = encoder(**parts(first)), decoder(layer_pattern="(scf)*", **parts(first))
    ours, theirs = EncoderDecoder(*halves), shaken(made())
    check_both_ways(TORCH_TRANSFORMER_WEIGHTS, shaken(ours), theirs, made())
    source = torch.tensor([[3, 1, 2], [2, 2, 6]])
    memory = ours.encode(source)
    found = run(ours.decoder, TOKENS, mask=CAUSAL, memory=memory)
    embedded = ours.encoder.embedding(source), ours.decoder.embedding(TOKENS)
    expected = theirs.eval()(*embedded, tgt_mask=nn.Transformer.generate_square_subsequent_mask(5))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours(source, TOKENS), ours.decoder.head(expected), rtol=1e-5, atol=1e-5)


def test_other_models_are_rejected():
    with pytest.raises(TypeError, match=r"layer_pattern \(scf\)\*, got sfsf"):
        TORCH_DECODER_WEIGHTS.state_dict(decoder(**parts(True)))
    with pytest.raises(TypeError, match="expected an EncoderDecoder, got Encoder"):
        TORCH_TRANSFORMER_WEIGHTS.state_dict(encoder(**parts(True)))
