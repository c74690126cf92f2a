"""Intrinsic convolution on surfaces: learned polynomials of the Laplacian of a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.functions._validation import any_true
from lawful.functions.meshes import cotangent_laplacian, vertex_areas
from lawful.laws import Claim, agreement, shape


class MeshConv(nn.Module):
    r"""Convolution on a surface: a learned polynomial of the Laplace-Beltrami operator.

    $$y = \sum_{k=0}^K T_k(S) \, x \, W_k + b, \qquad S = \frac{2}{\lambda} M^{-1} L - 1$$

    with the Chebyshev polynomials $T_k$, the cotangent Laplacian $L$, the areas $M$ of the vertices and a bound
    $\lambda$ of the largest eigenvalue. The output at a vertex depends on the vertices up to $K$ edges away.

    The layer is intrinsic: the Laplacian depends on the lengths of the edges only, so that bending a surface without
    stretching it does not change the output. A convolution that reads the coordinates of neighbors is extrinsic: it has
    to learn every pose of a shape. The filter has no direction, and its reach depends on the size of the triangles.

    Reference:
        Defferrard, Bresson and Vandergheynst, *Convolutional Neural Networks on Graphs with Fast Localized Spectral
        Filtering*, 2016.

    Args:
        in_dim: Width of the input.
        out_dim: Width of the output.
        order: Order $K$ of the polynomial.
        bias: Whether to add a bias.

    Examples:
        >>> from lawful.data import icosphere
        >>> sphere = icosphere(1)
        >>> laplacian = cotangent_laplacian(sphere.vertices, sphere.faces)
        >>> areas = vertex_areas(sphere.vertices, sphere.faces)
        >>> MeshConv(2, 8)(torch.randn(42, 2), laplacian, areas).shape
        torch.Size([42, 8])
    """

    def __init__(self, in_dim: int, out_dim: int, *, order: int = 4, bias: bool = True) -> None:
        super().__init__()
        if order < 0:
            raise ValueError(f"order must be at least 0, got {order}")
        self.weight = nn.Parameter(torch.empty(order + 1, in_dim, out_dim))
        self.bias = nn.Parameter(torch.zeros(out_dim)) if bias else None
        bound = (3 / (in_dim * (order + 1))) ** 0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(
        self, x: Float[Tensor, "*batch n d"], laplacian: Float[Tensor, "n n"], areas: Float[Tensor, " n"]
    ) -> Float[Tensor, "*batch n c"]:
        """Applies the layer.

        Args:
            x: Features of the vertices.
            laplacian: Cotangent Laplacian of the mesh, sparse or dense: see `cotangent_laplacian`.
            areas: Areas of the vertices: see `vertex_areas`.
        """
        n, d = len(areas), self.weight.shape[1]
        if x.dim() < 2 or x.shape[-2:] != (n, d):
            raise ValueError(f"expected features of shape (*batch, {n}, {d}), got {tuple(x.shape)}")
        if laplacian.shape != (n, n):
            raise ValueError(f"expected a Laplacian of shape ({n}, {n}), got {tuple(laplacian.shape)}")
        if any_true(~(areas > 0)):
            raise ValueError("areas must be positive: remove vertices without faces")
        scale = 2 / (_row_sums(laplacian) / areas).max()
        inverse = (scale / areas)[:, None]
        columns = x.movedim(-2, 0).flatten(1)
        terms = [columns]
        for k in range(1, len(self.weight)):
            shifted = inverse * (laplacian @ terms[-1]) - terms[-1]
            terms.append(shifted if k == 1 else 2 * shifted - terms[-2])
        stacked = torch.stack(terms).unflatten(2, (*x.shape[:-2], d)).movedim(1, -2)
        y = torch.einsum("k...nd,kdc->...nc", stacked, self.weight)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        k, d, c = self.weight.shape
        return f"{d}, {c}, order={k - 1}"


def _row_sums(matrix: Tensor) -> Tensor:
    """Returns the sum of the absolute values of each row: the largest divided by the area bounds the eigenvalues."""
    if not matrix.is_sparse:
        return matrix.abs().sum(1)
    matrix = matrix.coalesce()
    return matrix.values().new_zeros(len(matrix)).index_add(0, matrix.indices()[0], matrix.values().abs())


def claims() -> Iterator[Claim]:
    """MeshConv is intrinsic: the output is the same on a flat sheet and on a folded one."""
    faces = torch.tensor([[0, 1, 4], [0, 4, 3], [1, 2, 5], [1, 5, 4]])
    flat = torch.tensor([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 0], [1, 1, 0], [2, 1, 0]])
    folded = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 0, 1], [0, 1, 0], [1, 1, 0], [1, 1, 1]])
    layer = MeshConv(3, 2, order=3)

    def convolve(x: Tensor, vertices: Tensor) -> Tensor:
        vertices = vertices.to(x)
        return layer.to(x)(x, cotangent_laplacian(vertices, faces), vertex_areas(vertices, faces))

    same = agreement(other=partial(convolve, vertices=folded))
    yield Claim(same, partial(convolve, vertices=flat), shape("b 6 3"), name="MeshConv: bending")
