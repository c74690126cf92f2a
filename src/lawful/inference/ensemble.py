"""Ensembles: several models as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.functions._validation import any_true
from lawful.laws import (
    AtMost,
    Claim,
    Map,
    Statement,
    agreement,
    law,
    permutation_invariance,
    shape,
    sums_to_one,
    tokens,
)

Average = Callable[[Tensor], Tensor]


def mean_probabilities(scores: Float[Tensor, "m *batch c"]) -> Float[Tensor, "*batch c"]:
    r"""Averages members as probabilities, their mixture; returns its logarithm.

    $$p = \frac{1}{m} \sum_j p_j, \qquad p_j = \mathrm{softmax}(s_j)$$

    A class that one member thinks likely stays possible. Its surprise is at most the average of the members' (Jensen).

    Args:
        scores: The scores $s_j$ of the members, along the first axis.

    Examples:
        >>> mean_probabilities(torch.tensor([[9.0, 0.0], [0.0, 9.0]])).exp()
        tensor([0.5000, 0.5000])
    """
    return scores.log_softmax(-1).logsumexp(0) - math.log(len(scores))


def mean_log_probabilities(scores: Float[Tensor, "m *batch c"]) -> Float[Tensor, "*batch c"]:
    r"""Averages members as log-probabilities and makes them probabilities again; returns their logarithm.

    $$p \propto \prod_j p_j^{1 / m}$$

    A class that one member rules out is ruled out. Of logits it is the mean.

    Args:
        scores: The scores of the members, along the first axis.

    Examples:
        >>> mean_log_probabilities(torch.tensor([[9.0, 0.0], [0.0, 9.0]])).exp()
        tensor([0.5000, 0.5000])
    """
    mean = scores.log_softmax(-1).mean(0)
    if any_true(mean.isneginf().all(-1)):
        raise ValueError("a class that no member rules out was wanted: got members that agree on none")
    return mean.log_softmax(-1)


def mean(values: Float[Tensor, "m *batch"]) -> Float[Tensor, "*batch"]:
    """Averages members that predict numbers."""
    return values.mean(0)


class Ensemble(nn.Module):
    r"""Asks several models and averages what they say.

    $$y = \operatorname{average}\bigl(f_1(x), \dots, f_m(x)\bigr)$$

    `each` gives what every member says; `class_spread` and `value_spread` make an uncertainty of it.

    Reference:
        Lakshminarayanan, Pritzel and Blundell, *Simple and Scalable Predictive Uncertainty Estimation using Deep
        Ensembles*, 2017.

    Args:
        members: The models $f_j$.
        average: `mean_probabilities` or `mean_log_probabilities`, of the scores of classes, or `mean`, of numbers.

    Examples:
        >>> model = Ensemble([nn.Linear(3, 2), nn.Linear(3, 2)])
        >>> model(torch.zeros(5, 3)).exp().sum(-1).detach()
        tensor([1., 1., 1., 1., 1.])
    """

    def __init__(self, members: Sequence[nn.Module], *, average: Average = mean_probabilities) -> None:
        super().__init__()
        if not members:
            raise ValueError("at least one member was wanted: got none")
        self.members, self.average = nn.ModuleList(members), average

    def each(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "m b ..."]:
        """Returns what every member says."""
        return torch.stack([member(x) for member in self.members])

    def forward(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
        """Returns the average: log-probabilities, or numbers."""
        return self.average(self.each(x))


@law("-log p(y) ≤ mean of -log p_j(y)", every_input=True, discover_with=None)
def no_worse_than_its_members(f: Map, scores: Tensor, y: Tensor) -> Statement:
    """The truth is on average no more surprising to the ensemble than to its members (Jensen's inequality).

    Satisfied by: the mixture; the geometric mean too.
    Broken by: a geometric mean that is not made to add up to one; the least sure member.
    """

    def surprise(log_p: Tensor) -> Tensor:
        return -log_p.gather(-1, y[..., None].expand(*log_p.shape[:-1], 1))[..., 0]

    return AtMost(surprise(f(scores, y)), surprise(scores.log_softmax(-1)).mean(0), exercised=True)


def claims() -> Iterator[Claim]:
    """The laws that ensembles obey."""
    jensen = (shape("m b 3"), tokens("b", vocab_size=3))
    for average in (mean_probabilities, mean_log_probabilities):
        name = average.__name__

        def total(scores: Tensor, average: Average = average) -> Tensor:
            return average(scores).exp()

        def alone(scores: Tensor, average: Average = average) -> Tensor:
            return average(scores[None])

        def by_truth(scores: Tensor, y: Tensor, average: Average = average) -> Tensor:
            return average(scores)

        yield Claim(sums_to_one(), total, shape("m b 3"), name=name)
        yield Claim(permutation_invariance(axis=0), average, shape("m b 3"), name=name)
        yield Claim(agreement(other=lambda s: s.log_softmax(-1)), alone, shape("b 3"), name=f"{name} of one")
        yield Claim(no_worse_than_its_members(), by_truth, jensen, name=name)
    mixture = agreement(other=lambda s: s.softmax(-1).mean(0))
    yield Claim(mixture, lambda s: mean_probabilities(s).exp(), shape("m b 3"), name="arithmetic, a mixture")
    mean_score = agreement(other=lambda s: s.mean(0).log_softmax(-1))
    yield Claim(mean_score, mean_log_probabilities, shape("m b 3"), name="geometric, the mean score")
    one, other = nn.Linear(3, 2), nn.Linear(3, 2)
    halves = agreement(other=lambda x: (one(x) + other(x)) / 2)
    yield Claim(halves, Ensemble([one, other], average=mean), shape("b 3"), name="Ensemble")
