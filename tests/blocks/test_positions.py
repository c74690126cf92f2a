import copy
import math
from collections.abc import Iterator

import pytest
import torch
from transformers import GPTJConfig, GPTNeoXConfig, LlamaConfig, T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as turn_part
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as turn_pairs
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

from lawful.blocks import (
    HALVES,
    PAIRS,
    ALiBi,
    ClippedRelativeBias,
    LearnedPositions,
    RotaryEmbedding,
    SinusoidalPositions,
    T5RelativeBias,
    ntk_base,
)
from lawful.laws import Claim, agreement, shape, tokens


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def llama(q, k, positions, **scaling):
    config = LlamaConfig(
        hidden_size=32,
        num_attention_heads=4,
        max_position_embeddings=64,
        rope_parameters={"rope_theta": 10000.0, **scaling},
    )
    cos, sin = LlamaRotaryEmbedding(config)(q, positions)
    return apply_rotary_pos_emb(q, k, cos, sin)


@pytest.mark.parametrize(
    ("scaling", "options"),
    [
        ({"rope_type": "default"}, {}),
        ({"rope_type": "linear", "factor": 4.0}, {"scaling_factor": 4.0}),
        ({"rope_type": "default", "rope_theta": 500.0}, {"base": 500.0}),
    ],
)
def test_equals_llama(scaling, options):
    q, k = randn(2, 4, 9, 8, dtype=torch.float32), randn(2, 2, 9, 8, seed=1, dtype=torch.float32)
    positions = torch.randint(0, 60, (2, 9), generator=torch.Generator().manual_seed(2))
    theirs = llama(q, k, positions, **scaling)
    rotary = RotaryEmbedding(8, **options)
    for ours, their in zip((rotary(q, positions), rotary(k, positions)), theirs, strict=True):
        torch.testing.assert_close(ours, their, atol=1e-5, rtol=1e-5)


def test_ntk_base_equals_the_dynamic_scaling_of_hugging_face():
    q, positions = randn(1, 4, 128, 8, dtype=torch.float32), torch.arange(128)[None]
    theirs, _ = llama(q, q, positions, rope_type="dynamic", factor=2.0)
    factor = 2.0 * 128 / 64 - (2.0 - 1)
    torch.testing.assert_close(RotaryEmbedding(8, base=ntk_base(8, factor))(q), theirs, atol=1e-4, rtol=1e-4)


def test_rotary_fraction_equals_gpt_neox():
    config = GPTNeoXConfig(hidden_size=32, num_attention_heads=4, rotary_pct=0.5)
    q, positions = randn(2, 4, 9, 8, dtype=torch.float32), torch.arange(9)[None]
    theirs, _ = turn_part(q, q, *GPTNeoXRotaryEmbedding(config)(q, positions))
    torch.testing.assert_close(RotaryEmbedding(8, fraction=0.5)(q), theirs, atol=1e-5, rtol=1e-5)


def test_interleaved_rotary_equals_gpt_j():
    sin, cos = create_sinusoidal_positions(GPTJConfig().n_positions, 8)[3:12].chunk(2, dim=-1)
    x = randn(2, 4, 9, 8, dtype=torch.float32)
    theirs = turn_pairs(x.transpose(1, 2), sin[None], cos[None]).transpose(1, 2)
    torch.testing.assert_close(RotaryEmbedding(8, layout=PAIRS)(x, 3), theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layout", [HALVES, PAIRS])
def test_the_table_grows_and_is_not_saved(layout):
    rotary, x = RotaryEmbedding(4, layout=layout), randn(1, 2, 3, 4)
    near = rotary(x, 5)
    far = rotary(x, 10_000)
    torch.testing.assert_close(rotary(x, 5), near, rtol=0, atol=0)
    torch.testing.assert_close(far, rotary(x, torch.arange(10_000, 10_003)))
    assert rotary.state_dict() == {}
    torch.testing.assert_close(copy.deepcopy(rotary)(x, 5), near)
    assert rotary(x.float(), 5).dtype == torch.float32
    torch.testing.assert_close(rotary(x, 5), near, rtol=0, atol=0)


@pytest.mark.parametrize("layout", [HALVES, PAIRS])
@pytest.mark.parametrize("transform", [torch.func.grad, torch.vmap, torch.func.jacrev])
def test_rotary_cache_does_not_leak_functorch_tensors(layout, transform):
    rotary, x = RotaryEmbedding(4, layout=layout), randn(2, 1, 5, 4)

    def f(x):
        return rotary(x, 2).sin().sum()

    transform(f)(x)
    torch.vmap(torch.func.grad(f))(x)
    copy.deepcopy(rotary)
    expected = RotaryEmbedding(4, layout=layout)(x, torch.arange(2, 7)).sin().sum()
    torch.testing.assert_close(f(x), expected)


def test_rotary_cache_from_inference_mode_can_be_used_in_training():
    rotary, x = RotaryEmbedding(4), randn(1, 1, 3, 4).requires_grad_()
    with torch.inference_mode():
        rotary(x, 1)
    rotary(x, 1).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [HALVES, PAIRS], ids=["halves", "pairs"])
def test_rotary_embedding_in_half_precision(layout, dtype):
    rotary, x = RotaryEmbedding(8, layout=layout), randn(2, 3, 5, 8, dtype=torch.float32)
    torch.testing.assert_close(rotary(x.to(dtype)).float(), rotary(x), atol=0.05, rtol=0)


def test_rotary_embedding_of_a_batch_with_its_own_positions():
    rotary, x = RotaryEmbedding(4), randn(2, 3, 1, 4)
    together = rotary(x, torch.tensor([[3], [7]]))
    torch.testing.assert_close(together[:1], rotary(x[:1], 3))
    torch.testing.assert_close(together[1:], rotary(x[1:], 7))


def test_invalid_rotary_embeddings_are_rejected():
    with pytest.raises(ValueError, match=r"must be even .* got head_dim=6, fraction=0.5"):
        RotaryEmbedding(6, fraction=0.5)
    with pytest.raises(ValueError, match=r"base=0\.0"):
        RotaryEmbedding(4, base=0.0)
    with pytest.raises(ValueError, match=r"expected x of shape \(\*batch, h, t, 4\), got \(1, 2, 6\)"):
        RotaryEmbedding(4)(torch.zeros(1, 2, 6))
    with pytest.raises(ValueError, match="positions must be non-negative, got -1"):
        RotaryEmbedding(4)(torch.zeros(1, 2, 4), -1)
    with pytest.raises(ValueError, match="dim=2"):
        ntk_base(2, 4.0)


@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 20)])
def test_buckets_equal_t5(decoder, num_buckets, max_distance):
    config = T5Config(
        num_heads=3,
        is_decoder=decoder,
        relative_attention_num_buckets=num_buckets,
        relative_attention_max_distance=max_distance,
    )
    torch.manual_seed(0)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = T5RelativeBias(3, num_buckets=num_buckets, max_distance=max_distance, bidirectional=not decoder)
    ours.weight = theirs.relative_attention_bias.weight
    torch.testing.assert_close(ours(torch.arange(300), torch.arange(300)), theirs.compute_bias(300, 300)[0])


@pytest.mark.parametrize("heads", [1, 2, 4, 6, 8, 12])
def test_slopes_equal_those_of_bloom(heads):
    theirs = build_alibi_tensor(torch.ones(1, 5), heads, torch.float32)
    ours = ALiBi(heads)(torch.tensor([0]), torch.arange(5))
    torch.testing.assert_close(-ours, theirs)


def test_far_keys_share_a_bias():
    layer = ClippedRelativeBias(1, max_distance=2)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(5.0)[:, None])
    assert layer(torch.tensor([5]), torch.arange(11)).tolist() == [[[0, 0, 0, 0, 1, 2, 3, 4, 4, 4, 4]]]


@pytest.mark.parametrize("layer", [ALiBi(3), ClippedRelativeBias(3), T5RelativeBias(3)])
def test_biases_of_a_batch_with_its_own_positions(layer):
    queries, keys = torch.tensor([[4, 5], [9, 7]]), torch.tensor([[0, 5, 3], [2, 1, 9]])
    together = layer(queries, keys)
    assert together.shape == (2, 3, 2, 3)
    for row in range(2):
        torch.testing.assert_close(together[row], layer(queries[row], keys[row]))


def test_biases_follow_the_dtype_of_the_model():
    for layer, names in ((ALiBi(2), []), (T5RelativeBias(2), ["weight"]), (ClippedRelativeBias(2), ["weight"])):
        assert list(layer.state_dict()) == names
        assert layer.double()(torch.arange(2), torch.arange(3)).dtype == torch.float64


def test_invalid_biases_are_rejected():
    with pytest.raises(ValueError, match="num_heads must be at least 1, got 0"):
        ALiBi(0)
    with pytest.raises(ValueError, match="multiple of 4, max_distance above 1: got num_buckets=6, max_distance=128"):
        T5RelativeBias(2, num_buckets=6)
    with pytest.raises(ValueError, match="max_distance=-1"):
        ClippedRelativeBias(2, max_distance=-1)


def test_learned_positions_are_rows():
    layer = LearnedPositions(6, 3)
    torch.testing.assert_close(layer(torch.tensor([[5, 0]])), layer.weight[[5, 0]][None])
    assert list(layer.state_dict()) == ["weight"]


def test_sinusoidal_positions_equal_numpy():
    positions = torch.tensor([0, 1, 50, 1000])
    angles = positions.double()[:, None] / 10000 ** (torch.arange(4) / 4)
    expected = torch.empty(4, 8, dtype=torch.float64)
    expected[:, 0::2], expected[:, 1::2] = angles.sin(), angles.cos()
    torch.testing.assert_close(SinusoidalPositions(8).double()(positions), expected)
    assert SinusoidalPositions(8)(positions).dtype == torch.float32


def test_invalid_embeddings_are_rejected():
    with pytest.raises(IndexError, match=r"positions must be in \[0, 4\): got 2 to 4"):
        LearnedPositions(4, 2)(torch.tensor([2, 4]))
    with pytest.raises(ValueError, match="context_length=0"):
        LearnedPositions(0, 2)
    with pytest.raises(ValueError, match="dim must be even and at least 2, got 3"):
        SinusoidalPositions(3)
    with pytest.raises(ValueError, match=r"base must be positive, got 0\.0"):
        SinusoidalPositions(4, base=0.0)


def test_learned_positions_are_initialized_as_in_gpt2():
    assert LearnedPositions(2000, 50).weight.std().item() == pytest.approx(0.02, rel=0.02)


def _claims_of_rotary() -> Iterator[Claim]:
    inputs = shape("b 2 t 6"), tokens("t", vocab_size=100)
    full = RotaryEmbedding(6, base=50.0)
    partial = RotaryEmbedding(6, base=50.0, fraction=2 / 3, scaling_factor=3.0)
    for layer, entries in (
        (full, [(0, 3), (1, 4), (2, 5)]),
        (partial, [(0, 2), (1, 3)]),
        (RotaryEmbedding(6, layout=PAIRS), [(0, 1), (2, 3), (4, 5)]),
    ):

        def equation(x, p, layer=layer, entries=entries):
            y, p = list(x.unbind(-1)), p.double() / layer.scaling_factor
            for i, (a, b) in enumerate(entries):
                angle = p * layer.base ** (-i / len(entries))
                cos, sin = angle.cos().to(x), angle.sin().to(x)
                y[a], y[b] = x[..., a] * cos - x[..., b] * sin, x[..., a] * sin + x[..., b] * cos
            return torch.stack(y, dim=-1)

        yield Claim(agreement(other=equation), layer, inputs, name=str(layer))

    def consecutive(x):
        return torch.stack([partial(x, start) for start in (0, 7)])

    def listed(x):
        return torch.stack([partial(x, torch.arange(start, start + x.shape[-2])) for start in (0, 7)])

    yield Claim(agreement(other=listed), consecutive, shape("b 2 t 6"), name="consecutive positions")

    def scaled(x):
        return RotaryEmbedding(6, base=ntk_base(6, 4.0, base=50.0))(x, torch.tensor([8]))[..., [0, 2, 3, 5]]

    def slower(x):
        same, quarter = full(x, torch.tensor([8])), full(x, torch.tensor([2]))
        return torch.stack([same[..., 0], quarter[..., 2], same[..., 3], quarter[..., 5]], dim=-1)

    yield Claim(agreement(other=slower), scaled, shape("b 2 1 6"), name="ntk_base")


def _claims_of_biases() -> Iterator[Claim]:
    clipped = ClippedRelativeBias(2, max_distance=2)
    both = T5RelativeBias(2, num_buckets=16, max_distance=20)
    past = T5RelativeBias(2, num_buckets=8, max_distance=20, bidirectional=False)
    buckets = [0, 1, 2, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6, 6, 7]
    rows = {
        clipped: lambda i, j: min(4, max(0, j - i + 2)),
        both: lambda i, j: buckets[min(14, abs(j - i))] + 8 * (j > i),
        past: lambda i, j: buckets[min(14, max(0, i - j))],
    }
    for layer, row in rows.items():

        def equation(q, k, layer=layer, row=row):
            index = [[row(i, j) for j in k.tolist()] for i in q.tolist()]
            return layer.weight[torch.tensor(index)].permute(2, 0, 1)

        yield Claim(agreement(other=equation), layer, (tokens("t", vocab_size=24), tokens("s", vocab_size=24)))
    for heads, powers in ((2, (4, 8)), (3, (4, 8, 2)), (6, (2, 4, 6, 8, 1, 3))):
        layer = ALiBi(heads)

        def slopes(q, k, layer=layer, powers=powers):
            distances = torch.tensor([[abs(i - j) for j in k.tolist()] for i in q.tolist()])
            return torch.stack([distances.to(layer.dtype_reference.dtype) * -(0.5**n) for n in powers])

        yield Claim(agreement(other=slopes), layer, (tokens("t", vocab_size=50), tokens("s", vocab_size=50)))


def claims() -> Iterator[Claim]:
    """Second derivations of position schemes."""
    yield from _claims_of_rotary()
    yield from _claims_of_biases()
    learned, sinusoidal = LearnedPositions(5, 3), SinusoidalPositions(6)
    one_hot = agreement(other=lambda p: (p[..., None] == torch.arange(5)).to(learned.weight) @ learned.weight)
    yield Claim(one_hot, learned, tokens("b t", vocab_size=5))

    def waves(p):
        rows = [
            [(math.cos if i % 2 else math.sin)(n / 1e4 ** (i // 2 / 3)) for i in range(6)] for n in p.flatten().tolist()
        ]
        return torch.tensor(rows, dtype=torch.float64).to(sinusoidal.dtype_reference.dtype).reshape(*p.shape, 6)

    yield Claim(agreement(other=waves), sinusoidal, tokens("b t", vocab_size=100))
