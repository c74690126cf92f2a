"""Modules that are finite in their own dtype and not in float64 are tested in float32."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import shape
from lawful.checking.check import SearchBudget, judge_law
from lawful.laws import batch_independence, causality, finiteness, gradient, permutation_equivariance, sums_to_one

BTD = shape("b t 4")


class FilledMask(nn.Module):
    """Attention to earlier positions; the first position has none.

    The softmax is in float32, where the lowest float64 is minus infinity.
    """

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        q = self.linear(x)
        earlier = torch.ones(x.shape[1], x.shape[1]).tril(-1).bool()
        scores = (q @ q.mT).masked_fill(~earlier, torch.finfo(q.dtype).min)
        weights = scores.softmax(-1, dtype=torch.float32) * earlier
        return weights.to(x.dtype) @ x


class ComparedMask(nn.Module):
    """Compares the lowest number of its dtype with the lowest float32."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        masked = torch.finfo(x.dtype).min < torch.finfo(torch.float32).min
        return self.linear(x).cumsum(1) * (torch.nan if masked else 1.0)


class Distance(nn.Module):
    """The angle to a fixed vector, whose cosine exceeds 1 by rounding."""

    def forward(self, x):
        y = F.normalize(x, dim=-1)
        return (y * y).sum(-1).acos()


def judge(target, law, inputs=BTD, cases=40):
    torch.manual_seed(0)
    return judge_law(law, target, inputs, "target", SearchBudget(cases, shrinks=0))


def uses_float32(verdict):
    return any("tested in float32 only" in note for note in verdict.notes)


@pytest.mark.parametrize("law", [causality(), batch_independence(), gradient(), finiteness()], ids=lambda law: law.name)
@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        pytest.param(FilledMask, torch.float32, id="filled-mask"),
        pytest.param(FilledMask, torch.bfloat16, id="filled-mask-bfloat16"),
        pytest.param(ComparedMask, torch.float32, id="compared-mask"),
    ],
)
def test_nan_in_float64_only_is_not_a_fault(make, dtype, law):
    verdict = judge(make().to(dtype), law, cases=12)
    assert verdict.status == "held", verdict
    assert uses_float32(verdict)


def test_faults_in_float32_are_found():
    def leaks(x):
        return module(x) + 1e-2 * x.mean(1, keepdim=True)

    module = FilledMask()
    assert judge(leaks, causality()).status == "refuted"


@pytest.mark.parametrize("make", [FilledMask, ComparedMask])
def test_nan_in_the_own_dtype_is_a_fault(make):
    verdict = judge(make().double(), causality())
    assert (verdict.status, verdict.counterexample.kind) == ("refuted", "not finite"), verdict


@pytest.mark.parametrize("f", [torch.sqrt, lambda x: x * torch.nan, Distance()], ids=["sqrt", "nan", "distance"])
def test_nan_in_every_dtype_is_a_fault(f):
    verdict = judge(f, batch_independence())
    assert (verdict.status, verdict.counterexample.kind) == ("refuted", "not finite"), verdict
    assert isinstance(f, Distance) or not uses_float32(verdict)


def test_functions_have_the_default_dtype():
    def f(x):
        return x * (torch.nan if x.dtype is torch.float64 else 1.0)

    assert judge(f, permutation_equivariance()).status == "held"
    assert judge(f, permutation_equivariance(), torch.randn(2, 3, 4)).status == "held"
    assert judge(f, permutation_equivariance(), torch.randn(2, 3, 4, dtype=torch.float64)).status == "refuted"
    torch.set_default_dtype(torch.float64)
    try:
        assert judge(f, permutation_equivariance()).status == "refuted"
    finally:
        torch.set_default_dtype(torch.float32)


def test_softmax_in_float32_sums_to_one():
    verdict = judge(lambda x: FilledMask()(x).softmax(-1), sums_to_one())
    assert verdict.status == "held", verdict
