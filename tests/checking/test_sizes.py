"""The sizes of the inputs: the constants of the target are tried, and the report prints the largest."""

import pytest
import torch
from torch import nn

from lawful import check, shape
from lawful.checking._sizes import constants_of, size_plans
from lawful.checking.check import SearchBudget, judge_law
from lawful.laws import agreement, batch_independence, causality

BLOCK = 70


class BlockLeak(nn.Module):
    """A running sum in blocks; every block but the last also sees the next one."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        ends = range(self.block, x.shape[1], self.block)
        leaks = sum((x[:, end : end + 1] * (torch.arange(x.shape[1]) < end)[:, None] for end in ends), 0.0)
        return x.cumsum(1) + leaks


class ConfusedSizes(nn.Module):
    """Mixes entries along an axis of a size that the weights have."""

    def __init__(self, weight, axis, over):
        super().__init__()
        self.weight, self.axis, self.over = nn.Parameter(torch.rand(weight)), axis, over

    def forward(self, x):
        confused = x.shape[self.axis] == self.weight.shape[0]
        return x + x.sum(self.over, keepdim=True) if confused else x


class EqualSizes(nn.Module):
    """Mixes the batch if two axes have the size of the weights."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(12))

    def forward(self, x):
        return x + x.sum(0) if x.shape[1] == x.shape[2] == 12 else x


FAULTS = {
    "a block of 64": (lambda: BlockLeak(64), shape("b t 4"), causality(time=1)),
    "a block of 100": (lambda: BlockLeak(100), shape("b t 4"), causality(time=1)),
    "a block of 128": (lambda: BlockLeak(128), shape("b t 4"), causality(time=1)),
    "t = d = 12": (lambda: ConfusedSizes(12, 1, 1), shape("b t 12"), causality(time=1)),
    "batch = heads = 12": (lambda: ConfusedSizes((12, 2), 0, 0), shape("b t 24"), batch_independence()),
    "two letters of size 12": (EqualSizes, shape("b t d"), batch_independence()),
    "d = 96": (lambda: ConfusedSizes(96, 2, 1), shape("b t d"), causality(time=1)),
    "a constant of the code": (
        lambda: lambda x: x.flip(1) if x.shape[-1] == 96 else x,
        shape("b t d"),
        causality(time=1),
    ),
    "a global of the code": (
        lambda: lambda x: x + x.sum(1, keepdim=True) if x.shape[1] > 2 * BLOCK else x,
        shape("b t 4"),
        causality(time=1),
    ),
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
@pytest.mark.parametrize(("make", "inputs", "law"), FAULTS.values(), ids=FAULTS)
def test_faults_at_sizes_of_the_target_are_found(make, inputs, law, seed):
    torch.manual_seed(seed)
    assert judge_law(law, make(), inputs, "f", SearchBudget(100, seed, shrinks=0)).status == "refuted"


@pytest.mark.parametrize("block", [100, pytest.param(128, marks=pytest.mark.long)])
def test_a_large_counterexample_shrinks_to_the_smallest_size(block):
    (verdict,) = check(BlockLeak(block), causality(time=1), inputs=shape("b t 1"))
    (x,) = verdict.counterexample.inputs
    assert x.shape == (1, block + 1, 1)


def test_a_size_between_the_special_ones_shrinks():
    (verdict,) = check(lambda x: x.flip(1) if x.shape[1] > 90 else x, causality(time=1), inputs=shape("b t 1"))
    assert verdict.counterexample.inputs[0].shape == (1, 91, 1)


def test_the_report_prints_the_largest_sizes():
    module = nn.Identity()
    module.block = 128
    report = check(module, causality(time=1), inputs=shape("b t 4"))
    (verdict,) = report
    assert verdict.largest_sizes["t"] >= 256
    b, t = verdict.largest_sizes["b"], verdict.largest_sizes["t"]
    assert f"sizes up to b={b}, t={t}" in str(report)
    assert report.to_json()["verdicts"][0]["largest_sizes"] == {"b": b, "t": t}


class Positions(nn.Module):
    """Learned positions: longer sequences raise an error."""

    def __init__(self, length):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(length, 4))

    def forward(self, x):
        return x + self.weight[torch.arange(x.shape[1])]


def test_large_sizes_that_the_target_rejects_are_skipped():
    (verdict,) = check(Positions(128), causality(time=1), inputs=shape("b t 4"))
    assert verdict.status == "held"
    assert verdict.largest_sizes["t"] == 128
    assert any(note.startswith("t above 128 not tested: the map raised IndexError") for note in verdict.notes)


def test_ordinary_sizes_that_the_target_rejects_are_errors():
    (verdict,) = check(Positions(60), causality(time=1), inputs=shape("b t 4"))
    assert verdict.status == "error"


def test_constants_come_from_attributes_code_and_tensors():
    attention = nn.MultiheadAttention(36, 12)
    attention.register_buffer("mask", torch.ones(7, 7))
    sizes = constants_of(attention, [attention], shape("b t 11"))
    assert {36, 12, 7, 11} <= set(sizes)
    assert set(constants_of(lambda x, block=9: x[: BLOCK + 31], [], shape("b"))) == {9, BLOCK, 31}


def test_plans_are_small_and_ascending():
    plans = size_plans(shape("b t 768"), [768, 128, 12], ["t"])
    assert {"b": 12, "t": 12} in plans
    assert all(max(plan.values()) <= 170 for plan in plans)  # at most 2^17 entries
    totals = [sum(plan.values()) for plan in size_plans(shape("b t d"), [12, 64], ["t"])]
    assert totals == sorted(totals)
    assert size_plans(shape("b:2 3"), [12], []) == []


def test_fixed_sizes_of_an_example_stay():
    linear = nn.Linear(12, 12)
    assert check(linear, agreement(other=linear.forward), inputs=torch.rand(3, 12)).passed
