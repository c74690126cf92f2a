"""Training and eval mode, and dropout."""

import torch
from torch import nn
from torch.nn import functional as F

import lawful
from lawful import shape
from lawful.laws import (
    agreement,
    batch_independence,
    causality,
    evenness,
    linearity,
    permutation_equivariance,
    sums_to_one,
)


class Weights(nn.Module):
    """Attention weights, with dropout on them."""

    def forward(self, x):
        return F.dropout((x @ x.mT).softmax(-1), 0.5, self.training)


class LeaksIn(nn.Module):
    def __init__(self, training):
        super().__init__()
        self.when = training

    def forward(self, x):
        return x.flip(1) if self.training == self.when else x


def check_verdict(module, law):
    torch.manual_seed(0)
    return lawful.check(module, law, inputs=shape("b t 8")).verdicts[0]


def test_dropout_is_not_refuted():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    verdict = check_verdict(layer, permutation_equivariance())
    assert verdict.status == "held", verdict
    assert any("the map is random in training mode" in note for note in verdict.notes)
    assert layer.training


def test_training_mode_with_equal_randomness():
    verdict = check_verdict(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True), batch_independence())
    assert verdict.status == "held", verdict
    assert not any("the map is random" in note for note in verdict.notes)


def test_laws_with_one_call_are_tested_with_dropout():
    verdict = check_verdict(Weights(), sums_to_one())
    assert (verdict.status, verdict.counterexample.mode) == ("refuted", "training mode")
    assert check_verdict(Weights().eval(), sums_to_one()).status == "held"


def test_modes():
    for training in (True, False):
        found = check_verdict(LeaksIn(training), causality()).counterexample
        assert found.mode == ("training mode" if training else "eval mode")
    assert check_verdict(LeaksIn(True).eval(), causality()).status == "held"


def test_a_linear_map_before_dropout_is_linear():
    verdict = check_verdict(nn.Sequential(nn.Linear(8, 8, bias=False), nn.Dropout(0.5)), linearity())
    assert verdict.status == "held", verdict


def test_a_map_may_use_forward_mode_derivatives():
    def slope(x):
        return torch.func.jvp(lambda y: y.sin() + torch.ones(2), (x,), (torch.ones_like(x),))[1]

    assert lawful.check(slope, evenness(), agreement(other=torch.cos), inputs=shape("b 2"), cases=20).passed
