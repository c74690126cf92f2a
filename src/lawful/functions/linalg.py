"""Linear algebra that PyTorch lacks: norms with finite derivatives, projections, least squares, QR constructions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.functions._validation import any_true, check_matrix, check_same_size, check_square
from lawful.laws import (
    Claim,
    convexity,
    finiteness,
    gradient,
    homogeneity,
    idempotence,
    invariance,
    linearity,
    metric,
    orthonormality,
    scale_invariance,
    shape,
    transformed,
    triangle_inequality,
)


def norm(x: Float[Tensor, "*shape"], *, p: float | int = 2, dim: int = -1) -> Float[Tensor, "*rest"]:
    r"""Vector norm with finite first and second derivatives.

    $$\lVert x \rVert_p = \Big( \sum_i |x_i|^p \Big)^{1/p}, \qquad \lVert x \rVert_\infty = \max_i |x_i|$$

    Where the norm has no derivative (at $x = 0$, and for $p < 2$ where an entry is 0), the first and second derivatives
    are 0, so that no NaN reaches a gradient or a gradient penalty. With `torch.linalg.vector_norm` they are not always
    finite.

    Powers are not rescaled: in float32 and for $p = 2$, norms from $10^{-19}$ to $10^{19}$ are accurate. Outside this
    range divide by the largest entry first.

    Args:
        x: Vectors along `dim`.
        p: Exponent $p$, at least 1; `math.inf` for the maximum norm.
        dim: Dimension to reduce.

    Examples:
        >>> norm(torch.tensor([3.0, -4.0]))
        tensor(5.)
        >>> norm(torch.tensor([3.0, -4.0]), p=1)
        tensor(7.)
    """
    if not p >= 1:
        raise ValueError(f"p must be at least 1, got {p}")
    if p == 1 or p >= 3:
        return torch.linalg.vector_norm(x, p, dim)
    total = torch.linalg.vecdot(x, x, dim=dim) if p == 2 else _abs_power(x, p).sum(dim)
    zero = total == 0
    return total.masked_fill(zero, 1.0).pow(1 / p).masked_fill(zero, 0.0)


def _abs_power(x: Tensor, p: float) -> Tensor:
    """Returns |x|^p, with derivatives that are 0 at 0."""
    zero = x == 0
    return x.masked_fill(zero, 1.0).abs().pow(p).masked_fill(zero, 0.0)


def distance(
    x: Float[Tensor, "*#shape"], y: Float[Tensor, "*#shape"], *, p: float | int = 2, dim: int = -1
) -> Float[Tensor, "*rest"]:
    r"""Distance between vectors, with finite derivatives at $x = y$.

    $$d_p(x, y) = \lVert x - y \rVert_p$$

    Args:
        x: Vectors along `dim`.
        y: Vectors of the same size.
        p: Exponent $p$, at least 1; `math.inf` for the largest difference.
        dim: Dimension to reduce.

    Examples:
        >>> distance(torch.tensor([1.0, 1.0]), torch.tensor([4.0, 5.0]))
        tensor(5.)
    """
    check_same_size(x, y, dim=dim)
    return norm(x - y, p=p, dim=dim)


def angle(x: Float[Tensor, "*#batch d"], y: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
    r"""Angle between vectors, from 0 to $\pi$.

    $$\theta = 2 \operatorname{atan2}\big( \lVert u - v \rVert, \lVert u + v \rVert \big),
    \qquad u = \frac{x}{\lVert x \rVert}, \quad v = \frac{y}{\lVert y \rVert}$$

    The arc cosine would lose half of the digits near 0 and $\pi$, and has no derivative there. The angle with 0 is
    $\pi / 2$. Vectors of any length are accurate.

    Args:
        x: Vectors $x$.
        y: Vectors $y$.

    Examples:
        >>> angle(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 5.0]))
        tensor(1.5708)
    """
    check_same_size(x, y)
    u, v = _unit_vector(x), _unit_vector(y)
    apart, together = norm(u - v), norm(u + v)
    zero = (apart == 0) & (together == 0)
    return 2 * torch.atan2(apart.masked_fill(zero, 1.0), together.masked_fill(zero, 1.0))


def _rescale(x: Tensor) -> Tensor:
    """Divides vectors by their largest entry, so that squares neither over- nor underflow.

    The divisor is a constant for the gradient: use it only in functions of the direction.
    """
    if not x.shape[-1]:
        return x
    size = x.detach().abs().amax(-1, keepdim=True)
    return x / size.masked_fill((size == 0) | size.isinf(), 1.0)


def _unit_vector(x: Tensor) -> Tensor:
    """Returns vectors of length 1; 0 stays 0."""
    x = _rescale(x)
    length = norm(x).unsqueeze(-1)
    return x / length.masked_fill(length == 0, 1.0)


def project(x: Float[Tensor, "*#batch d"], onto: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
    r"""Projects vectors onto the line through a vector.

    $$\operatorname{proj}_a x = \frac{a \cdot x}{a \cdot a} \, a$$

    The projection onto $a = 0$ is 0.

    Args:
        x: Vectors $x$.
        onto: Vectors $a$.

    Examples:
        >>> project(torch.tensor([3.0, 4.0]), torch.tensor([2.0, 0.0]))
        tensor([3., 0.])
    """
    check_same_size(x, onto)
    onto = _rescale(onto)
    square = torch.linalg.vecdot(onto, onto).unsqueeze(-1)
    return torch.linalg.vecdot(x, onto).unsqueeze(-1) / square.masked_fill(square == 0, 1.0) * onto


def project_onto_columns(x: Float[Tensor, "*#batch d"], a: Float[Tensor, "*#batch d k"]) -> Float[Tensor, "*batch d"]:
    r"""Projects vectors onto the column space of a matrix.

    $$\operatorname{proj}_A x = A A^+ x, \qquad A A^+ = A (A^\mathsf{T} A)^{-1} A^\mathsf{T}
    \text{ if the columns are independent}$$

    Dependent columns are allowed, since $A^+$ is the pseudoinverse.

    Args:
        x: Vectors $x$.
        a: Matrices $A$.

    Examples:
        >>> project_onto_columns(torch.tensor([1.0, 2.0, 3.0]), torch.eye(3)[:, :2])
        tensor([1., 2., 0.])
    """
    return (a @ (torch.linalg.pinv(a) @ x.unsqueeze(-1))).squeeze(-1)


_Matrix = Float[Tensor, "*#batch m n"]
_Vector = Float[Tensor, "*#batch m"]
_Solution = Float[Tensor, "*#out n"]


def least_squares(a: _Matrix, b: _Vector) -> _Solution:
    r"""Solves a least-squares problem by QR.

    $$\min_x \lVert A x - b \rVert_2, \qquad R x = Q^\top b, \quad A = Q R$$

    The residual is orthogonal to all columns: $A^\top (A x - b) = 0$. Batch dimensions broadcast, so that one matrix
    serves many right sides. NaN propagates.

    Args:
        a: Matrix $A$, with independent columns.
        b: Right side $b$.

    Returns:
        Solution $x$.

    Raises:
        ValueError: If the columns are linearly dependent, regardless of their scales. `torch.linalg.pinv(a) @ b` is
            then the minimum-norm solution.

    Examples:
        >>> least_squares(torch.tensor([[1.0], [1.0]]), torch.tensor([1.0, 3.0]))
        tensor([2.])
    """
    _check_rows(a, b)
    x, dependent = solve_by_qr(a, b)
    _check_independent(dependent)
    return x


def normal_equations(a: _Matrix, b: _Vector) -> _Solution:
    r"""Solves a least-squares problem by Cholesky factorization of the normal equations.

    $$A^\top A x = A^\top b, \qquad A^\top A = L L^\top$$

    Cheaper than QR for a tall $A$, but the condition number is squared: columns count as dependent at the square root
    of the precision. Columns are rescaled first.

    Args:
        a: Matrix $A$, with independent columns.
        b: Right side $b$.

    Returns:
        Solution $x$.

    Raises:
        ValueError: If the columns are dependent.

    Examples:
        >>> normal_equations(torch.tensor([[1.0], [1.0]]), torch.tensor([1.0, 3.0]))
        tensor([2.])
    """
    _check_rows(a, b)
    largest = a.detach().abs().amax(-2, keepdim=True)
    unit = torch.where(largest > 0, largest, 1.0)
    scaled = a / unit
    factor, info = torch.linalg.cholesky_ex(scaled.mT @ scaled)
    diagonal, row_sums = factor.diagonal(dim1=-2, dim2=-1), factor.abs().sum(-1)
    lost = diagonal <= (max(a.shape[-2:]) * torch.finfo(a.dtype).eps) ** 0.5 * row_sums
    _check_independent(((info > 0) | lost.any(-1)) & a.isfinite().all(-1).all(-1))
    return torch.cholesky_solve(scaled.mT @ b[..., None], factor)[..., 0] / unit[..., 0, :]


def ridge(a: _Matrix, b: _Vector, *, penalty: float | Float[Tensor, "*#batch"]) -> _Solution:
    r"""Solves a least-squares problem with an L2 penalty.

    $$\min_x \lVert A x - b \rVert_2^2 + \lambda \lVert x \rVert_2^2, \qquad
    \begin{pmatrix} A \\ \sqrt{\lambda} 1 \end{pmatrix} x \approx \begin{pmatrix} b \\ 0 \end{pmatrix}$$

    QR of the stacked system keeps the digits that $(A^\top A + \lambda 1)^{-1} A^\top b$ loses. $A$ may be wide or
    singular; as $\lambda \to 0$ the solution tends to $A^+ b$.

    Args:
        a: Matrix $A$.
        b: Right side $b$.
        penalty: Penalty $\lambda$, finite and greater than 0.

    Returns:
        Solution $x$.

    Raises:
        ValueError: If the penalty is not positive, or if $A$ is singular and $\sqrt\lambda$ is below its rounding.

    Examples:
        >>> ridge(torch.tensor([[1.0], [1.0]]), torch.tensor([1.0, 3.0]), penalty=2.0)
        tensor([1.])
    """
    _check_rows(a, b)
    weight = torch.as_tensor(penalty, dtype=a.dtype, device=a.device)
    if any_true(~((weight > 0) & weight.isfinite())):
        raise ValueError(f"penalty must be finite and greater than 0, got {penalty}")
    n = a.shape[-1]
    batch = torch.broadcast_shapes(a.shape[:-2], weight.shape)
    damping = weight.sqrt()[..., None, None] * torch.eye(n, dtype=a.dtype, device=a.device)
    stacked = torch.cat([a.expand(*batch, *a.shape[-2:]), damping.expand(*batch, n, n)], -2)
    x, dependent = solve_by_qr(stacked, torch.cat([b, b.new_zeros(*b.shape[:-1], n)], -1))
    if any_true(dependent):
        raise ValueError(
            f"penalty={penalty} is below the rounding error of a singular A: "
            "increase it, or use torch.linalg.pinv(A) @ b"
        )
    return x


def _check_rows(a: Tensor, b: Tensor) -> None:
    if check_matrix(a).shape[-2] != b.shape[-1]:
        shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"expected A of shape (*batch, m, n) and b of shape (*batch, m), got {shapes}")


def _check_independent(dependent: Tensor) -> None:
    if any_true(dependent):
        raise ValueError(
            "the columns of A must be independent, got a matrix that is singular to working precision: "
            "use torch.linalg.pinv(A) @ b for the solution of least norm, or ridge"
        )


def solve_by_qr(a: Float[Tensor, "*#batch m n"], b: Float[Tensor, "*#batch m"]) -> tuple[Tensor, Tensor]:
    """Solves least-squares problems by QR, and returns which matrices have dependent columns.

    Dependence is decided column by column, so that the units of the columns do not matter.

    Args:
        a: Matrices, at least as many rows as columns.
        b: Right sides.

    Returns:
        Solutions, and a boolean tensor that marks the matrices with dependent columns.
    """
    q, r = qr(a)
    x = torch.linalg.solve_triangular(r, q.mT @ b[..., None], upper=True)[..., 0]
    diagonal, column_sums = r.diagonal(dim1=-2, dim2=-1).abs(), r.abs().sum(-2)
    return x, (diagonal <= max(a.shape[-2:]) * torch.finfo(a.dtype).eps * column_sums).any(-1)


_QR = tuple[Float[Tensor, "*batch m n"], Float[Tensor, "*batch n n"]]


def qr(a: Float[Tensor, "*batch m n"]) -> _QR:
    r"""QR decomposition with a non-negative diagonal of $R$.

    $$A = Q R, \qquad Q^\top Q = 1, \quad R_{ij} = 0 \text{ for } i > j, \quad R_{ii} \ge 0$$

    `torch.linalg.qr` with this choice of signs, which makes the factors of a matrix with independent columns unique.
    The derivative requires independent columns.

    Args:
        a: Matrix $A$, at least as many rows as columns.

    Returns:
        $Q$ and $R$.

    Examples:
        >>> q, r = qr(torch.tensor([[-3.0, 0.0], [4.0, 5.0]]))
        >>> r
        tensor([[5., 4.],
                [0., 3.]])
    """
    return _positive_diagonal(*torch.linalg.qr(_check_tall(a)))


def modified_gram_schmidt(a: Float[Tensor, "*batch m n"]) -> _QR:
    r"""QR decomposition by the modified Gram-Schmidt process.

    $$R_{jj} = \lVert v_j \rVert, \quad q_j = v_j / R_{jj}, \quad R_{ji} = q_j^\top v_i, \quad
    v_i \leftarrow v_i - R_{ji} q_j \quad (i > j), \qquad v = A \text{ initially}$$

    Orthogonality of $Q$ is lost in proportion to the condition number of $A$. A dependent column gives NaN, or an
    arbitrary column if rounding left a remainder; `householder_qr` and `givens_qr` have neither problem.

    Reference:
        Björck, *Solving linear least squares problems by Gram-Schmidt orthogonalization*, 1967.

    Args:
        a: Matrix $A$, with independent columns.

    Returns:
        $Q$ and $R$.

    Examples:
        >>> q, r = modified_gram_schmidt(torch.tensor([[3.0, 1.0], [4.0, 0.0]]))
        >>> r
        tensor([[5.0000, 0.6000],
                [0.0000, 0.8000]])
    """
    remaining, columns, rows = _check_tall(a), [], []
    if not a.shape[-1]:
        return qr(a)
    for j in range(a.shape[-1]):
        q = _normalize(remaining[..., 0])
        row = torch.einsum("...m,...mn->...n", q, remaining)
        remaining = remaining[..., 1:] - q[..., None] * row[..., None, 1:]
        columns.append(q)
        rows.append(F.pad(row, (j, 0)))
    return torch.stack(columns, -1), torch.stack(rows, -2)


def householder_qr(a: Float[Tensor, "*batch m n"]) -> _QR:
    r"""QR decomposition by Householder reflections.

    $$H = 1 - \frac{v v^\top}{1 + |u_1|}, \quad u = \frac{x}{\lVert x \rVert}, \quad
    v = u + \operatorname{sign}(u_1) e_1, \qquad H x = -\operatorname{sign}(u_1) \lVert x \rVert e_1$$

    The sign avoids cancellation. Dependent columns are allowed: $R$ has a 0 on its diagonal and $Q$ stays orthonormal.

    Reference:
        Householder, *Unitary triangularization of a nonsymmetric matrix*, 1958.

    Args:
        a: Matrix $A$, at least as many rows as columns.

    Returns:
        $Q$ and $R$.

    Examples:
        >>> q, r = householder_qr(torch.tensor([[3.0, 5.0], [4.0, 0.0]]))
        >>> r
        tensor([[5., 3.],
                [0., 4.]])
    """
    return _eliminate(a, _reflect)


def givens_qr(a: Float[Tensor, "*batch m n"]) -> _QR:
    r"""QR decomposition by Givens rotations, each of which sets one entry to 0.

    $$\begin{pmatrix} c & s \\ -s & c \end{pmatrix} \begin{pmatrix} x \\ y \end{pmatrix}
    = \begin{pmatrix} \sqrt{x^2 + y^2} \\ 0 \end{pmatrix}, \qquad c = \frac{x}{\sqrt{x^2 + y^2}}, \quad
    s = \frac{y}{\sqrt{x^2 + y^2}}$$

    It takes $n (2m - n - 1) / 2$ rotations. Dependent columns are allowed.

    Reference:
        Givens, *Computation of plane unitary rotations transforming a general matrix to triangular form*, 1958.

    Args:
        a: Matrix $A$, at least as many rows as columns.

    Returns:
        $Q$ and $R$.

    Examples:
        >>> q, r = givens_qr(torch.tensor([[3.0, 0.0], [4.0, 5.0]]))
        >>> r
        tensor([[5., 4.],
                [0., 3.]])
    """
    return _eliminate(a, _rotate)


def _check_tall(a: Tensor) -> Tensor:
    m, n = check_matrix(a).shape[-2:]
    if m < n:
        raise ValueError(f"expected at least as many rows as columns, got a {m} x {n} matrix")
    return a


def _normalize(x: Tensor) -> Tensor:
    """Returns unit vectors; the largest entry is divided out first, so that squares neither over- nor underflow."""
    return F.normalize(x / x.detach().abs().amax(-1, keepdim=True), dim=-1, eps=0.0)


def _positive_diagonal(q: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """Flips columns of Q and rows of R where the diagonal of R is negative."""
    sign = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(r.dtype)
    return q * sign[..., None, :], r * sign[..., None]


def _eliminate(a: Tensor, clear: Callable[[Tensor, int], Tensor]) -> tuple[Tensor, Tensor]:
    """Eliminates [A 1] column by column below the diagonal, to [R Qᵀ].

    `clear(rows, j)` applies an orthogonal matrix to the rows, so that column j is 0 in all rows but the first.
    """
    m, n = _check_tall(a).shape[-2:]
    if not n:
        return qr(a)
    remaining = torch.cat([a, torch.eye(m).to(a).expand(*a.shape[:-1], m)], dim=-1)
    rows = []
    for j in range(n):
        remaining = clear(remaining, j)
        rows.append(remaining[..., 0, :])
        remaining = remaining[..., 1:, :]
    r, q = torch.stack(rows, -2).split([n, m], dim=-1)
    return _positive_diagonal(q.mT, r.triu())


def _reflect(rows: Tensor, j: int) -> Tensor:
    x = rows[..., j]
    first = torch.eye(1, x.shape[-1]).to(x)[0]
    u = _normalize(torch.where((x == 0).all(-1, keepdim=True), first, x))
    v = u + torch.where(u[..., :1] < 0, -first, first)
    scale = 1 + u[..., 0, None, None].abs()
    return rows - v[..., None] * torch.einsum("...m,...mn->...n", v, rows)[..., None, :] / scale


def _rotate(rows: Tensor, j: int) -> Tensor:
    first, *others = rows.unbind(-2)
    rotated = []
    for other in others:
        x, y = first[..., j, None], other[..., j, None]
        x = torch.where((x == 0) & (y == 0), torch.ones_like(x), x)
        c, s = x / torch.hypot(x, y), y / torch.hypot(x, y)
        first, other = c * first + s * other, c * other - s * first
        rotated.append(other)
    return torch.stack([first, *rotated], -2)


def gram_determinant(a: Float[Tensor, "*batch m n"]) -> Float[Tensor, "*batch"]:
    r"""Determinant of the Gram matrix: the squared volume spanned by the columns.

    $$\det A^\top A = (\det R)^2 = \prod_i R_{ii}^2, \qquad A = Q R$$

    $A^\top A$ is never formed: its condition number is the square of the condition number of $A$. At dependent columns
    the volume and its gradient are 0; second derivatives require independent columns.

    Args:
        a: Matrix $A$, at least as many rows as columns.

    Examples:
        >>> gram_determinant(torch.tensor([[3.0], [4.0]]))
        tensor(25.)
    """
    singular = (qr(a.detach())[1].diagonal(dim1=-2, dim2=-1) == 0).any(-1)
    identity = torch.eye(*a.shape[-2:], dtype=a.dtype, device=a.device)
    volume = qr(torch.where(singular[..., None, None], identity, a))[1].diagonal(dim1=-2, dim2=-1).prod(-1)
    return torch.where(singular, 0.0, volume.square())


def characteristic_polynomial(a: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch k"]:
    r"""Coefficients of the characteristic polynomial, from $\lambda^n$ to $\lambda^0$ (Faddeev-LeVerrier).

    $$\det(\lambda 1 - A) = \sum_{k=0}^n c_k \lambda^{n-k}, \qquad M_1 = 1, \quad c_k = -\tfrac{1}{k}
    \operatorname{tr} A M_k, \quad M_{k+1} = A M_k + c_k 1$$

    No eigenvalue is computed, so the gradient is finite at repeated eigenvalues. Coefficients cancel for large $n$: for
    eigenvalues use `torch.linalg.eigvals`.

    Reference:
        Faddeev and Sominsky, *Problems in Higher Algebra*, 1949.

    Args:
        a: Matrix $A$.

    Returns:
        $c_0 = 1, \dots, c_n$.

    Examples:
        >>> characteristic_polynomial(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
        tensor([ 1., -5.,  6.])
    """
    n = check_square(a).shape[-1]
    identity = torch.eye(n, dtype=a.dtype, device=a.device).expand_as(a)
    m, coefficients = identity, [a.new_ones(a.shape[:-2])]
    for k in range(1, n + 1):
        product = a @ m
        coefficients.append(-product.diagonal(dim1=-2, dim2=-1).sum(-1) / k)
        m = product + coefficients[-1][..., None, None] * identity
    return torch.stack(coefficients, -1)


def well_conditioned(x: Float[Tensor, "*batch m n"]) -> Float[Tensor, "*batch m n"]:
    """Maps any matrix to one of full rank, with singular values between 0.1 and 1.9: an input for laws of inverses.

    The result is a reflection plus a perturbation below its smallest singular value. The reflection has entries of both
    signs and a negative determinant.

    Args:
        x: Any matrix.

    Examples:
        >>> torch.linalg.matrix_rank(well_conditioned(torch.zeros(3, 2)))
        tensor(2)
    """
    m, n = x.shape[-2:]
    v = torch.arange(1, max(m, n) + 1).to(x)
    reflection = torch.eye(len(v)).to(x) - 2 * torch.outer(v, v) / v.square().sum()
    return reflection[:m, :n] + 0.9 * x / (1 + torch.linalg.matrix_norm(x, keepdim=True))


def claims() -> Iterator[Claim]:
    """Laws of norms, projections, least squares and QR."""
    vector, pair = shape("b 4"), (shape("b 4"), shape("b 4"))
    rotated = invariance(sample=lambda draw: torch.linalg.qr(draw.normal(4, 4)).Q, act=lambda q, x: x @ q)
    for law in (homogeneity(), convexity(), finiteness(), rotated):
        yield Claim(law, norm, vector)
    for p in (1, 2, math.inf):
        yield Claim(metric(), partial(distance, p=p), pair, f"distance(p={p})")
    for law in (scale_invariance(input=0), triangle_inequality(), finiteness()):
        yield Claim(law, angle, pair)
    for law in (idempotence(input=0), linearity(input=0)):
        yield Claim(law, project, pair)
        yield Claim(law, project_onto_columns, (vector, shape("b 4 k:1..3")))
    tall = transformed(well_conditioned, "b 4 3")
    for solve in (least_squares, normal_equations, partial(ridge, penalty=0.5)):
        name = getattr(solve, "__name__", "ridge(penalty=0.5)")
        yield Claim(linearity(input=1), solve, (tall, vector), name)
        yield Claim(gradient(), solve, (tall, vector), name)
    for decompose in (qr, modified_gram_schmidt, householder_qr, givens_qr):
        yield Claim(orthonormality(), decompose, tall)
        yield Claim(gradient(), decompose, tall)
    similar = invariance(
        sample=lambda draw: well_conditioned(draw.normal(3, 3)), act=lambda s, a: s @ a @ torch.linalg.inv(s)
    )
    yield Claim(similar, characteristic_polynomial, transformed(well_conditioned, "b 3 3"))
