"""Layers on graphs: message passing, graph convolution and graph attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.functions._validation import any_true
from lawful.functions.graphs import DenseEdges, Edges, SparseEdges, as_edges
from lawful.laws import Claim, node_permutation_equivariance, shape, tokens

_EdgeInput = Int[Tensor, "2 e"] | Bool[Tensor, "*batch n n"] | None


def _check_features(x: Tensor, dim: int) -> None:
    if x.dim() < 2 or x.shape[-1] != dim:
        raise ValueError(f"expected features of nodes of shape (*batch, n, {dim}), got {tuple(x.shape)}")


class EdgeMLP(nn.Module):
    r"""MLP of the two nodes of each edge and the features of the edge.

    $$m_{ij} = W_2 \, \sigma(W_t h_i + W_s h_j + W_e a_{ij} + b_1) + b_2$$

    It equals an MLP of the concatenation. The first layer is applied to nodes, of which there are fewer than edges.

    Args:
        dim: Width of the nodes.
        edge_dim: Width of the features of edges.
        hidden_dim: Width of the hidden layer.
        out_dim: Width of the messages. Defaults to `hidden_dim`.
        activation: Activation $\sigma$.
    """

    def __init__(
        self,
        dim: int,
        edge_dim: int,
        hidden_dim: int,
        out_dim: int | None = None,
        *,
        activation: Callable[[Tensor], Tensor] = F.silu,
    ) -> None:
        super().__init__()
        self.target, self.source = nn.Linear(dim, hidden_dim), nn.Linear(dim, hidden_dim, bias=False)
        self.edge = nn.Linear(edge_dim, hidden_dim, bias=False) if edge_dim else None
        self.out = nn.Linear(hidden_dim, hidden_dim if out_dim is None else out_dim)
        self.activation = activation

    def forward(
        self, x: Float[Tensor, "*batch n d"], edges: Edges, edge_attr: Float[Tensor, "..."] | None = None
    ) -> Float[Tensor, "..."]:
        """Returns a message for each edge.

        Args:
            x: Features of the nodes.
            edges: Edges, from `as_edges`.
            edge_attr: Features of the edges.
        """
        hidden = edges.target(self.target(x)) + edges.source(self.source(x))
        if self.edge is not None:
            if edge_attr is None or edge_attr.shape[-1] != self.edge.in_features:
                got = None if edge_attr is None else tuple(edge_attr.shape)
                raise ValueError(f"expected edge_attr with {self.edge.in_features} features per edge, got {got}")
            hidden = hidden + self.edge(edge_attr)
        elif edge_attr is not None:
            raise ValueError("got edge_attr, but edge_dim is 0")
        return self.out(self.activation(hidden))


class MessagePassing(nn.Module):
    r"""Message passing with any message, aggregation and update.

    $$h_i' = \mathrm{update}\Bigl( h_i, \operatorname*{aggregate}_{j \to i} \mathrm{message}(h_i, h_j, a_{ij}) \Bigr)$$

    Reference:
        Gilmer, Schoenholz, Riley, Vinyals and Dahl, *Neural Message Passing for Quantum Chemistry*, 2017.

    Args:
        message: Map from the features of the nodes, the edges and the features of the edges to messages, such as
            `EdgeMLP`, or `lambda x, edges, edge_attr: edges.source(x)`.
        update: Map from the features of the nodes and the aggregated messages to new features.
        aggregation: "sum", "mean" or "max". A node without incoming edges receives 0.

    Examples:
        >>> layer = MessagePassing(lambda x, edges, edge_attr: edges.source(x), torch.add)
        >>> layer(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[0, 1], [2, 2]]))
        tensor([[1.],
                [2.],
                [7.]])
    """

    def __init__(
        self,
        message: Callable[[Tensor, Edges, Tensor | None], Tensor],
        update: Callable[[Tensor, Tensor], Tensor],
        *,
        aggregation: Literal["sum", "mean", "max"] = "sum",
    ) -> None:
        super().__init__()
        if aggregation not in ("sum", "mean", "max"):
            raise ValueError(f"aggregation must be 'sum', 'mean' or 'max', got {aggregation!r}")
        self.message, self.update, self.aggregation = message, update, aggregation

    def forward(
        self, x: Float[Tensor, "*batch n d"], edges: _EdgeInput = None, edge_attr: Float[Tensor, "..."] | None = None
    ) -> Float[Tensor, "*batch n c"]:
        """Passes messages once.

        Args:
            x: Features of the nodes.
            edges: `edge_index`, an adjacency matrix, or None for all pairs of different nodes.
            edge_attr: Features of the edges: (*batch, e, a) with `edge_index`, else (*batch, n, n, a).
        """
        neighbors = as_edges(edges, x.shape[-2], device=x.device)
        messages = self.message(x, neighbors, edge_attr)
        if isinstance(neighbors, DenseEdges):  # a message may depend on the source only
            messages = messages.expand(*messages.shape[:-3], x.shape[-2], x.shape[-2], messages.shape[-1])
        received = neighbors.max(messages) if self.aggregation == "max" else neighbors.sum(messages)
        if self.aggregation == "mean":
            received = received / neighbors.degree(x).clamp_min(1)
        return self.update(x, received)


class GraphConv(nn.Module):
    r"""Graph convolution: the mean of a node and its neighbors, normalized by degrees, then a linear map.

    $$h_i' = W \sum_{j \to i} \frac{w_{ij} h_j}{\sqrt{d_i d_j}} + W \frac{h_i}{d_i} + b,
    \qquad d_i = 1 + \sum_{j \to i} w_{ij}$$

    Reference:
        Kipf and Welling, *Semi-Supervised Classification with Graph Convolutional Networks*, 2017.

    Args:
        in_dim: Width of the input.
        out_dim: Width of the output.
        bias: Whether to add a bias.

    Examples:
        >>> layer = GraphConv(8, 16)
        >>> layer(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 16])
    """

    def __init__(self, in_dim: int, out_dim: int, *, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(in_dim, out_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_dim)) if bias else None
        nn.init.xavier_uniform_(self.linear.weight)

    def forward(
        self, x: Float[Tensor, "*batch n d"], edges: _EdgeInput = None, edge_weight: Float[Tensor, "..."] | None = None
    ) -> Float[Tensor, "*batch n c"]:
        """Applies the layer.

        Args:
            x: Features of the nodes.
            edges: `edge_index`, an adjacency matrix, or None for all pairs of different nodes.
            edge_weight: Weights $w_{ij}$ of the edges: (*batch, e) or (*batch, n, n). Defaults to 1.
        """
        _check_features(x, self.linear.in_features)
        neighbors = as_edges(edges, x.shape[-2], device=x.device)
        weight = None if edge_weight is None else edge_weight[..., None]
        degree = neighbors.degree(x) if weight is None else neighbors.sum(weight)
        if weight is not None and any_true(degree <= -1):
            raise ValueError(f"the edge weights of a node must sum to more than -1, got {float(degree.min()):g}")
        root = (1 + degree).rsqrt()
        scaled = self.linear(x) * root
        messages = neighbors.source(scaled) if weight is None else neighbors.source(scaled) * weight
        if isinstance(neighbors, DenseEdges) and weight is None:
            received = neighbors.adjacency.to(x).mT @ scaled
        else:
            received = neighbors.sum(messages)
        y = (received + scaled) * root
        return y if self.bias is None else y + self.bias


class GraphAttention(nn.Module):
    r"""Graph attention: each node attends to its neighbors and itself.

    $$h_i' = \sum_{j \to i} \alpha_{ij} W h_j, \qquad \alpha_{ij} = \operatorname{softmax}_j
    \bigl( \operatorname{LeakyReLU}(a_t^\top W h_i + a_s^\top W h_j) \bigr)$$

    Heads are concatenated.

    Reference:
        Veličković, Cucurull, Casanova, Romero, Liò and Bengio, *Graph Attention Networks*, 2018.

    Args:
        in_dim: Width of the input.
        out_dim: Width of the output.
        num_heads: Number of heads. It divides `out_dim`.
        dropout: Dropout probability of attention weights.

    Examples:
        >>> layer = GraphAttention(8, 16, num_heads=4)
        >>> layer(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 16])
    """

    def __init__(self, in_dim: int, out_dim: int, *, num_heads: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        if num_heads < 1 or out_dim % num_heads:
            raise ValueError(f"num_heads must divide out_dim: got out_dim={out_dim}, num_heads={num_heads}")
        self.num_heads = num_heads
        self.linear = nn.Linear(in_dim, out_dim, bias=False)
        self.target_score = nn.Parameter(torch.empty(num_heads, out_dim // num_heads))
        self.source_score = nn.Parameter(torch.empty(num_heads, out_dim // num_heads))
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.dropout = nn.Dropout(dropout)
        for weight in (self.linear.weight, self.target_score, self.source_score):
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Float[Tensor, "*batch n d"], edges: _EdgeInput = None) -> Float[Tensor, "*batch n c"]:
        """Applies the layer.

        Args:
            x: Features of the nodes.
            edges: `edge_index`, an adjacency matrix, or None for all pairs of different nodes. Each node also attends
                to itself.
        """
        _check_features(x, self.linear.in_features)
        neighbors = _with_self_loops(as_edges(edges, x.shape[-2], device=x.device))
        values = self.linear(x).unflatten(-1, (self.num_heads, -1))
        target, source = (values * self.target_score).sum(-1), (values * self.source_score).sum(-1)
        scores = F.leaky_relu(neighbors.target(target) + neighbors.source(source), 0.2)
        weights = self.dropout(neighbors.softmax(scores))
        if isinstance(neighbors, DenseEdges):
            attended = torch.einsum("...sth,...shd->...thd", weights, values)
        else:
            messages = weights[..., None] * values.index_select(-3, neighbors.index[0])
            attended = neighbors.sum(messages.flatten(-2)).unflatten(-1, (self.num_heads, -1))
        return attended.flatten(-2) + self.bias


def _with_self_loops(edges: Edges) -> Edges:
    """Returns the edges with exactly one self-loop per node."""
    if isinstance(edges, DenseEdges):
        return DenseEdges(edges.adjacency | torch.eye(edges.adjacency.shape[-1], dtype=torch.bool).to(edges.adjacency))
    nodes = torch.arange(edges.num_nodes, device=edges.index.device)
    between = edges.index[:, edges.index[0] != edges.index[1]]
    return SparseEdges(torch.cat([between, nodes.expand(2, -1)], 1), edges.num_nodes)


def claims() -> Iterator[Claim]:
    """Laws of layers on graphs."""
    inputs = shape("4 3"), tokens("2 e:1..9", 4)
    layers: list[Any] = [GraphConv(3, 2), GraphAttention(3, 4, num_heads=2)]
    layers += [MessagePassing(EdgeMLP(3, 0, 5), lambda x, m: torch.cat([x, m], -1), aggregation="max")]
    for layer in layers:
        yield Claim(node_permutation_equivariance(), layer, inputs, name=type(layer).__name__)
