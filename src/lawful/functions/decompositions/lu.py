"""LU: elimination, with the rows in the order that keeps it stable."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.checks import matrix
from lawful.functions.decompositions.examples import well_conditioned
from lawful.laws import Claim, Map, Same, Statement, gradient, law, made, shape


def lu(
    a: Float[Tensor, "*batch m n"],
) -> tuple[Float[Tensor, "*batch m m"], Float[Tensor, "*batch m k"], Float[Tensor, "*batch k n"]]:
    r"""Writes a matrix as a permutation, a lower and an upper triangular matrix.

    $$A = P L U, \qquad L_{ii} = 1, \quad |L_{ij}| \le 1$$

    Partial pivoting: each column is eliminated with its largest entry, so that no multiplier in $L$ is above 1. Every
    matrix has such factors, singular ones too; $k = \min(m, n)$. Gradients want the first $k$ columns and the pivots
    to be independent.

    Args:
        a: The matrix $A$.

    Returns:
        $P$, $L$ and $U$.

    Examples:
        >>> p, l, u = lu(torch.tensor([[0.0, 2.0], [1.0, 3.0]]))
        >>> u
        tensor([[1., 3.],
                [0., 2.]])
    """
    return torch.linalg.lu(matrix(a))


@law("P L U = A; PᵀP = 1, P_ij ≥ 0; L_ii = 1, L_ij = 0 for i < j, |L_ij| ≤ 1; U_ij = 0 for i > j", tries=None)
def pivoted_factors(f: Map, a: Tensor) -> Statement:
    """The factors multiply to the matrix, and each has its form."""
    p, l, u = f.whole(a)  # noqa: E741
    one = torch.eye(a.shape[-2]).to(a).expand_as(p)
    return Same(
        (p @ l @ u, p.mT @ p, p.abs(), l.triu(), l.clamp(-1, 1), u.triu()),
        (a, one, p, one[..., : l.shape[-1]], l, u),
        exercised=True,
        names=("P L U", "PᵀP", "|P|", "L above its diagonal", "L within 1", "U above its diagonal"),
    )


def claims() -> Iterator[Claim]:
    """The laws that LU obeys."""
    for axes in ("b 4 3", "b 2 3"):
        yield Claim(pivoted_factors(), lu, shape(axes))
    yield Claim(gradient().on_output(2), lu, made(well_conditioned, "b 3 3"))
