"""Logit lens and direct logit attribution."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from lawful.blocks import (
    LayerScale,
    MultiHeadAttention,
    ReZero,
    WeightedSum,
    post_norm,
    sandwich_norm,
)
from lawful.laws import Claim, agreement, shape, tokens
from lawful.models.transformer import TransformerExtras, decoder
from lawful.probe import (
    LogitContributions,
    ModelLayout,
    at_index,
    attention_only_model,
    head_attribution,
    layer_attribution,
    logit_lens,
    patch,
    record,
    zero_ablation,
)

TOKENS = torch.tensor([[1, 2, 3, 1], [0, 4, 4, 2]])


@pytest.mark.parametrize("extras", [TransformerExtras(), TransformerExtras(softcap=5.0)])
def test_contributions_sum_to_the_logits_of_a_decoder(extras):
    torch.manual_seed(0)
    model = decoder(vocab_size=5, dim=8, num_layers=2, extras=extras, init=None)
    with record(model, "head") as cache:
        model(TOKENS)
    for parts in (layer_attribution(model, TOKENS), head_attribution(model, TOKENS)):
        assert torch.allclose(parts.sum(), cache["head"][:, -1], atol=1e-5)
    assert torch.allclose(logit_lens(model, TOKENS)[-1], cache["head"], atol=1e-5)


class CustomModel(nn.Module):
    """A residual model with other names."""

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


def test_a_model_with_other_names_needs_a_layout():
    model = CustomModel()
    names = ModelLayout(embedding="words", layers="stages", norm="final", head="logits")
    parts = layer_attribution(model, TOKENS, layout=names)
    assert torch.allclose(parts.sum(), model(TOKENS)[:, -1], atol=1e-5)
    assert torch.allclose(logit_lens(model, TOKENS, layout=names)[-1], model(TOKENS), atol=1e-5)
    with pytest.raises(ValueError, match="pass layout=ModelLayout"):
        logit_lens(model, TOKENS)


@pytest.mark.parametrize(
    "extras",
    [
        TransformerExtras(gate=partial(LayerScale, init_value=0.01)),
        TransformerExtras(
            gate=lambda d: ReZero(init_value=0.3), embedding_skip=partial(WeightedSum, init_value=(0.5, 2.0))
        ),
    ],
)
@pytest.mark.parametrize("layer_pattern", ["ss", "shs"])
def test_head_attribution_equals_ablation_in_the_last_layer(extras, layer_pattern):
    torch.manual_seed(0)
    model = decoder(
        vocab_size=5,
        dim=8,
        layer_pattern=layer_pattern,
        attention=partial(MultiHeadAttention, num_heads=2),
        norm=nn.LayerNorm,
        extras=replace(extras, final_norm=lambda dim: nn.Identity()),
        init=None,
    )
    last = len(layer_pattern) - 1
    parts, whole = head_attribution(model, TOKENS), model(TOKENS)[:, -1]
    assert torch.allclose(parts.sum(), whole, atol=1e-5)
    for head in range(2):
        without = at_index((..., head, slice(None), slice(None)), zero_ablation)
        with record(model, edits={f"layers.{last}.attention.heads": without}):
            effect = whole - model(TOKENS)[:, -1]
        torch.testing.assert_close(parts[f"layers.{last}.head.{head}"], effect, atol=1e-5, rtol=1e-4)


def test_sandwich_norm_works_and_post_norm_or_a_nonlinear_gate_raises():
    build = partial(decoder, vocab_size=5, dim=8, layer_pattern="s*", num_layers=2, norm=nn.LayerNorm, init=None)
    model = build(residual=sandwich_norm)
    assert torch.allclose(head_attribution(model, TOKENS).sum(), model(TOKENS)[:, -1], atol=1e-5)
    with pytest.raises(ValueError, match=r"layers\.0 has a norm after the addition"):
        head_attribution(build(residual=post_norm), TOKENS)
    with pytest.raises(ValueError, match=r"the gate of layers\.0 must be linear, got Tanh"):
        head_attribution(build(extras=TransformerExtras(gate=lambda d: nn.Tanh())), TOKENS)


def test_a_model_without_a_final_norm():
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
    layout = ModelLayout(layers="body.layers", norm=None)
    assert torch.allclose(logit_lens(model, TOKENS, layout=layout)[-1], model(TOKENS), atol=1e-5)
    assert torch.allclose(layer_attribution(model, TOKENS, layout=layout).sum(), model(TOKENS)[:, -1], atol=1e-5)


def claims() -> Iterator[Claim]:
    """Second derivations of the lens, of contributions, and of attribution against ablation."""
    yield from lens_claims()
    yield from attribution_claims()


def lens_claims() -> Iterator[Claim]:
    model = attention_only_model(vocab_size=5, dim=4, norm=nn.LayerNorm)

    def first_and_last(x):
        lens = logit_lens(model, x)
        return lens[0], lens[-1]

    def from_weights(x):
        start = model.embedding(x) + model.get_parameter("positions.weight")[: x.shape[1]]
        return model.norm(start) @ model.head.weight.mT, model(x)

    inputs = tokens("b t:1..5", vocab_size=5)
    yield Claim(agreement(other=from_weights), first_and_last, inputs, name="first and last entry of the lens")

    def contributions(x):
        parts = LogitContributions(tuple(str(i) for i in range(len(x))), x)
        (name, value), *_ = parts.top(2, token=1, minus=0)
        return parts.sum(), parts.logit(2, minus=0), torch.stack([x.new_tensor(value), parts[name].mean(0)[1]])

    def by_loop(x):
        difference = (x[:, :, 1] - x[:, :, 0]).mean(1)
        best = max(range(len(x)), key=lambda i: float(difference[i].abs()))
        return x.sum(0), x[:, :, 2] - x[:, :, 0], torch.stack([difference[best], x[best, :, 1].mean()])

    yield Claim(agreement(other=by_loop), contributions, shape("n:2..5 b 3"), name="LogitContributions")


def attribution_claims() -> Iterator[Claim]:
    model = attention_only_model(vocab_size=5, dim=4)
    for function in (layer_attribution, head_attribution):

        def total(x, function=function):
            return function(model, x, position=1).sum()

        logits = agreement(other=lambda x: model(x)[:, 1])
        yield Claim(logits, total, tokens("b t:2..5", vocab_size=5), name=f"sum of {function.__name__}, no norm")
    extras = TransformerExtras(
        gate=partial(LayerScale, init_value=0.3), embedding_skip=partial(WeightedSum, init_value=(0.5, 2.0))
    )
    gated = attention_only_model(vocab_size=5, dim=4, extras=extras)

    def attributed(x):
        parts = head_attribution(gated, x)
        return torch.stack([parts[f"layers.1.head.{head}"] for head in range(2)])

    def ablated(x):
        logits = []
        for head in range(2):
            ablation = at_index((..., head, slice(None), slice(None)), zero_ablation)
            with patch(gated, {"layers.1.attention.heads": ablation}):
                logits.append(gated(x)[:, -1])
        return gated(x)[:, -1] - torch.stack(logits)

    def embedding_part(x):
        return layer_attribution(gated, x)["embedding"]

    def from_skip_weights(x):
        start = gated.embedding(x) + gated.get_parameter("positions.weight")[: x.shape[1]]
        weight = 0.5 * (0.5 + 2.0) + 2.0
        return weight * start[:, -1] @ gated.head.weight.mT

    inputs = tokens("b t:1..5", vocab_size=5)
    yield Claim(agreement(other=ablated), attributed, inputs, name="a head, against ablation")
    yield Claim(agreement(other=from_skip_weights), embedding_part, inputs, name="the embedding, with skips")
