"""Weight symmetries."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import shape, tokens
from lawful.laws import hidden_unit_permutation, hidden_unit_rescaling, scale_free_weights, weight_sharing
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

torch.manual_seed(0)


class Network(nn.Module):
    """Two linear layers around an activation."""

    def __init__(self, activation=torch.relu):
        super().__init__()
        self.activation = activation
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.second(self.activation(self.first(x)))


class Grouped(Network):
    """Normalizes the hidden units in groups."""

    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        return self.second(self.norm(self.first(x)))


class Paired(Network):
    """Each unit of the first half gates a unit of the second half."""

    def forward(self, x):
        a, b = self.first(x).chunk(2, dim=-1)
        return F.linear(torch.cat([a * b.sigmoid(), b], dim=-1), self.second.weight, self.second.bias)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(2, 5, 3, padding=1), nn.Conv1d(5, 2, 3, padding=1)

    def forward(self, x):
        return self.second(self.first(x).relu())


class Normalized(nn.Module):
    """A linear layer before a norm."""

    def __init__(self, norm, between=nn.Identity, residual=0.0):
        super().__init__()
        self.layer, self.between, self.norm, self.residual = nn.Linear(4, 4), between(), norm, residual

    def forward(self, x):
        return self.norm(self.between(self.layer(x)) + self.residual * x)


class Squashed(Normalized):
    def __init__(self):
        super().__init__(nn.LayerNorm(4, eps=0.0), between=nn.Tanh)


class LanguageModel(nn.Module):
    """A language model with tied embeddings."""

    def __init__(self, tie=True):
        super().__init__()
        self.embedding, self.output = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        if tie:
            self.output.weight = self.embedding.weight

    def forward(self, x):
        return self.output(self.embedding(x).cumsum(1).tanh())


class Copied(LanguageModel):
    """Copies the weight instead of sharing it."""

    def __init__(self):
        super().__init__(tie=False)
        self.output.weight.data.copy_(self.embedding.weight.data)


class TakenApart(LanguageModel):
    """Tied, then re-initialized."""

    def __init__(self):
        super().__init__()
        self.output.weight = nn.Parameter(torch.randn(7, 4))


HIDDEN = {"into": ("first.weight", "first.bias"), "out_of": "second.weight"}
TIED = weight_sharing(names=("embedding.weight", "output.weight"))
SCALED = scale_free_weights(weights=("layer.weight", "layer.bias"))
X, TOKENS = shape("b t 4"), tokens("b t", vocab_size=7)

SATISFIED = {
    "permutation: ReLU": (hidden_unit_permutation(**HIDDEN), X, Network()),
    "permutation: GELU": (hidden_unit_permutation(**HIDDEN), X, Network(F.gelu)),
    "permutation: convolutions": (hidden_unit_permutation(**HIDDEN), shape("b 2 t"), Convolutions()),
    "rescaling: ReLU": (hidden_unit_rescaling(**HIDDEN), X, Network()),
    "rescaling: leaky ReLU": (hidden_unit_rescaling(**HIDDEN), X, Network(F.leaky_relu)),
    "rescaling: convolutions": (hidden_unit_rescaling(**HIDDEN), shape("b 2 t"), Convolutions()),
    "scale: a layer norm": (SCALED, X, Normalized(nn.LayerNorm(4, eps=0.0))),
    "scale: a batch norm in training": (
        SCALED,
        lambda draw: draw.normal(5, 4),
        Normalized(nn.BatchNorm1d(4, eps=1e-30, track_running_stats=False)),
    ),
    "scale: homogeneous in between": (SCALED, X, Normalized(nn.RMSNorm(4, eps=0.0), between=nn.LeakyReLU)),
    "shared: a tied embedding": (TIED, TOKENS, LanguageModel()),
}
BROKEN = {
    "permutation: in groups": (hidden_unit_permutation(**HIDDEN), shape("b 4"), Grouped()),
    "permutation: in pairs": (hidden_unit_permutation(**HIDDEN), X, Paired()),
    "rescaling: GELU": (hidden_unit_rescaling(**HIDDEN), X, Network(F.gelu)),
    "rescaling: tanh": (hidden_unit_rescaling(**HIDDEN), X, Network(torch.tanh)),
    "rescaling: a bias forgotten": (
        hidden_unit_rescaling(into="first.weight", out_of="second.weight"),
        X,
        Network(),
    ),
    "scale: an activation in between": (SCALED, X, Squashed()),
    "scale: a residual": (SCALED, X, Normalized(nn.LayerNorm(4, eps=0.0), residual=1.0)),
    "scale: a bias forgotten": (
        scale_free_weights(weights="layer.weight"),
        X,
        Normalized(nn.LayerNorm(4, eps=0.0)),
    ),
    "shared: copied": (TIED, TOKENS, Copied()),
    "shared: taken apart": (TIED, TOKENS, TakenApart()),
}
WRONG = {
    "no such parameter": (
        hidden_unit_permutation(into="first.weigt", out_of="second.weight"),
        "the module has no parameter 'first.weigt': did you mean first.weight?",
    ),
    "not as many": (
        hidden_unit_rescaling(into="first.weight", out_of="first.weight"),
        "the number of rows of `into` must equal the number of columns of `out_of`",
    ),
    "one alone": (weight_sharing(names=("first.weight",)), "expected two or more parameters of the same shape"),
    "two shapes": (weight_sharing(names=("first.weight", "second.weight")), "two or more parameters of the same shape"),
    "nothing named": (hidden_unit_permutation(), "hidden_unit_permutation needs into, out_of"),
    "no weights": (scale_free_weights(), "scale_free_weights needs weights"),
}
SCRIPTS = ["permutation: in pairs", "rescaling: a bias forgotten", "scale: an activation in between", "shared: copied"]


@pytest.mark.parametrize(("law", "reason"), WRONG.values(), ids=WRONG)
def test_parameters_out_of_range(law, reason, judge):
    verdict = judge(Network(), law, X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert reason in verdict.reason


@pytest.mark.parametrize("law", [hidden_unit_permutation(**HIDDEN), SCALED, TIED], ids=["hidden", "scale", "shared"])
def test_a_function_has_no_named_parameters(law, judge):
    verdict = judge(F.gelu, law, X, cases=5)
    assert (verdict.status, verdict.reason[:17]) == ("inapplicable", "expected a module")


@pytest.mark.parametrize("model", [LanguageModel, Copied], ids=["tied", "copied"])
def test_state_is_restored(model, judge):
    module = model()
    tied = module.output.weight is module.embedding.weight
    before = module.embedding.weight.detach().clone()
    judge(module, TIED, TOKENS, cases=5)
    assert (module.output.weight is module.embedding.weight) == tied
    assert torch.equal(module.embedding.weight, before)
