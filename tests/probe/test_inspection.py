"""Circuits, lens, attribution, detectors and patching, as a user has them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from lawful.blocks import ReZero, LayerScale, WeightedSum, post_norm, sandwich_norm
from lawful.blocks.attention import HeadSpec, MultiHeadAttention
from lawful.models.transformer import Decoder, DecoderConfig, TransformerExtras
from lawful.probe import (
    ModelLayout,
    activation_patching,
    attention_at_offset,
    attention_only,
    attribution_patching,
    copying,
    frozen_norm,
    head_attribution,
    head_scores,
    induction,
    induction_model,
    k_composition,
    layer_attribution,
    logit_lens,
    only,
    ov_circuit,
    path_patching,
    q_composition,
    qk_circuit,
    record,
    repeated_random_tokens,
    v_composition,
    vocab_circuit,
    zero_ablation,
)
from lawful.probe.toy_models import unchanged

TOKENS = torch.tensor([[1, 2, 3, 1], [0, 4, 4, 2]])


def test_circuits_of_low_rank_have_the_values_of_the_full_matrices():
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, heads=[HeadSpec(count=2, key=3, value=4), HeadSpec(count=2, groups=1, key=5)])
    for head in range(4):
        for circuit, full in (
            (qk_circuit(layer, head), layer.qk_matrix(head)),
            (ov_circuit(layer, head), layer.ov_matrix(head)),
        ):
            matrix = full.detach().double().numpy()
            rank = circuit.left.shape[1]
            assert np.allclose(circuit.singular_values().detach(), np.linalg.svd(matrix)[1][:rank], atol=1e-5)
            largest = sorted(np.abs(np.linalg.eigvals(matrix)), reverse=True)[:rank]
            assert np.allclose(circuit.eigenvalues().abs().detach(), largest, atol=1e-4)
            assert np.allclose(circuit.norm().detach(), np.linalg.norm(matrix), atol=1e-5)


def test_the_composition_of_an_induction_head_is_by_its_keys():
    model = induction_model(vocab=6, context=12)
    first, second = (layer.block for layer in model.layers)
    writer, reader = ov_circuit(first, 0), qk_circuit(second, 1)
    assert k_composition(reader, writer) > 0.1
    assert q_composition(reader, writer) == 0
    assert v_composition(ov_circuit(second, 1), writer) == 0
    copies = vocab_circuit(ov_circuit(second, 1), model.embedding.weight, model.head.weight)
    assert copying(copies).item() == pytest.approx(1.0)


def test_detectors_find_the_heads_that_were_built_in():
    model = induction_model(vocab=9, context=16)
    scores = head_scores(model, repeated_random_tokens(vocab=9, period=8), period=8)
    best = {
        kind: max((s.max().item(), name, int(s.argmax())) for name, s in found.items())
        for kind, found in scores.items()
    }
    assert best["previous_token"][1:] == ("layers.0.block.pattern", 0)
    assert best["induction"][1:] == ("layers.1.block.pattern", 1)
    assert best["duplicate_token"][0] < 0.3


def test_a_pattern_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match="a pattern of more than 9 queries and as many keys was wanted: got 4 x 4"):
        induction(torch.eye(4), 9)
    with pytest.raises(ValueError, match="got 4 x 3"):
        attention_at_offset(torch.ones(4, 3), 1)


def test_repeated_sequences_repeat_and_are_the_same_for_a_seed():
    x = repeated_random_tokens(vocab=3, period=5, batch=2, times=3, seed=1)
    assert x.shape == (2, 15)
    assert torch.equal(x[:, :5], x[:, 10:])
    assert torch.equal(x, repeated_random_tokens(vocab=3, period=5, batch=2, times=3, seed=1))
    assert not torch.equal(x, repeated_random_tokens(vocab=3, period=5, batch=2, times=3, seed=2))


@pytest.mark.parametrize("extras", [TransformerExtras(), TransformerExtras(softcap=5.0)])
def test_layers_and_heads_add_up_to_the_logits_of_a_full_decoder(extras):
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(vocab=5, d=8, depth=2, extras=extras))
    with record(model, "head") as tape:
        model(TOKENS)
    for parts in (layer_attribution(model, TOKENS), head_attribution(model, TOKENS)):
        assert torch.allclose(parts.sum(), tape["head"][:, -1], atol=1e-5)
    assert torch.allclose(logit_lens(model, TOKENS)[-1], tape["head"], atol=1e-5)


class Theirs(nn.Module):
    """A user's own residual model with names of its own."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(5, 6)
        self.stages = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.final, self.logits = nn.LayerNorm(6), nn.Linear(6, 5)

    def forward(self, x):
        x = self.words(x)
        for stage in self.stages:
            x = x + stage(x)
        return self.logits(self.final(x))


def test_a_models_own_names_are_given_as_an_anatomy():
    model = Theirs()
    names = ModelLayout(embedding="words", layers="stages", norm="final", head="logits")
    parts = layer_attribution(model, TOKENS, anatomy=names)
    assert torch.allclose(parts.sum(), model(TOKENS)[:, -1], atol=1e-5)
    assert torch.allclose(logit_lens(model, TOKENS, anatomy=names)[-1], model(TOKENS), atol=1e-5)
    with pytest.raises(ValueError, match="give an Anatomy"):
        logit_lens(model, TOKENS)


def test_a_norm_that_cannot_be_frozen_is_named():
    with pytest.raises(TypeError, match="can be frozen: got BatchNorm1d"):
        frozen_norm(nn.BatchNorm1d(4), torch.ones(2, 4))


def test_patching_finds_where_two_inputs_differ():
    model = induction_model(vocab=6, context=8)
    clean, corrupted = torch.tensor([[3, 1, 4, 5, 3]]), torch.tensor([[2, 1, 4, 5, 3]])

    def metric(logits):
        return logits[0, -1, 1]

    stream = activation_patching(model, clean, corrupted, names="layers.1.input", metric=metric, axis=1)
    assert stream["layers.1.input"].argmax() == 1  # there it is written what came before
    heads = activation_patching(model, clean, corrupted, names="layers.*.block.heads", metric=metric, axis=1)
    assert [found.argmax().item() for found in heads.values()] == [0, 1]
    key = path_patching(
        model, clean, corrupted, sender="layers.0.block.heads", receivers=["layers.1.block.k"],
        frozen="layers.*.added", metric=metric, part=(slice(None), 0),
    )  # fmt: skip
    query = path_patching(
        model, clean, corrupted, sender="layers.0.block.heads", receivers=["layers.1.block.q", "layers.1.block.v"],
        frozen="layers.*.added", metric=metric, part=(slice(None), 0),
    )  # fmt: skip
    assert key > 0.5
    assert abs(query) < 1e-6


def test_attribution_patching_is_exact_behind_frozen_patterns():
    """With its patterns held the rest of an attention-only model is affine in the values."""
    torch.manual_seed(0)
    model = attention_only(vocab=5, d=4, depth=1)
    options = {"names": "layers.0.block.z", "metric": lambda y: y[..., 1].sum(), "axis": -1}
    exact, estimated = (
        patching(model, TOKENS, TOKENS.flip(0), **options) for patching in (activation_patching, attribution_patching)
    )
    assert torch.allclose(exact["layers.0.block.z"], estimated["layers.0.block.z"], atol=1e-5)


def test_attribution_patching_works_on_a_frozen_model():
    model = attention_only(vocab=5, d=4).requires_grad_(False)
    found = attribution_patching(model, TOKENS, TOKENS.flip(0), names="layers.*.added", metric=torch.sum)
    assert len(found) == 2
    assert not any(effect.requires_grad for effect in found.values())


def test_a_patch_of_another_shape_is_refused():
    model = attention_only(vocab=5, d=4)
    with pytest.raises(ValueError, match=r"a value of shape .* was wanted: got"):
        activation_patching(model, TOKENS, TOKENS[:, :3], names="layers.0.added", metric=torch.sum)


@pytest.mark.parametrize(
    "extras",
    [
        TransformerExtras(gate=partial(LayerScale, init_value=0.01)),
        TransformerExtras(gate=lambda d: ReZero(init_value=0.3), shortcut=partial(WeightedSum, start=(0.5, 2.0))),
    ],
)
@pytest.mark.parametrize("order", ["ss", "shs"])
def test_what_a_head_of_the_last_layer_adds_is_what_goes_without_it(extras, order):
    torch.manual_seed(0)
    config = DecoderConfig(vocab=5, d=8, order=order, norm=nn.LayerNorm, extras=replace(extras, last=unchanged))
    model, last = Decoder(replace(config, attention=partial(MultiHeadAttention, num_heads=2))), len(order) - 1
    parts, whole = head_attribution(model, TOKENS), model(TOKENS)[:, -1]
    assert torch.allclose(parts.sum(), whole, atol=1e-5)
    for head in range(2):
        without = only((..., head, slice(None), slice(None)), zero_ablation)
        with record(model, edit={f"layers.{last}.block.heads": without}):
            effect = whole - model(TOKENS)[:, -1]
        torch.testing.assert_close(parts[f"layers.{last}.head.{head}"], effect, atol=1e-5, rtol=1e-4)


def test_heads_that_a_norm_or_a_bent_gate_follows():
    config = DecoderConfig(vocab=5, d=8, order="s*", depth=2, norm=nn.LayerNorm, extras=TransformerExtras())
    model = Decoder(replace(config, residual=sandwich_norm))
    assert torch.allclose(head_attribution(model, TOKENS).sum(), model(TOKENS)[:, -1], atol=1e-5)
    with pytest.raises(ValueError, match=r"layers\.0 has a norm after the addition"):
        head_attribution(Decoder(replace(config, residual=post_norm)), TOKENS)
    with pytest.raises(ValueError, match=r"the gate of layers\.0 is no linear map: got Tanh"):
        head_attribution(Decoder(replace(config, extras=TransformerExtras(gate=lambda d: nn.Tanh()))), TOKENS)


def test_a_model_without_a_last_norm():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.embedding, self.body = nn.Embedding(5, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(8, 5)

        def forward(self, tokens):
            return self.head(self.body(self.embedding(tokens)))

    torch.manual_seed(0)
    model = Own()
    with pytest.raises(ValueError, match="norm=None if there is no norm before the head"):
        logit_lens(model, TOKENS)
    where = ModelLayout(layers="body.layers", norm=None)
    assert torch.allclose(logit_lens(model, TOKENS, anatomy=where)[-1], model(TOKENS), atol=1e-5)
    assert torch.allclose(layer_attribution(model, TOKENS, anatomy=where).sum(), model(TOKENS)[:, -1], atol=1e-5)
