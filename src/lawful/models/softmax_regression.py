"""Softmax regression: multinomial logistic regression, a dense layer and a softmax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from lawful.blocks import Dense
from lawful.laws import Claim, agreement, convexity, linearity, shape


@dataclass(frozen=True, kw_only=True)
class SoftmaxRegressionConfig:
    """The sizes of a softmax regression."""

    d: int
    """The size of the input."""
    classes: int
    """The number of classes."""


class SoftmaxRegression(nn.Module):
    r"""Scores each class by an affine map; the softmax of the scores is the probabilities.

    $$s = W x + b, \qquad p_i = \frac{e^{s_i}}{\sum_j e^{s_j}}$$

    With two classes it is the logistic regression whose weight is the difference of the rows of $W$. The negative
    log-likelihood is convex in $W$ and $b$. Adding one row to all rows changes no probability.

    Args:
        config: The sizes.

    Examples:
        >>> model = SoftmaxRegression(SoftmaxRegressionConfig(d=3, classes=4))
        >>> model(torch.zeros(5, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(self, config: SoftmaxRegressionConfig) -> None:
        super().__init__()
        self.config = config
        self.linear = Dense(config.d, config.classes)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch classes"]:
        """Returns the scores of the classes."""
        return self.linear(x)


def claims() -> Iterator[Claim]:
    """The laws that softmax regression obeys."""
    model = SoftmaxRegression(SoftmaxRegressionConfig(d=3, classes=2))
    points, labels = torch.linspace(-2.0, 2.0, 12).reshape(4, 3).sin(), torch.tensor([0, 1, 1, 0])

    def slope(x: Tensor) -> Tensor:
        return model(x) - model(torch.zeros_like(x))

    def second(x: Tensor) -> Tensor:
        return model(x).softmax(-1)[..., 1]

    def logistic(x: Tensor) -> Tensor:
        weight, bias = (p[1] - p[0] for p in model.parameters())
        return torch.sigmoid(x @ weight + bias)

    def loss(parameters: Tensor) -> Tensor:
        named = {"linear.weight": parameters[:, :3], "linear.bias": parameters[:, 3]}
        return F.cross_entropy(functional_call(model, named, (points.to(parameters),)), labels)

    yield Claim(linearity(), slope, shape("b 3"), name="SoftmaxRegression less its value at 0")
    yield Claim(agreement(other=logistic), second, shape("b 3"), name="SoftmaxRegression of two classes")
    yield Claim(convexity(), loss, shape("2 4"), name="SoftmaxRegression, negative log-likelihood")
