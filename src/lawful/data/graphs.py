"""Graphs as data: nodes with features, edges, labels; batches of graphs; built-in and random graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from lawful.data.batches import make_generator
from lawful.functions import as_edges


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph: features of the nodes, edges, and labels, as in PyTorch Geometric.

    An undirected graph has both directions of each edge.

    Examples:
        >>> graph = Graph(torch.ones(3, 2), torch.tensor([[0, 1], [1, 2]]), names=("a", "b", "c"))
        >>> graph
        Graph(3 nodes, 2 edges, 2 features)
    """

    x: Float[Tensor, "n d"]
    """Features of the nodes. A graph without features has d = 0."""
    edge_index: Int[Tensor, "2 e"]
    """Source and target of each edge."""
    edge_attr: Float[Tensor, "e a"] | None = None
    """Features of the edges, such as a weight."""
    y: Shaped[Tensor, "k ..."] | None = None
    """Labels of the nodes (k = n), -1 if unknown, or the label of the graph (k = 1)."""
    names: tuple[str, ...] | None = None
    """Names of the nodes."""
    classes: tuple[str, ...] | None = None
    """Names of the classes in `y`."""

    def __post_init__(self) -> None:
        if self.x.dim() != 2 or not self.x.is_floating_point():
            raise ValueError(f"expected x of floats with shape (n, d), got {self.x.dtype} of {tuple(self.x.shape)}")
        n, e = len(self.x), self.edge_index.shape[-1]
        if not n:
            raise ValueError("a graph needs at least one node, got none")
        if self.names is not None and len(self.names) != n:
            raise ValueError(f"expected {n} names, one per node, got {len(self.names)}")
        if self.edge_index.dtype is torch.bool:
            raise ValueError("expected edge_index of integers with shape (2, e), got an adjacency matrix")
        as_edges(self.edge_index, n)
        if bool((wrong := ~self.x.isfinite()).any()):
            node = int(wrong.any(1).nonzero()[0])
            name = node if self.names is None else repr(self.names[node])
            raise ValueError(f"x must be finite, got NaN or infinity at node {name}")
        if self.edge_attr is not None:
            if self.edge_attr.dim() != 2 or len(self.edge_attr) != e:
                raise ValueError(f"expected edge_attr of shape ({e}, a), got {tuple(self.edge_attr.shape)}")
            if not bool(self.edge_attr.isfinite().all()):
                raise ValueError("edge_attr must be finite, got NaN or infinity")
        if self.y is not None and (not self.y.dim() or len(self.y) not in self._label_counts()):
            counts = " or ".join(map(str, self._label_counts()))
            raise ValueError(f"expected y with {counts} labels, got shape {tuple(self.y.shape)}")

    def _label_counts(self) -> tuple[int, ...]:
        return len(self.x), 1

    def __repr__(self) -> str:
        features = f", {self.x.shape[1]} features" if self.x.shape[1] else ""
        return f"{type(self).__name__}({len(self.x)} nodes, {self.num_edges} edges{features})"

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.x)

    @property
    def num_edges(self) -> int:
        """Number of entries of `edge_index`: two for each undirected edge."""
        return self.edge_index.shape[1]

    @property
    def edge_weight(self) -> Float[Tensor, " e"] | None:
        """The only feature of the edges, if there is exactly one."""
        return self.edge_attr[:, 0] if self.edge_attr is not None and self.edge_attr.shape[1] == 1 else None

    @property
    def degree(self) -> Float[Tensor, " n"]:
        """Number of edges to each node."""
        return torch.bincount(self.edge_index[1], minlength=self.num_nodes).float()


@dataclass(frozen=True, eq=False, repr=False)
class GraphBatch(Graph):
    """Several graphs as one graph without edges between them, as in PyTorch Geometric.

    Examples:
        >>> first = Graph(torch.ones(2, 1), torch.tensor([[0], [1]]))
        >>> second = Graph(torch.ones(3, 1), torch.tensor([[0, 1], [1, 2]]))
        >>> batch = GraphBatch.from_graphs([first, second])
        >>> batch.batch, batch.edge_index
        (tensor([0, 0, 1, 1, 1]), tensor([[0, 2, 3],
                [1, 3, 4]]))
        >>> batch.to_graphs()
        [Graph(2 nodes, 1 edges, 1 features), Graph(3 nodes, 2 edges, 1 features)]
    """

    batch: Int[Tensor, " n"] = field(kw_only=True)
    """Graph of each node, in order."""
    num_graphs: int = field(kw_only=True)
    """Number of graphs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch.shape != (self.num_nodes,) or bool((self.batch.diff() < 0).any()):
            raise ValueError(f"batch must be sorted, with one entry for each of {self.num_nodes} nodes")
        if self.num_graphs <= int(self.batch[-1]) or int(self.batch[0]) < 0:
            raise ValueError(f"batch must be below num_graphs={self.num_graphs}, got {int(self.batch[-1])}")
        if bool((self.batch[self.edge_index[0]] != self.batch[self.edge_index[1]]).any()):
            raise ValueError("edge_index must not have edges between graphs of the batch")

    def _label_counts(self) -> tuple[int, ...]:
        return len(self.x), self.num_graphs

    @classmethod
    def from_graphs(cls, graphs: Sequence[Graph]) -> GraphBatch:
        """Joins graphs. They have the same features, and all or none have labels.

        Args:
            graphs: Graphs, at least one.

        Raises:
            ValueError: If the features of the graphs differ.
        """
        if not graphs:
            raise ValueError("a batch needs at least one graph, got none")
        for name in ("x", "edge_attr", "y"):
            shapes = {None if (t := getattr(graph, name)) is None else tuple(t.shape[1:]) for graph in graphs}
            if len(shapes) > 1:
                got = ", ".join("none" if s is None else f"({', '.join(map(str, ('n', *s)))})" for s in shapes)
                raise ValueError(f"the graphs of a batch need {name} of equal width, got shapes {got}")
        sizes = torch.tensor([graph.num_nodes for graph in graphs])
        starts = (sizes.cumsum(0) - sizes).tolist()
        first = graphs[0]
        return cls(
            torch.cat([graph.x for graph in graphs]),
            torch.cat([graph.edge_index + start for graph, start in zip(graphs, starts, strict=True)], 1),
            None if first.edge_attr is None else torch.cat([_present(graph.edge_attr) for graph in graphs]),
            None if first.y is None else torch.cat([_present(graph.y) for graph in graphs]),
            None if any(g.names is None for g in graphs) else tuple(name for g in graphs for name in g.names or ()),
            first.classes,
            batch=torch.arange(len(graphs)).repeat_interleave(sizes).to(first.x.device),
            num_graphs=len(graphs),
        )

    def to_graphs(self) -> list[Graph]:
        """Returns the graphs of the batch."""
        counts = torch.bincount(self.batch, minlength=self.num_graphs).tolist()
        of_edge, graphs, start = self.batch[self.edge_index[0]], [], 0
        per_graph = self.y is not None and len(self.y) == self.num_graphs
        for k, count in enumerate(counts):
            nodes, edges = slice(start, start + count), of_edge == k
            graphs.append(
                Graph(
                    self.x[nodes],
                    self.edge_index[:, edges] - start,
                    None if self.edge_attr is None else self.edge_attr[edges],
                    None if self.y is None else self.y[k : k + 1] if per_graph else self.y[nodes],
                    None if self.names is None else self.names[nodes],
                    self.classes,
                )
            )
            start += count
        return graphs


def _present(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise ValueError("expected a tensor, got None")
    return tensor


def clean_edges(
    edge_index: Int[Tensor, "2 e"], weight: Float[Tensor, " e"] | None, num_nodes: int, *, directed: bool
) -> tuple[Int[Tensor, "2 k"], Float[Tensor, " k"] | None, tuple[str, ...]]:
    """Removes self-loops, merges duplicate edges, and adds the reverse of each edge of an undirected graph.

    Layers add self-loops themselves. The weight of merged edges is their mean.

    Args:
        edge_index: Source and target of each edge.
        weight: Weights of the edges.
        num_nodes: Number of nodes.
        directed: Whether the edges have a direction.

    Returns:
        Edges, weights, and notes for the user.

    Examples:
        >>> clean_edges(torch.tensor([[0, 1, 2], [1, 0, 2]]), None, 3, directed=False)
        (tensor([[0, 1],
                [1, 0]]), None, ('removed 1 self-loop',))
    """
    as_edges(edge_index, num_nodes)
    between = edge_index[0] != edge_index[1]
    index = edge_index[:, between]
    values = torch.ones(edge_index.shape[1])[between] if weight is None else weight[between]
    notes = [(int((~between).sum()), "removed {} self-loop"), (index.shape[1] - index.unique(dim=1).shape[1], "")]
    if not directed:
        index, values = torch.cat([index, index.flip(0)], 1), torch.cat([values, values])
    pairs, inverse = (index[0] * num_nodes + index[1]).unique(return_inverse=True)
    total = values.new_zeros(len(pairs)).index_add(0, inverse, values)
    mean = total / torch.bincount(inverse, minlength=len(pairs)).clamp_min(1)
    (loops, text), (duplicates, _) = notes
    found = [text.format(loops) + "s" * (loops > 1)] if loops else []
    if duplicates:
        averaged = "" if weight is None else "; the weight is their mean"
        found.append(f"merged {duplicates} duplicate edge{'s' if duplicates > 1 else ''}{averaged}")
    return torch.stack([pairs // num_nodes, pairs % num_nodes]), None if weight is None else mean, tuple(found)


# ---------------------------------------------------------------- other libraries


def from_networkx(
    graph: Any, *, features: Sequence[str] = (), label: str | None = None, weight: str | None = None
) -> Graph:
    """Converts a NetworkX graph. An undirected graph gets both directions of each edge.

    Args:
        graph: `networkx.Graph` or `DiGraph`.
        features: Node attributes with numbers, the features `x`.
        label: Node attribute with the class. A node without it is unlabeled.
        weight: Edge attribute with the weight.

    Raises:
        TypeError: If `graph` is not a NetworkX graph.
        ValueError: If a node lacks a feature, or an edge lacks the weight.
    """
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise TypeError(f"expected a networkx.Graph, got {type(graph).__name__}")
    nodes = dict(graph.nodes(data=True))
    number = {node: i for i, node in enumerate(nodes)}
    x = [[_number(nodes[node], name, f"node {node!r}") for name in features] for node in nodes]
    edges = list(graph.edges(data=True))
    index = torch.tensor([[number[a], number[b]] for a, b, _ in edges], dtype=torch.int64).reshape(-1, 2).T
    values = None
    if weight is not None:
        values = torch.tensor([_number(data, weight, f"edge {a!r}, {b!r}") for a, b, data in edges])
    if not nodes:
        raise ValueError("a graph needs at least one node, got none")
    index, values, _ = clean_edges(index, values, len(nodes), directed=graph.is_directed())
    y, classes = None, None
    if label is not None:
        found = [data.get(label) for data in nodes.values()]
        levels = sorted({value for value in found if value is not None}, key=str)
        if not levels:
            raise ValueError(f"no node has the attribute {label!r}")
        classes = tuple(map(str, levels))
        y = torch.tensor([-1 if value is None else levels.index(value) for value in found])
    attr = None if values is None else values[:, None]
    return Graph(torch.tensor(x).reshape(len(nodes), len(features)), index, attr, y, tuple(map(str, nodes)), classes)


def _number(data: Mapping[str, Any], name: str, place: str) -> float:
    value = data.get(name)
    if isinstance(value, bool | np.bool_ | int | float | np.number):
        return float(value)
    raise ValueError(f"expected a number in the attribute {name!r} of {place}, got {value!r}")


def from_pyg(data: Any) -> Graph:
    """Converts a `torch_geometric.data.Data`. The package need not be installed.

    Args:
        data: Object with `edge_index`, and `x`, `edge_attr` and `y` if present.

    Raises:
        TypeError: If `data` has no `edge_index`.
    """
    index = getattr(data, "edge_index", None)
    if not isinstance(index, Tensor):
        raise TypeError(f"expected a torch_geometric.data.Data with edge_index, got {type(data).__name__}")
    x, attr, y = (getattr(data, name, None) for name in ("x", "edge_attr", "y"))
    x = torch.zeros(int(data.num_nodes), 0) if x is None else x.float()
    attr = None if attr is None else attr.float().reshape(len(attr), -1)
    y = y.reshape(1) if isinstance(y, Tensor) and not y.dim() else y
    return Graph(x.reshape(len(x), -1), index.long(), attr, y)


# ---------------------------------------------------------------- built-in and random graphs

_KARATE = """2 3 4 5 6 7 8 9 11 12 13 14 18 20 22 32|3 4 8 14 18 20 22 31|4 8 9 10 14 28 29 33|8 13 14|7 11|7 11 17|17||
31 33 34|34||||34|33 34|33 34|||33 34|34|33 34||33 34|26 28 30 33 34|26 28 32|32|30 34|34|32 34|33 34|33 34|33 34|34|"""
"""Neighbors with a larger number, of each of 34 members."""
_OFFICERS = (10, 15, 16, 19, 21, *range(23, 35))


def karate_club() -> Graph:
    """Returns Zachary's karate club: 34 members, 78 friendships, and the club that each joined after the split.

    Reference:
        Zachary, *An Information Flow Model for Conflict and Fission in Small Groups*, 1977.

    Examples:
        >>> graph = karate_club()
        >>> graph.num_nodes, graph.num_edges, graph.classes
        (34, 156, ('instructor', 'officer'))
    """
    rows = _KARATE.replace("\n", "").split("|")
    pairs = [(i, int(other)) for i, row in enumerate(rows, 1) for other in row.split()]
    index, _, _ = clean_edges(torch.tensor(pairs).T - 1, None, 34, directed=False)
    y = torch.tensor([int(i in _OFFICERS) for i in range(1, 35)])
    names = tuple(str(i) for i in range(1, 35))
    return Graph(torch.zeros(34, 0), index, None, y, names, ("instructor", "officer"))


def stochastic_block_model(
    block_sizes: Sequence[int],
    *,
    p_within: float = 0.04,
    p_between: float = 0.015,
    num_features: int = 8,
    feature_std: float = 1.8,
    seed: int = 0,
) -> Graph:
    r"""Draws a graph whose edges depend on the classes of the nodes: the stochastic block model.

    $$P(i \sim j) = p_\text{within} \text{ if } y_i = y_j \text{ else } p_\text{between}, \qquad
    x_i \sim \mathcal N(\mu_{y_i}, \sigma^2)$$

    The means $\mu$ are standard normal.

    Reference:
        Holland, Laskey and Leinhardt, *Stochastic Blockmodels: First Steps*, 1983.

    Args:
        block_sizes: Number of nodes of each class.
        p_within: Probability of an edge within a class.
        p_between: Probability of an edge between classes.
        num_features: Number of features.
        feature_std: Standard deviation $\sigma$ of the features.
        seed: Random seed.

    Examples:
        >>> stochastic_block_model((30, 30), seed=1).x.shape
        torch.Size([60, 8])
    """
    for name, p in (("p_within", p_within), ("p_between", p_between)):
        if not 0 <= p <= 1:
            raise ValueError(f"{name} must be a probability, got {p}")
    if not block_sizes or min(block_sizes) < 1:
        raise ValueError(f"block_sizes must be positive and at least one, got {tuple(block_sizes)}")
    generator = make_generator(seed)
    y = torch.arange(len(block_sizes)).repeat_interleave(torch.tensor(block_sizes))
    n = len(y)
    p = torch.where(y[:, None] == y, p_within, p_between)
    index = (torch.rand(n, n, generator=generator) < p).triu(1).nonzero().T
    index, _, _ = clean_edges(index, None, n, directed=False)
    means = torch.randn(len(block_sizes), num_features, generator=generator)
    x = means[y] + feature_std * torch.randn(n, num_features, generator=generator)
    names, classes = tuple(map(str, range(n))), tuple(f"block {k}" for k in range(len(block_sizes)))
    return Graph(x, index, None, y, names, classes)


def ring_graphs(num_graphs: int, *, seed: int = 0) -> list[Graph]:
    """Draws graphs of triangles and hexagons; the class is the kind with more nodes.

    A graph has 18, 30 or 42 nodes. Each is in one ring and has one more edge, to a random node. All nodes have three
    neighbors, so that degrees and the Weisfeiler-Leman test (`color_refinement`) say nothing about the class.

    Args:
        num_graphs: Number of graphs, half of each class.
        seed: Random seed.

    Examples:
        >>> graphs = ring_graphs(4)
        >>> [graph.classes[int(graph.y)] for graph in graphs]
        ['triangles', 'hexagons', 'triangles', 'hexagons']
    """
    if num_graphs < 1:
        raise ValueError(f"num_graphs must be at least 1, got {num_graphs}")
    generator, graphs = make_generator(seed), []
    for k in range(num_graphs):
        parts = 3 + 2 * int(torch.randint(3, (), generator=generator))
        more = int(torch.randint(parts // 2 + 1, parts + 1, (), generator=generator))
        nodes, sizes = torch.arange(6 * parts), torch.full((parts,), 6 if k % 2 else 3)
        sizes[more:] = 3 if k % 2 else 6
        size = sizes.repeat_interleave(6)
        after = nodes - nodes % size + (nodes % size + 1) % size
        index, _, _ = clean_edges(
            _add_matching(torch.stack([nodes, after]), generator), None, len(nodes), directed=False
        )
        x, y = torch.zeros(len(nodes), 0), torch.tensor([k % 2])
        graphs.append(Graph(x, index, None, y, None, ("triangles", "hexagons")))
    return graphs


def _add_matching(rings: Int[Tensor, "2 n"], generator: torch.Generator) -> Int[Tensor, "2 e"]:
    """Adds a random perfect matching without edges of the rings."""
    n = rings.shape[1]
    linked = torch.zeros(n, n, dtype=torch.bool)
    linked[rings[0], rings[1]] = linked[rings[1], rings[0]] = True
    while True:
        pairs = torch.randperm(n, generator=generator).reshape(2, -1)
        if not bool(linked[pairs[0], pairs[1]].any()):
            return torch.cat([rings, pairs], 1)
