"""QR: orthonormal columns times an upper triangular matrix, by three constructions and by PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.checks import matrix
from lawful.functions.decompositions.examples import well_conditioned
from lawful.laws import Claim, Map, Same, Statement, agreement, gradient, law, made, shape

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


@law("Q R = A; QᵀQ = 1; R_ij = 0 for i > j; R_ii ≥ 0", tries=None)
def orthogonal_triangular(f: Map, a: Tensor) -> Statement:
    """The factors multiply to the matrix, Q has orthonormal columns, and R is triangular, its diagonal not negative."""
    q, r = f.whole(a)
    one = torch.eye(r.shape[-1]).to(r).expand_as(r)
    diagonal = r.diagonal(dim1=-2, dim2=-1)
    return Same(
        (q @ r, q.mT @ q, r.triu(), diagonal.abs()),
        (a, one, r, diagonal),
        exercised=True,
        names=("Q R", "QᵀQ", "R above its diagonal", "|R_ii|"),
    )


def claims() -> Iterator[Claim]:
    """The laws that the four obey."""
    tall = made(well_conditioned, "b 4 3")
    yield Claim(orthogonal_triangular(), qr, shape("b 3 3"))
    yield Claim(gradient().on_output(1), qr, tall)
    for construction in (modified_gram_schmidt, householder_qr, givens_qr):
        any_rank = construction is not modified_gram_schmidt
        yield Claim(orthogonal_triangular(), construction, shape("b 4 3") if any_rank else tall)
        yield Claim(agreement(other=qr), construction, made(well_conditioned, "b 3 3"))
        yield Claim(gradient(), construction, tall)
