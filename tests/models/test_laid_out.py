import pytest
import torch
from torch import nn

from lawful.losses.regularization import affine_layers, grid_positions, line_positions
from lawful.models import SpatialMLP


def stack(kind=nn.Linear):
    torch.manual_seed(0)
    return nn.Sequential(kind(4, 12), nn.SiLU(), kind(12, 9), nn.Tanh(), kind(9, 3)).double()


@pytest.mark.parametrize("place", [line_positions, grid_positions])
@pytest.mark.parametrize("kind", [nn.Linear, nn.Linear])
def test_swaps_shorten_connections_and_keep_the_function(place, kind):
    model = SpatialMLP(stack(kind), place=place, order=2.0)
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before, cost = model(x), model.locality().item()
    assert model.swap(most=5) > 0
    assert model.locality().item() < cost
    for _ in range(3):
        cost = model.locality().item()
        model.swap(most=5)
        assert model.locality().item() <= cost * (1 + 1e-12)
    torch.testing.assert_close(model(x), before, rtol=1e-12, atol=1e-12)
    assert sorted(model.inputs.tolist()) == [0, 1, 2, 3]
    assert sorted(model.outputs.tolist()) == [0, 1, 2]


def test_orders_are_integers_that_no_optimizer_touches_and_files_keep():
    model = SpatialMLP(stack())
    model.swap(most=5)
    assert not model.inputs.is_floating_point()
    assert all(p.is_floating_point() for p in model.parameters())
    again = SpatialMLP(stack())
    again.load_state_dict(model.state_dict())
    x = torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(again(x), model(x), rtol=0, atol=0)


def test_biases_count_as_wished():
    model = SpatialMLP(stack(), gap=0.5)
    biases = sum(layer.bias.abs().sum() for layer in affine_layers(model))
    torch.testing.assert_close(model.locality() - model.locality(bias=False), 0.5 * biases)


def test_one_layer_swaps_its_ends():
    torch.manual_seed(0)
    model = SpatialMLP(nn.Linear(6, 6).double())
    x = torch.randn(3, 6, dtype=torch.float64)
    before, cost = model(x), model.locality().item()
    model.swap(most=6)
    torch.testing.assert_close(model(x), before)
    assert model.locality().item() < cost
