"""Multilayer perceptrons, also with units that have positions in space."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lawful.laws import Claim, homogeneity, piecewise_affinity, shape
from lawful.losses.regularization import affine_layers, connection_lengths, line_positions, locality_penalty
from lawful.optim.row_swaps import greedy_row_swaps, permute_units

Activation = Callable[[Tensor], Tensor]
_RELU = nn.ReLU()


class MLP(nn.Module):
    r"""Multilayer perceptron: linear layers with an activation in between.

    $$x_{\ell + 1} = \sigma_\ell(W_\ell \, x_\ell + b_\ell)$$

    With ReLU the map is continuous and piecewise affine: it is affine on each region with the same active hidden units.

    Args:
        in_dim: Size of the input.
        out_dim: Size of the output.
        hidden_dims: Sizes of the hidden layers.
        activation: Activation of the hidden layers: a module, copied for each layer, or a function.
        output_activation: Activation of the output, such as `torch.sigmoid`. None for none.
        dropout: Dropout probability of the hidden units.
        bias: Whether the linear layers have a bias.

    Examples:
        >>> MLP(2, 1, hidden_dims=(5, 5))(torch.zeros(3, 2)).shape
        torch.Size([3, 1])
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        hidden_dims: Sequence[int] = (64,),
        activation: Activation = _RELU,
        output_activation: Activation | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        sizes = (in_dim, *hidden_dims, out_dim)
        if min(sizes) < 1:
            raise ValueError(f"in_dim, hidden_dims and out_dim must be at least 1: got {sizes}")
        self.in_dim, self.out_dim = in_dim, out_dim
        self.layers = nn.ModuleList(nn.Linear(*size, bias=bias) for size in pairwise(sizes))
        activations: list[Any] = [deepcopy(activation) for _ in hidden_dims]
        self.activations = nn.ModuleList(activations) if isinstance(activation, nn.Module) else activations
        self.output_activation = deepcopy(output_activation)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Maps the last axis."""
        self._check(x)
        *hidden, last = self.layers
        for layer, activation in zip(hidden, self.activations, strict=True):
            x = self.dropout(activation(layer(x)))
        y = last(x)
        return y if self.output_activation is None else self.output_activation(y)

    def active_units(self, x: Float[Tensor, "*batch d_in"]) -> Bool[Tensor, "*batch n"]:
        """Returns which hidden units, from the first layer to the last, have a positive output."""
        self._check(x)
        units = []
        for layer, activation in zip(self.layers, self.activations, strict=False):
            x = activation(layer(x))
            units.append(x > 0)
        return torch.cat(units, dim=-1) if units else x.new_empty(*x.shape[:-1], 0, dtype=torch.bool)

    def _check(self, x: Tensor) -> None:
        if x.shape[-1:] != (self.in_dim,):
            raise ValueError(f"expected x of shape (*batch, {self.in_dim}), got {tuple(x.shape)}")


class SpatialMLP(nn.Module):
    """A stack of linear layers whose units have positions, and may swap them to shorten connections.

    A hidden unit moves with its row of one weight, its bias and its column of the next; inputs and outputs move in the
    integer buffers `inputs` and `outputs`. The function stays the same if a layer's units share one activation.

    Reference:
        Liu, Gan and Tegmark, *Seeing is Believing: Brain-Inspired Modular Training for Mechanistic Interpretability*,
        2023.

    Args:
        model: Stack of linear layers and activations.
        place: Positions of n units of a layer: `line_positions`, `grid_positions` or another function of n.
        gap: Distance between layers.
        order: Exponent of the distance.

    Examples:
        >>> model = SpatialMLP(nn.Sequential(nn.Linear(4, 20), nn.SiLU(), nn.Linear(20, 2)))
        >>> model(torch.zeros(3, 4)).shape, model.swap(max_swaps=5) >= 0
        (torch.Size([3, 2]), True)
    """

    inputs: Tensor
    outputs: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        place: Callable[[int], Float[Tensor, "n k"]] = line_positions,
        gap: float = 0.1,
        order: float = 1.0,
    ) -> None:
        super().__init__()
        self.model, self.gap = model, gap
        widths = [affine_layers(model)[0].weight.shape[1], *(layer.weight.shape[0] for layer in affine_layers(model))]
        self.places = [place(width) for width in widths]
        for i, d in enumerate(connection_lengths(self.places, layer_distance=gap, p=order)):
            self.register_buffer(f"lengths{i}", d, persistent=False)
        self.register_buffer("inputs", torch.arange(widths[0]))
        self.register_buffer("outputs", torch.arange(widths[-1]))

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Permutes the inputs to their positions, and the outputs back from theirs."""
        return self.model(x[..., self.inputs])[..., self.outputs.argsort()]

    @property
    def lengths(self) -> list[Tensor]:
        """Lengths of the connections of each layer."""
        return [self.get_buffer(f"lengths{i}") for i in range(len(self.places) - 1)]

    def locality(self, *, bias: bool = True) -> Float[Tensor, ""]:
        """Returns the penalty on long connections, optionally including biases."""
        return locality_penalty(affine_layers(self.model), self.lengths, bias_weight=self.gap if bias else 0.0)

    @torch.no_grad()
    def swap(self, *, max_swaps: int, optimizer: torch.optim.Optimizer | None = None) -> int:
        """Swaps units of each layer, from the inputs to the outputs, if that shortens connections.

        Args:
            max_swaps: Number of units per layer, by largest weights, that try other positions.
            optimizer: Optimizer whose state is permuted with the weights.

        Returns:
            Number of units that moved.
        """
        layers, distances, moved = affine_layers(self.model), self.lengths, 0
        for i in range(len(self.places)):
            before, after = (layers[i - 1] if i else None), (layers[i] if i < len(layers) else None)
            sides = [(before.weight, distances[i - 1])] if before else []
            sides += [(after.weight.T, distances[i].T)] if after else []
            weights, costs = (torch.cat(side, dim=1) for side in zip(*sides, strict=True))
            order = greedy_row_swaps(weights, costs, max_swaps=max_swaps)
            moved += int((order != torch.arange(len(order), device=order.device)).sum())
            for parameter in (before.weight, before.bias) if before else ():
                if parameter is not None:
                    permute_units(parameter, order, optimizer=optimizer)
            if after:
                permute_units(after.weight, order, dim=1, optimizer=optimizer)
            if not before:
                permute_units(self.inputs, order)
            if not after:
                permute_units(self.outputs, order)
        return moved


def claims() -> Iterator[Claim]:
    """The laws of multilayer perceptrons."""
    yield Claim(piecewise_affinity(), MLP(3, 2, hidden_dims=(4, 3)), shape("b:1..2 3"), name="MLP")
    yield Claim(homogeneity(), MLP(3, 2, hidden_dims=(4, 3), bias=False), shape("b 3"), name="MLP(bias=False)")
