"""Eigenvalues: the directions that a matrix only stretches, and the polynomial whose roots the stretches are."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from lawful.functions.checks import square
from lawful.functions.decompositions.examples import symmetric, well_conditioned
from lawful.laws import Claim, Draw, Map, Same, Statement, derivative, gradient, invariance, law, made


def symmetric_eigen(
    a: Float[Tensor, "*batch n n"],
) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n n"]]:
    r"""Writes a symmetric matrix as a rotation, stretches along the axes, and the rotation back.

    $$A = V \Lambda V^\top, \qquad V^\top V = 1, \quad \lambda_1 \le \dots \le \lambda_n$$

    Only the lower triangle of $A$ is read. Eigenvectors are found up to their signs; where eigenvalues are equal, up
    to a rotation among their eigenvectors, and a gradient through $V$ is then undefined.

    Args:
        a: The matrix $A$.

    Returns:
        $\lambda$, and $V$ with the eigenvectors in its columns.

    Examples:
        >>> values, vectors = symmetric_eigen(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> values
        tensor([-1.,  1.])
    """
    return torch.linalg.eigh(square(a))


def general_eigen(
    a: Float[Tensor, "*batch n n"],
) -> tuple[Complex[Tensor, "*batch n"], Complex[Tensor, "*batch n n"]]:
    r"""Finds the complex numbers and directions with $A V = V \Lambda$.

    $$A v_i = \lambda_i v_i, \qquad \lVert v_i \rVert = 1$$

    In no particular order; the eigenvectors up to a phase. Where eigenvalues are equal there may be fewer eigenvectors
    than $n$: the columns of $V$ are then dependent, and there is no gradient.

    Args:
        a: The matrix $A$.

    Returns:
        $\lambda$, and $V$ with the eigenvectors in its columns.

    Examples:
        >>> values, vectors = general_eigen(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
        >>> values
        tensor([0.+1.j, 0.-1.j])
    """
    return torch.linalg.eig(square(a))


def characteristic_polynomial(a: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch k"]:
    r"""Finds the coefficients of the polynomial whose roots are the eigenvalues, from $\lambda^n$ down to $\lambda^0$.

    $$\det(\lambda 1 - A) = \sum_{k=0}^n c_k \lambda^{n-k}, \qquad M_1 = 1, \quad c_k = -\tfrac{1}{k}
    \operatorname{tr} A M_k, \quad M_{k+1} = A M_k + c_k 1$$

    This is $(-1)^n \det(A - \lambda 1)$. No eigenvalue is computed, so that equal ones do no harm to the gradient.
    Coefficients cancel for large $n$: to find eigenvalues use the functions above.

    Reference:
        Faddeev and Sominsky, *Problems in Higher Algebra*, 1949.

    Args:
        a: The matrix $A$.

    Returns:
        $c_0 = 1, \dots, c_n$.

    Examples:
        >>> characteristic_polynomial(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
        tensor([ 1., -5.,  6.])
    """
    n = square(a).shape[-1]
    one = torch.eye(n, dtype=a.dtype, device=a.device).expand_as(a)
    m, coefficients = one, [a.new_ones(a.shape[:-2])]
    for k in range(1, n + 1):
        product = a @ m
        coefficients.append(-product.diagonal(dim1=-2, dim2=-1).sum(-1) / k)
        m = product + coefficients[-1][..., None, None] * one
    return torch.stack(coefficients, -1)


def _at(s: Tensor, a: Tensor) -> Tensor:
    """The characteristic polynomial of matrices at some numbers, by the determinant."""
    return torch.linalg.det(s[..., None, None] * torch.eye(a.shape[-1]).to(a) - a)


@law("A V = V Λ; VᵀV = 1; λ_1 ≤ ... ≤ λ_n", tries=None)
def orthonormal_eigenvectors(f: Map, a: Tensor) -> Statement:
    """The columns of V are orthonormal eigenvectors, in the order of their eigenvalues."""
    values, v = f.whole(a)
    one = torch.eye(a.shape[-1]).to(a).expand_as(a)
    return Same(
        (a @ v, v.mT @ v, values), (v * values[..., None, :], one, values.sort().values), exercised=True,
        names=("A V", "VᵀV", "λ"),
    )  # fmt: skip


@law("A V = V Λ; ‖v_i‖ = 1; det(s - A) = Π (s - λ_i)", tries=None)
def unit_eigenvectors(f: Map, a: Tensor, *, draw: Draw) -> Statement:
    """The columns of V are eigenvectors of length 1, and each eigenvalue is counted as often as it occurs."""
    values, v = f.whole(a)
    s = draw.normal(4, 1)
    return Same(
        (a.to(v) @ v, v.norm(dim=-2), (s[..., None] - values).prod(-1)),
        (v * values[..., None, :], torch.ones_like(a[..., 0]), _at(s, a).to(v)),
        exercised=True,
        names=("A V", "‖v‖", "Π (s - λ)"),
    )


@law("p(s) = det(s - A); p(A) = 0", tries=None)
def cayley_hamilton(f: Map, a: Tensor, *, draw: Draw) -> Statement:
    """The polynomial is the characteristic one, and the matrix is a root of it."""
    c, s = f(a), draw.normal(4, 1)
    one = torch.eye(a.shape[-1]).to(a)
    number, power = torch.zeros_like(s), torch.zeros_like(a)
    for k in range(a.shape[-1]):
        number = (number + c[..., k]) * s
        power = (power + c[..., k, None, None] * one) @ a
    last = c[..., -1]
    return Same(
        (number + last, power),
        (_at(s, a), -last[..., None, None] * one),
        exercised=True,
        names=("p(s)", "p(A) - c_n"),
    )


def _gap(a: Tensor) -> Tensor:
    """How far any two eigenvalues are apart, relative to the largest."""
    values = torch.linalg.eigvals(a)
    apart = (values[..., None] - values[..., None, :]).abs() / values.abs().amax(-1)[..., None, None].clamp_min(1e-30)
    return apart + torch.eye(values.shape[-1]).to(apart)


def claims() -> Iterator[Claim]:
    """The laws that eigenvalues obey."""

    def cube_of_symmetric(a: Tensor) -> Tensor:
        values, vectors = symmetric_eigen(symmetric(a))
        return vectors * values[..., None, :] ** 3 @ vectors.mT

    def trace_of_cube(a: Tensor) -> Tensor:
        return general_eigen(a)[0].pow(3).sum(-1).real

    def similar(s: Tensor, a: Tensor) -> Tensor:
        return s @ a @ torch.linalg.inv(s)

    yield Claim(orthonormal_eigenvectors(), symmetric_eigen, made(symmetric, "b 3 3"))
    yield Claim(
        gradient().except_near(_gap, radius=0.05),
        cube_of_symmetric,
        made(symmetric, "b 3 3"),
        name="symmetric_eigen, in V Λ³ Vᵀ",
    )
    regular = made(well_conditioned, "b 3 3")
    yield Claim(unit_eigenvectors(), general_eigen, regular)
    slope = derivative(formula=lambda a: 3 * (a @ a).mT).except_near(_gap, radius=0.05)
    yield Claim(slope, trace_of_cube, regular, name="general_eigen, in Σ λ³")
    yield Claim(cayley_hamilton(), characteristic_polynomial, regular)
    similarity = invariance(sample=lambda draw: well_conditioned(draw.normal(3, 3)), act=similar)
    yield Claim(similarity, characteristic_polynomial, regular)
