"""Activation, attribution and path patching."""

from collections.abc import Iterator

import pytest
import torch
import transformers
from torch import nn

from lawful.laws import Claim, agreement, shape
from lawful.models import GPT2
from lawful.probe import (
    ablate_heads,
    activation_patching,
    attention_only_model,
    attribution_patching,
    find_induction_heads,
    induction_model,
    mean_ablation,
    path_patching,
)

TOKENS = torch.tensor([[1, 2, 3, 1], [0, 4, 4, 2]])


def test_patching_locates_the_difference_of_two_inputs():
    model = induction_model(vocab_size=6, context_length=8)
    clean, corrupted = torch.tensor([[3, 1, 4, 5, 3]]), torch.tensor([[2, 1, 4, 5, 3]])

    def metric(logits):
        return logits[0, -1, 1]

    stream = activation_patching(model, clean, corrupted, names="layers.1.input", metric=metric, axis=1)
    assert stream["layers.1.input"].argmax() == 1  # the position that holds the previous token
    heads = activation_patching(model, clean, corrupted, names="layers.*.attention.heads", metric=metric, axis=1)
    assert [found.argmax().item() for found in heads.values()] == [0, 1]
    key = path_patching(
        model, clean, corrupted, sender="layers.0.attention.heads", receivers=["layers.1.attention.k"],
        frozen="layers.*.added", metric=metric, index=(slice(None), 0),
    )  # fmt: skip
    query = path_patching(
        model, clean, corrupted, sender="layers.0.attention.heads",
        receivers=["layers.1.attention.q", "layers.1.attention.v"],
        frozen="layers.*.added", metric=metric, index=(slice(None), 0),
    )  # fmt: skip
    assert key > 0.5
    assert abs(query) < 1e-6


def test_attribution_patching_is_exact_for_affine_models():
    """With frozen patterns, an attention-only model is affine in the values."""
    torch.manual_seed(0)
    model = attention_only_model(vocab_size=5, dim=4, num_layers=1)
    options = {"names": "layers.0.attention.z", "metric": lambda y: y[..., 1].sum(), "axis": -1}
    exact, estimated = (
        patching(model, TOKENS, TOKENS.flip(0), **options) for patching in (activation_patching, attribution_patching)
    )
    assert torch.allclose(exact["layers.0.attention.z"], estimated["layers.0.attention.z"], atol=1e-5)


def test_attribution_patching_without_trainable_parameters():
    model = attention_only_model(vocab_size=5, dim=4).requires_grad_(False)
    found = attribution_patching(model, TOKENS, TOKENS.flip(0), names="layers.*.added", metric=torch.sum)
    assert len(found) == 2
    assert not any(effect.requires_grad for effect in found.values())


def test_a_patch_of_another_shape_raises():
    model = attention_only_model(vocab_size=5, dim=4)
    with pytest.raises(ValueError, match=r"expected a value of shape .*, got"):
        activation_patching(model, TOKENS, TOKENS[:, :3], names="layers.0.added", metric=torch.sum)


class Branches(nn.Module):
    """A model where a affects c directly and through b."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(3))

    def forward(self, x):
        a = self.a(x)
        return self.c(a + self.b(a))


def test_ablated_heads_equal_zeroed_weights():
    model = attention_only_model(vocab_size=5, dim=4, num_layers=2, num_heads=2)
    with ablate_heads(model, [("layers.0.attention", 1), (1, 0), ("layers.1.attention", 1, 0.7)]):
        found = model(TOKENS)
    before = model(TOKENS)
    with torch.no_grad():
        model.layers[0].attention.out.weight[:, 2:] = 0
        model.layers[1].attention.out.weight[:] = 0
    torch.testing.assert_close(found, model(TOKENS))
    assert not torch.allclose(found, before)


def test_ablated_induction_heads_predict_nothing():
    model, x = induction_model(vocab_size=8, context_length=16), torch.tensor([[3, 1, 4, 3]])
    for edit in (mean_ablation(), torch.zeros_like):
        with ablate_heads(model, find_induction_heads(model), edit=edit):
            found = model(torch.cat([x, x.flip(1)]))
        assert found[0, -1].max() < 0.9 < model(x)[0, -1].max()


def test_ablated_heads_of_a_hugging_face_model():
    config = transformers.GPT2Config(
        vocab_size=5, n_embd=4, n_layer=2, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    theirs = transformers.GPT2LMHeadModel(config).eval()
    with ablate_heads(theirs, [("transformer.h.1.attn", 0)]):
        found = theirs(TOKENS).logits
    ours = GPT2.from_pretrained(theirs)
    with ablate_heads(ours, [(1, 0)]):
        torch.testing.assert_close(found, ours(TOKENS))
    assert not torch.allclose(found, theirs(TOKENS).logits)
    with (
        pytest.raises(ValueError, match=r"transformer\.h\.1\.attn supports zero_ablation only"),
        ablate_heads(theirs, [("transformer.h.1.attn", 0)], edit=mean_ablation()),
    ):
        pass


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ((2, 0), r"must be in \[0, 2\), got 2"),
        (("layers.0.attention", 2), r"layers\.0\.attention has 2 heads, got head 2"),
        (("layers.0.attn", 0), r"did you mean layers\.0\.attention"),
    ],
    ids=str,
)
def test_heads_that_do_not_exist(head, message):
    model = attention_only_model(vocab_size=5, dim=4, num_layers=2, num_heads=2)
    with pytest.raises(LookupError, match=message), ablate_heads(model, [head]):
        pass


def claims() -> Iterator[Claim]:
    """Second derivations of patching, from the weights."""
    a, b = nn.Linear(3, 2), nn.Linear(2, 2)
    linear, nonlinear, branches = nn.Sequential(a, b), nn.Sequential(a, nn.Tanh(), b), Branches()
    pair = shape("b 3"), shape("b 3")

    def metric(y):
        return y[..., 0].sum()

    def unit_effects(x, y):
        return activation_patching(linear, x, y, names="0", metric=metric, axis=-1)["0"]

    def from_weights(x, y):
        return ((x - y) @ a.weight.mT * b.weight[0]).sum(0)

    def gradient_effect(x, y):
        return attribution_patching(nonlinear, x, y, names="0", metric=metric)["0"]

    def from_derivative(x, y):
        return ((1 - a(y).tanh() ** 2) * b.weight[0] * ((x - y) @ a.weight.mT)).sum()

    def direct_path(x, y):
        return path_patching(branches, x, y, sender="a", receivers=["c.input"], frozen="b", metric=metric)

    def by_hand(x, y):
        """The effect of a on c, while its effect on b is frozen."""
        patched = branches.c(branches.a(x) + branches.b(branches.a(y)))
        return metric(patched - branches.c(branches.a(y) + branches.b(branches.a(y))))

    yield Claim(agreement(other=from_weights), unit_effects, pair, name="activation_patching of each unit")
    yield Claim(agreement(other=from_derivative), gradient_effect, pair, name="attribution_patching of a tanh layer")
    yield Claim(agreement(other=by_hand), direct_path, pair, name="path_patching")
