"""The claims about PyTorch refute broken copies of its layers, and every waiver is needed."""

import importlib
import math
from dataclasses import replace

import pytest
import torch
from torch import nn, optim
from torch.nn import functional as F

from lawful.checking.check import SearchBudget, judge_law
from lawful.pytorch import optimizers

FAMILIES = (
    "layers",
    "normalization",
    "recurrent",
    "activations",
    "losses",
    "linalg",
    "initialization",
    "optimizers",
)


def verdict_of(law, target, inputs):
    """Judges a law without shrinking the counterexample, which takes most of the time."""
    return judge_law(law, target, inputs, "target", SearchBudget(shrinks=0))


def claims_of(family):
    torch.manual_seed(0)
    return list(importlib.import_module(f"lawful.pytorch.{family}").claims())


class UpdateGateSwapped(nn.Module):
    """A GRU whose update gate is used the wrong way round."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 4, batch_first=True)

    def forward(self, x):
        gru, h, outputs = self.gru, x.new_zeros(len(x), 4), []
        for now in x.unbind(1):
            a = (now @ gru.weight_ih_l0.T + gru.bias_ih_l0).chunk(3, dim=-1)
            b = (h @ gru.weight_hh_l0.T + gru.bias_hh_l0).chunk(3, dim=-1)
            r, z = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
            h = z * torch.tanh(a[2] + r * b[2]) + (1 - z) * h * 2
            outputs.append(h)
        return torch.stack(outputs, dim=1)


class UnscaledDropout(nn.Dropout):
    def forward(self, x):
        return super().forward(x) * (1 - self.p) if self.training else x


def batch_mean_layer_norm(x):
    return (x - x.mean()) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()


def uncorrected_adam(x):
    p, m, v, points = x, torch.zeros_like(x), torch.zeros_like(x), [x]
    for _ in range(6):
        g = torch.func.grad(optimizers._cost)(p)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        p = p - 0.1 * m / (v.sqrt() + 0.1)
        points.append(p)
    return torch.stack(points)


def unscaled_attention(q, k, v):
    return (q @ k.mT).softmax(-1) @ v


def xavier_weight(x):
    return nn.init.xavier_normal_(torch.empty_like(x))


BROKEN = [
    ("layers", "nn.Conv1d(padding=1)", "locality", nn.Conv1d(2, 3, 5, padding=2)),
    ("layers", "nn.Conv1d(dilation=2) after left padding", "causality", nn.Conv1d(2, 3, 3, padding=1)),
    ("layers", "nn.Dropout(p=0.5, inplace=False)", "unbiasedness", UnscaledDropout(0.5)),
    ("layers", "F.scaled_dot_product_attention", "agreement", unscaled_attention),
    ("normalization", "nn.LayerNorm", "batch_independence", batch_mean_layer_norm),
    ("normalization", "nn.BatchNorm1d.eval()", "batch_independence", nn.BatchNorm1d(3)),
    ("recurrent", "nn.GRU", "agreement", UpdateGateSwapped()),
    ("recurrent", "nn.GRU", "boundedness", UpdateGateSwapped()),
    ("activations", "F.gelu", "agreement", lambda x: F.gelu(x, approximate="tanh")),
    ("activations", "F.softmax", "sums_to_one", lambda x: x.softmax(0)),
    (
        "losses",
        "F.cross_entropy(label_smoothing=0.3)",
        "agreement",
        lambda x, k: F.cross_entropy(x, k, reduction="sum"),
    ),
    ("losses", "F.kl_div", "divergence", lambda p, q: F.kl_div(p, q, reduction="none").sum(-1)),
    ("linalg", "torch.linalg.det", "homomorphism", lambda a: a.diagonal(0, -2, -1).prod(-1)),
    ("linalg", "torch.linalg.qr", "orthonormality", lambda a: a / a.norm(dim=-2, keepdim=True).clamp(min=1e-9)),
    (
        "initialization",
        "nn.init.kaiming_normal_",
        "variance_preservation",
        lambda x: nn.init.xavier_normal_(torch.empty_like(x)),
    ),
    ("optimizers", "Adam", "agreement", uncorrected_adam),
    ("optimizers", "SGD(nesterov=True)", "agreement", lambda x: optimizers._path(lambda p: optim.SGD(p, lr=0.1), x)),
    ("optimizers", "CosineAnnealingLR", "agreement", lambda t: (1 + (math.pi * t / 19).cos()) / 2),
]


@pytest.mark.parametrize(("family", "name", "law", "broken"), BROKEN, ids=[f"{row[1]} {row[2]}" for row in BROKEN])
def test_a_broken_copy_is_refuted(family, name, law, broken):
    claim = next(c for c in claims_of(family) if (c.label, c.law.name) == (name, law))
    verdict = verdict_of(replace(claim.law, cases=60), broken, claim.inputs)
    assert verdict.status == "refuted", verdict


def waived_claims():
    for family in FAMILIES:
        for claim in claims_of(family):
            if claim.law.waiver is not None:
                yield pytest.param(claim, id=f"{claim.label} {claim.law.name}")


@pytest.mark.parametrize("claim", list(waived_claims()))
def test_a_waived_law_does_not_hold(claim):
    law = replace(claim.law, waiver=None, cases=100)
    verdict = verdict_of(law, claim.target, claim.inputs)
    assert verdict.status in ("refuted", "inapplicable"), verdict
