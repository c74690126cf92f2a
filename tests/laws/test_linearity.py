"""Linearity, homogeneity, parity, shift and scale invariance."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import shape, tokens
from lawful.laws import (
    additivity,
    affinity,
    evenness,
    homogeneity,
    linearity,
    oddness,
    piecewise_affinity,
    scale_invariance,
    shift_invariance,
)
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

torch.manual_seed(0)


def relu_network():
    layers = (nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 4, bias=False))
    return nn.Sequential(*layers)


def quadratic_form(x):
    return (x @ torch.arange(16.0).reshape(4, 4) * x).sum(-1)


def normalized(x):
    return x / x.norm(dim=-1, keepdim=True)


def quarter_turn(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([-b, a], dim=-1)


X, CHANNELS = shape("b t 4"), shape("b 4 t")


class Network(nn.Module):
    """A hidden layer with an activation; its region is the sign of the hidden units."""

    def __init__(self, activation):
        super().__init__()
        self.first, self.second, self.activation = nn.Linear(4, 3), nn.Linear(3, 2), activation

    def active_units(self, x):
        return self.first(x) > 0

    def forward(self, x):
        return self.second(self.activation(self.first(x)))


SATISFIED = {
    "piecewise affine: ReLU": (piecewise_affinity(), X, Network(torch.relu)),
    "linear: a layer": (linearity(), X, nn.Linear(4, 3, bias=False)),
    "linear: a convolution": (linearity(), CHANNELS, nn.Conv1d(4, 3, 3, padding=1, bias=False)),
    "linear: a derivative": (linearity(), X, lambda x: x.diff(dim=-1)),
    "linear: an average": (linearity(), X, lambda x: x.mean(1)),
    "affine: a bias": (affinity(), X, nn.Linear(4, 3)),
    "affine: a convolution with bias": (affinity(), CHANNELS, nn.Conv1d(4, 3, 3, padding=1)),
    "affine: a constant": (affinity(), X, lambda x: torch.ones_like(x)),
    "affine: two inputs": (affinity(input=(0, 1)), (X, X), lambda x, y: x - 2 * y + 1),
    "additivity: a layer": (additivity(), X, nn.Linear(4, 3, bias=False)),
    "additivity: a real part": (additivity(), X, lambda x: torch.complex(x, 2 * x).real),
    "oddness: a layer": (oddness(), X, nn.Linear(4, 3, bias=False)),
    "oddness: tanh": (oddness(), X, torch.tanh),
    "oddness: the sine": (oddness(), X, torch.sin),
    "evenness: a norm": (evenness(), X, lambda x: x.norm(dim=-1)),
    "evenness: a square": (evenness(), X, torch.square),
    "evenness: the cosine": (evenness(), X, torch.cos),
    "homogeneous: ReLU": (homogeneity(), X, torch.relu),
    "homogeneous: a network of it": (homogeneity(), X, relu_network()),
    "homogeneous: a norm": (homogeneity(), X, lambda x: x.norm(dim=-1)),
    "homogeneous: a quadratic form": (homogeneity(degree=2), X, quadratic_form),
    "homogeneous: degree 0": (homogeneity(degree=0), X, torch.sign),
    "shifted: softmax": (shift_invariance(), X, lambda x: x.softmax(-1)),
    "shifted: softmax over time": (shift_invariance(axis=1), X, lambda x: x.softmax(1)),
    "shifted: layer norm": (shift_invariance(), X, nn.LayerNorm(4)),
    "shifted: differences": (shift_invariance(), X, lambda x: x.diff(dim=-1)),
    "scaled: RMS norm": (scale_invariance(), X, nn.RMSNorm(4, eps=0.0)),
    "scaled: layer norm": (scale_invariance(), shape("b t 16"), nn.LayerNorm(16, eps=0.0)),
    "scaled: length 1": (scale_invariance(), X, normalized),
    "scaled: length 1 over time": (scale_invariance(axis=1), X, lambda x: normalized(x.mT).mT),
}
BROKEN = {
    "piecewise affine: tanh": (piecewise_affinity(), X, Network(torch.tanh)),
    "linear: a bias": (linearity(), X, nn.Linear(4, 3)),
    "linear: an activation": (linearity(), X, torch.relu),
    "affine: an activation": (affinity(), X, torch.relu),
    "affine: a product of two inputs": (affinity(input=(0, 1)), (X, X), torch.mul),
    "affine: softmax": (affinity(), X, lambda x: x.softmax(-1)),
    "additivity: a bias": (additivity(), X, nn.Linear(4, 3)),
    "additivity: an activation": (additivity(), X, torch.relu),
    "oddness: a bias": (oddness(), X, nn.Linear(4, 3)),
    "oddness: ReLU": (oddness(), X, torch.relu),
    "oddness: GELU": (oddness(), X, F.gelu),
    "evenness: a direction": (evenness(), X, lambda x: x.cumsum(1)),
    "evenness: a rotation of pairs": (evenness(), X, quarter_turn),
    "homogeneous: a bias": (homogeneity(), X, nn.Linear(4, 3)),
    "homogeneous: GELU": (homogeneity(), X, F.gelu),
    "homogeneous: tanh": (homogeneity(), X, torch.tanh),
    "homogeneous: softmax": (homogeneity(), X, lambda x: x.softmax(-1)),
    "homogeneous: another degree": (homogeneity(), X, quadratic_form),
    "shifted: RMS norm": (shift_invariance(), X, nn.RMSNorm(4)),
    "shifted: softmax over another axis": (shift_invariance(), X, lambda x: x.softmax(1)),
    "scaled: eps not small": (scale_invariance(), X, nn.RMSNorm(4, eps=0.1)),
    "scaled: softmax": (scale_invariance(), X, lambda x: x.softmax(-1)),
    "scaled: length 1 over another axis": (scale_invariance(axis=1), X, normalized),
}
SCRIPTS = ["additivity: a bias", "oddness: a bias", "evenness: a rotation of pairs"]
WRONG = {
    "shift": (shift_invariance(axis=3), "axis=3 is out of range for an input of shape"),
    "scale": (scale_invariance(axis=-4), "axis=-4 is out of range for an input of shape"),
}


@pytest.mark.parametrize(("law", "reason"), WRONG.values(), ids=WRONG)
def test_parameters_out_of_range(law, reason, judge):
    verdict = judge(torch.relu, law, X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert reason in verdict.reason


REAL = [
    linearity(),
    affinity(),
    additivity(),
    oddness(),
    evenness(),
    homogeneity(),
    shift_invariance(),
    scale_invariance(),
]


@pytest.mark.parametrize("law", REAL, ids=str)
def test_integers_are_not_scaled(law, judge):
    assert judge(nn.Embedding(5, 4), law, tokens("b t", vocab_size=5), cases=5).status == "inapplicable"


def test_zero_inputs_are_vacuous(judge):
    assert judge(normalized, scale_invariance(), lambda draw: torch.zeros(2, 3, 4)).status == "vacuous"


def test_current_weights(judge):
    layer = nn.Linear(4, 3)
    nn.init.zeros_(layer.bias)
    assert judge(layer, linearity(), X).status == "held"
