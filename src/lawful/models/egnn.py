"""Equivariant graph networks: EGNN and its variant with Gram matrices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lawful.blocks import EGNNLayer, GramLayer
from lawful.blocks.graph import _check_features
from lawful.groups import Euclidean
from lawful.laws import Claim, equivariance, invariance, shape

_EdgeInput = Int[Tensor, "2 e"] | Bool[Tensor, "*batch n n"] | None


class EGNN(nn.Module):
    r"""E(n)-equivariant graph network: an embedding of the features, then `EGNNLayer`s.

    Reference:
        Satorras, Hoogeboom and Welling, *E(n) Equivariant Graph Neural Networks*, 2021.

    Args:
        in_dim: Number of input features per point.
        dim: Number of features per point inside the network.
        num_layers: Number of layers.
        edge_dim: Number of features per edge.
        velocity: Whether `forward` takes and returns velocities.

    Examples:
        >>> model = EGNN(1, dim=16, num_layers=2)
        >>> h, x = model(torch.ones(2, 5, 1), torch.randn(2, 5, 3))
        >>> h.shape, x.shape
        (torch.Size([2, 5, 16]), torch.Size([2, 5, 3]))
    """

    def __init__(
        self, in_dim: int, *, dim: int = 64, num_layers: int = 4, edge_dim: int = 0, velocity: bool = False
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(in_dim, dim)
        self.layers = nn.ModuleList(EGNNLayer(dim, edge_dim=edge_dim, velocity=velocity) for _ in range(num_layers))

    def forward(
        self,
        h: Float[Tensor, "*batch n c"],
        x: Float[Tensor, "*batch n d"],
        edges: _EdgeInput = None,
        *,
        edge_attr: Float[Tensor, "..."] | None = None,
        velocity: Float[Tensor, "*batch n d"] | None = None,
    ) -> tuple[Tensor, ...]:
        """Returns the features and coordinates, and the velocities if they are given.

        Args:
            h: Features.
            x: Coordinates.
            edges: `edge_index`, an adjacency matrix, or None for all pairs of different points.
            edge_attr: Features of the edges: (*batch, e, a) with `edge_index`, else (*batch, n, n, a).
            velocity: Velocities.
        """
        _check_features(h, self.embed.in_features)
        h = self.embed(h)
        for layer in self.layers:
            if velocity is None:
                h, x = layer(h, x, edges, edge_attr=edge_attr)
            else:
                h, x, velocity = layer(h, x, edges, edge_attr=edge_attr, velocity=velocity)
        return (h, x) if velocity is None else (h, x, velocity)


class GramNetwork(nn.Module):
    r"""Equivariant graph network whose messages depend on all inner products: an embedding, then `GramLayer`s.

    The input vectors of a node, such as its velocity, are combined linearly to `num_vectors` vectors. Linear
    combinations of vectors are equivariant under rotations.

    Reference:
        Villar, Hogg, Storey-Fisher, Yao and Blum-Smith, *Scalars are Universal*, 2021.

    Args:
        in_dim: Number of input features per node.
        in_vectors: Number of input vectors per node.
        dim: Number of features per node inside the network.
        num_layers: Number of layers.
        num_vectors: Number of vectors per node inside the network.
        edge_dim: Number of features per edge.

    Examples:
        >>> model = GramNetwork(1, dim=16, num_layers=2)
        >>> h, x, vectors = model(torch.ones(2, 5, 1), torch.randn(2, 5, 3), torch.randn(2, 5, 1, 3))
        >>> x.shape, vectors.shape
        (torch.Size([2, 5, 3]), torch.Size([2, 5, 2, 3]))
    """

    def __init__(
        self,
        in_dim: int,
        *,
        in_vectors: int = 1,
        dim: int = 64,
        num_layers: int = 4,
        num_vectors: int = 2,
        edge_dim: int = 0,
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(in_dim, dim)
        self.mix = nn.Linear(in_vectors, num_vectors, bias=False)
        self.layers = nn.ModuleList(
            GramLayer(dim, num_vectors=num_vectors, edge_dim=edge_dim) for _ in range(num_layers)
        )

    def forward(
        self,
        h: Float[Tensor, "*batch n c"],
        x: Float[Tensor, "*batch n d"],
        vectors: Float[Tensor, "*batch n k d"],
        edges: _EdgeInput = None,
        *,
        edge_attr: Float[Tensor, "..."] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the features, coordinates and vectors.

        Args:
            h: Features.
            x: Coordinates.
            vectors: Vectors of each node.
            edges: `edge_index`, an adjacency matrix, or None for all pairs of different points.
            edge_attr: Features of the edges: (*batch, e, a) with `edge_index`, else (*batch, n, n, a).
        """
        _check_features(h, self.embed.in_features)
        h, vectors = self.embed(h), self.mix(vectors.mT).mT
        for layer in self.layers:
            h, x, vectors = layer(h, x, vectors, edges, edge_attr=edge_attr)
        return h, x, vectors


def claims() -> Iterator[Claim]:
    """Laws of equivariant graph networks."""
    model, points = EGNN(1, dim=4, num_layers=2), shape("b 3 3")

    def features(x: Tensor) -> Tensor:
        return model(torch.ones_like(x[..., :1]), x)[0]

    def coordinates(x: Tensor) -> Tensor:
        return model(torch.ones_like(x[..., :1]), x)[1]

    yield Claim(invariance(group=Euclidean(3), axis=-1), features, points, name="EGNN, features")
    yield Claim(equivariance(group=Euclidean(3), axis=-1), coordinates, points, name="EGNN, coordinates")
