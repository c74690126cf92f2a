import pytest
import torch

from lawful.models import (
    EGNN,
    EGNNDynamics,
    GNNDynamics,
    GramDynamics,
    LinearDynamics,
    ParticleModel,
    RadialFieldDynamics,
)

NETWORKS = {
    "linear": LinearDynamics,
    "egnn": lambda: EGNNDynamics(dim=8, num_layers=2),
    "gram": lambda: GramDynamics(dim=8, num_layers=2),
    "radial field": lambda: RadialFieldDynamics(hidden_dim=8, num_layers=2),
    "gnn": lambda: GNNDynamics(dim=8, num_layers=2),
}


def test_least_squares_finds_the_coefficients():
    x, v = torch.randn(2, 50, 4, 3)
    mean_v, mean_x = v.mean(-2, keepdim=True), x.mean(-2, keepdim=True)
    target = x + 0.5 * v - 0.2 * mean_v + 0.3 * (x - mean_x)
    model = LinearDynamics().fit(x, v, target)
    torch.testing.assert_close(model.weight, torch.tensor([0.5, -0.2, 0.3]), atol=1e-5, rtol=0)
    torch.testing.assert_close(model(x, v), target, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", NETWORKS)
def test_moved_particles_move_alike_without_charges(name):
    network, (x, v), shift = NETWORKS[name]().double(), torch.randn(2, 3, 5, 3).double(), torch.randn(3).double()
    torch.testing.assert_close(network(x + shift, v), network(x, v) + shift)


@pytest.mark.parametrize("edge_dim", [1, 3])
def test_the_units_of_the_data_do_not_matter(edge_dim):
    network = EGNNDynamics(dim=8, num_layers=2, edge_dim=edge_dim).double()
    (x, v, target), charges = torch.randn(3, 6, 5, 3).double(), torch.randn(6, 5).double()
    model = ParticleModel(network, edge_dim=edge_dim).double()
    expected = model.fit_normalizer(x, v, target, charges)(x, v, charges)
    found = model.fit_normalizer(10 * x + 3, 5 * v, 10 * target + 3, 7 * charges)(10 * x + 3, 5 * v, 7 * charges)
    torch.testing.assert_close(found, 10 * expected + 3)


def test_egnn_reads_features_of_edges():
    model, x = EGNN(2, dim=8, num_layers=2, edge_dim=3), torch.randn(4, 3)
    edge_attr = torch.randn(4, 4, 3)
    h, _ = model(torch.ones(4, 2), x, edge_attr=edge_attr)
    assert not torch.allclose(h, model(torch.ones(4, 2), x, edge_attr=edge_attr + 1)[0], atol=1e-6)
