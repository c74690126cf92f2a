"""Models of Hugging Face, loaded from disk: looked into as they are, and read as a decoder of this library."""

import pytest
import torch
from torch import nn

from lawful.inference.likelihood import token_log_probs
from lawful.models.gpt2_weights import read_gpt2
from lawful.probe import (
    activation_patching,
    attribution_patching,
    head_attribution,
    head_scores,
    layer_attribution,
    logit_lens,
    path_expansion,
    paths_by_length,
    qk_circuit,
    record,
    repeated_random_tokens,
    zero_ablation,
)

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    sizes = {"vocab_size": 17, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 16}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    folder = tmp_path_factory.mktemp("gpt2")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["sdpa", "eager"])
def theirs(folder, request):
    return transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation=request.param).eval()


TOKENS = torch.tensor([[1, 5, 3, 5, 1], [2, 2, 9, 16, 0]])


def test_patterns_of_fused_attention_are_those_that_the_eager_one_returns(folder):
    fused, eager = (
        transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation=kind).eval()
        for kind in ("sdpa", "eager")
    )
    with torch.no_grad(), record(fused, "transformer.h.*.attn.pattern") as tape:
        fused(TOKENS)
        wanted = eager(TOKENS, output_attentions=True).attentions
    assert len(tape) == 2
    for i, pattern in enumerate(wanted):
        assert torch.allclose(tape[f"transformer.h.{i}.attn.pattern"], pattern, atol=1e-5)


def test_the_lens_and_the_layers_add_up_without_conversion(theirs):
    with torch.no_grad():
        logits = theirs(TOKENS).logits
        lens = logit_lens(theirs, TOKENS)
        parts = layer_attribution(theirs, {"input_ids": TOKENS}, position=2)
    assert torch.allclose(lens[-1], logits, atol=1e-4)
    assert parts.names == ("embedding", "transformer.h.0", "transformer.h.1", "bias")
    assert torch.allclose(parts.sum(), logits[:, 2], atol=1e-4)


def test_modules_can_be_edited(theirs):
    with torch.no_grad(), record(theirs, "transformer.ln_f.input", edit={"transformer.h.?.mlp": zero_ablation}) as tape:
        changed = theirs(TOKENS).logits
    assert not torch.allclose(changed, theirs(TOKENS).logits)
    assert tape["transformer.ln_f.input"].shape == (2, 5, 12)


def test_read_as_a_decoder_heads_and_paths_add_up_to_their_logits(folder, theirs):
    model = read_gpt2(folder).eval()
    with torch.no_grad():
        wanted = theirs(TOKENS).logits[:, -1]
        heads, paths = head_attribution(model, TOKENS), path_expansion(model, TOKENS)
        lengths = paths_by_length(model, TOKENS)
    for parts in (heads, paths, lengths):
        assert torch.allclose(parts.sum(), wanted, atol=1e-4)
    assert [name for name in heads.names if name.startswith("layers.2.")] == [
        *(f"layers.2.head.{i}" for i in range(3)), "layers.2.rest",
    ]  # fmt: skip
    assert len(paths) == (1 + 3) * (1 + 3) + (1 + 3) + 1 + 1  # from the embedding, each feed-forward block, the biases
    assert "layers.1 → 2.1" in paths.names


def test_heads_of_theirs_are_scored_and_patched_by_their_patterns(folder):
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    scores = head_scores(model, repeated_random_tokens(vocab=17, period=5, batch=3), period=5, names="*.attn.pattern")
    assert {name: s.shape for name, s in scores["induction"].items()} == {
        f"transformer.h.{i}.attn.pattern": (3,) for i in range(2)
    }
    clean, corrupted = TOKENS, TOKENS.roll(1, 0)
    options = {"names": "transformer.h.?.attn.pattern", "metric": lambda y: y.logits[:, -1, 3].sum(), "axis": 1}
    exact = activation_patching(model, clean, corrupted, **options)
    estimated = attribution_patching(model, clean, corrupted, **options)
    assert all(exact[name].shape == estimated[name].shape == (3,) for name in exact)


def test_edits_and_patches_take_the_first_of_a_tuple(folder):
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    with torch.no_grad():
        with record(model, edit={"transformer.h.0.attn": zero_ablation}):
            one = model(TOKENS).logits
        with record(model, edit={"transformer.h.0.attn.c_proj": zero_ablation}):
            other = model(TOKENS).logits
    assert torch.equal(one, other)
    clean, corrupted = TOKENS, TOKENS.roll(1, 0)
    options = {"metric": lambda y: y.logits[:, -1, 3].sum(), "axis": 1}
    for patching in (activation_patching, attribution_patching):
        tuples = patching(model, clean, corrupted, names="transformer.h.?.attn", **options)
        tensors = patching(model, clean, corrupted, names="transformer.h.?.attn.c_proj", **options)
        assert len(tuples) == 2
        for name, effect in tuples.items():
            torch.testing.assert_close(effect, tensors[f"{name}.c_proj"])


def test_what_a_model_has_not_is_said(folder):
    fused, eager = (
        transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation=kind).eval()
        for kind in ("sdpa", "eager")
    )
    sentence = r'did not come up \(.*attn_implementation="sdpa"\)'
    with pytest.raises(LookupError, match=sentence), record(eager, "*.pattern"):
        eager(TOKENS)
    sentence = r"near names: transformer\.h\.0\.attn\.pattern"
    with pytest.raises(LookupError, match=sentence), record(fused, "transformer.h.0.attn.patern"):
        fused(TOKENS)
    with pytest.raises(LookupError, match=r"read_gpt2 reads a GPT-2 so"):
        head_attribution(fused, TOKENS)
    with pytest.raises(TypeError, match=r"a MultiHeadAttention was wanted .*: got GPT2Attention"):
        qk_circuit(fused.transformer.h[0].attn, 0)


def test_their_texts_are_as_probable_as_ours(folder, theirs):
    ours, text = read_gpt2(folder), [1, 5, 3, 5, 1, 2]
    assert torch.allclose(token_log_probs(theirs, text), token_log_probs(ours, text), atol=1e-4)
