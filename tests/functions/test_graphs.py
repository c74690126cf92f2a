import pytest
import torch

from lawful.functions import (
    adjacency_matrix,
    as_edges,
    color_refinement,
    graph_laplacian,
    knn_graph,
    laplacian_features,
    propagate_labels,
    radius_graph,
    return_probabilities,
)

HEXAGON = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
TRIANGLES = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]])


def both_ways(edges):
    return torch.cat([edges, edges.flip(0)], 1)


@pytest.mark.parametrize("operation", ["sum", "max", "softmax"])
def test_dense_and_sparse_forms_agree(operation):
    edges, messages = torch.randint(6, (2, 20)).unique(dim=1), torch.randn(2, 6, 6, 3)
    sparse, dense = as_edges(edges, 6), as_edges(adjacency_matrix(edges, 6), 6)
    found = getattr(sparse, operation)(messages[:, edges[0], edges[1]])
    expected = getattr(dense, operation)(messages)
    torch.testing.assert_close(found, expected[:, edges[0], edges[1]] if operation == "softmax" else expected)
    torch.testing.assert_close(sparse.degree(messages), dense.degree(messages))


def test_without_edges():
    none = torch.zeros(2, 0, dtype=torch.int64)
    edges = as_edges(none, 3)
    assert torch.equal(edges.sum(torch.randn(0, 2)), torch.zeros(3, 2))
    assert torch.equal(edges.max(torch.randn(0, 2)), torch.zeros(3, 2))
    assert torch.equal(color_refinement(none, 0), torch.zeros(0, dtype=torch.int64))


def test_nearest_neighbors_of_a_line():
    x = torch.tensor([[0.0], [1.0], [2.5], [4.5]])
    assert knn_graph(x, 2).T.tolist() == [[1, 0], [2, 0], [0, 1], [2, 1], [1, 2], [3, 2], [2, 3], [1, 3]]
    assert radius_graph(x, 1.5).T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]


def test_laplacian_of_a_cycle_has_the_known_eigenvalues():
    values = torch.linalg.eigvalsh(graph_laplacian(adjacency_matrix(both_ways(HEXAGON), 6)).double())
    expected = (1 - (2 * torch.pi * torch.arange(6, dtype=torch.float64) / 6).cos()).sort().values
    torch.testing.assert_close(values, expected)


def test_positional_features_follow_a_renumbering():
    a = torch.rand(7, 7, dtype=torch.float64)
    a, order = a + a.T, torch.randperm(7)
    torch.testing.assert_close(laplacian_features(a[order][:, order], 3), laplacian_features(a, 3)[order])
    signed = laplacian_features(a, 3, signs="random")
    torch.testing.assert_close(signed.abs(), laplacian_features(a, 3, signs="absolute"))


def test_positional_features_are_padded():
    assert torch.equal(laplacian_features(torch.zeros(3, 3), 2), torch.zeros(3, 2))


def test_color_refinement_does_not_distinguish_a_hexagon_from_two_triangles():
    union = torch.cat([both_ways(HEXAGON), both_ways(TRIANGLES) + 6], 1)
    assert color_refinement(union, 12).unique().numel() == 1
    labeled = color_refinement(union, 12, colors=torch.tensor([1] + 5 * [0] + [1] + 5 * [0]))
    assert labeled[:6].sort().values.tolist() != labeled[6:].sort().values.tolist()


def test_color_refinement_separates_the_ends_of_a_path():
    path = both_ways(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]))
    colors = color_refinement(path, 5)
    assert colors[0] == colors[4]
    assert colors[1] == colors[3]
    assert colors.unique().numel() == 3
    assert color_refinement(path, 5, steps=0).unique().numel() == 1


def test_propagated_labels_are_absorption_probabilities():
    """Of a random walk that ends at the known nodes: the solution of a linear system."""
    torch.manual_seed(3)
    dense = torch.rand(8, 8).triu(1).double() * (torch.rand(8, 8) < 0.6)
    dense[torch.arange(7), torch.arange(1, 8)] = 1.0
    dense = dense + dense.T
    index = dense.nonzero().T
    labels = torch.tensor([0, -1, 2, -1, -1, -1, 1, -1])
    found = propagate_labels(labels, index, edge_weight=dense[index[0], index[1]].float(), steps=2000)
    walk, unknown = dense / dense.sum(1, keepdim=True), labels < 0
    one_hot = torch.eye(3, dtype=torch.float64)[labels[~unknown]]
    expected = torch.linalg.solve(torch.eye(5) - walk[unknown][:, unknown], walk[unknown][:, ~unknown] @ one_hot)
    torch.testing.assert_close(found[unknown].double(), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(found[~unknown], one_hot.float())
    isolated = propagate_labels(torch.tensor([0, -1]), torch.zeros(2, 0, dtype=torch.int64), num_classes=2)
    assert isolated.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_return_probabilities_are_diagonals_of_powers(monkeypatch):
    monkeypatch.setattr("lawful.functions.graphs._MAX_WALKS", 3)
    edges = both_ways(torch.cat([HEXAGON, torch.tensor([[0], [2]])], 1))
    walk = adjacency_matrix(edges, 7).float()
    walk = walk / walk.sum(1, keepdim=True).clamp_min(1)
    expected = torch.stack([torch.linalg.matrix_power(walk, k).diagonal() for k in range(1, 5)], 1)
    torch.testing.assert_close(return_probabilities(edges, 7, 4), expected)
    colors = [return_probabilities(both_ways(graph), 6, 3)[:, 2].unique() for graph in (HEXAGON, TRIANGLES)]
    assert colors[0].tolist() == [0.0]
    assert colors[1].tolist() == [0.25]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: propagate_labels(torch.tensor([0, 2]), HEXAGON[:, :1], num_classes=2), "labels must be below num_cla"),
        (lambda: propagate_labels(torch.tensor([-1, -1]), HEXAGON[:, :1]), "labels must be below num_classes"),
        (lambda: return_probabilities(HEXAGON, 6, 0), "steps must be at least 1, got 0"),
        (lambda: as_edges(torch.tensor([[0], [3]]), 3), "edge_index has node 3, but there are 3 nodes, 0 to 2"),
        (lambda: as_edges(torch.tensor([[-1], [0]]), 3), "edge_index has node -1"),
        (lambda: as_edges(torch.zeros(2, 2), 3), r"expected edge_index of integers with shape \(2, e\)"),
        (lambda: as_edges(torch.ones(2, 2, dtype=torch.bool), 3), r"of shape \(\*batch, 3, 3\), got \(2, 2\)"),
        (lambda: knn_graph(torch.randn(3, 2), 3), "k must be from 1 to 2, the number of other points, got 3"),
        (lambda: knn_graph(torch.tensor([[torch.nan], [0.0]]), 1), "points must be finite"),
        (lambda: radius_graph(torch.randn(3), 1.0), r"expected points of shape \(n, d\), got \(3,\)"),
        (lambda: radius_graph(torch.randn(3, 2), 0.0), "radius must be positive, got 0.0"),
        (lambda: graph_laplacian(torch.tensor([[0.0, 1.0], [0.0, 0.0]])), "expected a symmetric adjacency matrix"),
        (lambda: graph_laplacian(torch.zeros(4, 3)), r"of shape \(\*batch, n, n\), got \(4, 3\)"),
        (lambda: laplacian_features(torch.zeros(2, 2), 1, signs="no"), "signs must be 'fixed', 'random' or 'absolute'"),
        (lambda: laplacian_features(torch.zeros(2, 2), 0), "k must be at least 1, got 0"),
        (lambda: color_refinement(HEXAGON, 6, colors=torch.zeros(2)), "expected 6 colors, got 2"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
