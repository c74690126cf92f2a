"""Probabilities, divergences, and maps with random masks or weights."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import probabilities, shape
from lawful.laws import (
    divergence,
    dropout_scaling,
    gibbs_inequality,
    infinite_off_support,
    non_negativity,
    pinsker_inequality,
    sums_to_one,
    unbiasedness,
    variance_preservation,
    whiteness,
)
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

torch.manual_seed(0)

X, PAIR = shape("b t 4"), (probabilities("b 8"), probabilities("b 8"))


class Weights(nn.Module):
    """Attends, and returns the weights of the keys as well."""

    def __init__(self, over=-1, dropout=0.0):
        super().__init__()
        self.over, self.dropout = over, nn.Dropout(dropout)

    def forward(self, x):
        weights = self.dropout((x @ x.mT).softmax(self.over))
        return weights @ x, weights


def kl_of_logits(x, y):
    p, q = x.log_softmax(-1), y.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1)


def reverse_kl_of_logits(x, y):
    p, q = x.log_softmax(-1), y.log_softmax(-1)
    return (q.exp() * (p - q)).sum(-1)


def relative_entropy(p, q):
    return (torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).sum(-1)


def negative_kl(p, q):
    """The terms in the wrong order: p log q - p log p."""
    return -relative_entropy(p, q)


def js_divergence(p, q):
    m = (p + q) / 2
    return (relative_entropy(p, m) + relative_entropy(q, m)) / 2


def total_variation(p, q):
    return (p - q).abs().sum(-1) / 2


def cross_entropy(p, q):
    return -torch.special.xlogy(p, q).sum(-1)


def unweighted_clamped_kl(p, q):
    """The mean of clamped log-ratios, not weighted by p."""
    return (p.clamp_min(0.1).log() - q.clamp_min(0.1).log()).mean(-1)


def squared_error(p, q):
    return (p - q).square().sum(-1)


def reverse_cross_entropy(p, q):
    return cross_entropy(q, p)


def smoothed_truth(p, q):
    """Cross-entropy with smoothed targets: not minimal at the targets themselves."""
    return cross_entropy(0.9 * p + 0.1 / p.shape[-1], q)


def kl_without_last_class(p, q):
    return relative_entropy(p[..., :-1], q[..., :-1])


def squared_error_without_three_classes(p, q):
    """Ignores the last three classes."""
    return squared_error(p[..., :-3], q[..., :-3])


def torch_divergence(p, q):
    """`F.kl_div` takes log q first; "batchmean" divides by the number of rows."""
    return F.kl_div(q.log(), p, reduction="batchmean")


class UnscaledDropout(nn.Module):
    def forward(self, x):
        return x * torch.empty_like(x).bernoulli_(0.8) if self.training else x


def normal_weight(x):
    return torch.randn_like(x) * x.shape[1] ** -0.5


def variance_as_deviation(x):
    return torch.randn_like(x) / x.shape[1]


def l1_distance(p, q):
    return (p - q).abs().sum(-1)


def clamped_cross_entropy(p, q):
    return -(p * (q + 1e-8).log()).sum(-1)


def whitened(x):
    u = torch.linalg.svd(x - x.mean(0), full_matrices=False).U
    return u * len(x) ** 0.5


def standardized(x):
    return (x - x.mean(0)) / x.std(0, correction=0)


SIMPLEX, DATA = (probabilities("b 4"), probabilities("b 4")), shape("n:4..7 3")

SATISFIED = {
    "off support: Kullback-Leibler": (infinite_off_support(), SIMPLEX, relative_entropy),
    "Pinsker: total variation": (pinsker_inequality(), SIMPLEX, total_variation),
    "white: PCA whitening": (whiteness(), DATA, whitened),
    "sum: softmax": (sums_to_one(), X, lambda x: x.softmax(-1)),
    "sum: over another axis": (sums_to_one(axis=1), X, lambda x: x.softmax(1)),
    "sum: attention weights": (sums_to_one(output=1), X, Weights()),
    "sum: dropout in evaluation": (sums_to_one(output=1), X, Weights(dropout=0.5).eval()),
    "sign: softmax": (non_negativity(), X, lambda x: x.softmax(-1)),
    "sign: ReLU": (non_negativity(), X, torch.relu),
    "sign: a divergence": (non_negativity(), (X, X), kl_of_logits),
    "sign: a norm": (non_negativity(), X, lambda x: x.norm(dim=-1)),
    "divergence: Kullback-Leibler": (divergence(), PAIR, relative_entropy),
    "divergence: Jensen-Shannon": (divergence(), PAIR, js_divergence),
    "divergence: total variation": (divergence(), PAIR, total_variation),
    "divergence: one number for all rows": (divergence(), PAIR, torch_divergence),
    "Gibbs: cross-entropy": (gibbs_inequality(), PAIR, cross_entropy),
    "Gibbs: Kullback-Leibler": (gibbs_inequality(), PAIR, relative_entropy),
    "Gibbs: the squared error": (gibbs_inequality(), PAIR, squared_error),
    "unbiased: dropout": (unbiasedness(), shape("b 4"), nn.Dropout(0.2)),
    "unbiased: expected map": (
        unbiasedness(expected=torch.zeros_like),
        shape("b 4"),
        lambda x: x * torch.randn_like(x),
    ),
    "dropout scale: dropout": (dropout_scaling(scale=1 / 0.8), shape("b 4"), nn.Dropout(0.2)),
    "variance: 1 / fan-in": (variance_preservation(), shape("30 10"), normal_weight),
    "variance: ReLU halves": (
        variance_preservation(activation=torch.relu, ratio=0.5),
        shape("30 10"),
        normal_weight,
    ),
}
BROKEN = {
    "off support: eps inside the logarithm": (infinite_off_support(), SIMPLEX, clamped_cross_entropy),
    "Pinsker: L1 distance": (pinsker_inequality(), SIMPLEX, l1_distance),
    "white: standardization": (whiteness(), DATA, standardized),
    "sum: softmax over another axis": (sums_to_one(), X, lambda x: x.softmax(1)),
    "sum: attention weights over the queries": (sums_to_one(output=1), X, Weights(over=-2)),
    "sum: dropout on the weights": (sums_to_one(output=1), X, Weights(dropout=0.5)),
    "sum: a sigmoid": (sums_to_one(), X, torch.sigmoid),
    "sign: a divergence swapped": (non_negativity(), (X, X), reverse_kl_of_logits),
    "sign: rounded squares": (
        non_negativity(),
        X,
        lambda x: x.square().round().mean(-1) - x.mean(-1).square(),
    ),
    "divergence: terms swapped": (divergence(), PAIR, negative_kl),
    "divergence: a cross-entropy": (divergence(), PAIR, cross_entropy),
    "divergence: the last outcome forgotten": (divergence(), PAIR, kl_without_last_class),
    "divergence: a clamped logarithm": (divergence(), PAIR, unweighted_clamped_kl),
    "divergence: three classes forgotten": (divergence(), PAIR, squared_error_without_three_classes),
    "Gibbs: arguments swapped": (gibbs_inequality(), PAIR, reverse_cross_entropy),
    "Gibbs: smoothing of one side": (gibbs_inequality(), PAIR, smoothed_truth),
    "Gibbs: terms swapped": (gibbs_inequality(), PAIR, negative_kl),
    "unbiased: dropout without scale": (unbiasedness(), shape("b 4"), UnscaledDropout()),
    "dropout scale: dropout without scale": (dropout_scaling(scale=1 / 0.8), shape("b 4"), UnscaledDropout()),
    "variance: used as a standard deviation": (variance_preservation(), shape("30 10"), variance_as_deviation),
}
SCRIPTS = ["divergence: terms swapped", "Gibbs: smoothing of one side"]


def test_rounding_is_not_negative(judge):
    assert judge(lambda x: x.square().mean(-1) - x.mean(-1).square(), non_negativity(), X).status == "held"


def test_invalid_axis(judge):
    verdict = judge(lambda x: x.softmax(-1).sum(1), sums_to_one(axis=2), X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert "axis=2 is out of range for an output of shape" in verdict.reason


@pytest.mark.parametrize(
    ("f", "part"),
    [(cross_entropy, "D(p, p)"), (lambda p, q: 0 * p.sum(-1), "> 0")],
    ids=["not zero between equals", "zero between others"],
)
def test_name_of_the_failing_part_of_a_divergence(f, part, judge):
    assert judge(f, divergence(), PAIR).counterexample.name.endswith(part)


def test_probabilities_need_an_axis():
    with pytest.raises(ValueError, match="probabilities need at least one axis"):
        probabilities("")
