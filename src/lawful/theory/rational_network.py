r"""ReLU networks with rational weights, and a bound on what rounding changes.

A construction of a theorem has rational weights, and `RationalNetwork` evaluates it in exact arithmetic. A
`torch.nn.Sequential` has their roundings, and rounds again when it is evaluated. `rounding_bound` bounds both together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from lawful.theory._rounding import Number, build_sequential, round_up, rounding_factor


class RationalLayer(NamedTuple):
    """An affine map with rational entries."""

    weight: tuple[tuple[Fraction, ...], ...]
    """One row per output."""
    bias: tuple[Fraction, ...]
    """One entry per output."""

    def __call__(self, x: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """Returns $Wx + b$, exactly."""
        return tuple(
            sum((w * value for w, value in zip(row, x, strict=True) if w and value), b)
            for row, b in zip(self.weight, self.bias, strict=True)
        )


@dataclass(frozen=True)
class RationalNetwork:
    r"""A network of affine maps with rational entries, and ReLU between them.

    $$x_{\ell + 1} = \max(W_\ell \, x_\ell + b_\ell, 0)$$

    The last layer has no ReLU.

    Examples:
        >>> absolute = RationalNetwork.from_module(nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)))
        >>> absolute.hidden_dims
        (2,)
    """

    layers: tuple[RationalLayer, ...]
    """Affine maps, from the input to the output."""

    @classmethod
    def from_module(cls, module: nn.Sequential) -> RationalNetwork:
        """Reads the weights of a network of `Linear` and `ReLU` as the rational numbers that they are.

        Args:
            module: `Linear` layers with `ReLU` between them.

        Examples:
            >>> layer = nn.Linear(1, 1, dtype=torch.float32)
            >>> _ = nn.init.constant_(layer.weight, 0.1), nn.init.zeros_(layer.bias)
            >>> RationalNetwork.from_module(nn.Sequential(layer))(1)
            (Fraction(13421773, 134217728),)
        """
        layers = []
        for i, child in enumerate(module):
            if not isinstance(child, (nn.Linear, nn.ReLU)[i % 2]) or (len(module) % 2 == 0):
                names = ", ".join(type(child).__name__ for child in module)
                raise ValueError(f"expected a Sequential of Linear, ReLU, Linear, ..., Linear: got {names}")
            if isinstance(child, nn.Linear):
                weight = child.weight.detach().cpu().double()
                bias = torch.zeros(len(weight)) if child.bias is None else child.bias.detach().cpu().double()
                if not bool(weight.isfinite().all() and bias.isfinite().all()):
                    raise ValueError(f"weights must be finite: module[{i}] has a weight that is not")
                rows = tuple(tuple(Fraction(w) for w in row) for row in weight.tolist())
                layers.append(RationalLayer(rows, tuple(Fraction(b) for b in bias.tolist())))
        return cls(tuple(layers))

    @property
    def hidden_dims(self) -> tuple[int, ...]:
        """Sizes of the hidden layers."""
        return tuple(len(layer.bias) for layer in self.layers[:-1])

    def __call__(self, *x: Number) -> tuple[Fraction, ...]:
        """Evaluates the network exactly.

        Args:
            x: Coordinates of the input. A float stands for the rational number that it is.
        """
        values = tuple(Fraction(value) for value in x)
        for layer in self.layers[:-1]:
            values = tuple(max(value, Fraction(0)) for value in layer(values))
        return self.layers[-1](values)

    def to_module(self, dtype: torch.dtype | None = None) -> nn.Sequential:
        """Returns the network with weights rounded to a floating-point dtype.

        Args:
            dtype: Dtype of the weights. None for PyTorch's default dtype.
        """
        try:
            pairs = [([[float(w) for w in row] for row in a.weight], [float(b) for b in a.bias]) for a in self.layers]
        except OverflowError:
            raise ValueError("a weight of the network is larger than any float: scale the function") from None
        return build_sequential(
            ((np.array(w).reshape(len(b), -1 if w and w[0] else 0), np.array(b)) for w, b in pairs), dtype=dtype
        )


def rounding_bound(
    network: nn.Sequential, exact: RationalNetwork, low: Sequence[float], high: Sequence[float]
) -> float:
    r"""Bounds the difference between a network in floating point and a rational network on a box.

    The bound covers the rounding of the weights and every rounding of the evaluation, for any order of the sums. It
    holds for every input of the dtype in the box. It assumes IEEE arithmetic, as PyTorch has by default: no TF32 and
    no bfloat16 products of float32 matrices.

    With the error $\epsilon$ of the inputs of a layer, their largest absolute values $M$, and $k$ nonzero weights in
    a row, the error of an output is at most

    $$|\tilde W| \epsilon + |\tilde W - W| M + |\tilde b - b|
        + \gamma_{k + 1} \bigl(|\tilde W| (M + \epsilon) + |\tilde b|\bigr).$$

    Args:
        network: Network of `Linear` and `ReLU`.
        exact: Rational network of the same shape.
        low: Lower corner of the box.
        high: Upper corner of the box.

    Examples:
        >>> third = RationalNetwork((RationalLayer(((Fraction(1, 3),),), (Fraction(0),)),))
        >>> rounding_bound(third.to_module(torch.float64), third, [0], [1]) < 1e-15
        True
    """
    floats = RationalNetwork.from_module(network)
    sizes = [tuple((len(layer.weight), len(layer.bias)) for layer in net.layers) for net in (floats, exact)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"expected networks of equal shape, got {floats.hidden_dims} and {exact.hidden_dims}")
    dtype = next(network.parameters()).dtype
    tiny = torch.finfo(dtype).tiny  # numbers below may be flushed to zero
    lower, upper = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    if not (np.isfinite(lower).all() and np.isfinite(upper).all() and (lower <= upper).all()):
        raise ValueError(f"low and high must be finite corners of a box: got {lower.tolist()} and {upper.tolist()}")
    error = np.zeros_like(lower)
    for i, (ours, theirs) in enumerate(zip(floats.layers, exact.layers, strict=True)):
        if i:
            lower, upper = np.maximum(lower, 0.0), np.maximum(upper, 0.0)
        weight, bias = _to_array(ours.weight, columns=len(lower)), np.array([float(b) for b in ours.bias])
        shift_w = np.array(
            [
                [round_up(abs(a - b)) for a, b in zip(*rows, strict=True)]
                for rows in zip(ours.weight, theirs.weight, strict=True)
            ]
        ).reshape(weight.shape)
        shift_b = np.array([round_up(abs(a - b)) for a, b in zip(ours.bias, theirs.bias, strict=True)])
        largest = np.maximum(np.abs(lower), np.abs(upper))
        count = (weight != 0).sum(1)
        total = np.abs(weight) @ (largest + error) + np.abs(bias)
        gamma = np.array([rounding_factor(int(k) + 1, dtype) for k in count])
        slack = 1 + 1e-12 * (len(lower) + 10)  # this function rounds as well; all its terms are positive
        next_error = np.abs(weight) @ error + shift_w @ largest + shift_b + gamma * total + 2 * tiny * (count + 1)
        exact_slack = 1e-15 * (len(lower) + 4) * (total + shift_w @ largest + shift_b)
        middle, radius = (lower + upper) / 2, (upper - lower) / 2
        center = weight @ middle + bias
        spread = np.abs(weight) @ radius + shift_w @ largest + shift_b + 4 * exact_slack
        error = next_error * slack
        if not np.isfinite(error).all() or bool((total > torch.finfo(dtype).max).any()):
            return math.inf
        lower, upper = center - spread, center + spread
    return float(error.max())


def _to_array(rows: Sequence[Sequence[Fraction]], *, columns: int) -> np.ndarray:
    return np.array([[float(value) for value in row] for row in rows]).reshape(len(rows), columns)
