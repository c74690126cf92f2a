import copy

import pytest
import torch
from transformers import GPTJConfig, GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as turn_part
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as turn_pairs
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from lawful.blocks import HALVES, PAIRS, RotaryEmbedding, stretched_base


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
        ({"rope_type": "linear", "factor": 4.0}, {"factor": 4.0}),
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


def test_a_stretched_base_equals_the_dynamic_scaling_of_hugging_face():
    q, positions = randn(1, 4, 128, 8, dtype=torch.float32), torch.arange(128)[None]
    theirs, _ = llama(q, q, positions, rope_type="dynamic", factor=2.0)
    factor = 2.0 * 128 / 64 - (2.0 - 1)
    torch.testing.assert_close(RotaryEmbedding(8, base=stretched_base(8, factor))(q), theirs, atol=1e-4, rtol=1e-4)


def test_a_part_equals_gpt_neox():
    config = GPTNeoXConfig(hidden_size=32, num_attention_heads=4, rotary_pct=0.5)
    q, positions = randn(2, 4, 9, 8, dtype=torch.float32), torch.arange(9)[None]
    theirs, _ = turn_part(q, q, *GPTNeoXRotaryEmbedding(config)(q, positions))
    torch.testing.assert_close(RotaryEmbedding(8, part=0.5)(q), theirs, atol=1e-5, rtol=1e-5)


def test_pairs_equal_gpt_j():
    sin, cos = create_sinusoidal_positions(GPTJConfig().n_positions, 8)[3:12].chunk(2, dim=-1)
    x = randn(2, 4, 9, 8, dtype=torch.float32)
    theirs = turn_pairs(x.transpose(1, 2), sin[None], cos[None]).transpose(1, 2)
    torch.testing.assert_close(RotaryEmbedding(8, layout=PAIRS)(x, 3), theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layout", [HALVES, PAIRS])
def test_the_table_grows_and_leaves_no_trace(layout):
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
def test_a_table_made_within_a_transform_does_not_escape(layout, transform):
    rotary, x = RotaryEmbedding(4, layout=layout), randn(2, 1, 5, 4)

    def f(x):
        return rotary(x, 2).sin().sum()

    transform(f)(x)
    torch.vmap(torch.func.grad(f))(x)
    copy.deepcopy(rotary)
    wanted = RotaryEmbedding(4, layout=layout)(x, torch.arange(2, 7)).sin().sum()
    torch.testing.assert_close(f(x), wanted)


def test_a_table_made_in_inference_can_be_trained_with():
    rotary, x = RotaryEmbedding(4), randn(1, 1, 3, 4).requires_grad_()
    with torch.inference_mode():
        rotary(x, 1)
    rotary(x, 1).sum().backward()
    assert x.grad is not None


def test_rows_of_a_batch_have_positions_of_their_own():
    rotary, x = RotaryEmbedding(4), randn(2, 3, 1, 4)
    together = rotary(x, torch.tensor([[3], [7]]))
    torch.testing.assert_close(together[:1], rotary(x[:1], 3))
    torch.testing.assert_close(together[1:], rotary(x[1:], 7))


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"an even number .* got k=6, part=0.5"):
        RotaryEmbedding(6, part=0.5)
    with pytest.raises(ValueError, match=r"base=0\.0"):
        RotaryEmbedding(4, base=0.0)
    with pytest.raises(ValueError, match=r"size 4: got shape \(1, 2, 6\)"):
        RotaryEmbedding(4)(torch.zeros(1, 2, 6))
    with pytest.raises(ValueError, match="at least 0: got -1"):
        RotaryEmbedding(4)(torch.zeros(1, 2, 4), -1)
    with pytest.raises(ValueError, match="k=2"):
        stretched_base(2, 4.0)
