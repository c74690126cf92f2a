"""Two more ways to multiply matrices, and the matrix of all dot products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.products.tensors import outer
from lawful.laws import (
    AtMost,
    Claim,
    Draw,
    Statement,
    agreement,
    associativity,
    invariance,
    law,
    shape,
    symmetry,
)

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


@law("vᵀ f(x) v ≥ 0", tries=None)
def positive_semidefiniteness(f: Callable[..., Tensor], x: Tensor, *, draw: Draw) -> Statement:
    """The output is a matrix, or a batch of them, whose quadratic form is never negative.

    Kept by: Gram matrices, covariances, kernels.
    Broken by: a matrix of distances; a product of queries with other keys.
    """
    g = f(x)
    v = draw.normal(*g.shape[:-1], 1)
    form = v.mT @ g @ v
    return AtMost(torch.zeros_like(form), form)


def claims() -> Iterator[Claim]:
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
