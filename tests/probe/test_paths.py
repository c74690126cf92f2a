"""Path expansion, and residual networks as ensembles."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import nn

from lawful.blocks import (
    HeadSpec,
    LayerScale,
    MultiHeadAttention,
    Residual,
    ReZero,
    WeightedSum,
    post_norm,
    sandwich_norm,
)
from lawful.blocks.residual import residual_paths
from lawful.laws import Claim, agreement, shape, tokens
from lawful.models.transformer import TransformerExtras, decoder
from lawful.probe import (
    attention_only_model,
    induction_model,
    path_expansion,
    path_terms,
    paths_by_length,
    record,
    subnetworks,
)

TOKENS = torch.tensor([[1, 2, 3, 1], [0, 4, 4, 2]])


def random_decoder(**options):
    torch.manual_seed(0)
    model = decoder(**{"vocab_size": 5, "dim": 8, "num_layers": 2, "layer_pattern": "s*"} | options)
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
        {"layer_pattern": "(sf)*"},
        {"layer_pattern": "fsfs", "norm": nn.LayerNorm},
        {"tie_embeddings": True},
        {
            "layer_pattern": "(sf)*",
            "extras": TransformerExtras(embedding_skip=partial(WeightedSum, init_value=(0.5, 2.0))),
        },
        {
            "attention": partial(MultiHeadAttention, num_heads=2),
            "extras": TransformerExtras(embedding_skip=partial(WeightedSum, init_value=(0.5, 2.0))),
        },
        {"extras": TransformerExtras(gate=LayerScale)},
        {
            "residual": sandwich_norm,
            "norm": nn.LayerNorm,
            "layer_pattern": "hsh",
            "extras": TransformerExtras(gate=lambda d: ReZero()),
        },
    ],
)
@pytest.mark.parametrize("position", [0, -1])
def test_the_paths_sum_to_the_logits(options, position):
    model = random_decoder(**options)
    expected = model(TOKENS)[:, position]
    for parts in (path_expansion(model, TOKENS, position=position), paths_by_length(model, TOKENS, position=position)):
        assert torch.allclose(parts.sum(), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


def test_the_bias_of_the_head_belongs_to_one_path():
    model = random_decoder(norm=nn.LayerNorm)
    model.head = nn.Linear(8, 5)
    expected = model(TOKENS)[:, -1]
    assert torch.allclose(path_expansion(model, TOKENS, position=-1).sum(), expected, rtol=1e-4, atol=1e-4)


def test_number_of_paths():
    model = attention_only_model(vocab_size=5, dim=6, num_layers=3, num_heads=2)
    parts = path_expansion(model, TOKENS[0])
    assert len(parts) == 3**3 + 1
    assert sum(name.count("→") == 2 for name in parts.names) == 3 * 2 * 2
    assert parts.logits.shape == (28, 5)


def test_the_path_through_the_induction_head_is_the_largest():
    model = induction_model(vocab_size=6, context_length=8)
    parts = path_expansion(model, torch.tensor([3, 1, 4, 5, 3]))
    assert parts.top(1, token=1) == [("embedding → 1.1", pytest.approx(1.0))]
    assert parts.top(3, token=1, minus=2)[0][0] == "embedding → 1.1"
    with pytest.raises(KeyError, match="did you mean"):
        parts["embedding → 1.7"]


def test_too_many_paths_raise_but_lengths_do_not():
    model = attention_only_model(vocab_size=5, dim=8, num_layers=12, num_heads=4)
    with pytest.raises(ValueError, match="244,140,625 paths, more than max_paths=4,096"):
        path_expansion(model, TOKENS)
    parts = paths_by_length(model, TOKENS)
    assert parts.names[-2:] == ("12 heads", "bias")
    assert torch.allclose(parts.sum(), model(TOKENS)[:, -1], atol=1e-4)


class NonlinearSkip(nn.Module):
    """A skip connection that is not linear."""

    def forward(self, x, y):
        return torch.tanh(x) + y


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"residual": post_norm, "norm": nn.LayerNorm}, r"layers\.0 has a norm after the addition"),
        (
            {"extras": TransformerExtras(embedding_skip=NonlinearSkip)},
            r"the residual stream changes between layers\.0 and layers\.1",
        ),
        (
            {"extras": TransformerExtras(value_residual=partial(WeightedSum, init_value=(0.5, 0.5)))},
            r"layers\.1 is not the sum of its heads .*: it has a value residual",
        ),
        ({"extras": TransformerExtras(gate=lambda d: nn.Tanh())}, r"the gate of layers\.0 must be linear, got Tanh"),
    ],
)
def test_a_residual_stream_that_is_not_a_sum_raises(options, why):
    model = random_decoder(**options)
    for split in (path_expansion, paths_by_length):
        with pytest.raises(ValueError, match=why):
            split(model, TOKENS)


def test_models_without_heads_or_layout_raise():
    with pytest.raises(ValueError, match=r"path expansion needs lawful\.blocks\.MultiHeadAttention"):
        path_expansion(random_decoder(layer_pattern="f*"), TOKENS)
    with pytest.raises(ValueError, match=r"the model has no module 'embedding'"):
        path_expansion(nn.Sequential(nn.Linear(2, 2)), TOKENS)


def test_interaction_terms_sum_to_the_output():
    model, x = random_decoder(layer_pattern="(sf)*", norm=nn.RMSNorm), TOKENS
    names = [f"layers.{i}.added" for i in range(4)]
    outputs = subnetworks(lambda: model(x), model, names)
    assert len(outputs) == 16
    assert torch.equal(outputs[-1], model(x))
    assert torch.allclose(path_terms(outputs).sum(0), model(x), atol=1e-3)
    with pytest.raises(ValueError, match="16 blocks have 65,536 subsets, more than max_subsets=1,024"):
        subnetworks(lambda: model(x), model, names * 4)
    with pytest.raises(ValueError, match="expected 2\\^n outputs, one per subset, got 3"):
        path_terms(torch.ones(3))


def claims() -> Iterator[Claim]:
    """Second derivations of path expansion and of interaction terms."""
    yield from path_claims(attention_only_model(vocab_size=5, dim=4))
    yield from subnetwork_claims()


def path_claims(model) -> Iterator[Claim]:
    for function in (path_expansion, paths_by_length):

        def total(x, function=function):
            return function(model, x, position=1).sum()

        logits = agreement(other=lambda x: model(x)[..., 1, :])
        yield Claim(logits, total, tokens("b t:2..4", vocab_size=5), name=f"sum of {function.__name__}, no norm")

    def sums_by_length(x):
        parts = path_expansion(model, x, position=1)
        lengths = torch.tensor([name.count("→") for name in parts.names[:-1]])
        return torch.stack([parts.logits[:-1][lengths == m].sum(0) for m in range(3)])

    def by_length(x):
        return paths_by_length(model, x, position=1).logits[:-1]

    def one_path(x):
        return path_expansion(model, x, position=-1)["embedding → 0.1 → 1.0"]

    def from_weights(x):
        weights = dict(model.named_parameters())
        first, last = (
            weights[f"layers.{i}.attention.out.weight"][:, v] @ weights[f"layers.{i}.attention.value.weight"][v]
            for i, v in ((0, slice(2, 4)), (1, slice(2)))
        )
        with record(model, "layers.0.input", "layers.?.attention.pattern") as cache:
            model(x)
        y = torch.einsum("bts,bsd,ed->bte", cache["layers.0.attention.pattern"][:, 1], cache["layers.0.input"], first)
        y = torch.einsum("bts,bsd,ed->bte", cache["layers.1.attention.pattern"][:, 0], y, last)
        return y[:, -1] @ model.head.weight.mT

    def counts(x):
        deep = attention_only_model(vocab_size=5, dim=6, num_layers=len(x), num_heads=3)
        parts = path_expansion(deep, torch.tensor([1, 2]))
        return x.new_tensor([len(parts), len(set(parts.names))])

    number = agreement(other=lambda x: x.new_tensor([4 ** len(x) + 1] * 2))
    yield Claim(
        agreement(other=by_length), sums_by_length, tokens("b t:2..4", vocab_size=5), name="paths of equal length"
    )
    yield Claim(
        agreement(other=from_weights), one_path, tokens("b t:1..5", vocab_size=5), name="one path, from weights"
    )
    yield Claim(number, counts, shape("n:1..3"), name="number of paths")


def subnetwork_claims() -> Iterator[Claim]:
    linear_blocks = [nn.Linear(3, 3, bias=False) for _ in range(3)]
    nonlinear_blocks = [nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh()) for _ in range(3)]
    linear, nonlinear = (nn.Sequential(*map(Residual, blocks)) for blocks in (linear_blocks, nonlinear_blocks))

    def terms(x, model):
        return path_terms(subnetworks(lambda: model(x), model, ["0.block", "1.block", "2.block"]))

    def difference(x):
        f, g, _ = nonlinear_blocks
        return g(x + f(x)) - g(x)

    paths = agreement(other=lambda x: residual_paths(linear_blocks, x))
    yield Claim(
        agreement(other=nonlinear), lambda x: terms(x, nonlinear).sum(0), shape("b 3"), name="sum of path_terms"
    )
    yield Claim(paths, lambda x: terms(x, linear), shape("b 3"), name="path_terms of linear blocks")
    yield Claim(agreement(other=difference), lambda x: terms(x, nonlinear)[3], shape("b 3"), name="term of two blocks")
