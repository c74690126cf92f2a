"""Judging statements about samples: chance is allowed for, at a stated rate of false alarms."""

from __future__ import annotations

import math
from statistics import NormalDist

import torch

from lawful.checking.numerics import Finding, real
from lawful.laws.language import Averages, Follows

Statistical = Follows | Averages

FIRST, SECOND = 1e-3, 1e-6
"""The false-alarm rates of the two stages of a statistical judgement; the second has ten times the samples."""

KINDS = ("does not follow", "averages otherwise")
"""How samples fail."""


def judge_samples(statement: Statistical, rate: float = FIRST) -> Finding:
    """Finds out whether samples are as stated, but for what chance does at a rate."""
    if not real(statement.samples).isfinite().all():
        return Finding("not finite", left=math.nan, right=math.nan, compared=statement.samples.numel())
    return follows(statement, rate) if isinstance(statement, Follows) else averages(statement, rate)


def follows(statement: Follows, rate: float) -> Finding:
    r"""Compares the empirical distribution function with the stated one.

    By the Dvoretzky-Kiefer-Wolfowitz inequality the largest distance exceeds $\sqrt{\ln(2/a) / 2n}$ with
    probability at most a, the false-alarm rate.
    """
    x, _ = real(statement.samples).reshape(-1).sort()
    n = x.numel()
    expected = real(statement.cdf(x))
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    distance = torch.maximum((steps[1:] - expected).abs(), (expected - steps[:-1]).abs())
    worst = int(distance.argmax())
    residual, bound = float(distance[worst]), math.sqrt(math.log(2 / rate) / (2 * n))
    return Finding(
        KINDS[0] if residual > bound else "held",
        index=(worst,),
        left=float(steps[worst + 1]),
        right=float(expected[worst]),
        residual=residual,
        scale=1.0,
        noise=bound,
        compared=n,
    )


def averages(statement: Averages, rate: float) -> Finding:
    r"""Compares the mean of the samples with the stated one.

    The mean is taken for normal with the standard deviation $s / \sqrt n$; a quarter is added to the quantile for
    what the tails of the samples do to that.
    """
    x, mean = real(statement.samples).reshape(-1), float(statement.mean)
    n = x.numel()
    quantile = 1.25 * NormalDist().inv_cdf(1 - rate / 2)
    bound = quantile * float(x.std()) / math.sqrt(n) + 1e-9 * abs(mean)
    residual = abs(float(x.mean()) - mean)
    return Finding(
        KINDS[1] if residual > bound else "held",
        left=float(x.mean()),
        right=mean,
        residual=residual,
        scale=abs(mean),
        noise=bound,
        compared=n,
    )
