"""Its own sample, the past, a neighbourhood."""

import pytest
import torch
from torch import nn

from lawful import shape, tokens
from lawful.laws import batch_independence, causality, locality

torch.manual_seed(0)


def attend(x, hidden=None):
    scores = x @ x.mT
    return (scores if hidden is None else scores.masked_fill(hidden, -torch.inf)).softmax(-1) @ x


def positions(x):
    i = torch.arange(x.shape[1])
    return i[:, None], i


def causal_attention(x):
    i, j = positions(x)
    return attend(x, j > i)


def window_attention(x):
    i, j = positions(x)
    return attend(x, (i - j).abs() > 1)


def window_and_first(x):
    i, j = positions(x)
    return attend(x, ((i - j).abs() > 1) & (j > 0))


def top_k(x):
    kept = x[..., 0].topk((x.shape[1] + 1) // 2, dim=1).indices
    return torch.zeros_like(x[..., 0]).scatter(1, kept, 1.0)[..., None] * x


def mix_samples(x):
    return x.reshape(x.shape[1], x.shape[0], -1).transpose(0, 1)


class CausalConvolution(nn.Conv1d):
    def forward(self, x):
        return super().forward(nn.functional.pad(x, (self.kernel_size[0] - 1, 0)))


X, CHANNELS = shape("b t 3"), shape("b 2 t")

KEPT = {
    "layer norm": (batch_independence(), X, nn.LayerNorm(3)),
    "attention within a sequence": (batch_independence(), X, attend),
    "batch norm in evaluation": (batch_independence(), shape("b 8 t"), nn.BatchNorm1d(8).eval()),
    "a recurrence, batch second": (batch_independence(batch=1), shape("t b 3"), nn.GRU(3, 3)),
    "causal attention": (causality(), X, causal_attention),
    "a recurrence": (causality(), X, nn.GRU(3, 3, batch_first=True)),
    "a recurrence, time first": (causality(time=0), shape("t b 3"), nn.GRU(3, 3)),
    "a causal convolution": (causality(time=-1), CHANNELS, CausalConvolution(2, 2, 3)),
    "a cumulative sum of embeddings": (
        causality(),
        tokens("b t", vocab=7),
        nn.Sequential(nn.Embedding(7, 3), nn.GRU(3, 3, batch_first=True)),
    ),
    "2 r + 1 taps": (locality(radius=2, axis=2), CHANNELS, nn.Conv1d(2, 2, 5, padding=2)),
    "attention in a window": (locality(radius=1), X, window_attention),
    "each position for itself": (locality(radius=0), X, nn.Linear(3, 3)),
}
BROKEN = {
    "a reshape that mixes samples": (batch_independence(), X, mix_samples),
    "a maximum over the batch": (batch_independence(), X, lambda x: x - x.max()),
    "a recurrence over the batch": (batch_independence(batch=0), shape("t b 3"), nn.GRU(3, 3)),
    "attention without a mask": (causality(), X, attend),
    "a norm over time": (causality(time=-1), CHANNELS, nn.GroupNorm(1, 2)),
    "top-k over the sequence": (causality(), X, top_k),
    "a centred convolution": (causality(time=-1), CHANNELS, nn.Conv1d(2, 2, 3, padding=1)),
    "a look at the next token": (causality(), tokens("b t", vocab=7), lambda x: x.roll(-1, 1)),
    "one tap too many": (locality(radius=1, axis=2), CHANNELS, nn.Sequential(nn.ZeroPad1d((1, 2)), nn.Conv1d(2, 2, 4))),
    "a window and the first position": (locality(radius=1), X, window_and_first),
    "a mean over the axis": (locality(radius=3), X, lambda x: x - x.mean(1, keepdim=True)),
}
VACUOUS = {
    "a batch of 1": (batch_independence(), shape("1 t 4"), nn.LayerNorm(4)),
    "one moment": (causality(), shape("b 1 4"), nn.LayerNorm(4)),
    "a radius beyond the ends": (locality(radius=3), shape("b 4 4"), attend),
}
WRONG = {
    "batch": (batch_independence(batch=3), "batch=3 is out of range: the input has shape"),
    "time": (causality(time=-4), "time=-4 is out of range: the input has shape"),
    "axis": (locality(radius=1, axis=3), "axis=3 is out of range: the input has shape"),
    "negative radius": (locality(radius=-1), "radius is at least 0: got -1"),
    "no radius": (locality(), "locality wants radius: write locality(radius=...)"),
}


@pytest.mark.parametrize(("law", "inputs", "f"), KEPT.values(), ids=KEPT)
def test_kept(law, inputs, f, judge):
    assert judge(f, law, inputs, cases=20).grade == "held"


@pytest.mark.parametrize(("law", "inputs", "f"), BROKEN.values(), ids=BROKEN)
def test_broken(law, inputs, f, judge):
    assert judge(f, law, inputs).grade == "refuted"


@pytest.mark.parametrize(("law", "inputs", "f"), VACUOUS.values(), ids=VACUOUS)
def test_vacuous(law, inputs, f, judge):
    assert judge(f, law, inputs, cases=5).grade == "vacuous"


@pytest.mark.parametrize(("law", "reason"), WRONG.values(), ids=WRONG)
def test_parameters_out_of_range(law, reason, judge):
    verdict = judge(attend, law, X)
    assert (verdict.grade, verdict.usage) == ("error", True)
    assert reason in verdict.reason


def test_an_output_of_the_same_size_by_chance_does_not_make_the_law_apply(judge):
    assert judge(lambda x: x.mean(1), causality(), X).grade == "inapplicable"


@pytest.mark.parametrize("law", [batch_independence(), causality(), locality(radius=1)], ids=str)
def test_an_output_without_the_axis_is_no_matter_of_the_law(law, judge):
    verdict = judge(torch.sum, law, X, cases=5)
    assert verdict.grade == "inapplicable"
    assert "the output does not run along the input's axis" in verdict.reason


def test_batch_norm_is_refuted_in_training_only(judge):
    verdict = judge(nn.BatchNorm1d(8), batch_independence(), shape("b 8"))
    assert (verdict.grade, verdict.counterexample.mode) == ("refuted", "training mode")
