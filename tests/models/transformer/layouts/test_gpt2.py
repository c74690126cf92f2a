import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
import transformers

from lawful.blocks import FeedForward, GatedFeedForward, HeadSpec, MultiHeadAttention, post_norm
from lawful.blocks.positions import ALiBi, RotaryEmbedding, SinusoidalPositions
from lawful.blocks.residual import LayerScale, WeightedSum
from lawful.functions.activations import squared_relu
from lawful.functions.attention import LinearAttention, Mask
from lawful.models.gpt2_weights import GPT2, gpt2_config, read_gpt2, write_gpt2
from lawful.models.transformer import Decoder, DecoderConfig, TransformerExtras


def theirs(seed=0, **sizes):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 11, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 9} | sizes
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(bos_token_id=0, eos_token_id=0, **sizes)).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model


def ours(bias=True, seed=1):
    torch.manual_seed(seed)
    return Decoder(gpt2_config(vocab=11, d=12, depth=2, heads=3, context=9, bias=bias)).eval()


def logits(model):
    tokens = torch.arange(18).reshape(2, 9) * 7 % 11
    found = model(tokens)
    return getattr(found, "logits", found)


def same(a, b):
    torch.testing.assert_close(logits(a), logits(b), rtol=1e-5, atol=1e-5)


def test_loaded_weights_give_the_logits_of_hugging_face():
    their, our = theirs(), ours()
    GPT2.load(our, their.state_dict())
    same(our, their)
    assert our.head.weight is our.embedding.weight


def test_the_published_names_have_no_prefix_and_may_hold_masks():
    their, our = theirs(), ours()
    state = {name.removeprefix("transformer."): x for name, x in their.state_dict().items()}
    del state["lm_head.weight"]
    GPT2.load(our, state | {f"h.{i}.attn.bias": torch.ones(1, 1, 9, 9).tril() for i in range(2)})
    same(our, their)


@pytest.mark.parametrize("bias", [True, False])
def test_saved_weights_give_hugging_face_the_logits(bias):
    their, our = theirs(), ours(bias)
    for p in our.parameters():
        torch.nn.init.normal_(p, std=0.3)
    their.load_state_dict(GPT2.save(our))
    same(our, their)


def test_without_biases_only_zero_ones_are_loaded():
    their, our = theirs(), ours(bias=False)
    with pytest.raises(ValueError, match=r"h\.0\.ln_1\.bias is to be zero, as the model has no layers\.0\.norm\.bias"):
        GPT2.load(our, their.state_dict())
    for name, p in their.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(p)
    GPT2.load(our, their.state_dict())
    same(our, their)


def test_saving_and_loading_is_exact():
    one, other = ours(seed=1), ours(seed=2)
    GPT2.load(other, GPT2.save(one))
    assert torch.equal(logits(one), logits(other))


def test_folders_are_read_by_both(tmp_path):
    their, our = theirs(layer_norm_epsilon=1e-3), ours()
    their.save_pretrained(tmp_path / "theirs")
    same(read_gpt2(tmp_path / "theirs").eval(), their)
    write_gpt2(our, tmp_path / "ours")
    same(transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours").eval(), our)
    same(read_gpt2(tmp_path / "ours").eval(), our)


def test_names_and_shapes_that_do_not_fit_are_refused_and_nothing_changes():
    our, state = ours(), theirs().state_dict()
    before = logits(our)
    good = state.pop("transformer.h.1.mlp.c_fc.weight")
    with pytest.raises(KeyError, match=r"h\.1\.mlp\.c_fc\.weight is missing: the nearest name is h\.\d\.mlp\.c_"):
        GPT2.load(our, state)
    with pytest.raises(KeyError, match=r"h\.1\.mlp\.fc\.weight has no place in the model: .* h\.1\.mlp\.c_fc\.weight"):
        GPT2.load(our, state | {"h.1.mlp.fc.weight": good})
    with pytest.raises(ValueError, match=r"c_fc\.weight is to have the shape \(12, 48\): got \(48, 12\)"):
        GPT2.load(our, state | {"h.1.mlp.c_fc.weight": good.T})
    with pytest.raises(ValueError, match="are one parameter"):
        GPT2.load(our, state | {"h.1.mlp.c_fc.weight": good, "lm_head.weight": torch.zeros(11, 12)})
    assert torch.equal(logits(our), before)


def test_other_models_are_refused():
    with pytest.raises(TypeError, match=r"order \(sf\)\* is wanted: got ssff"):
        GPT2.save(Decoder(replace(ours().config, order="s2f2")))
    with pytest.raises(TypeError, match=r"is wanted: got .*Linear"):
        GPT2.save(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"no place for layers\.0\.block\.query_norm\.weight"):
        GPT2.save(Decoder(DecoderConfig(vocab=11, d=16, depth=1)))
    with pytest.raises(ValueError, match=r"wants a parameter positions\.weight"):
        GPT2.save(Decoder(replace(ours().config, positions=None)))


@pytest.mark.parametrize(
    "fields",
    [
        {"tie_word_embeddings": False},
        {"n_inner": 20},
        *({"activation_function": name} for name in ("gelu_pytorch_tanh", "gelu", "relu", "silu")),
    ],
    ids=str,
)
def test_fields_of_the_config_are_honoured_both_ways(fields, tmp_path):
    their = theirs(**fields)
    their.save_pretrained(tmp_path / "theirs", max_shard_size="2KB")
    our = read_gpt2(tmp_path / "theirs").eval()
    same(our, their)
    write_gpt2(our, tmp_path / "ours")
    same(transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours").eval(), their)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"scale_attn_weights": False}, "scale_attn_weights is to be True, as in GPT-2: got False"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is to be False"),
        ({"add_cross_attention": True}, "add_cross_attention is to be False"),
        ({"activation_function": "mish"}, "is to be one of gelu_new, .*: got 'mish'"),
        ({"model_type": "llama"}, "is to be of the model_type gpt2: got 'llama'"),
        ({"n_layer": None}, "is to have a whole number n_layer: got None"),
    ],
)
def test_a_config_that_asks_for_something_else_is_refused(fields, sentence, tmp_path):
    write_gpt2(ours(), tmp_path)
    sizes = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(sizes | fields))
    with pytest.raises(ValueError, match=sentence):
        read_gpt2(tmp_path)


def attention(**options):
    return {"attention": partial(MultiHeadAttention, **{"num_heads": 3} | options)}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"mask": Mask(causal=True, window=3)}, "mask but a causal one"),
        ({"positions": SinusoidalPositions}, "positions but learned ones: got Sinusoidal"),
        (attention(position_bias=ALiBi(3)), "position_bias: got ALiBi"),
        (attention(rotary=RotaryEmbedding(4)), "rotary: got Rotary"),
        (attention(kernel=LinearAttention()), "kernel but a softmax over all keys: got Linear"),
        (attention(heads=[HeadSpec(4, count=3, groups=1)]), "heads but alike ones"),
        (attention(heads=[HeadSpec(count=3, key=2, value=4)]), "heads but alike ones"),
        ({"feed_forward": partial(FeedForward, activation=squared_relu)}, "activation relu_squared"),
        ({"feed_forward": GatedFeedForward}, "feed-forward block but FeedForward: got GatedFeedForward"),
        ({"norm": nn.RMSNorm}, "norm but a layer norm with weights: got RMSNorm"),
        ({"residual": post_norm}, "residual but pre_norm"),
        ({"extras": TransformerExtras(softcap=5.0)}, "softcap"),
        ({"extras": TransformerExtras(shortcut=WeightedSum)}, "shortcut"),
        ({"extras": TransformerExtras(gate=LayerScale)}, "gate but dropout: got LayerScale"),
    ],
)
def test_a_model_that_is_not_gpt2_is_not_written(options, what, tmp_path):
    with pytest.raises(ValueError, match=f"GPT-2 has no {what}"):
        write_gpt2(Decoder(replace(ours().config, **options)), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_weights_of_a_compiled_model_are_read():
    their, our = theirs(), ours()
    GPT2.load(our, {f"_orig_mod.{name}": x for name, x in their.state_dict().items()})
    same(our, their)
