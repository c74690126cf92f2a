import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful.blocks import (
    PAIRS,
    ALiBi,
    HeadSpec,
    LayerNorm,
    MultiHeadAttention,
    RMSNorm,
    RotaryEmbedding,
    T5RelativeBias,
)
from lawful.functions.attention import (
    CAUSAL,
    NO_MASK,
    ChunkedAttention,
    LinearAttention,
    Mask,
    reference_attention,
    window_attention,
)
from lawful.functions.tap import open_recorder


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Recorder:
    """Keeps what is tapped, and puts something else in its place if asked to."""

    def __init__(self, *names, edits=()):
        self.names, self.edits, self.seen = names, dict(edits), {}

    def wants(self, name):
        return name in self.names or name in self.edits

    def heard(self, name, x):
        self.seen[name] = x
        return self.edits[name](x) if name in self.edits else x


def copied(theirs):
    """Our layer with the weights of PyTorch's."""
    context = None if theirs.kdim == theirs.embed_dim else theirs.kdim
    ours = MultiHeadAttention(theirs.embed_dim, heads=theirs.num_heads, context=context).double()
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
    wanted, weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    ours = copied(theirs)
    torch.testing.assert_close(ours(x, mask=CAUSAL if causal else NO_MASK), wanted)
    recorder = Recorder("pattern")
    with open_recorder(recorder):
        torch.testing.assert_close(ours(x, mask=CAUSAL if causal else NO_MASK), wanted)
    torch.testing.assert_close(recorder.seen["pattern"], weights)


def test_cross_attention_and_padding_equal_torch():
    theirs = random_torch(8, 2, kdim=6, vdim=6)
    x, y, there = (
        randn(3, 5, 8),
        randn(3, 4, 6, seed=1),
        torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]]).bool(),
    )
    wanted, _ = theirs(x, y, y, key_padding_mask=~there)
    torch.testing.assert_close(copied(theirs)(x, y, mask=Mask(padding=there)), wanted)


def test_heads_that_share_keys_equal_torch_with_groups():
    layer, x = MultiHeadAttention(8, heads=[HeadSpec(count=4, groups=2, key=2)]).double(), randn(2, 5, 8)
    q, k, v = (m(x).unflatten(-1, (-1, 2)).transpose(1, 2) for m in (layer.query, layer.key, layer.value))
    z = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(layer(x, mask=CAUSAL), layer.out(z.transpose(1, 2).flatten(-2)))


KERNELS = {
    "plain": (reference_attention, CAUSAL),
    "fused": (None, CAUSAL),
    "fused window": (None, Mask(causal=True, window=3)),
    "chunked": (ChunkedAttention(size=2), CAUSAL),
    "window": (window_attention, Mask(causal=True, window=3)),
    "linear": (LinearAttention(), CAUSAL),
}
OPTIONS = {
    "": {},
    "rotary": {"rotary": RotaryEmbedding(2), "norm": RMSNorm},
    "pairs": {"rotary": RotaryEmbedding(2, layout=PAIRS), "norm": LayerNorm},
    "alibi": {"position_bias": ALiBi(4)},
    "buckets": {"position_bias": T5RelativeBias(4, sides=1), "rotary": RotaryEmbedding(2, part=1.0, factor=2.0)},
}
SETS = {
    "heads": 4,
    "groups": [HeadSpec(count=4, groups=2, key=2)],
    "sizes": [HeadSpec(count=3, key=2), HeadSpec(key=2, value=5)],
}


GRID = [
    (kernel, options, sets)
    for kernel, options, sets in itertools.product(KERNELS, OPTIONS, SETS)
    if not (kernel == "linear" and "position_bias" in OPTIONS[options])
]


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
    layer, x = MultiHeadAttention(4, heads=2).double(), randn(1, 3, 4).requires_grad_()
    (wanted,) = torch.autograd.grad(layer(x, mask=CAUSAL).square().sum(), x)
    cache = layer.cache()
    found = torch.cat([layer(piece, mask=CAUSAL, cache=cache) for piece in x.split(1, dim=1)], dim=1)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), x)[0], wanted)


def test_left_padding_of_a_cached_batch():
    layer, x = MultiHeadAttention(8, heads=2, rotary=RotaryEmbedding(4)).double(), randn(2, 6, 8)
    there = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]).bool()
    alone = layer(x[:1, 2:], mask=CAUSAL)
    for window in (None, 4):
        mask, cache, found = Mask(causal=True, window=window), layer.cache(window=window), []
        for end in (3, 4, 5, 6):
            new = x[:, :3] if end == 3 else x[:, end - 1 : end]
            found.append(layer(new, mask=mask & Mask(padding=there[:, :end]), cache=cache))
        torch.testing.assert_close(torch.cat(found, dim=1)[:1, 2:], alone)


def test_a_cross_attention_reads_its_context_once():
    layer, x, y = MultiHeadAttention(8, heads=2, context=6).double(), randn(2, 4, 8), randn(2, 5, 6, seed=1)
    cache, full = layer.cache(), layer(x, y)
    torch.testing.assert_close(layer(x[:, :1], y, cache=cache), full[:, :1])
    torch.testing.assert_close(layer(x[:, 1:], cache=cache), full[:, 1:])
    assert cache.length == 5


def test_the_values_of_the_first_layer_are_mixed_in():
    class Mean(nn.Module):
        def forward(self, v, first):
            return (v + first) / 2

    one, other, x = (
        MultiHeadAttention(4, heads=2).double(),
        MultiHeadAttention(4, heads=2, mix=Mean()).double(),
        randn(1, 3, 4),
    )
    first = []
    torch.testing.assert_close(one(x, first=first), one(x))
    torch.testing.assert_close(first[0], one.value(x))
    mixed = MultiHeadAttention(4, heads=2).double()
    mixed.load_state_dict(other.state_dict())
    with torch.no_grad():
        mixed.value.weight.add_(one.value.weight).div_(2)
        mixed.value.bias.add_(one.value.bias).div_(2)
    torch.testing.assert_close(other(x, first=first), mixed(x))
    torch.testing.assert_close(one(x, first=[randn(1, 3, 4)]), one(x))


def test_given_positions_count():
    layer, x = (
        MultiHeadAttention(8, heads=2, rotary=RotaryEmbedding(4), position_bias=ALiBi(2)).double(),
        randn(2, 5, 8),
    )
    torch.testing.assert_close(layer(x, positions=torch.arange(7, 12)), layer(x))
    far = torch.tensor([[0, 1, 2, 3, 40], [0, 1, 2, 3, 4]])
    assert not torch.allclose(layer(x, positions=far)[0], layer(x)[0])
    torch.testing.assert_close(layer(x, positions=far)[1], layer(x)[1])


@pytest.mark.parametrize("sets", [3, [HeadSpec(count=2, groups=1, key=2), HeadSpec(key=4, value=1)]])
def test_taps_are_what_they_say(sets):
    layer, x = MultiHeadAttention(6, heads=sets, rotary=None).double(), randn(2, 4, 6)
    several = not isinstance(sets, int)
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
def test_what_is_put_in_the_place_of_a_tap_acts(name):
    layer, x = MultiHeadAttention(4, heads=2).double(), randn(1, 3, 4)
    with open_recorder(Recorder(edits={name: lambda x: x.flip(-1) + 1})):
        changed = layer(x)
    assert not torch.allclose(changed, layer(x))


@pytest.mark.parametrize("name", ["scores", "pattern"])
def test_a_cache_that_keeps_sums_has_no_pattern(name):
    layer, x = MultiHeadAttention(4, heads=2, kernel=LinearAttention()).double(), randn(1, 3, 4)
    for wish in (Recorder(name), Recorder(edits={name: torch.zeros_like})):
        with open_recorder(wish), pytest.raises(LookupError, match="a LinearState keeps no keys to make a pattern of"):
            layer(x, mask=CAUSAL, cache=layer.cache())
    with open_recorder(Recorder("q", "z")):
        torch.testing.assert_close(layer(x, mask=CAUSAL, cache=layer.cache()), layer(x, mask=CAUSAL))


def test_a_window_forgets_a_prefix_that_is_out_of_reach():
    layer, x = MultiHeadAttention(4, heads=2).double(), randn(1, 12, 4)
    mask, cache = Mask(causal=True, window=3, prefix=2), layer.cache(window=3)
    found = [layer(piece, mask=mask, cache=cache) for piece in x.split([4, 1, 1, 1, 5], dim=1)]
    torch.testing.assert_close(torch.cat(found, dim=1), layer(x, mask=mask))


def test_any_number_of_axes_and_transforms():
    layer = MultiHeadAttention(4, heads=2, rotary=RotaryEmbedding(2), kernel=reference_attention).double()
    x = randn(2, 3, 5, 4)
    wanted = layer(x, mask=CAUSAL)
    torch.testing.assert_close(layer(x[1, 2], mask=CAUSAL), wanted[1, 2])
    torch.testing.assert_close(layer(x[1, 2, :1]), wanted[1, 2, :1])
    torch.testing.assert_close(torch.vmap(lambda x: layer(x, mask=CAUSAL))(x), wanted)


def test_errors_say_what_was_wanted_and_what_came():
    layer = MultiHeadAttention(8, heads=2, context=4)
    with pytest.raises(ValueError, match=r"\(\*batch, t, 8\): got \(2, 3, 4\)"):
        layer(torch.zeros(2, 3, 4), torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match=r"the width 4: got shape \(2, 3, 5\)"):
        layer(torch.zeros(2, 3, 8), torch.zeros(2, 3, 5))
    with pytest.raises(ValueError, match="a context, or a cache that holds one"):
        layer(torch.zeros(2, 3, 8))
    with pytest.raises(ValueError, match="one for each of 1 sets of heads, alike ones together, was wanted: got 2"):
        MultiHeadAttention(8, heads=2, rotary=[RotaryEmbedding(4), RotaryEmbedding(4)])
    cache = MultiHeadAttention(8, heads=[HeadSpec(key=2), HeadSpec(key=4)]).cache()
    with pytest.raises(TypeError, match=r"own cache\(\) was wanted: got Caches"):
        MultiHeadAttention(8)(torch.zeros(1, 1, 8), cache=cache)


@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (0, 1), (0, 0)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_empty_batches_and_texts_give_empty_ones(kernel, shape):
    function, mask = KERNELS[kernel]
    for options in (OPTIONS["rotary"], OPTIONS["pairs"], {} if kernel == "linear" else OPTIONS["alibi"]):
        chosen = {} if function is None else {"kernel": function}
        for heads in (4, [HeadSpec(count=3, key=2), HeadSpec(key=2, value=5)]):
            layer = MultiHeadAttention(8, heads=heads, **options, **chosen)
            assert layer(torch.zeros(*shape, 8), mask=mask).shape == (*shape, 8)
            assert layer(torch.zeros(*shape, 8), mask=mask, cache=layer.cache(window=mask.window)).shape == (*shape, 8)


def test_positions_with_a_cache_are_kept_by_rotary_and_refused_with_biases():
    x, at = randn(2, 5, 8), torch.tensor([0, 3, 4, 9, 20])
    layer = MultiHeadAttention(8, heads=4, rotary=RotaryEmbedding(2)).double()
    cache = layer.cache()
    pieces = [layer(x[:, i], mask=CAUSAL, cache=cache, positions=at[i]) for i in (slice(2), slice(2, 5))]
    torch.testing.assert_close(torch.cat(pieces, 1), layer(x, mask=CAUSAL, positions=at))
    layer = MultiHeadAttention(8, heads=4, position_bias=ALiBi(4)).double()
    with pytest.raises(ValueError, match="with a cache, ALiBi goes by the places in it: positions are to be left out"):
        layer(x, mask=CAUSAL, cache=layer.cache(), positions=at)


def test_cross_attention_with_biases_between_given_positions():
    layer = MultiHeadAttention(8, heads=4, position_bias=ALiBi(4)).double()
    x, context, at = randn(2, 3, 8), randn(2, 7, 8, seed=1), torch.tensor([[0, 3, 4], [6, 2, 2]])
    q, k, v = (
        m(y).unflatten(-1, (4, 2)).transpose(1, 2)
        for m, y in ((layer.query, x), (layer.key, context), (layer.value, context))
    )
    slopes = torch.tensor([2.0 ** (-2 * h) for h in range(1, 5)], dtype=torch.float64)
    bias = -slopes[:, None, None] * (at[:, None, :, None] - torch.arange(7)).abs()
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    torch.testing.assert_close(layer(x, context, positions=at), layer.out(z.transpose(1, 2).flatten(-2)))


def test_cross_attention_of_a_layer_with_windows_sees_all():
    torch.manual_seed(0)
    near = MultiHeadAttention(8, context=6, kernel=window_attention)
    far = MultiHeadAttention(8, context=6)
    far.load_state_dict(near.state_dict())
    x, y = torch.randn(2, 3, 8), torch.randn(2, 9, 6)
    torch.testing.assert_close(near(x, y), far(x, y))
    narrow = Mask(window=2)
    torch.testing.assert_close(near(x, y, mask=narrow), far(x, y, mask=narrow))


def test_positions_of_other_heads_are_refused_when_a_layer_is_made():
    with pytest.raises(ValueError, match="biases for 4 heads were wanted: got ALiBi for 8"):
        MultiHeadAttention(8, heads=4, position_bias=ALiBi(8))
    with pytest.raises(ValueError, match="rotary positions for heads of size 2 were wanted: got 8"):
        MultiHeadAttention(8, heads=4, rotary=RotaryEmbedding(8))
    sizes = [HeadSpec(count=2, key=2), HeadSpec(key=4)]
    with pytest.raises(ValueError, match="of size 4 were wanted, one for each set of heads: got 2"):
        MultiHeadAttention(8, heads=sizes, rotary=RotaryEmbedding(2))
    with pytest.raises(ValueError, match="one for each of 2 sets of heads, alike ones together, was wanted: got 3"):
        MultiHeadAttention(
            8, heads=[*sizes, sizes[0]], rotary=[RotaryEmbedding(2), RotaryEmbedding(4), RotaryEmbedding(2)]
        )
