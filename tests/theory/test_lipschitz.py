"""Lipschitz constants: bounds hold for all pairs of points, and the exact constant is that of the regions."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from lawful.theory import PiecewiseLinear, lipschitz_bounds


def network(*sizes, activation=None):
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), activation or nn.ReLU())]
    return nn.Sequential(*layers[:-1]).double().requires_grad_(False)


def box(*shape, size=1.0):
    corner = size * torch.ones(1, *shape, dtype=torch.float64)
    return -corner, corner


def vector_norm(x, norm):
    return x.norm(dim=-1) if norm == "2" else x.abs().amax(-1)


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


NETWORKS = {
    "relu": (lambda: network(3, 5, 4, 2), (3,)),
    "leaky": (lambda: network(2, 5, 4, 2, activation=nn.LeakyReLU(-0.3)), (2,)),
    "tanh": (lambda: network(3, 8, 8, 2, activation=nn.Tanh()), (3,)),
    "gelu": (lambda: network(3, 8, 2, activation=nn.GELU()), (3,)),
    "residual": (
        lambda: nn.Sequential(Residual(network(3, 5, 3)), nn.Linear(3, 2)).double().requires_grad_(False),
        (3,),
    ),
    "convolution": (
        lambda: (
            nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(6, 2))
            .double()
            .requires_grad_(False)
        ),
        (2, 6),
    ),
}


@pytest.mark.parametrize("norm", ["2", "inf"])
@pytest.mark.parametrize("name", NETWORKS)
def test_pairs_of_points_are_within_the_bounds(name, norm):
    build, shape = NETWORKS[name]
    net = build()
    low, high = box(*shape)
    x, y = (2 * torch.rand(500, *shape, dtype=torch.float64) - 1 for _ in range(2))
    y[250:] = (x[250:] + 1e-3 * (y[250:] - x[250:])).clamp(-1, 1)
    with torch.no_grad():
        ratios = vector_norm(net(x) - net(y), norm) / vector_norm((x - y).flatten(1), norm)
    product = lipschitz_bounds(net, low, high, norm=norm, method="product")
    local = lipschitz_bounds(net, low, high, norm=norm)
    assert float(ratios.max()) <= float(local.upper)
    assert float(local.upper) <= float(product.upper) * (1 + 1e-9)
    assert float(local.lower) <= float(local.upper)
    assert float(local.lower) >= 0.8 * float(ratios[250:].max())
    jacobian = torch.func.jacrev(lambda v: net(v[None])[0])(local.point[0]).flatten(1)
    expected = torch.linalg.matrix_norm(jacobian, 2) if norm == "2" else jacobian.abs().sum(1).max()
    assert float(local.lower) == pytest.approx(float(expected), rel=1e-6)
    if name in ("relu", "leaky", "residual"):
        exact = lipschitz_bounds(net, low, high, norm=norm, method="exact", max_patterns=3000)
        assert float(local.lower) <= float(exact.lower) * (1 + 1e-9)
        assert float(ratios.max()) <= float(exact.upper) * (1 + 1e-9)
        assert float(exact.upper) <= float(local.upper) * (1 + 1e-6)
        assert float(exact.upper) == pytest.approx(float(exact.lower))


@pytest.mark.parametrize("norm", ["2", "inf"])
def test_affine_maps_have_their_norm(norm):
    net = nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 3)).double().requires_grad_(False)
    matrix = net[1].weight @ net[0].weight
    expected = torch.linalg.matrix_norm(matrix, 2) if norm == "2" else matrix.abs().sum(1).max()
    for method in ("local", "exact"):
        found = lipschitz_bounds(net, *box(4), norm=norm, method=method)
        assert float(found.lower) == pytest.approx(float(expected))
        assert float(found.upper) == pytest.approx(float(expected))


def test_one_variable_has_the_largest_slope():
    knots = torch.linspace(-1, 1, 9, dtype=torch.float64).tolist()
    values = torch.randn(9, dtype=torch.float64).tolist()
    function = PiecewiseLinear(knots, values)
    net = function.to_network().to_module(torch.float64)
    found = lipschitz_bounds(net, *box(1), method="exact")
    expected = max(abs(float(s)) for s in function.slopes)
    assert float(found.upper) == pytest.approx(expected)
    assert float(found.lower) == pytest.approx(expected)
    inside = lipschitz_bounds(net, torch.tensor([[knots[3] + 1e-3]]), torch.tensor([[knots[4] - 1e-3]]), method="exact")
    assert float(inside.upper) == pytest.approx(abs(float(function.slopes[3])), rel=1e-6)


@pytest.mark.parametrize("norm", ["2", "inf"])
def test_two_variables_have_the_largest_region(norm):
    net = network(2, 6, 4, 2)
    found = lipschitz_bounds(net, *box(2, size=3), norm=norm, method="exact")
    axis = torch.linspace(-3, 3, 151, dtype=torch.float64)
    x = torch.cartesian_prod(axis, axis) + 1e-4
    jacobians = torch.vmap(torch.func.jacrev(lambda v: net(v)))(x)
    norms = torch.linalg.matrix_norm(jacobians, 2) if norm == "2" else jacobians.abs().sum(-1).amax(-1)
    assert float(norms.max()) <= float(found.upper) * (1 + 1e-9)
    assert float(found.upper) == pytest.approx(float(found.lower))
    assert float(found.upper) <= 1.02 * float(norms.max())  # the grid misses small regions only


def test_the_search_climbs_to_the_steepest_point_of_a_tanh():
    net = nn.Sequential(nn.Linear(20, 1), nn.Tanh()).double()
    nn.init.normal_(net[0].weight)
    nn.init.constant_(
        net[0].bias, -0.9 * net[0].weight.detach().abs().sum().item()
    )  # the slope is 1 close to a corner only
    found = lipschitz_bounds(net, *box(20), method="product")
    steepest = net[0].weight.detach().norm().item()
    assert 0.98 * steepest < float(found.lower) <= steepest


def test_a_stop_leaves_valid_bounds_and_splits_make_them_tighter():
    net = network(2, 8, 8, 1)
    low, high = box(2)
    exact = lipschitz_bounds(net, low, high, method="exact")
    stopped = lipschitz_bounds(net, low, high, method="exact", max_patterns=3)
    assert stopped.lower <= exact.lower * (1 + 1e-9)
    assert stopped.upper >= exact.upper * (1 - 1e-9)
    whole = lipschitz_bounds(net, low, high)
    split = lipschitz_bounds(net, low, high, splits=25)
    assert exact.upper <= split.upper * (1 + 1e-9)
    assert split.upper < 0.95 * whole.upper


def test_batches_of_boxes_are_bounded_one_by_one():
    net = network(2, 6, 2)
    centers = torch.randn(3, 2, dtype=torch.float64)
    together = lipschitz_bounds(net, centers - 0.1, centers + 0.1)
    for i in range(3):
        alone = lipschitz_bounds(net, centers[i : i + 1] - 0.1, centers[i : i + 1] + 0.1)
        assert float(together.upper[i]) == pytest.approx(float(alone.upper))
        assert bool(((together.point[i] - centers[i]).abs() <= 0.1 + 1e-12).all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "1"}, "norm must be '2' or 'inf': got '1'"),
        ({"method": "lp"}, "method must be 'product', 'local' or 'exact': got 'lp'"),
        ({"splits": -1}, "expected splits >= 0"),
        ({"lower": torch.full((1, 2), 2.0)}, "lower must not exceed upper: got 2 > 1"),
        ({"upper": torch.full((1, 2), float("inf"))}, "unbounded box"),
        ({"network": nn.Sequential(nn.Linear(2, 2), nn.Tanh()), "method": "exact"}, "piecewise-linear.*got Tanh"),
        ({"network": nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))}, "layer_norm is not supported"),
    ],
)
def test_errors(change, message):
    arguments = {"network": nn.Linear(2, 2), "lower": torch.zeros(1, 2), "upper": torch.ones(1, 2)} | change
    with pytest.raises(ValueError, match=message):
        lipschitz_bounds(**arguments)
