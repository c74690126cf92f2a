"""Norms and distances: how long, and how far apart.

The dot product, and the angle that it measures.
Projections: the closest point on a line, and in a subspace.
Two more ways to multiply matrices, and the matrix of all dot products.
Least squares: the x that brings Ax closest to b, by QR, by the normal equations, and with a penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions._validation import any_true, matrix
from lawful.laws import (
    AtMost,
    Claim,
    Draw,
    Equal,
    Map,
    Statement,
    agreement,
    associativity,
    boundedness,
    cauchy_schwarz,
    commutativity,
    convexity,
    derivative,
    finiteness,
    gradient,
    homogeneity,
    idempotence,
    invariance,
    law,
    linearity,
    metric,
    scale_invariance,
    second_order_gradient,
    shape,
    symmetry,
    transformed,
    triangle_inequality,
)


def norm(x: Float[Tensor, "*shape"], *, p: float | int = 2, axis: int = -1) -> Float[Tensor, "*rest"]:
    r"""Measures the length of vectors.

    $$\lVert x \rVert_p = \Big( \sum_i |x_i|^p \Big)^{1/p}, \qquad \lVert x \rVert_\infty = \max_i |x_i|$$

    For $p < 1$ the triangle inequality fails, and $p$ is refused. Where there is no derivative (at $x = 0$, and for
    $p < 2$ where an entry is 0) the first and the second are taken to be 0 there, so that no NaN reaches a gradient
    or a penalty on it.

    The powers are formed as they stand: $|x_i|^p$ and their sum are to be neither too large nor too small for a
    number, which in float32 and for $p = 2$ are lengths from $10^{-19}$ to $10^{19}$. Beyond, divide by the largest
    entry first.

    Args:
        x: The vectors $x$.
        p: The exponent $p$, at least 1; `math.inf` for the largest entry.
        axis: The axis that $i$ runs over.

    Examples:
        >>> norm(torch.tensor([3.0, -4.0]))
        tensor(5.)
        >>> norm(torch.tensor([3.0, -4.0]), p=1)
        tensor(7.)
    """
    if not p >= 1:
        raise ValueError(f"p is at least 1: got {p}")
    if p == 1 or p >= 3:
        return torch.linalg.vector_norm(x, p, axis)
    total = torch.linalg.vecdot(x, x, dim=axis) if p == 2 else _power(x, p).sum(axis)
    zero = total == 0
    return total.masked_fill(zero, 1.0).pow(1 / p).masked_fill(zero, 0.0)


def of_size_one(x: Tensor) -> Tensor:
    """Divides vectors by their largest entry, so that squares neither over- nor underflow.

    To the gradient the divisor is a constant: what is said of the result is to depend on the direction alone.
    """
    if not x.shape[-1]:
        return x
    size = x.detach().abs().amax(-1, keepdim=True)
    return x / size.masked_fill((size == 0) | size.isinf(), 1.0)


def _power(x: Tensor, p: float) -> Tensor:
    """Returns |x|^p, with derivatives that are 0 at 0."""
    zero = x == 0
    return x.masked_fill(zero, 1.0).abs().pow(p).masked_fill(zero, 0.0)


def distance(
    x: Float[Tensor, "*#shape"],
    y: Float[Tensor, "*#shape"],
    *,
    p: float | int = 2,
    axis: int = -1,
) -> Float[Tensor, "*rest"]:
    r"""Measures how far apart vectors are.

    $$d_p(x, y) = \lVert x - y \rVert_p$$

    Args:
        x: The vectors $x$.
        y: The vectors $y$.
        p: The exponent $p$, at least 1; `math.inf` for the largest difference.
        axis: The axis of the vectors.

    Examples:
        >>> distance(torch.tensor([1.0, 1.0]), torch.tensor([4.0, 5.0]))
        tensor(5.)
    """
    check_vectors(x, y, axis=axis)
    return norm(x - y, p=p, axis=axis)


def check_vectors(x: Tensor, y: Tensor, *, axis: int = -1) -> None:
    """Refuses vectors of different sizes, along the axis of both: one entry is not spread over many."""
    axis = axis if axis < 0 else axis - max(x.dim(), y.dim())
    sizes = [t.shape[axis] if t.dim() >= -axis else 1 for t in (x, y)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"vectors of one size were wanted: got shapes {tuple(x.shape)} and {tuple(y.shape)}")


def frobenius(x: Float[Tensor, "*batch m n"]) -> Float[Tensor, "*batch"]:
    r"""Measures the length of a matrix, as if it were one long vector.

    $$\lVert X \rVert_F = \sqrt{\sum_{ij} x_{ij}^2} = \sqrt{\operatorname{tr} X^\mathsf{T} X}$$

    Args:
        x: The matrices $X$.

    Examples:
        >>> frobenius(torch.ones(2, 2))
        tensor(2.)
    """
    return norm(x.flatten(-2))


def _direction(x: Tensor, p: float | int) -> Tensor:
    """The derivative of the norm as books have it, for 1 < p < ∞; 0 at 0."""
    power = (x.abs() / x.abs().pow(p).sum(-1, keepdim=True).pow(1 / p)).pow(p - 1)
    return (x.sign() * power).nan_to_num(0.0)


def _norms_claims() -> Iterator[Claim]:
    """The laws that norms and distances obey."""
    for p in (1, 1.5, 2, 3, math.inf):

        def equation(x: Tensor, p: float = p) -> Tensor:
            return x.abs().amax(-1) if p == math.inf else x.abs().pow(p).sum(-1).pow(1 / p)

        of, name = partial(norm, p=p), f"norm({p=})"
        yield Claim(agreement(other=equation), of, shape("b n"), name)
        if 1 < p <= 2:
            yield Claim(finiteness(), of, shape("b 4"), name)
            yield Claim(derivative(formula=partial(_direction, p=p)), of, shape("b 4"), name)
        if p in (1, 2, math.inf):
            yield Claim(metric(), partial(distance, p=p), (shape("b 4"), shape("b 4")), f"distance({p=})")

    def along(x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([distance(x, y, p=p, axis=-2) for p in (1.5, 2, 3)])

    def written_out(x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([(x - y).abs().pow(p).sum(-2).pow(1 / p) for p in (1.5, 2, 3)])

    yield Claim(agreement(other=written_out), along, (shape("b 3 2"), shape("b 3 2")), "distance(axis=-2)")
    away = transformed(lambda x: torch.where(x < 0, x - 0.5, x + 0.5), "b 4")
    largest = agreement(other=lambda x: torch.cat([x / x.abs().amax(-1, keepdim=True), torch.zeros_like(x)]))
    yield Claim(largest, lambda x: of_size_one(torch.cat([x, 0 * x])), away, "of_size_one")
    turned = invariance(sample=lambda draw: torch.linalg.qr(draw.normal(4, 4)).Q, act=lambda q, x: x @ q)
    for law in (homogeneity(), convexity(), second_order_gradient(), turned):
        yield Claim(law, norm, shape("b 4"))
    yield Claim(second_order_gradient(), partial(norm, p=1.5), away, "norm(p=1.5)")
    trace = agreement(other=lambda x: (x.mT @ x).diagonal(0, -2, -1).sum(-1).sqrt())
    for law in (trace, convexity(), turned):
        yield Claim(law, frobenius, shape("b 3 4"))


def dot(x: Float[Tensor, "*#batch d"], y: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
    r"""Multiplies entry by entry and adds up: a similarity.

    $$x \cdot y = \sum_i x_i y_i = \lVert x \rVert \, \lVert y \rVert \cos \theta$$

    Args:
        x: The vectors $x$, along the last axis.
        y: The vectors $y$.

    Examples:
        >>> dot(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor(11.)
    """
    check_vectors(x, y)
    return torch.linalg.vecdot(x, y)


def cosine_similarity(x: Float[Tensor, "*#batch d"], y: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
    r"""Measures the similarity of two directions: the cosine of the angle between them.

    $$\cos \theta = \frac{x \cdot y}{\lVert x \rVert \, \lVert y \rVert}$$

    There is no $\epsilon$, so that vectors of any length have a direction; only 0 has none, and the cosine is then 0.

    Args:
        x: The vectors $x$, along the last axis.
        y: The vectors $y$.

    Examples:
        >>> cosine_similarity(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 5.0]))
        tensor(0.)
    """
    x, y = of_size_one(x), of_size_one(y)
    squares = dot(x, x) * dot(y, y)
    return dot(x, y) / squares.masked_fill(squares == 0, 1.0).sqrt()


def angle(x: Float[Tensor, "*#batch d"], y: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
    r"""Measures the angle between two directions, from 0 to $\pi$.

    $$\theta = 2 \operatorname{atan2}\big( \lVert u - v \rVert, \lVert u + v \rVert \big),
    \qquad u = \frac{x}{\lVert x \rVert}, \quad v = \frac{y}{\lVert y \rVert}$$

    The arc cosine would lose half of the digits near 0 and $\pi$, and has no derivative there. The angle with 0 is
    taken to be a right one.

    Args:
        x: The vectors $x$, along the last axis.
        y: The vectors $y$.

    Examples:
        >>> angle(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 5.0]))
        tensor(1.5708)
    """
    check_vectors(x, y)
    u, v = _direction_dot(x), _direction_dot(y)
    apart, together = norm(u - v), norm(u + v)
    none = (apart == 0) & (together == 0)
    return 2 * torch.atan2(apart.masked_fill(none, 1.0), together.masked_fill(none, 1.0))


def _direction_dot(x: Tensor) -> Tensor:
    x = of_size_one(x)
    length = norm(x).unsqueeze(-1)
    return x / length.masked_fill(length == 0, 1.0)


def _on_circle(angle: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin()], -1)


def _dot_claims() -> Iterator[Claim]:
    """The laws that the dot product, the cosine and the angle obey."""
    pair = (shape("b 4"), shape("b 4"))
    turned = invariance(sample=lambda draw: torch.linalg.qr(draw.normal(4, 4)).Q, act=lambda q, x: x @ q, input=(0, 1))
    for law in (linearity(input=0), commutativity(), cauchy_schwarz(), turned):
        yield Claim(law, dot, pair)
    yield Claim(agreement(other=lambda x, y: (x * y).sum(-1)), dot, (shape("b n"), shape("b n")))
    lengths = agreement(other=lambda x, y: (x * x).sum(-1).sqrt() * (y * y).sum(-1).sqrt() * cosine_similarity(x, y))
    yield Claim(lengths, dot, pair)
    yield Claim(
        agreement(other=lambda a, b: dot(_on_circle(a), _on_circle(b))),
        lambda a, b: (a - b).cos(),
        (shape("b"), shape("b")),
        "cos(a - b) = cos a cos b + sin a sin b",
    )
    for similarity in (cosine_similarity, angle):
        yield Claim(scale_invariance(input=0), similarity, pair)
        yield Claim(finiteness(), similarity, pair)
    yield Claim(boundedness(low=-1.0, high=1.0), cosine_similarity, pair)
    yield Claim(triangle_inequality(), angle, pair)
    yield Claim(agreement(other=cosine_similarity), lambda x, y: angle(x, y).cos(), pair, "cos(angle)")

    def corners(x: Tensor) -> Tensor:
        return torch.stack(
            [angle(0 * x, x), angle(0 * x, 0 * x), angle(1 + x.abs(), 2 + 2 * x.abs()), cosine_similarity(0 * x, x)], -1
        )

    right = agreement(other=lambda x: (x.new_tensor([1, 1, 0, 0]) * torch.pi / 2).expand(len(x), 4))
    yield Claim(right, corners, shape("b 4"), name="angle with 0, and with a multiple")


def project(x: Float[Tensor, "*#batch d"], onto: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
    r"""Projects vectors onto the line through a vector.

    $$\operatorname{proj}_a x = \frac{a \cdot x}{a \cdot a} \, a$$

    The line through $a = 0$ is a point, and the projection is 0.

    Args:
        x: The vectors $x$, along the last axis.
        onto: The vectors $a$.

    Examples:
        >>> project(torch.tensor([3.0, 4.0]), torch.tensor([2.0, 0.0]))
        tensor([3., 0.])
    """
    onto = of_size_one(onto)
    square = dot(onto, onto).unsqueeze(-1)
    return dot(x, onto).unsqueeze(-1) / square.masked_fill(square == 0, 1.0) * onto


def project_onto_columns(x: Float[Tensor, "*#batch d"], a: Float[Tensor, "*#batch d k"]) -> Float[Tensor, "*batch d"]:
    r"""Projects vectors onto the subspace that the columns of a matrix span.

    $$\operatorname{proj}_A x = A A^+ x, \qquad A A^+ = A (A^\mathsf{T} A)^{-1} A^\mathsf{T}
    \text{ where the columns are independent}$$

    The pseudo-inverse $A^+$ serves dependent columns too: they span less, and the projection is onto that.

    Args:
        x: The vectors $x$, along the last axis.
        a: The matrices $A$.

    Examples:
        >>> project_onto_columns(torch.tensor([1.0, 2.0, 3.0]), torch.eye(3)[:, :2])
        tensor([1., 2., 0.])
    """
    return (a @ (torch.linalg.pinv(a) @ x.unsqueeze(-1))).squeeze(-1)


@law("Aᵀ f(x, A) = Aᵀ x, and f(A c, A) = A c", discover_with=None)
def orthogonal_projection(f: Callable[..., Tensor], x: Tensor, a: Tensor, *, draw: Draw) -> Statement:
    """What is left over is at right angles to the columns, and what is in their span stays as it is.

    Satisfied by: least squares; projections onto lines and subspaces.
    Broken by: adding up the projections onto columns that are not at right angles.
    """
    inside = (a @ draw.normal(*a.shape[:-2], a.shape[-1], 1)).squeeze(-1)
    left = (a.mT @ f(x, a).unsqueeze(-1), f(inside, a))
    return Equal(left, (a.mT @ x.unsqueeze(-1), inside), names=("Aᵀ x", "A c"))


def _projection_claims() -> Iterator[Claim]:
    """The laws that projections obey."""
    pair = (shape("b 4"), shape("b 4"))
    for rule in (idempotence(input=0), linearity(input=0), finiteness()):
        yield Claim(rule, project, pair)
    yield Claim(orthogonal_projection(), lambda x, a: project(x, a[..., 0]), (shape("b 4"), shape("b 4 1")), "project")
    yield Claim(agreement(other=lambda x, a: project_onto_columns(x, a.unsqueeze(-1))), project, pair)
    columns = (shape("b 4"), shape("b 4 k:1..3"))
    for rule in (idempotence(input=0), linearity(input=0), orthogonal_projection()):
        yield Claim(rule, project_onto_columns, columns)


Sizes = int | Sequence[int]


def matmul_by_outer_products(
    a: Float[Tensor, "*#batch m n"], b: Float[Tensor, "*#batch n p"]
) -> Float[Tensor, "*batch m p"]:
    r"""Multiplies matrices as a sum of outer products: columns of the first with rows of the second.

    $$A B = \sum_{k=1}^n A_{:,k} \, B_{k,:}$$

    All $n$ terms are in memory at once; `@` is the way to multiply in earnest.

    Args:
        a: The matrices $A$.
        b: The matrices $B$.

    Examples:
        >>> matmul_by_outer_products(torch.ones(2, 3), torch.ones(3, 2))
        tensor([[3., 3.],
                [3., 3.]])
    """
    from lawful.functions.tensors import outer

    _check_inner(a, b)
    return outer(a.mT, b).sum(-3)


def matmul_by_blocks(
    a: Float[Tensor, "*#batch m n"],
    b: Float[Tensor, "*#batch n p"],
    *,
    rows: Sizes,
    inner: Sizes,
    columns: Sizes,
) -> Float[Tensor, "*batch m p"]:
    r"""Multiplies matrices block by block, as if the blocks were numbers.

    $$(A B)_{rt} = \sum_a A_{ra} B_{at}, \qquad A = (A_{ra}), \quad B = (B_{at})$$

    Args:
        a: The matrices $A$.
        b: The matrices $B$.
        rows: The sizes of the blocks of $A$'s rows, as a list that adds up to $m$; or one size for all of them, of
            which the last may be smaller.
        inner: The sizes for $A$'s columns, which are $B$'s rows.
        columns: The sizes for $B$'s columns.

    Examples:
        >>> matmul_by_blocks(torch.ones(2, 3), torch.ones(3, 2), rows=1, inner=[1, 2], columns=2)
        tensor([[3., 3.],
                [3., 3.]])
    """
    _check_inner(a, b)
    left = [
        row.split(_sizes(inner, a.shape[-1], "inner"), -1) for row in a.split(_sizes(rows, a.shape[-2], "rows"), -2)
    ]
    right = [
        column.split(_sizes(inner, b.shape[-2], "inner"), -2)
        for column in b.split(_sizes(columns, b.shape[-1], "columns"), -1)
    ]
    blocks = [[reduce(torch.add, map(torch.matmul, row, column)) for column in right] for row in left]
    return torch.cat([torch.cat(row, -1) for row in blocks], -2)


def _check_inner(a: Tensor, b: Tensor) -> None:
    if min(a.dim(), b.dim()) < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"A is to have as many columns as B has rows: got {tuple(a.shape)} and {tuple(b.shape)}")


def _sizes(sizes: Sizes, total: int, name: str) -> int | list[int]:
    if isinstance(sizes, int):
        if sizes < 1:
            raise ValueError(f"{name} is at least 1: got {sizes}")
        return sizes
    if not sizes or sum(sizes) != total:
        raise ValueError(f"{name} is to add up to {total}: got {list(sizes)}")
    return list(sizes)


def gram(x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n n"]:
    r"""Takes all dot products between the rows of a matrix.

    $$G_{ij} = x_i \cdot x_j, \qquad G = X X^\mathsf{T}$$

    The Gram matrix says all of $X$ but how it is turned: every function of $X$ that no orthogonal map changes is a
    function of it.

    Args:
        x: The matrices $X$, a vector a row.

    Examples:
        >>> gram(torch.tensor([[1.0, 0.0], [1.0, 2.0]]))
        tensor([[1., 1.],
                [1., 5.]])
    """
    return x @ x.mT


@law("vᵀ f(x) v ≥ 0", discover_with=None)
def positive_semidefiniteness(f: Callable[..., Tensor], x: Tensor, *, draw: Draw) -> Statement:
    """The output is a matrix, or a batch of them, whose quadratic form is never negative.

    Satisfied by: Gram matrices, covariances, kernels.
    Broken by: a matrix of distances; a product of queries with other keys.
    """
    g = f(x)
    v = draw.normal(*g.shape[:-1], 1)
    form = v.mT @ g @ v
    return AtMost(torch.zeros_like(form), form)


def _matmul_claims() -> Iterator[Claim]:
    """The laws that matrix products obey."""
    pair = (shape("b m n"), shape("b n p"))
    yield Claim(agreement(other=torch.matmul), matmul_by_outer_products, pair)
    yield Claim(associativity(), matmul_by_outer_products, (shape("3 3"), shape("3 3")))
    even = partial(matmul_by_blocks, rows=2, inner=2, columns=2)
    yield Claim(agreement(other=torch.matmul), even, pair, "matmul_by_blocks(2, 2, 2)")
    uneven = partial(matmul_by_blocks, rows=[1, 3], inner=[3, 2], columns=[2, 1])
    fixed = (shape("b 4 5"), shape("b 5 3"))
    yield Claim(agreement(other=torch.matmul), uneven, fixed, "matmul_by_blocks([1, 3], [3, 2], [2, 1])")
    turned = invariance(sample=lambda draw: torch.linalg.qr(draw.normal(4, 4)).Q, act=lambda q, x: x @ q)
    rows = agreement(other=lambda x: (x.unsqueeze(-2) * x.unsqueeze(-3)).sum(-1))
    for rule in (rows, symmetry(), positive_semidefiniteness(), turned):
        yield Claim(rule, gram, shape("b n 4"))


Matrix = Float[Tensor, "*#batch m n"]
Vector = Float[Tensor, "*#batch m"]
Solution = Float[Tensor, "*#out n"]


def _rows(a: Tensor, b: Tensor) -> None:
    if matrix(a).shape[-2] != b.shape[-1]:
        raise ValueError(f"A is to have a row for each entry of b: got {tuple(a.shape)} and {tuple(b.shape)}")


def _independent(dependent: Tensor) -> None:
    if any_true(dependent):
        raise ValueError(
            "the columns of A are to be independent: got a matrix that is singular to working precision"
            " (pinv(A) @ b is the shortest of its many solutions, ridge one with a penalty)"
        )


def solve_by_qr(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Solves for the closest vector, and says of which matrices a column is nothing beside what others make of it.

    That is judged column by column, so that units make no difference.
    """
    from lawful.functions.decompositions import qr

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
    if any_true(~((weight > 0) & weight.isfinite())):
        raise ValueError(f"penalty is to be finite and above 0: got {penalty}")
    n = a.shape[-1]
    batch = torch.broadcast_shapes(a.shape[:-2], weight.shape)
    damped = weight.sqrt()[..., None, None] * torch.eye(n, dtype=a.dtype, device=a.device)
    larger = torch.cat([a.expand(*batch, *a.shape[-2:]), damped.expand(*batch, n, n)], -2)
    x, dependent = solve_by_qr(larger, torch.cat([b, b.new_zeros(*b.shape[:-1], n)], -1))
    if any_true(dependent):
        raise ValueError(
            f"the root of the penalty is to be more than the rounding of a singular A: got penalty={penalty}"
            " (pinv(A) @ b is the limit of small ones)"
        )
    return x


@law("Aᵀ A x = Aᵀ b", every_input=True, discover_with=None)
def residual_at_right_angles(f: Map, a: Tensor, b: Tensor) -> Statement:
    """What is left of b is at right angles to the columns of A: no other x comes closer."""
    return Equal(a.mT @ (a @ f(a, b)[..., None]), a.mT @ b[..., None], exercised=True)


def _least_squares_claims() -> Iterator[Claim]:
    """The laws that least squares obey."""
    from lawful.functions.decompositions import pinv, well_conditioned

    tall, wide = transformed(well_conditioned, "b 4 3"), transformed(well_conditioned, "b 2 3")

    def pseudo_inverse_solution(a: Tensor, b: Tensor) -> Tensor:
        return (pinv(a) @ b[..., None])[..., 0]

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
    limit = agreement(other=pseudo_inverse_solution, rtol=1e-4)
    yield Claim(limit, little, (wide, shape("b 2")), name="ridge(penalty=1e-8)")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _norms_claims()
    yield from _dot_claims()
    yield from _projection_claims()
    yield from _matmul_claims()
    yield from _least_squares_claims()
