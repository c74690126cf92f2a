"""Projections: the closest point on a line, and in a subspace."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.products.dot import dot
from lawful.functions.products.norms import of_size_one
from lawful.laws import Claim, Draw, Same, Statement, agreement, finiteness, idempotence, law, linearity, shape


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


@law("Aᵀ f(x, A) = Aᵀ x, and f(A c, A) = A c", tries=None)
def orthogonal_projection(f: Callable[..., Tensor], x: Tensor, a: Tensor, *, draw: Draw) -> Statement:
    """What is left over is at right angles to the columns, and what is in their span stays as it is.

    Kept by: least squares; projections onto lines and subspaces.
    Broken by: adding up the projections onto columns that are not at right angles.
    """
    inside = (a @ draw.normal(*a.shape[:-2], a.shape[-1], 1)).squeeze(-1)
    left = (a.mT @ f(x, a).unsqueeze(-1), f(inside, a))
    return Same(left, (a.mT @ x.unsqueeze(-1), inside), names=("Aᵀ x", "A c"))


def claims() -> Iterator[Claim]:
    """The laws that projections obey."""
    pair = (shape("b 4"), shape("b 4"))
    for rule in (idempotence(input=0), linearity(input=0), finiteness()):
        yield Claim(rule, project, pair)
    yield Claim(orthogonal_projection(), lambda x, a: project(x, a[..., 0]), (shape("b 4"), shape("b 4 1")), "project")
    yield Claim(agreement(other=lambda x, a: project_onto_columns(x, a.unsqueeze(-1))), project, pair)
    columns = (shape("b 4"), shape("b 4 k:1..3"))
    for rule in (idempotence(input=0), linearity(input=0), orthogonal_projection()):
        yield Claim(rule, project_onto_columns, columns)
