"""Renumbering of the nodes of a graph."""

import pytest
import torch
from torch import nn

from lawful import shape, tokens
from lawful.laws import node_permutation_equivariance, node_permutation_invariance
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

torch.manual_seed(0)

equivariant, invariant = node_permutation_equivariance(), node_permutation_invariance()


def propagate(x, edge_index):
    """Sums the features of the neighbors."""
    source, target = edge_index
    return torch.zeros_like(x).index_add(0, target, x[source].tanh())


def mean_of_neighbors(x, edge_index):
    target = edge_index[1]
    degree = x.new_zeros(len(x)).index_add(0, target, torch.ones_like(target, dtype=x.dtype))
    return propagate(x, edge_index) / degree.clamp_min(1)[:, None]


def later_neighbors(x, edge_index):
    """Reads an edge only from the smaller number to the larger."""
    return propagate(x, edge_index[:, edge_index[0] < edge_index[1]])


def last_message(x, edge_index):
    """Does not count several edges to one node."""
    y = torch.zeros_like(x)
    y[edge_index[1]] = x[edge_index[0]]
    return y


class NumberedNodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 2)

    def forward(self, x, edge_index):
        return propagate(x + self.embedding.weight[: len(x)], edge_index)


def geometric(x, position, edge_index, edge_weight):
    """Weighs messages by distance; node features, positions, edges, and weights of the edges."""
    source, target = edge_index
    distance = (position[source] - position[target]).norm(dim=-1, keepdim=True)
    return torch.zeros_like(x).index_add(0, target, x[source] * distance * edge_weight)


def weight_of_target(x, position, edge_index, edge_weight):
    return geometric(x, position, edge_index, edge_weight[: len(edge_weight)].flip(0) * position[edge_index[0] * 0, :1])


def mean_per_graph(x, edge_index, batch):
    y = propagate(x, edge_index)
    return x.new_zeros(3, 2).index_add(0, batch, y)


def first_node(x, edge_index):
    return propagate(x, edge_index)[0]


def random_graph(draw):
    """A graph of random size, for a map of any number of nodes."""
    n, e = draw.integer(2, 5, "n"), draw.integer(1, 6, "e")
    return draw.values(n, 2), torch.stack([(draw.normal(e).abs() * 100).long() % n for _ in range(2)])


GRAPH = (shape("5 2"), tokens("2 e", vocab_size=5))
EDGES = (shape("5 2"), shape("5 3"), tokens("2 e", vocab_size=5), shape("e 1"))
GRAPHS = (shape("5 2"), tokens("2 e", vocab_size=5), tokens("5", vocab_size=3))

SATISFIED = {
    "nodes: a sum over neighbors": (equivariant, GRAPH, propagate),
    "nodes: a mean over neighbors": (equivariant, GRAPH, mean_of_neighbors),
    "nodes: graphs of any size": (equivariant, random_graph, propagate),
    "nodes: positions and weights of the edges": (equivariant, EDGES, geometric),
    "graph: a sum over nodes": (invariant, GRAPH, lambda x, e: propagate(x, e).square().sum(0)),
    "graph: one output per graph": (invariant, GRAPHS, mean_per_graph),
}
BROKEN = {
    "nodes: numbers embedded": (equivariant, GRAPH, NumberedNodes()),
    "nodes: edges by number": (equivariant, GRAPH, later_neighbors),
    "nodes: a pass in order": (equivariant, GRAPH, lambda x, e: propagate(x.cumsum(0), e)),
    "nodes: positions of the first node": (equivariant, EDGES, weight_of_target),
    "nodes: graphs of any size": (equivariant, random_graph, later_neighbors),
    "graph: the first node": (invariant, GRAPH, first_node),
    "graph: nodes concatenated": (invariant, GRAPH, lambda x, e: propagate(x, e).reshape(-1)),
}
SCRIPTS = ["nodes: edges by number", "graph: the first node"]
INAPPLICABLE = {
    "no edges": (shape("n 2"), lambda x: x),
    "edges of real numbers": ((shape("n 2"), shape("2 e")), lambda x, e: x),
}


@pytest.mark.parametrize("law", [equivariant, invariant], ids=str)
@pytest.mark.parametrize(("inputs", "f"), INAPPLICABLE.values(), ids=INAPPLICABLE)
def test_without_edge_index(law, inputs, f, judge):
    verdict = judge(f, law, inputs, cases=5)
    assert verdict.status == "inapplicable"
    assert "an edge_index: integers of shape (2, edges)" in verdict.reason


def test_output_per_graph_has_no_nodes(judge):
    verdict = judge(lambda x, e: x.sum(0), equivariant, GRAPH, cases=5)
    assert verdict.status == "inapplicable"


def test_edges_out_of_range(judge):
    verdict = judge(propagate, equivariant, (shape("2 2"), tokens("2 e", vocab_size=9)), cases=5)
    assert verdict.status == "inapplicable"
    assert "edge_index must be between 0 and 1 for 2 nodes" in verdict.reason


def test_labels_of_two_samples_are_no_edges(judge):
    verdict = judge(lambda x, labels: x, equivariant, (shape("b t 2"), tokens("b t", vocab_size=9)), cases=20)
    assert verdict.status == "inapplicable"
    assert "an edge_index: integers of shape (2, edges)" in verdict.reason
