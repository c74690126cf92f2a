import copy
import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful.blocks import (
    PAIRS,
    ALiBi,
    HeadSpec,
    KVCache,
    MultiHeadAttention,
    RotaryEmbedding,
    T5RelativeBias,
    attend_with_cache,
    group_heads,
    merge_heads,
    split_heads,
)
from lawful.functions.attention import (
    CAUSAL,
    NO_MASK,
    ChunkedAttention,
    LinearAttention,
    Mask,
    SlidingWindowAttention,
    fused_attention,
    reference_attention,
)
from lawful.functions.tap import open_recorder
from lawful.laws import Claim, Draw, Equal, Map, Statement, agreement, law, shape, tokens
from lawful.laws import mask as mask_domain


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Recorder:
    """Stores tapped values, and replaces the values named in `edits`."""

    def __init__(self, *names, edits=()):
        self.names, self.edits, self.seen = names, dict(edits), {}

    def wants(self, name):
        return name in self.names or name in self.edits

    def on_value(self, name, x):
        self.seen[name] = x
        return self.edits[name](x) if name in self.edits else x


def with_torch_weights(theirs):
    """Our layer with the weights of `nn.MultiheadAttention`."""
    context = None if theirs.kdim == theirs.embed_dim else theirs.kdim
    ours = MultiHeadAttention(theirs.embed_dim, num_heads=theirs.num_heads, context_dim=context).double()
    if theirs.in_proj_weight is None:
        weights = theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight
    else:
        weights = theirs.in_proj_weight.chunk(3)
    for linear, weight, bias in zip(
        (ours.query, ours.key, ours.value), weights, theirs.in_proj_bias.chunk(3), strict=True
    ):
        linear.weight, linear.bias = nn.Parameter(weight), nn.Parameter(bias)
    ours.out.weight, ours.out.bias = theirs.out_proj.weight, theirs.out_proj.bias
    return ours


def random_torch(*args, **options):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(*args, batch_first=True, **options).double()
    for p in theirs.parameters():
        nn.init.normal_(p)
    return theirs


@pytest.mark.parametrize("causal", [False, True])
def test_equals_torch(causal):
    theirs, x = random_torch(8, 2), randn(3, 5, 8)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    expected, weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    ours = with_torch_weights(theirs)
    torch.testing.assert_close(ours(x, mask=CAUSAL if causal else NO_MASK), expected)
    recorder = Recorder("pattern")
    with open_recorder(recorder):
        torch.testing.assert_close(ours(x, mask=CAUSAL if causal else NO_MASK), expected)
    torch.testing.assert_close(recorder.seen["pattern"], weights)


def test_cross_attention_and_padding_equal_torch():
    theirs = random_torch(8, 2, kdim=6, vdim=6)
    x, y, there = (
        randn(3, 5, 8),
        randn(3, 4, 6, seed=1),
        torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]]).bool(),
    )
    expected, _ = theirs(x, y, y, key_padding_mask=~there)
    torch.testing.assert_close(with_torch_weights(theirs)(x, y, mask=Mask(padding=there)), expected)


def test_heads_that_share_keys_equal_torch_with_groups():
    layer, x = MultiHeadAttention(8, num_heads=4, num_kv_heads=2).double(), randn(2, 5, 8)
    q, k, v = (m(x).unflatten(-1, (-1, 2)).transpose(1, 2) for m in (layer.query, layer.key, layer.value))
    z = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(layer(x, mask=CAUSAL), layer.out(z.transpose(1, 2).flatten(-2)))


KERNELS = {
    "plain": (reference_attention, CAUSAL),
    "fused": (None, CAUSAL),
    "fused window": (None, Mask(causal=True, window=3)),
    "chunked": (ChunkedAttention(2), CAUSAL),
    "window": (SlidingWindowAttention(), Mask(causal=True, window=3)),
    "linear": (LinearAttention(), CAUSAL),
}
OPTIONS = {
    "": {},
    "rotary": {"rotary": RotaryEmbedding(2), "qk_norm": True},
    "pairs": {"rotary": RotaryEmbedding(2, layout=PAIRS), "qk_norm": nn.LayerNorm},
    "alibi": {"position_bias": ALiBi(4)},
    "buckets": {
        "position_bias": T5RelativeBias(4, bidirectional=False),
        "rotary": RotaryEmbedding(2, scaling_factor=2.0),
    },
}
SETS = {
    "heads": [HeadSpec(2, count=4)],
    "groups": [HeadSpec(count=4, groups=2, key=2)],
    "sizes": [HeadSpec(count=3, key=2), HeadSpec(key=2, value=5)],
}


GRID = [
    (kernel, options, sets)
    for kernel, options, sets in itertools.product(KERNELS, OPTIONS, SETS)
    if not (kernel == "linear" and "position_bias" in OPTIONS[options])
]


@pytest.mark.usefixtures("unchecked")  # type checks would take most of the time
@pytest.mark.parametrize(("kernel", "options", "sets"), GRID)
def test_cached_equals_full(kernel, options, sets):
    torch.manual_seed(0)
    function, mask = KERNELS[kernel]
    chosen = {} if function is None else {"kernel": function}
    layer = MultiHeadAttention(8, heads=SETS[sets], **OPTIONS[options], **chosen).double()
    for p in layer.parameters():
        nn.init.normal_(p)
    x = randn(2, 12, 8)
    full = layer(x, mask=mask)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            cache = layer.cache(window=mask.window)
            pieces = [layer(piece, mask=mask, cache=cache) for piece in x.split([5, 1, 1, 3, 2], dim=1)]
            torch.testing.assert_close(torch.cat(pieces, dim=1), full)
            assert cache.length == 12


def test_a_cache_gives_gradients():
    layer, x = MultiHeadAttention(4, num_heads=2).double(), randn(1, 3, 4).requires_grad_()
    (expected,) = torch.autograd.grad(layer(x, mask=CAUSAL).square().sum(), x)
    cache = layer.cache()
    found = torch.cat([layer(piece, mask=CAUSAL, cache=cache) for piece in x.split(1, dim=1)], dim=1)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), x)[0], expected)


def test_left_padding_of_a_cached_batch():
    layer, x = MultiHeadAttention(8, num_heads=2, rotary=RotaryEmbedding(4)).double(), randn(2, 6, 8)
    there = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]).bool()
    alone = layer(x[:1, 2:], mask=CAUSAL)
    for window in (None, 4):
        mask, cache, found = Mask(causal=True, window=window), layer.cache(window=window), []
        for end in (3, 4, 5, 6):
            new = x[:, :3] if end == 3 else x[:, end - 1 : end]
            found.append(layer(new, mask=mask & Mask(padding=there[:, :end]), cache=cache))
        torch.testing.assert_close(torch.cat(found, dim=1)[:1, 2:], alone)


def test_cross_attention_reads_its_context_once():
    layer, x, y = MultiHeadAttention(8, num_heads=2, context_dim=6).double(), randn(2, 4, 8), randn(2, 5, 6, seed=1)
    cache, full = layer.cache(), layer(x, y)
    torch.testing.assert_close(layer(x[:, :1], y, cache=cache), full[:, :1])
    torch.testing.assert_close(layer(x[:, 1:], cache=cache), full[:, 1:])
    assert cache.length == 5


def test_value_residual():
    class Mean(nn.Module):
        def forward(self, v, first):
            return (v + first) / 2

    one, other, x = (
        MultiHeadAttention(4, num_heads=2).double(),
        MultiHeadAttention(4, num_heads=2, value_residual=Mean()).double(),
        randn(1, 3, 4),
    )
    first = []
    torch.testing.assert_close(one(x, first_values=first), one(x))
    torch.testing.assert_close(first[0], one.value(x))
    mixed = MultiHeadAttention(4, num_heads=2).double()
    mixed.load_state_dict(other.state_dict())
    with torch.no_grad():
        mixed.value.weight.add_(one.value.weight).div_(2)
        mixed.value.bias.add_(one.value.bias).div_(2)
    torch.testing.assert_close(other(x, first_values=first), mixed(x))
    torch.testing.assert_close(one(x, first_values=[randn(1, 3, 4)]), one(x))


def test_position_ids():
    layer, x = (
        MultiHeadAttention(8, num_heads=2, rotary=RotaryEmbedding(4), position_bias=ALiBi(2)).double(),
        randn(2, 5, 8),
    )
    torch.testing.assert_close(layer(x, position_ids=torch.arange(7, 12)), layer(x))
    far = torch.tensor([[0, 1, 2, 3, 40], [0, 1, 2, 3, 4]])
    assert not torch.allclose(layer(x, position_ids=far)[0], layer(x)[0])
    torch.testing.assert_close(layer(x, position_ids=far)[1], layer(x)[1])


@pytest.mark.parametrize("sets", [[HeadSpec(2, count=3)], [HeadSpec(2, count=2, groups=1), HeadSpec(4, value=1)]])
def test_tapped_values_are_consistent(sets):
    layer, x = MultiHeadAttention(6, heads=sets, rotary=None).double(), randn(2, 4, 6)
    several = len(sets) > 1
    names = [
        name + end for name in ("q", "k", "v", "scores", "pattern", "z") for end in (("0", "1") if several else ("",))
    ]
    recorder = Recorder(*names, "heads")
    with open_recorder(recorder):
        y = layer(x, mask=CAUSAL)
    torch.testing.assert_close(y, layer(x, mask=CAUSAL))
    assert set(recorder.seen) == {*names, "heads"}
    torch.testing.assert_close(recorder.seen["heads"].sum(1) + layer.out.bias, y)
    end = "0" if several else ""
    groups = recorder.seen["q" + end].shape[1] // recorder.seen["k" + end].shape[1]
    keys, values = (recorder.seen[name + end].repeat_interleave(groups, 1) for name in "kv")
    scores = recorder.seen["q" + end] @ keys.mT / 2**0.5
    torch.testing.assert_close(recorder.seen["scores" + end], scores)
    torch.testing.assert_close(recorder.seen["z" + end], recorder.seen["pattern" + end] @ values)


@pytest.mark.parametrize("name", ["q", "k", "v", "scores", "pattern", "z", "heads"])
def test_replacing_a_tapped_value_changes_the_output(name):
    layer, x = MultiHeadAttention(4, num_heads=2).double(), randn(1, 3, 4)
    with open_recorder(Recorder(edits={name: lambda x: x.flip(-1) + 1})):
        changed = layer(x)
    assert not torch.allclose(changed, layer(x))


@pytest.mark.parametrize("name", ["scores", "pattern"])
def test_the_state_of_linear_attention_has_no_pattern(name):
    layer, x = MultiHeadAttention(4, num_heads=2, kernel=LinearAttention()).double(), randn(1, 3, 4)
    for wish in (Recorder(name), Recorder(edits={name: torch.zeros_like})):
        with open_recorder(wish), pytest.raises(LookupError, match="LinearAttentionState stores no keys"):
            layer(x, mask=CAUSAL, cache=layer.cache())
    with open_recorder(Recorder("q", "z")):
        torch.testing.assert_close(layer(x, mask=CAUSAL, cache=layer.cache()), layer(x, mask=CAUSAL))


def test_window_drops_an_unreachable_prefix():
    layer, x = MultiHeadAttention(4, num_heads=2).double(), randn(1, 12, 4)
    mask, cache = Mask(causal=True, window=3, prefix=2), layer.cache(window=3)
    found = [layer(piece, mask=mask, cache=cache) for piece in x.split([4, 1, 1, 1, 5], dim=1)]
    torch.testing.assert_close(torch.cat(found, dim=1), layer(x, mask=mask))


def test_any_number_of_axes_and_transforms():
    layer = MultiHeadAttention(4, num_heads=2, rotary=RotaryEmbedding(2), kernel=reference_attention).double()
    x = randn(2, 3, 5, 4)
    expected = layer(x, mask=CAUSAL)
    torch.testing.assert_close(layer(x[1, 2], mask=CAUSAL), expected[1, 2])
    torch.testing.assert_close(layer(x[1, 2, :1]), expected[1, 2, :1])
    torch.testing.assert_close(torch.vmap(lambda x: layer(x, mask=CAUSAL))(x), expected)


def test_invalid_inputs_are_rejected():
    layer = MultiHeadAttention(8, num_heads=2, context_dim=4)
    with pytest.raises(ValueError, match=r"expected x of shape \(\*batch, t, 8\), got \(2, 3, 4\)"):
        layer(torch.zeros(2, 3, 4), torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match=r"expected context of shape \(\*batch, s, 4\), got \(2, 3, 5\)"):
        layer(torch.zeros(2, 3, 8), torch.zeros(2, 3, 5))
    with pytest.raises(ValueError, match="cross-attention needs a context"):
        layer(torch.zeros(2, 3, 8))
    with pytest.raises(ValueError, match=r"one module per head size \(1\), got 2"):
        MultiHeadAttention(8, num_heads=2, rotary=[RotaryEmbedding(4), RotaryEmbedding(4)])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (0, 1), (0, 0)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_empty_batches_and_sequences(kernel, shape):
    function, mask = KERNELS[kernel]
    for options in (OPTIONS["rotary"], OPTIONS["pairs"], {} if kernel == "linear" else OPTIONS["alibi"]):
        chosen = {} if function is None else {"kernel": function}
        for heads in ([HeadSpec(2, count=4)], [HeadSpec(count=3, key=2), HeadSpec(key=2, value=5)]):
            layer = MultiHeadAttention(8, heads=heads, **options, **chosen)
            assert layer(torch.zeros(*shape, 8), mask=mask).shape == (*shape, 8)
            assert layer(torch.zeros(*shape, 8), mask=mask, cache=layer.cache(window=mask.window)).shape == (*shape, 8)


def test_position_ids_with_a_cache():
    x, at = randn(2, 5, 8), torch.tensor([0, 3, 4, 9, 20])
    layer = MultiHeadAttention(8, num_heads=4, rotary=RotaryEmbedding(2)).double()
    cache = layer.cache()
    pieces = [layer(x[:, i], mask=CAUSAL, cache=cache, position_ids=at[i]) for i in (slice(2), slice(2, 5))]
    torch.testing.assert_close(torch.cat(pieces, 1), layer(x, mask=CAUSAL, position_ids=at))
    layer = MultiHeadAttention(8, num_heads=4, position_bias=ALiBi(4)).double()
    with pytest.raises(ValueError, match="position_ids cannot be combined with a cache and ALiBi"):
        layer(x, mask=CAUSAL, cache=layer.cache(), position_ids=at)


def test_cross_attention_with_biases_between_given_positions():
    layer = MultiHeadAttention(8, num_heads=4, position_bias=ALiBi(4)).double()
    x, context, at = randn(2, 3, 8), randn(2, 7, 8, seed=1), torch.tensor([[0, 3, 4], [6, 2, 2]])
    q, k, v = (
        m(y).unflatten(-1, (4, 2)).transpose(1, 2)
        for m, y in ((layer.query, x), (layer.key, context), (layer.value, context))
    )
    slopes = torch.tensor([2.0 ** (-2 * h) for h in range(1, 5)], dtype=torch.float64)
    bias = -slopes[:, None, None] * (at[:, None, :, None] - torch.arange(7)).abs()
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    torch.testing.assert_close(layer(x, context, position_ids=at), layer.out(z.transpose(1, 2).flatten(-2)))


def test_cross_attention_ignores_the_window_kernel():
    torch.manual_seed(0)
    near = MultiHeadAttention(8, context_dim=6, kernel=SlidingWindowAttention())
    far = MultiHeadAttention(8, context_dim=6)
    far.load_state_dict(near.state_dict())
    x, y = torch.randn(2, 3, 8), torch.randn(2, 9, 6)
    torch.testing.assert_close(near(x, y), far(x, y))
    narrow = Mask(window=2)
    torch.testing.assert_close(near(x, y, mask=narrow), far(x, y, mask=narrow))


def test_positions_for_other_heads_are_rejected():
    with pytest.raises(ValueError, match=r"position_bias must have num_heads=4, got ALiBi\(8\)"):
        MultiHeadAttention(8, num_heads=4, position_bias=ALiBi(8))
    with pytest.raises(ValueError, match="rotary must have head_dim=2, got 8"):
        MultiHeadAttention(8, num_heads=4, rotary=RotaryEmbedding(8))
    sizes = [HeadSpec(count=2, key=2), HeadSpec(key=4)]
    with pytest.raises(
        ValueError, match=r"rotary must have head_dim=4, got 2 \(pass one RotaryEmbedding per head size\)"
    ):
        MultiHeadAttention(8, heads=sizes, rotary=RotaryEmbedding(2))
    with pytest.raises(ValueError, match=r"one module per head size \(2\), got 3"):
        MultiHeadAttention(
            8, heads=[*sizes, sizes[0]], rotary=[RotaryEmbedding(2), RotaryEmbedding(4), RotaryEmbedding(2)]
        )


def test_identical_heads_form_one_group():
    two, five = group_heads([HeadSpec(2, count=2), HeadSpec(5), HeadSpec(2, count=3)])
    assert (two.num_heads, two.num_kv_heads, two.key_dim, two.value_dim) == (5, 5, 2, 2)
    assert (five.num_heads, five.key_dim, five.value_dim) == (1, 5, 5)
    assert len(group_heads([HeadSpec(2, count=2, groups=1), HeadSpec(2, count=2, groups=2)])) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 3}, "num_heads must divide dim: got dim=8, num_heads=3"),
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"num_kv_heads": 3}, "num_kv_heads must divide num_heads: got num_heads=4, num_kv_heads=3"),
        ({"heads": []}, "at least one HeadSpec"),
        ({"heads": [HeadSpec(2)], "head_dim": 2}, "heads replaces num_kv_heads and head_dim"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
    ],
)
def test_invalid_options_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(8, **options)


def test_invalid_head_sizes_are_rejected():
    with pytest.raises(ValueError, match="groups must divide count: got count=4, groups=3"):
        HeadSpec(2, count=4, groups=3)
    with pytest.raises(ValueError, match="key=0"):
        HeadSpec(0)


def test_is_causal_adds_a_causal_mask():
    layer, x = MultiHeadAttention(8).double(), randn(2, 5, 8)
    assert torch.equal(layer(x, is_causal=True), layer(x, mask=CAUSAL))
    window = Mask(window=2)
    torch.testing.assert_close(layer(x, mask=window, is_causal=True), layer(x, mask=window & CAUSAL))


def test_head_dim_and_kv_heads():
    layer = MultiHeadAttention(64, num_heads=4, num_kv_heads=2, head_dim=8, qk_norm=True, bias=False)
    shapes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    assert shapes == {
        "query.weight": (32, 64),
        "key.weight": (16, 64),
        "value.weight": (16, 64),
        "out.weight": (64, 32),
        "query_norm.weight": (8,),
        "key_norm.weight": (8,),
    }


@pytest.mark.parametrize("kernel", [fused_attention, LinearAttention()])
def test_dropout_of_the_weights_in_training_mode_only(kernel):
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(4, num_heads=2, dropout=0.25, kernel=kernel).double(), randn(1, 6, 4)
    recorder = Recorder("pattern")
    with open_recorder(recorder):
        torch.manual_seed(1)
        y = layer(x, mask=CAUSAL)
    torch.manual_seed(1)
    weights = F.dropout(recorder.seen["pattern"], 0.25)
    torch.testing.assert_close(y, layer.out(merge_heads(weights @ split_heads(layer.value(x), 2))))
    torch.manual_seed(1)
    torch.testing.assert_close(layer(x, mask=CAUSAL), y)
    plain = MultiHeadAttention(4, num_heads=2, kernel=kernel).double()
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer.eval()(x, mask=CAUSAL), plain(x, mask=CAUSAL))


def test_factors_have_the_rank_of_the_head():
    heads = [HeadSpec(2, value=3, count=2, groups=1), HeadSpec(4)]
    layer = MultiHeadAttention(8, heads=heads, context_dim=5)
    assert [tuple(f.shape) for f in layer.qk_factors(1)] == [(8, 2), (2, 5)]
    assert [tuple(f.shape) for f in layer.ov_factors(2)] == [(8, 4), (4, 5)]
    assert torch.linalg.matrix_rank(layer.ov_matrix(0)) == 3
    with pytest.raises(IndexError, match=r"head must be in \[0, 3\), got 3"):
        layer.qk_matrix(3)


def test_linear_attention_gets_the_queries_and_keys_of_the_layer():
    layer, x = MultiHeadAttention(6, num_heads=2, kernel=LinearAttention()).double(), randn(2, 5, 6)
    q, k, v = (split_heads(project(x), 2) for project in (layer.query, layer.key, layer.value))
    features = (F.elu(q) + 1) @ (F.elu(k) + 1).mT
    weights = features.tril() / features.tril().sum(-1, keepdim=True)
    torch.testing.assert_close(layer(x, is_causal=True), layer.out(merge_heads(weights @ v)))


def test_linear_attention_rejects_a_bias_with_and_without_a_recorder():
    layer, x = MultiHeadAttention(4, num_heads=2, kernel=LinearAttention(), position_bias=ALiBi(2)), torch.ones(1, 3, 4)
    for recorder in (Recorder(), Recorder("pattern")):
        with open_recorder(recorder), pytest.raises(ValueError, match=r"linear attention supports .*, got bias"):
            layer(x)


def test_linear_attention_uses_absolute_rotary_positions():
    layer = MultiHeadAttention(8, rotary=RotaryEmbedding(2))
    linear = MultiHeadAttention(8, rotary=RotaryEmbedding(2), kernel=LinearAttention())
    assert (layer.uses_absolute_positions, linear.uses_absolute_positions) == (False, True)
    assert not MultiHeadAttention(8, kernel=LinearAttention()).uses_absolute_positions


@pytest.mark.parametrize(
    "options", [{}, {"num_kv_heads": 2}, {"position_bias": ALiBi(4)}, {"rotary": RotaryEmbedding(2)}]
)
def test_decoding_follows_weights_that_change(options):
    layer, x = MultiHeadAttention(8, **options).double(), randn(2, 6, 8)
    cache = layer.cache()
    with torch.no_grad():
        layer(x[:, :4], is_causal=True, cache=cache)
        first = layer(x[:, 4:5], cache=cache)
        torch.testing.assert_close(first, layer(x, is_causal=True)[:, 4:5])
        layer.query.weight.mul_(2)
        layer.out.bias.add_(1)
        second = layer(x[:, 5:], cache=cache)
        torch.testing.assert_close(second, layer(x, is_causal=True)[:, 5:])  # keys do not change with the queries


@torch.no_grad()
def test_decoding_a_token_equals_the_general_path():
    x, padding = randn(2, 6, 8), torch.tensor([False, True, True, True, True, True])
    near = MultiHeadAttention(8, kernel=SlidingWindowAttention(window=2)).double()
    cache = KVCache()  # without the window of the kernel
    near(x[:, :5], is_causal=True, cache=cache)
    torch.testing.assert_close(near(x[:, 5:], cache=cache), near(x, is_causal=True)[:, 5:])
    layer, cache = MultiHeadAttention(8, position_bias=ALiBi(4), dropout=0.5).double().eval(), KVCache()
    layer(x[:, :5], mask=Mask(causal=True, padding=padding[:5]), cache=cache)
    y = layer(x[:, 5:], mask=Mask(causal=True, padding=padding), cache=cache)
    torch.testing.assert_close(y, layer(x, mask=Mask(causal=True, padding=padding))[:, 5:])
    with pytest.raises(ValueError, match="position_ids cannot be combined with a cache and ALiBi"):
        layer(x[:, :1], cache=cache, position_ids=torch.tensor([3]))
    with pytest.raises(ValueError, match="expected x of shape"):
        layer(x[:, :1, :4], cache=cache)
    torch.manual_seed(0)
    assert not torch.equal(layer.train()(x[:, :1], cache=cache), layer(x[:, :1], cache=cache))
    copied = copy.deepcopy(near)
    copied.value.weight.mul_(2)
    cache = KVCache()
    near(x[:, :4], is_causal=True, cache=cache)
    near(x[:, 4:5], cache=cache)
    assert not torch.equal(copied(x[:, 5:], cache=cache.select(torch.arange(2))), near(x[:, 5:], cache=cache))


@law("f(x; Q_π, K_π, V_π, O_π) = f(x; Q, K, V, O)", discover_with=None)
def head_permutation(f: Map, *xs: torch.Tensor, heads: int, draw: Draw) -> Statement:
    """Permuting the heads of a layer does not change its output.

    Satisfied by: heads of one size, each with its own keys.
    Broken by: an output projection that is not permuted.
    """
    order, moved = draw.permutation(heads), {}
    for name, p in f.parameters.items():
        axis = 1 if name == "out.weight" else 0
        if name != "out.bias":
            moved[name] = p.detach().unflatten(axis, (heads, -1)).index_select(axis, order).flatten(axis, axis + 1)
    return Equal(f.with_parameters(moved)(*xs), f(*xs))


def _claims_of_heads() -> Iterator[Claim]:
    mixed = MultiHeadAttention(
        4, heads=[HeadSpec(2, 3, count=2, groups=1), HeadSpec(3, 1), HeadSpec(2, 3, count=2, groups=1)]
    )
    grouped = MultiHeadAttention(4, num_heads=4, num_kv_heads=2, head_dim=2)

    def head_by_head(x):
        total, (q, k, v, z) = mixed.out.bias, (0, 0, 0, 0)
        for head, (key, value) in enumerate([(2, 3)] * 4 + [(3, 1)]):
            if head in (2, 4):
                k, v = k + 2, v + 3
            rows = (mixed.query, q, key), (mixed.key, k, key), (mixed.value, v, value)
            queries, keys, values = (x @ m.weight[i : i + n].T + m.bias[i : i + n] for m, i, n in rows)
            weights = torch.softmax(queries @ keys.mT / key**0.5, dim=-1)
            total = total + weights @ values @ mixed.out.weight[:, z : z + value].T
            q, z = q + key, z + value
        return total

    def repeated(x):
        own, rows = MultiHeadAttention(4, num_heads=4, head_dim=2), torch.tensor([0, 1, 0, 1, 2, 3, 2, 3])
        weights = {n: p[rows] if n.startswith(("key", "value")) else p for n, p in grouped.named_parameters()}
        return torch.func.functional_call(own, weights, (x,))

    yield Claim(agreement(other=head_by_head), mixed, shape("b t 4"), name="heads of two sizes, grouped")
    yield Claim(agreement(other=repeated), grouped, shape("b t 4"), name="grouped heads, weights repeated")
    yield Claim(head_permutation(heads=3), MultiHeadAttention(3, num_heads=3), shape("b t 3"))

    specs = [HeadSpec(2, 1, count=4, groups=2), HeadSpec(3)]
    own, cross = (MultiHeadAttention(4, heads=specs, context_dim=e, bias=False) for e in (None, 3))

    def by_matrices(x, y, layer=cross):
        total = torch.zeros_like(x)
        for head, k in enumerate((2, 2, 2, 2, 3)):
            pattern = (x @ layer.qk_matrix(head) @ y.mT / k**0.5).softmax(-1)
            total = total + pattern @ y @ layer.ov_matrix(head).mT
        return total

    yield Claim(agreement(other=lambda x: by_matrices(x, x, own)), own, shape("b t 4"), name="QK and OV matrices")
    yield Claim(agreement(other=by_matrices), cross, (shape("b t 4"), shape("b s 3")), name="QK and OV matrices, cross")


def _claims_of_steps() -> Iterator[Claim]:
    by_hand = agreement(other=lambda x: torch.stack([x[..., :2], x[..., 2:4], x[..., 4:]], dim=-3))
    yield Claim(by_hand, lambda x: split_heads(x, 3), shape("b t:1..4 6"), name="split_heads")
    identity = agreement(other=lambda x: 1 * x)
    yield Claim(identity, lambda x: merge_heads(split_heads(x, 3)), shape("b t:1..4 6"), name="split and merge")

    for kernel, window in ((fused_attention, 2), (LinearAttention(), None)):

        def in_two(x, padding, kernel=kernel, window=window):
            cache = kernel.cache() if window is None else KVCache(window=window)
            outputs = []
            for part, there in zip(x.split((3, 1), -2), (padding[:, :3], padding), strict=True):
                mask = Mask(causal=True, window=window, padding=there)
                outputs.append(attend_with_cache(kernel, part, part, part, mask=mask, cache=cache))
            return torch.cat(outputs, -2)

        def at_once(x, padding, kernel=kernel, window=window):
            return kernel(x, x, x, mask=Mask(causal=True, window=window, padding=padding))

        few = replace(agreement(other=at_once), cases=20)
        inputs = shape("b 2 4 3"), mask_domain("b 4")
        yield Claim(few, in_two, inputs, name=f"attend_with_cache, {window=}")

    def fused(q, k):
        return fused_attention(q, k, k, mask=CAUSAL, bias=torch.ones(3, 1))

    def explicit(q, k):
        with open_recorder(Recorder("pattern")):
            return attend_with_cache(fused_attention, q, k, k, mask=CAUSAL, bias=torch.ones(3, 1))

    yield Claim(agreement(other=fused), explicit, (shape("b 2 3 4"), shape("b 1 5 4")), name="explicit weights")


def _claims_of_positions() -> Iterator[Claim]:
    layer = MultiHeadAttention(4, num_heads=2, qk_norm=True, rotary=RotaryEmbedding(2), position_bias=ALiBi(2))

    def heads(m, x):
        return (x @ m.weight.T + m.bias).split(2, dim=-1)

    def equation(x):
        t, total = x.shape[-2], layer.out.bias
        gains = layer.get_parameter("query_norm.weight"), layer.get_parameter("key_norm.weight")
        distance = torch.arange(t) - torch.arange(t)[:, None]
        cos, sin = distance.double().cos().to(x), distance.double().sin().to(x)
        for h in range(2):
            q, k = (
                g * a / (a.square().mean(-1, keepdim=True) + 1e-6).sqrt()
                for g, a in zip(gains, (heads(m, x)[h] for m in (layer.query, layer.key)), strict=True)
            )
            across = q[..., :, None, 0] * k[..., None, :, 1] - q[..., :, None, 1] * k[..., None, :, 0]
            scores = (q @ k.mT * cos - across * sin) / 2**0.5 - distance.abs() * 2.0 ** (-4 * (h + 1))
            weights = scores.masked_fill(distance > 0, -torch.inf).softmax(-1)
            total = total + weights @ heads(layer.value, x)[h] @ layer.out.weight[:, 2 * h : 2 * h + 2].T
        return total

    name = "causal, with QK norm, rotary embedding and ALiBi"
    yield Claim(agreement(other=equation), lambda x: layer(x, mask=CAUSAL), shape("b t 4"), name=name)
    two_sizes = MultiHeadAttention(4, heads=[HeadSpec(2), HeadSpec(3)], position_bias=ALiBi(2))

    def bias(p):
        return two_sizes._bias(1, p, torch.zeros(3, 2))

    def written(p):
        distances = [[[abs(int(i) - j) for j in range(3)] for i in row] for row in p]
        return torch.tensor(distances, dtype=two_sizes.position_bias.dtype_reference.dtype).unsqueeze(1) * -(2.0**-8)

    yield Claim(agreement(other=written), bias, tokens("b t", vocab_size=9), name="bias of the second group, cross")


def claims() -> Iterator[Claim]:
    """Second derivations of multi-head attention."""
    yield from _claims_of_heads()
    yield from _claims_of_steps()
    yield from _claims_of_positions()


def test_a_kernel_with_a_window_restricts_the_mask_of_every_path():
    layer, x = MultiHeadAttention(8, num_heads=2, kernel=SlidingWindowAttention(3)).double(), randn(2, 9, 8)
    dense = MultiHeadAttention(8, num_heads=2).double()
    dense.load_state_dict(layer.state_dict())
    expected = dense(x, mask=Mask(causal=True, window=3))
    torch.testing.assert_close(layer(x, mask=CAUSAL), expected)
    recorder = Recorder("pattern")
    with open_recorder(recorder):
        torch.testing.assert_close(layer(x, mask=CAUSAL), expected)
    assert (recorder.seen["pattern"][..., -1, :-3] == 0).all()
    state = layer.cache()
    pieces = [layer(piece, mask=CAUSAL, cache=state) for piece in x.split(2, dim=1)]
    torch.testing.assert_close(torch.cat(pieces, 1), expected)
