"""Graph neural networks for nodes and for whole graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import EdgeMLP, GraphAttention, GraphConv, MessagePassing
from lawful.blocks.graph import _check_features
from lawful.laws import Claim, node_permutation_equivariance, node_permutation_invariance, shape, tokens

GraphLayerKind = Literal["gcn", "gat", "message-passing"]
"""Kind of the layers of a `GNN`."""


class _Update(nn.Module):
    """Linear map of a node and its aggregated messages."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * dim, dim)

    def forward(self, x: Float[Tensor, "n d"], m: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return self.linear(torch.cat([x, m], -1))


class GNN(nn.Module):
    r"""Graph neural network with residual layers, whose outputs are concatenated.

    $$h_{\ell + 1} = h_\ell + \sigma(\mathrm{layer}_\ell(\mathrm{LayerNorm}(h_\ell), E)), \qquad
    y = W [h_0, \dots, h_L] + b$$

    A node sees its features without the graph in $h_0$, and nodes at a distance up to $L$ in $h_L$.

    Reference:
        Xu, Li, Tian, Sonobe, Kawarabayashi and Jegelka, *Representation Learning on Graphs with Jumping Knowledge
        Networks*, 2018.

    Args:
        in_dim: Width of the input.
        out_dim: Width of the output.
        layers: Layers with input and output of width `dim`, called with features, `edge_index` and edge weights.
        dim: Width of the layers.
        dropout: Dropout probability.

    Examples:
        >>> model = build_gnn(8, 3, layer="gat", dim=16)
        >>> model(torch.randn(5, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([5, 3])
    """

    def __init__(
        self, in_dim: int, out_dim: int, *, layers: Sequence[nn.Module], dim: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(in_dim, dim)
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in layers)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear((len(layers) + 1) * dim, out_dim)

    def forward(
        self, x: Float[Tensor, "n d"], edge_index: Int[Tensor, "2 e"], edge_weight: Float[Tensor, " e"] | None = None
    ) -> Float[Tensor, "n c"]:
        """Returns an output for each node.

        Args:
            x: Features of the nodes.
            edge_index: Source and target of each edge.
            edge_weight: Weights of the edges.
        """
        return self.out(self.dropout(self.features(x, edge_index, edge_weight)))

    def features(
        self, x: Float[Tensor, "n d"], edge_index: Int[Tensor, "2 e"], edge_weight: Float[Tensor, " e"] | None = None
    ) -> Float[Tensor, "n m"]:
        """Returns the outputs of all layers, side by side."""
        _check_features(x, self.embed.in_features)
        h = self.embed(x)
        found = [h]
        for norm, layer in zip(self.norms, self.layers, strict=True):
            h = h + F.silu(layer(self.dropout(norm(h)), edge_index, edge_weight))
            found.append(h)
        return torch.cat(found, -1)


class _Weighted(nn.Module):
    """A layer with edge weights as features of the edges, or without."""

    def __init__(self, layer: nn.Module, *, weighted: bool) -> None:
        super().__init__()
        self.layer, self.weighted = layer, weighted

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        if not self.weighted:
            return self.layer(x, edge_index)
        weight = x.new_ones(edge_index.shape[1]) if edge_weight is None else edge_weight
        return self.layer(x, edge_index, weight[:, None])


class GraphPool(nn.Module):
    r"""Whole graphs from nodes: the mean and the sum of the features, then an MLP.

    $$y_g = \mathrm{MLP} \Bigl[ \frac{1}{n_g} \sum_{i \in g} h_i, \; \frac{1}{\bar n} \sum_{i \in g} h_i \Bigr]$$

    Args:
        gnn: Network for the nodes.
        out_dim: Width of the output.
        mean_size: Mean number $\bar n$ of nodes of a graph.
        dim: Width of the hidden layer.

    Examples:
        >>> model = GraphPool(build_gnn(8, 16), 3, dim=16, mean_size=2.5)
        >>> model(torch.randn(5, 8), torch.tensor([[0, 1], [1, 2]]), batch=torch.tensor([0, 0, 0, 1, 1])).shape
        torch.Size([2, 3])
    """

    def __init__(self, gnn: GNN, out_dim: int, *, dim: int, mean_size: float = 1.0) -> None:
        super().__init__()
        width = 2 * gnn.out.out_features
        self.gnn, self.mean_size = gnn, mean_size
        self.head = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, dim), nn.SiLU(), gnn.dropout, nn.Linear(dim, out_dim)
        )

    def forward(
        self,
        x: Float[Tensor, "n d"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        *,
        batch: Int[Tensor, " n"] | None = None,
        num_graphs: int | None = None,
    ) -> Float[Tensor, "g c"]:
        """Returns an output for each graph.

        Args:
            x: Features of the nodes.
            edge_index: Source and target of each edge.
            edge_weight: Weights of the edges.
            batch: Graph of each node. Defaults to one graph.
            num_graphs: Number of graphs. Defaults to the largest entry of `batch` plus 1.
        """
        h = F.silu(self.gnn(x, edge_index, edge_weight))
        batch = torch.zeros(len(x), dtype=torch.int64, device=x.device) if batch is None else batch
        count = int(batch.max()) + 1 if num_graphs is None else num_graphs
        total = h.new_zeros(count, h.shape[1]).index_add(0, batch, h)
        sizes = h.new_zeros(count).index_add(0, batch, h.new_ones(len(h)))[:, None]
        return self.head(torch.cat([total / sizes.clamp_min(1), total / self.mean_size], -1))


def build_gnn(
    in_dim: int,
    out_dim: int,
    *,
    layer: GraphLayerKind = "gcn",
    dim: int = 64,
    num_layers: int = 2,
    num_heads: int = 4,
    dropout: float = 0.0,
    aggregation: Literal["sum", "mean", "max"] = "mean",
) -> GNN:
    """Builds a graph neural network.

    Args:
        in_dim: Width of the input.
        out_dim: Width of the output.
        layer: `GraphConv` ("gcn"), `GraphAttention` ("gat", which ignores edge weights) or `MessagePassing` with an MLP
            of the edges ("message-passing").
        dim: Width of the layers.
        num_layers: Number of layers.
        num_heads: Number of heads of graph attention. It divides `dim`.
        dropout: Dropout probability.
        aggregation: Aggregation of message passing.

    Examples:
        >>> len(build_gnn(8, 3, num_layers=3).layers)
        3
    """
    kinds: dict[str, Callable[[], nn.Module]] = {
        "gcn": lambda: GraphConv(dim, dim),
        "gat": lambda: _Weighted(GraphAttention(dim, dim, num_heads=num_heads, dropout=dropout), weighted=False),
        "message-passing": lambda: _Weighted(
            MessagePassing(EdgeMLP(dim, 1, dim), _Update(dim), aggregation=aggregation), weighted=True
        ),
    }
    if layer not in kinds:
        raise ValueError(f"layer must be one of {', '.join(kinds)}, got {layer!r}")
    if num_layers < 1:
        raise ValueError(f"num_layers must be at least 1, got {num_layers}")
    return GNN(in_dim, out_dim, layers=[kinds[layer]() for _ in range(num_layers)], dim=dim, dropout=dropout)


def claims() -> Iterator[Claim]:
    """Laws of graph neural networks."""
    inputs = shape("4 3"), tokens("2 e:1..9", 4)
    kinds: tuple[GraphLayerKind, ...] = ("gcn", "gat", "message-passing")
    for kind in kinds:
        model = build_gnn(3, 2, layer=kind, dim=4, num_heads=2)
        yield Claim(node_permutation_equivariance(), model, inputs, name=f"GNN, {kind}")
    pool = GraphPool(build_gnn(3, 4, dim=4), 2, dim=4)
    yield Claim(node_permutation_invariance(), pool, inputs, name="GraphPool")
