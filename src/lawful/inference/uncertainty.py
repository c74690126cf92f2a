"""Uncertainty from several predictions of an ensemble: entropy, mutual information, standard deviation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions import entropy
from lawful.laws import Claim, boundedness, permutation_invariance, transformed


@dataclass(frozen=True, eq=False)
class ClassUncertainty:
    """Uncertainty of class probabilities, from several predictions."""

    mean: Float[Tensor, "n c"]
    """Mean probabilities."""
    entropy: Float[Tensor, " n"]
    """Total uncertainty: entropy of the mean, in nats."""
    mutual_information: Float[Tensor, " n"]
    """Epistemic uncertainty: disagreement of the predictions, in nats. More data would reduce it."""


def class_uncertainty(samples: Float[Tensor, "s n c"]) -> ClassUncertainty:
    r"""Splits the uncertainty of several class predictions into data noise and disagreement.

    $$H(\bar p) = \underbrace{\tfrac{1}{S} \textstyle\sum_s H(p_s)}_{\text{aleatoric}} +
    \underbrace{I}_{\text{epistemic}}, \qquad \bar p = \tfrac{1}{S} \textstyle\sum_s p_s$$

    Reference:
        Depeweg and others, *Decomposition of Uncertainty in Bayesian Deep Learning for Efficient and Risk-sensitive
        Learning*, 2018.

    Args:
        samples: Probabilities $p_s$, from `mc_dropout_predict` or the members of an ensemble.

    Examples:
        >>> result = class_uncertainty(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
        >>> result.mean, result.entropy, result.mutual_information
        (tensor([[0.5000, 0.5000]]), tensor([0.6931]), tensor([0.6931]))
    """
    _check(samples, "(s, n, c)", dims=3, min_samples=1)
    mean = samples.mean(0)
    total = entropy(mean)
    return ClassUncertainty(mean, total, (total - entropy(samples).mean(0)).clamp_min(0))


@dataclass(frozen=True, eq=False)
class ValueUncertainty:
    """Uncertainty of predicted values, from several predictions."""

    mean: Float[Tensor, "n ..."]
    """Mean."""
    std: Float[Tensor, "n ..."]
    """Standard deviation."""


def value_uncertainty(samples: Float[Tensor, "s n ..."]) -> ValueUncertainty:
    r"""Returns the mean and the standard deviation of several predicted values.

    $$\bar y = \frac{1}{S} \sum_s y_s, \qquad \sigma^2 = \frac{1}{S - 1} \sum_s (y_s - \bar y)^2$$

    Args:
        samples: Predictions $y_s$, at least two.

    Examples:
        >>> result = value_uncertainty(torch.tensor([[1.0], [3.0]]))
        >>> result.mean, result.std
        (tensor([2.]), tensor([1.4142]))
    """
    _check(samples, "(s, n, ...)", dims=2, min_samples=2)
    std, mean = torch.std_mean(samples, dim=0)
    return ValueUncertainty(mean, std)


def _check(samples: Tensor, expected: str, *, dims: int, min_samples: int) -> None:
    if samples.dim() < dims or len(samples) < min_samples:
        raise ValueError(f"expected samples of shape {expected} with s >= {min_samples}, got {tuple(samples.shape)}")


def claims() -> Iterator[Claim]:
    """Yields the claims of uncertainty."""
    pair, several = (transformed(lambda x: x.softmax(-1), f"{s} n 3") for s in ("2", "s"))

    def information(p: Tensor) -> Tensor:
        return class_uncertainty(p).mutual_information

    yield Claim(boundedness(low=0.0, high=math.log(2)), information, pair, name="class_uncertainty, two predictions")
    yield Claim(permutation_invariance(axis=0), information, several, name="class_uncertainty")
