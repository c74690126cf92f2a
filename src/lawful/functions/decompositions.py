"""Matrices that the claims of this folder are checked on.

QR: orthonormal columns times an upper triangular matrix, by three constructions and by PyTorch's.
Singular values, and the inverse that every matrix has.
The determinant: by how much a matrix changes volumes, and what follows from that.
Eigenvalues: the directions that a matrix only stretches, and the polynomial whose roots the stretches are.
LU: elimination, with the rows in the order that keeps it stable.
The rank of a tensor: how many pure tensors, products of vectors, add up to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from math import prod

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn import functional as F

from lawful.functions._validation import matrix, square
from lawful.laws import (
    Claim,
    Draw,
    Equal,
    Law,
    Map,
    Statement,
    agreement,
    derivative,
    gradient,
    homomorphism,
    invariance,
    law,
    shape,
    transformed,
)


def well_conditioned(x: Tensor) -> Tensor:
    """Makes matrices of full rank of any: a reflection, moved by less than its smallest singular value.

    The singular values lie between 0.1 and 1.9. The reflection has entries of both signs and a negative determinant.
    """
    m, n = x.shape[-2:]
    v = torch.arange(1, max(m, n) + 1).to(x)
    reflection = torch.eye(len(v)).to(x) - 2 * torch.outer(v, v) / v.square().sum()
    size = torch.linalg.matrix_norm(x, keepdim=True)
    return reflection[:m, :n] + 0.9 * x / (1 + size)


def symmetric(x: Tensor) -> Tensor:
    """Makes symmetric matrices of square ones."""
    return x + x.mT


QR = tuple[Float[Tensor, "*batch m n"], Float[Tensor, "*batch n n"]]


def _tall(a: Tensor) -> Tensor:
    m, n = matrix(a).shape[-2:]
    if m < n:
        raise ValueError(f"at least as many rows as columns are wanted: got {m} x {n}")
    return a


def _unit(x: Tensor) -> Tensor:
    """Brings vectors to length 1, the largest entry to 1 first: squares of what is left neither overflow nor vanish."""
    return F.normalize(x / x.detach().abs().amax(-1, keepdim=True), dim=-1, eps=0.0)


def _positive(q: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """Turns columns of Q and rows of R round where the diagonal of R is negative."""
    sign = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(r.dtype)
    return q * sign[..., None, :], r * sign[..., None]


def qr(a: Float[Tensor, "*batch m n"]) -> QR:
    r"""Writes a matrix as orthonormal columns times an upper triangular matrix.

    $$A = Q R, \qquad Q^\top Q = 1, \quad R_{ij} = 0 \text{ for } i > j, \quad R_{ii} \ge 0$$

    PyTorch's, with the signs chosen: for independent columns there is one such pair only, which the three
    constructions below give too. The derivative wants independent columns.

    Args:
        a: The matrix $A$, at least as many rows as columns.

    Returns:
        $Q$ and $R$.

    Examples:
        >>> q, r = qr(torch.tensor([[-3.0, 0.0], [4.0, 5.0]]))
        >>> r
        tensor([[5., 4.],
                [0., 3.]])
    """
    return _positive(*torch.linalg.qr(_tall(a)))


def modified_gram_schmidt(a: Float[Tensor, "*batch m n"]) -> QR:
    r"""Finds $Q$ and $R$ by taking from all later columns their part along each column, one after another.

    $$R_{jj} = \lVert v_j \rVert, \quad q_j = v_j / R_{jj}, \quad R_{ji} = q_j^\top v_i, \quad
    v_i \leftarrow v_i - R_{ji} q_j \quad (i > j), \qquad v = A \text{ at first}$$

    Modified: the part is measured on what is left of a column, not on the column as it was. The right angles of $Q$
    are lost in proportion to the condition number of $A$. Where a column depends on earlier ones nothing is left to
    normalise: NaN if exactly nothing, a column without meaning if rounding left something. `householder_qr` and
    `givens_qr` have neither problem.

    Reference:
        Björck, *Solving linear least squares problems by Gram-Schmidt orthogonalization*, 1967.

    Args:
        a: The matrix $A$, with independent columns.

    Returns:
        $Q$ and $R$.

    Examples:
        >>> q, r = modified_gram_schmidt(torch.tensor([[3.0, 1.0], [4.0, 0.0]]))
        >>> r
        tensor([[5.0000, 0.6000],
                [0.0000, 0.8000]])
    """
    left, columns, rows = _tall(a), [], []
    if not a.shape[-1]:
        return qr(a)
    for j in range(a.shape[-1]):
        q = _unit(left[..., 0])
        row = torch.einsum("...m,...mn->...n", q, left)
        left = left[..., 1:] - q[..., None] * row[..., None, 1:]
        columns.append(q)
        rows.append(F.pad(row, (j, 0)))
    return torch.stack(columns, -1), torch.stack(rows, -2)


def _eliminate(a: Tensor, clear: Callable[[Tensor, int], Tensor]) -> tuple[Tensor, Tensor]:
    """Clears column by column below the diagonal, of A with 1 beside it, which becomes R with the transpose of Q.

    `clear(rows, j)` turns the rows by an orthogonal matrix such that column j is zero in all but the first.
    """
    m, n = _tall(a).shape[-2:]
    if not n:
        return qr(a)
    left = torch.cat([a, torch.eye(m).to(a).expand(*a.shape[:-1], m)], dim=-1)
    done = []
    for j in range(n):
        left = clear(left, j)
        done.append(left[..., 0, :])
        left = left[..., 1:, :]
    r, q = torch.stack(done, -2).split([n, m], dim=-1)
    return _positive(q.mT, r.triu())


def householder_qr(a: Float[Tensor, "*batch m n"]) -> QR:
    r"""Finds $Q$ and $R$ by reflections, each of which brings what is left of a column onto its first axis.

    $$H = 1 - \frac{v v^\top}{1 + |u_1|}, \quad u = \frac{x}{\lVert x \rVert}, \quad
    v = u + \operatorname{sign}(u_1) e_1, \qquad H x = -\operatorname{sign}(u_1) \lVert x \rVert e_1$$

    The sign is the one that adds, so that nothing cancels. Dependent columns are fine: a zero stands on the diagonal
    of $R$, and $Q$ is orthonormal all the same.

    Reference:
        Householder, *Unitary triangularization of a nonsymmetric matrix*, 1958.

    Args:
        a: The matrix $A$, at least as many rows as columns.

    Returns:
        $Q$ and $R$.

    Examples:
        >>> q, r = householder_qr(torch.tensor([[3.0, 5.0], [4.0, 0.0]]))
        >>> r
        tensor([[5., 3.],
                [0., 4.]])
    """
    return _eliminate(a, _reflect)


def _reflect(rows: Tensor, j: int) -> Tensor:
    x = rows[..., j]
    first = torch.eye(1, x.shape[-1]).to(x)[0]
    u = _unit(torch.where((x == 0).all(-1, keepdim=True), first, x))
    v = u + torch.where(u[..., :1] < 0, -first, first)
    scale = 1 + u[..., 0, None, None].abs()
    return rows - v[..., None] * torch.einsum("...m,...mn->...n", v, rows)[..., None, :] / scale


def givens_qr(a: Float[Tensor, "*batch m n"]) -> QR:
    r"""Finds $Q$ and $R$ by rotations of two rows, each of which makes one entry zero.

    $$\begin{pmatrix} c & s \\ -s & c \end{pmatrix} \begin{pmatrix} x \\ y \end{pmatrix}
    = \begin{pmatrix} \sqrt{x^2 + y^2} \\ 0 \end{pmatrix}, \qquad c = \frac{x}{\sqrt{x^2 + y^2}}, \quad
    s = \frac{y}{\sqrt{x^2 + y^2}}$$

    An entry at a time, $n (2m - n - 1) / 2$ of them, which pays where most are zero already. Dependent columns are
    fine, as for reflections.

    Reference:
        Givens, *Computation of plane unitary rotations transforming a general matrix to triangular form*, 1958.

    Args:
        a: The matrix $A$, at least as many rows as columns.

    Returns:
        $Q$ and $R$.

    Examples:
        >>> q, r = givens_qr(torch.tensor([[3.0, 0.0], [4.0, 5.0]]))
        >>> r
        tensor([[5., 4.],
                [0., 3.]])
    """
    return _eliminate(a, _rotate)


def _rotate(rows: Tensor, j: int) -> Tensor:
    first, *others = rows.unbind(-2)
    turned = []
    for other in others:
        x, y = first[..., j, None], other[..., j, None]
        x = torch.where((x == 0) & (y == 0), torch.ones_like(x), x)
        c, s = x / torch.hypot(x, y), y / torch.hypot(x, y)
        first, other = c * first + s * other, c * other - s * first
        turned.append(other)
    return torch.stack([first, *turned], -2)


@law("Q R = A; QᵀQ = 1; R_ij = 0 for i > j; R_ii ≥ 0", discover_with=None)
def orthogonal_triangular(f: Map, a: Tensor) -> Statement:
    """The factors multiply to the matrix, Q has orthonormal columns, and R is triangular, its diagonal not negative."""
    q, r = f.raw_output(a)
    one = torch.eye(r.shape[-1]).to(r).expand_as(r)
    diagonal = r.diagonal(dim1=-2, dim2=-1)
    return Equal(
        (q @ r, q.mT @ q, r.triu(), diagonal.abs()),
        (a, one, r, diagonal),
        exercised=True,
        names=("Q R", "QᵀQ", "R above its diagonal", "|R_ii|"),
    )


def _qr_claims() -> Iterator[Claim]:
    """The laws that the four obey."""
    tall = transformed(well_conditioned, "b 4 3")
    yield Claim(orthogonal_triangular(), qr, shape("b 3 3"))
    yield Claim(gradient().on_output(1), qr, tall)
    for construction in (modified_gram_schmidt, householder_qr, givens_qr):
        any_rank = construction is not modified_gram_schmidt
        yield Claim(orthogonal_triangular(), construction, shape("b 4 3") if any_rank else tall)
        yield Claim(agreement(other=qr), construction, transformed(well_conditioned, "b 3 3"))
        yield Claim(gradient(), construction, tall)


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


def pinv(a: Float[Tensor, "*batch m n"], *, rtol: float | None = None) -> Float[Tensor, "*batch n m"]:
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
        >>> pinv(torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.0000]])
    """
    return torch.linalg.pinv(matrix(a), rtol=rtol)


@law("U Σ Vᵀ = A; UᵀU = VᵀV = 1; σ_1 ≥ ... ≥ σ_k ≥ 0", discover_with=None)
def orthonormal_stretches(f: Map, a: Tensor) -> Statement:
    """The factors multiply to the matrix, and each has its form."""
    u, s, vt = f.raw_output(a)
    one = torch.eye(s.shape[-1]).to(a).expand(*s.shape, -1)
    return Equal(
        (u * s[..., None, :] @ vt, u.mT @ u, vt @ vt.mT, s),
        (a, one, one, s.abs().sort(descending=True).values),
        exercised=True,
        names=("U Σ Vᵀ", "UᵀU", "VᵀV", "σ"),
    )


@law("A A⁺ A = A; A⁺ A A⁺ = A⁺; (A A⁺)ᵀ = A A⁺; (A⁺ A)ᵀ = A⁺ A", discover_with=None)
def moore_penrose(f: Map, a: Tensor) -> Statement:
    """The four conditions of Penrose, which only the pseudo-inverse meets."""
    b = f(a)
    left, right = a @ b, b @ a
    return Equal(
        (left @ a, right @ b, left.mT, right.mT),
        (a, b, left, right),
        exercised=True,
        names=("A A⁺ A", "A⁺ A A⁺", "(A A⁺)ᵀ", "(A⁺ A)ᵀ"),
    )


def _gap(a: Tensor) -> Tensor:
    """How far singular values are from each other and from 0, relative to the largest."""
    values = torch.linalg.svdvals(a)
    return torch.cat([values.diff(dim=-1).abs(), values[..., -1:]], -1) / values[..., :1].clamp_min(1e-30)


def _svd_claims() -> Iterator[Claim]:
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
    yield Claim(gradient().excluding(_gap, radius=0.05), cube, shape("b 4 3"), name="svd, in U Σ³ Vᵀ")
    yield Claim(moore_penrose(), pinv, transformed(well_conditioned, "b 2 3"))
    yield Claim(moore_penrose(), pinv, transformed(rank_one, "b 7"), name="pseudo_inverse of rank 1")
    yield Claim(gradient(), pinv, transformed(well_conditioned, "b 4 3"))


def determinant(a: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch"]:
    r"""Finds by how much a matrix changes volumes, with a sign for whether it reflects.

    $$\det A = \sum_\pi \operatorname{sign}(\pi) \prod_i A_{i \pi(i)}, \qquad \det AB = \det A \det B, \quad
    \det A^\top = \det A, \quad \det A^{-1} = 1 / \det A$$

    For large matrices it over- or underflows long before the logarithm does. The gradient is the matrix of cofactors,
    except where elimination meets a pivot of exactly 0: there PyTorch gives 0.

    Args:
        a: The matrix $A$.

    Examples:
        >>> determinant(torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
        tensor(-2.)
    """
    return torch.linalg.det(square(a))


def log_determinant(a: Float[Tensor, "*batch n n"]) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    r"""Finds the logarithm of the size of the determinant, and its sign.

    $$\det A = s \, e^{\ell}, \qquad \frac{\partial \ell}{\partial A} = A^{-\top}$$

    A singular matrix has $\ell = -\infty$, $s = 0$, and no gradient.

    Args:
        a: The matrix $A$.

    Returns:
        $\ell$ and $s$, in this order: the one that is differentiated comes first.

    Examples:
        >>> size, sign = log_determinant(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> size, sign
        (tensor(0.), tensor(-1.))
    """
    sign, size = torch.linalg.slogdet(square(a))
    return size, sign


def gram_determinant(a: Float[Tensor, "*batch m n"]) -> Float[Tensor, "*batch"]:
    r"""Finds the squared volume that the columns of a matrix span.

    $$\det A^\top A = (\det R)^2 = \prod_i R_{ii}^2, \qquad A = Q R$$

    The Gram matrix, whose condition number is the square of that of $A$, is never formed. At dependent columns the
    volume is 0, its least, and so is the gradient; second derivatives want independent ones.

    Args:
        a: The matrix $A$, at least as many rows as columns.

    Examples:
        >>> gram_determinant(torch.tensor([[3.0], [4.0]]))
        tensor(25.)
    """
    flat = (qr(a.detach())[1].diagonal(dim1=-2, dim2=-1) == 0).any(-1)
    one = torch.eye(*a.shape[-2:], dtype=a.dtype, device=a.device)
    volume = qr(torch.where(flat[..., None, None], one, a))[1].diagonal(dim1=-2, dim2=-1).prod(-1)
    return torch.where(flat, 0.0, volume.square())


def _leibniz(a: Tensor) -> Tensor:
    """The determinant as its definition has it: a sum over all permutations."""
    n = a.shape[-1]
    total = torch.zeros_like(a[..., 0, 0])
    for order in permutations(range(n)):
        swaps = sum(i > j for i, j in combinations(order, 2))
        total = total + (-1) ** swaps * a[..., torch.arange(n), torch.tensor(order)].prod(-1)
    return total


def _cauchy_binet(a: Tensor) -> Tensor:
    """The squares of the volumes of all shadows on the axes, added up."""
    m, n = a.shape[-2:]
    return sum((_leibniz(a[..., list(rows), :]).square() for rows in combinations(range(m), n)), torch.zeros(()).to(a))


def _determinant_claims() -> Iterator[Claim]:
    """The laws that determinants obey."""

    def similar(s: Tensor, a: Tensor) -> Tensor:
        return s @ a @ torch.linalg.inv(s)

    def of_transpose(a: Tensor) -> Tensor:
        return determinant(a.mT)

    def one_over_inverse(a: Tensor) -> Tensor:
        return 1 / determinant(torch.linalg.inv(a))

    def jacobi(a: Tensor) -> Tensor:
        return determinant(a)[..., None, None] * torch.linalg.inv(a).mT

    def rebuilt(a: Tensor) -> Tensor:
        size, sign = log_determinant(a)
        return sign * size.exp()

    def of_gram(a: Tensor) -> Tensor:
        return determinant(a.mT @ a)

    regular = transformed(well_conditioned, "b 3 3")
    similarity = invariance(sample=lambda draw: well_conditioned(draw.normal(3, 3)), act=similar)
    yield Claim(agreement(other=_leibniz), determinant, regular)
    yield Claim(homomorphism(operation=torch.matmul, into=torch.mul), determinant, regular)
    yield Claim(similarity, determinant, regular)
    yield Claim(agreement(other=of_transpose), determinant, regular)
    yield Claim(agreement(other=one_over_inverse), determinant, regular)
    yield Claim(derivative(formula=jacobi), determinant, regular)
    yield Claim(agreement(other=_leibniz), rebuilt, regular, name="log_determinant")
    yield Claim(derivative(formula=lambda a: torch.linalg.inv(a).mT), log_determinant, regular)
    yield Claim(agreement(other=of_gram), gram_determinant, transformed(well_conditioned, "b 4 3"))
    yield Claim(agreement(other=_cauchy_binet), gram_determinant, transformed(well_conditioned, "b 4 2"))


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


@law("A V = V Λ; VᵀV = 1; λ_1 ≤ ... ≤ λ_n", discover_with=None)
def orthonormal_eigenvectors(f: Map, a: Tensor) -> Statement:
    """The columns of V are orthonormal eigenvectors, in the order of their eigenvalues."""
    values, v = f.raw_output(a)
    one = torch.eye(a.shape[-1]).to(a).expand_as(a)
    return Equal(
        (a @ v, v.mT @ v, values), (v * values[..., None, :], one, values.sort().values), exercised=True,
        names=("A V", "VᵀV", "λ"),
    )  # fmt: skip


@law("A V = V Λ; ‖v_i‖ = 1; det(s - A) = Π (s - λ_i)", discover_with=None)
def unit_eigenvectors(f: Map, a: Tensor, *, draw: Draw) -> Statement:
    """The columns of V are eigenvectors of length 1, and each eigenvalue is counted as often as it occurs."""
    values, v = f.raw_output(a)
    s = draw.normal(4, 1)
    return Equal(
        (a.to(v) @ v, v.norm(dim=-2), (s[..., None] - values).prod(-1)),
        (v * values[..., None, :], torch.ones_like(a[..., 0]), _at(s, a).to(v)),
        exercised=True,
        names=("A V", "‖v‖", "Π (s - λ)"),
    )


@law("p(s) = det(s - A); p(A) = 0", discover_with=None)
def cayley_hamilton(f: Map, a: Tensor, *, draw: Draw) -> Statement:
    """The polynomial is the characteristic one, and the matrix is a root of it."""
    c, s = f(a), draw.normal(4, 1)
    one = torch.eye(a.shape[-1]).to(a)
    number, power = torch.zeros_like(s), torch.zeros_like(a)
    for k in range(a.shape[-1]):
        number = (number + c[..., k]) * s
        power = (power + c[..., k, None, None] * one) @ a
    last = c[..., -1]
    return Equal(
        (number + last, power),
        (_at(s, a), -last[..., None, None] * one),
        exercised=True,
        names=("p(s)", "p(A) - c_n"),
    )


def _gap_eigen(a: Tensor) -> Tensor:
    """How far any two eigenvalues are apart, relative to the largest."""
    values = torch.linalg.eigvals(a)
    apart = (values[..., None] - values[..., None, :]).abs() / values.abs().amax(-1)[..., None, None].clamp_min(1e-30)
    return apart + torch.eye(values.shape[-1]).to(apart)


def _eigen_claims() -> Iterator[Claim]:
    """The laws that eigenvalues obey."""

    def cube_of_symmetric(a: Tensor) -> Tensor:
        values, vectors = symmetric_eigen(symmetric(a))
        return vectors * values[..., None, :] ** 3 @ vectors.mT

    def trace_of_cube(a: Tensor) -> Tensor:
        return general_eigen(a)[0].pow(3).sum(-1).real

    def similar(s: Tensor, a: Tensor) -> Tensor:
        return s @ a @ torch.linalg.inv(s)

    yield Claim(orthonormal_eigenvectors(), symmetric_eigen, transformed(symmetric, "b 3 3"))
    yield Claim(
        gradient().excluding(_gap_eigen, radius=0.05),
        cube_of_symmetric,
        transformed(symmetric, "b 3 3"),
        name="symmetric_eigen, in V Λ³ Vᵀ",
    )
    regular = transformed(well_conditioned, "b 3 3")
    yield Claim(unit_eigenvectors(), general_eigen, regular)
    slope = derivative(formula=lambda a: 3 * (a @ a).mT).excluding(_gap_eigen, radius=0.05)
    yield Claim(slope, trace_of_cube, regular, name="general_eigen, in Σ λ³")
    yield Claim(cayley_hamilton(), characteristic_polynomial, regular)
    similarity = invariance(sample=lambda draw: well_conditioned(draw.normal(3, 3)), act=similar)
    yield Claim(similarity, characteristic_polynomial, regular)


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


@law("P L U = A; PᵀP = 1, P_ij ≥ 0; L_ii = 1, L_ij = 0 for i < j, |L_ij| ≤ 1; U_ij = 0 for i > j", discover_with=None)
def pivoted_factors(f: Map, a: Tensor) -> Statement:
    """The factors multiply to the matrix, and each has its form."""
    p, l, u = f.raw_output(a)  # noqa: E741
    one = torch.eye(a.shape[-2]).to(a).expand_as(p)
    return Equal(
        (p @ l @ u, p.mT @ p, p.abs(), l.triu(), l.clamp(-1, 1), u.triu()),
        (a, one, p, one[..., : l.shape[-1]], l, u),
        exercised=True,
        names=("P L U", "PᵀP", "|P|", "L above its diagonal", "L within 1", "U above its diagonal"),
    )


def _lu_claims() -> Iterator[Claim]:
    """The laws that LU obeys."""
    for axes in ("b 4 3", "b 2 3"):
        yield Claim(pivoted_factors(), lu, shape(axes))
    yield Claim(gradient().on_output(2), lu, transformed(well_conditioned, "b 3 3"))


def unfolding(tensor: Float[Tensor, "*shape"], *, axis: int) -> Float[Tensor, "d _"]:
    r"""Lays a tensor out as a matrix: one axis down, all others across.

    Args:
        tensor: The tensor $T$.
        axis: The axis that becomes the rows.

    Examples:
        >>> unfolding(torch.zeros(2, 3, 4), axis=1).shape
        torch.Size([3, 8])
    """
    return tensor.movedim(axis, 0).flatten(1) if tensor.dim() > 1 else tensor[:, None]


def rank_bounds(tensor: Float[Tensor, "*shape"], *, rtol: float | None = None) -> tuple[int, int]:
    r"""Bounds the rank of a tensor, the smallest number of pure tensors that add up to it.

    $$\max_k r_k \le \operatorname{rank} T \le \prod_k r_k \, / \, \max_k r_k,
    \qquad r_k = \operatorname{rank} T_{(k)}$$

    A sum of $r$ pure tensors unfolds to matrices of rank at most $r$. In the other direction, the tensor lives in a
    box with sides $r_k$, and slicing the box along all but its longest side leaves pure tensors. For a matrix the two
    meet. The rank itself is hard to find (NP-hard from three axes on).

    Reference:
        Kolda and Bader, *Tensor Decompositions and Applications*, 2009.

    Args:
        tensor: The tensor $T$.
        rtol: The part of the largest singular value of an unfolding $T_{(k)}$ at which others count as zero; the
            larger side times the machine epsilon unless given.

    Examples:
        >>> rank_bounds(torch.eye(3))
        (3, 3)
        >>> rank_bounds(torch.eye(4).reshape(2, 2, 2, 2))
        (2, 8)
    """
    if not tensor.dim():
        raise ValueError("a tensor with at least one axis is wanted: got a number")
    ranks = [int(torch.linalg.matrix_rank(unfolding(tensor, axis=k), rtol=rtol)) for k in range(tensor.dim())]
    largest = max(ranks)
    return largest, prod(ranks) // max(largest, 1)


def is_pure(tensor: Float[Tensor, "*shape"], *, rtol: float | None = None) -> bool:
    r"""Says whether a tensor is the product of vectors: whether its rank is at most 1.

    Args:
        tensor: The tensor $T$.
        rtol: As in `rank_bounds`.

    Examples:
        >>> is_pure(torch.ones(2, 3, 4))
        True
        >>> is_pure(torch.eye(2))
        False
    """
    return rank_bounds(tensor, rtol=rtol)[0] <= 1


def _rank_claims() -> Iterator[Claim]:
    """The laws that the bounds obey."""
    from lawful.functions.tensors import pure_tensor, tensor_product

    def bounds(tensor: Tensor) -> Tensor:
        return torch.tensor(rank_bounds(tensor, rtol=1e-4), dtype=tensor.dtype)

    def of_two_terms(u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return bounds(torch.func.vmap(pure_tensor, in_dims=-1)(u, v, w).sum(0))

    def of_vector_and_matrix(v: Tensor, a: Tensor) -> Tensor:
        return bounds(tensor_product(v[:, 0], a))

    def known(lower: float, upper: float) -> Law:
        return agreement(other=lambda x, *_: x.new_tensor([lower, upper]))

    terms = tuple(transformed(well_conditioned, f"{d} 2") for d in (3, 2, 4))
    yield Claim(known(2.0, 4.0), of_two_terms, terms, name="rank_bounds of two independent terms")
    unequal = (transformed(well_conditioned, "3 1"), transformed(well_conditioned, "2 4"))
    yield Claim(known(2.0, 2.0), of_vector_and_matrix, unequal, name="rank_bounds of a vector times a matrix")

    def nothing(x: Tensor) -> Tensor:
        return bounds(0 * x)

    def purity(x: Tensor) -> Tensor:
        a, pure = tensor_product(x[:, 0], x), pure_tensor(x[:, 0], x[:, 1], x[:, 0])
        found = is_pure(x), is_pure(a), is_pure(x, rtol=2.0), is_pure(pure, rtol=1e-4), is_pure(x[:, 0])
        return x.new_tensor(found)

    yield Claim(known(0.0, 0.0), nothing, transformed(well_conditioned, "3 2"), name="rank_bounds of 0")
    told = agreement(other=lambda x: x.new_tensor([False, False, True, True, True]))
    yield Claim(told, purity, transformed(well_conditioned, "3 2"), name="is_pure")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _qr_claims()
    yield from _svd_claims()
    yield from _determinant_claims()
    yield from _eigen_claims()
    yield from _lu_claims()
    yield from _rank_claims()
