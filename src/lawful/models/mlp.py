"""The multilayer perceptron: dense layers, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lawful.blocks import Dense, Dropout, collapse
from lawful.blocks.dense import Activation
from lawful.functions.activations import identity
from lawful.laws import (
    Claim,
    Draw,
    Map,
    Same,
    Statement,
    agreement,
    boundedness,
    hidden_unit_permutation,
    homogeneity,
    law,
    shape,
    sums_to_one,
)


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """The sizes and the activations of a multilayer perceptron."""

    d_in: int
    """The size of the input."""
    d_out: int
    """The size of the output."""
    hidden: tuple[int, ...] = (64,)
    """The width of each hidden layer, from the input to the output."""
    activation: Activation = torch.relu
    """What each hidden layer applies to its entries; of a module each layer has a copy of its own."""
    output: Activation = identity
    """What the output layer applies: it decides where the outputs lie."""
    bias: bool = True
    """Whether the layers have biases."""
    dropout: float = 0.0
    """The probability that the output of a hidden unit is dropped in training."""

    @property
    def depth(self) -> int:
        """The number of hidden layers."""
        return len(self.hidden)

    @property
    def width(self) -> int:
        """The size of the widest layer."""
        return max(*self.hidden, self.d_out) if self.hidden else self.d_out


class MLP(nn.Module):
    r"""Composes dense layers, each an affine map and an activation.

    $$x_{\ell + 1} = \sigma_\ell(W_\ell \, x_\ell + b_\ell)$$

    The last activation determines the codomain: none gives all of $\mathbb{R}^q$, a sigmoid $(0, 1)^q$, a softmax
    probabilities. With the ReLU the map is continuous and piecewise affine: affine wherever the same hidden units are
    active. Without any activation it collapses to one affine map.

    Args:
        config: The sizes and the activations.

    Examples:
        >>> model = MLP(MLPConfig(d_in=2, d_out=1, hidden=(5, 5)))
        >>> model(torch.zeros(3, 2)).shape
        torch.Size([3, 1])
    """

    def __init__(self, config: MLPConfig) -> None:
        super().__init__()
        self.config = config
        sizes = (config.d_in, *config.hidden, config.d_out)
        activations = (config.activation,) * config.depth + (config.output,)
        layers = zip(pairwise(sizes), activations, strict=True)
        self.layers = nn.Sequential(*(Dense(*size, activation=deepcopy(f), bias=config.bias) for size, f in layers))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Maps the last axis."""
        *hidden, last = self.layers
        for layer in hidden:
            x = self.dropout(layer(x))
        return last(x)

    def active(self, x: Float[Tensor, "*batch d_in"]) -> Bool[Tensor, "*batch n"]:
        """Says of each hidden unit, from the first layer to the last, whether its output is above 0."""
        units = []
        for layer in list(self.layers)[:-1]:
            x = layer(x)
            units.append(x > 0)
        return torch.cat(units, dim=-1) if units else x.new_empty(*x.shape[:-1], 0, dtype=torch.bool)


@law("f(λx + (1 - λ)y) = λ f(x) + (1 - λ) f(y) for x, y of one region", tries=None)
def piecewise_affinity(f: Map, x: Tensor, *, region: str = "active", draw: Draw) -> Statement:
    """Along a segment on which the same units are active, the map is affine.

    `region` names the method that tells the regions apart; two points of one region are drawn at some distance.

    Kept by: networks of ReLU or leaky ReLU.
    Broken by: GELU, tanh; a softmax at the end.
    """
    y = x + draw.choice((0.01, 0.1, 1.0), "distance") * draw.normal(*x.shape)
    weight = draw.choice((0.5, 0.25, 0.9), "λ")
    draw.assume(f.method(region)(x) == f.method(region)(y))
    return Same(f(weight * x + (1 - weight) * y), weight * f(x) + (1 - weight) * f(y))


def claims() -> Iterator[Claim]:
    """The laws that the multilayer perceptron obeys."""

    def made(
        *hidden: int, activation: Activation = torch.relu, output: Activation = identity, bias: bool = True
    ) -> MLP:
        return MLP(MLPConfig(d_in=3, d_out=2, hidden=hidden, activation=activation, output=output, bias=bias))

    model, plain = made(4, 3), made(4, 3, activation=identity)

    def equation(x: Tensor) -> Tensor:
        w1, b1, w2, b2, w3, b3 = model.parameters()
        return ((x @ w1.T + b1).clamp_min(0) @ w2.T + b2).clamp_min(0) @ w3.T + b3

    def collapsed(x: Tensor) -> Tensor:
        return reduce(collapse, [layer for layer in plain.layers if isinstance(layer, Dense)])(x)

    yield Claim(agreement(other=equation), model, shape("b 3"), name="MLP(4, 3)")
    yield Claim(piecewise_affinity(), model, shape("b:1..2 3"), name="MLP(4, 3)")
    into, out_of = ("layers.0.weight", "layers.0.bias"), "layers.1.weight"
    yield Claim(hidden_unit_permutation(into=into, out_of=out_of), made(4, 3, activation=torch.tanh), shape("b 3"))
    yield Claim(homogeneity(), made(4, 3, bias=False), shape("b 3"), name="MLP(bias=False)")
    yield Claim(agreement(other=collapsed), plain, shape("b 3"), name="MLP without activations, collapsed")
    yield Claim(boundedness(low=0.0, high=1.0), made(4, output=torch.sigmoid), shape("b 3"), name="MLP(sigmoid)")
    softmax = made(4, output=nn.Softmax(-1))
    yield Claim(sums_to_one(axis=-1), softmax, shape("b 3"), name="MLP(softmax)")

    def sizes(x: Tensor) -> Tensor:
        some, none, usual = (MLPConfig(d_in=3, d_out=2, hidden=h) for h in ((len(x), 4), (), (64,)))
        default = MLPConfig(d_in=3, d_out=2)
        count = sum(p.numel() for p in MLP(default).parameters())
        return x.new_tensor([some.depth, some.width, none.depth, none.width, count, default == usual])

    counted = agreement(other=lambda x: x.new_tensor([2, max(len(x), 4), 0, 2, 64 * 6 + 2, True]))
    yield Claim(counted, sizes, shape("n:1..9"), name="MLPConfig, sizes")
