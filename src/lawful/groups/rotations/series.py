r"""The functions of $s = t^2$ that exponentials of rotations are made of, smooth at 0 and everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import factorial

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, derivative, made


def stumpff(s: Float[Tensor, "*batch"], *, last: int) -> tuple[Float[Tensor, "*batch"], ...]:
    r"""Computes the Stumpff functions $c_0, \dots, c_n$ of $s \ge 0$.

    $$c_k(s) = \sum_{m \ge 0} \frac{(-s)^m}{(2m + k)!}, \qquad c_0(t^2) = \cos t, \quad c_1(t^2) = \frac{\sin t}{t},
    \quad c_2(t^2) = \frac{1 - \cos t}{t^2}, \quad c_3(t^2) = \frac{t - \sin t}{t^3}$$

    All follow from two of them by $c_k = 1/k! - s\,c_{k+2}$. Below $s = 4$ the last two are summed and the others
    follow downwards; above, the first two come from sine and cosine and the others follow upwards. Either way errors
    do not grow: values and derivatives are off by less than the last place of 1. No root is taken at 0.

    Args:
        s: The square $s$ of the angle $t$.
        last: $n$, at least 1.

    Examples:
        >>> stumpff(torch.zeros(()), last=3)
        (tensor(1.), tensor(1.), tensor(0.5000), tensor(0.1667))
    """
    if last < 1:
        raise ValueError(f"last is at least 1: got {last}")
    if not s.is_floating_point():
        raise TypeError(f"real numbers are wanted: got {s.dtype}")
    small = s < 4
    near, far = torch.where(small, s, 0.0), torch.where(small, 4.0, s)
    sums = [_sum(near, last), _sum(near, last - 1)]
    for k in range(last - 2, -1, -1):
        sums.append(1 / factorial(k) - near * sums[-2])
    t = far.sqrt()
    closed = [t.cos(), t.sin() / t]
    for k in range(2, last + 1):
        closed.append((1 / factorial(k - 2) - closed[-2]) / far)
    return tuple(torch.where(small, a, b) for a, b in zip(reversed(sums), closed, strict=True))


def _sum(s: Tensor, k: int) -> Tensor:
    """Sums the series of $c_k$ below $s = 4$: enough terms for the third derivative to be right."""
    terms = 14 if s.dtype == torch.float64 else 9
    total = torch.full_like(s, 1 / factorial(2 * terms + k))
    for m in range(terms - 1, -1, -1):
        total = 1 / factorial(2 * m + k) - s * total
    return total


def arctangent_ratio(x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    r"""Sums $\arctan(\sqrt x) / \sqrt x = \sum_m (-x)^m / (2m + 1)$, for $0 \le x \le 0.04$.

    Args:
        x: The square $x$ of the tangent.

    Examples:
        >>> arctangent_ratio(torch.zeros(()))
        tensor(1.)
    """
    terms = 14 if x.dtype == torch.float64 else 8
    total = torch.full_like(x, 1 / (2 * terms + 1))
    for m in range(terms - 1, -1, -1):
        total = 1 / (2 * m + 1) - x * total
    return total


def length(v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
    """Returns the Euclidean length of the vectors in the last axis, with derivatives of 0 at $v = 0$, where none exist.

    Examples:
        >>> length(torch.tensor([3.0, 4.0]))
        tensor(5.)
    """
    s = v.square().sum(-1)
    there = s > 0
    return torch.where(there, torch.where(there, s, 1.0).sqrt(), s)


def within(v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """Brings vectors below a length of 3, so that the rotations that they stand for are less than half a turn.

    Examples:
        >>> within(torch.tensor([0.0, 0.75, 1.0]))
        tensor([0.0000, 1.4056, 1.8741])
    """
    return 3 * v / (1 + v.square().sum(-1, keepdim=True)).sqrt()


def claims() -> Iterator[Claim]:
    """The laws that the series obey."""
    squares = made(torch.square, "n")

    def waves(s: Tensor) -> Tensor:
        return torch.stack([s.sqrt().cos(), torch.sinc(s.sqrt() / torch.pi)])

    def arctangent(x: Tensor) -> Tensor:
        return torch.where(x > 0, x.sqrt().atan() / torch.where(x > 0, x, 1.0).sqrt(), 1.0)

    yield Claim(agreement(other=waves), lambda s: torch.stack(stumpff(s, last=1)), squares, name="c_0, c_1")
    for k in range(4):

        def slope(s: Tensor, k: int = k) -> Tensor:
            c = stumpff(s, last=k + 2)
            return (k * c[k + 2] - c[k + 1]) / 2

        function = partial(lambda s, k: stumpff(s, last=k + 1)[k], k=k)
        yield Claim(derivative(formula=slope), function, squares, name=f"c_{k}")
    tangents = made(lambda x: 0.04 * torch.sigmoid(x), "n")
    yield Claim(agreement(other=arctangent), arctangent_ratio, tangents)
