"""The inverse root of a covariance, with a gradient that equal variances do not spoil."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from lawful.laws import Claim, agreement, gradient, made, symmetry


class _InverseRoot(torch.autograd.Function):
    """In the eigenbasis the derivative divides by sums of roots of eigenvalues, never by differences."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(a)
        none = values <= a.shape[-1] * torch.finfo(a.dtype).eps * values[..., -1:]
        inverse = values.masked_fill(none, torch.inf).rsqrt()
        ctx.save_for_backward(inverse, vectors)
        return (vectors * inverse[..., None, :]) @ vectors.mT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor) -> Tensor:  # pyrefly: ignore [bad-override]
        (g,), (inverse, vectors) = cotangents, ctx.saved_tensors
        left, right = inverse[..., :, None], inverse[..., None, :]
        both = (left * right).square() / (left + right).masked_fill((left == 0) & (right == 0), 1.0)
        one = (left + right) ** 3 * ((left == 0) != (right == 0))
        return vectors @ ((vectors.mT @ g @ vectors) * (one - both)) @ vectors.mT


def inverse_root(a: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""Returns the symmetric $R$ with $R A R = 1$, of a symmetric positive definite $A$.

    $$A^{-1/2} = V \Lambda^{-1/2} V^\mathsf{T}, \qquad A = V \Lambda V^\mathsf{T}$$

    Eigenvalues below rounding, $d$ times the precision times the largest, count as 0, and so do their inverses. The
    gradient is right where eigenvalues coincide too, unlike that of the decomposition; it can be taken once.

    Args:
        a: The matrix $A$.

    Examples:
        >>> inverse_root(torch.tensor([[4.0, 0.0], [0.0, 0.25]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 2.0000]])
    """
    return _InverseRoot.apply(a)


def claims() -> Iterator[Claim]:
    """The laws that the inverse root obeys."""

    def definite(x: Tensor) -> Tensor:
        x = x.tanh()
        return x @ x.mT + torch.eye(x.shape[-1]).to(x)

    def both_sides(a: Tensor) -> Tensor:
        return inverse_root(a) @ a @ inverse_root(a)

    def one(a: Tensor) -> Tensor:
        return torch.eye(a.shape[-1]).to(a).expand_as(a)

    yield Claim(agreement(other=one), both_sides, made(definite, "b 3 3"), name="R A R = 1")
    yield Claim(symmetry(), inverse_root, made(definite, "b 3 3"))
    yield Claim(gradient(), lambda x: inverse_root(definite(x)), made(torch.tanh, "b 3 3"), name="inverse_root")

    def nearly_one(x: Tensor) -> Tensor:
        return inverse_root(one(x) + (x + x.mT) / 9)

    yield Claim(gradient(), nearly_one, made(torch.zeros_like, "b 3 3"), name="inverse_root at 1")
