import pytest
import torch

from lawful.models import GraphPool, build_gnn

PATH = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])


@pytest.mark.parametrize("layer", ["gcn", "gat", "message-passing"])
def test_a_node_sees_as_far_as_there_are_layers(layer):
    model, x = build_gnn(2, 3, layer=layer, dim=8, num_layers=2), torch.randn(4, 2)
    changed = x.index_fill(0, torch.tensor([3]), 5.0)
    moved = (model(x, PATH) - model(changed, PATH)).abs().amax(1) > 1e-6
    assert moved.tolist() == [False, True, True, True]
    no_edges = torch.zeros(2, 0, dtype=torch.int64)
    alone = (model(x, no_edges) - model(changed, no_edges)).abs().amax(1) > 1e-6
    assert alone.tolist() == [False, False, False, True]


@pytest.mark.parametrize("layer", ["gcn", "message-passing"])
def test_edge_weights_count(layer):
    model, x = build_gnn(2, 3, layer=layer, dim=8), torch.randn(4, 2)
    weights = torch.tensor([1.0, 1.0, 3.0, 3.0, 1.0, 1.0])
    assert not torch.allclose(model(x, PATH), model(x, PATH, weights), atol=1e-4)
    torch.testing.assert_close(model(x, PATH), model(x, PATH, torch.ones(6)))


def test_a_batch_gives_the_outputs_of_its_graphs():
    model = GraphPool(build_gnn(2, 8, dim=8), 3, dim=8, mean_size=3.0)
    x, batch = torch.randn(7, 2), torch.tensor([0, 0, 0, 0, 1, 1, 1])
    edges = torch.cat([PATH, torch.tensor([[4, 5], [5, 6]])], 1)
    both = model(x, edges, batch=batch)
    torch.testing.assert_close(both[:1], model(x[:4], PATH))
    torch.testing.assert_close(both[1:], model(x[4:], edges[:, 6:] - 4))
    assert model(x, edges, batch=batch, num_graphs=3).shape == (3, 3)


def test_errors():
    with pytest.raises(ValueError, match="layer must be one of gcn, gat, message-passing, got 'sage'"):
        build_gnn(2, 3, layer="sage")
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        build_gnn(2, 3, num_layers=0)
    with pytest.raises(ValueError, match="num_heads must divide out_dim"):
        build_gnn(2, 3, layer="gat", dim=6)
