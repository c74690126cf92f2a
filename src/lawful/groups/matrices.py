"""What all groups of matrices share: the adjoint and the derivative of exp, from `hat` and `vee` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, gradient, shape

Linear = Callable[[Tensor], Tensor]


def adjoint(
    g: Float[Tensor, "*batch d d"], *, inverse: Float[Tensor, "*batch d d"], hat: Linear, vee: Linear, dim: int
) -> Float[Tensor, "*batch n n"]:
    r"""Writes $v \mapsto (g \hat v g^{-1})^\vee$ as a matrix, a column for each coordinate.

    Args:
        g: The element $g$.
        inverse: $g^{-1}$.
        hat: From coordinates to the algebra.
        vee: From the algebra to coordinates.
        dim: How many coordinates there are.
    """
    basis = hat(torch.eye(dim, dtype=g.dtype, device=g.device))
    return vee(g[..., None, :, :] @ basis @ inverse[..., None, :, :]).mT


def bracket(v: Float[Tensor, "*batch n"], *, hat: Linear, vee: Linear) -> Float[Tensor, "*batch n n"]:
    r"""Writes $w \mapsto [\hat v, \hat w]^\vee$ as a matrix: the adjoint of the algebra on itself.

    Args:
        v: The coordinates $v$.
        hat: From coordinates to the algebra.
        vee: From the algebra to coordinates.
    """
    basis, a = hat(torch.eye(v.shape[-1], dtype=v.dtype, device=v.device)), hat(v)[..., None, :, :]
    return vee(a @ basis - basis @ a).mT


def exp_mean(a: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""Averages the exponential along the way from 0 to a matrix.

    $$\int_0^1 e^{s A} \, ds = \sum_{k \ge 0} \frac{A^k}{(k + 1)!}$$

    It is $A^{-1} (e^A - 1)$, without the division: the corner of the exponential of a matrix twice the size. Of the
    bracket it is the left Jacobian of a group; of a rotation's generator, what turns velocities into translations.

    Args:
        a: The matrix $A$.

    Examples:
        >>> exp_mean(torch.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    n = a.shape[-1]
    one, zero = torch.eye(n, dtype=a.dtype, device=a.device).expand_as(a), torch.zeros_like(a)
    doubled = torch.cat([torch.cat([a, one], -1), torch.cat([zero, zero], -1)], -2)
    return torch.linalg.matrix_exp(doubled)[..., :n, n:]


def claims() -> Iterator[Claim]:
    """The laws that the adjoint, the bracket and the average of the exponential obey."""

    def times(a: Tensor) -> Tensor:
        return a @ exp_mean(a) + torch.eye(3, dtype=a.dtype, device=a.device)

    def small(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda a: function(torch.tanh(a))

    yield Claim(agreement(other=small(torch.linalg.matrix_exp)), small(times), shape("b 3 3"), name="A exp_mean(A) + 1")
    yield Claim(gradient(), small(exp_mean), shape("b 3 3"), name="exp_mean")

    def turn(v: Tensor) -> Tensor:
        return torch.linalg.matrix_exp(_cross(v.tanh()))

    def of_turn(v: Tensor) -> Tensor:
        return adjoint(turn(v), inverse=turn(-v), hat=_cross, vee=_uncross, dim=3)

    yield Claim(agreement(other=turn), of_turn, shape("b 3"), name="adjoint, of a rotation")
    brackets = agreement(other=_cross)
    yield Claim(brackets, lambda v: bracket(v, hat=_cross, vee=_uncross), shape("b 3"), name="bracket, of so(3)")


def _cross(v: Tensor) -> Tensor:
    """The matrix of the cross product with a vector: its columns are those with the unit vectors."""
    return torch.linalg.cross(v[..., None, :], torch.eye(3).to(v).expand(*v.shape, 3)).mT


def _uncross(a: Tensor) -> Tensor:
    return torch.stack([a[..., 2, 1], a[..., 0, 2], a[..., 1, 0]], -1)
