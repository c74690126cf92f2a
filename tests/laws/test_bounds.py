"""Monotonicity, convexity, bounds and Lipschitz constants."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from lawful import shape, tokens
from lawful.laws import (
    boundedness,
    convex_combination,
    convexity,
    finiteness,
    lipschitz,
    monotonicity,
)
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

torch.manual_seed(0)


class Rising(nn.Module):
    """A monotone network: all weights are non-negative."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        hidden = F.linear(x, self.first.weight.abs(), self.first.bias).tanh()
        return F.linear(hidden, self.second.weight.abs(), self.second.bias)


def cross_entropy(logits):
    """Cross-entropy with class 0 as the target."""
    return -logits.log_softmax(-1)[..., 0]


def residual(x):
    return x + x.sigmoid()


def clamp_before_the_scale(x):
    return 3 * x.clamp(-1, 1)


def clamp_after_the_scale(x):
    return (3 * x).clamp(-1, 1)


class LargestEntry(nn.Linear):
    """Divides its matrix by the largest entry instead of the norm."""

    def __init__(self):
        super().__init__(4, 4, bias=False)

    def forward(self, x):
        return F.linear(x, self.weight / self.weight.abs().amax())


def attend(x):
    return (x @ x.mT).softmax(-1) @ x


X = shape("b t 4")
rotation = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
spectral = parametrizations.spectral_norm(nn.Linear(4, 4), n_power_iterations=100).eval()
orthogonal = parametrizations.orthogonal(nn.Linear(4, 4))

QKV = (shape("b t 3"), shape("b s 3"), shape("b s 2"))

SATISFIED = {
    "between values: attention": (convex_combination(), QKV, F.scaled_dot_product_attention),
    "convex: jointly": (convexity(input=(0, 1)), (X, X), lambda x, y: (x - y).abs()),
    "finite: softmax": (finiteness(), X, lambda x: x.softmax(-1)),
    "finite: an eps inside the root": (
        finiteness(),
        X,
        lambda x: x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt(),
    ),
    "finite: log1p of a square": (finiteness(), X, lambda x: x.square().log1p()),
    "monotonicity: ReLU": (monotonicity(), X, torch.relu),
    "monotonicity: sigmoid": (monotonicity(), X, torch.sigmoid),
    "monotonicity: sorting": (monotonicity(), X, lambda x: x.sort(-1).values),
    "monotonicity: a maximum": (monotonicity(), X, lambda x: x.amax(1)),
    "monotonicity: weights that are not negative": (monotonicity(), X, Rising()),
    "falling: the negative": (monotonicity(decreasing=True), X, torch.neg),
    "convex: a norm": (convexity(), X, lambda x: x.norm(dim=-1)),
    "convex: ReLU": (convexity(), X, torch.relu),
    "convex: log-sum-exp": (convexity(), X, lambda x: x.logsumexp(-1)),
    "convex: a maximum": (convexity(), X, lambda x: x.amax(1)),
    "convex: cross-entropy of the logits": (convexity(), X, cross_entropy),
    "bounds: a sigmoid": (boundedness(low=0.0, high=1.0), X, torch.sigmoid),
    "bounds: tanh": (boundedness(low=-1.0, high=1.0), X, torch.tanh),
    "bounds: softmax": (boundedness(low=0.0, high=1.0), X, lambda x: x.softmax(-1)),
    "bounds: from below only": (boundedness(low=0.0), X, F.softplus),
    "bounds: a clamp after the scale": (boundedness(low=-1.0, high=1.0), X, clamp_after_the_scale),
    "lipschitz: ReLU": (lipschitz(), X, torch.relu),
    "lipschitz: softmax": (lipschitz(), X, lambda x: x.softmax(-1)),
    "lipschitz: an orthogonal matrix": (lipschitz(), X, lambda x: x @ rotation.to(x)),
    "lipschitz: an orthogonal layer": (lipschitz(), X, orthogonal),
    "lipschitz: a spectrally normalized matrix": (lipschitz(rtol=1e-6), X, spectral),
    "lipschitz: another constant": (lipschitz(constant=3.0), X, lambda x: 3 * x.sin()),
}
BROKEN = {
    "between values: weights that do not sum to one": (convex_combination(), QKV, lambda q, k, v: (q @ k.mT).exp() @ v),
    "convex: in each, not jointly": (convexity(input=(0, 1)), (X, X), torch.mul),
    "finite: no eps": (finiteness(), X, lambda x: x / x.square().mean(-1, keepdim=True).sqrt()),
    "finite: an exponential": (finiteness(), X, torch.exp),
    "finite: the gradient of a root": (finiteness(), X, lambda x: x.square().sum(-1).sqrt()),
    "monotonicity: GELU": (monotonicity(), X, F.gelu),
    "monotonicity: softmax": (monotonicity(), X, lambda x: x.softmax(-1)),
    "monotonicity: a norm": (monotonicity(), X, lambda x: x.norm(dim=-1)),
    "falling: ReLU": (monotonicity(decreasing=True), X, torch.relu),
    "convex: a sigmoid": (convexity(), X, torch.sigmoid),
    "convex: a minimum": (convexity(), X, lambda x: x.amin(1)),
    "convex: softmax": (convexity(), X, lambda x: x.softmax(-1)),
    "bounds: infinite": (boundedness(low=0.0, high=1.0), X, lambda x: x + torch.inf),
    "bounds: a residual around a sigmoid": (boundedness(low=0.0, high=1.0), X, residual),
    "bounds: a clamp before the scale": (boundedness(low=-1.0, high=1.0), X, clamp_before_the_scale),
    "bounds: the upper one alone": (boundedness(high=0.5), X, torch.sigmoid),
    "lipschitz: a square": (lipschitz(), X, torch.square),
    "lipschitz: attention": (lipschitz(), shape("b:1..2 t:1..3 4"), attend),
    "lipschitz: a matrix divided by its largest entry": (lipschitz(), X, LargestEntry()),
}
WRONG = {
    "bounds the wrong way round": (boundedness(low=1.0, high=0.0), "low must be less than high: got low=1.0, high=0.0"),
    "no bounds": (boundedness(), "boundedness needs a finite bound: write boundedness(low=0.0)"),
    "a constant of 0": (lipschitz(constant=0.0), "constant must be positive, got 0.0"),
    "a constant that is no number": (lipschitz(constant=math.nan), "constant must be positive, got nan"),
}
SCRIPTS = ["monotonicity: GELU", "bounds: a residual around a sigmoid", "lipschitz: attention"]


@pytest.mark.parametrize(("law", "reason"), WRONG.values(), ids=WRONG)
def test_parameters_out_of_range(law, reason, judge):
    verdict = judge(torch.relu, law, X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert reason in verdict.reason


@pytest.mark.parametrize("law", [monotonicity(), convexity(), lipschitz()], ids=str)
def test_integers_go_in_or_come_out(law, judge):
    assert judge(nn.Embedding(5, 4), law, tokens("b t", vocab_size=5), cases=5).status == "inapplicable"
    assert judge(lambda x: x.argmax(-1), law, X, cases=5).status == "inapplicable"


def test_name_of_the_bound(judge):
    found = judge(residual, boundedness(low=0.0, high=1.0), lambda draw: draw.normal(3).abs()).counterexample
    assert (found.kind, found.name) == ("exceeds", "upper bound")


def test_the_largest_ratio_is_noted(judge):
    """For a matrix it is the largest singular value, found by power iteration."""
    layer = nn.Linear(4, 4)
    (note,) = [n for n in judge(layer, lipschitz(constant=100.0), X).notes if n.startswith("largest ‖f(x) - f(y)‖")]
    norm = float(torch.linalg.matrix_norm(layer.weight.detach(), 2))
    assert 0.9 * norm <= float(note.split(":")[1]) <= 1.0001 * norm
