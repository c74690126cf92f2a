"""Public models satisfy their laws: tiny models of transformers, and x-transformers' Decoder.

Every model is made from its configuration, with each of its two implementations of attention.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from lawful import mask, shape, tokens
from lawful.laws import (
    Law,
    agreement,
    backend_agreement,
    batch_independence,
    cached_decoding,
    causality,
    checkpointed_gradient,
    chunk_consistency,
    determinism,
    every_parameter_receives_a_gradient,
    fully_masked_row_is_finite,
    gradient,
    layout_independence,
    masked_positions_have_no_influence,
    no_mutation,
    no_parameter_change,
    padding_invariance,
    ragged_batches,
    state_dict_round_trip,
    statelessness,
    train_eval_round_trip,
    weight_sharing,
)
from tests.checking.no_false_alarm.held import assert_held, select_laws

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
    transformers = pytest.importorskip("transformers")
    x_transformers = pytest.importorskip("x_transformers")

P = functools.partial
IDS, EMBEDDED, THERE = tokens("b t", vocab_size=32), shape("b t 16"), mask("b t")
CALM = (
    determinism(),
    statelessness(),
    no_mutation(),
    layout_independence(),
    no_parameter_change(),
    backend_agreement(),
)
SMOOTH = (*CALM, gradient(), checkpointed_gradient())
ROWS = (*SMOOTH, batch_independence(), chunk_consistency())
MODULE = (train_eval_round_trip(), state_dict_round_trip(), every_parameter_receives_a_gradient())
MASKED = (
    masked_positions_have_no_influence(),
    padding_invariance(),
    ragged_batches(),
    fully_masked_row_is_finite(),
)

# ---------------------------------------------------------------- transformers

TOKENS = {"vocab_size": 32, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
WIDTH = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def gpt2(**options):
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=128, **TOKENS, **options)
    return transformers.GPT2LMHeadModel(config)


def llama(**options):
    config = transformers.LlamaConfig(num_key_value_heads=1, max_position_embeddings=128, **WIDTH, **TOKENS, **options)
    return transformers.LlamaForCausalLM(config)


def bert(**options):
    return transformers.BertModel(transformers.BertConfig(max_position_embeddings=128, **WIDTH, **TOKENS, **options))


def t5(**options):
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0, **TOKENS, **options
    )
    return transformers.T5ForConditionalGeneration(config)


def gemma2(**options):
    config = transformers.Gemma2Config(
        num_key_value_heads=1, head_dim=8, max_position_embeddings=128, **WIDTH, **TOKENS, **options
    )
    return transformers.Gemma2ForCausalLM(config)


def bloom(**options):
    config = transformers.BloomConfig(hidden_size=16, n_layer=2, n_head=2, **TOKENS, **options)
    return transformers.BloomForCausalLM(config)


def qwen3():
    config = transformers.Qwen3Config(num_key_value_heads=1, head_dim=8, max_position_embeddings=128, **WIDTH, **TOKENS)
    return transformers.Qwen3ForCausalLM(config)


def mixtral():
    config = transformers.MixtralConfig(
        num_key_value_heads=1, num_local_experts=4, max_position_embeddings=128, **WIDTH, **TOKENS
    )
    return transformers.MixtralForCausalLM(config)


def olmo2():
    config = transformers.Olmo2Config(num_key_value_heads=1, max_position_embeddings=128, **WIDTH, **TOKENS)
    return transformers.Olmo2ForCausalLM(config)


def mamba2():
    config = transformers.Mamba2Config(
        hidden_size=16, num_heads=4, head_dim=8, state_size=8, n_groups=1, chunk_size=8, num_hidden_layers=2, **TOKENS
    )
    return transformers.Mamba2ForCausalLM(config)


def deberta_v2():
    config = transformers.DebertaV2Config(
        relative_attention=True, pos_att_type=["p2c", "c2p"], max_position_embeddings=128, **WIDTH, **TOKENS
    )
    return transformers.DebertaV2Model(config)


def modern_bert():
    config = transformers.ModernBertConfig(
        local_attention=8,
        global_attn_every_n_layers=2,
        max_position_embeddings=128,
        cls_token_id=0,
        sep_token_id=0,
        **WIDTH,
        **TOKENS,
    )
    return transformers.ModernBertModel(config)


def swin():
    config = transformers.SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[2, 1], num_heads=[1, 2], window_size=4
    )
    return transformers.SwinModel(config)


def convnext():
    config = transformers.ConvNextConfig(patch_size=2, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)
    return transformers.ConvNextModel(config)


def whisper_encoder():
    config = transformers.WhisperConfig(
        d_model=16,
        encoder_layers=2,
        encoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=32,
        decoder_start_token_id=0,
        num_mel_bins=8,
        max_source_positions=16,
        **TOKENS,
    )
    return transformers.WhisperModel(config).encoder


def itself(model):
    return model


def call_with_tokens(model):
    return lambda ids: model(input_ids=ids)[0]


def call_with_embeddings(model):
    return lambda x: model(inputs_embeds=x)[0]


def call_with_mask(model):
    return lambda ids, there: model(input_ids=ids, attention_mask=there.long())[0]


def embeddings_under_mask(model):
    return lambda x, there: model(inputs_embeds=x, attention_mask=there.long())[0]


def encoder_of(call):
    def of_encoder(model):
        return call(model.encoder)

    of_encoder.__name__ = f"encoder_{call.__name__}"
    return of_encoder


def call_decoder(model):
    return lambda ids, written: model(input_ids=ids, decoder_input_ids=written)[0]


PAIR = (IDS, tokens("b s", vocab_size=32))

TRANSFORMERS = [
    *[
        row
        for make in (gpt2, llama)
        for row in (
            (make, itself, IDS, (*ROWS, *MODULE, causality())),
            (make, call_with_embeddings, EMBEDDED, (*ROWS, causality())),
            (make, call_with_mask, (IDS, THERE), (*CALM, *MASKED)),
            (make, embeddings_under_mask, (EMBEDDED, THERE), MASKED),
        )
    ],
    (gpt2, itself, IDS, (weight_sharing(names=("transformer.wte.weight", "lm_head.weight")),)),
    (bert, itself, IDS, (*ROWS, *MODULE)),
    (bert, call_with_embeddings, EMBEDDED, ROWS),
    (bert, call_with_mask, (IDS, THERE), (*CALM, *MASKED)),
    (bert, embeddings_under_mask, (EMBEDDED, THERE), MASKED),
    (t5, call_decoder, PAIR, (*SMOOTH, batch_independence(input=(0, 1)), causality(input=1))),
    (t5, encoder_of(call_with_tokens), IDS, ROWS),
    (t5, encoder_of(call_with_mask), (IDS, THERE), (*CALM, *MASKED)),
    (t5, encoder_of(embeddings_under_mask), (EMBEDDED, THERE), MASKED),
    *[
        row
        for make in (gemma2, bloom)
        for row in (
            (make, itself, IDS, (*ROWS, *MODULE, causality())),
            (make, call_with_embeddings, EMBEDDED, (*ROWS, causality())),
            (make, call_with_mask, (IDS, THERE), (*CALM, *MASKED)),
            (make, embeddings_under_mask, (EMBEDDED, THERE), MASKED),
        )
    ],
]

EAGER_ONLY = (gemma2, bloom)

IMAGES = shape("b:1..3 3 16 16")
IMAGE_LAWS = (*SMOOTH, *MODULE, batch_independence())

MORE_TRANSFORMERS = [
    *[
        row
        for make in (qwen3, mixtral, olmo2)
        for row in (
            (make, itself, IDS, (*ROWS, *MODULE, causality())),
            (make, call_with_mask, (IDS, THERE), (*CALM, *MASKED)),
        )
    ],
    (mamba2, itself, IDS, (*ROWS, *MODULE, causality())),
    *[
        row
        for make in (deberta_v2, modern_bert)
        for row in (
            (make, itself, IDS, (*ROWS, *MODULE)),
            (make, call_with_mask, (IDS, THERE), (*CALM, *MASKED)),
        )
    ],
    (swin, itself, IMAGES, IMAGE_LAWS),
    (convnext, itself, IMAGES, IMAGE_LAWS),
    (whisper_encoder, itself, shape("b:1..3 8 32"), IMAGE_LAWS),
]

# ---------------------------------------------------------------- x-transformers

DECODERS = {
    "flash": {"attn_flash": True},
    "norms": {"use_rmsnorm": True, "attn_qk_norm": True, "ff_glu": True},
    "plain": {},
    "rotary": {"rotary_pos_emb": True, "attn_dim_head": 32, "rotary_emb_dim": 32},
    "alibi": {"alibi_pos_bias": True},
    "dropout": {"attn_dropout": 0.1, "ff_dropout": 0.1},
}


def decoder(options):
    return x_transformers.Decoder(**({"dim": 16, "depth": 2, "heads": 2, "attn_dim_head": 8} | options))


def decoder_under_mask(options):
    model = decoder(options)
    return lambda x, there: model(x, mask=there)


# ---------------------------------------------------------------- the tests


class Row(NamedTuple):
    name: str
    make: Callable[[], Any]
    inputs: Any
    laws: tuple[Law, ...]


def build_map(make, call, **options):
    return call(make(**options))


TABLE = [
    *[
        Row(
            f"{make.__name__}-{call.__name__}-{attention}",
            P(build_map, make, call, attn_implementation=attention),
            inputs,
            laws,
        )
        for make, call, inputs, laws in TRANSFORMERS
        for attention in ("eager", "sdpa")
        if attention == "eager" or make not in EAGER_ONLY
    ],
    *[
        Row(f"decoder-{name}", P(decoder, how), EMBEDDED, (*ROWS, *MODULE, causality()))
        for name, how in DECODERS.items()
    ],
    *[
        Row(
            f"decoder-{name}-under-mask",
            P(decoder_under_mask, how),
            (EMBEDDED, THERE),
            (*CALM, batch_independence(input=(0, 1)), *MASKED),
        )
        for name, how in DECODERS.items()
    ],
]

MORE = [
    Row(f"{make.__name__}-{call.__name__}", P(build_map, make, call), inputs, laws)
    for make, call, inputs, laws in MORE_TRANSFORMERS
]
FAST = [*TABLE, *(row for row in MORE if row.name in ("qwen3-itself", "modern_bert-call_with_mask", "swin-itself"))]


@pytest.mark.parametrize(("n", "row"), [pytest.param(n, row, id=row.name) for n, row in enumerate(FAST)])
def test_a_public_model_satisfies_one_of_its_laws(n, row):
    torch.manual_seed(0)
    assert_held(row.make(), select_laws(row.laws, n, count=1), row.inputs, 20)


@pytest.mark.long
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in TABLE])
def test_a_public_model_satisfies_its_laws(row):
    torch.manual_seed(0)
    assert_held(row.make(), row.laws, row.inputs, 200)


@pytest.mark.long
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in MORE])
def test_another_public_model_satisfies_its_laws(row):
    torch.manual_seed(0)
    assert_held(row.make(), row.laws, row.inputs, 20)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_cached_decoding(make, attention):
    torch.manual_seed(0)
    model = make(attn_implementation=attention).eval()

    def step(ids, cache):
        found = model(input_ids=ids, past_key_values=cache, use_cache=True)
        return found.logits, found.past_key_values

    assert_held(model, [cached_decoding(step=step)], IDS, 20)


@pytest.mark.parametrize("make", [gpt2, llama, bert])
def test_attention_implementations_agree(make):
    plain, fused = (make(attn_implementation=attention).eval() for attention in ("eager", "sdpa"))
    fused.load_state_dict(plain.state_dict())
    assert_held(plain, [agreement(other=fused)], IDS, 20)
