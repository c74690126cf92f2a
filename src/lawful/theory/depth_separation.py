r"""Depth separation: the sawtooth, which is cheap for deep networks and out of reach of shallow ones.

The tent $T(x) = 2 x^+ - 4 (x - \tfrac12)^+$ maps $[0, 1]$ onto itself twice. Its $L$-fold composition is a network with
$L$ hidden layers of two ReLUs, and has $2^L$ pieces on $[0, 1]$: a sawtooth with $2^{L - 1}$ teeth.

**Theorem.** If $f$ is affine on each of $p$ intervals that cover $[0, 1]$, then

$$\int_0^1 |T^L(x) - f(x)| \, dx \ge \frac14 \Bigl(1 - \frac{p - 1}{2^{L - 1}}\Bigr).$$

*Proof.* Let $f$ be affine on a tooth of width $w = 2^{1 - L}$, with the value $c$ in its middle. The tooth is symmetric
to its middle and $f - c$ is antisymmetric, so the average of $|T^L - f|$ over two opposite points is at least
$|T^L - c|$. The values of a tooth are uniform on $[0, 1]$, and
$\int_0^1 |u - c| \, du \ge \tfrac14$. The tooth therefore contributes at least $w / 4$. The $p - 1$ breakpoints lie in
at most $p - 1$ of the $2^{L - 1}$ teeth. $\square$

The constant $f = \tfrac12$ attains the bound for $p = 1$. A network of one input with one hidden layer of $n$ units has
at most $n + 1$ pieces, and a deeper one at most `region_upper_bound(widths, 1)`.

Reference: Telgarsky, Benefits of Depth in Neural Networks, 2016. The theorem above has a larger constant, for this
sawtooth.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from torch import nn

from lawful.theory._rounding import build_sequential
from lawful.theory.linear_regions import LinearRegions, regions_on_segment


def sawtooth_network(depth: int, *, dtype: torch.dtype | None = None) -> nn.Sequential:
    r"""Builds the $L$-fold composition of the tent, with $L$ hidden layers of two ReLUs.

    Its weights are 2, -4, 1 and -1/2, which every floating-point dtype represents.

    Args:
        depth: Number of hidden layers $L$.
        dtype: Dtype of the network. None for PyTorch's default dtype.

    Examples:
        >>> sawtooth_network(2)(torch.tensor([[0.0], [0.25], [0.5], [0.625]])).flatten().tolist()
        [0.0, 1.0, 0.0, 0.5]
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1: got {depth}")
    first = (np.array([[1.0], [1.0]]), np.array([0.0, -0.5]))
    inner = (np.array([[2.0, -4.0], [2.0, -4.0]]), np.array([0.0, -0.5]))
    last = (np.array([[2.0, -4.0]]), np.array([0.0]))
    return build_sequential([first, *([inner] * (depth - 1)), last], dtype=dtype)


def sawtooth_gap(depth: int, num_pieces: int) -> Fraction:
    r"""Returns how far a function with few pieces is from the sawtooth: a lower bound of the area between them.

    $$\int_0^1 |T^L(x) - f(x)| \, dx \ge \frac14 \Bigl(1 - \frac{p - 1}{2^{L - 1}}\Bigr)$$

    Args:
        depth: Depth $L$ of the sawtooth.
        num_pieces: Number $p$ of pieces of $f$ on $[0, 1]$.

    Examples:
        >>> from lawful.theory import region_upper_bound
        >>> sawtooth_gap(10, region_upper_bound([100], 1))  # any network with one hidden layer of 100 units
        Fraction(103, 512)
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1: got {depth}")
    if num_pieces < 1:
        raise ValueError(f"num_pieces must be at least 1: got {num_pieces}")
    return max(Fraction(0), (1 - Fraction(num_pieces - 1, 2 ** (depth - 1))) / 4)


def area_between(first: nn.Module, second: nn.Module, start: float = 0.0, end: float = 1.0) -> Fraction:
    r"""Returns $\int_a^b |f(x) - g(x)| \, dx$ of two ReLU networks of one variable, exactly.

    The weights are read as the rational numbers that they are, and all pieces are integrated in rational arithmetic.

    Args:
        first: Network $f$: see `regions_on_segment`.
        second: Network $g$.
        start: Start $a$ of the interval.
        end: End $b$ of the interval.

    Examples:
        >>> half = nn.Linear(1, 1)
        >>> _ = nn.init.zeros_(half.weight), nn.init.constant_(half.bias, 0.5)
        >>> area_between(sawtooth_network(5), half)
        Fraction(1, 4)
    """
    pieces = []
    for name, network in (("first", first), ("second", second)):
        regions = regions_on_segment(network, start, end)
        if regions.weight.shape[1] != 1:
            raise ValueError(f"{name} must have one output: got {regions.weight.shape[1]}")
        pieces.append(_exact_pieces(regions))
    area, low = Fraction(0), Fraction(start)
    index = [0, 0]
    while low < Fraction(end):
        current = [parts[i] for parts, i in zip(pieces, index, strict=True)]
        high = min(stop for stop, _, _ in current)
        (_, a, b), (_, c, d) = current
        area += _area_of_line((a - c) * low + b - d, (a - c) * high + b - d, high - low)
        index = [i + (stop == high) for i, (stop, _, _) in zip(index, current, strict=True)]
        low = high
    return area


def _exact_pieces(regions: LinearRegions) -> list[tuple[Fraction, Fraction, Fraction]]:
    """Returns the end, the slope and the offset of each linear region."""
    labels = regions.linear_regions.tolist()
    ends = regions.edges[:, 1].tolist()
    pieces = []
    for i, label in enumerate(labels):
        if i + 1 == len(labels) or labels[i + 1] != label:
            layer = regions.exact_map(i)
            pieces.append((regions.exact_vertex(ends[i])[0], layer.weight[0][0], layer.bias[0]))
    return pieces


def _area_of_line(a: Fraction, b: Fraction, length: Fraction) -> Fraction:
    """Returns the area between a line from `a` to `b` and zero."""
    if a * b >= 0:
        return length * abs(a + b) / 2
    return length * (a * a + b * b) / (2 * (abs(a) + abs(b)))
