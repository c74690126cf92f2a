r"""Generators that turn in one plane, $A^3 = -s A$: their exponentials and averages in closed form."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.groups import matrices
from lawful.groups.group import sized
from lawful.groups.rotations.conversions import skew
from lawful.groups.rotations.series import stumpff, within
from lawful.laws import Claim, agreement, made, second_order_gradient


def turn_mean(a: Float[Tensor, "*batch n n"], *, square: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch n n"]:
    r"""Averages the exponential along the way from 0 to a generator $A$ with $A^3 = -s A$.

    $$\int_0^1 e^{\tau A} d\tau = 1 + c_2(s) A + c_3(s) A^2$$

    Of the cross product with $v$ it is the left Jacobian of SO(3), and what turns velocities into translations.

    Args:
        a: The generator $A$.
        square: $s$, the square of the angle.

    Examples:
        >>> turn_mean(torch.zeros(2, 2), square=torch.zeros(()))
        tensor([[1., 0.],
                [0., 1.]])
    """
    c2, c3 = (c[..., None, None] for c in stumpff(square, last=3)[2:])
    return _one(a) + c2 * a + c3 * (a @ a)


def turn_mean_inverse(
    a: Float[Tensor, "*batch n n"], *, square: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch n n"]:
    r"""Inverts `turn_mean`, without solving.

    $$\Bigl( \int_0^1 e^{\tau A} d\tau \Bigr)^{-1} = 1 - \frac A2
    + \frac1s \Bigl( 1 - \frac\theta2 \cot\frac\theta2 \Bigr) A^2, \qquad \theta^2 = s$$

    The last factor is $(c_2 - c_3) / 4 c_1$ at $s / 4$, which is smooth at 0. At full turns, $\theta = 2\pi$, there is
    no inverse.

    Args:
        a: The generator $A$.
        square: $s$, the square of the angle.

    Examples:
        >>> turn_mean_inverse(torch.zeros(2, 2), square=torch.zeros(()))
        tensor([[1., 0.],
                [0., 1.]])
    """
    _, c1, c2, c3 = stumpff(square / 4, last=3)
    return _one(a) - a / 2 + ((c2 - c3) / (4 * c1))[..., None, None] * (a @ a)


def _one(a: Tensor) -> Tensor:
    return torch.eye(sized(a, a.shape[-1], a.shape[-1]).shape[-1], dtype=a.dtype, device=a.device)


def claims() -> Iterator[Claim]:
    """The laws that the averages obey."""

    def mean(v: Tensor) -> Tensor:
        return turn_mean(skew(v), square=v.square().sum(-1))

    def inverse(v: Tensor) -> Tensor:
        return turn_mean_inverse(skew(v), square=v.square().sum(-1))

    def identity(v: Tensor) -> Tensor:
        return _one(skew(v)).expand(*v.shape, 3)

    near = made(within, "b 3")
    yield Claim(agreement(other=lambda v: matrices.exp_mean(skew(v))), mean, near, name="turn_mean")
    yield Claim(agreement(other=identity), lambda v: mean(v) @ inverse(v), near, name="turn_mean_inverse")
    yield Claim(second_order_gradient(), inverse, near, name="turn_mean_inverse")
