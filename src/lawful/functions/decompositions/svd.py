"""Singular values, and the inverse that every matrix has."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.checks import matrix
from lawful.functions.decompositions.examples import well_conditioned
from lawful.laws import Claim, Map, Same, Statement, derivative, gradient, law, made, shape


def svd(
    a: Float[Tensor, "*batch m n"],
) -> tuple[Float[Tensor, "*batch m k"], Float[Tensor, "*batch k"], Float[Tensor, "*batch k n"]]:
    r"""Writes a matrix as a rotation, stretches along the axes, and another rotation.

    $$A = U \Sigma V^\top, \qquad U^\top U = V^\top V = 1, \quad \sigma_1 \ge \dots \ge \sigma_k \ge 0,
    \quad k = \min(m, n)$$

    The columns of $U$ and $V$ are found up to a common sign. Where singular values are equal, or zero in a matrix that
    is not square, a gradient through $U$ or $V$ is undefined.

    Args:
        a: The matrix $A$.

    Returns:
        $U$, $\sigma$ and $V^\top$.

    Examples:
        >>> u, s, vt = svd(torch.tensor([[0.0, 2.0], [1.0, 0.0]]))
        >>> s
        tensor([2., 1.])
    """
    return torch.linalg.svd(matrix(a), full_matrices=False)


def pseudo_inverse(a: Float[Tensor, "*batch m n"], *, rtol: float | None = None) -> Float[Tensor, "*batch n m"]:
    r"""Inverts a matrix as far as it goes (Moore and Penrose).

    $$A^+ = V \Sigma^+ U^\top, \qquad \sigma^+ = 1 / \sigma \text{ where } \sigma > \rho \sigma_1, \text{ else } 0$$

    It is the one matrix with $A A^+ A = A$, $A^+ A A^+ = A^+$, and $A A^+$ and $A^+ A$ symmetric; $A^+ b$ is the
    shortest of the vectors that bring $A x$ closest to $b$. It jumps where the rank does.

    Reference:
        Penrose, *A generalized inverse for matrices*, 1955.

    Args:
        a: The matrix $A$.
        rtol: $\rho$; the larger side times the machine epsilon unless given.

    Examples:
        >>> pseudo_inverse(torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.0000]])
    """
    return torch.linalg.pinv(matrix(a), rtol=rtol)


@law("U Σ Vᵀ = A; UᵀU = VᵀV = 1; σ_1 ≥ ... ≥ σ_k ≥ 0", tries=None)
def orthonormal_stretches(f: Map, a: Tensor) -> Statement:
    """The factors multiply to the matrix, and each has its form."""
    u, s, vt = f.whole(a)
    one = torch.eye(s.shape[-1]).to(a).expand(*s.shape, -1)
    return Same(
        (u * s[..., None, :] @ vt, u.mT @ u, vt @ vt.mT, s),
        (a, one, one, s.abs().sort(descending=True).values),
        exercised=True,
        names=("U Σ Vᵀ", "UᵀU", "VᵀV", "σ"),
    )


@law("A A⁺ A = A; A⁺ A A⁺ = A⁺; (A A⁺)ᵀ = A A⁺; (A⁺ A)ᵀ = A⁺ A", tries=None)
def moore_penrose(f: Map, a: Tensor) -> Statement:
    """The four conditions of Penrose, which only the pseudo-inverse meets."""
    b = f(a)
    left, right = a @ b, b @ a
    return Same(
        (left @ a, right @ b, left.mT, right.mT),
        (a, b, left, right),
        exercised=True,
        names=("A A⁺ A", "A⁺ A A⁺", "(A A⁺)ᵀ", "(A⁺ A)ᵀ"),
    )


def _gap(a: Tensor) -> Tensor:
    """How far singular values are from each other and from 0, relative to the largest."""
    values = torch.linalg.svdvals(a)
    return torch.cat([values.diff(dim=-1).abs(), values[..., -1:]], -1) / values[..., :1].clamp_min(1e-30)


def claims() -> Iterator[Claim]:
    """The laws that singular values and the pseudo-inverse obey."""

    def rank_one(x: Tensor) -> Tensor:
        return x[..., :4, None] * x[..., None, 4:]

    def cube(a: Tensor) -> Tensor:
        u, s, vt = svd(a)
        return u * s[..., None, :] ** 3 @ vt

    def fourth_powers(a: Tensor) -> Tensor:
        return svd(a)[1].pow(4).sum(-1)

    yield Claim(orthonormal_stretches(), svd, shape("b 4 3"))
    yield Claim(derivative(formula=lambda a: 4 * a @ a.mT @ a), fourth_powers, shape("b 2 3"), name="svd, in Σ σ⁴")
    yield Claim(gradient().except_near(_gap, radius=0.05), cube, shape("b 4 3"), name="svd, in U Σ³ Vᵀ")
    yield Claim(moore_penrose(), pseudo_inverse, made(well_conditioned, "b 2 3"))
    yield Claim(moore_penrose(), pseudo_inverse, made(rank_one, "b 7"), name="pseudo_inverse of rank 1")
    yield Claim(gradient(), pseudo_inverse, made(well_conditioned, "b 4 3"))
