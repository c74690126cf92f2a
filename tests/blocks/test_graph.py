import pytest
import torch
from torch import nn

from lawful.blocks import EdgeMLP, GraphAttention, GraphConv, MessagePassing
from lawful.functions import adjacency_matrix, as_edges

N = 6


@pytest.fixture
def edges():
    return torch.randint(N, (2, 20)).unique(dim=1)


LAYERS = {
    "sum": MessagePassing(EdgeMLP(3, 0, 5), lambda x, m: torch.cat([x, m], -1)),
    "mean": MessagePassing(EdgeMLP(3, 0, 5), lambda x, m: m, aggregation="mean"),
    "max": MessagePassing(EdgeMLP(3, 0, 5), lambda x, m: m, aggregation="max"),
    "source only": MessagePassing(lambda x, e, a: e.source(x), lambda x, m: m),
    "convolution": GraphConv(3, 4),
    "attention": GraphAttention(3, 4, num_heads=2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_dense_and_sparse_forms_agree(name, edges):
    x = torch.randn(2, N, 3)
    torch.testing.assert_close(LAYERS[name](x, edges), LAYERS[name](x, adjacency_matrix(edges, N)))


@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_of_graphs_is_a_union(name, edges):
    x, y, other = torch.randn(N, 3), torch.randn(4, 3), torch.randint(4, (2, 7)).unique(dim=1)
    joint = LAYERS[name](torch.cat([x, y]), torch.cat([edges, other + N], 1))
    torch.testing.assert_close(joint, torch.cat([LAYERS[name](x, edges), LAYERS[name](y, other)]))


def test_edge_mlp_is_an_mlp_of_the_concatenation(edges):
    mlp, x, a = EdgeMLP(3, 2, 5, 4), torch.randn(N, 3), torch.randn(edges.shape[1], 2)
    weight = torch.cat([mlp.target.weight, mlp.source.weight, mlp.edge.weight], 1)
    joint = torch.cat([x[edges[1]], x[edges[0]], a], 1)
    expected = mlp.out(nn.functional.silu(joint @ weight.T + mlp.target.bias))
    torch.testing.assert_close(mlp(x, as_edges(edges, N), a), expected)


def test_graph_convolution_by_its_matrix(edges):
    layer, x, weights = GraphConv(3, 4), torch.randn(N, 3), torch.rand(edges.shape[1])
    a = torch.zeros(N, N)
    a[edges[0], edges[1]] = weights
    a = a.T + torch.eye(N)
    root = a.sum(1).rsqrt()
    expected = (root[:, None] * a * root) @ layer.linear(x) + layer.bias
    torch.testing.assert_close(layer(x, edges, weights), expected)
    dense = torch.zeros(N, N)
    dense[edges[0], edges[1]] = weights
    torch.testing.assert_close(layer(x, adjacency_matrix(edges, N), dense), expected)


def test_graph_attention_by_its_definition(edges):
    layer, x = GraphAttention(3, 4, num_heads=2), torch.randn(N, 3)
    values = layer.linear(x).view(N, 2, 2)
    expected = torch.zeros(N, 2, 2)
    for i in range(N):
        neighbors = sorted({*edges[0, edges[1] == i].tolist(), i})
        for h in range(2):
            scores = torch.stack(
                [values[i, h] @ layer.target_score[h] + values[j, h] @ layer.source_score[h] for j in neighbors]
            )
            weights = nn.functional.leaky_relu(scores, 0.2).softmax(0)
            expected[i, h] = weights @ values[neighbors, h]
    torch.testing.assert_close(layer(x, edges), expected.flatten(1) + layer.bias)


def test_without_edges_nodes_stay_alone():
    none, x = torch.zeros(2, 0, dtype=torch.int64), torch.randn(N, 3)
    layer = GraphAttention(3, 4)
    torch.testing.assert_close(layer(x, none), layer.linear(x) + layer.bias)
    assert torch.equal(LAYERS["max"](x, none), torch.zeros(N, 5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GraphAttention(3, 4, num_heads=3), "num_heads must divide out_dim: got out_dim=4, num_heads=3"),
        (
            lambda: MessagePassing(None, None, aggregation="min"),
            "aggregation must be 'sum', 'mean' or 'max', got 'min'",
        ),
        (lambda: EdgeMLP(3, 2, 5)(torch.randn(4, 3), as_edges(None, 4)), "expected edge_attr with 2 features per edge"),
        (lambda: EdgeMLP(3, 0, 5)(torch.randn(4, 3), as_edges(None, 4), torch.zeros(1)), "edge_dim is 0"),
        (lambda: GraphConv(3, 4)(torch.randn(4, 3), torch.tensor([[9], [0]])), "edge_index has node 9"),
        (
            lambda: GraphConv(3, 4)(torch.randn(4, 5)),
            r"expected features of nodes of shape \(\*batch, n, 3\), got \(4, 5\)",
        ),
        (lambda: GraphAttention(3, 4)(torch.randn(3)), r"of shape \(\*batch, n, 3\), got \(3,\)"),
        (
            lambda: GraphConv(3, 4)(torch.randn(2, 3), torch.tensor([[0], [1]]), torch.tensor([-2.0])),
            "the edge weights of a node must sum to more than -1, got -2",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("edges", [None, torch.empty(2, 0, dtype=torch.int64)], ids=["dense", "sparse"])
@pytest.mark.parametrize("layer", [GraphConv(3, 4), GraphAttention(3, 4, num_heads=2)], ids=["conv", "attention"])
def test_a_graph_without_nodes_or_without_edges(layer, edges):
    assert layer(torch.zeros(0, 3), edges).shape == (0, 4)
    alone = torch.randn(1, 3)
    torch.testing.assert_close(layer(alone, edges), layer.linear(alone) + layer.bias)
