"""DropConnect: weights, rather than units, that are left out at random."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.blocks.dense import Activation, Dense
from lawful.blocks.dropout.expectation import check_probability, unbiased
from lawful.functions.activations import identity
from lawful.laws import Claim, agreement, batch_independence, shape


class Moments(NamedTuple):
    """A mean and a variance, entry by entry."""

    mean: Tensor
    variance: Tensor


class DropConnect(Dense):
    r"""Applies a dense layer whose weights are set to 0 at random in training, anew for each sample.

    $$y = \sigma\Bigl(\frac{M \odot W}{1 - p} \, x + b\Bigr), \qquad M_{ij} \sim \operatorname{Bernoulli}(1 - p)$$

    Before the activation, the mean of this is $W x + b$, which is what evaluation uses, and the variance is
    $\tfrac{p}{1 - p} (W \odot W)(x \odot x)$. A mask for each sample takes the memory of a weight for each sample.

    Reference:
        Wan, Zeiler, Zhang, LeCun and Fergus, *Regularization of Neural Networks using DropConnect*, 2013.

    Args:
        d_in: The size of $x$.
        d_out: The size of $y$.
        drop: $p$, the probability that a weight is dropped.
        activation: $\sigma$.
        bias: Whether there is a $b$, which is never dropped.

    Examples:
        >>> DropConnect(3, 2, drop=0.5)(torch.ones(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self, d_in: int, d_out: int, *, drop: float = 0.5, activation: Activation = identity, bias: bool = True
    ) -> None:
        check_probability("drop", drop)
        super().__init__(d_in, d_out, activation=activation, bias=bias)
        self.drop = drop

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Maps the last axis, each vector with a mask of its own."""
        if not self.training or self.drop == 0:
            return super().forward(x)
        self._check(x)
        weight = F.dropout(self.weight.expand(*x.shape[:-1], -1, -1), self.drop)
        y = torch.einsum("...oi,...i->...o", weight, x)
        return self.activation(y if self.bias is None else y + self.bias)

    def moments(self, x: Float[Tensor, "*batch d_in"]) -> Moments:
        """Returns the mean and the variance, over masks, of what training feeds the activation."""
        if self.drop == 1:
            raise ValueError("with drop=1 nothing stays, and there is no scale to make up for it")
        self._check(x)
        variance = self.drop / (1 - self.drop) * F.linear(x.square(), self.weight.square())
        return Moments(F.linear(x, self.weight, self.bias), variance)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, drop={self.drop}"


def claims() -> Iterator[Claim]:
    """The laws that DropConnect obeys."""
    layer, evaluated = DropConnect(4, 3, drop=0.3), DropConnect(4, 3, drop=0.3).eval()

    def spread(x: Tensor) -> Tensor:
        return (layer.train()(x) - x @ layer.weight.T - layer.bias).square()

    def variance(x: Tensor) -> Tensor:
        return layer.moments(x).variance

    def plain(x: Tensor) -> Tensor:
        return x @ evaluated.weight.T + evaluated.bias

    yield Claim(unbiased(), layer, shape("b 4"))
    yield Claim(unbiased(expected=variance), spread, shape("b 4"), name="DropConnect, variance")
    yield Claim(batch_independence(), layer, shape("b 4"))
    yield Claim(agreement(other=plain), evaluated, shape("b 4"), name="DropConnect in evaluation")
    half = DropConnect(4, 3)
    by_half = agreement(other=lambda x: (x[:, None] * half.weight).square().sum(-1))
    yield Claim(by_half, lambda x: half.moments(x).variance, shape("b 4"), name="DropConnect(drop=0.5), variance")
