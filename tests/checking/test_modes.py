"""Training and eval mode, and dropout."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import lawful
from lawful import shape
from lawful.checking.check import SearchBudget, judge_law
from lawful.laws import (
    Equal,
    agreement,
    batch_independence,
    causality,
    chunk_consistency,
    commutativity,
    evenness,
    gradient,
    homogeneity,
    idempotence,
    layout_independence,
    linearity,
    locality,
    monotonicity,
    permutation_equivariance,
    second_order_gradient,
    sums_to_one,
    train_eval_round_trip,
)

BTD = shape("b t 8")


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
    return lawful.check(module, law, inputs=BTD).verdicts[0]


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


# ---------------------------------------------------------------- laws in training mode, with the same random numbers


class HalfGradient(torch.autograd.Function):
    """The square, whose backward pass lacks the factor 2."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


class UnscaledDropout(torch.autograd.Function):
    """Dropout whose backward pass lacks the factor 1 / (1 - p)."""

    @staticmethod
    def forward(ctx, x, p):
        kept = torch.rand_like(x) >= p
        ctx.save_for_backward(kept)
        return x * kept / (1 - p)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None


class Square(nn.Module):
    """Uses the wrong backward pass in training mode only."""

    def forward(self, x):
        return HalfGradient.apply(x) if self.training else x * x


class DropoutKernel(nn.Module):
    def forward(self, x):
        return UnscaledDropout.apply(x, 0.3) if self.training else x


class RedrawnMask(nn.Module):
    """Recomputes the forward pass, by default with another dropout mask."""

    def __init__(self, preserve_rng_state=False):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh())
        self.preserve_rng_state = preserve_rng_state

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False, preserve_rng_state=self.preserve_rng_state)


def status_without_shrinking(module, law, inputs=BTD, cases=30):
    """Returns the status and the notes of a law, and the mode of the counterexample."""
    torch.manual_seed(0)
    verdict = judge_law(law, module, inputs, "module", SearchBudget(cases, shrinks=0))
    return verdict.status, verdict.notes, verdict.counterexample and verdict.counterexample.mode


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: nn.Sequential(nn.Dropout(0.1), Square()), id="factor-2"),
        pytest.param(DropoutKernel, id="dropout-kernel"),
        pytest.param(RedrawnMask, id="redrawn-mask"),
    ],
)
def test_a_wrong_gradient_beside_dropout_is_refuted(make):
    status, notes, mode = status_without_shrinking(make(), gradient())
    assert (status, mode) == ("refuted", "training mode"), notes


def test_a_checkpoint_with_the_same_mask_has_the_right_gradient():
    status, notes, _ = status_without_shrinking(RedrawnMask(preserve_rng_state=True), gradient())
    assert (status, notes) == ("held", ())


MLP = (
    gradient(),
    second_order_gradient(),
    causality(),
    locality(radius=0),
    batch_independence(),
    train_eval_round_trip(),
)


@pytest.mark.parametrize("law", MLP, ids=lambda law: law.name)
def test_linear_dropout_gelu_is_tested_in_training_mode(law):
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.GELU())
    status, notes, _ = status_without_shrinking(module, law)
    assert status == "held"
    assert not any("eval mode" in note for note in notes)


@pytest.mark.parametrize("law", [linearity(), homogeneity(), monotonicity()], ids=lambda law: law.name)
def test_linear_laws_of_dropout_are_tested_in_training_mode(law):
    status, notes, _ = status_without_shrinking(nn.Dropout(0.5), law)
    assert status == "held"
    assert not any("eval mode" in note for note in notes)


class RandomSum(nn.Module):
    def forward(self, x, y):
        return F.dropout(x, 0.5, self.training) + y


@pytest.mark.parametrize(
    ("module", "law", "inputs"),
    [
        (nn.Dropout(0.5), permutation_equivariance(), BTD),
        (nn.Dropout(0.5), chunk_consistency(), BTD),
        (nn.Dropout(0.5), layout_independence(), BTD),
        (nn.Sequential(nn.ReLU(), nn.Dropout(0.5)), idempotence(), BTD),
        (RandomSum(), commutativity(), (shape("b 8"), shape("b 8"))),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_laws_that_move_inputs_are_tested_in_eval_mode(module, law, inputs):
    assert law.eval_if_random
    status, notes, _ = status_without_shrinking(module, law, inputs)
    assert status == "held"
    assert any("tested in eval mode only: the map is random in training mode" in note for note in notes)


class RoutedDropout(nn.Module):
    """Applies dropout to the positive entries only: the number of random values depends on the input."""

    def forward(self, x):
        y = x.clone()
        y[x > 0] = F.dropout(x[x > 0], 0.5, self.training)
        return y


def test_calls_that_draw_different_amounts_are_tested_in_eval_mode():
    status, notes, _ = status_without_shrinking(RoutedDropout(), batch_independence())
    assert status == "held"
    assert any("tested in eval mode only" in note and "different amounts" in note for note in notes)


class GammaNoise(nn.Module):
    """Draws samples whose gradient is correct on average, not for fixed random numbers."""

    def forward(self, x):
        return torch.distributions.Gamma(1 + x.square(), 1.0).rsample() if self.training else 1 + x.square()


def test_rejection_sampling_is_tested_in_eval_mode():
    status, notes, _ = status_without_shrinking(GammaNoise(), gradient())
    assert status == "held"
    assert any("tested in eval mode only" in note for note in notes)


def test_a_law_says_that_it_moves_inputs():
    def swapped(f, x):
        return Equal(f(x.flip(0)).flip(0), f(x))

    for moves, expected in ((False, "refuted"), (True, "held")):
        law = lawful.laws.law("f(x reversed) reversed = f(x)", eval_if_random=moves)(swapped)
        assert status_without_shrinking(nn.Dropout(0.5), law)[0] == expected


class NegativeGELU(nn.Module):
    """GELU of very negative numbers, where 1 + erf(x) is zero and the gradient is not."""

    def __init__(self, low):
        super().__init__()
        self.low = low

    def forward(self, x):
        return F.gelu(self.low - x.sigmoid())


@pytest.mark.parametrize("low", [-9.0, -15.0, -34.0])
def test_a_gradient_below_the_resolution_of_the_output_is_not_a_fault(low):
    assert status_without_shrinking(NegativeGELU(low), gradient(), cases=12)[0] in ("held", "vacuous")


@pytest.mark.parametrize("law", [gradient(), second_order_gradient(), linearity()], ids=lambda law: law.name)
def test_underflow_is_not_a_fault(law):
    assert status_without_shrinking(lambda x: 1e-180 * x.tanh() * 1e-90, law)[0] in ("held", "vacuous")


class StraightThrough(nn.Module):
    """Rounds, and passes the gradient through."""

    def forward(self, x):
        return x + (1e-3 * x.round() - x).detach()


def test_a_straight_through_estimator_is_refuted():
    assert status_without_shrinking(StraightThrough(), gradient())[0] == "refuted"
