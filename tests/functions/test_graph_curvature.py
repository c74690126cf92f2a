import networkx as nx
import pytest
import torch

from lawful.functions import forman_curvature, ollivier_curvature


def edges_of(graph):
    one_way = torch.tensor([*graph.edges]).T
    return torch.cat([one_way, one_way.flip(0)], 1)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (nx.complete_graph(5), 3 / 4),
        (nx.complete_graph(2), 0.0),
        (nx.cycle_graph(3), 1 / 2),
        (nx.cycle_graph(4), 0.0),
        (nx.cycle_graph(5), 1 / 2 - 1 / 2),
        (nx.cycle_graph(8), 0.0),
        (nx.hypercube_graph(3), 0.0),
        (nx.petersen_graph(), 2 / 3 - 1),
        (nx.complete_bipartite_graph(3, 3), 0.0),
    ],
)
def test_ollivier_curvature_of_regular_graphs(graph, expected):
    graph = nx.convert_node_labels_to_integers(graph)
    found = ollivier_curvature(edges_of(graph), len(graph))
    torch.testing.assert_close(found, torch.full_like(found, expected), atol=1e-5, rtol=0)


def test_ollivier_curvature_of_trees():
    """In a tree, the curvature is -2 max(0, 1 - 1/d_u - 1/d_v) (Jost and Liu, 2014)."""
    tree = nx.from_prufer_sequence([0, 0, 3, 3, 3, 1, 2, 2])
    degree = dict(tree.degree)
    edges = edges_of(tree)
    expected = [-2 * max(0, 1 - 1 / degree[u] - 1 / degree[v]) for u, v in edges.T.tolist()]
    torch.testing.assert_close(ollivier_curvature(edges, len(tree)), torch.tensor(expected), atol=1e-5, rtol=0)


def test_bridges_are_negative_and_communities_positive():
    graph = nx.barbell_graph(5, 0)
    edges = edges_of(graph)
    bridge = {4, 5}
    for curvature in (ollivier_curvature, forman_curvature):
        found = curvature(edges, 10)
        at_bridge = torch.tensor([{*pair} == bridge for pair in edges.T.tolist()])
        assert (found[at_bridge] < 0).all()
        assert (found[~at_bridge] > 0).all()


def test_idleness_of_a_complete_graph():
    """The lazy walk on n nodes moves only the difference of the masses at u and v."""
    for alpha in (0.0, 0.3, 0.6):
        found = ollivier_curvature(edges_of(nx.complete_graph(4)), 4, idleness=alpha)
        torch.testing.assert_close(found, torch.full_like(found, 1 - abs(alpha - (1 - alpha) / 3)), atol=1e-5, rtol=0)


def test_forman_curvature_counts_degrees_and_triangles():
    graph = nx.karate_club_graph()
    edges = edges_of(graph)
    expected = [
        4 - graph.degree(u) - graph.degree(v) + 3 * len([*nx.common_neighbors(graph, u, v)])
        for u, v in edges.T.tolist()
    ]
    assert forman_curvature(edges, 34).tolist() == expected


@pytest.mark.parametrize("curvature", [forman_curvature, ollivier_curvature])
def test_bad_graphs(curvature):
    with pytest.raises(ValueError, match="expected an undirected graph: add the reverse of each edge"):
        curvature(torch.tensor([[0], [1]]), 2)
    with pytest.raises(ValueError, match="no self-loops, got one at node 1"):
        curvature(torch.tensor([[0, 1, 1], [1, 0, 1]]), 2)
    assert curvature(torch.zeros(2, 0, dtype=torch.int64), 2).shape == (0,)


def test_bad_idleness():
    with pytest.raises(ValueError, match="idleness must be at least 0 and below 1, got 1"):
        ollivier_curvature(torch.tensor([[0, 1], [1, 0]]), 2, idleness=1.0)
