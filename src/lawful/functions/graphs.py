"""Graphs: edges as indices or as an adjacency matrix, neighbors of points, positional features, color refinement.

Edges are given in one of two forms, and every function and block takes both:

- `edge_index`: integers of shape (2, e) with the source and the target of each edge, as in PyTorch Geometric. A batch
  of graphs is one graph without edges between its parts.
- an adjacency matrix: booleans of shape (*batch, n, n), true at [source, target].
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lawful.functions._validation import any_true
from lawful.laws import Claim, permutation_equivariance, shape


@dataclass(frozen=True)
class SparseEdges:
    """Edges as indices: features of edges have shape (*batch, e, d)."""

    index: Int[Tensor, "2 e"]
    num_nodes: int

    def source(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch e d"]:
        """Returns the features of the source of each edge."""
        return x.index_select(-2, self.index[0])

    def target(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch e d"]:
        """Returns the features of the target of each edge."""
        return x.index_select(-2, self.index[1])

    def sum(self, m: Float[Tensor, "*batch e d"]) -> Float[Tensor, "*batch n d"]:
        """Sums messages at their targets."""
        return m.new_zeros(*m.shape[:-2], self.num_nodes, m.shape[-1]).index_add(-2, self.index[1], m)

    def max(self, m: Float[Tensor, "*batch e d"]) -> Float[Tensor, "*batch n d"]:
        """Returns the largest message at each target, and 0 without messages."""
        index = self.index[1][:, None].expand_as(m)
        empty = m.new_zeros(*m.shape[:-2], self.num_nodes, m.shape[-1])
        return empty.scatter_reduce(-2, index, m, "amax", include_self=False)

    def softmax(self, scores: Float[Tensor, "*batch e h"]) -> Float[Tensor, "*batch e h"]:
        """Normalizes scores over the edges to each target."""
        weights = (scores - self.target(self.max(scores.detach()))).exp()
        return weights / self.target(self.sum(weights))

    def degree(self, like: Tensor) -> Float[Tensor, "n 1"]:
        """Returns the number of edges to each node."""
        return self.sum(like.new_ones(self.index.shape[1], 1))


@dataclass(frozen=True)
class DenseEdges:
    """Edges as an adjacency matrix: features of edges have shape (*batch, n, n, d)."""

    adjacency: Bool[Tensor, "*batch n n"]

    def source(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n 1 d"]:
        """Returns the features of the source of each edge."""
        return x[..., :, None, :]

    def target(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch 1 n d"]:
        """Returns the features of the target of each edge."""
        return x[..., None, :, :]

    def sum(self, m: Float[Tensor, "*batch n n d"]) -> Float[Tensor, "*batch n d"]:
        """Sums messages at their targets."""
        return torch.where(self.adjacency[..., None], m, 0.0).sum(-3)

    def max(self, m: Float[Tensor, "*batch n n d"]) -> Float[Tensor, "*batch n d"]:
        """Returns the largest message at each target, and 0 without messages."""
        if not m.shape[-3]:
            return m.sum(-3)
        largest = torch.where(self.adjacency[..., None], m, -math.inf).amax(-3)
        return torch.where(self.adjacency.any(-2)[..., None], largest, 0.0)

    def softmax(self, scores: Float[Tensor, "*batch n n h"]) -> Float[Tensor, "*batch n n h"]:
        """Normalizes scores over the edges to each target."""
        weights = (scores - self.target(self.max(scores.detach()))).exp() * self.adjacency[..., None]
        return weights / self.target(self.sum(weights)).clamp_min(torch.finfo(scores.dtype).tiny)

    def degree(self, like: Tensor) -> Float[Tensor, "*batch n 1"]:
        """Returns the number of edges to each node."""
        return self.adjacency.sum(-2).to(like)[..., None]


Edges = SparseEdges | DenseEdges


def as_edges(
    edges: Int[Tensor, "2 e"] | Bool[Tensor, "*batch n n"] | None, num_nodes: int, *, device: torch.device | None = None
) -> Edges:
    """Returns edges with the operations of message passing.

    Args:
        edges: `edge_index`, an adjacency matrix, or None for all pairs of different nodes.
        num_nodes: Number of nodes.
        device: Device of the pairs if `edges` is None.

    Examples:
        >>> as_edges(torch.tensor([[0, 1], [1, 2]]), 3).sum(torch.tensor([[5.0], [7.0]]))
        tensor([[0.],
                [5.],
                [7.]])
    """
    if edges is None:
        return DenseEdges(~torch.eye(num_nodes, dtype=torch.bool, device=device))
    if edges.dtype == torch.bool:
        if edges.shape[-2:] != (num_nodes, num_nodes):
            raise ValueError(
                f"expected an adjacency matrix of shape (*batch, {num_nodes}, {num_nodes}), got {tuple(edges.shape)}"
            )
        return DenseEdges(edges)
    if edges.is_floating_point() or edges.is_complex() or edges.dim() != 2 or edges.shape[0] != 2:
        raise ValueError(
            f"expected edge_index of integers with shape (2, e), or a boolean adjacency matrix, got {edges.dtype} of "
            f"shape {tuple(edges.shape)}"
        )
    if any_true((edges < 0) | (edges >= num_nodes)):
        wrong = edges[(edges < 0) | (edges >= num_nodes)][0].item()
        raise ValueError(f"edge_index has node {wrong}, but there are {num_nodes} nodes, 0 to {num_nodes - 1}")
    return SparseEdges(edges.long(), num_nodes)


def adjacency_matrix(edge_index: Int[Tensor, "2 e"], num_nodes: int) -> Bool[Tensor, "n n"]:
    """Returns the adjacency matrix of edges. Duplicate edges count once.

    Args:
        edge_index: Source and target of each edge.
        num_nodes: Number of nodes.

    Examples:
        >>> adjacency_matrix(torch.tensor([[0], [1]]), 2)
        tensor([[False,  True],
                [False, False]])
    """
    index = as_edges(edge_index, num_nodes).index  # type: ignore[union-attr]
    matrix = torch.zeros(num_nodes, num_nodes, dtype=torch.bool, device=index.device)
    matrix[index[0], index[1]] = True
    return matrix


def knn_graph(x: Float[Tensor, "n d"], k: int) -> Int[Tensor, "2 e"]:
    """Returns edges to each point from its k nearest other points.

    Args:
        x: Points.
        k: Number of neighbors, less than the number of points.

    Examples:
        >>> knn_graph(torch.tensor([[0.0], [1.0], [3.0]]), 1)
        tensor([[1, 0, 1],
                [0, 1, 2]])
    """
    n = _check_points(x)
    if not 1 <= k < max(n, 2):
        raise ValueError(f"k must be from 1 to {n - 1}, the number of other points, got {k}")
    distances = torch.cdist(x, x).fill_diagonal_(math.inf)
    source = distances.topk(k, largest=False).indices if n > 1 else x.new_zeros(n, 0, dtype=torch.int64)
    target = torch.arange(n, device=x.device)[:, None].expand_as(source)
    return torch.stack([source.flatten(), target.flatten()])


def radius_graph(x: Float[Tensor, "n d"], radius: float) -> Int[Tensor, "2 e"]:
    """Returns edges between all pairs of different points at a distance up to `radius`.

    Args:
        x: Points.
        radius: Largest distance.

    Examples:
        >>> radius_graph(torch.tensor([[0.0], [1.0], [3.0]]), 1.5)
        tensor([[0, 1],
                [1, 0]])
    """
    _check_points(x)
    if not radius > 0:
        raise ValueError(f"radius must be positive, got {radius}")
    return (torch.cdist(x, x).fill_diagonal_(math.inf) <= radius).nonzero().T.contiguous()


def _check_points(x: Tensor) -> int:
    if x.dim() != 2:
        raise ValueError(f"expected points of shape (n, d), got {tuple(x.shape)}")
    if any_true(~x.isfinite()):
        raise ValueError("points must be finite, got NaN or infinite values")
    return len(x)


def graph_laplacian(adjacency: Bool[Tensor, "*batch n n"] | Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""Returns the symmetric normalized Laplacian of an undirected graph.

    $$L = 1 - D^{-1/2} A D^{-1/2}$$

    Rows and columns of isolated nodes are 0.

    Args:
        adjacency: Symmetric adjacency matrix $A$, or weights.

    Examples:
        >>> graph_laplacian(torch.tensor([[False, True], [True, False]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    if adjacency.dim() < 2 or adjacency.shape[-1] != adjacency.shape[-2]:
        raise ValueError(f"expected an adjacency matrix of shape (*batch, n, n), got {tuple(adjacency.shape)}")
    a = adjacency if adjacency.is_floating_point() else adjacency.to(torch.get_default_dtype())
    if any_true(a != a.mT):
        raise ValueError("expected a symmetric adjacency matrix: add the reverse of each edge")
    degree = a.sum(-1)
    root = torch.where(degree > 0, degree, 1.0).rsqrt() * (degree > 0)
    return torch.diag_embed((degree > 0).to(a)) - root[..., :, None] * a * root[..., None, :]


def laplacian_features(
    adjacency: Bool[Tensor, "n n"] | Float[Tensor, "n n"], k: int, *, signs: str = "fixed"
) -> Float[Tensor, "n k"]:
    r"""Returns positional features of nodes: eigenvectors of the Laplacian with the smallest nonzero eigenvalues.

    An eigenvector is determined up to its sign (`eigh` returns either), and only up to rotation if its eigenvalue
    repeats.

    - `signs="fixed"`: the entry with the largest absolute value is positive. A renumbering of the nodes permutes the
      features, if the eigenvalues are simple and the largest entry is unique.
    - `signs="random"`: random signs, for training: the model learns to ignore them.
    - `signs="absolute"`: absolute values.

    Columns beyond the number of nonzero eigenvalues are 0.

    Reference:
        Dwivedi et al., *Benchmarking Graph Neural Networks*, 2020.

    Args:
        adjacency: Symmetric adjacency matrix, or weights.
        k: Number of features.
        signs: "fixed", "random" or "absolute".

    Examples:
        >>> path = torch.diag(torch.ones(2), 1)
        >>> laplacian_features(path + path.T, 1, signs="absolute")
        tensor([[0.7071],
                [0.0000],
                [0.7071]])
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if signs not in ("fixed", "random", "absolute"):
        raise ValueError(f"signs must be 'fixed', 'random' or 'absolute', got {signs!r}")
    values, vectors = torch.linalg.eigh(graph_laplacian(adjacency.double()))
    vectors = vectors[:, values > 1e-9][:, :k]
    vectors = torch.where(vectors.abs() < 1e-12, 0.0, vectors)
    if signs == "absolute":
        vectors = vectors.abs()
    elif signs == "random":
        vectors = vectors * (2 * torch.randint(2, (vectors.shape[1],), device=vectors.device) - 1)
    elif vectors.numel():
        vectors = vectors * vectors.gather(0, vectors.abs().round(decimals=9).argmax(0, keepdim=True)).sign()
    dtype = adjacency.dtype if adjacency.is_floating_point() else torch.get_default_dtype()
    return torch.nn.functional.pad(vectors, (0, k - vectors.shape[1])).to(dtype)


def color_refinement(
    edge_index: Int[Tensor, "2 e"], num_nodes: int, *, colors: Int[Tensor, " n"] | None = None, steps: int | None = None
) -> Int[Tensor, " n"]:
    """Colors nodes by the Weisfeiler-Leman test: nodes of equal color have neighbors of equal colors.

    A message-passing network with the initial colors as features cannot distinguish nodes of equal color, or graphs
    with equal color counts. To compare two graphs, pass them as one graph without edges between them.

    Args:
        edge_index: Source and target of each edge.
        num_nodes: Number of nodes.
        colors: Initial colors. Defaults to one color.
        steps: Number of refinements. By default, until the colors do not change.

    Examples:
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> color_refinement(path, 3)
        tensor([0, 1, 0])
    """
    source, target = as_edges(edge_index, num_nodes).index.tolist()  # type: ignore[union-attr]
    current = [0] * num_nodes if colors is None else colors.tolist()
    if len(current) != num_nodes:
        raise ValueError(f"expected {num_nodes} colors, got {len(current)}")
    for _ in range(num_nodes if steps is None else steps):
        received: list[list[int]] = [[] for _ in range(num_nodes)]
        for i, j in zip(source, target, strict=True):
            received[j].append(current[i])
        signatures = [(own, tuple(sorted(others))) for own, others in zip(current, received, strict=True)]
        number = {signature: k for k, signature in enumerate(sorted(set(signatures)))}
        refined = [number[signature] for signature in signatures]
        if steps is None and len(number) == len(set(current)):
            break
        current = refined
    return torch.tensor(current, dtype=torch.int64)


def propagate_labels(
    labels: Int[Tensor, " n"] | Float[Tensor, "n c"],
    edge_index: Int[Tensor, "2 e"],
    *,
    num_classes: int | None = None,
    edge_weight: Float[Tensor, " e"] | None = None,
    steps: int = 50,
) -> Float[Tensor, "n c"]:
    r"""Spreads known labels along the edges: label propagation.

    $$p_i \leftarrow \frac{\sum_{j \to i} w_{ij} \, p_j}{\sum_{j \to i} w_{ij}}$$

    A node with a known label keeps it. A node that no known label reaches has 0 everywhere.

    Reference:
        Zhu, Ghahramani and Lafferty, *Semi-Supervised Learning Using Gaussian Fields and Harmonic Functions*, 2003.

    Args:
        labels: Class of each node, -1 if it is unknown; or one-hot labels, with 0 everywhere if unknown.
        edge_index: Source and target of each edge.
        num_classes: Number of classes. Defaults to the largest label plus 1.
        edge_weight: Positive weights $w_{ij}$. Defaults to 1.
        steps: Number of steps.

    Returns:
        Probabilities of the classes; they sum to at most 1.

    Examples:
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> propagate_labels(torch.tensor([0, -1, 1]), path)
        tensor([[1.0000, 0.0000],
                [0.5000, 0.5000],
                [0.0000, 1.0000]])
    """
    if labels.is_floating_point():
        known = labels
    else:
        count = int(labels.max()) + 1 if num_classes is None else num_classes
        if count < 1 or any_true(labels >= count):
            raise ValueError(f"labels must be below num_classes, got {int(labels.max())} and num_classes={count}")
        known = torch.nn.functional.one_hot(labels.clamp_min(0), count) * (labels >= 0)[:, None]
        known = known.to(torch.get_default_dtype())
    n, is_known = len(known), (known != 0).any(-1, keepdim=True)
    source, target = as_edges(edge_index, n).index  # type: ignore[union-attr]
    weight = known.new_ones(len(source)) if edge_weight is None else edge_weight.to(known)
    total = known.new_zeros(n).index_add(0, target, weight)
    share = weight / torch.where(total > 0, total, 1.0)[target]
    matrix = _sparse_matrix(target, source, share, n)
    p = known
    for _ in range(steps):
        p = torch.where(is_known, known, matrix @ p)
    return p


def return_probabilities(edge_index: Int[Tensor, "2 e"], num_nodes: int, steps: int) -> Float[Tensor, "n steps"]:
    r"""Returns the probability that a random walk from each node is back after 1, 2, ... steps.

    $$p_{ik} = \bigl[ (D^{-1} A)^k \bigr]_{ii}$$

    These features distinguish rings, which `color_refinement` and message passing alone do not: the third column is
    positive only for nodes of triangles.

    Reference:
        Dwivedi et al., *Graph Neural Networks with Learnable Structural and Positional Representations*, 2022.

    Args:
        edge_index: Source and target of each edge.
        num_nodes: Number of nodes.
        steps: Largest number of steps.

    Examples:
        >>> triangle = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
        >>> return_probabilities(triangle, 3, 3)[0]
        tensor([0.0000, 0.5000, 0.2500])
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    source, target = as_edges(edge_index, num_nodes).index  # type: ignore[union-attr]
    degree = torch.zeros(num_nodes, device=source.device).index_add(0, source, torch.ones_like(source).float())
    matrix = _sparse_matrix(source, target, (1 / degree.clamp_min(1))[source], num_nodes)
    found = torch.empty(num_nodes, steps, device=source.device)
    for start in range(0, num_nodes, _MAX_WALKS):
        nodes = torch.arange(start, min(start + _MAX_WALKS, num_nodes), device=source.device)
        columns = torch.arange(len(nodes), device=source.device)
        p = torch.zeros(num_nodes, len(nodes), device=source.device)
        p[nodes, columns] = 1.0
        for k in range(steps):
            p = matrix @ p
            found[nodes, k] = p[nodes, columns]
    return found


_MAX_WALKS = 1024
"""Number of nodes whose walks are computed together."""


def _sparse_matrix(rows: Tensor, columns: Tensor, values: Tensor, n: int) -> Tensor:
    """Returns a sparse matrix; entries at the same place are added."""
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, (n, n), check_invariants=False).coalesce()


def claims() -> Iterator[Claim]:
    """Laws of functions on graphs."""

    def distances(x: Tensor, k: int) -> Tensor:
        index = knn_graph(x, k)
        return (x[index[0]] - x[index[1]]).square().sum(-1).reshape(len(x), k)

    yield Claim(permutation_equivariance(axis=0), partial(distances, k=2), shape("n:3..9 2"), name="knn_graph")
