import json
from dataclasses import replace
from functools import partial

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F

from lawful.blocks import FeedForward, GatedFeedForward, HeadSpec, MultiHeadAttention, post_norm
from lawful.blocks.positions import ALiBi, LearnedPositions, RotaryEmbedding, SinusoidalPositions
from lawful.blocks.residual import LayerScale, WeightedSum
from lawful.functions.activations import squared_relu
from lawful.functions.attention import LinearAttention, Mask
from lawful.laws import Claim, agreement, tokens
from lawful.models import GELU_TANH, GPT2, GPT2_WEIGHTS, MINGPT_WEIGHTS, TransformerExtras, decoder, gpt, save_gpt2

SIZES = {"vocab_size": 11, "dim": 12, "num_layers": 2}


def theirs(seed=0, **sizes):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 11, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 9} | sizes
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(bos_token_id=0, eos_token_id=0, **sizes)).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model


def ours(bias=True, seed=1):
    torch.manual_seed(seed)
    return gpt(**SIZES, num_heads=3, context_length=9, bias=bias).eval()


def logits(model):
    tokens = torch.arange(18).reshape(2, 9) * 7 % 11
    found = model(tokens)
    return getattr(found, "logits", found)


def same(a, b):
    torch.testing.assert_close(logits(a), logits(b), rtol=1e-5, atol=1e-5)


def test_loads_hugging_face_weights():
    their, our = theirs(), ours()
    GPT2_WEIGHTS.load_state_dict(our, their.state_dict())
    same(our, their)
    assert our.head.weight is our.embedding.weight


def test_loads_names_without_prefix_and_masks():
    their, our = theirs(), ours()
    state = {name.removeprefix("transformer."): x for name, x in their.state_dict().items()}
    del state["lm_head.weight"]
    GPT2_WEIGHTS.load_state_dict(our, state | {f"h.{i}.attn.bias": torch.ones(1, 1, 9, 9).tril() for i in range(2)})
    same(our, their)


@pytest.mark.parametrize("bias", [True, False])
def test_hugging_face_loads_our_weights(bias):
    their, our = theirs(), ours(bias)
    for p in our.parameters():
        torch.nn.init.normal_(p, std=0.3)
    their.load_state_dict(GPT2_WEIGHTS.state_dict(our))
    same(our, their)


def test_missing_bias_accepts_only_zeros():
    their, our = theirs(), ours(bias=False)
    with pytest.raises(ValueError, match=r"h\.0\.ln_1\.bias must be zero: the model has no layers\.0\.norm\.bias"):
        GPT2_WEIGHTS.load_state_dict(our, their.state_dict())
    for name, p in their.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(p)
    GPT2_WEIGHTS.load_state_dict(our, their.state_dict())
    same(our, their)


def test_round_trip_is_exact():
    one, other = ours(seed=1), ours(seed=2)
    GPT2_WEIGHTS.load_state_dict(other, GPT2_WEIGHTS.state_dict(one))
    assert torch.equal(logits(one), logits(other))


def test_folders_are_read_by_both(tmp_path):
    their, our = theirs(layer_norm_epsilon=1e-3), ours()
    their.save_pretrained(tmp_path / "theirs")
    same(GPT2.from_pretrained(tmp_path / "theirs").eval(), their)
    save_gpt2(our, tmp_path / "ours")
    same(transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours").eval(), our)
    same(GPT2.from_pretrained(tmp_path / "ours").eval(), our)


def test_loads_a_hugging_face_model():
    their = theirs(layer_norm_epsilon=1e-3, activation_function="gelu")
    same(GPT2.from_pretrained(their), their)
    same(GPT2.from_pretrained(their.transformer), their)  # without the tied head
    untied = theirs(tie_word_embeddings=False)
    same(GPT2.from_pretrained(untied), untied)


def test_a_source_that_is_no_gpt2_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no config\.json in gpt2\. Nothing is downloaded"):
        GPT2.from_pretrained("gpt2")
    with pytest.raises(TypeError, match="got Linear, which has no configuration"):
        GPT2.from_pretrained(nn.Linear(2, 2))
    other = transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    with pytest.raises(ValueError, match="must be gpt2, got 'bert'"):
        GPT2.from_pretrained(transformers.BertModel(other))


def test_wrong_names_and_shapes_change_nothing():
    our, state = ours(), theirs().state_dict()
    before = logits(our)
    good = state.pop("transformer.h.1.mlp.c_fc.weight")
    with pytest.raises(KeyError, match=r"missing weight h\.1\.mlp\.c_fc\.weight \(nearest name: h\.\d\.mlp\.c_"):
        GPT2_WEIGHTS.load_state_dict(our, state)
    with pytest.raises(KeyError, match=r"unexpected weight h\.1\.mlp\.fc\.weight \(nearest .* h\.1\.mlp\.c_fc"):
        GPT2_WEIGHTS.load_state_dict(our, state | {"h.1.mlp.fc.weight": good})
    with pytest.raises(ValueError, match=r"c_fc\.weight of shape \(12, 48\), got \(48, 12\)"):
        GPT2_WEIGHTS.load_state_dict(our, state | {"h.1.mlp.c_fc.weight": good.T})
    with pytest.raises(ValueError, match="are tied in the model"):
        GPT2_WEIGHTS.load_state_dict(our, state | {"h.1.mlp.c_fc.weight": good, "lm_head.weight": torch.zeros(11, 12)})
    assert torch.equal(logits(our), before)


def test_other_models_are_rejected():
    with pytest.raises(TypeError, match=r"layer_pattern \(sf\)\*, got ssff"):
        GPT2_WEIGHTS.state_dict(decoder_with(layer_pattern="s2f2"))
    with pytest.raises(TypeError, match=r"got Linear"):
        GPT2_WEIGHTS.state_dict(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"no weight for parameter layers\.0\.attention\.(query|key)_norm\.weight"):
        GPT2_WEIGHTS.state_dict(decoder(vocab_size=11, dim=16, num_layers=1))
    with pytest.raises(ValueError, match=r"needs a parameter positions\.weight"):
        GPT2_WEIGHTS.state_dict(decoder_with(positions=None))


@pytest.mark.parametrize(
    "fields",
    [
        {"tie_word_embeddings": False},
        {"n_inner": 20},
        *({"activation_function": name} for name in ("gelu_pytorch_tanh", "gelu", "relu", "silu")),
    ],
    ids=str,
)
def test_config_fields_round_trip(fields, tmp_path):
    their = theirs(**fields)
    their.save_pretrained(tmp_path / "theirs", max_shard_size="2KB")
    our = GPT2.from_pretrained(tmp_path / "theirs").eval()
    same(our, their)
    save_gpt2(our, tmp_path / "ours")
    same(transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours").eval(), their)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"scale_attn_weights": False}, "scale_attn_weights=False is not supported"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True is not supported"),
        ({"add_cross_attention": True}, "add_cross_attention=True is not supported"),
        ({"activation_function": "mish"}, "must be one of gelu_new, .*, got 'mish'"),
        ({"model_type": "llama"}, "must be gpt2, got 'llama'"),
        ({"n_layer": None}, "n_layer in config.json must be an integer, got None"),
    ],
)
def test_unsupported_configs_are_rejected(fields, sentence, tmp_path):
    save_gpt2(ours(), tmp_path)
    sizes = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(sizes | fields))
    with pytest.raises(ValueError, match=sentence):
        GPT2.from_pretrained(tmp_path)


def decoder_with(**options):
    """A decoder like `gpt`, with other parts."""
    parts = {
        "attention": partial(MultiHeadAttention, num_heads=3),
        "feed_forward": partial(FeedForward, activation=GELU_TANH),
        "norm": nn.LayerNorm,
        "positions": partial(LearnedPositions, 9),
    }
    return decoder(**SIZES, **parts | options)


def attention(**options):
    return {"attention": partial(MultiHeadAttention, **{"num_heads": 3} | options)}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"mask": Mask(causal=True, window=3)}, "expected a causal mask"),
        ({"positions": SinusoidalPositions}, "expected LearnedPositions, got Sinusoidal"),
        (attention(position_bias=ALiBi(3)), "GPT-2 has no position_bias, got ALiBi"),
        (attention(rotary=RotaryEmbedding(4)), "GPT-2 has no rotary, got Rotary"),
        (attention(kernel=LinearAttention()), "expected softmax attention, got Linear"),
        (attention(heads=[HeadSpec(4, count=3, groups=1)]), "expected heads of size"),
        (attention(heads=[HeadSpec(count=3, key=2, value=4)]), "expected heads of size"),
        ({"feed_forward": partial(FeedForward, activation=squared_relu)}, "got squared_relu"),
        ({"feed_forward": GatedFeedForward}, "expected FeedForward, got GatedFeedForward"),
        ({"norm": nn.RMSNorm}, "expected LayerNorm with weights, got RMSNorm"),
        ({"residual": post_norm}, "expected pre_norm residual blocks"),
        ({"extras": TransformerExtras(softcap=5.0)}, "GPT-2 has no softcap"),
        ({"extras": TransformerExtras(embedding_skip=WeightedSum)}, "GPT-2 has no embedding_skips"),
        ({"extras": TransformerExtras(gate=LayerScale)}, "expected dropout as gate, got LayerScale"),
    ],
)
def test_other_models_are_not_saved(options, what, tmp_path):
    with pytest.raises(ValueError, match=what):
        save_gpt2(decoder_with(**options), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_loads_weights_of_a_compiled_model():
    their, our = theirs(), ours()
    GPT2_WEIGHTS.load_state_dict(our, {f"_orig_mod.{name}": x for name, x in their.state_dict().items()})
    same(our, their)


class Attention(nn.Module):
    def __init__(self, d, heads, bias):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d, bias=bias), nn.Linear(d, d, bias=bias)
        self.heads = heads
        self.register_buffer("bias", torch.ones(9, 9).tril().view(1, 1, 9, 9))

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.c_attn(x).chunk(3, -1))
        scores = (q @ k.mT / k.shape[-1] ** 0.5).masked_fill(
            self.bias[..., : x.shape[1], : x.shape[1]] == 0, -torch.inf
        )
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self, d, heads, bias):
        super().__init__()
        self.ln_1, self.ln_2 = (nn.LayerNorm(d, bias=bias) for _ in range(2))
        self.attn = Attention(d, heads, bias)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(d, 4 * d, bias=bias), "c_proj": nn.Linear(4 * d, d, bias=bias)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class MinGPT(nn.Module):
    """A GPT with the names of minGPT."""

    def __init__(self, d=12, heads=3, bias=True):
        super().__init__()
        layers = nn.ModuleList(Layer(d, heads, bias) for _ in range(2))
        tables = {"wte": nn.Embedding(11, d), "wpe": nn.Embedding(9, d)}
        self.transformer = nn.ModuleDict({**tables, "h": layers, "ln_f": nn.LayerNorm(d, bias=bias)})
        self.lm_head = nn.Linear(d, 11, bias=False)

    def forward(self, tokens):
        x = self.transformer["wte"](tokens) + self.transformer["wpe"].weight[: tokens.shape[1]]
        for layer in self.transformer["h"]:
            x = layer(x)
        return self.lm_head(self.transformer["ln_f"](x))


@pytest.mark.parametrize(("bias", "tied"), [(True, False), (False, True)])
def test_mingpt_weights_move_both_ways(bias, tied):
    torch.manual_seed(0)
    theirs = MinGPT(bias=bias)
    if tied:
        theirs.lm_head.weight = theirs.transformer["wte"].weight
    ours = gpt(**SIZES, num_heads=3, context_length=9, bias=bias, tie_embeddings=tied)
    tokens = torch.arange(18).reshape(2, 9) * 7 % 11
    MINGPT_WEIGHTS.load_state_dict(ours, theirs.state_dict())
    torch.testing.assert_close(ours(tokens), theirs(tokens), rtol=1e-5, atol=1e-5)

    other = MinGPT(bias=bias)
    absent, unknown = other.load_state_dict(MINGPT_WEIGHTS.state_dict(ours), strict=False)
    assert (absent, unknown) == ([f"transformer.h.{i}.attn.bias" for i in range(2)], [])
    torch.testing.assert_close(other(tokens), theirs(tokens), rtol=0, atol=0)


def claims():
    """Second derivation of GPT-2: its equation."""
    model = gpt(vocab_size=5, dim=4, num_layers=1, num_heads=1, context_length=8)

    def equation(x):
        w = dict(model.named_parameters())
        y = w["embedding.weight"][x] + w["positions.weight"][: x.shape[1]]

        def normal(y, name):
            scaled = (y - y.mean(-1, keepdim=True)) / (y.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
            return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

        def affine(y, name):
            return y @ w[f"{name}.weight"].T + w[f"{name}.bias"]

        q, k, v = (
            affine(normal(y, "layers.0.norm"), f"layers.0.attention.{name}") for name in ("query", "key", "value")
        )
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = (q @ k.mT / 2).masked_fill(later, -torch.inf).softmax(-1)
        y = y + affine(weights @ v, "layers.0.attention.out")
        z = affine(normal(y, "layers.1.norm"), "layers.1.feed_forward.up")
        z = z / 2 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (z + 0.044715 * z**3)))
        return normal(y + affine(z, "layers.1.feed_forward.down"), "norm") @ w["embedding.weight"].T

    yield Claim(replace(agreement(other=equation), cases=20), model, tokens("b t:1..8", vocab_size=5), name="GPT-2")
