"""A matrix as the product of two thin ones: its eigenvalues, singular values and norm at the price of the rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from lawful.laws import Claim, agreement, shape


@dataclass(frozen=True, eq=False)
class Factored:
    r"""Holds a matrix of low rank by its factors.

    $$M = L R, \qquad L \in \mathbb{R}^{m \times r},\; R \in \mathbb{R}^{r \times n}$$

    The circuits of a head are such matrices: $d \times d$, or tokens by tokens, of the rank of a head. $M$ itself is
    never formed.

    Examples:
        >>> Factored(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0, 4.0]])).matrix
        tensor([[3., 4.],
                [6., 8.]])
    """

    left: Float[Tensor, "m r"]
    """$L$."""
    right: Float[Tensor, "r n"]
    """$R$."""

    def __post_init__(self) -> None:
        if self.left.dim() != 2 or self.right.dim() != 2 or self.left.shape[1] != self.right.shape[0]:
            shapes = tuple(self.left.shape), tuple(self.right.shape)
            raise ValueError(f"factors of shapes (m, r) and (r, n) were wanted: got {shapes[0]} and {shapes[1]}")

    @property
    def matrix(self) -> Float[Tensor, "m n"]:
        """$M$, written out."""
        return self.left @ self.right

    @property
    def transposed(self) -> Factored:
        r"""$M^\top$."""
        return Factored(self.right.mT, self.left.mT)

    def __matmul__(self, other: Factored) -> Factored:
        """The product with another one."""
        return Factored(self.left, self.right @ other.left @ other.right)

    def norm(self) -> Float[Tensor, ""]:
        r"""Returns the Frobenius norm, $\sqrt{\operatorname{tr}(L^\top L \, R R^\top)}$."""
        return _triangle(self.left).matmul(_triangle(self.right.mT).mT).norm()

    def singular_values(self) -> Float[Tensor, "r"]:
        r"""Returns the $r$ largest singular values, those of the product of the triangles of $L$ and $R^\top$."""
        return torch.linalg.svdvals(_triangle(self.left) @ _triangle(self.right.mT).mT)

    def eigenvalues(self) -> Complex[Tensor, "r"]:
        """Returns the eigenvalues that may differ from 0, those of the small matrix $R L$, the largest first."""
        if self.left.shape[0] != self.right.shape[1]:
            raise ValueError(f"a square matrix has eigenvalues: got {self.left.shape[0]} x {self.right.shape[1]}")
        found = torch.linalg.eigvals(self.right @ self.left)
        return found[found.abs().argsort(descending=True)]


def _triangle(x: Tensor) -> Tensor:
    """The triangle of the QR decomposition, which has the lengths and angles of the columns."""
    return torch.linalg.qr(x, mode="r").R


def claims() -> Iterator[Claim]:
    """The laws that factored matrices obey."""
    pair = shape("5 2"), shape("2 5")

    def norm(x: Tensor, y: Tensor) -> Tensor:
        return Factored(x, y).norm()

    def singular(x: Tensor, y: Tensor) -> Tensor:
        return Factored(x, y).singular_values()

    def powers(x: Tensor, y: Tensor) -> Tensor:
        values = Factored(x, y).eigenvalues()
        return torch.stack([(values**k).sum().real for k in (1, 2, 3)])

    def traces(x: Tensor, y: Tensor) -> Tensor:
        m = x @ y
        return torch.stack([m.trace(), (m @ m).trace(), (m @ m @ m).trace()])

    def products(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a, b = Factored(x, y), Factored(y.mT, x.mT)
        return (a @ b).matrix, a.transposed.matrix

    yield Claim(agreement(other=lambda x, y: (x @ y).square().sum().sqrt()), norm, pair, name="norm")
    yield Claim(agreement(other=lambda x, y: torch.linalg.svdvals(x @ y)[:2]), singular, pair, name="singular values")
    yield Claim(agreement(other=traces), powers, pair, name="sums of powers of eigenvalues are traces")
    written = agreement(other=lambda x, y: (x @ y @ y.mT @ x.mT, (x @ y).mT))
    yield Claim(written, products, pair, name="products and transposes")
