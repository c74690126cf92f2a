"""Uncertainty: how far several predictions of one thing are apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions import entropy, jensen_shannon
from lawful.laws import Claim, agreement, boundedness, permutation_invariance, shape, transformed


@dataclass(frozen=True, eq=False)
class ClassUncertainty:
    """What several predictions of classes amount to."""

    mean: Float[Tensor, "n c"]
    """Their mean, probabilities again."""
    entropy: Float[Tensor, " n"]
    """How uncertain it is in all: the entropy of the mean, in nats."""
    information: Float[Tensor, " n"]
    """How much of that is disagreement, which more data would settle: the mutual information, in nats."""


def class_spread(samples: Float[Tensor, "s n c"]) -> ClassUncertainty:
    r"""Splits the uncertainty of several predictions into what all share and what they disagree on.

    $$H(\bar p) = \underbrace{\tfrac{1}{S} \textstyle\sum_s H(p_s)}_{\text{noise in the data}} +
    \underbrace{I}_{\text{disagreement}}, \qquad \bar p = \tfrac{1}{S} \textstyle\sum_s p_s$$

    Reference:
        Depeweg and others, *Decomposition of Uncertainty in Bayesian Deep Learning for Efficient and Risk-sensitive
        Learning*, 2018.

    Args:
        samples: The probabilities $p_s$, of dropout (`sampled`) or of the members of an ensemble.

    Examples:
        >>> found = class_spread(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
        >>> found.mean, found.entropy, found.information
        (tensor([[0.5000, 0.5000]]), tensor([0.6931]), tensor([0.6931]))
    """
    _check(samples, 3, 1)
    mean = samples.mean(0)
    whole = entropy(mean)
    return ClassUncertainty(mean, whole, (whole - entropy(samples).mean(0)).clamp_min(0))


@dataclass(frozen=True, eq=False)
class ValueSpread:
    """What several predictions of numbers amount to."""

    mean: Float[Tensor, "n ..."]
    """Their mean."""
    std: Float[Tensor, "n ..."]
    """Their standard deviation."""


def value_spread(samples: Float[Tensor, "s n ..."]) -> ValueSpread:
    r"""Takes the mean and the standard deviation of several predictions.

    $$\bar y = \frac{1}{S} \sum_s y_s, \qquad \sigma^2 = \frac{1}{S - 1} \sum_s (y_s - \bar y)^2$$

    Args:
        samples: The predictions $y_s$, at least two.

    Examples:
        >>> found = value_spread(torch.tensor([[1.0], [3.0]]))
        >>> found.mean, found.std
        (tensor([2.]), tensor([1.4142]))
    """
    _check(samples, 2, 2)
    std, mean = torch.std_mean(samples, dim=0)
    return ValueSpread(mean, std)


def _check(samples: Tensor, axes: int, least: int) -> None:
    if samples.dim() < axes or len(samples) < least:
        wanted = f"at least {least} predictions of the same examples"
        raise ValueError(f"{wanted} were wanted: got shape {tuple(samples.shape)}")


def claims() -> Iterator[Claim]:
    """The laws that uncertainty obeys."""
    pair, several = (transformed(lambda x: x.softmax(-1), f"{s} n 3") for s in ("2", "s"))

    def information(p: Tensor) -> Tensor:
        return class_spread(p).information

    yield Claim(agreement(other=lambda p: jensen_shannon(p[0], p[1])), information, pair, name="class_spread of two")
    yield Claim(boundedness(low=0.0, high=math.log(2)), information, pair, name="class_spread of two")
    yield Claim(permutation_invariance(axis=0), information, several, name="class_spread")

    def in_all(p: Tensor) -> Tensor:
        return torch.cat([class_spread(p).mean, class_spread(p).entropy[..., None]], -1)

    def equation(p: Tensor) -> Tensor:
        mean = p.sum(0) / len(p)
        return torch.cat([mean, -(mean * mean.log()).sum(-1, keepdim=True)], -1)

    yield Claim(
        agreement(other=equation), in_all, transformed(lambda x: x.tanh().softmax(-1), "s n 3"), name="class_spread"
    )

    def values(y: Tensor) -> Tensor:
        return torch.stack([value_spread(y).mean, value_spread(y).std])

    def moments(y: Tensor) -> Tensor:
        mean = y.sum(0) / 3
        return torch.stack([mean, ((y - mean).square().sum(0) / 2).sqrt()])

    yield Claim(agreement(other=moments), values, shape("3 n 2"), name="value_spread")
