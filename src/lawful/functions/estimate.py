"""Estimates of log-likelihoods: the value, how far chance may have put it off, and what it cost."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class LogProbEstimate(NamedTuple):
    """Holds a log-likelihood, or a bound on it, of each example, in nats.

    Examples:
        >>> import torch
        >>> LogProbEstimate.exact(torch.tensor([-1.0]))
        LogProbEstimate(value=tensor([-1.]), error=tensor([0.]), evaluations=1)
    """

    value: Float[Tensor, "*n"]
    """Nats for each example."""
    error: Float[Tensor, "*n"]
    """The standard error of each value; 0 where nothing was left to chance."""
    evaluations: int
    """How often the model, or its network, was called."""

    @classmethod
    def exact(cls, value: Float[Tensor, "*n"], *, evaluations: int = 1) -> LogProbEstimate:
        """Wraps values that were computed without chance."""
        return cls(value, value.new_zeros(()).expand_as(value), evaluations)

    @classmethod
    def of_samples(cls, values: Float[Tensor, "k *n"], *, evaluations: int) -> LogProbEstimate:
        r"""Averages $k$ unbiased values of each example; the error is $s / \sqrt k$, unknown (NaN) of a single one."""
        k = len(values)
        return cls(
            values.mean(0), values.std(0, correction=1) / k**0.5 if k > 1 else values[0] * float("nan"), evaluations
        )
