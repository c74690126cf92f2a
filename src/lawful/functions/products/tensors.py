"""Outer and tensor products: every entry times every entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, Draw, Same, Statement, agreement, law, linearity, shape


def outer(x: Float[Tensor, "*#batch m"], y: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch m n"]:
    r"""Multiplies each entry of one vector with each entry of another.

    $$(x y^\mathsf{T})_{ij} = x_i y_j$$

    Args:
        x: The vectors $x$, along the last axis.
        y: The vectors $y$.

    Examples:
        >>> outer(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor([[3., 4.],
                [6., 8.]])
    """
    return x.unsqueeze(-1) * y.unsqueeze(-2)


def tensor_product(s: Float[Tensor, "*m"], t: Float[Tensor, "*n"]) -> Float[Tensor, ...]:
    r"""Multiplies each entry of one tensor with each entry of another; the axes of the first come first.

    $$(S \otimes T)_{i_1 \dots i_m j_1 \dots j_n} = S_{i_1 \dots i_m} \, T_{j_1 \dots j_n}$$

    It is associative, but not commutative.

    Args:
        s: The tensor $S$.
        t: The tensor $T$.

    Examples:
        >>> tensor_product(torch.ones(2, 3), torch.ones(4)).shape
        torch.Size([2, 3, 4])
    """
    return torch.tensordot(s, t, dims=0)


def pure_tensor(*vectors: Float[Tensor, " _"]) -> Float[Tensor, ...]:
    r"""Makes the tensor of rank one that is the product of vectors.

    $$T = v_1 \otimes v_2 \otimes \dots \otimes v_n$$

    Args:
        vectors: The vectors $v_1$ to $v_n$, at least one.

    Examples:
        >>> pure_tensor(torch.ones(2), torch.ones(3), torch.ones(4)).shape
        torch.Size([2, 3, 4])
    """
    if not vectors:
        raise ValueError("a pure tensor is made of at least one vector: got none")
    return reduce(tensor_product, vectors)


@law("(S ⊗ T) ⊗ U = S ⊗ (T ⊗ U)", tries=None)
def tensor_associativity(f: Callable[..., Tensor], s: Tensor, t: Tensor, *, draw: Draw) -> Statement:
    """Brackets make no difference, though each product has more axes than its factors.

    Kept by: tensor products; the Kronecker product.
    Broken by: a cross product; a product that adds the axes of the second factor in front.
    """
    u = draw.values(2)
    return Same(f(f(s, t), u), f(s, f(t, u)))


@law("T_{i a} T_{j b} = T_{i b} T_{j a}, along every axis", every_input=True, tries=None)
def rank_one(f: Callable[..., Tensor], *xs: Tensor, draw: Draw) -> Statement:
    """Every minor of two rows and two columns is zero, whichever axis makes the rows.

    Kept by: pure tensors; an outer product.
    Broken by: a sum of two pure tensors; the identity matrix.
    """
    t = f(*xs)
    left, right = list[Tensor](), list[Tensor]()
    for axis in range(t.dim()):
        rows = t.movedim(axis, 0).reshape(t.shape[axis], -1)
        i, j = (draw.integer(0, rows.shape[0] - 1) for _ in range(2))
        left.append(outer(rows[i], rows[j]))
        right.append(outer(rows[j], rows[i]))
    return Same(left, right, exercised=True)


def claims() -> Iterator[Claim]:
    """The laws that outer and tensor products obey."""
    pair = (shape("b m"), shape("b n"))
    yield Claim(agreement(other=lambda x, y: torch.einsum("bi,bj->bij", x, y)), outer, pair)
    yield Claim(linearity(input=0), outer, pair)
    yield Claim(linearity(input=1), outer, pair)
    tensors = (shape("2 3"), shape("3 2"))
    yield Claim(tensor_associativity(), tensor_product, tensors)
    yield Claim(agreement(other=lambda s, t: torch.einsum("ij,kl->ijkl", s, t)), tensor_product, tensors)
    swapped = agreement(other=lambda s, t: tensor_product(t, s).permute(2, 3, 0, 1))
    yield Claim(swapped, tensor_product, tensors, "S ⊗ T is T ⊗ S with its axes swapped")
    vectors = (shape("2"), shape("3"), shape("4"))
    yield Claim(rank_one(), pure_tensor, vectors)
    yield Claim(agreement(other=lambda u, v, w: torch.einsum("i,j,k->ijk", u, v, w)), pure_tensor, vectors)
