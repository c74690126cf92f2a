"""No hidden randomness, no hidden memory, no damage."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import mask, shape
from lawful.laws import determinism, no_mutation, purity

torch.manual_seed(0)


class StochasticDepth(nn.Module):
    def forward(self, x):
        return x if self.training and torch.rand(()) < 0.5 else x + x.tanh()


class HiddenNoise(nn.Module):
    """Adds noise to its second output."""

    def forward(self, x):
        return x, {"noisy": x + torch.randn_like(x)}


class OwnGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x):
        return noisy(x, self.generator)


def noisy(x, generator):
    return x + torch.randn(x.shape, generator=generator, dtype=x.dtype)


class KeyValueCache(nn.Module):
    def __init__(self, cleared):
        super().__init__()
        self.cleared, self.seen = cleared, []

    def forward(self, x):
        if self.cleared:
            self.seen.clear()
        self.seen.append(x.mean())
        return x + sum(self.seen)


class FirstCall(nn.Module):
    """Keeps the mean of the first input that it sees, and never asks again."""

    def __init__(self):
        super().__init__()
        self.mean = None

    def forward(self, x):
        if self.mean is None:
            self.mean = x.mean()
        return x - self.mean


class Longest(nn.Module):
    """Scales by the length, or by the longest one seen so far, kept in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("longest", torch.zeros(()))

    def forward(self, x):
        self.longest = self.longest.clamp_min(x.shape[1])
        return x / self.longest


class LongestInPlace(Longest):
    def forward(self, x):
        self.longest.clamp_(min=x.shape[1])
        return x / self.longest


class LongestParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        with torch.no_grad():
            self.scale.clamp_(min=x.shape[1])
        return x / self.scale


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def remembering(seen):
    def f(x):
        seen.append(x.mean())
        return x + seen[0] + len(seen)

    return f


def add_in_place(x):
    x += 1
    return x


def write_slice(x):
    x[:, 0] = 0
    return x


def fill_second(x, m):
    return x, m.logical_not_()


X, MASK = shape("b t 8"), mask("b t")

KEPT = {
    "dropout": (determinism(), X, nn.Dropout(0.5)),
    "stochastic depth": (determinism(), X, StochasticDepth()),
    "a layer that stores nothing": (purity(), X, nn.Linear(8, 8)),
    "batch norm": (purity(), shape("b 8 t"), nn.BatchNorm1d(8)),
    "a cache that is cleared": (purity(), X, KeyValueCache(cleared=True)),
    "new tensors": (no_mutation(), X, lambda x: x + 1),
    "its input returned": (no_mutation(), X, lambda x: x),
    "a mask applied": (no_mutation(), (X, MASK), lambda x, m: x.masked_fill(~m[..., None], 0)),
    "the same values written": (no_mutation(), X, lambda x: x.copy_(x.clone())),
}
BROKEN = {
    "dropout that is always on": (determinism(), X, lambda x: F.dropout(x, 0.5)),
    "noise": (determinism(), X, lambda x: x + torch.randn_like(x)),
    "noise in a later output": (determinism(), X, HiddenNoise()),
    "noise from a generator of its own": (determinism(), X, OwnGenerator()),
    "noise from a generator elsewhere": (determinism(), X, partial(noisy, generator=torch.Generator())),
    "a cache that is not cleared": (purity(), X, KeyValueCache(cleared=False)),
    "a buffer replaced": (purity(), X, Longest()),
    "a buffer rewritten": (purity(), X, LongestInPlace()),
    "a parameter rewritten": (purity(), X, LongestParameter()),
    "a counter": (purity(), X, Counter()),
    "a cache that is written once": (purity(), X, FirstCall()),
    "the memory of a function": (purity(), X, remembering([])),
    "an addition in place": (no_mutation(), X, add_in_place),
    "a fill in place": (no_mutation(), (X, MASK), lambda x, m: x.masked_fill_(~m[..., None], 0)),
    "a slice written": (no_mutation(), X, write_slice),
    "a shape": (no_mutation(), X, lambda x: x.unsqueeze_(0)),
    "the second input": (no_mutation(), (X, MASK), fill_second),
    "a keyword input": (no_mutation(), {"x": X, "m": MASK}, fill_second),
}


@pytest.mark.parametrize(("law", "inputs", "f"), KEPT.values(), ids=KEPT)
def test_kept(law, inputs, f, judge):
    assert judge(f, law, inputs, cases=20).grade == "held"


@pytest.mark.parametrize(("law", "inputs", "f"), BROKEN.values(), ids=BROKEN)
def test_broken(law, inputs, f, judge):
    assert judge(f, law, inputs).grade == "refuted"


def test_the_mutated_input_is_named(judge):
    found = judge(fill_second, no_mutation(), (X, MASK)).counterexample
    assert found.kind == "changed"
    assert found.output == 1
