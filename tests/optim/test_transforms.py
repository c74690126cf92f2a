from collections.abc import Iterator
from dataclasses import asdict

import pytest
import torch

from lawful.laws import Claim, agreement, shape
from lawful.optim import (
    AddDecayedWeights,
    EmaMomentum,
    Momentum,
    ScaleByAdam,
    ScaleByLearningRate,
    ScaleByLion,
    StepContext,
    WarmupMomentum,
)


def last(transform):
    """Returns the map from updates of consecutive steps to the transformed last one; parameters are the first."""

    def apply(*updates):
        context = StepContext([updates[0]], [transform.init(updates[0])], asdict(transform))
        return [transform([update.clone()], context)[0].clone() for update in updates][-1]

    return apply


def claims() -> Iterator[Claim]:
    """The transforms, written out for the second of two updates (the third of three for a warmup)."""
    pair = (shape("n 3"), shape("n 3"))
    written_out = {
        ScaleByLearningRate(0.5): lambda u, v: -0.5 * v,
        AddDecayedWeights(0.5): lambda u, v: v + 0.5 * u,
        Momentum(0.75): lambda u, v: 0.75 * u + v,
        Momentum(0.75, nesterov=True): lambda u, v: 0.75 * (0.75 * u + v) + v,
        EmaMomentum(0.75): lambda u, v: 0.75 * 0.25 * u + 0.25 * v,
        EmaMomentum(0.75, nesterov=True): lambda u, v: 0.75 * (0.75 * 0.25 * u + 0.25 * v) + 0.25 * v,
        ScaleByLion((0.5, 0.75)): lambda u, v: (0.5 * 0.25 * u + 0.5 * v).sign(),
        ScaleByAdam((0.5, 0.75), eps=0.1): lambda u, v: (
            ((u / 4 + v / 2) / (1 - 0.25)) / (((0.75 * u**2 / 4 + v**2 / 4) / (1 - 0.5625)).sqrt() + 0.1)
        ),
        ScaleByAdam((0.5, 0.75), eps=0.1, bias_correction=False): lambda u, v: (
            (u / 4 + v / 2) / ((0.75 * u**2 / 4 + v**2 / 4).sqrt() + 0.1)
        ),
    }
    for transform, equation in written_out.items():
        yield Claim(agreement(other=equation), last(transform), pair, name=repr(transform))

    def momentum_of_half_then_more(a, b, c):
        v = 3 / 4 * (5 / 8 * a / 2 + 3 / 8 * b) + c / 4
        return 3 / 4 * v + c / 4

    three = shape("n 2"), shape("n 2"), shape("n 2")
    warmup = last(WarmupMomentum(0.75, initial_momentum=0.5, warmup_steps=2))
    yield Claim(agreement(other=momentum_of_half_then_more), warmup, three, name="WarmupMomentum, third step")
    constant = last(EmaMomentum(0.75, nesterov=True))
    none = last(WarmupMomentum(0.75, warmup_steps=0))
    yield Claim(agreement(other=constant), none, three, name="WarmupMomentum without a warmup")


def test_bias_correction_is_a_change_of_the_learning_rate():
    u = torch.randn(5, dtype=torch.float64)
    for transform, scale in (
        (ScaleByAdam(eps=0.0), 1.0),
        (ScaleByAdam(eps=0.0, bias_correction=False), 0.1 / 0.001**0.5),
    ):
        torch.testing.assert_close(last(transform)(u), scale * u.sign())


def test_errors_name_the_option():
    with pytest.raises(ValueError, match=r"initial_momentum must be in \[0, 1\), got 1"):
        WarmupMomentum(initial_momentum=1.0)
    with pytest.raises(ValueError, match=r"warmup_steps must be in \[0, inf\), got -1"):
        WarmupMomentum(warmup_steps=-1)
    with pytest.raises(ValueError, match=r"betas\[1\] must be in \[0, 1\), got 1"):
        ScaleByLion((0.9, 1.0))
