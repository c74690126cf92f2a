import copy
import pickle
import sys
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from lawful.blocks import (
    MACARON,
    GatedFeedForward,
    LayerScale,
    NGramEmbedding,
    ReZero,
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
from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    cached_decoding,
    causality,
    every_parameter_receives_a_gradient,
    locality,
    masked_positions_have_no_influence,
    ragged_batches,
    tokens,
    weight_sharing,
)
from lawful.laws import mask as mask_domain
from lawful.models import EncoderDecoder, PromptReader, TransformerExtras, decoder, encoder, gpt, rotary_attention

VOCAB, D = 7, 8
SMALL = {"vocab_size": VOCAB, "dim": D, "num_layers": 2, "num_heads": 2, "init": None}
TOKENS = torch.arange(2 * 9).reshape(2, 9) * 5 % VOCAB


def with_changes(config, **changes):
    return config | changes


def build(config, seed=0):
    """A decoder in double precision with random parameters."""
    torch.manual_seed(seed)
    model = decoder(**config).double().eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model


def decode_in_pieces(model, tokens, sizes, **given):
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
    "clipped": ({"biased": partial(ClippedRelativeBias, max_distance=4)}, None),
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
    "residual": TransformerExtras(value_residual=partial(WeightedSum, init_value=(0.6, 0.4))),
}
SPLITS = ([9], [1, 1, 4, 3], [4, 1, 1, 3])


def grid():
    """All combinations of position scheme and kernel; heads and the other options cycle."""
    others = list(product(RESIDUALS, ORDERS, VALUES))
    for n, (position, kernel) in enumerate(product(POSITIONS, KERNELS)):
        if kernel == "linear" and POSITIONS[position][0].get("biased"):
            continue  # refused, as the next test says
        heads = list(HEADS)[sum(divmod(n, len(KERNELS))) % len(HEADS)]
        turn = n % len(others)
        yield pytest.param(position, kernel, heads, *others[turn], id=f"{position}-{kernel}-{heads}-{turn}")


@pytest.mark.usefixtures("unchecked")  # type checks would take most of the time
@pytest.mark.parametrize(("position", "kernel", "heads", "residual", "order", "values"), list(grid()))
def test_cached_decoding_equals_full_pass(position, kernel, heads, residual, order, values):
    given, added = POSITIONS[position]
    function, window = KERNELS[kernel]
    config = with_changes(
        SMALL,
        attention=partial(attention, heads=HEADS[heads], kernel=function, norm=nn.RMSNorm, **given),
        positions=added,
        mask=Mask(causal=True, window=window),
        residual=residual,
        layer_pattern=order,
        extras=VALUES[values],
    )
    model = build(config)
    with torch.no_grad():
        full = model(TOKENS)
    for sizes in SPLITS:
        same(decode_in_pieces(model, TOKENS, sizes), full)


@pytest.mark.parametrize("position", [name for name, (given, _) in POSITIONS.items() if "biased" in given])
def test_linear_attention_rejects_position_bias(position):
    model = build(with_changes(SMALL, attention=partial(attention, kernel=LinearAttention(), **POSITIONS[position][0])))
    for cache in (None, model.cache()):
        with pytest.raises(ValueError, match=r"bias"):
            model(TOKENS, cache=cache)


@pytest.mark.long
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("residual", "order", "values"), list(product(RESIDUALS, ORDERS, VALUES)))
def test_cached_decoding_equals_full_pass_for_all_combinations(residual, order, values):
    for position, kernel, heads in product(POSITIONS, KERNELS, HEADS):
        if not (kernel == "linear" and POSITIONS[position][0].get("biased")):
            test_cached_decoding_equals_full_pass(position, kernel, heads, residual, order, values)


EXTRAS = {
    "ngrams": TransformerExtras(ngrams=(NGramEmbedding,)),
    "hashed": TransformerExtras(ngrams=(partial(NGramEmbedding, n=2), partial(NGramEmbedding, n=4, num_rows=5))),
    "embedding skip": TransformerExtras(embedding_skip=WeightedSum),
    "value embedding": TransformerExtras(value_residual=WeightedSum, value_embedding=nn.Embedding),
    "softcap": TransformerExtras(softcap=2.0),
    "layer scale": TransformerExtras(gate=LayerScale),
    "gate": TransformerExtras(gate=lambda d: ReZero()),
    "embedding norm": TransformerExtras(embedding_norm=nn.RMSNorm),
    "final norm": TransformerExtras(final_norm=nn.Identity),
    "all": TransformerExtras(
        ngrams=(NGramEmbedding,),
        embedding_skip=WeightedSum,
        value_residual=WeightedSum,
        softcap=2.0,
        gate=LayerScale,
        embedding_norm=nn.LayerNorm,
    ),
}


@pytest.mark.parametrize("extras", EXTRAS)
def test_extras_decode_with_cache_and_receive_gradients(extras):
    model = build(with_changes(SMALL, extras=EXTRAS[extras]))
    full = model(TOKENS)
    for sizes in SPLITS:
        same(decode_in_pieces(model, TOKENS, sizes), full)
    F.cross_entropy(full.flatten(0, 1), TOKENS.roll(-1, 1).flatten()).backward()
    for name, p in model.named_parameters():
        assert p.grad.abs().max() > 0, name


def test_embeddings_of_tokens_positions_and_ngrams_are_added():
    model = build(with_changes(SMALL, extras=EXTRAS["hashed"]))
    expected = model.embedding(TOKENS) + sum(table(TOKENS) for table in model.ngrams)
    if model.positions is not None:
        expected = expected + model.positions(torch.arange(TOKENS.shape[-1]))
    same(model.embed(TOKENS), expected)


def test_logits_of_the_last_positions_only():
    model = build(SMALL)
    same(model(TOKENS, logits_to_keep=2), model(TOKENS)[..., -2:, :])


def test_every_ngram_table_changes_the_logits():
    model = build(with_changes(SMALL, extras=EXTRAS["hashed"]))
    assert len(model.ngrams) == 2
    for table in model.ngrams:
        before = model(TOKENS)
        with torch.no_grad():
            table.weight.add_(torch.linspace(-1, 1, table.weight.numel()).reshape(table.weight.shape).to(table.weight))
        assert not torch.allclose(model(TOKENS), before)


@pytest.mark.parametrize("positions", POSITIONS)
def test_padded_prompts_equal_single_prompts(positions):
    extras = EXTRAS["all"] if positions in ("none", "rotary", "buckets") else TransformerExtras()
    given, added = POSITIONS[positions]
    model = build(with_changes(SMALL, attention=partial(attention, **given), positions=added, extras=extras))
    lengths = [2, 5, 4]
    rows = [torch.arange(3 + n) * (2 * i + 1) % VOCAB for i, n in enumerate(lengths)]
    padded = torch.stack([F.pad(row, (8 - len(row), 0), value=3) for row in rows])
    there = torch.arange(5) >= 5 - torch.tensor(lengths)[:, None]
    for sizes in ([5, 1, 2], [2, 3, 1, 2], [8]):
        found = decode_in_pieces(model, padded, sizes, padding=there)
        for row, logits in zip(rows, found, strict=True):
            same(logits[-len(row) :], model(row[None])[0])
    masked = model(padded, mask=Mask(padding=F.pad(there, (0, 3), value=True)))
    same(masked[:, -3:], found[:, -3:])


@pytest.mark.parametrize("kernel", KERNELS)
def test_cache_select_and_trim(kernel):
    function, window = KERNELS[kernel]
    config = with_changes(SMALL, attention=partial(attention, kernel=function), mask=Mask(causal=True, window=window))
    model, rows = build(with_changes(config, extras=EXTRAS["ngrams"])), torch.tensor([1, 1, 0])
    cache = model.cache()
    with torch.no_grad():
        model(TOKENS[:, :5], cache=cache)
        beams = cache.select(rows)
        assert (cache.length, beams.length) == (5, 5)
        same(model(TOKENS[rows, 5:], cache=beams), model(TOKENS)[rows, 5:])
        model(TOKENS[:, 5:7], cache=cache)
        assert cache.nbytes > 0
        if kernel == "linear":
            with pytest.raises(ValueError, match="can only be trimmed to 0 or 7 tokens"):
                cache.trim(6)
            return
        cache.trim(6)
        same(model(TOKENS[:, 6:], cache=cache), model(TOKENS)[:, 6:])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("kernel", "heads"), [("plain", "alike"), ("fused", "sizes"), ("chunked", "alike"), ("linear", "sizes")]
)
def test_prefix_mask_must_be_in_one_piece(kernel, heads):
    config = with_changes(SMALL, attention=partial(attention, heads=HEADS[heads], kernel=KERNELS[kernel][0]))
    model = build(with_changes(config, mask=Mask(causal=True, prefix=4)))
    for sizes in ([9], [4, 5], [5, 1, 3], [4, 1, 1, 1, 1, 1]):
        same(decode_in_pieces(model, TOKENS, sizes), model(TOKENS))
    same(decode_in_pieces(model, TOKENS[:, :3], [3]), model(TOKENS[:, :3]))
    for sizes in ([1] * 9, [3, 6]):
        with pytest.raises(ValueError, match=f"prefix of 4 tokens must be in one piece, got {sizes[0]} first"):
            decode_in_pieces(model, TOKENS, sizes)


def test_masks_that_cannot_decode_are_rejected():
    model = build(with_changes(SMALL, mask=Mask(causal=True, prefix=4)))
    there = torch.arange(9) >= torch.tensor([[0], [2]])
    with pytest.raises(ValueError, match=r"a prefix mask \(prefix=4\) needs rows of equal length"):
        decode_in_pieces(model, TOKENS, [9], padding=there)
    same(decode_in_pieces(model, TOKENS, [4, 5], padding=there | True), model(TOKENS))
    both_ways = build(with_changes(SMALL, mask=Mask(window=4)))
    same(decode_in_pieces(both_ways, TOKENS, [9]), both_ways(TOKENS))
    with pytest.raises(ValueError, match=r"decoding with a cache needs a causal mask"):
        decode_in_pieces(both_ways, TOKENS, [8, 1])


@pytest.mark.parametrize("extras", ["plain", "value embedding", "all"])
def test_activation_checkpointing_keeps_gradients(extras):
    model = build(with_changes(SMALL, layer_pattern="(sf)*s", extras=EXTRAS.get(extras, VALUES["residual"])))
    expected = torch.autograd.grad(model(TOKENS).square().sum(), list(model.parameters()))
    for layer in model.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    found = torch.autograd.grad(model(TOKENS).square().sum(), list(model.parameters()))
    for a, b in zip(found, expected, strict=True):
        same(a, b)


def test_gradients_flow_through_cache():
    model = build(SMALL)
    cache = model.cache()
    pieces = torch.cat([model(piece, cache=cache) for piece in TOKENS.split(3, dim=1)], dim=1)
    weights = torch.randn_like(pieces)
    found = torch.autograd.grad((pieces * weights).sum(), list(model.parameters()))
    expected = torch.autograd.grad((model(TOKENS) * weights).sum(), list(model.parameters()))
    for a, b in zip(found, expected, strict=True):
        same(a, b)


def test_attention_only_pattern():
    model = decoder(**with_changes(SMALL, layer_pattern="s*", num_layers=3))
    assert [type(layer.block) for layer in model.layers] == [MultiHeadAttention] * 3
    assert model(TOKENS).shape == (2, 9, VOCAB)


def test_other_norm_and_feed_forward():
    model = decoder(**with_changes(SMALL, norm=nn.LayerNorm, feed_forward=GatedFeedForward))
    assert isinstance(model.layers[1].block, GatedFeedForward)
    assert isinstance(model.norm, nn.LayerNorm)
    assert model(TOKENS).isfinite().all()


def test_default_init_has_uniform_probabilities():
    assert (decoder(vocab_size=VOCAB)(TOKENS) == 0).all()
    tied = decoder(vocab_size=VOCAB, tie_embeddings=True)
    assert tied.head.weight is tied.embedding.weight
    assert tied.embedding.weight.abs().min() > 0


def test_learns_to_copy():
    torch.manual_seed(0)
    model = decoder(vocab_size=VOCAB, dim=16, num_layers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        half = torch.randint(VOCAB, (32, 4))
        tokens = torch.cat([half, half], dim=1)
        loss = F.cross_entropy(model(tokens[:, :-1])[:, 3:].flatten(0, 1), tokens[:, 4:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.3


def test_dropout_only_in_training():
    torch.manual_seed(0)
    model = gpt(vocab_size=VOCAB, dim=D, num_layers=2, num_heads=2, context_length=9, dropout=0.5)
    assert isinstance(model.embedding_norm, nn.Dropout)
    assert isinstance(model.layers[0].gate, nn.Dropout)
    assert not torch.equal(model(TOKENS), model(TOKENS))
    model.eval()
    assert torch.equal(model(TOKENS), model(TOKENS))


def test_learned_positions_limit_context():
    model = gpt(vocab_size=VOCAB, dim=D, num_layers=1, num_heads=2, context_length=9)
    assert model.context_length == 9
    assert decoder(**SMALL).context_length is None
    cache = model.cache()
    model(TOKENS, cache=cache)
    with pytest.raises(IndexError, match=r"positions must be in \[0, 9\): got 9 to 9"):
        model(TOKENS[:, :1], cache=cache)


def test_any_number_of_batch_axes():
    model = build(SMALL)
    same(model(TOKENS[0]), model(TOKENS)[0])
    same(model(TOKENS.reshape(2, 1, 9)), model(TOKENS).reshape(2, 1, 9, VOCAB))


def test_errors():
    with pytest.raises(ValueError, match=r"num_layers must be at least 1, got 0"):
        decoder(**with_changes(SMALL, num_layers=0))
    with pytest.raises(ValueError, match=r"'scfscf' has cross-attention: pass memory"):
        decoder(**with_changes(SMALL, layer_pattern="(scf)*"))(TOKENS)
    with pytest.raises(ValueError, match=r"got '\(sx\)\*'"):
        decoder(**with_changes(SMALL, layer_pattern="(sx)*"))
    with pytest.raises(IndexError, match=r"tokens must be in \[0, 7\), got 0 to 7"):
        decoder(**SMALL)(torch.tensor([[0, 7]]))


class Similar(nn.Module):
    """Custom attention in a few lines: one head with similarity scores."""

    def forward(self, x, *, mask):
        return masked_softmax((x @ x.mT).unsqueeze(-3), mask=mask).squeeze(-3) @ x


def test_custom_attention():
    torch.manual_seed(0)
    model = decoder(**with_changes(SMALL, attention=lambda d: Similar()))
    edited = TOKENS.clone()
    edited[:, 5:] = 0
    torch.testing.assert_close(model(TOKENS)[:, :5], model(edited)[:, :5])
    with pytest.raises(TypeError, match=r"decoding needs attention with a method cache\(\), got Similar"):
        model.cache()
    with pytest.raises(TypeError, match=r"value_residual needs attention .* got Similar"):
        decoder(
            **with_changes(SMALL, attention=lambda d: Similar(), extras=TransformerExtras(value_residual=WeightedSum))
        )


@pytest.mark.parametrize("kernel", [fused_attention, LinearAttention()])
def test_similarity_attention_decodes_with_cache(kernel):
    torch.manual_seed(0)

    def attention(d):
        return SimilarityAttention(SymmetricForm(d, num_heads=2), d, kernel=kernel)

    model, there = decoder(**with_changes(SMALL, attention=attention)), torch.arange(9) >= torch.tensor([[0], [4]])
    full, cache = model(TOKENS), model.cache()
    pieces = [model(piece, cache=cache) for piece in TOKENS.split([3, 1, 1, 4], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), full)
    padded = model(TOKENS, cache=model.cache(there))
    torch.testing.assert_close(padded[1:, 4:], model(TOKENS[1:, 4:]))


@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (0, 0)])
def test_empty_batches_and_sequences(shape):
    tokens = torch.zeros(shape, dtype=torch.int64)
    extras = TransformerExtras(ngrams=(NGramEmbedding,), embedding_skip=WeightedSum, value_residual=WeightedSum)
    small = gpt(vocab_size=VOCAB, dim=D, num_layers=1, num_heads=2, context_length=9)
    for model in (decoder(**SMALL), decoder(**SMALL, extras=extras), small):
        assert model(tokens).shape == (*shape, VOCAB)
        assert model(tokens, cache=model.cache()).shape == (*shape, VOCAB)


def test_sliding_window_with_cross_attention():
    attention = partial(rotary_attention, num_heads=2, kernel=SlidingWindowAttention())
    config = with_changes(SMALL, layer_pattern="(scf)*", attention=attention, mask=Mask(causal=True, window=3))
    near, memory = build(config), torch.randn(2, 6, D, dtype=torch.float64)
    far = decoder(**with_changes(config, attention=partial(rotary_attention, num_heads=2))).double()
    far.load_state_dict(near.state_dict())
    same(near(TOKENS, memory=memory), far(TOKENS, memory=memory))


def test_value_embedding_needs_attention():
    with pytest.raises(ValueError, match=r"value_residual needs at least one 's' in layer_pattern, got 'ff'"):
        decoder(**with_changes(SMALL, layer_pattern="f*", extras=TransformerExtras(value_embedding=nn.Embedding)))


def test_forward_runs_through_at_most_nine_files():
    model, files = gpt(vocab_size=VOCAB, dim=D, num_layers=1, num_heads=2, context_length=9), set()

    def profile(frame, event, _):
        path = frame.f_code.co_filename
        if event == "call" and "/lawful/" in path and not path.endswith("__init__.py"):
            files.add(path)

    sys.setprofile(profile)
    try:
        model(TOKENS)
    finally:
        sys.setprofile(None)
    assert len(files) <= 9, files


def test_deepcopy_pickle_and_export():
    model = gpt(vocab_size=VOCAB, dim=D, num_layers=1, num_heads=2, context_length=9).eval()
    expected = model(TOKENS)
    assert torch.equal(copy.deepcopy(model)(TOKENS), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(TOKENS), expected)
    rich = decoder(**SMALL, extras=EXTRAS["all"], tie_embeddings=True).eval()
    assert torch.equal(pickle.loads(pickle.dumps(copy.deepcopy(rich)))(TOKENS), rich(TOKENS))
    exported = torch.export.export(model, (TOKENS,))
    torch.testing.assert_close(exported.module()(TOKENS), expected)


def test_compile(unchecked):
    model = gpt(vocab_size=VOCAB, dim=D, num_layers=1, num_heads=2, context_length=9).eval()
    torch.testing.assert_close(torch.compile(model, backend="eager")(TOKENS), model(TOKENS))
    rotary = decoder(**SMALL).eval()
    torch.testing.assert_close(torch.compile(rotary, backend="eager")(TOKENS), rotary(TOKENS))


def test_hooks_run_in_decoding():
    model, calls = build(SMALL), []
    for module in model.modules():
        module.register_forward_hook(lambda *_: calls.append(1))
    cache = model.cache()
    with torch.no_grad():
        model(TOKENS[:, :4], cache=cache)
        first = len(calls)
        model(TOKENS[:, 4:5], cache=cache)
    assert len(calls) == 2 * first
    same(decode_in_pieces(model, TOKENS, [4, 1, 4]), model(TOKENS))


@torch.no_grad()
def test_a_hook_between_two_tokens_is_called():
    model, calls = build(SMALL), []
    cache = model.cache()
    for i in range(3):
        model(TOKENS[:, i : i + 1], cache=cache)
    handle = model.blocks("f")[0].up.register_forward_hook(lambda *_: calls.append(1))
    model(TOKENS[:, 3:4], cache=cache)
    handle.remove()
    model(TOKENS[:, 4:5], cache=cache)
    assert calls == [1]


@torch.no_grad()
def test_decoding_follows_weights_that_change():
    model = build(with_changes(SMALL, layer_pattern="sf"))
    cache, attention = model.cache(), model.blocks("s")[0]
    model(TOKENS[:, :4], cache=cache)
    same(model(TOKENS[:, 4:5], cache=cache), model(TOKENS[:, :5])[:, 4:])
    attention.query.weight.mul_(2)  # of one layer: keys and values do not change
    attention.out.weight.mul_(2)
    model.blocks("f")[0].up.weight = nn.Parameter(2 * model.blocks("f")[0].up.weight)
    same(model(TOKENS[:, 5:6], cache=cache), model(TOKENS[:, :6])[:, 5:])


@torch.no_grad()
def test_a_cache_serves_another_model():
    model = build(SMALL)
    other, cache = copy.deepcopy(model), model.cache()
    model(TOKENS[:, :4], cache=cache)
    model(TOKENS[:, 4:5], cache=cache)
    other.blocks("f")[0].up.weight.mul_(2)
    rows = torch.arange(len(TOKENS))
    expected = other(TOKENS[:, 5:6], cache=copy.deepcopy(cache.select(rows)))
    assert not torch.equal(model(TOKENS[:, 5:6], cache=cache.select(rows)), expected)
    same(other(TOKENS[:, 5:6], cache=cache), expected)


@torch.no_grad()
def test_dropout_is_active_when_a_model_in_training_mode_decodes():
    model = build(with_changes(SMALL, dropout=0.5)).train()
    cache = model.cache()
    model(TOKENS[:, :4], cache=cache)
    first = model(TOKENS[:, 4:5], cache=cache.select(torch.arange(len(TOKENS))))
    assert not torch.equal(first, model(TOKENS[:, 4:5], cache=cache))


def test_weights_may_change_between_decodes():
    model = build(SMALL)
    same(decode_in_pieces(model, TOKENS, [1] * 9), model(TOKENS))
    with torch.no_grad():
        model.blocks("s")[0].key.weight.mul_(2)
    same(decode_in_pieces(model, TOKENS, [1] * 9), model(TOKENS))


@torch.inference_mode()
def test_model_built_in_inference_mode_decodes():
    model = build(SMALL)
    same(decode_in_pieces(model, TOKENS, [1] * 9), model(TOKENS))


def test_window_cache_does_not_grow():
    model, sizes = build(with_changes(SMALL, mask=Mask(causal=True, window=4))), set()
    with torch.inference_mode():
        reader = PromptReader(model, torch.zeros(1, 500, dtype=torch.int64))
        for _ in range(40):
            reader.feed(torch.zeros(1, dtype=torch.int64))
            sizes.add(reader.cache.nbytes)
    assert max(sizes) <= 32 * 2 * 2 * 8 * 8


def claims():
    """Second derivations of decoders, encoders and encoder-decoders."""
    mixing = partial(WeightedSum, init_value=(0.7, 0.4))
    small = {"vocab_size": 5, "dim": 4, "num_heads": 2, "init": None}
    gated = TransformerExtras(embedding_skip=mixing, gate=partial(LayerScale, init_value=0.5), softcap=2.0)
    single = decoder(**small, layer_pattern="sf", extras=gated)
    near = decoder(**small, num_layers=1, mask=Mask(causal=True, window=2))
    linear = decoder(**small, num_layers=2, attention=partial(rotary_attention, num_heads=2, kernel=LinearAttention()))
    extras = replace(
        gated,
        ngrams=(NGramEmbedding, partial(NGramEmbedding, n=3, num_rows=7)),
        embedding_norm=partial(nn.RMSNorm, eps=1e-6),
        value_residual=mixing,
    )
    rich = decoder(**small, num_layers=2, layer_pattern=MACARON, extras=extras)
    plain = partial(MultiHeadAttention, num_heads=2, bias=False)
    post = encoder(**small, layer_pattern="sf", attention=plain, residual=post_norm, positions=SinusoidalPositions)
    half = {"vocab_size": 5, "dim": 4, "num_layers": 1, "attention": plain, "init": None}
    both = EncoderDecoder(encoder(**half), decoder(**half | {"vocab_size": 6}, layer_pattern="(scf)*"))
    shared = EncoderDecoder(encoder(**half), decoder(**half, layer_pattern="(scf)*"), share_embeddings=True)

    def padded(x, padding):
        return rich(x, mask=Mask(padding=padding))

    def left_padded(x):
        wide = torch.cat([x[:, :1], x[:, :1], x], dim=1)
        cache = linear.cache(torch.arange(wide.shape[1]).expand_as(wide) >= 2)
        return torch.cat([linear(piece, cache=cache) for piece in wide.split(3, dim=1)], dim=1)[:, 2:]

    def decoder_equation(x):
        w, part = dict(single.named_parameters()), dict(single.named_modules())
        y = start = w["embedding.weight"][x]
        y = y + w["layers.0.gate.weight"] * part["layers.0.attention"](part["layers.0.norm"](y), is_causal=True)
        y = y + w["layers.1.gate.weight"] * part["layers.1.feed_forward"](part["layers.1.norm"](y))
        y = w["embedding_skips.0.weight"][0] * y + w["embedding_skips.0.weight"][1] * start
        return 2 * torch.tanh(single.norm(y) @ single.head.weight.T / 2)

    def encoder_equation(x):
        part = dict(post.named_modules())
        y = post.embedding.weight[x] + part["positions"](torch.arange(x.shape[-1]))
        y = part["layers.0.output_norm"](y + part["layers.0.attention"](y))
        return part["norm"](part["layers.1.output_norm"](y + part["layers.1.feed_forward"](y)))

    def padded_source(source, padding):
        logits = both(source, source[:, :1] * 0, source_mask=Mask(padding=padding))
        return logits.expand(-1, source.shape[1], -1)

    def one_by_one(source, target):
        memory, cache = both.encode(source), both.cache()
        return torch.cat([both.decode(piece, memory, cache=cache) for piece in target.split(1, dim=1)], dim=1)

    ids, valid = tokens("b t", vocab_size=5), mask_domain("b t")
    pairs = {"source": tokens("b s", vocab_size=5), "target": tokens("b t", vocab_size=6)}
    names = "encoder.embedding.weight", "decoder.embedding.weight"
    for law, model, inputs, name in (
        (causality(time=1), rich, ids, "Decoder with extras"),
        (batch_independence(), rich, ids, "Decoder with extras"),
        (cached_decoding(), rich, ids, "Decoder with extras"),
        (cached_decoding(), near, ids, "Decoder with a window"),
        (locality(radius=1, axis=1), near, ids, "Decoder of one layer, a window of 2"),
        (every_parameter_receives_a_gradient(), rich, tokens("2 4", vocab_size=5), "Decoder with extras"),
        (masked_positions_have_no_influence(), padded, (ids, valid), "Decoder, padded"),
        (ragged_batches(), padded, (ids, valid), "Decoder, padded"),
        (agreement(other=linear), left_padded, ids, "Decoder of rotary linear attention, left-padded"),
        (agreement(other=decoder_equation), single, ids, "Decoder of one layer"),
        (agreement(other=encoder_equation), post, ids, "Encoder of one layer"),
        (agreement(other=one_by_one), both, pairs, "EncoderDecoder, one token at a time"),
        (masked_positions_have_no_influence(), padded_source, (ids, valid), "EncoderDecoder, padded source"),
        (weight_sharing(names=names), shared, (ids, ids), "EncoderDecoder with shared embeddings"),
    ):
        yield Claim(replace(law, cases=5), model, inputs, name=name)
