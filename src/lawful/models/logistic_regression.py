"""Logistic regression: a dense layer and a sigmoid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from lawful.blocks import Dense
from lawful.laws import AtMost, Claim, Draw, Map, Statement, agreement, boundedness, convexity, law, shape


@dataclass(frozen=True, kw_only=True)
class LogisticRegressionConfig:
    """The size of a logistic regression."""

    d: int
    """The size of the input."""


class LogisticRegression(nn.Module):
    r"""Gives the probability of one of two classes, by the sigmoid of an affine score.

    $$p = \frac{1}{1 + e^{-(w \cdot x + b)}}, \qquad \log \frac{p}{1 - p} = w \cdot x + b$$

    It is a multilayer perceptron without hidden layers. The score is the log-odds, and its negative log-likelihood
    is a convex function of $w$ and $b$. Train on `score`, which does not saturate.

    Args:
        config: The size.

    Examples:
        >>> model = LogisticRegression(LogisticRegressionConfig(d=3))
        >>> model(torch.zeros(5, 3)).shape
        torch.Size([5])
    """

    def __init__(self, config: LogisticRegressionConfig) -> None:
        super().__init__()
        self.config = config
        self.linear = Dense(config.d, 1)

    def score(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        """Returns the log-odds."""
        return self.linear(x).squeeze(-1)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        """Returns the probability."""
        return torch.sigmoid(self.score(x))


@law("s(x) ≤ s(y) ⇒ f(x) ≤ f(y)", tries=None)
def monotone_in_score(f: Map, x: Tensor, *, score: str = "score", draw: Draw) -> Statement:
    """Of two inputs the one with the higher score has no lower output.

    Kept by: a sigmoid or any other increasing function of the score.
    Broken by: a probability of the other class.
    """
    y = draw.fresh(x)
    lower = f.method(score)(x) <= f.method(score)(y)
    here, there = f(x), f(y)
    return AtMost(torch.where(lower, here, there), torch.where(lower, there, here))


def claims() -> Iterator[Claim]:
    """The laws that logistic regression obeys."""
    model = LogisticRegression(LogisticRegressionConfig(d=3))
    points = torch.linspace(-2.0, 2.0, 12).reshape(4, 3).sin()
    signs = torch.tensor([-1.0, 1.0, 1.0, -1.0])

    def equation(x: Tensor) -> Tensor:
        return 1 / (1 + torch.exp(-(x * model.linear.weight[0]).sum(-1) - model.linear.bias))

    def loss(parameters: Tensor) -> Tensor:
        named = {"weight": parameters[None, :3], "bias": parameters[3:]}
        scores = functional_call(model.linear, named, (points.to(parameters),))
        return torch.logaddexp(scores[:, 0] * signs.to(scores), torch.zeros_like(scores[:, 0])).sum()

    yield Claim(agreement(other=equation), model, shape("b 3"))
    yield Claim(boundedness(low=0.0, high=1.0), model, shape("b 3"))
    yield Claim(monotone_in_score(), model, shape("b 3"))
    yield Claim(convexity(), loss, shape("4"), name="LogisticRegression, negative log-likelihood")
