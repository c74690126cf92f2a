"""Ensembles: the average of several models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.functions._validation import any_true
from lawful.laws import Claim, permutation_invariance, shape, sums_to_one

Average = Callable[[Tensor], Tensor]
"""Averages outputs along the first axis."""


def mean_probabilities(logits: Float[Tensor, "m *batch c"]) -> Float[Tensor, "*batch c"]:
    r"""Returns the logarithm of the mean of the members' probabilities: a mixture.

    $$p = \frac{1}{m} \sum_j p_j, \qquad p_j = \mathrm{softmax}(s_j)$$

    A class that one member finds likely stays possible. By Jensen's inequality its negative log-likelihood is at most
    the mean of the members'.

    Args:
        logits: Logits $s_j$ of the members, along the first axis.

    Examples:
        >>> mean_probabilities(torch.tensor([[9.0, 0.0], [0.0, 9.0]])).exp()
        tensor([0.5000, 0.5000])
    """
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))


def mean_log_probabilities(logits: Float[Tensor, "m *batch c"]) -> Float[Tensor, "*batch c"]:
    r"""Returns the mean of the members' log-probabilities, renormalized: a geometric mean.

    $$p \propto \prod_j p_j^{1 / m}$$

    A class that one member excludes is excluded.

    Args:
        logits: Logits of the members, along the first axis.

    Raises:
        ValueError: If every class is excluded by some member.

    Examples:
        >>> mean_log_probabilities(torch.tensor([[9.0, 0.0], [0.0, 9.0]])).exp()
        tensor([0.5000, 0.5000])
    """
    mean = logits.log_softmax(-1).mean(0)
    if any_true(mean.isneginf().all(-1)):
        raise ValueError("every class is excluded by some member: use mean_probabilities")
    return mean.log_softmax(-1)


def mean_values(values: Float[Tensor, "m *batch"]) -> Float[Tensor, "*batch"]:
    """Returns the mean of the members' values, for regression.

    Examples:
        >>> mean_values(torch.tensor([[1.0], [3.0]]))
        tensor([2.])
    """
    return values.mean(0)


class Ensemble(nn.Module):
    r"""Averages the outputs of several models.

    $$y = \operatorname{average}\bigl(f_1(x), \dots, f_m(x)\bigr)$$

    Reference:
        Lakshminarayanan, Pritzel and Blundell, *Simple and Scalable Predictive Uncertainty Estimation using Deep
        Ensembles*, 2017.

    Args:
        members: Models $f_j$.
        average: `mean_probabilities` or `mean_log_probabilities` for classifiers, `mean_values` for regression.

    Examples:
        >>> model = Ensemble([nn.Linear(3, 2), nn.Linear(3, 2)])
        >>> total = model(torch.zeros(5, 3)).exp().sum(-1)
        >>> total.shape, bool(((total - 1).abs() < 1e-6).all())
        (torch.Size([5]), True)
    """

    def __init__(self, members: Sequence[nn.Module], *, average: Average = mean_probabilities) -> None:
        super().__init__()
        if not members:
            raise ValueError("an ensemble needs at least one member")
        self.members, self.average = nn.ModuleList(members), average

    def member_outputs(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "m b ..."]:
        """Returns the output of every member, from which `class_uncertainty` computes the disagreement."""
        return torch.stack([member(x) for member in self.members])

    def forward(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
        """Returns the average: log-probabilities or values."""
        return self.average(self.member_outputs(x))


def claims() -> Iterator[Claim]:
    """The laws of ensembles."""
    for average in (mean_probabilities, mean_log_probabilities):
        name = average.__name__

        def total(logits: Tensor, average: Average = average) -> Tensor:
            return average(logits).exp()

        yield Claim(sums_to_one(), total, shape("m b 3"), name=name)
        yield Claim(permutation_invariance(axis=0), average, shape("m b 3"), name=name)
