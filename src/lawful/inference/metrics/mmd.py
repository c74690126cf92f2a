"""The maximum mean discrepancy: how far two sets of samples are apart in the eyes of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.inference.metrics.frechet import features, turned_together
from lawful.laws import Claim, agreement, made, permutation_invariance

Kernel = Callable[[Tensor, Tensor], Tensor]
"""From n and m rows to the n x m values of a kernel."""


def cubic_kernel(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    r"""Returns $k(x, y) = (x \cdot y / d + 1)^3$, which sees the first three moments.

    Reference:
        Bińkowski, Sutherland, Arbel and Gretton, *Demystifying MMD GANs*, 2018.

    Args:
        x: Rows $x$.
        y: Rows $y$.

    Examples:
        >>> cubic_kernel(torch.ones(1, 4), torch.zeros(2, 4))
        tensor([[1., 1.]])
    """
    return (x @ y.mT / x.shape[1] + 1) ** 3


def gaussian_kernel(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], *, width: float = 1.0) -> Float[Tensor, "n m"]:
    r"""Returns $k(x, y) = \exp(-\lVert x - y \rVert^2 / 2 w^2)$, which sees every difference.

    Args:
        x: Rows $x$.
        y: Rows $y$.
        width: $w$.

    Examples:
        >>> gaussian_kernel(torch.zeros(1, 2), torch.zeros(1, 2))
        tensor([[1.]])
    """
    if not width > 0:
        raise ValueError(f"width is above 0: got {width}")
    return (-torch.cdist(x, y).square() / (2 * width**2)).exp()


def median_width(x: Float[Tensor, "n d"], *, most: int = 1000) -> float:
    """Finds a width for a Gaussian kernel: the median distance between (the first `most`) samples.

    Args:
        x: The samples.
        most: How many are looked at.

    Examples:
        >>> median_width(torch.tensor([[0.0], [1.0], [3.0]]))
        2.0
    """
    width = float(torch.pdist(x[:most].double()).median())
    if not width > 0:
        raise ValueError("samples that differ were wanted: the median distance of those given is 0")
    return width


def mmd(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], *, kernel: Kernel = cubic_kernel, rows: int = 1024) -> float:
    r"""Estimates the squared maximum mean discrepancy without bias.

    $$\frac{1}{n (n - 1)} \sum_{i \ne j} k(x_i, x_j) + \frac{1}{m (m - 1)} \sum_{i \ne j} k(y_i, y_j)
    - \frac{2}{n m} \sum_{i, j} k(x_i, y_j)$$

    Its mean is the true value whatever the number of samples, unlike the Fréchet distance; so between samples of one
    distribution it may come out below 0.

    Reference:
        Gretton, Borgwardt, Rasch, Schölkopf and Smola, *A Kernel Two-Sample Test*, 2012.

    Args:
        x: Features of some samples, a row each.
        y: Features of others.
        kernel: $k$: `cubic_kernel`, `gaussian_kernel` of some width or another.
        rows: How many rows are compared at a time.

    Examples:
        >>> mmd(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [1.0]]), kernel=lambda x, y: x @ y.mT)
        -0.5
    """
    x, y = features(x, y)

    def total(a: Tensor, b: Tensor) -> float:
        return sum(float(kernel(part, b).sum()) for part in a.split(rows))

    def own(a: Tensor) -> float:
        same = sum(float(kernel(part, part).diagonal().sum()) for part in a.split(rows))
        return (total(a, a) - same) / (len(a) * (len(a) - 1))

    return own(x) + own(y) - 2 * total(x, y) / (len(x) * len(y))


def mmd_test(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "m d"],
    *,
    kernel: Kernel = cubic_kernel,
    permutations: int = 999,
    seed: int = 0,
) -> float:
    r"""Asks how often samples of one distribution are as far apart as these, by chance: the value $p$ of a test.

    All samples are dealt out anew to the two sides, again and again:
    $p = (1 + \#\{\text{deals with as large an mmd}\}) / (1 + \#\text{deals})$, which is exact at any size.

    Args:
        x: Features of some samples, a row each; up to some thousands.
        y: Features of others.
        kernel: The kernel.
        permutations: How often they are dealt out.
        seed: What the deals depend on.

    Examples:
        >>> rows = torch.arange(40.0)[:, None]
        >>> mmd_test(rows, rows + 30, permutations=99)
        0.01
    """
    if permutations < 1:
        raise ValueError(f"permutations are at least 1: got {permutations}")
    x, y = features(x, y)
    both, n, m = torch.cat([x, y]), len(x), len(y)
    k = kernel(both, both)
    k = k - torch.diag(k.diagonal())
    generator = torch.Generator().manual_seed(seed)
    deals = [torch.arange(n + m)] + [torch.randperm(n + m, generator=generator) for _ in range(permutations)]
    side = torch.zeros(permutations + 1, n + m, dtype=k.dtype)
    for row, deal in zip(side, deals, strict=True):
        row[deal[:n]] = 1.0
    mine = side @ k
    within = (mine * side).sum(1)
    across = (mine * (1 - side)).sum(1)
    beyond = k.sum() - within - 2 * across
    found = within / (n * (n - 1)) + beyond / (m * (m - 1)) - 2 * across / (n * m)
    slack = 1e-9 * found.abs().max()
    return float((found >= found[0] - slack).double().mean())


def claims() -> Iterator[Claim]:
    """The laws that the maximum mean discrepancy obeys."""
    data = (made(torch.tanh, "n:2..4 2"), made(torch.tanh, "m:2..4 2"))

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return x.new_tensor([mmd(x, y, rows=2), mmd(x, y, kernel=partial(gaussian_kernel, width=0.7), rows=3)])

    def written_out(x: Tensor, y: Tensor) -> Tensor:
        def mean(k: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
            return torch.stack(
                [k(u, v) for i, u in enumerate(a) for j, v in enumerate(b) if a is not b or i != j]
            ).mean()

        def pair(k: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
            return mean(k, x, x) + mean(k, y, y) - 2 * mean(k, x, y)

        cubic, gaussian = lambda a, b: (a @ b / 2 + 1) ** 3, lambda a, b: (-(a - b).square().sum() / 0.98).exp()
        return torch.stack([pair(cubic), pair(gaussian)])

    yield Claim(replace(agreement(other=written_out), cases=10), distance, data, name="mmd")
    yield Claim(turned_together(), distance, data, name="mmd")
    yield Claim(permutation_invariance(axis=0), distance, data, name="mmd")
