"""The rank of a tensor: how many pure tensors, products of vectors, add up to it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.decompositions.examples import well_conditioned
from lawful.functions.products.tensors import pure_tensor, tensor_product
from lawful.laws import Claim, Law, agreement, made


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


def claims() -> Iterator[Claim]:
    """The laws that the bounds obey."""

    def bounds(tensor: Tensor) -> Tensor:
        return torch.tensor(rank_bounds(tensor, rtol=1e-4), dtype=tensor.dtype)

    def of_two_terms(u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return bounds(torch.func.vmap(pure_tensor, in_dims=-1)(u, v, w).sum(0))

    def of_vector_and_matrix(v: Tensor, a: Tensor) -> Tensor:
        return bounds(tensor_product(v[:, 0], a))

    def known(lower: float, upper: float) -> Law:
        return agreement(other=lambda x, *_: x.new_tensor([lower, upper]))

    terms = tuple(made(well_conditioned, f"{d} 2") for d in (3, 2, 4))
    yield Claim(known(2.0, 4.0), of_two_terms, terms, name="rank_bounds of two independent terms")
    unequal = (made(well_conditioned, "3 1"), made(well_conditioned, "2 4"))
    yield Claim(known(2.0, 2.0), of_vector_and_matrix, unequal, name="rank_bounds of a vector times a matrix")

    def nothing(x: Tensor) -> Tensor:
        return bounds(0 * x)

    def purity(x: Tensor) -> Tensor:
        a, pure = tensor_product(x[:, 0], x), pure_tensor(x[:, 0], x[:, 1], x[:, 0])
        found = is_pure(x), is_pure(a), is_pure(x, rtol=2.0), is_pure(pure, rtol=1e-4), is_pure(x[:, 0])
        return x.new_tensor(found)

    yield Claim(known(0.0, 0.0), nothing, made(well_conditioned, "3 2"), name="rank_bounds of 0")
    told = agreement(other=lambda x: x.new_tensor([False, False, True, True, True]))
    yield Claim(told, purity, made(well_conditioned, "3 2"), name="is_pure")
