"""Padding, masked positions and fully masked rows."""

import pytest
import torch
from torch import nn

from lawful import mask, shape, tokens
from lawful.laws import fully_masked_row_is_finite, masked_positions_have_no_influence, padding_invariance
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

torch.manual_seed(0)


def attend(x, m):
    return (x @ x.mT).masked_fill(~m[:, None], -torch.inf).softmax(-1) @ x


def attend_with_zeros_before_and_after(x, m):
    empty = ~m.any(-1)[:, None, None]
    scores = (x @ x.mT).masked_fill(~m[:, None], -torch.inf).masked_fill(empty, 0)
    return (scores.softmax(-1) @ x).masked_fill(empty, 0)


def attend_with_added_mask(x, m):
    return (x @ x.mT + m[:, None]).softmax(-1) @ x


def masked_mean(x, m):
    m = m[..., None].to(x)
    return x + (x * m).sum(1, keepdim=True) / m.sum(1, keepdim=True)


def centered(x, m):
    return x - x.mean(1, keepdim=True)


def centered_over_the_padded_length(x, m):
    return x - (x * m[..., None]).mean(1, keepdim=True)


def pooled(x, m):
    return (x * m[..., None]).sum(1) / m.sum(1, keepdim=True)


def pooled_over_the_padded_length(x, m):
    return (x * m[..., None]).mean(1)


def masked_loss(x, m):
    return (x.square().sum(-1) * m).sum() / m.sum()


def loss_over_all_positions(x, m):
    return x.square().sum() / m.sum()


def from_lengths(f):
    return lambda x, lengths: f(x, torch.arange(x.shape[1]) < lengths[:, None])


class Convolution(nn.Module):
    """Convolves over time, with the masked positions set to 0 first or not."""

    def __init__(self, masked):
        super().__init__()
        self.masked = masked
        self.mix = nn.Conv1d(2, 2, 3, padding=1)

    def forward(self, x, m):
        return self.mix((x * m[..., None] if self.masked else x).mT).mT


class Recurrence(nn.GRU):
    def forward(self, x, m):
        return super().forward(x)


class Attention(nn.MultiheadAttention):
    """`nn.MultiheadAttention`; its mask is True for ignored positions.

    With an even number of heads it uses a fast path in eval mode without gradients.
    """

    def __init__(self, weights=False):
        super().__init__(2, 2, batch_first=True)
        self.weights = weights

    def forward(self, x, hidden):
        return super().forward(x, x, x, key_padding_mask=hidden, need_weights=self.weights)


padding, influence, empty_row = (
    padding_invariance(),
    masked_positions_have_no_influence(),
    fully_masked_row_is_finite(),
)
INPUTS, LENGTHS = (shape("b t 2"), mask("b t")), (shape("b t 2"), tokens("b", vocab_size=90))

SATISFIED = {
    "padding: attention under a key mask": (padding, INPUTS, attend),
    "padding: a recurrence": (padding, INPUTS, Recurrence(2, 2, batch_first=True)),
    "padding: a convolution masked first": (padding, INPUTS, Convolution(masked=True)),
    "padding: lengths": (padding, LENGTHS, from_lengths(attend)),
    "padding: lengths, channels first": (
        padding_invariance(time=2),
        (shape("b 2 t"), tokens("b", vocab_size=90)),
        lambda x, n: from_lengths(attend)(x.mT, n).mT,
    ),
    "padding: PyTorch's polarity": (padding_invariance(keep=False), INPUTS, Attention()),
    "padding: a pooled output": (padding, INPUTS, pooled),
    "padding: a loss": (padding, INPUTS, masked_loss),
    "padding: lengths, a pooled output": (padding, LENGTHS, from_lengths(pooled)),
    "influence: a pooled output": (influence, INPUTS, pooled),
    "influence: a pooled output of another size": (influence, INPUTS, lambda x, m: pooled(x, m).repeat(1, 3)),
    "influence: a loss": (influence, INPUTS, masked_loss),
    "influence: one output per position": (influence, INPUTS, lambda x, m: x.sum(-1)),
    "influence: -inf at masked keys": (influence, INPUTS, attend),
    "influence: a masked mean": (influence, INPUTS, masked_mean),
    "influence: PyTorch's polarity": (
        masked_positions_have_no_influence(keep=False),
        INPUTS,
        Attention(),
    ),
    "influence: channels first": (
        masked_positions_have_no_influence(time=-1),
        (shape("b 2 t"), mask("b t")),
        lambda x, m: attend(x.mT, m).mT,
    ),
    "empty row: zeros before and after": (empty_row, INPUTS, attend_with_zeros_before_and_after),
    "empty row: PyTorch's polarity": (
        fully_masked_row_is_finite(keep=False),
        INPUTS,
        lambda x, hidden: attend_with_zeros_before_and_after(x, ~hidden),
    ),
}
BROKEN = {
    "padding: a convolution reads it": (padding, INPUTS, Convolution(masked=False)),
    "padding: a norm reads it": (padding, INPUTS, centered),
    "padding: a mean over the padded length": (padding, INPUTS, centered_over_the_padded_length),
    "padding: lengths": (padding, LENGTHS, from_lengths(centered_over_the_padded_length)),
    "padding: lengths ignored": (padding, LENGTHS, centered),
    "padding: a pooled output": (padding, INPUTS, pooled_over_the_padded_length),
    "padding: a loss": (padding, INPUTS, loss_over_all_positions),
    "padding: lengths, a pooled output": (padding, LENGTHS, from_lengths(pooled_over_the_padded_length)),
    "influence: a pooled output": (influence, INPUTS, lambda x, m: x.mean(1)),
    "influence: a loss": (influence, INPUTS, loss_over_all_positions),
    "padding: the other polarity": (padding, INPUTS, Attention()),
    "influence: the other polarity": (influence, INPUTS, Attention()),
    "influence: PyTorch's polarity, and ours": (
        masked_positions_have_no_influence(keep=False),
        INPUTS,
        attend,
    ),
    "influence: a mask that is added": (influence, INPUTS, attend_with_added_mask),
    "influence: a norm over time": (influence, INPUTS, centered),
    "empty row: -inf everywhere": (empty_row, INPUTS, attend),
    "empty row: NaN set to 0 afterwards": (empty_row, INPUTS, lambda x, m: attend(x, m).nan_to_num(0.0)),
    "empty row: PyTorch's own": (fully_masked_row_is_finite(keep=False), INPUTS, Attention(weights=True)),
    "empty row: PyTorch's own, its fast path": (
        fully_masked_row_is_finite(keep=False),
        INPUTS,
        Attention().eval(),
    ),
}
WRONG = {
    "padding: time": (padding_invariance(time=3), INPUTS, "time=3 is out of range"),
    "influence: time": (masked_positions_have_no_influence(time=-4), INPUTS, "time=-4 is out of range"),
    "one input": (influence, shape("b t 4"), "masked_positions_have_no_influence needs 2 inputs, got 1"),
}


@pytest.mark.parametrize(("law", "inputs", "reason"), WRONG.values(), ids=WRONG)
def test_usage_errors(law, inputs, reason, judge):
    verdict = judge(attend, law, inputs)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert reason in verdict.reason


def test_a_mask_that_hides_nothing_is_vacuous(judge):
    def everything_is_there(draw):
        t = draw.integer(1, 4)
        return draw.values(2, t, 4), torch.ones(2, t, dtype=torch.bool)

    assert judge(attend, influence, everything_is_there).status == "vacuous"


@pytest.mark.parametrize("law", [padding, influence, empty_row], ids=str)
def test_a_mask_must_be_boolean(law, judge):
    verdict = judge(lambda x, m: x, law, (shape("b t 4"), shape("b t")), cases=5)
    assert verdict.status == "inapplicable"
    assert "a boolean mask" in verdict.reason
    assert "got torch.float64" in verdict.reason


@pytest.mark.parametrize("law", [padding, influence], ids=str)
@pytest.mark.parametrize("axes", ["t", "b t t"])
def test_a_mask_of_another_shape(law, axes, judge):
    verdict = judge(lambda x, m: x, law, (shape("b t 4"), mask(axes)), cases=5)
    assert verdict.status == "inapplicable" or verdict.usage_error
    assert "(b, t)" in verdict.reason


@pytest.mark.parametrize("law", [padding, influence], ids=str)
def test_a_shorter_output_is_inapplicable(law, judge):
    assert judge(lambda x, m: attend(x, m)[:, ::2], law, INPUTS, cases=5).status == "inapplicable"


def test_nan_in_the_gradient(judge):
    found = judge(lambda x, m: attend(x, m).nan_to_num(0.0), empty_row, INPUTS).counterexample
    assert (found.kind, found.output) == ("not finite", 1)
