"""Thresholded regression: least squares on labels, and the largest output. A bad idea, to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks import Dense
from lawful.laws import Claim, agreement, shape, sums_to_one
from lawful.models.labels import one_hot
from lawful.models.linear_regression import solve_affine


@dataclass(frozen=True, kw_only=True)
class ThresholdedRegressionConfig:
    """The sizes of a thresholded regression."""

    d: int
    """The size of the input."""
    classes: int = 2
    """The number of classes."""


class ThresholdedRegression(nn.Module):
    r"""Regresses on labels of 0 and 1, and takes the class whose regression is largest.

    $$r = W x + b, \qquad \hat k = \arg\max_i r_i, \qquad \min_{W, b} \sum_n \lVert W x_n + b - e_{k_n} \rVert^2$$

    With two classes this is a threshold: $r_1 > \frac{1}{2}$. What is made small is the squared error before the
    threshold, not the number of mistakes after it: points far on the right side cost as much as mistakes do, and pull
    the boundary over. Logistic regression does not have this fault. There are no probabilities either: the class has
    1, all others 0. Of equal regressions the first class wins.

    Args:
        config: The sizes.

    Examples:
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [40.0]])
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> model = ThresholdedRegression(ThresholdedRegressionConfig(d=1)).fit(x, labels)
        >>> model(x).argmax(-1)
        tensor([0, 0, 0, 1])
    """

    def __init__(self, config: ThresholdedRegressionConfig) -> None:
        super().__init__()
        self.config = config
        self.linear = Dense(config.d, config.classes)

    def regress(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch classes"]:
        """Returns what is thresholded; with gradients it is trained on squared error."""
        return self.linear(x)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch classes"]:
        r"""Returns the logarithm of 1 at the class, and of 0 at the others: 0 and $-\infty$."""
        r = self.regress(x)
        return torch.full_like(r, -torch.inf).scatter(-1, r.argmax(-1, keepdim=True), 0.0)

    def fit(self, x: Float[Tensor, "n d"], labels: Int[Tensor, " n"], *, penalty: float = 0.0) -> ThresholdedRegression:
        """Solves for the least squares, as `LinearRegression.fit` does, with a target of 1 for the label."""
        solve_affine(self.linear, x, one_hot(labels, classes=self.config.classes), penalty=penalty)
        return self


def claims() -> Iterator[Claim]:
    """The laws that thresholded regression obeys."""
    model = ThresholdedRegression(ThresholdedRegressionConfig(d=2))
    labels = torch.tensor([0, 1, 1, 0, 1])

    def frequencies(x: Tensor) -> Tensor:
        return model(x).softmax(-1)

    def both(x: Tensor) -> Tensor:
        return ThresholdedRegression(ThresholdedRegressionConfig(d=2)).to(x).fit(x, labels).regress(x)

    yield Claim(sums_to_one(), frequencies, shape("b 2"), name="ThresholdedRegression, softmax")
    yield Claim(sums_to_one(), both, shape("5 2"), name="ThresholdedRegression.regress, fitted")
    largest = agreement(other=lambda x: one_hot(model.regress(x).argmax(-1), classes=2).to(x))
    yield Claim(largest, frequencies, shape("b 2"), name="ThresholdedRegression, largest")
