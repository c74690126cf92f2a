"""The bilinear layer: linear in each of two inputs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, linearity, shape


class Bilinear(nn.Bilinear):
    r"""Multiplies every entry of one vector with every entry of another, and weighs the products.

    $$z_k = x^\top A_k \, y + b_k = \sum_{ij} A_{kij} \, x_i y_j + b_k$$

    Without $b$ it is linear in $x$ and linear in $y$; with both together it is not. The parameters `weight` $A$, of
    shape (d_out, d_x, d_y), and `bias` $b$ are those of PyTorch's own.

    Args:
        sizes: The sizes of $x$ and of $y$.
        d_out: The size of $z$.
        bias: Whether there is a $b$.

    Examples:
        >>> Bilinear((2, 3), 4)(torch.ones(5, 2), torch.ones(5, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(self, sizes: tuple[int, int], d_out: int, *, bias: bool = True) -> None:
        if min(*sizes, d_out) < 1:
            raise ValueError(f"every size is at least 1: got sizes={sizes}, d_out={d_out}")
        super().__init__(*sizes, d_out, bias=bias)

    # pyrefly: ignore [bad-override-param-name]
    def forward(self, x: Float[Tensor, "*batch d_x"], y: Float[Tensor, "*batch d_y"]) -> Float[Tensor, "*batch d_out"]:
        """Combines the last axes of two inputs."""
        sizes = (self.in1_features, self.in2_features)
        if (*x.shape[-1:], *y.shape[-1:]) != sizes:
            raise ValueError(f"the last axes are to have sizes {sizes}: got {tuple(x.shape)} and {tuple(y.shape)}")
        if x.shape[:-1] != y.shape[:-1]:
            raise ValueError(f"one batch was wanted: got {tuple(x.shape)} and {tuple(y.shape)}")
        return super().forward(x, y)


def claims() -> Iterator[Claim]:
    """The laws that a bilinear layer obeys."""
    layer, inputs = Bilinear((3, 2), 4), (shape("b 3"), shape("b 2"))

    def equation(x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("kij,bi,bj->bk", layer.weight, x, y) + layer.bias

    yield Claim(agreement(other=equation), layer, inputs)
    for n in (0, 1):
        yield Claim(linearity(input=n), Bilinear((3, 2), 4, bias=False), inputs, name=f"Bilinear, in input {n}")
