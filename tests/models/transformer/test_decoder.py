from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful.blocks import (
    Dropout,
    Embedding,
    Gate,
    GatedFeedForward,
    LayerNorm,
    LayerScale,
    Mix,
    NGramEmbedding,
    RMSNorm,
    post_norm,
    pre_norm,
    sandwich_norm,
)
from lawful.blocks.attention import Heads, MultiHeadAttention
from lawful.blocks.positions import ALiBi, Learned, RelativeBuckets, Rotary, Sinusoidal
from lawful.functions.attention import Chunked, Linear, Mask, fused_attention, plain_attention, window_attention
from lawful.models.transformer import Decoder, DecoderConfig, Extras, gpt2_config, rotary_attention

VOCAB, D = 7, 8
SMALL = DecoderConfig(vocab=VOCAB, d=D, depth=2, attention=partial(rotary_attention, heads=2), extras=Extras())
TOKENS = torch.arange(2 * 9).reshape(2, 9) * 5 % VOCAB


def made(config, seed=0):
    """A decoder in double precision, every parameter of which is random."""
    torch.manual_seed(seed)
    model = Decoder(config).double().eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model


def in_pieces(model, tokens, sizes, **given):
    cache = model.cache(**given)
    with torch.no_grad():
        return torch.cat([model(piece, cache=cache) for piece in tokens.split(sizes, dim=-1)], dim=-2)


def same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


TWO = (Heads(count=2),)


def attention(d, *, heads=TWO, turned=False, biased=None, kernel=fused_attention, norm=None):
    rotary = [Rotary(one.key or d // 2) for one in heads] if turned else None
    rotary = rotary[0] if turned and len(heads) == 1 else rotary
    bias_by = None if biased is None else biased(sum(one.count for one in heads))
    return MultiHeadAttention(d, heads=list(heads), rotary=rotary, bias_by=bias_by, kernel=kernel, norm=norm)


POSITIONS = {
    "none": ({}, None),
    "learned": ({}, partial(Learned, 9)),
    "sinusoidal": ({}, Sinusoidal),
    "rotary": ({"turned": True}, None),
    "alibi": ({"biased": ALiBi}, None),
    "buckets": ({"biased": partial(RelativeBuckets, buckets=8, reach=6, sides=1)}, None),
}
HEADS = {
    "alike": TWO,
    "groups": (Heads(count=4, groups=2, key=2),),
    "one group": (Heads(count=4, groups=1, key=2, value=4),),
    "sizes": (Heads(count=1, key=2), Heads(count=2, key=4, value=2)),
}
KERNELS = {
    "plain": (plain_attention, None),
    "fused": (fused_attention, None),
    "chunked": (Chunked(size=3), None),
    "masked window": (fused_attention, 3),
    "window": (window_attention, 3),
    "linear": (Linear(), None),
}
RESIDUALS = (pre_norm, post_norm, sandwich_norm)
ORDERS = ("(sf)*", "(hsh)*", "s2f", "s*", "fsf")
VALUES = {"none": Extras(), "residual": Extras(value_residual=partial(Mix, start=(0.6, 0.4)))}
SPLITS = ([9], [1] * 9, [4, 1, 1, 3], [2, 7])


def grid():
    """Every position with every kernel and every kind of heads; the other options take turns with these."""
    others = list(product(RESIDUALS, ORDERS, VALUES))
    for n, (position, kernel, heads) in enumerate(product(POSITIONS, KERNELS, HEADS)):
        if kernel == "linear" and POSITIONS[position][0].get("biased"):
            continue  # scores that are never computed have no bias
        turn = n % len(others)
        yield pytest.param(position, kernel, heads, *others[turn], id=f"{position}-{kernel}-{heads}-{turn}")


@pytest.mark.parametrize(("position", "kernel", "heads", "residual", "order", "values"), list(grid()))
def test_the_cache_gives_what_the_full_pass_gives(position, kernel, heads, residual, order, values):
    given, added = POSITIONS[position]
    function, window = KERNELS[kernel]
    config = replace(
        SMALL,
        attention=partial(attention, heads=HEADS[heads], kernel=function, norm=RMSNorm, **given),
        positions=added,
        mask=Mask(causal=True, window=window),
        residual=residual,
        order=order,
        extras=VALUES[values],
    )
    model = made(config)
    with torch.no_grad():
        full = model(TOKENS)
    for sizes in SPLITS:
        same(in_pieces(model, TOKENS, sizes), full)


@pytest.mark.long
@pytest.mark.parametrize(("residual", "order", "values"), list(product(RESIDUALS, ORDERS, VALUES)))
def test_the_cache_gives_what_the_full_pass_gives_for_the_whole_product(residual, order, values):
    for position, kernel, heads in product(POSITIONS, KERNELS, HEADS):
        if not (kernel == "linear" and POSITIONS[position][0].get("biased")):
            test_the_cache_gives_what_the_full_pass_gives(position, kernel, heads, residual, order, values)


EXTRAS = {
    "ngrams": Extras(ngrams=(NGramEmbedding,)),
    "hashed": Extras(ngrams=(partial(NGramEmbedding, n=2), partial(NGramEmbedding, n=4, rows=5))),
    "shortcut": Extras(shortcut=Mix),
    "value embedding": Extras(value_residual=Mix, value_embedding=Embedding),
    "softcap": Extras(softcap=2.0),
    "layer scale": Extras(gate=LayerScale),
    "gate": Extras(gate=lambda d: Gate()),
    "entry": Extras(entry=RMSNorm),
    "last": Extras(last=nn.Identity),
    "all": Extras(
        ngrams=(NGramEmbedding,), shortcut=Mix, value_residual=Mix, softcap=2.0, gate=LayerScale, entry=LayerNorm
    ),
}


@pytest.mark.parametrize("extras", EXTRAS)
def test_every_extra_works_with_a_cache_and_learns(extras):
    model = made(replace(SMALL, extras=EXTRAS[extras]))
    full = model(TOKENS)
    for sizes in SPLITS:
        same(in_pieces(model, TOKENS, sizes), full)
    F.cross_entropy(full.flatten(0, 1), TOKENS.roll(-1, 1).flatten()).backward()
    for name, p in model.named_parameters():
        assert p.grad.abs().max() > 0, name


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("extras", [Extras(), EXTRAS["all"]], ids=["plain", "all"])
def test_prompts_of_unequal_lengths_give_what_each_gives_alone(positions, extras):
    given, added = POSITIONS[positions]
    model = made(replace(SMALL, attention=partial(attention, **given), positions=added, extras=extras))
    lengths = [2, 5, 4]
    rows = [torch.arange(3 + n) * (2 * i + 1) % VOCAB for i, n in enumerate(lengths)]
    padded = torch.stack([F.pad(row, (8 - len(row), 0), value=3) for row in rows])
    there = torch.arange(5) >= 5 - torch.tensor(lengths)[:, None]
    for sizes in ([5, 3], [5, 1, 1, 1], [2, 3, 1, 2], [8]):
        found = in_pieces(model, padded, sizes, padding=there)
        for row, logits in zip(rows, found, strict=True):
            same(logits[-len(row) :], model(row[None])[0])
    masked = model(padded, mask=Mask(padding=F.pad(there, (0, 3), value=True)))
    same(masked[:, -3:], found[:, -3:])


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_of_a_cache_are_selected_and_tokens_forgotten(kernel):
    function, window = KERNELS[kernel]
    config = replace(SMALL, attention=partial(attention, kernel=function), mask=Mask(causal=True, window=window))
    model, rows = made(replace(config, extras=EXTRAS["ngrams"])), torch.tensor([1, 1, 0])
    cache = model.cache()
    with torch.no_grad():
        model(TOKENS[:, :5], cache=cache)
        beams = cache.select(rows)
        assert (cache.length, beams.length) == (5, 5)
        same(model(TOKENS[rows, 5:], cache=beams), model(TOKENS)[rows, 5:])
        model(TOKENS[:, 5:7], cache=cache)
        assert cache.nbytes > 0
        if kernel == "linear":
            with pytest.raises(ValueError, match="or none"):
                cache.trim(6)
            return
        cache.trim(6)
        same(model(TOKENS[:, 6:], cache=cache), model(TOKENS)[:, 6:])


def test_gradients_flow_through_a_cache():
    model = made(SMALL)
    cache = model.cache()
    pieces = torch.cat([model(piece, cache=cache) for piece in TOKENS.split(3, dim=1)], dim=1)
    weights = torch.randn_like(pieces)
    found = torch.autograd.grad((pieces * weights).sum(), list(model.parameters()))
    expected = torch.autograd.grad((model(TOKENS) * weights).sum(), list(model.parameters()))
    for a, b in zip(found, expected, strict=True):
        same(a, b)


def test_attention_only_is_an_order():
    model = Decoder(replace(SMALL, order="s*", depth=3))
    assert [type(layer.block) for layer in model.layers] == [MultiHeadAttention] * 3
    assert model(TOKENS).shape == (2, 9, VOCAB)


def test_any_norm_and_any_feed_forward():
    model = Decoder(replace(SMALL, norm=LayerNorm, feed_forward=GatedFeedForward))
    assert isinstance(model.layers[1].block, GatedFeedForward)
    assert isinstance(model.norm, LayerNorm)
    assert model(TOKENS).isfinite().all()


def test_the_default_begins_with_equal_probabilities():
    assert (Decoder(DecoderConfig(vocab=VOCAB))(TOKENS) == 0).all()
    tied = Decoder(DecoderConfig(vocab=VOCAB, tied=True))
    assert tied.head.weight is tied.embedding.weight
    assert tied.embedding.weight.abs().min() > 0


def test_it_learns_to_copy():
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(vocab=VOCAB, d=16, depth=2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        half = torch.randint(VOCAB, (32, 4))
        tokens = torch.cat([half, half], dim=1)
        loss = F.cross_entropy(model(tokens[:, :-1])[:, 3:].flatten(0, 1), tokens[:, 4:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.3


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    model = Decoder(gpt2_config(vocab=VOCAB, d=D, depth=2, heads=2, context=9, dropout=0.5))
    assert isinstance(model.entry, Dropout)
    assert isinstance(model.layers[0].gate, Dropout)
    assert not torch.equal(model(TOKENS), model(TOKENS))
    model.eval()
    assert torch.equal(model(TOKENS), model(TOKENS))


def test_learned_positions_end():
    model = Decoder(gpt2_config(vocab=VOCAB, d=D, depth=1, heads=2, context=9))
    assert model.context == 9
    assert Decoder(SMALL).context is None
    cache = model.cache()
    model(TOKENS, cache=cache)
    with pytest.raises(IndexError, match="positions from 0 to 8 were wanted: got 9 to 9"):
        model(TOKENS[:, :1], cache=cache)


def test_no_batch_or_several_batch_axes():
    model = made(SMALL)
    same(model(TOKENS[0]), model(TOKENS)[0])
    same(model(TOKENS.reshape(2, 1, 9)), model(TOKENS).reshape(2, 1, 9, VOCAB))


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="a memory is wanted by the sublayers c of the order 'scfscf'"):
        Decoder(replace(SMALL, order="(scf)*"))(TOKENS)
    with pytest.raises(ValueError, match="got '\\(sx\\)\\*'"):
        Decoder(replace(SMALL, order="(sx)*"))
    with pytest.raises(IndexError, match="tokens from 0 to 6 were wanted: got 0 to 7"):
        Decoder(SMALL)(torch.tensor([[0, 7]]))
