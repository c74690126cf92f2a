"""Gradients of all parameters, activation checkpointing and gradient accumulation."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import mask, shape, tokens
from lawful.laws import checkpointed_gradient, every_parameter_receives_a_gradient, gradient_accumulation
from tests.laws.drivers import test_satisfied  # noqa: F401

torch.manual_seed(0)


def network(*extra):
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), *extra, nn.Linear(8, 4))


class Unused(nn.Module):
    """Has a second layer that is never called."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.first(x).tanh()


class Detached(Unused):
    def forward(self, x):
        return self.second(self.first(x).detach())


class Rounded(Unused):
    def forward(self, x):
        return self.second(self.first(x).round())


class Routed(nn.Module):
    """Picks an expert by an argmax, so that no gradient reaches the router."""

    def __init__(self, soft=False):
        super().__init__()
        self.soft = soft
        self.router, self.experts = nn.Linear(4, 3), nn.Linear(4, 12)

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        chosen = F.one_hot(weights.argmax(-1), 3).to(x)
        weights = weights * chosen if self.soft else chosen
        return (weights[..., None] * self.experts(x).unflatten(-1, (3, 4))).sum(-2)


class RandomFromElsewhere(nn.Linear):
    """Dropout with Python's random numbers."""

    def __init__(self):
        super().__init__(4, 4)

    def forward(self, x):
        return super().forward(x) * torch.tensor([random.random() < 0.5 for _ in range(4)]).to(x)


class Counting(nn.Linear):
    """Scales by the number of calls."""

    def __init__(self):
        super().__init__(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return (super().forward(x) * self.calls).tanh()


class Loss(nn.Module):
    """A squared error of a linear layer, reduced over samples and tokens."""

    def __init__(self, reduce):
        super().__init__()
        self.reduce, self.layer = reduce, nn.Linear(4, 4)

    def forward(self, x, there=None):
        errors = (self.layer(x) - 1).square().mean(-1)
        return self.reduce(errors) if there is None else self.reduce(errors, there)


def mean_of_samples(errors, there):
    """The mean over the tokens of each sample, and then over samples."""
    return ((errors * there).sum(1) / there.sum(1).clamp_min(1)).mean()


def mean_of_tokens(errors, there):
    return (errors * there).sum() / there.sum().clamp_min(1)


def sum_over_a_known_number(errors, there):
    return (errors * there).sum() / 100


class TokensOfEachMicroBatch(Loss):
    def __init__(self):
        super().__init__(mean_of_tokens)


class BatchNorm(Loss):
    def __init__(self):
        super().__init__(torch.mean)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.layer(x).mT).tanh().mean()


X, ROWS, MASKED = shape("b:1..4 t:1..4 4"), shape("b:1..5 4"), (shape("b:2..4 t:2..4 4"), mask("b t"))

SATISFIED = {
    "gradient reaches: a network": (every_parameter_receives_a_gradient(), X, network()),
    "gradient reaches: a recurrence": (every_parameter_receives_a_gradient(), X, nn.GRU(4, 4, batch_first=True)),
    "gradient reaches: an embedding, if not in every case": (
        every_parameter_receives_a_gradient(),
        tokens("b t", vocab_size=5),
        nn.Embedding(5, 4),
    ),
    "gradient reaches: a router whose weight is kept": (every_parameter_receives_a_gradient(), X, Routed(soft=True)),
    "checkpointing: a network": (checkpointed_gradient(), X, network()),
    "checkpointing: dropout": (checkpointed_gradient(), X, network(nn.Dropout(0.5))),
    "checkpointing: attention": (checkpointed_gradient(), X, lambda x: (x @ x.mT).softmax(-1) @ x),
    "accumulation: a mean of samples": (gradient_accumulation(), ROWS, Loss(torch.mean)),
    "accumulation: a sum": (gradient_accumulation(reduction="sum"), ROWS, Loss(torch.sum)),
    "accumulation: a mean over each sample": (gradient_accumulation(), MASKED, Loss(mean_of_samples)),
    "accumulation: a number known beforehand": (
        gradient_accumulation(reduction="sum"),
        MASKED,
        Loss(sum_over_a_known_number),
    ),
}
BROKEN = {
    "gradient reaches: a layer not used": (every_parameter_receives_a_gradient(), X, Unused()),
    "gradient reaches: a detach too many": (every_parameter_receives_a_gradient(), X, Detached()),
    "gradient reaches: rounding": (every_parameter_receives_a_gradient(), X, Rounded()),
    "gradient reaches: an argmax": (every_parameter_receives_a_gradient(), X, Routed()),
    "checkpointing: random numbers from elsewhere": (checkpointed_gradient(), X, RandomFromElsewhere()),
    "checkpointing: a call that changes the next": (checkpointed_gradient(), X, Counting()),
    "accumulation: the tokens of each micro-batch": (gradient_accumulation(), MASKED, TokensOfEachMicroBatch()),
    "accumulation: a batch norm": (gradient_accumulation(), shape("b:2..4 t:2..3 4"), BatchNorm()),
    "accumulation: a mean taken for a sum": (gradient_accumulation(reduction="sum"), ROWS, Loss(torch.mean)),
}
INAPPLICABLE = {
    "gradient reaches: no parameter": (
        every_parameter_receives_a_gradient(),
        torch.relu,
        "no parameter requires a gradient",
    ),
    "checkpointing: integers": (
        checkpointed_gradient(),
        lambda x: x.argmax(-1),
        "the output does not require a gradient",
    ),
    "accumulation: not a number": (gradient_accumulation(), nn.Linear(4, 4), "expected a scalar loss, got shape"),
}
WRONG = {
    "reduction": (gradient_accumulation(reduction="max"), "reduction must be 'mean' or 'sum', got 'max'"),
    "batch": (gradient_accumulation(batch=3), "batch=3 is out of range for an input of shape"),
}
SCRIPTS = [
    "checkpointing: a call that changes the next",
    "accumulation: the tokens of each micro-batch",
    "accumulation: a batch norm",
]


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name, judge, script_differs):
    law, inputs, f = BROKEN[name]
    verdict = judge(f, law, inputs, cases=20)
    assert verdict.status == "refuted"
    assert name not in SCRIPTS or script_differs(verdict)


@pytest.mark.parametrize(("law", "f", "reason"), INAPPLICABLE.values(), ids=INAPPLICABLE)
def test_inapplicable(law, f, reason, judge):
    verdict = judge(f, law, X, cases=5)
    assert verdict.status == "inapplicable"
    assert reason in verdict.reason


@pytest.mark.parametrize(("law", "reason"), WRONG.values(), ids=WRONG)
def test_parameters_out_of_range(law, reason, judge):
    verdict = judge(Loss(torch.mean), law, X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert reason in verdict.reason


def test_names_of_parameters_without_gradient(judge):
    verdict = judge(Unused(), every_parameter_receives_a_gradient(), X, cases=10)
    assert verdict.reason == "not observed in 10 cases: gradient of second.weight, gradient of second.bias"


def test_a_frozen_parameter_needs_no_gradient(judge):
    module = Unused()
    module.second.requires_grad_(False)
    assert judge(module, every_parameter_receives_a_gradient(), X, cases=10).status == "held"


def test_name_of_the_gradient(judge):
    found = judge(TokensOfEachMicroBatch(), gradient_accumulation(), MASKED).counterexample
    assert found.name in ("loss", "gradient of layer.weight", "gradient of layer.bias")
    assert "cut" in found.choices


def test_a_batch_of_one_is_vacuous(judge):
    assert judge(Loss(torch.mean), gradient_accumulation(), shape("1 4"), cases=11).status == "vacuous"
