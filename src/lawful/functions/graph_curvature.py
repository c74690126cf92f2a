"""Curvature of the edges of graphs: Forman and Ollivier-Ricci curvature."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.functions.graphs import adjacency_matrix, as_edges


def forman_curvature(edge_index: Int[Tensor, "2 e"], num_nodes: int) -> Float[Tensor, " e"]:
    r"""Returns the Forman curvature of each edge of an undirected graph, with triangles as faces.

    $$F(u, v) = 4 - d_u - d_v + 3 \, t_{uv}$$

    with the degrees $d$ and the number $t_{uv}$ of triangles at the edge. It is very negative at edges between hubs,
    and large inside of dense groups.

    Reference:
        Samal et al., *Comparative Analysis of Two Discretizations of Ricci Curvature for Complex Networks*, 2018.

    Args:
        edge_index: Both directions of each edge.
        num_nodes: Number of nodes.

    Examples:
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> forman_curvature(path, 3)
        tensor([1., 1., 1., 1.])
    """
    index, adjacency = _undirected(edge_index, num_nodes)
    neighbors = adjacency.to(torch.get_default_dtype())
    degree, (u, v) = neighbors.sum(1), index
    triangles = torch.cat(
        [(neighbors[a] * neighbors[b]).sum(1) for a, b in zip(u.split(4096), v.split(4096), strict=True)]
    )
    return 4 - degree[u] - degree[v] + 3 * triangles


def ollivier_curvature(edge_index: Int[Tensor, "2 e"], num_nodes: int, *, idleness: float = 0.0) -> Float[Tensor, " e"]:
    r"""Returns the Ollivier-Ricci curvature of each edge of an undirected graph.

    $$\kappa(u, v) = 1 - W_1(m_u, m_v), \qquad
    m_u = \alpha \, \delta_u + \frac{1 - \alpha}{d_u} \sum_{w \sim u} \delta_w$$

    with the distance $W_1$ of optimal transport between random walks that take one step from $u$ and from $v$. Positive
    edges are inside of communities, negative ones are bridges between them. A linear
    program is solved for each edge. It needs SciPy.

    Reference:
        Ollivier, *Ricci Curvature of Markov Chains on Metric Spaces*, 2009.

    Args:
        edge_index: Both directions of each edge.
        num_nodes: Number of nodes.
        idleness: Probability $\alpha$ that the random walk stays.

    Examples:
        >>> square = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])
        >>> bool((ollivier_curvature(square, 4).abs() < 1e-6).all())
        True
    """
    if not 0 <= idleness < 1:
        raise ValueError(f"idleness must be at least 0 and below 1, got {idleness}")
    index, adjacency = _undirected(edge_index, num_nodes)
    neighbors = adjacency.cpu().numpy()
    near = [np.flatnonzero(row) for row in neighbors]
    found: dict[tuple[int, int], float] = {}
    for u, v in index.T.tolist():
        if (v, u) not in found:
            found[u, v] = 1 - _transport(neighbors, near, u, v, idleness)
    values = [found[u, v] if (u, v) in found else found[v, u] for u, v in index.T.tolist()]
    return torch.tensor(values, device=edge_index.device).to(torch.get_default_dtype())


def _transport(neighbors: np.ndarray, near: list[np.ndarray], u: int, v: int, idleness: float) -> float:
    """Returns the optimal transport distance of the random walks from two neighbors."""
    from scipy.optimize import linprog

    a, b = np.append(near[u], u), np.append(near[v], v)
    p = np.append(np.full(len(a) - 1, (1 - idleness) / (len(a) - 1)), idleness)
    q = np.append(np.full(len(b) - 1, (1 - idleness) / (len(b) - 1)), idleness)
    # two neighbors of u and v are at most three edges apart
    two = (neighbors[a].astype(np.float32) @ neighbors[:, b].astype(np.float32)) > 0
    cost = np.where(a[:, None] == b, 0, np.where(neighbors[np.ix_(a, b)], 1, np.where(two, 2, 3)))
    sums = np.concatenate([np.kron(np.eye(len(a)), np.ones(len(b))), np.kron(np.ones(len(a)), np.eye(len(b)))])
    plan = linprog(cost.ravel(), A_eq=sums, b_eq=np.concatenate([p, q]), method="highs")
    if plan.status != 0:
        raise RuntimeError(f"the transport of edge ({u}, {v}) was not solved: {plan.message}")
    return float(plan.fun)


def _undirected(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Returns the edges and the adjacency matrix of an undirected graph without self-loops."""
    index = as_edges(edge_index, num_nodes).index  # type: ignore[union-attr]
    adjacency = adjacency_matrix(edge_index, num_nodes)
    if bool((adjacency != adjacency.T).any()):
        raise ValueError("expected an undirected graph: add the reverse of each edge")
    if bool(adjacency.diagonal().any()):
        raise ValueError(f"expected no self-loops, got one at node {int(adjacency.diagonal().nonzero()[0])}")
    return index, adjacency
