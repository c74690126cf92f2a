"""Hugging Face models from disk: probed as they are, and loaded as a decoder of this library."""

import pytest
import torch
from torch import nn

from lawful.inference.likelihood import token_log_probs
from lawful.models import GPT2
from lawful.probe import (
    activation_patching,
    attribution_patching,
    head_attribution,
    head_scores,
    layer_attribution,
    logit_lens,
    patch,
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


def test_recorded_patterns_of_sdpa_equal_those_of_eager_attention(folder):
    fused, eager = (
        transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation=kind).eval()
        for kind in ("sdpa", "eager")
    )
    with torch.no_grad(), record(fused, "transformer.h.*.attn.pattern") as cache:
        fused(TOKENS)
        expected = eager(TOKENS, output_attentions=True).attentions
    assert len(cache) == 2
    for i, pattern in enumerate(expected):
        assert torch.allclose(cache[f"transformer.h.{i}.attn.pattern"], pattern, atol=1e-5)


def test_lens_and_layer_attribution_work_without_conversion(theirs):
    with torch.no_grad():
        logits = theirs(TOKENS).logits
        lens = logit_lens(theirs, TOKENS)
        parts = layer_attribution(theirs, {"input_ids": TOKENS}, position=2)
    assert torch.allclose(lens[-1], logits, atol=1e-4)
    assert parts.names == ("embedding", "transformer.h.0", "transformer.h.1", "bias")
    assert torch.allclose(parts.sum(), logits[:, 2], atol=1e-4)


def test_modules_can_be_edited(theirs):
    with (
        torch.no_grad(),
        record(theirs, "transformer.ln_f.input", edits={"transformer.h.?.mlp": zero_ablation}) as cache,
    ):
        changed = theirs(TOKENS).logits
    assert not torch.allclose(changed, theirs(TOKENS).logits)
    assert cache["transformer.ln_f.input"].shape == (2, 5, 12)


def test_loaded_as_a_decoder_heads_and_paths_sum_to_the_logits(folder, theirs):
    model = GPT2.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = theirs(TOKENS).logits[:, -1]
        heads, paths = head_attribution(model, TOKENS), path_expansion(model, TOKENS)
        lengths = paths_by_length(model, TOKENS)
    for parts in (heads, paths, lengths):
        assert torch.allclose(parts.sum(), expected, atol=1e-4)
    assert [name for name in heads.names if name.startswith("layers.2.")] == [
        *(f"layers.2.head.{i}" for i in range(3)), "layers.2.rest",
    ]  # fmt: skip
    assert (
        len(paths) == (1 + 3) * (1 + 3) + (1 + 3) + 1 + 1
    )  # paths from the embedding and each feed-forward block, and the bias
    assert "layers.1 → 2.1" in paths.names


def test_heads_are_scored_and_patched(folder):
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    scores = head_scores(model, repeated_random_tokens(vocab_size=17, period=5, batch_size=3), period=5)
    assert {name: s.shape for name, s in scores["induction"].items()} == {
        f"transformer.h.{i}.attn.pattern": (3,) for i in range(2)
    }
    clean, corrupted = TOKENS, TOKENS.roll(1, 0)
    options = {"names": "transformer.h.?.attn.pattern", "metric": lambda y: y.logits[:, -1, 3].sum(), "axis": 1}
    exact = activation_patching(model, clean, corrupted, **options)
    estimated = attribution_patching(model, clean, corrupted, **options)
    assert all(exact[name].shape == estimated[name].shape == (3,) for name in exact)


def test_edits_apply_to_the_first_entry_of_a_tuple(folder):
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    with torch.no_grad():
        with patch(model, {"transformer.h.0.attn": zero_ablation}):
            one = model(TOKENS).logits
        with patch(model, {"transformer.h.0.attn.c_proj": zero_ablation}):
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


def test_missing_names_raise(folder):
    fused, eager = (
        transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation=kind).eval()
        for kind in ("sdpa", "eager")
    )
    message = r'did not occur \(.*attn_implementation="sdpa"\)'
    with pytest.raises(LookupError, match=message), record(eager, "*.pattern"):
        eager(TOKENS)
    message = r"did you mean transformer\.h\.0\.attn\.pattern"
    with pytest.raises(LookupError, match=message), record(fused, "transformer.h.0.attn.patern"):
        fused(TOKENS)
    with pytest.raises(LookupError, match=r"GPT2\.from_pretrained"):
        head_attribution(fused, TOKENS)
    with pytest.raises(TypeError, match=r"must be a lawful\.blocks\.MultiHeadAttention, got GPT2Attention"):
        qk_circuit(fused.transformer.h[0].attn, 0)


def test_log_probs_agree_with_the_converted_model(folder, theirs):
    ours, text = GPT2.from_pretrained(folder), [1, 5, 3, 5, 1, 2]
    assert torch.allclose(token_log_probs(theirs, text), token_log_probs(ours, text), atol=1e-4)
