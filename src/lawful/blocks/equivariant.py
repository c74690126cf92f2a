r"""Layers that commute with rotations, reflections and translations: EGNN, radial fields and Gram matrices.

Points have coordinates $x_i \in \mathbb{R}^d$ in any dimension $d$ and features $h_i$. A motion of the points moves the
coordinates of the output, and leaves the features as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.graph import EdgeMLP, _check_features
from lawful.functions._validation import any_true
from lawful.functions.graphs import DenseEdges, Edges, as_edges
from lawful.groups import Euclidean, Orthogonal
from lawful.laws import Claim, equivariance, invariance, permutation_equivariance, shape

_EdgeInput = Int[Tensor, "2 e"] | Bool[Tensor, "*batch n n"] | None


def _check_coordinates(x: Tensor, like: Tensor) -> None:
    if x.dim() < 2 or x.shape[:-1] != like.shape[:-1]:
        expected = f"({', '.join(map(str, like.shape[:-1]))}, d)"
        raise ValueError(f"expected coordinates of shape {expected}, one point per node, got {tuple(x.shape)}")
    if any_true(~x.isfinite()):
        raise ValueError("coordinates must be finite, got NaN or infinite values")


def _check_vectors(v: Tensor, expected: tuple[int, ...], *, name: str) -> None:
    if v.shape != expected:
        raise ValueError(f"expected {name} of shape {tuple(expected)}, got {tuple(v.shape)}")
    if any_true(~v.isfinite()):
        raise ValueError(f"{name} must be finite, got NaN or infinite values")


def _differences(x: Tensor, edges: Edges) -> Tensor:
    """Returns the vector from the source to the target of each edge."""
    return edges.target(x) - edges.source(x)


def _mean(m: Tensor, edges: Edges) -> Tensor:
    """Returns the mean of the messages at each target, and 0 without messages."""
    return edges.sum(m) / edges.degree(m).clamp_min(1)


def _radial_features(squared: Tensor, edge_attr: Tensor | None, edges: Edges, *, edge_dim: int) -> Tensor:
    """Returns scalars of vectors and the features of the edges side by side."""
    axes = 2 if isinstance(edges, DenseEdges) else 1
    found = None if edge_attr is None else edge_attr.shape[-1 - axes :]
    if found != (None if edge_dim == 0 else (*squared.shape[-1 - axes : -1], edge_dim)):
        sizes = ", ".join(map(str, (*squared.shape[-1 - axes : -1], edge_dim)))
        expected = f"edge_attr of shape (*batch, {sizes})" if edge_dim else "no edge_attr, since edge_dim is 0"
        raise ValueError(f"expected {expected}, got {edge_attr if edge_attr is None else tuple(edge_attr.shape)}")
    if edge_attr is None:
        return squared
    if isinstance(edges, DenseEdges):
        edge_attr = edge_attr.expand(*squared.shape[:-1], edge_attr.shape[-1])
    return torch.cat([squared, edge_attr], -1)


def _small_linear(in_dim: int, out_dim: int, *, gain: float, bias: bool = True) -> nn.Linear:
    """Builds a linear layer whose output is small at first."""
    layer = nn.Linear(in_dim, out_dim, bias=bias)
    nn.init.xavier_uniform_(layer.weight, gain=gain)
    return layer


class EGNNLayer(nn.Module):
    r"""E(n)-equivariant graph layer: coordinates move along differences, by weights that depend on distances.

    $$m_{ij} = \phi_e(h_i, h_j, \lVert x_i - x_j \rVert^2, a_{ij}), \qquad
    v_i' = \phi_v(h_i) \, v_i + \operatorname*{mean}_{j \to i} \, (x_i - x_j) \, \phi_x(m_{ij})$$

    $$x_i' = x_i + v_i', \qquad h_i' = h_i + \phi_h \Bigl( h_i, \sum_{j \to i} m_{ij} \Bigr)$$

    Without velocities $v_i = 0$. Nothing is divided by a distance, so that gradients are finite at coincident points.
    The last layers of $\phi_x$ and $\phi_h$ are small at first, so that many layers can be stacked, also with many
    neighbors.

    Reference:
        Satorras, Hoogeboom and Welling, *E(n) Equivariant Graph Neural Networks*, 2021.

    Args:
        dim: Width of the features.
        hidden_dim: Width of the messages and hidden layers. Defaults to `dim`.
        edge_dim: Width of the features of edges.
        velocity: Whether points have velocities.

    Examples:
        >>> layer = EGNNLayer(8)
        >>> h, x = layer(torch.randn(5, 8), torch.randn(5, 3))
        >>> h.shape, x.shape
        (torch.Size([5, 8]), torch.Size([5, 3]))
    """

    def __init__(self, dim: int, *, hidden_dim: int | None = None, edge_dim: int = 0, velocity: bool = False) -> None:
        super().__init__()
        hidden = dim if hidden_dim is None else hidden_dim
        self.dim, self.edge_dim = dim, edge_dim
        self.message = EdgeMLP(dim, 1 + edge_dim, hidden)
        last = _small_linear(hidden, 1, gain=1e-3, bias=False)
        self.coordinate = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), last)
        self.velocity = nn.Sequential(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, 1)) if velocity else None
        self.feature = nn.Sequential(nn.Linear(dim + hidden, hidden), nn.SiLU(), _small_linear(hidden, dim, gain=1e-2))

    def forward(
        self,
        h: Float[Tensor, "*batch n c"],
        x: Float[Tensor, "*batch n d"],
        edges: _EdgeInput = None,
        *,
        edge_attr: Float[Tensor, "..."] | None = None,
        velocity: Float[Tensor, "*batch n d"] | None = None,
    ) -> tuple[Tensor, ...]:
        """Returns the new features and coordinates, and the new velocities if there are velocities.

        Args:
            h: Features.
            x: Coordinates.
            edges: `edge_index`, an adjacency matrix, or None for all pairs of different points.
            edge_attr: Features of the edges: (*batch, e, a) with `edge_index`, else (*batch, n, n, a).
            velocity: Velocities.
        """
        _check_features(h, self.dim)
        _check_coordinates(x, h)
        if (velocity is None) != (self.velocity is None):
            raise ValueError("velocity needs EGNNLayer(velocity=True), and EGNNLayer(velocity=True) needs velocity")
        if velocity is not None:
            _check_vectors(velocity, x.shape, name="velocity")
        neighbors = as_edges(edges, x.shape[-2], device=x.device)
        between = _differences(x, neighbors)
        squared = between.square().sum(-1, keepdim=True)
        features = _radial_features(squared, edge_attr, neighbors, edge_dim=self.edge_dim)
        messages = F.silu(self.message(h, neighbors, features))
        moved = _mean(between * self.coordinate(messages), neighbors)
        if self.velocity is not None and velocity is not None:
            moved = moved + self.velocity(h) * velocity
        h = h + self.feature(torch.cat([h, neighbors.sum(messages)], -1))
        return (h, x + moved) if velocity is None else (h, x + moved, moved)


class RadialField(nn.Module):
    r"""Radial field: points move along differences, by weights that depend on the distance only.

    $$v_i' = \phi_v(\operatorname{asinh} \lVert v_i \rVert^2) \, v_i
    + \operatorname*{mean}_{j \to i} \, (x_i - x_j) \, \tanh \phi(\log(\lVert x_i - x_j \rVert^2 + 0.01), a_{ij})$$

    $$x_i' = x_i + v_i'$$

    It has no features. It is the baseline of EGNN. The logarithm resolves small distances, where forces are large.

    Reference:
        Köhler, Klein and Noé, *Equivariant Flows*, 2019.

    Args:
        hidden_dim: Width of the hidden layers.
        edge_dim: Width of the features of edges.

    Examples:
        >>> RadialField(16)(torch.randn(5, 3), velocity=torch.randn(5, 3))[0].shape
        torch.Size([5, 3])
    """

    def __init__(self, hidden_dim: int, *, edge_dim: int = 0) -> None:
        super().__init__()
        self.edge_dim = edge_dim
        last = _small_linear(hidden_dim, 1, gain=1e-3)
        self.weight = nn.Sequential(nn.Linear(1 + edge_dim, hidden_dim), nn.SiLU(), last)
        self.speed = nn.Sequential(nn.Linear(1, hidden_dim), nn.SiLU(), nn.Linear(hidden_dim, 1))

    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        edges: _EdgeInput = None,
        *,
        velocity: Float[Tensor, "*batch n d"],
        edge_attr: Float[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "*batch n d"], Float[Tensor, "*batch n d"]]:
        """Returns the new coordinates and velocities.

        Args:
            x: Coordinates.
            edges: `edge_index`, an adjacency matrix, or None for all pairs of different points.
            velocity: Velocities.
            edge_attr: Features of the edges.
        """
        _check_vectors(velocity, x.shape, name="velocity")
        _check_coordinates(x, velocity)
        neighbors = as_edges(edges, x.shape[-2], device=x.device)
        between = _differences(x, neighbors)
        distance = (between.square().sum(-1, keepdim=True) + 0.01).log()
        features = _radial_features(distance, edge_attr, neighbors, edge_dim=self.edge_dim)
        speed = velocity.square().sum(-1, keepdim=True).asinh()
        velocity = self.speed(speed) * velocity + _mean(between * self.weight(features).tanh(), neighbors)
        return x + velocity, velocity


def gram_matrix(vectors: Float[Tensor, "*batch k d"]) -> Float[Tensor, "*batch m"]:
    r"""Returns all inner products $v_i \cdot v_j$, $i \le j$: a complete set of invariants under O(d).

    Two sets of vectors with the same inner products differ by a rotation or reflection.

    Args:
        vectors: Vectors.

    Examples:
        >>> gram_matrix(torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
        tensor([25.,  3.,  1.])
    """
    k = vectors.shape[-2]
    rows, columns = torch.triu_indices(k, k, device=vectors.device)
    return (vectors @ vectors.mT)[..., rows, columns]


class GramMLP(nn.Module):
    r"""O(d)-equivariant function of vectors: a linear combination whose coefficients depend on inner products.

    $$y_i = \sum_j c_{ij}(G) \, v_j, \qquad s = s(G), \qquad G_{ij} = v_i \cdot v_j$$

    Every continuous function that commutes with O(d) has this form. With `out_vectors=0` the function is invariant.

    Reference:
        Villar, Hogg, Storey-Fisher, Yao and Blum-Smith, *Scalars are Universal*, 2021.

    Args:
        num_vectors: Number of vectors.
        out_vectors: Number of vectors of the output.
        out_scalars: Number of scalars of the output.
        hidden_dims: Widths of the hidden layers.

    Examples:
        >>> vectors, scalars = GramMLP(4, out_vectors=2, out_scalars=3)(torch.randn(10, 4, 3))
        >>> vectors.shape, scalars.shape
        (torch.Size([10, 2, 3]), torch.Size([10, 3]))
    """

    def __init__(
        self, num_vectors: int, *, out_vectors: int = 0, out_scalars: int = 0, hidden_dims: Sequence[int] = (64, 64)
    ) -> None:
        super().__init__()
        if out_vectors + out_scalars < 1:
            raise ValueError("expected out_vectors or out_scalars of at least 1")
        self.num_vectors, self.out_vectors, self.out_scalars = num_vectors, out_vectors, out_scalars
        widths = [num_vectors * (num_vectors + 1) // 2, *hidden_dims]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.SiLU()]
        self.network = nn.Sequential(*layers, nn.Linear(widths[-1], out_vectors * num_vectors + out_scalars))

    def forward(
        self, vectors: Float[Tensor, "*batch k d"]
    ) -> tuple[Float[Tensor, "*batch o d"], Float[Tensor, "*batch s"]]:
        """Returns the vectors and the scalars of the output.

        Args:
            vectors: Vectors.
        """
        if vectors.dim() < 2 or vectors.shape[-2] != self.num_vectors:
            raise ValueError(f"expected vectors of shape (*batch, {self.num_vectors}, d), got {tuple(vectors.shape)}")
        found = self.network(gram_matrix(vectors))
        coefficients, scalars = found.split([self.out_vectors * self.num_vectors, self.out_scalars], -1)
        return coefficients.unflatten(-1, (self.out_vectors, self.num_vectors)) @ vectors, scalars


class GramLayer(nn.Module):
    r"""Graph layer on coordinates and vectors, with all inner products of the vectors of an edge.

    $$u_{ij} = (x_i - x_j, v_i, v_j), \qquad
    m_{ij} = \phi_e(h_i, h_j, \operatorname{asinh}(u_{ij} u_{ij}^\top), a_{ij})$$

    $$v_i' = v_i + \operatorname*{mean}_{j \to i} \, \phi_v(m_{ij}) \, u_{ij}, \qquad x_i' = x_i + w^\top v_i', \qquad
    h_i' = h_i + \phi_h \Bigl( h_i, \sum_{j \to i} m_{ij} \Bigr)$$

    Each node has $k$ vectors $v_i$, such as its velocity. EGNN uses the distance only; this layer also sees angles.

    Reference:
        Villar, Hogg, Storey-Fisher, Yao and Blum-Smith, *Scalars are Universal*, 2021.

    Args:
        dim: Width of the features.
        num_vectors: Number $k$ of vectors per node.
        hidden_dim: Width of the messages and hidden layers. Defaults to `dim`.
        edge_dim: Width of the features of edges.

    Examples:
        >>> layer = GramLayer(8, num_vectors=1)
        >>> h, x, v = layer(torch.randn(5, 8), torch.randn(5, 3), torch.randn(5, 1, 3))
        >>> v.shape
        torch.Size([5, 1, 3])
    """

    def __init__(self, dim: int, *, num_vectors: int, hidden_dim: int | None = None, edge_dim: int = 0) -> None:
        super().__init__()
        if num_vectors < 1:
            raise ValueError(f"num_vectors must be at least 1, got {num_vectors}")
        hidden = dim if hidden_dim is None else hidden_dim
        self.dim, self.edge_dim, self.num_vectors, size = dim, edge_dim, num_vectors, 1 + 2 * num_vectors
        self.message = EdgeMLP(dim, size * (size + 1) // 2 + edge_dim, hidden)
        last = _small_linear(hidden, num_vectors * size, gain=1e-2, bias=False)
        self.coefficient = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), last)
        self.feature = nn.Sequential(nn.Linear(dim + hidden, hidden), nn.SiLU(), nn.Linear(hidden, dim))
        self.step = nn.Parameter(torch.full((num_vectors,), 1 / num_vectors))

    def forward(
        self,
        h: Float[Tensor, "*batch n c"],
        x: Float[Tensor, "*batch n d"],
        vectors: Float[Tensor, "*batch n k d"],
        edges: _EdgeInput = None,
        *,
        edge_attr: Float[Tensor, "..."] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the new features, coordinates and vectors.

        Args:
            h: Features.
            x: Coordinates.
            vectors: Vectors of each node.
            edges: `edge_index`, an adjacency matrix, or None for all pairs of different points.
            edge_attr: Features of the edges: (*batch, e, a) with `edge_index`, else (*batch, n, n, a).
        """
        _check_features(h, self.dim)
        _check_coordinates(x, h)
        _check_vectors(vectors, (*x.shape[:-1], self.num_vectors, x.shape[-1]), name="vectors")
        neighbors = as_edges(edges, x.shape[-2], device=x.device)
        flat = vectors.flatten(-2)
        parts = [_differences(x, neighbors), neighbors.target(flat), neighbors.source(flat)]
        lead = parts[0].shape[:-1]
        u = torch.cat([part.expand(*lead, -1).unflatten(-1, (-1, x.shape[-1])) for part in parts], -2)
        features = _radial_features(gram_matrix(u).asinh(), edge_attr, neighbors, edge_dim=self.edge_dim)
        messages = F.silu(self.message(h, neighbors, features))
        weights = self.coefficient(messages).unflatten(-1, (self.num_vectors, -1))
        vectors = vectors + _mean((weights @ u).flatten(-2), neighbors).unflatten(-1, (self.num_vectors, -1))
        x = x + torch.einsum("k,...kd->...d", self.step, vectors)
        return h + self.feature(torch.cat([h, neighbors.sum(messages)], -1)), x, vectors


def claims() -> Iterator[Claim]:
    """Laws of equivariant layers."""
    egnn, field, gram, pair = EGNNLayer(4), RadialField(4), GramLayer(4, num_vectors=1), GramMLP(3, out_vectors=2)

    def features(x: Tensor) -> Tensor:
        return x.new_ones(*x.shape[:-1], 4)

    def move(x: Tensor) -> Tensor:
        return egnn(features(x), x)[1]

    def move_with_vectors(x: Tensor) -> Tensor:
        return gram(features(x[:, 0]), x[:, 0], x[:, 1:])[1]

    def move_along_field(x: Tensor) -> Tensor:
        return field(x[:, 0], velocity=x[:, 1])[0]

    motions = equivariance(group=Euclidean(3), axis=-1)
    rotations = equivariance(group=Orthogonal(3), axis=-1)
    points, with_velocities = shape("n 3"), shape("n 2 3")
    yield Claim(motions, move, points, name="EGNNLayer, coordinates")
    yield Claim(invariance(group=Euclidean(3), axis=-1), lambda x: egnn(features(x), x)[0], points, name="EGNNLayer, h")
    yield Claim(permutation_equivariance(axis=0), move, points, name="EGNNLayer, coordinates")
    yield Claim(rotations, move_along_field, with_velocities, name="RadialField, coordinates")
    yield Claim(rotations, move_with_vectors, with_velocities, name="GramLayer, coordinates")
    yield Claim(rotations, lambda v: pair(v)[0], shape("b 3 3"), name="GramMLP")
