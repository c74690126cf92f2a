"""The determinant: by how much a matrix changes volumes, and what follows from that."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.checks import square
from lawful.functions.decompositions.examples import well_conditioned
from lawful.functions.decompositions.qr import qr
from lawful.laws import Claim, agreement, derivative, homomorphism, invariance, made


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


def claims() -> Iterator[Claim]:
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

    regular = made(well_conditioned, "b 3 3")
    similarity = invariance(sample=lambda draw: well_conditioned(draw.normal(3, 3)), act=similar)
    yield Claim(agreement(other=_leibniz), determinant, regular)
    yield Claim(homomorphism(operation=torch.matmul, into=torch.mul), determinant, regular)
    yield Claim(similarity, determinant, regular)
    yield Claim(agreement(other=of_transpose), determinant, regular)
    yield Claim(agreement(other=one_over_inverse), determinant, regular)
    yield Claim(derivative(formula=jacobi), determinant, regular)
    yield Claim(agreement(other=_leibniz), rebuilt, regular, name="log_determinant")
    yield Claim(derivative(formula=lambda a: torch.linalg.inv(a).mT), log_determinant, regular)
    yield Claim(agreement(other=of_gram), gram_determinant, made(well_conditioned, "b 4 3"))
    yield Claim(agreement(other=_cauchy_binet), gram_determinant, made(well_conditioned, "b 4 2"))
