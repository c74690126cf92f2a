from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from lawful.blocks import (
    ReZero,
    GatedFeedForward,
    LayerScale,
    NGramEmbedding,
    WeightedSum,
    post_norm,
    pre_norm,
    sandwich_norm,
)
from lawful.blocks.attention import HeadSpec, MultiHeadAttention
from lawful.blocks.bilinear_attention import SimilarityAttention, SymmetricForm
from lawful.blocks.positions import (
    ALiBi,
    ClippedRelativeBias,
    LearnedPositions,
    RotaryEmbedding,
    SinusoidalPositions,
    T5RelativeBias,
)
from lawful.functions.attention import (
    ChunkedAttention,
    LinearAttention,
    Mask,
    SlidingWindowAttention,
    fused_attention,
    masked_softmax,
    reference_attention,
)
from lawful.models.gpt2_weights import gpt2_config
from lawful.models.transformer import Decoder, DecoderConfig, TransformerExtras, rotary_attention

VOCAB, D = 7, 8
SMALL = DecoderConfig(
    vocab=VOCAB, d=D, depth=2, attention=partial(rotary_attention, heads=2), extras=TransformerExtras()
)
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


TWO = (HeadSpec(4, count=2),)


def attention(d, *, heads=TWO, turned=False, biased=None, kernel=fused_attention, norm=None):
    rotary = [RotaryEmbedding(one.key) for one in heads] if turned else None
    rotary = rotary[0] if turned and len(heads) == 1 else rotary
    position_bias = None if biased is None else biased(sum(one.count for one in heads))
    return MultiHeadAttention(
        d, heads=list(heads), rotary=rotary, position_bias=position_bias, kernel=kernel, qk_norm=norm or False
    )


POSITIONS = {
    "none": ({}, None),
    "learned": ({}, partial(LearnedPositions, 9)),
    "sinusoidal": ({}, SinusoidalPositions),
    "rotary": ({"turned": True}, None),
    "alibi": ({"biased": ALiBi}, None),
    "buckets": ({"biased": partial(T5RelativeBias, num_buckets=8, max_distance=6, bidirectional=False)}, None),
    "clipped": ({"biased": partial(ClippedRelativeBias, reach=4)}, None),
}
HEADS = {
    "alike": TWO,
    "groups": (HeadSpec(count=4, groups=2, key=2),),
    "one group": (HeadSpec(count=4, groups=1, key=2, value=4),),
    "sizes": (HeadSpec(count=1, key=2), HeadSpec(count=2, key=4, value=2)),
}
KERNELS = {
    "plain": (reference_attention, None),
    "fused": (fused_attention, None),
    "chunked": (ChunkedAttention(3), None),
    "masked window": (fused_attention, 3),
    "window": (SlidingWindowAttention(), 3),
    "linear": (LinearAttention(), None),
}
RESIDUALS = (pre_norm, post_norm, sandwich_norm)
ORDERS = ("(sf)*", "(hsh)*", "s2f", "s*", "fsf")
VALUES = {
    "none": TransformerExtras(),
    "residual": TransformerExtras(value_residual=partial(WeightedSum, start=(0.6, 0.4))),
}
SPLITS = ([9], [1] * 9, [4, 1, 1, 3], [2, 7])


def grid():
    """Every position with every kernel and every kind of heads; the other options take turns with these."""
    others = list(product(RESIDUALS, ORDERS, VALUES))
    for n, (position, kernel, heads) in enumerate(product(POSITIONS, KERNELS, HEADS)):
        if kernel == "linear" and POSITIONS[position][0].get("biased"):
            continue  # refused, as the next test says
        turn = n % len(others)
        yield pytest.param(position, kernel, heads, *others[turn], id=f"{position}-{kernel}-{heads}-{turn}")


@pytest.mark.parametrize(("position", "kernel", "heads", "residual", "order", "values"), list(grid()))
def test_the_cache_gives_what_the_full_pass_gives(position, kernel, heads, residual, order, values):
    given, added = POSITIONS[position]
    function, window = KERNELS[kernel]
    config = replace(
        SMALL,
        attention=partial(attention, heads=HEADS[heads], kernel=function, norm=nn.RMSNorm, **given),
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


@pytest.mark.parametrize("position", [name for name, (given, _) in POSITIONS.items() if "biased" in given])
def test_linear_attention_refuses_a_bias_of_scores_that_it_never_computes(position):
    model = made(replace(SMALL, attention=partial(attention, kernel=LinearAttention(), **POSITIONS[position][0])))
    for cache in (None, model.cache()):
        with pytest.raises(ValueError, match="linear attention knows causal masks, prefixes and padding: got bias"):
            model(TOKENS, cache=cache)


@pytest.mark.long
@pytest.mark.parametrize(("residual", "order", "values"), list(product(RESIDUALS, ORDERS, VALUES)))
def test_the_cache_gives_what_the_full_pass_gives_for_the_whole_product(residual, order, values):
    for position, kernel, heads in product(POSITIONS, KERNELS, HEADS):
        if not (kernel == "linear" and POSITIONS[position][0].get("biased")):
            test_the_cache_gives_what_the_full_pass_gives(position, kernel, heads, residual, order, values)


EXTRAS = {
    "ngrams": TransformerExtras(ngrams=(NGramEmbedding,)),
    "hashed": TransformerExtras(ngrams=(partial(NGramEmbedding, n=2), partial(NGramEmbedding, n=4, num_rows=5))),
    "shortcut": TransformerExtras(shortcut=WeightedSum),
    "value embedding": TransformerExtras(value_residual=WeightedSum, value_embedding=nn.Embedding),
    "softcap": TransformerExtras(softcap=2.0),
    "layer scale": TransformerExtras(gate=LayerScale),
    "gate": TransformerExtras(gate=lambda d: ReZero()),
    "entry": TransformerExtras(entry=nn.RMSNorm),
    "last": TransformerExtras(last=nn.Identity),
    "all": TransformerExtras(
        ngrams=(NGramEmbedding,),
        shortcut=WeightedSum,
        value_residual=WeightedSum,
        softcap=2.0,
        gate=LayerScale,
        entry=nn.LayerNorm,
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
@pytest.mark.parametrize("extras", [TransformerExtras(), EXTRAS["all"]], ids=["plain", "all"])
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


@pytest.mark.parametrize("kernel", ["plain", "fused", "chunked", "linear"])
@pytest.mark.parametrize("heads", ["alike", "sizes"])
def test_a_prefix_is_read_in_one_piece(kernel, heads):
    config = replace(SMALL, attention=partial(attention, heads=HEADS[heads], kernel=KERNELS[kernel][0]))
    model = made(replace(config, mask=Mask(causal=True, prefix=4)))
    for sizes in ([9], [4, 5], [5, 1, 3], [4, 1, 1, 1, 1, 1]):
        same(in_pieces(model, TOKENS, sizes), model(TOKENS))
    same(in_pieces(model, TOKENS[:, :3], [3]), model(TOKENS[:, :3]))
    for sizes in ([1] * 9, [3, 6]):
        with pytest.raises(ValueError, match=f"a prefix is read in one piece: got {sizes[0]} of its 4 tokens first"):
            in_pieces(model, TOKENS, sizes)


def test_what_a_cache_cannot_give_as_the_full_pass_does_is_refused():
    model = made(replace(SMALL, mask=Mask(causal=True, prefix=4)))
    there = torch.arange(9) >= torch.tensor([[0], [2]])
    with pytest.raises(ValueError, match="a prefix wants rows of one length: got one of 4, and padded rows"):
        in_pieces(model, TOKENS, [9], padding=there)
    same(in_pieces(model, TOKENS, [4, 5], padding=there | True), model(TOKENS))
    both_ways = made(replace(SMALL, mask=Mask(window=4)))
    same(in_pieces(both_ways, TOKENS, [9]), both_ways(TOKENS))
    with pytest.raises(ValueError, match="a causal mask is wanted to read on"):
        in_pieces(both_ways, TOKENS, [8, 1])


@pytest.mark.parametrize("extras", ["plain", "value embedding", "all"])
def test_sublayers_that_are_computed_twice_to_save_memory_give_the_same_gradients(extras):
    model = made(replace(SMALL, order="(sf)*s", extras=EXTRAS.get(extras, VALUES["residual"])))
    wanted = torch.autograd.grad(model(TOKENS).square().sum(), list(model.parameters()))
    for layer in model.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    found = torch.autograd.grad(model(TOKENS).square().sum(), list(model.parameters()))
    for a, b in zip(found, wanted, strict=True):
        same(a, b)


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
    model = Decoder(replace(SMALL, norm=nn.LayerNorm, feed_forward=GatedFeedForward))
    assert isinstance(model.layers[1].block, GatedFeedForward)
    assert isinstance(model.norm, nn.LayerNorm)
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
    assert isinstance(model.entry, nn.Dropout)
    assert isinstance(model.layers[0].gate, nn.Dropout)
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
    with pytest.raises(ValueError, match="depth is at least 1: got 0"):
        Decoder(replace(SMALL, depth=0))
    with pytest.raises(ValueError, match="a memory is wanted by the sublayers c of the order 'scfscf'"):
        Decoder(replace(SMALL, order="(scf)*"))(TOKENS)
    with pytest.raises(ValueError, match="got '\\(sx\\)\\*'"):
        Decoder(replace(SMALL, order="(sx)*"))
    with pytest.raises(IndexError, match="tokens from 0 to 6 were wanted: got 0 to 7"):
        Decoder(SMALL)(torch.tensor([[0, 7]]))


class Similar(nn.Module):
    """Attention of one's own, of a few lines: a head that looks at what is like it."""

    def forward(self, x, *, mask):
        return masked_softmax((x @ x.mT).unsqueeze(-3), mask=mask).squeeze(-3) @ x


def test_attention_of_ones_own_serves():
    torch.manual_seed(0)
    model = Decoder(replace(SMALL, attention=lambda d: Similar()))
    changed = TOKENS.clone()
    changed[:, 5:] = 0
    torch.testing.assert_close(model(TOKENS)[:, :5], model(changed)[:, :5])
    with pytest.raises(TypeError, match="attention with a method cache is wanted to read on: Similar has none"):
        model.cache()
    with pytest.raises(TypeError, match=r"attention that mixes values, .* is wanted: got Similar"):
        Decoder(replace(SMALL, attention=lambda d: Similar(), extras=TransformerExtras(value_residual=WeightedSum)))


@pytest.mark.parametrize("kernel", [fused_attention, LinearAttention()])
def test_attention_by_a_bilinear_form_serves_and_has_a_cache(kernel):
    torch.manual_seed(0)

    def attention(d):
        return SimilarityAttention(SymmetricForm(d, num_heads=2), d, kernel=kernel)

    model, there = Decoder(replace(SMALL, attention=attention)), torch.arange(9) >= torch.tensor([[0], [4]])
    full, cache = model(TOKENS), model.cache()
    pieces = [model(piece, cache=cache) for piece in TOKENS.split([3, 1, 1, 4], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), full)
    padded = model(TOKENS, cache=model.cache(there))
    torch.testing.assert_close(padded[1:, 4:], model(TOKENS[1:, 4:]))


@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (0, 0)])
def test_no_texts_and_empty_ones(shape):
    tokens = torch.zeros(shape, dtype=torch.int64)
    extras = TransformerExtras(ngrams=(NGramEmbedding,), shortcut=WeightedSum, value_residual=WeightedSum)
    for config in (SMALL, replace(SMALL, extras=extras), gpt2_config(vocab=VOCAB, d=D, depth=1, heads=2, context=9)):
        model = Decoder(config)
        assert model(tokens).shape == (*shape, VOCAB)
        assert model(tokens, cache=model.cache()).shape == (*shape, VOCAB)


def test_a_window_before_attention_to_a_memory():
    attention = partial(rotary_attention, heads=2, kernel=SlidingWindowAttention())
    config = replace(SMALL, order="(scf)*", attention=attention, mask=Mask(causal=True, window=3))
    near, memory = made(config), torch.randn(2, 6, D, dtype=torch.float64)
    far = Decoder(replace(config, attention=partial(rotary_attention, heads=2))).double()
    far.load_state_dict(near.state_dict())
    same(near(TOKENS, memory=memory), far(TOKENS, memory=memory))


def test_a_table_of_values_wants_attention():
    with pytest.raises(ValueError, match="values of attention are wanted, of a letter s: got the order 'ff'"):
        Decoder(replace(SMALL, order="f*", extras=TransformerExtras(value_embedding=nn.Embedding)))
