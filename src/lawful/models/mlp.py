"""The multilayer perceptron: dense layers, one after another.

The laid-out network: a stack of affine layers whose units have places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lawful.blocks import Dense, Dropout, collapse
from lawful.blocks.linear import Activation
from lawful.functions.activations import identity
from lawful.laws import (
    Claim,
    Draw,
    Equal,
    Map,
    Statement,
    agreement,
    boundedness,
    hidden_unit_permutation,
    homogeneity,
    law,
    shape,
    sums_to_one,
)
from lawful.losses.regularization import affine_layers, lengths, locality, on_a_grid, on_a_line
from lawful.optim.row_swaps import greedy_row_swaps, permute_units


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


@law("f(λx + (1 - λ)y) = λ f(x) + (1 - λ) f(y) for x, y of one region", discover_with=None)
def piecewise_affinity(f: Map, x: Tensor, *, region: str = "active", draw: Draw) -> Statement:
    """Along a segment on which the same units are active, the map is affine.

    `region` names the method that tells the regions apart; two points of one region are drawn at some distance.

    Satisfied by: networks of ReLU or leaky ReLU.
    Broken by: GELU, tanh; a softmax at the end.
    """
    y = x + draw.choice((0.01, 0.1, 1.0), "distance") * draw.normal(*x.shape)
    weight = draw.choice((0.5, 0.25, 0.9), "λ")
    draw.assume(f.method(region)(x) == f.method(region)(y))
    return Equal(f(weight * x + (1 - weight) * y), weight * f(x) + (1 - weight) * f(y))


def _mlp_claims() -> Iterator[Claim]:
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


class SpatialMLP(nn.Module):
    """Gives the units of any stack of affine layers places, and lets them change these.

    A hidden unit changes its place with its row of one weight, its bias and its column of the next; an input or an
    output with a note of where it went, in the integer buffers `inputs` and `outputs`. The function stays the same as
    long as what is between the layers treats all units alike.

    Args:
        model: The stack.
        place: The places of a layer of so many units: `on_a_line`, `on_a_grid` or another.
        gap: How far a layer is above the one before.
        order: The exponent of the distance.

    Examples:
        >>> model = SpatialMLP(nn.Sequential(nn.Linear(4, 20), nn.SiLU(), nn.Linear(20, 2)))
        >>> model(torch.zeros(3, 4)).shape, model.swap(most=5) >= 0
        (torch.Size([3, 2]), True)
    """

    inputs: Tensor
    outputs: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        place: Callable[[int], Float[Tensor, "n k"]] = on_a_line,
        gap: float = 0.1,
        order: float = 1.0,
    ) -> None:
        super().__init__()
        self.model, self.gap = model, gap
        widths = [affine_layers(model)[0].weight.shape[1], *(layer.weight.shape[0] for layer in affine_layers(model))]
        self.places = [place(width) for width in widths]
        for i, d in enumerate(lengths(self.places, gap=gap, order=order)):
            self.register_buffer(f"lengths{i}", d, persistent=False)
        self.register_buffer("inputs", torch.arange(widths[0]))
        self.register_buffer("outputs", torch.arange(widths[-1]))

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Brings the inputs to their places, and the outputs back from theirs."""
        return self.model(x[..., self.inputs])[..., self.outputs.argsort()]

    @property
    def lengths(self) -> list[Tensor]:
        """The lengths of the connections, layer by layer."""
        return [self.get_buffer(f"lengths{i}") for i in range(len(self.places) - 1)]

    def locality(self, *, bias: bool = True) -> Float[Tensor, ""]:
        """The penalty for long connections; that for biases may be left out."""
        return locality(affine_layers(self.model), self.lengths, bias=self.gap if bias else 0.0)

    @torch.no_grad()
    def swap(self, *, most: int, optimizer: torch.optim.Optimizer | None = None) -> int:
        """Lets units of each layer, the inputs first and the outputs last, change to places where they cost less.

        Args:
            most: How many of a layer, those with the largest weights, look for another place.
            optimizer: What remembers something of the weights: it is moved along.

        Returns:
            How many units have another place.
        """
        layers, far, moved = affine_layers(self.model), self.lengths, 0
        for i in range(len(self.places)):
            into, out_of = (layers[i - 1] if i else None), (layers[i] if i < len(layers) else None)
            ends = [(into.weight, far[i - 1])] if into else []
            ends += [(out_of.weight.T, far[i].T)] if out_of else []
            weights, reach = (torch.cat(side, dim=1) for side in zip(*ends, strict=True))
            order = greedy_row_swaps(weights, reach, max_swaps=most)
            moved += int((order != torch.arange(len(order), device=order.device)).sum())
            for parameter in (into.weight, into.bias) if into else ():
                if parameter is not None:
                    permute_units(parameter, order, optimizer=optimizer)
            if out_of:
                permute_units(out_of.weight, order, dim=1, optimizer=optimizer)
            if not into:
                permute_units(self.inputs, order)
            if not out_of:
                permute_units(self.outputs, order)
        return moved


def _laid_out_claims() -> Iterator[Claim]:
    """The laws that a laid-out network obeys."""

    def made() -> SpatialMLP:
        torch.manual_seed(0)
        stack = MLP(MLPConfig(d_in=3, d_out=2, hidden=(5, 4), activation=nn.functional.silu))
        return SpatialMLP(stack, place=on_a_grid, gap=0.2, order=2.0)

    plain, swapped = made(), made()
    for _ in range(3):
        swapped.swap(most=4)

    def dearer(x: Tensor) -> Tensor:
        model = made().to(x.dtype)
        for p in model.parameters():
            p.data.copy_(x[: p.numel()].reshape(p.shape))
        before = model.locality().detach().clone()
        model.swap(most=4)
        return model.locality().detach() / before.clamp_min(torch.finfo(x.dtype).tiny)

    def usual(x: Tensor) -> Tensor:
        layer = nn.Linear(2, 2).to(x.dtype)
        layer.weight.data, layer.bias.data = x[:2], x[2]
        model = SpatialMLP(nn.Sequential(layer)).to(x.dtype)
        return torch.stack([model.locality(), model.locality(bias=False)]).detach()

    def written_out(x: Tensor) -> Tensor:
        costs = (x.abs() * x.new_tensor([[0.1, 0.6], [0.6, 0.1], [0.1, 0.1]])).sum(-1)
        return torch.stack([costs.sum(), costs[:2].sum()])

    yield Claim(agreement(other=written_out), usual, shape("3 2"), name="LaidOut, its penalty")
    yield Claim(agreement(other=plain), swapped, shape("b 3"), name="LaidOut, after swaps")
    yield Claim(boundedness(low=0.0, high=1.0), dearer, shape("20"), name="LaidOut, penalty after swaps to before")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _mlp_claims()
    yield from _laid_out_claims()
