"""Determinism, statelessness, in-place changes, modes and state dicts."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import mask, shape
from lawful.laws import (
    determinism,
    layout_independence,
    no_buffer_change,
    no_mutation,
    no_parameter_change,
    state_dict_round_trip,
    statelessness,
    train_eval_round_trip,
)
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

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
    """Keeps the mean of its first input forever."""

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


class Renormalized(nn.Linear):
    """Scales its weight to length 1 in place while it is used."""

    def __init__(self):
        super().__init__(8, 8)

    def forward(self, x):
        with torch.no_grad():
            self.weight.div_(self.weight.norm())
        return super().forward(x)


class Extended(nn.Module):
    """A table of positions that grows with the longest input."""

    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.randn(2, 8))

    def forward(self, x):
        if x.shape[1] > len(self.positions):
            more = torch.zeros(x.shape[1] - len(self.positions), 8, dtype=self.positions.dtype)
            self.positions.data = torch.cat([self.positions.data, more])
        return x + self.positions[: x.shape[1]]


class LowRank(nn.Module):
    """A linear layer with a low-rank adapter, merged into its weight in evaluation."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8)
        self.down, self.up = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.randn(8, 2))
        self.merged = False

    def add(self, sign):
        with torch.no_grad():
            self.base.weight += sign * self.up @ self.down

    def train(self, mode=True):
        if self.merged == mode:
            self.add(-1 if mode else 1)
            self.merged = not mode
        return super().train(mode)

    def forward(self, x):
        return self.base(x) if self.merged else self.base(x) + x @ self.down.T @ self.up.T


class MergedEachTime(LowRank):
    def train(self, mode=True):
        if not mode:
            self.add(1)
        self.merged = not mode
        return nn.Module.train(self, mode)


class NeverTakenApart(LowRank):
    """Merged in the first eval call and never unmerged: training adds the adapter twice."""

    def train(self, mode=True):
        if not mode and not self.merged:
            self.add(1)
            self.merged = True
        return nn.Module.train(self, mode)

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T if self.training else self.base(x)


class PlainList(nn.Module):
    """Its layers are in a plain list, so that they are missing from the state dict."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(8, 8), nn.Linear(8, 8)]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class RunningMean(nn.Module):
    """Subtracts a running mean from training."""

    def __init__(self, persistent=True):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8), persistent=persistent)

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 1))
        return x - self.mean


class AlwaysRunningMean(RunningMean):
    """Updates its mean in place, in eval mode, too."""

    def forward(self, x):
        self.mean.lerp_(x.detach().mean((0, 1)), 0.1)
        return x - self.mean


class LazyPositions(nn.Module):
    """A table that is computed for the longest input so far."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(1), persistent=False)

    def forward(self, x):
        if len(self.table) < x.shape[1]:
            self.table = torch.arange(x.shape[1]).to(x)
        return x + self.table[: x.shape[1], None]


class Forgotten(RunningMean):
    """The mean is not part of the state dict."""

    def __init__(self):
        super().__init__(persistent=False)


class AnAttribute(nn.Module):
    """The largest entry seen in training is an attribute."""

    def __init__(self):
        super().__init__()
        self.largest = 1.0

    def forward(self, x):
        if self.training:
            self.largest = max(self.largest, float(x.abs().max()))
        return x / self.largest


def as_if_contiguous(x):
    """Reads neighbors with the strides of a contiguous tensor."""
    b, t, d = x.shape
    return x.as_strided((b, t, d), (t * d, d, 1)) * 2


def storage_order(x):
    """Adds to each entry its index in memory."""
    flat = torch.empty_like(x).as_strided((x.numel(),), (1,)) if x.is_contiguous() else None
    return x + 0 if flat is None else x + torch.arange(x.numel()).reshape(x.shape)


X, MASK = shape("b t 8"), mask("b t")

SATISFIED = {
    "dropout": (determinism(), X, nn.Dropout(0.5)),
    "stochastic depth": (determinism(), X, StochasticDepth()),
    "a layer that stores nothing": (statelessness(), X, nn.Linear(8, 8)),
    "batch norm": (statelessness(), shape("b 8 t"), nn.BatchNorm1d(8)),
    "a cache that is cleared": (statelessness(), X, KeyValueCache(cleared=True)),
    "new tensors": (no_mutation(), X, lambda x: x + 1),
    "its input returned": (no_mutation(), X, lambda x: x),
    "a mask applied": (no_mutation(), (X, MASK), lambda x, m: x.masked_fill(~m[..., None], 0)),
    "the same values written": (no_mutation(), X, lambda x: x.copy_(x.clone())),
    "parameters: a layer": (no_parameter_change(), X, nn.Linear(8, 8)),
    "parameters: batch norm": (no_parameter_change(), shape("b:2..3 8 t"), nn.BatchNorm1d(8)),
    "buffers: batch norm": (no_buffer_change(), shape("b:2..3 8 t"), nn.BatchNorm1d(8)),
    "buffers: a running mean": (no_buffer_change(), X, RunningMean()),
    "modes: dropout": (train_eval_round_trip(), X, nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))),
    "modes: an adapter": (train_eval_round_trip(), X, LowRank()),
    "modes: batch norm": (train_eval_round_trip(), shape("b:2..3 8 t"), nn.BatchNorm1d(8)),
    "saved: a layer": (state_dict_round_trip(), X, nn.Linear(8, 8)),
    "saved: batch norm": (state_dict_round_trip(), shape("b:2..3 8 t"), nn.BatchNorm1d(8)),
    "saved: a persistent buffer": (state_dict_round_trip(), X, RunningMean()),
    "saved: nothing to save": (state_dict_round_trip(), X, nn.ReLU()),
    "layout: a layer": (layout_independence(), X, nn.Linear(8, 8)),
    "layout: attention": (layout_independence(), X, lambda x: F.scaled_dot_product_attention(x, x, x)),
}
BROKEN = {
    "dropout that is always on": (determinism(), X, lambda x: F.dropout(x, 0.5)),
    "noise": (determinism(), X, lambda x: x + torch.randn_like(x)),
    "noise in a later output": (determinism(), X, HiddenNoise()),
    "noise from its own generator": (determinism(), X, OwnGenerator()),
    "noise from a generator elsewhere": (determinism(), X, partial(noisy, generator=torch.Generator())),
    "a cache that is not cleared": (statelessness(), X, KeyValueCache(cleared=False)),
    "a buffer replaced": (statelessness(), X, Longest()),
    "a buffer rewritten": (statelessness(), X, LongestInPlace()),
    "a parameter rewritten": (statelessness(), X, LongestParameter()),
    "a counter": (statelessness(), X, Counter()),
    "a cache that is written once": (statelessness(), X, FirstCall()),
    "the memory of a function": (statelessness(), X, remembering([])),
    "an addition in place": (no_mutation(), X, add_in_place),
    "a fill in place": (no_mutation(), (X, MASK), lambda x, m: x.masked_fill_(~m[..., None], 0)),
    "a slice written": (no_mutation(), X, write_slice),
    "a shape": (no_mutation(), X, lambda x: x.unsqueeze_(0)),
    "the second input": (no_mutation(), (X, MASK), fill_second),
    "a keyword input": (no_mutation(), {"x": X, "m": MASK}, fill_second),
    "parameters: normalized in place": (no_parameter_change(), X, Renormalized()),
    "parameters: extended in place": (no_parameter_change(), X, Extended()),
    "buffers: a mean updated in eval mode": (no_buffer_change(), X, AlwaysRunningMean()),
    "buffers: a buffer replaced": (no_buffer_change(), X, Longest()),
    "buffers: a table that grows": (no_buffer_change(), X, LazyPositions()),
    "modes: merged each time": (train_eval_round_trip(), X, MergedEachTime()),
    "modes: never taken apart": (train_eval_round_trip(), X, NeverTakenApart()),
    "saved: layers in a plain list": (state_dict_round_trip(), X, PlainList()),
    "saved: an attribute": (state_dict_round_trip(), X, AnAttribute()),
    "saved: a buffer that is not persistent": (state_dict_round_trip(), X, Forgotten()),
    "layout: strides of a contiguous tensor": (layout_independence(), X, as_if_contiguous),
    "layout: a place in memory": (layout_independence(), X, storage_order),
}
INAPPLICABLE = {
    "parameters: none": (no_parameter_change(), nn.ReLU(), "the map has no parameters"),
    "buffers: none": (no_buffer_change(), nn.Linear(8, 8), "the map has no buffers"),
    "modes: a function": (train_eval_round_trip(), torch.relu, "expected a module, got builtin_function_or_method"),
    "saved: a function": (state_dict_round_trip(), noisy, "expected a module, got function"),
}
SCRIPTS = [
    "noise in a later output",
    "a cache that is written once",
    "parameters: normalized in place",
    "buffers: a mean updated in eval mode",
    "modes: merged each time",
    "saved: layers in a plain list",
    "saved: an attribute",
    "layout: strides of a contiguous tensor",
]


def test_the_mutated_input_is_named(judge):
    found = judge(fill_second, no_mutation(), (X, MASK)).counterexample
    assert found.kind == "changed"
    assert found.output == 1


@pytest.mark.parametrize(("law", "f", "reason"), INAPPLICABLE.values(), ids=INAPPLICABLE)
def test_inapplicable(law, f, reason, judge):
    verdict = judge(f, law, X, cases=5)
    assert (verdict.status, verdict.reason) == ("inapplicable", reason)


def test_the_changed_parameter_is_named(judge):
    found = judge(Renormalized(), no_parameter_change(), X).counterexample
    assert (found.kind, found.name) == ("changed", "weight")


def test_the_changed_buffer_is_named(judge):
    found = judge(AlwaysRunningMean(), no_buffer_change(), X).counterexample
    assert (found.kind, found.name) == ("changed", "mean")


@pytest.mark.parametrize("law", [no_parameter_change(), train_eval_round_trip(), state_dict_round_trip()], ids=str)
@pytest.mark.parametrize("layer", [MergedEachTime, Renormalized, RunningMean])
def test_state_is_restored(law, layer, judge):
    module = layer()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    merged = getattr(module, "merged", None)
    judge(module, law, X, cases=3)
    assert module.training
    assert getattr(module, "merged", None) == merged
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
