from functools import partial

import pytest
import torch
from torch import nn

from lawful.blocks.attention import HeadSpec, MultiHeadAttention
from lawful.blocks.residual import ReZero, LayerScale, WeightedSum, post_norm, sandwich_norm
from lawful.models.transformer import Decoder, DecoderConfig, TransformerExtras
from lawful.probe import attention_only, induction_model, path_expansion, path_terms, paths_by_length, subnetworks

TOKENS = torch.tensor([[1, 2, 3, 1], [0, 4, 4, 2]])


def decoder(**options):
    torch.manual_seed(0)
    model = Decoder(
        DecoderConfig(**{"vocab": 5, "d": 8, "depth": 2, "order": "s*", "extras": TransformerExtras()} | options)
    )
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    return model


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": nn.LayerNorm},
        {"attention": partial(MultiHeadAttention, heads=[HeadSpec(count=2, key=3), HeadSpec(count=1, key=5, value=2)])},
        {"attention": partial(MultiHeadAttention, heads=[HeadSpec(key=2, count=4, groups=2)])},
        {"order": "(sf)*"},
        {"order": "fsfs", "norm": nn.LayerNorm},
        {"tied": True},
        {"order": "(sf)*", "extras": TransformerExtras(shortcut=partial(WeightedSum, start=(0.5, 2.0)))},
        {"extras": TransformerExtras(gate=LayerScale)},
        {
            "residual": sandwich_norm,
            "norm": nn.LayerNorm,
            "order": "hsh",
            "extras": TransformerExtras(gate=lambda d: ReZero()),
        },
    ],
)
@pytest.mark.parametrize("position", [0, -1])
def test_the_paths_sum_to_the_logits(options, position):
    model = decoder(**options)
    wanted = model(TOKENS)[:, position]
    for parts in (path_expansion(model, TOKENS, position=position), paths_by_length(model, TOKENS, position=position)):
        assert torch.allclose(parts.sum(), wanted, rtol=1e-4, atol=1e-4 * wanted.abs().max().item())


def test_there_is_a_path_for_every_choice_in_every_layer():
    model = attention_only(vocab=5, d=6, depth=3, heads=2)
    parts = path_expansion(model, TOKENS[0])
    assert len(parts) == 3**3 + 1
    assert sum(name.count("→") == 2 for name in parts.names) == 3 * 2 * 2
    assert parts.logits.shape == (28, 5)


def test_the_path_of_an_induction_head_carries_the_answer():
    model = induction_model(vocab=6, context=8)
    parts = path_expansion(model, torch.tensor([3, 1, 4, 5, 3]))
    assert parts.largest(1, token=1) == [("embedding → 1.1", pytest.approx(1.0))]
    assert parts.largest(3, token=1, over=2)[0][0] == "embedding → 1.1"
    with pytest.raises(KeyError, match="near names"):
        parts["embedding → 1.7"]


def test_too_many_paths_are_refused_and_lengths_are_not():
    model = attention_only(vocab=5, d=8, depth=12, heads=4)
    with pytest.raises(ValueError, match="there are 244,140,625 paths, more than most=4,096: merge"):
        path_expansion(model, TOKENS)
    parts = paths_by_length(model, TOKENS)
    assert parts.names[-2:] == ("12 heads", "bias")
    assert torch.allclose(parts.sum(), model(TOKENS)[:, -1], atol=1e-4)


class Bent(nn.Module):
    """A shortcut that is no sum."""

    def forward(self, x, y):
        return torch.tanh(x) + y


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"residual": post_norm, "norm": nn.LayerNorm}, r"layers\.0 has a norm after the addition"),
        ({"extras": TransformerExtras(shortcut=Bent)}, r"something between layers\.0 and layers\.1 changes the stream"),
        (
            {"extras": TransformerExtras(value_residual=partial(WeightedSum, start=(0.5, 0.5)))},
            r"layers\.1 is not the sum of its heads .*: its values are mixed with others",
        ),
        ({"extras": TransformerExtras(gate=lambda d: nn.Tanh())}, r"the gate of layers\.0 is no linear map: got Tanh"),
    ],
)
def test_what_is_more_than_a_sum_is_refused_not_split_wrongly(options, why):
    model = decoder(**options)
    for split in (path_expansion, paths_by_length):
        with pytest.raises(ValueError, match=why):
            split(model, TOKENS)


def test_a_model_without_heads_and_one_without_anatomy_are_refused():
    with pytest.raises(ValueError, match="a model with MultiHeadAttention was wanted"):
        path_expansion(decoder(order="f*"), TOKENS)
    with pytest.raises(ValueError, match=r"the model has no embedding.*: give an Anatomy"):
        path_expansion(nn.Sequential(nn.Linear(2, 2)), TOKENS)


def test_the_terms_of_subsets_of_any_residual_network_sum_to_it():
    model, x = decoder(order="(sf)*", norm=nn.RMSNorm), TOKENS
    names = [f"layers.{i}.added" for i in range(4)]
    outputs = subnetworks(lambda: model(x), model, names)
    assert len(outputs) == 16
    assert torch.equal(outputs[-1], model(x))
    assert torch.allclose(path_terms(outputs).sum(0), model(x), atol=1e-3)
    with pytest.raises(ValueError, match="16 blocks have 65,536 subsets, more than most=1,024: name fewer"):
        subnetworks(lambda: model(x), model, names * 4)
    with pytest.raises(ValueError, match="all 2\\^n subsets were wanted: got 3"):
        path_terms(torch.ones(3))
