"""Log-likelihood estimates with their errors."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class LogProbEstimate(NamedTuple):
    """Log-likelihood of each example, or a bound on it, in nats, with its error.

    Examples:
        >>> import torch
        >>> LogProbEstimate.exact(torch.tensor([-1.0]))
        LogProbEstimate(value=tensor([-1.]), error=tensor([0.]), evaluations=1)
    """

    value: Float[Tensor, "*n"]
    """Nats per example."""
    error: Float[Tensor, "*n"]
    """Error of each value: its standard error, and the error of numerical integration if there is one; 0 if exact."""
    evaluations: int
    """Number of calls of the model or its network."""

    @classmethod
    def exact(cls, value: Float[Tensor, "*n"], *, evaluations: int = 1) -> LogProbEstimate:
        """Wraps exact values, with a standard error of 0."""
        return cls(value, value.new_zeros(()).expand_as(value), evaluations)

    @classmethod
    def from_samples(cls, values: Float[Tensor, "k *n"], *, evaluations: int) -> LogProbEstimate:
        r"""Averages $k$ unbiased values per example; the standard error is $s / \sqrt k$, or NaN for $k = 1$."""
        k = len(values)
        error = values.std(0, correction=1) / k**0.5 if k > 1 else values[0] * float("nan")
        return cls(values.mean(0), error, evaluations)
