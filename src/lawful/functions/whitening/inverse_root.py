"""The inverse root of a covariance, with a gradient that equal variances do not spoil."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, gradient, made, second_order_gradient


class _Lyapunov(torch.autograd.Function):
    """X with S X + X S = B, for S = V diag(roots) Vᵀ; where two roots add up to 0, nothing."""

    generate_vmap_rule = True

    @staticmethod
    def forward(s: Tensor, b: Tensor, roots: Tensor, vectors: Tensor) -> Tensor:
        sums = roots[..., :, None] + roots[..., None, :]
        return vectors @ (vectors.mT @ b @ vectors / sums.masked_fill(sums == 0, torch.inf)) @ vectors.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        s, _, roots, vectors = inputs
        ctx.save_for_backward(s, roots, vectors, output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        (g,), (s, roots, vectors, x) = cotangents, ctx.saved_tensors
        y = _Lyapunov.apply(s, g, roots, vectors)
        return -(y @ x.mT + x.mT @ y), y, None, None


class _InverseRoot(torch.autograd.Function):
    """R = A^{-1/2}: with S = A R its derivative is dR = -R X R, S X + X S = dA, in which no difference is divided by.

    Where A has no variance, R keeps it so to first order.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(a)
        none = values <= a.shape[-1] * torch.finfo(a.dtype).eps * values[..., -1:]
        inverse = values.masked_fill(none, torch.inf).rsqrt()
        return (vectors * inverse[..., None, :]) @ vectors.mT, values.masked_fill(none, 0.0).sqrt(), vectors

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Tensor:
        g, (a, r, roots, vectors) = cotangents[0], ctx.saved_tensors
        flat = vectors * (roots == 0)[..., None, :]
        mixed = r @ r @ r @ g @ flat @ flat.mT + flat @ flat.mT @ g @ r @ r @ r
        return mixed - _Lyapunov.apply(a @ r, r @ g @ r, roots, vectors)


def inverse_root(a: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""Returns the symmetric $R$ with $R A R = 1$, of a symmetric positive definite $A$.

    $$A^{-1/2} = V \Lambda^{-1/2} V^\mathsf{T}, \qquad A = V \Lambda V^\mathsf{T}$$

    Eigenvalues below rounding, $d$ times the precision times the largest, count as 0, and so do their inverses.
    Derivatives are right where eigenvalues coincide too, unlike those of the decomposition. Of a matrix without full
    rank the first one is right, along matrices of the same rank.

    Args:
        a: The matrix $A$.

    Examples:
        >>> inverse_root(torch.tensor([[4.0, 0.0], [0.0, 0.25]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 2.0000]])
    """
    return _InverseRoot.apply(a)[0]


def claims() -> Iterator[Claim]:
    """The laws that the inverse root obeys."""

    def definite(x: Tensor) -> Tensor:
        x = x.tanh()
        return x @ x.mT + torch.eye(x.shape[-1]).to(x)

    def both_sides(a: Tensor) -> Tensor:
        return inverse_root(a) @ a @ inverse_root(a)

    def one(a: Tensor) -> Tensor:
        return torch.eye(a.shape[-1]).to(a).expand_as(a)

    def by_svd(a: Tensor) -> Tensor:
        axes, values, _ = torch.linalg.svd(a)
        return axes * values.rsqrt()[..., None, :] @ axes.mT

    yield Claim(agreement(other=one), both_sides, made(definite, "b 3 3"), name="R A R = 1")
    yield Claim(agreement(other=by_svd), inverse_root, made(definite, "b 3 3"))
    yield Claim(gradient(), lambda x: inverse_root(definite(x)), made(torch.tanh, "b 3 3"), name="inverse_root")

    def flat(x: Tensor) -> Tensor:
        factor = x.tanh() + torch.tensor([[3.0, 0.0], [0.0, 3.0], [3.0, -3.0]]).to(x)
        return factor @ factor.mT

    def pseudo_inverse(a: Tensor) -> Tensor:
        return inverse_root(a) @ inverse_root(a)

    rank_two = made(flat, "b 3 2")
    inverted = agreement(other=lambda a: torch.linalg.pinv(a, rtol=1e-4, hermitian=True))
    yield Claim(inverted, pseudo_inverse, rank_two, name="R R = A⁺ at rank 2 of 3")
    yield Claim(gradient(), lambda x: inverse_root(flat(x)), made(torch.tanh, "b 3 2"), name="inverse_root at rank 2")

    def nearly_one(x: Tensor) -> Tensor:
        return inverse_root(one(x) + (x + x.mT) / 9)

    for law in (gradient(), second_order_gradient()):
        yield Claim(law, nearly_one, made(torch.zeros_like, "b 2 2"), name="inverse_root at 1")
