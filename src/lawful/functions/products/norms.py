"""Norms and distances: how long, and how far apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import (
    Claim,
    agreement,
    convexity,
    derivative,
    finiteness,
    homogeneity,
    invariance,
    made,
    metric,
    second_order_gradient,
    shape,
)


def norm(x: Float[Tensor, "*shape"], *, p: float | int = 2, axis: int = -1) -> Float[Tensor, "*rest"]:
    r"""Measures the length of vectors.

    $$\lVert x \rVert_p = \Big( \sum_i |x_i|^p \Big)^{1/p}, \qquad \lVert x \rVert_\infty = \max_i |x_i|$$

    For $p < 1$ the triangle inequality fails, and $p$ is refused. Where there is no derivative (at $x = 0$, and for
    $p < 2$ where an entry is 0) the first and the second are taken to be 0 there, so that no NaN reaches a gradient
    or a penalty on it.

    The powers are formed as they stand: $|x_i|^p$ and their sum are to be neither too large nor too small for a
    number, which in float32 and for $p = 2$ are lengths from $10^{-19}$ to $10^{19}$. Beyond, divide by the largest
    entry first.

    Args:
        x: The vectors $x$.
        p: The exponent $p$, at least 1; `math.inf` for the largest entry.
        axis: The axis that $i$ runs over.

    Examples:
        >>> norm(torch.tensor([3.0, -4.0]))
        tensor(5.)
        >>> norm(torch.tensor([3.0, -4.0]), p=1)
        tensor(7.)
    """
    if not p >= 1:
        raise ValueError(f"p is at least 1: got {p}")
    if p == 1 or p >= 3:
        return torch.linalg.vector_norm(x, p, axis)
    total = torch.linalg.vecdot(x, x, dim=axis) if p == 2 else _power(x, p).sum(axis)
    zero = total == 0
    return total.masked_fill(zero, 1.0).pow(1 / p).masked_fill(zero, 0.0)


def of_size_one(x: Tensor) -> Tensor:
    """Divides vectors by their largest entry, so that squares neither over- nor underflow.

    To the gradient the divisor is a constant: what is said of the result is to depend on the direction alone.
    """
    if not x.shape[-1]:
        return x
    size = x.detach().abs().amax(-1, keepdim=True)
    return x / size.masked_fill((size == 0) | size.isinf(), 1.0)


def _power(x: Tensor, p: float) -> Tensor:
    """Returns |x|^p, with derivatives that are 0 at 0."""
    zero = x == 0
    return x.masked_fill(zero, 1.0).abs().pow(p).masked_fill(zero, 0.0)


def distance(
    x: Float[Tensor, "*#shape"],
    y: Float[Tensor, "*#shape"],
    *,
    p: float | int = 2,
    axis: int = -1,
) -> Float[Tensor, "*rest"]:
    r"""Measures how far apart vectors are.

    $$d_p(x, y) = \lVert x - y \rVert_p$$

    Args:
        x: The vectors $x$.
        y: The vectors $y$.
        p: The exponent $p$, at least 1; `math.inf` for the largest difference.
        axis: The axis of the vectors.

    Examples:
        >>> distance(torch.tensor([1.0, 1.0]), torch.tensor([4.0, 5.0]))
        tensor(5.)
    """
    check_vectors(x, y, axis=axis)
    return norm(x - y, p=p, axis=axis)


def check_vectors(x: Tensor, y: Tensor, *, axis: int = -1) -> None:
    """Refuses vectors of different sizes, along the axis of both: one entry is not spread over many."""
    axis = axis if axis < 0 else axis - max(x.dim(), y.dim())
    sizes = [t.shape[axis] if t.dim() >= -axis else 1 for t in (x, y)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"vectors of one size were wanted: got shapes {tuple(x.shape)} and {tuple(y.shape)}")


def frobenius(x: Float[Tensor, "*batch m n"]) -> Float[Tensor, "*batch"]:
    r"""Measures the length of a matrix, as if it were one long vector.

    $$\lVert X \rVert_F = \sqrt{\sum_{ij} x_{ij}^2} = \sqrt{\operatorname{tr} X^\mathsf{T} X}$$

    Args:
        x: The matrices $X$.

    Examples:
        >>> frobenius(torch.ones(2, 2))
        tensor(2.)
    """
    return norm(x.flatten(-2))


def _direction(x: Tensor, p: float | int) -> Tensor:
    """The derivative of the norm as books have it, for 1 < p < ∞; 0 at 0."""
    power = (x.abs() / x.abs().pow(p).sum(-1, keepdim=True).pow(1 / p)).pow(p - 1)
    return (x.sign() * power).nan_to_num(0.0)


def claims() -> Iterator[Claim]:
    """The laws that norms and distances obey."""
    for p in (1, 1.5, 2, 3, math.inf):

        def equation(x: Tensor, p: float = p) -> Tensor:
            return x.abs().amax(-1) if p == math.inf else x.abs().pow(p).sum(-1).pow(1 / p)

        of, name = partial(norm, p=p), f"norm({p=})"
        yield Claim(agreement(other=equation), of, shape("b n"), name)
        if 1 < p <= 2:
            yield Claim(finiteness(), of, shape("b 4"), name)
            yield Claim(derivative(formula=partial(_direction, p=p)), of, shape("b 4"), name)
        if p in (1, 2, math.inf):
            yield Claim(metric(), partial(distance, p=p), (shape("b 4"), shape("b 4")), f"distance({p=})")

    def along(x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([distance(x, y, p=p, axis=-2) for p in (1.5, 2, 3)])

    def written_out(x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([(x - y).abs().pow(p).sum(-2).pow(1 / p) for p in (1.5, 2, 3)])

    yield Claim(agreement(other=written_out), along, (shape("b 3 2"), shape("b 3 2")), "distance(axis=-2)")
    away = made(lambda x: torch.where(x < 0, x - 0.5, x + 0.5), "b 4")
    largest = agreement(other=lambda x: torch.cat([x / x.abs().amax(-1, keepdim=True), torch.zeros_like(x)]))
    yield Claim(largest, lambda x: of_size_one(torch.cat([x, 0 * x])), away, "of_size_one")
    turned = invariance(sample=lambda draw: torch.linalg.qr(draw.normal(4, 4)).Q, act=lambda q, x: x @ q)
    for law in (homogeneity(), convexity(), second_order_gradient(), turned):
        yield Claim(law, norm, shape("b 4"))
    yield Claim(second_order_gradient(), partial(norm, p=1.5), away, "norm(p=1.5)")
    trace = agreement(other=lambda x: (x.mT @ x).diagonal(0, -2, -1).sum(-1).sqrt())
    for law in (trace, convexity(), turned):
        yield Claim(law, frobenius, shape("b 3 4"))
