"""Batch independence, causality, locality, and effects of inputs and positions."""

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

from lawful import mask, shape, tokens
from lawful.laws import (
    batch_independence,
    causality,
    every_input_matters,
    locality,
    positions_matter,
    ragged_batches,
    relative_position_only,
)
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

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


def masked_attention(x, there):
    return attend(x, ~there[:, None, :])


def rotate_by_position(x, p, halves=True):
    """Rotates pairs of features by angles proportional to the positions p."""
    angle = p[..., None].to(x) / torch.tensor([1.0, 10.0]).to(x)
    a, b = x.chunk(2, dim=-1) if halves else (x[..., ::2], x[..., 1::2])
    turned = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
    return torch.cat(turned, dim=-1) if halves else torch.stack(turned, dim=-1).flatten(-2)


def rotary_scores(q, k, p):
    return rotate_by_position(q, p) @ rotate_by_position(k, p).mT


def rotary_in_two_layouts(q, k, p):
    """Rotates halves of q, but adjacent pairs of k."""
    return rotate_by_position(q, p) @ rotate_by_position(k, p, halves=False).mT


def rotate_by_head(x):
    """Rotates by head instead of by position: queries and keys get the same angle, which cancels."""
    return rotate_by_position(x, torch.arange(x.shape[-2]))


def rotary_over_heads(q, k, p):
    return torch.einsum("bthd,bshd->bhts", rotate_by_head(q), rotate_by_head(k))


def relative_bias(q, k, p):
    return q @ k.mT - (p[:, :, None] - p[:, None, :]).abs()


def absolute(q, k, p):
    return (q + p[..., None].sin()) @ (k + p[..., None].sin()).mT


def no_positions(q, k, p):
    return q @ k.mT


class Packed(nn.Module):
    """A recurrence over packed sequences."""

    def __init__(self):
        super().__init__()
        self.recurrence = nn.GRU(3, 3, batch_first=True)

    def forward(self, x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return rnn.pad_packed_sequence(self.recurrence(packed)[0], batch_first=True, total_length=x.shape[1])[0]


def mean_of_what_is_there(x, there):
    return (x * there[..., None]).sum(1) / there.sum(1, keepdim=True)


def mean_over_the_padded_length(x, there):
    return (x * there[..., None]).mean(1)


def positions_from_the_end(x, there):
    i = torch.arange(x.shape[1])
    return x + (x.shape[1] - i)[:, None]


X, CHANNELS = shape("b t 3"), shape("b 2 t")
MASKED, LENGTHS = (X, mask("b t")), (shape("b t:1..6 3"), tokens("b", vocab_size=7))
ROTARY = (shape("b t 4"), shape("b t 4"), tokens("b t", vocab_size=50))
HEADS = (shape("b t 2 4"), shape("b t 2 4"), tokens("b t", vocab_size=50))

SATISFIED = {
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
        tokens("b t", vocab_size=7),
        nn.Sequential(nn.Embedding(7, 3), nn.GRU(3, 3, batch_first=True)),
    ),
    "2 r + 1 taps": (locality(radius=2, axis=2), CHANNELS, nn.Conv1d(2, 2, 5, padding=2)),
    "attention in a window": (locality(radius=1), X, window_attention),
    "each position for itself": (locality(radius=0), X, nn.Linear(3, 3)),
    "matters: a mask": (every_input_matters(), MASKED, masked_attention),
    "matters: a keyword": (every_input_matters(), {"q": X, "k": X, "p": tokens("b t", vocab_size=9)}, relative_bias),
    "relative: rotary": (relative_position_only(), ROTARY, rotary_scores),
    "relative: a bias": (relative_position_only(), ROTARY, relative_bias),
    "positions: rotary": (positions_matter(), ROTARY, rotary_scores),
    "positions: a bias": (positions_matter(), ROTARY, relative_bias),
    "positions: absolute": (positions_matter(), ROTARY, absolute),
    "ragged: attention": (ragged_batches(), MASKED, masked_attention),
    "ragged: packed": (ragged_batches(), LENGTHS, Packed()),
    "ragged: a mean": (ragged_batches(), MASKED, mean_of_what_is_there),
    "ragged: another polarity": (ragged_batches(keep=False), MASKED, lambda x, hidden: masked_attention(x, ~hidden)),
}
BROKEN = {
    "a reshape that mixes samples": (batch_independence(), X, mix_samples),
    "a maximum over the batch": (batch_independence(), X, lambda x: x - x.max()),
    "a recurrence over the batch": (batch_independence(batch=0), shape("t b 3"), nn.GRU(3, 3)),
    "attention without a mask": (causality(), X, attend),
    "a norm over time": (causality(time=-1), CHANNELS, nn.GroupNorm(1, 2)),
    "top-k over the sequence": (causality(), X, top_k),
    "a centered convolution": (causality(time=-1), CHANNELS, nn.Conv1d(2, 2, 3, padding=1)),
    "a look at the next token": (causality(), tokens("b t", vocab_size=7), lambda x: x.roll(-1, 1)),
    "one tap too many": (locality(radius=1, axis=2), CHANNELS, nn.Sequential(nn.ZeroPad1d((1, 2)), nn.Conv1d(2, 2, 4))),
    "a window and the first position": (locality(radius=1), X, window_and_first),
    "a mean over the axis": (locality(radius=3), X, lambda x: x - x.mean(1, keepdim=True)),
    "matters: a mask that is dropped": (every_input_matters(), MASKED, lambda x, there: attend(x)),
    "relative: absolute": (relative_position_only(), ROTARY, absolute),
    "relative: two layouts": (relative_position_only(), ROTARY, rotary_in_two_layouts),
    "positions: over the heads": (positions_matter(), HEADS, rotary_over_heads),
    "positions: dropped": (positions_matter(), ROTARY, no_positions),
    "ragged: a mean over the padded length": (ragged_batches(), MASKED, mean_over_the_padded_length),
    "ragged: positions from the end": (ragged_batches(), MASKED, positions_from_the_end),
    "ragged: the mask dropped": (ragged_batches(), MASKED, lambda x, there: attend(x)),
}
SCRIPTS = ["relative: absolute", "ragged: a mean over the padded length"]
INAPPLICABLE = {
    "relative: no positions": (relative_position_only(), X, attend, "expected integer positions as the last input"),
    "relative: a mask": (
        relative_position_only(),
        MASKED,
        masked_attention,
        "expected integer positions as the last input",
    ),
    "positions: none": (positions_matter(), X, attend, "expected integer positions as the last input"),
    "ragged: no mask": (ragged_batches(), (X, X), torch.add, "a mask of shape"),
    "ragged: a mask of pairs": (ragged_batches(), (X, mask("b t t")), torch.add, "or lengths of shape"),
}
VACUOUS = {
    "a batch of 1": (batch_independence(), shape("1 t 4"), nn.LayerNorm(4)),
    "one moment": (causality(), shape("b 1 4"), nn.LayerNorm(4)),
    "a radius beyond the ends": (locality(radius=3), shape("b 4 4"), attend),
}
WRONG = {
    "batch": (batch_independence(batch=3), "batch=3 is out of range for an input of shape"),
    "time": (causality(time=-4), "time=-4 is out of range for an input of shape"),
    "axis": (locality(radius=1, axis=3), "axis=3 is out of range for an input of shape"),
    "negative radius": (locality(radius=-1), "radius must be at least 0, got -1"),
    "no radius": (locality(), "locality needs radius: write locality(radius=...)"),
}


@pytest.mark.parametrize(("law", "inputs", "f"), VACUOUS.values(), ids=VACUOUS)
def test_vacuous(law, inputs, f, judge):
    assert judge(f, law, inputs, cases=11).status == "vacuous"


@pytest.mark.parametrize(("law", "reason"), WRONG.values(), ids=WRONG)
def test_parameters_out_of_range(law, reason, judge):
    verdict = judge(attend, law, X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert reason in verdict.reason


def test_an_output_of_the_same_size_by_chance_does_not_make_the_law_apply(judge):
    assert judge(lambda x: x.mean(1), causality(), X).status == "inapplicable"


@pytest.mark.parametrize("law", [batch_independence(), causality(), locality(radius=1)], ids=str)
def test_an_output_without_the_axis_is_inapplicable(law, judge):
    verdict = judge(torch.sum, law, X, cases=5)
    assert verdict.status == "inapplicable"
    assert "the output and the input have different sizes along axis" in verdict.reason


def test_batch_norm_is_refuted_in_training_only(judge):
    verdict = judge(nn.BatchNorm1d(8), batch_independence(), shape("b 8"))
    assert (verdict.status, verdict.counterexample.mode) == ("refuted", "training mode")


@pytest.mark.parametrize(("law", "inputs", "f", "reason"), INAPPLICABLE.values(), ids=INAPPLICABLE)
def test_inapplicable(law, inputs, f, reason, judge):
    verdict = judge(f, law, inputs, cases=5)
    assert verdict.status == "inapplicable"
    assert reason in verdict.reason


def test_name_of_the_ignored_input(judge):
    verdict = judge(no_positions, every_input_matters(), ROTARY, cases=10)
    assert (verdict.status, verdict.reason) == ("refuted", "not observed in 10 cases: effect of input 2")


def test_no_script_without_a_counterexample(judge):
    with pytest.raises(ValueError, match="no script for positions_matter"):
        judge(no_positions, positions_matter(), ROTARY, cases=10).script()
