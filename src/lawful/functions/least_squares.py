"""Least squares: the x that brings Ax closest to b, by QR, by the normal equations, and with a penalty."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.checks import matrix, seen
from lawful.functions.decompositions.examples import well_conditioned
from lawful.functions.decompositions.qr import qr
from lawful.functions.decompositions.svd import pseudo_inverse
from lawful.laws import Claim, Map, Same, Statement, agreement, gradient, law, made, shape

Matrix = Float[Tensor, "*#batch m n"]
Vector = Float[Tensor, "*#batch m"]
Solution = Float[Tensor, "*#out n"]


def _rows(a: Tensor, b: Tensor) -> None:
    if matrix(a).shape[-2] != b.shape[-1]:
        raise ValueError(f"A is to have a row for each entry of b: got {tuple(a.shape)} and {tuple(b.shape)}")


def _independent(dependent: Tensor) -> None:
    if seen(dependent):
        raise ValueError(
            "the columns of A are to be independent: got a matrix that is singular to working precision"
            " (pseudo_inverse(A) @ b is the shortest of its many solutions, ridge one with a penalty)"
        )


def solve_by_qr(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Solves for the closest vector, and says of which matrices a column is nothing beside what others make of it.

    That is judged column by column, so that units make no difference.
    """
    q, r = qr(a)
    x = torch.linalg.solve_triangular(r, q.mT @ b[..., None], upper=True)[..., 0]
    rest, whole = r.diagonal(dim1=-2, dim2=-1).abs(), r.abs().sum(-2)
    return x, (rest <= max(a.shape[-2:]) * torch.finfo(a.dtype).eps * whole).any(-1)


def least_squares(a: Matrix, b: Vector) -> Solution:
    r"""Finds the vector that brings $A x$ closest to $b$, by QR.

    $$\min_x \lVert A x - b \rVert_2, \qquad R x = Q^\top b, \quad A = Q R$$

    At the solution the residual is at right angles to all columns: $A^\top (A x - b) = 0$. Batches broadcast, so that
    one matrix serves many right sides. Dependent columns are refused, whatever their units; NaN passes through.

    Args:
        a: The matrix $A$, at least as many rows as columns.
        b: The right side $b$.

    Returns:
        $x$.

    Examples:
        >>> least_squares(torch.tensor([[1.0], [1.0]]), torch.tensor([1.0, 3.0]))
        tensor([2.])
    """
    _rows(a, b)
    x, dependent = solve_by_qr(a, b)
    _independent(dependent)
    return x


def normal_equations(a: Matrix, b: Vector) -> Solution:
    r"""Finds the vector that brings $A x$ closest to $b$, from the equations that say so.

    $$A^\top A x = A^\top b, \qquad A^\top A = L L^\top$$

    Fewer operations than QR where $A$ is tall, but the condition number is squared: half of the digits go sooner, and
    columns count as dependent at the square root of the precision. Columns are brought to a common size first.

    Args:
        a: The matrix $A$, with independent columns.
        b: The right side $b$.

    Returns:
        $x$.

    Examples:
        >>> normal_equations(torch.tensor([[1.0], [1.0]]), torch.tensor([1.0, 3.0]))
        tensor([2.])
    """
    _rows(a, b)
    top = a.detach().abs().amax(-2, keepdim=True)
    unit = torch.where(top > 0, top, 1.0)
    scaled = a / unit
    factor, failed = torch.linalg.cholesky_ex(scaled.mT @ scaled)
    rest, whole = factor.diagonal(dim1=-2, dim2=-1), factor.abs().sum(-1)
    lost = rest <= (max(a.shape[-2:]) * torch.finfo(a.dtype).eps) ** 0.5 * whole
    _independent(((failed > 0) | lost.any(-1)) & a.isfinite().all(-1).all(-1))
    return torch.cholesky_solve(scaled.mT @ b[..., None], factor)[..., 0] / unit[..., 0, :]


def ridge(a: Matrix, b: Vector, *, penalty: float | Float[Tensor, "*#batch"]) -> Solution:
    r"""Finds the vector that brings $A x$ close to $b$ and stays short itself.

    $$\min_x \lVert A x - b \rVert_2^2 + \lambda \lVert x \rVert_2^2, \qquad
    \begin{pmatrix} A \\ \sqrt{\lambda} 1 \end{pmatrix} x \approx \begin{pmatrix} b \\ 0 \end{pmatrix}$$

    Solved as the larger system, by QR, which keeps the digits that $(A^\top A + \lambda 1)^{-1} A^\top b$ loses. Any
    $A$ will do, wide or singular; as $\lambda \to 0$ the solution tends to $A^+ b$. Where $A$ is singular and
    $\sqrt\lambda$ is lost in the rounding of $A$, the penalty is refused.

    Args:
        a: The matrix $A$.
        b: The right side $b$.
        penalty: $\lambda$, above 0.

    Returns:
        $x$.

    Examples:
        >>> ridge(torch.tensor([[1.0], [1.0]]), torch.tensor([1.0, 3.0]), penalty=2.0)
        tensor([1.])
    """
    _rows(a, b)
    weight = torch.as_tensor(penalty, dtype=a.dtype, device=a.device)
    if seen(~((weight > 0) & weight.isfinite())):
        raise ValueError(f"penalty is to be finite and above 0: got {penalty}")
    n = a.shape[-1]
    batch = torch.broadcast_shapes(a.shape[:-2], weight.shape)
    damped = weight.sqrt()[..., None, None] * torch.eye(n, dtype=a.dtype, device=a.device)
    larger = torch.cat([a.expand(*batch, *a.shape[-2:]), damped.expand(*batch, n, n)], -2)
    x, dependent = solve_by_qr(larger, torch.cat([b, b.new_zeros(*b.shape[:-1], n)], -1))
    if seen(dependent):
        raise ValueError(
            f"the root of the penalty is to be more than the rounding of a singular A: got penalty={penalty}"
            " (pseudo_inverse(A) @ b is the limit of small ones)"
        )
    return x


@law("Aᵀ A x = Aᵀ b", every_input=True, tries=None)
def residual_at_right_angles(f: Map, a: Tensor, b: Tensor) -> Statement:
    """What is left of b is at right angles to the columns of A: no other x comes closer."""
    return Same(a.mT @ (a @ f(a, b)[..., None]), a.mT @ b[..., None], exercised=True)


def claims() -> Iterator[Claim]:
    """The laws that least squares obey."""
    tall, wide = made(well_conditioned, "b 4 3"), made(well_conditioned, "b 2 3")

    def pseudo_inverse_solution(a: Tensor, b: Tensor) -> Tensor:
        return (pseudo_inverse(a) @ b[..., None])[..., 0]

    def closed_form(a: Tensor, b: Tensor) -> Tensor:
        gram = a.mT @ a + 0.5 * torch.eye(a.shape[-1]).to(a)
        return torch.linalg.solve(gram, a.mT @ b[..., None])[..., 0]

    def half(a: Tensor, b: Tensor) -> Tensor:
        return ridge(a, b, penalty=0.5)

    def little(a: Tensor, b: Tensor) -> Tensor:
        return ridge(a, b, penalty=1e-8)

    for solve in (least_squares, normal_equations):
        yield Claim(residual_at_right_angles(), solve, (tall, shape("b 4")))
        yield Claim(agreement(other=pseudo_inverse_solution), solve, (tall, shape("b 4")))
        yield Claim(gradient(), solve, (tall, shape("b 4")))
    for solve in (least_squares, normal_equations):

        def in_units(a: Tensor, b: Tensor, solve: Callable[..., Tensor] = solve) -> Tensor:
            units = a.new_tensor([1e-6, 1.0, 1e6])
            return solve(a * units, b) * units

        def refused(a: Tensor, b: Tensor, solve: Callable[..., Tensor] = solve) -> Tensor:
            try:
                return 0 * solve(torch.cat([a[..., :1], 3 * a[..., :1]], -1), b).sum()
            except ValueError:
                return b.new_ones(())

        name = solve.__name__
        yield Claim(agreement(other=solve), in_units, (tall, shape("b 4")), name=f"{name}, in other units")
        yield Claim(agreement(other=lambda a, b: b.new_ones(())), refused, (tall, shape("b 4")), f"{name}, dependent")
    yield Claim(agreement(other=closed_form), half, (wide, shape("b 2")), name="ridge(penalty=0.5)")
    limit = agreement(other=pseudo_inverse_solution, within=1e-4)
    yield Claim(limit, little, (wide, shape("b 2")), name="ridge(penalty=1e-8)")
