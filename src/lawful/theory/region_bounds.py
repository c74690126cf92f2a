r"""Bounds on the number of activation regions of ReLU networks, from the widths of their layers.

The bounds are about all weights: no network has more regions than the upper bound, and some network has at least as
many as the lower bound. Both count regions of the whole input space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache


def region_upper_bound(widths: Sequence[int], dim: int, *, leaky: bool = False) -> int:
    r"""Returns how many activation regions a network has at most.

    With widths $n_1, \dots, n_L$ and input dimension $n_0$,

    $$\sum_{(j_1, \dots, j_L) \in J} \prod_{\ell = 1}^L \binom{n_\ell}{j_\ell}, \qquad
    J = \{ 0 \le j_\ell \le \min(n_0, n_1 - j_1, \dots, n_{\ell - 1} - j_{\ell - 1}, n_\ell) \}.$$

    A region in which $j$ units of a layer are inactive has an image of dimension at most $n - j$. With one layer this
    is Zaslavsky's number of regions of an arrangement of hyperplanes, which is attained. Inactive units of LeakyReLU
    keep the dimension. With them, the bound is $\prod_\ell \sum_{j \le d_\ell} \binom{n_\ell}{j}$, with
    $d_\ell = \min(n_0, \dots, n_\ell)$.

    Reference: Serra, Tjandraatmadja and Ramalingam, Bounding and Counting Linear Regions of Deep Neural Networks, 2018,
        theorem 1; Montúfar, Notes on the Number of Linear Regions of Deep Neural Networks, 2017, for LeakyReLU.

    Args:
        widths: Widths of the hidden layers.
        dim: Number of inputs, or the dimension of the slice.
        leaky: Whether the activations are LeakyReLUs.

    Examples:
        >>> region_upper_bound([3], 2), region_upper_bound([2, 2], 2), region_upper_bound([2, 2], 2, leaky=True)
        (7, 11, 16)
    """
    sizes = _to_widths(widths, dim)

    @cache
    def count(layer: int, rank: int) -> int:
        if layer == len(sizes):
            return 1
        n = sizes[layer]
        if leaky:
            rank = min(rank, n)
            return sum(math.comb(n, j) for j in range(rank + 1)) * count(layer + 1, rank)
        return sum(math.comb(n, j) * count(layer + 1, min(rank, n - j)) for j in range(min(rank, n) + 1))

    return count(0, dim)


def region_lower_bound(widths: Sequence[int], dim: int) -> int:
    r"""Returns a number of linear regions that some ReLU network of these widths has.

    The first layers fold the input space onto itself, and the last one cuts each copy:

    $$\Bigl(\prod_{\ell = 1}^{L - 1} \Bigl\lfloor \frac{n_\ell}{n_0} \Bigr\rfloor^{n_0}\Bigr)
    \sum_{j = 0}^{n_0} \binom{n_L}{j}.$$

    Reference: Montúfar, Pascanu, Cho and Bengio, On the Number of Linear Regions of Deep Neural Networks, 2014,
        theorem 5.

    Args:
        widths: Widths of the hidden layers, each at least `dim`.
        dim: Number of inputs.

    Examples:
        >>> region_lower_bound([4, 4], 2), region_upper_bound([4, 4], 2)
        (44, 121)
    """
    sizes = _to_widths(widths, dim)
    for i, size in enumerate(sizes):
        if size < dim:
            raise ValueError(f"each width must be at least dim={dim} for the construction: got widths[{i}]={size}")
    folds = math.prod((size // dim) ** dim for size in sizes[:-1])
    return folds * sum(math.comb(sizes[-1], j) for j in range(dim + 1))


def _to_widths(widths: Sequence[int], dim: int) -> tuple[int, ...]:
    sizes = tuple(widths)
    if not sizes or any(size < 1 for size in sizes):
        raise ValueError(f"widths must be positive, with at least one layer: got {list(sizes)}")
    if dim < 1:
        raise ValueError(f"dim must be at least 1: got {dim}")
    return sizes
