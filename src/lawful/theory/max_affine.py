r"""Maxima of affine maps as ReLU networks, and why one hidden layer is not enough in the plane.

A network with one hidden layer is $f(x) = c + \sum_i a_i (w_i \cdot x + b_i)^+$. Across the line
$w_i \cdot x + b_i = 0$ its gradient jumps, by the same vector along the whole line. The function $\max(x, y, 0)$ has
three creases that end at the origin, so no such network is equal to it. Two hidden layers are enough:

$$\max(x, y, 0) = \bigl((x - y)^+ + y^+ - (-y)^+\bigr)^+ .$$

In general a tournament of $\max(p, q) = (p - q)^+ + q^+ - (-q)^+$ gives the maximum of $k$ affine maps with
$\lceil \log_2 k \rceil$ hidden layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, convexity, shape
from lawful.theory._rounding import Number
from lawful.theory.rational_network import RationalLayer, RationalNetwork

_Point = tuple[Fraction, Fraction]
_Form = tuple[tuple[Fraction, ...], Fraction]


def _dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


@dataclass(frozen=True)
class BrokenCrease:
    """A line along which the gradient of a function jumps by different amounts.

    No network with one hidden layer is equal to the function.
    """

    normal: _Point
    """Normal vector $g$ of the line $g \\cdot x + c = 0$."""
    offset: Fraction
    """Offset $c$ of the line."""
    points: tuple[_Point, _Point]
    """Two points of the line."""
    jumps: tuple[Fraction, Fraction]
    """Jump of the gradient at both points, in multiples of $g$."""

    def __str__(self) -> str:
        (x, y), (first, second) = self.normal, self.points
        return (
            f"On the line {x} x₁ + {y} x₂ + {self.offset} = 0 the gradient jumps by {self.jumps[0]} · ({x}, {y}) at "
            f"({first[0]}, {first[1]}), and by {self.jumps[1]} · ({x}, {y}) at ({second[0]}, {second[1]}). With one "
            "hidden layer it would jump by the same vector along the whole line."
        )


class MaxAffine:
    r"""The maximum of affine maps, stored exactly: $f(x) = \max_i (a_i \cdot x + b_i)$.

    Args:
        weight: Gradients $a_i$, one row per map.
        bias: Offsets $b_i$.

    Examples:
        >>> function = MaxAffine([[1, 0], [0, 1], [0, 0]], [0, 0, 0])
        >>> function.exact(-1, 2), function.to_network().hidden_dims
        (Fraction(2, 1), (3, 1))
        >>> function.broken_crease().points
        ((Fraction(1, 1), Fraction(1, 1)), (Fraction(-1, 1), Fraction(-1, 1)))
    """

    def __init__(
        self, weight: Sequence[Sequence[Number]] | np.ndarray | Tensor, bias: Sequence[Number] | np.ndarray | Tensor
    ) -> None:
        rows = weight.tolist() if isinstance(weight, Tensor | np.ndarray) else weight
        offsets = bias.tolist() if isinstance(bias, Tensor | np.ndarray) else bias
        try:
            self.weight = tuple(tuple(Fraction(a) for a in row) for row in rows)
            self.bias = tuple(Fraction(b) for b in offsets)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"weight and bias must be finite: {error}") from None
        sizes = {len(row) for row in self.weight}
        if len(self.weight) != len(self.bias) or len(sizes) != 1 or 0 in sizes:
            raise ValueError(
                f"weight must have one row of equal size per entry of bias: got {len(self.weight)} rows of sizes "
                f"{sorted(sizes)} and {len(self.bias)} entries"
            )

    def exact(self, *x: Number) -> Fraction:
        """Evaluates the function in rational arithmetic.

        Args:
            x: Coordinates of the point.
        """
        point = tuple(Fraction(value) for value in x)
        return max(_dot(row, point) + b for row, b in zip(self.weight, self.bias, strict=True))

    def __call__(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        """Evaluates the function at points, in their dtype."""
        weight = torch.tensor([[float(a) for a in row] for row in self.weight], dtype=x.dtype, device=x.device)
        bias = torch.tensor([float(b) for b in self.bias], dtype=x.dtype, device=x.device)
        return (x @ weight.mT + bias).amax(-1)

    def to_network(self) -> RationalNetwork:
        r"""Returns the exact network: a tournament with $\lceil \log_2 k \rceil$ hidden layers for $k$ maps.

        Each match takes three units, $(p - q)^+$, $q^+$ and $(-q)^+$, or one if $q$ is constant.

        Examples:
            >>> function = MaxAffine([[1, 0], [0, 1], [-1, -1], [2, 0], [0, 2]], [0, 0, 0, -1, -1])
            >>> function.to_network().hidden_dims, function.to_network()(3, 1) == (function.exact(3, 1),)
            ((8, 5, 3), True)
        """
        layers = []
        forms: list[_Form] = list(zip(self.weight, self.bias, strict=True))
        while len(forms) > 1:
            units: list[_Form] = []
            sums: list[tuple[dict[int, int], Fraction]] = []  # the next forms: signs of units, and a constant
            for match in (forms[i : i + 2] for i in range(0, len(forms), 2)):
                *others, second = sorted(match, key=lambda form: not any(form[0]))  # a constant is the second
                signs: dict[int, int] = {}
                for first in others:
                    signs[len(units)] = 1
                    units.append((tuple(a - b for a, b in zip(first[0], second[0], strict=True)), first[1] - second[1]))
                if not any(second[0]):
                    sums.append((signs, second[1]))
                    continue
                for sign in (1, -1):
                    signs[len(units)] = sign
                    units.append((tuple(sign * a for a in second[0]), sign * second[1]))
                sums.append((signs, Fraction(0)))
            layers.append(RationalLayer(tuple(row for row, _ in units), tuple(b for _, b in units)))
            forms = [(tuple(Fraction(signs.get(i, 0)) for i in range(len(units))), b) for signs, b in sums]
        (row, bias), *_ = forms
        return RationalNetwork((*layers, RationalLayer((row,), (bias,))))

    def broken_crease(self) -> BrokenCrease | None:
        """Returns why no network with one hidden layer is equal to a function of two variables; None if there is one.

        A convex piecewise-linear function is equal to such a network if and only if the jump of its gradient is
        constant along every line. All comparisons are exact.

        Examples:
            >>> MaxAffine([[0, 0], [1, 0], [0, 1], [1, 1]], [0, 0, 0, 0]).broken_crease() is None  # relu(x) + relu(y)
            True
        """
        if len(self.weight[0]) != 2:
            raise ValueError(f"expected a function of two variables: got {len(self.weight[0])}")
        maps = list(zip(self.weight, self.bias, strict=True))
        for (a, b), (c, d) in combinations(maps, 2):
            normal, offset = (a[0] - c[0], a[1] - c[1]), b - d
            size = _dot(normal, normal)
            if not size:
                continue
            origin, along = tuple(-offset * g / size for g in normal), (-normal[1], normal[0])
            restricted = [(_dot(row, along), _dot(row, origin) + bias, row) for row, bias in maps]  # on the line
            found: list[tuple[Fraction, _Point]] = []
            for place in _inside_pieces([(slope, value) for slope, value, _ in restricted]):
                top = max(slope * place + value for slope, value, _ in restricted)
                active = [_dot(row, normal) for slope, value, row in restricted if slope * place + value == top]
                point = (origin[0] + place * along[0], origin[1] + place * along[1])
                found.append(((max(active) - min(active)) / size, point))
            for first, second in combinations(sorted(found, key=lambda pair: -pair[0]), 2):
                if first[0] != second[0]:
                    return BrokenCrease(normal, offset, (first[1], second[1]), (first[0], second[0]))
        return None


def _inside_pieces(lines: list[tuple[Fraction, Fraction]]) -> list[Fraction]:
    """Returns a point inside every piece of the maximum of affine functions of one variable."""
    crossings = {(d - b) / (a - c) for (a, b), (c, d) in combinations(lines, 2) if a != c}
    kinks = []
    for x in sorted(crossings):
        top = max(a * x + b for a, b in lines)
        if len({a for a, b in lines if a * x + b == top}) > 1:
            kinks.append(x)
    if not kinks:
        return [Fraction(0)]
    return [kinks[0] - 1, *((a + b) / 2 for a, b in pairwise(kinks)), kinks[-1] + 1]


def compile_max_affine(
    weight: Sequence[Sequence[Number]] | np.ndarray | Tensor,
    bias: Sequence[Number] | np.ndarray | Tensor,
    *,
    minimum: bool = False,
    dtype: torch.dtype | None = None,
) -> nn.Sequential:
    r"""Builds the ReLU network that is equal to the maximum, or the minimum, of affine maps.

    Weights that `dtype` does not represent are rounded. `rounding_bound` bounds the error on a box.

    Reference: Arora, Basu, Mianjy and Mukherjee, Understanding Deep Neural Networks with Rectified Linear Units, 2018,
        lemma D.3.

    Args:
        weight: Gradients, one row per map.
        bias: Offsets.
        minimum: Whether to return the minimum.
        dtype: Dtype of the network. None for PyTorch's default dtype.

    Examples:
        >>> network = compile_max_affine([[1, 0], [0, 1], [0, 0]], [0, 0, 0])  # max(x, y, 0)
        >>> network(torch.tensor([[1.0, 3.0], [-1.0, -3.0]])).tolist()
        [[3.0], [0.0]]
    """
    function = MaxAffine(weight, bias)
    if not minimum:
        return function.to_network().to_module(dtype)
    negative = MaxAffine([[-a for a in row] for row in function.weight], [-b for b in function.bias]).to_network()
    *hidden, last = negative.layers
    turned = RationalLayer(tuple(tuple(-a for a in row) for row in last.weight), tuple(-b for b in last.bias))
    return RationalNetwork((*hidden, turned)).to_module(dtype)


def claims() -> Iterator[Claim]:
    """Laws that compiled maxima satisfy."""
    function = MaxAffine([[1, 0], [0, 1], [-1, -1], [2, -1], [0, 0]], [0, 0.5, 0, -1, 0])

    def network(x: Tensor) -> Tensor:
        return function.to_network().to_module(x.dtype)(x)[..., 0]

    yield Claim(convexity(), network, shape("b 2"))
    yield Claim(agreement(other=function), network, shape("b 2"))
