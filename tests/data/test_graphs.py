from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lawful.data import (
    Graph,
    GraphBatch,
    clean_edges,
    from_networkx,
    from_pyg,
    karate_club,
    ring_graphs,
    stochastic_block_model,
)
from lawful.functions import adjacency_matrix, color_refinement

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def test_karate_club_is_that_of_networkx():
    nx = pytest.importorskip("networkx")
    other = nx.karate_club_graph()
    found = from_networkx(other, label="club")
    club = karate_club()
    assert torch.equal(club.edge_index, found.edge_index)
    assert torch.equal(club.y, found.y)
    assert found.classes == ("Mr. Hi", "Officer")
    assert club.num_edges == 2 * 78


def test_a_networkx_graph_keeps_features_weights_and_direction():
    nx = pytest.importorskip("networkx")
    graph = nx.DiGraph()
    graph.add_node("a", age=3, team="x")
    graph.add_node("b", age=np.float32(4.5))
    graph.add_edge("b", "a", weight=0.5)
    graph.add_edge("a", "a", weight=2.0)
    found = from_networkx(graph, features=("age",), label="team", weight="weight")
    assert found.x.tolist() == [[3.0], [4.5]]
    assert found.edge_index.tolist() == [[1], [0]]
    assert found.edge_weight.tolist() == [0.5]
    assert (found.names, found.classes, found.y.tolist()) == (("a", "b"), ("x",), [0, -1])
    both = from_networkx(graph.to_undirected(), weight="weight")
    assert both.edge_index.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(ValueError, match="expected a number in the attribute 'team' of node 'a', got 'x'"):
        from_networkx(graph, features=("team",))
    with pytest.raises(ValueError, match="no node has the attribute 'club'"):
        from_networkx(graph, label="club")
    with pytest.raises(ValueError, match="at least one node"):
        from_networkx(nx.Graph())
    with pytest.raises(TypeError, match=r"expected a networkx\.Graph, got dict"):
        from_networkx({})


def test_data_of_pytorch_geometric():
    data = SimpleNamespace(x=None, edge_index=PATH, edge_attr=torch.ones(4), y=torch.tensor(1), num_nodes=3)
    graph = from_pyg(data)
    assert (graph.num_nodes, graph.x.shape, graph.edge_attr.shape, graph.y.tolist()) == (3, (3, 0), (4, 1), [1])
    with pytest.raises(TypeError, match=r"expected a torch_geometric\.data\.Data with edge_index, got dict"):
        from_pyg({})
    pyg = pytest.importorskip("torch_geometric.data")
    graph = from_pyg(pyg.Data(x=torch.arange(6).reshape(3, 2), edge_index=PATH))
    assert graph.x.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


@pytest.mark.parametrize("per_graph", [True, False])
def test_a_batch_splits_into_its_graphs(per_graph):
    graphs = [
        Graph(
            torch.randn(n, 2),
            torch.randint(n, (2, e)),
            torch.randn(e, 3),
            torch.randint(3, (1 if per_graph else n,)),
            tuple(f"{n}.{i}" for i in range(n)),
        )
        for n, e in ((1, 0), (4, 5), (2, 3))
    ]
    batch = GraphBatch.from_graphs(graphs)
    assert batch.batch.tolist() == [0, 1, 1, 1, 1, 2, 2]
    expected = torch.block_diag(*(adjacency_matrix(g.edge_index, g.num_nodes).float() for g in graphs)) > 0
    assert torch.equal(adjacency_matrix(batch.edge_index, 7), expected)
    for before, after in zip(graphs, batch.to_graphs(), strict=True):
        for name in ("x", "edge_index", "edge_attr", "y"):
            assert torch.equal(getattr(before, name), getattr(after, name)), name
        assert before.names == after.names


def test_edges_are_cleaned():
    edges = torch.tensor([[0, 0, 1, 2, 2], [1, 1, 0, 2, 0]])
    index, weight, notes = clean_edges(edges, torch.tensor([1.0, 2.0, 6.0, 9.0, 4.0]), 3, directed=False)
    assert index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert weight.tolist() == [3.0, 4.0, 3.0, 4.0]
    assert notes == ("removed 1 self-loop", "merged 1 duplicate edge; the weight is their mean")
    index, weight, _ = clean_edges(edges, None, 3, directed=True)
    assert index.tolist() == [[0, 1, 2], [1, 0, 0]]
    assert weight is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x": torch.zeros(3)}, r"expected x of floats with shape \(n, d\), got torch.float32 of \(3,\)"),
        ({"x": torch.zeros(0, 2)}, "a graph needs at least one node, got none"),
        ({"x": torch.tensor([[0.0], [float("nan")], [1.0]])}, "x must be finite, got NaN or infinity at node 1"),
        ({"x": torch.full((3, 1), torch.inf), "names": ("a", "b", "c")}, "at node 'a'"),
        ({"edge_index": torch.tensor([[0], [3]])}, "edge_index has node 3, but there are 3 nodes, 0 to 2"),
        ({"edge_index": torch.tensor([[0, 1, 2]])}, r"edge_index of integers with shape \(2, e\)"),
        ({"edge_index": torch.eye(3) > 0}, "got an adjacency matrix"),
        ({"edge_attr": torch.ones(4)}, r"expected edge_attr of shape \(4, a\), got \(4,\)"),
        ({"edge_attr": torch.full((4, 1), torch.nan)}, "edge_attr must be finite"),
        ({"y": torch.tensor([0, 1])}, r"expected y with 3 or 1 labels, got shape \(2,\)"),
        ({"names": ("a",)}, "expected 3 names, one per node, got 1"),
    ],
)
def test_bad_graphs_raise(options, message):
    with pytest.raises(ValueError, match=message):
        Graph(**{"x": torch.zeros(3, 1), "edge_index": PATH} | options)


def test_bad_batches_raise():
    graph, other = Graph(torch.zeros(3, 1), PATH), Graph(torch.zeros(3, 2), PATH, y=torch.zeros(1))
    with pytest.raises(ValueError, match="at least one graph"):
        GraphBatch.from_graphs([])
    with pytest.raises(ValueError, match="need x of equal width"):
        GraphBatch.from_graphs([graph, other])
    with pytest.raises(ValueError, match=r"need y of equal width, got shapes none, \(n\)|got shapes \(n\), none"):
        GraphBatch.from_graphs([graph, Graph(torch.zeros(3, 1), PATH, y=torch.zeros(1))])
    with pytest.raises(ValueError, match="edges between graphs"):
        GraphBatch(torch.zeros(3, 1), PATH, batch=torch.tensor([0, 0, 1]), num_graphs=2)
    with pytest.raises(ValueError, match="batch must be sorted"):
        GraphBatch(torch.zeros(3, 1), PATH, batch=torch.tensor([1, 0, 0]), num_graphs=2)
    with pytest.raises(ValueError, match="below num_graphs=1"):
        GraphBatch(torch.zeros(3, 1), PATH, batch=torch.tensor([1, 1, 1]), num_graphs=1)


def test_blocks_have_the_frequencies_of_the_model():
    graph = stochastic_block_model((200, 100), p_within=0.2, p_between=0.02, num_features=3, seed=1)
    linked = adjacency_matrix(graph.edge_index, 300)
    assert torch.equal(linked, linked.T)
    same = graph.y[:, None] == graph.y
    assert float(linked[same].double().mean()) == pytest.approx(0.2, abs=0.01)
    assert float(linked[~same].double().mean()) == pytest.approx(0.02, abs=0.005)
    assert graph.x.shape == (300, 3)
    with pytest.raises(ValueError, match="p_between must be a probability, got 2"):
        stochastic_block_model((2,), p_between=2)
    with pytest.raises(ValueError, match="block_sizes must be positive"):
        stochastic_block_model((2, 0))


def test_only_triangles_tell_the_classes_of_rings_apart():
    graphs = ring_graphs(40, seed=2)
    assert all((g.degree == 3).all() for g in graphs)
    assert all(color_refinement(g.edge_index, g.num_nodes).unique().numel() == 1 for g in graphs)
    for graph in graphs:
        a = adjacency_matrix(graph.edge_index, graph.num_nodes).double()
        in_triangle = float(((a @ a @ a).diagonal() > 0).double().mean())
        assert in_triangle > 0.5 or int(graph.y) == 1
    assert {g.num_nodes for g in graphs} == {18, 30, 42}
    with pytest.raises(ValueError, match="num_graphs must be at least 1"):
        ring_graphs(0)
