r"""Linear algebra: determinants, factorizations, solvers, norms.

| function | equations |
|---|---|
| `det` | $\det AB = \det A \det B$, $\; \det S A S^{-1} = \det A^\top = \det A$ |
| its gradient | $\nabla \det A = \det A \cdot A^{-\top}$ |
| `slogdet` | $\det A = s\, e^{\ell}$, $\; \nabla \ell = A^{-\top}$ |
| `qr` | $QR = A$, $\; Q^\top Q = 1$, $R$ upper triangular |
| `svd` | $U \Sigma V^\top = A$, $\; U^\top U = V^\top V = 1$, $\; \sigma_1 \ge \dots \ge \sigma_k \ge 0$ |
| `eigh` | $A V = V \Lambda$, $\; V^\top V = 1$, $\; \lambda_1 \le \dots \le \lambda_n$ |
| `eig` | $A V = V \Lambda$, $\; \lVert v_i \rVert = 1$, $\; \sum_i \lambda_i^k = \operatorname{tr} A^k$ |
| `cholesky` | $L L^\top = A$, $L$ lower triangular |
| `lu` | $P L U = A$, $L$ unit lower triangular with $\lvert L_{ij} \rvert \le 1$ |
| `solve`, `inv` | $A x = b$, $\; A A^{-1} = 1$ |
| `lstsq` | $A^\top A x = A^\top b$ |
| `pinv` | $A A^+ A = A$, $\; A^+ A A^+ = A^+$, $A A^+$ and $A^+ A$ symmetric |
| `matrix_exp` | $e^{-A} = (e^A)^{-1}$, $\; \det e^A = e^{\operatorname{tr} A}$, orthogonal for skew $A$ |
| `vector_norm`, `matrix_norm` | $\lVert a x \rVert = \lvert a \rvert \lVert x \rVert$, the triangle inequality |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch import linalg as la

from lawful.functions.linalg import well_conditioned
from lawful.laws import (
    Claim,
    Draw,
    action,
    agreement,
    associativity,
    boundedness,
    cauchy_schwarz,
    commutativity,
    convexity,
    derivative,
    distributivity,
    finiteness,
    gradient,
    homogeneity,
    homomorphism,
    invariance,
    invertibility,
    involution,
    linearity,
    lipschitz,
    metric,
    non_negativity,
    orthonormality,
    positive_semidefiniteness,
    second_order_gradient,
    shape,
    symmetry,
    transformed,
)
from lawful.pytorch._rows import Row, claims_from


def claims() -> Iterator[Claim]:
    """Laws of torch.linalg."""
    rows = *_determinants(), *_factorizations(), *_eigenvalues(), *_solvers(), *_norms(), *_products()
    yield from claims_from(rows)


def _symmetric(x: Tensor) -> Tensor:
    return x + x.mT


def _positive_definite(x: Tensor) -> Tensor:
    return x @ x.mT + (1 + x.square().sum((-1, -2), keepdim=True)) * torch.eye(x.shape[-1]).to(x)


def _spread(x: Tensor) -> Tensor:
    """Maps any matrix to a symmetric one with eigenvalues far apart."""
    n = x.shape[-1]
    return torch.diag(3 * torch.arange(1, n + 1).to(x)) + _symmetric(x).tanh() / n


def _small(x: Tensor) -> Tensor:
    return x.tanh() / 2


def _identity(a: Tensor) -> Tensor:
    return a


def _one(a: Tensor) -> Tensor:
    return torch.eye(a.shape[-1]).to(a).expand_as(a)


_SQUARE, _TALL, _WIDE = (transformed(well_conditioned, f"b {size}") for size in ("3 3", "4 3", "2 3"))
_SAME = agreement(other=_identity)


def _rotation(draw: Draw) -> Tensor:
    return la.qr(draw.normal(4, 4)).Q


_ROTATED = invariance(sample=_rotation, act=lambda q, x: x @ q)


def _determinants() -> Iterator[Row]:
    similar = invariance(sample=lambda draw: well_conditioned(draw.normal(3, 3)), act=lambda s, a: s @ a @ la.inv(s))
    jacobi = derivative(formula=lambda a: la.det(a)[..., None, None] * la.inv(a).mT)
    laws = (
        homomorphism(operation=torch.matmul, into=torch.mul),
        similar,
        agreement(other=lambda a: la.det(a.mT)),
        agreement(other=lambda a: 1 / la.det(la.inv(a))),
        agreement(other=lambda a: (a[..., 0] * la.cross(a[..., 1], a[..., 2])).sum(-1)),
        jacobi,
    )
    yield "torch.linalg.det", la.det, _SQUARE, laws
    slope = derivative(formula=lambda a: la.inv(a).mT)
    yield "torch.linalg.slogdet, logabsdet", lambda a: la.slogdet(a).logabsdet, _SQUARE, (slope, similar)
    signed = agreement(other=la.det)
    yield "sign · exp(logabsdet)", lambda a: torch.mul(la.slogdet(a)[0], la.slogdet(a)[1].exp()), _SQUARE, (signed,)
    yield "torch.trace", torch.trace, shape("3 3"), (linearity(), agreement(other=lambda a: la.eigvals(a).sum().real))


def _factorizations() -> Iterator[Row]:
    def qr(a: Tensor) -> Tensor:
        q, r = la.qr(a)
        return q @ r

    def svd(a: Tensor) -> Tensor:
        u, s, vh = la.svd(a, full_matrices=False)
        return u * s[..., None, :] @ vh

    def cube(a: Tensor) -> Tensor:
        u, s, vh = la.svd(a, full_matrices=False)
        return u * s[..., None, :] ** 3 @ vh

    def cholesky(a: Tensor) -> Tensor:
        factor = la.cholesky(a)
        return factor @ factor.mT

    def lu(a: Tensor) -> Tensor:
        p, lower, upper = la.lu(a)
        return p @ lower @ upper

    yield "Q R of torch.linalg.qr", qr, shape("b 4 3"), (_SAME,)
    yield "torch.linalg.qr", la.qr, shape("b 4 3"), (orthonormality(),)
    yield "torch.linalg.qr", la.qr, _TALL, (gradient(), gradient(output=1))
    yield "R of torch.linalg.qr", lambda a: la.qr(a).R, shape("b 4 3"), (agreement(other=lambda a: la.qr(a).R.triu()),)
    yield "U Σ Vᵀ of torch.linalg.svd", svd, shape("b 4 3"), (_SAME,)
    yield "U of torch.linalg.svd", lambda a: la.svd(a, full_matrices=False).U, shape("b 4 3"), (orthonormality(),)
    yield "V of torch.linalg.svd", lambda a: la.svd(a, full_matrices=False).Vh.mT, shape("b 4 3"), (orthonormality(),)
    descending = agreement(other=lambda a: la.svdvals(a).sort(descending=True).values)
    singular = non_negativity(), descending, homogeneity(), lipschitz()
    yield "torch.linalg.svdvals", la.svdvals, shape("b 4 3"), singular
    fourth = derivative(formula=lambda a: 4 * a @ a.mT @ a)
    yield "Σ σ⁴ of torch.linalg.svdvals", lambda a: la.svdvals(a).pow(4).sum(-1), shape("b 2 3"), (fourth,)
    third_power = agreement(other=lambda a: a @ a.mT @ a)
    yield "U Σ³ Vᵀ of torch.linalg.svd", cube, transformed(_spread, "3 3"), (gradient(), third_power)
    definite = transformed(_positive_definite, "b 3 3")
    yield "L Lᵀ of torch.linalg.cholesky", cholesky, definite, (_SAME,)
    yield "torch.linalg.cholesky", la.cholesky, definite, (agreement(other=lambda a: la.cholesky(a).tril()),)
    yield "torch.linalg.cholesky", lambda x: la.cholesky(_positive_definite(x)), shape("b 3 3"), (gradient(),)
    yield "P L U of torch.linalg.lu", lu, shape("b 4 3"), (_SAME,)
    yield "L of torch.linalg.lu", lambda a: la.lu(a).L, shape("b 4 3"), (boundedness(low=-1.0, high=1.0),)


def _eigenvalues() -> Iterator[Row]:
    def power_sums(a: Tensor) -> Tensor:
        values = la.eigvals(a)
        return torch.stack([values.pow(k).sum(-1).real for k in (1, 2, 3)], -1)

    def traces(a: Tensor) -> Tensor:
        return torch.stack([la.matrix_power(a, k).diagonal(0, -2, -1).sum(-1) for k in (1, 2, 3)], -1)

    def residual(a: Tensor) -> Tensor:
        values, vectors = la.eig(a)
        return torch.view_as_real(vectors * values[..., None, :])

    def image(a: Tensor) -> Tensor:
        return torch.view_as_real(a.to(la.eig(a).eigenvectors.dtype) @ la.eig(a).eigenvectors)

    def rebuilt(a: Tensor) -> Tensor:
        values, vectors = la.eigh(a)
        return vectors * values[..., None, :] @ vectors.mT

    symmetric, vectors = transformed(_symmetric, "b 3 3"), lambda a: la.eigh(a).eigenvectors
    yield "V Λ Vᵀ of torch.linalg.eigh", rebuilt, symmetric, (_SAME,)
    yield "V of torch.linalg.eigh", vectors, symmetric, (orthonormality(),)
    ascending = agreement(other=lambda a: la.eigvalsh(a).sort().values)
    yield "torch.linalg.eigvalsh", la.eigvalsh, symmetric, (ascending, homogeneity())
    yield "torch.linalg.eigvalsh", lambda x: la.eigvalsh(_spread(x)), shape("3 3"), (gradient(),)
    yield "Σ λᵏ of torch.linalg.eigvals", power_sums, _SQUARE, (agreement(other=traces),)
    yield "V Λ of torch.linalg.eig", residual, _SQUARE, (agreement(other=image),)


def _solvers() -> Iterator[Row]:
    def multiply_solution(a: Tensor, b: Tensor) -> Tensor:
        return a @ la.solve(a, b)

    def solution(a: Tensor, b: Tensor) -> Tensor:
        return la.lstsq(a, b).solution

    def rank_one(x: Tensor) -> Tensor:
        return x[..., :4, None].tanh() * x[..., None, 4:].tanh()

    square, tall = (_SQUARE, shape("b 3 2")), (_TALL, shape("b 4 2"))
    yield "A torch.linalg.solve(A, b)", multiply_solution, square, (agreement(other=lambda a, b: b),)
    yield "torch.linalg.solve", la.solve, square, (linearity(input=1), gradient())
    yield "torch.linalg.inv", la.inv, _SQUARE, (involution(), derivative(formula=_inverse_slope), gradient())
    normal = agreement(other=lambda a, b: a.mT @ b)
    yield "Aᵀ A torch.linalg.lstsq(A, b)", lambda a, b: a.mT @ a @ solution(a, b), tall, (normal,)
    pseudo = agreement(other=lambda a, b: la.pinv(a) @ b)
    yield "torch.linalg.lstsq", solution, tall, (pseudo, linearity(input=1), gradient())
    low_rank = transformed(rank_one, "b 7")
    for name, inputs in (("torch.linalg.pinv", _WIDE), ("torch.linalg.pinv of rank 1", low_rank)):
        pinv = partial(la.pinv, rtol=1e-5)
        yield f"{name}: A A⁺ A", lambda a, pinv=pinv: a @ pinv(a) @ a, inputs, (_SAME,)
        yield f"{name}: A⁺ A A⁺", lambda a, pinv=pinv: pinv(a) @ a @ pinv(a), inputs, (agreement(other=pinv),)
        yield f"{name}: A A⁺", lambda a, pinv=pinv: a @ pinv(a), inputs, (symmetry(),)
        yield f"{name}: A⁺ A", lambda a, pinv=pinv: pinv(a) @ a, inputs, (symmetry(),)
    yield "torch.linalg.pinv", la.pinv, _TALL, (gradient(),)
    exp, small = la.matrix_exp, transformed(_small, "b 3 3")
    yield "torch.linalg.matrix_exp", exp, small, (agreement(other=lambda a: la.inv(exp(-a))), gradient())
    trace = agreement(other=lambda a: a.diagonal(0, -2, -1).sum(-1).exp())
    yield "det of torch.linalg.matrix_exp", lambda a: la.det(exp(a)), small, (trace,)
    yield "torch.linalg.matrix_exp of a skew matrix", lambda a: exp(a - a.mT), small, (orthonormality(),)


def _inverse_slope(a: Tensor) -> Tensor:
    """Gradient of the sum of the entries of the inverse: -A⁻ᵀ 1 1ᵀ A⁻ᵀ."""
    inverse = la.inv(a).mT
    return -inverse @ torch.ones_like(a) @ inverse


def _norms() -> Iterator[Row]:
    for order in (1, 1.5, 2, 3, math.inf):
        norm, name = partial(la.vector_norm, ord=order, dim=-1), f"torch.linalg.vector_norm(ord={order})"

        def equation(x: Tensor, order: float = order) -> Tensor:
            return x.abs().amax(-1) if order == math.inf else x.abs().pow(order).sum(-1).pow(1 / order)

        yield name, norm, shape("b n"), (agreement(other=equation), homogeneity(), convexity(), non_negativity())
        if order in (1, 2, math.inf):
            pair = (shape("b 4"), shape("b 4"))
            yield f"{name} of x - y", lambda x, y, norm=norm: norm(x - y), pair, (metric(),)
    euclidean = partial(la.vector_norm, dim=-1)
    laws = _ROTATED, lipschitz(), finiteness(), second_order_gradient()
    yield "torch.linalg.vector_norm", euclidean, shape("b 4"), laws
    trace = agreement(other=lambda a: (a.mT @ a).diagonal(0, -2, -1).sum(-1).sqrt())
    yield "torch.linalg.matrix_norm('fro')", la.matrix_norm, shape("b 3 4"), (trace, convexity(), _ROTATED)
    for order, name in ((2, "largest"), ("nuc", "sum")):
        reduce = torch.amax if order == 2 else torch.sum
        values = agreement(other=lambda a, reduce=reduce: reduce(la.svdvals(a), dim=-1))
        matrix_norm = partial(la.matrix_norm, ord=order)
        yield (
            f"torch.linalg.matrix_norm({order!r}), {name} singular value",
            matrix_norm,
            shape("b 3 4"),
            (values, _ROTATED),
        )


def _products() -> Iterator[Row]:
    square, pair = (shape("3 3"), shape("3 3")), (shape("b 4"), shape("b 4"))
    yield "torch.matmul", torch.matmul, square, (associativity(), distributivity(), linearity(input=0))
    yield "torch.matmul", torch.matmul, (shape("b m n"), shape("b n p")), (agreement(other=_sum_of_outer_products),)
    yield "torch.matmul", torch.matmul, (shape("b 4 5"), shape("b 5 3")), (agreement(other=_block_product),)
    yield "torch.matmul of a matrix and a vector", torch.mv, (shape("3 3"), shape("3")), (action(),)
    yield "torch.linalg.vecdot", la.vecdot, pair, (commutativity(), cauchy_schwarz(), linearity(input=0))
    yield "x xᵀ", lambda x: x @ x.mT, shape("b n 4"), (symmetry(), positive_semidefiniteness(), _ROTATED)
    yield "Aᵀ", lambda a: a.mT, shape("b n n"), (involution(), invertibility(inverse=lambda a: a.mT), linearity())
    yield from _tensor_products()


def _sum_of_outer_products(a: Tensor, b: Tensor) -> Tensor:
    """Returns the sum of the outer products of the columns of A with the rows of B."""
    return (a.mT.unsqueeze(-1) * b.unsqueeze(-2)).sum(-3)


def _block_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiplies block matrices: (AB)_rt is the sum over s of A_rs B_st."""
    rows, columns = [block.split([3, 2], -1) for block in a.split([1, 3], -2)], b.split([2, 1], -1)
    blocks = [[left @ t[..., :3, :] + right @ t[..., 3:, :] for t in columns] for left, right in rows]
    return torch.cat([torch.cat(row, -1) for row in blocks], -2)


def _tensor_products() -> Iterator[Row]:
    def product(s: Tensor, t: Tensor) -> Tensor:
        return torch.tensordot(s, t, dims=0)

    def left(s: Tensor, t: Tensor, u: Tensor) -> Tensor:
        return product(product(s, t), u)

    def right(s: Tensor, t: Tensor, u: Tensor) -> Tensor:
        return product(s, product(t, u))

    tensors, name = (shape("2 3"), shape("3 2")), "torch.tensordot(dims=0)"
    swapped = agreement(other=lambda s, t: product(t, s).permute(2, 3, 0, 1))
    yield name, product, tensors, (linearity(input=0), linearity(input=1), swapped)
    yield f"{name}, associativity", left, (*tensors, shape("2")), (agreement(other=right),)
    patterns = (
        ("ij,j->i", torch.mv, (shape("3 n"), shape("n"))),
        ("ik,kj->ij", torch.matmul, (shape("m k"), shape("k n"))),
        ("ik,jk->ij", lambda a, b: a @ b.mT, (shape("m k"), shape("n k"))),
        ("ikl,klj->ij", partial(torch.tensordot, dims=2), (shape("2 k l"), shape("k l 3"))),
        ("bii->b", lambda a: a.diagonal(0, -2, -1).sum(-1), (shape("b 3 3"),)),
        ("ij->ji", lambda a: a.mT, (shape("m n"),)),
    )
    for pattern, other, inputs in patterns:
        yield f"torch.einsum({pattern!r})", partial(torch.einsum, pattern), inputs, (agreement(other=other),)
