import numpy as np
import pytest
import torch
from torch import nn

from lawful.losses.regularization import affine_layers, lengths, locality, on_a_grid, on_a_line
from lawful.models import MLP, MLPConfig


def stack():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.SiLU(), nn.Linear(5, 2, bias=False)).double()


@pytest.mark.parametrize("place", [on_a_line, on_a_grid])
@pytest.mark.parametrize("order", [1.0, 2.0, 3.0])
def test_equals_the_sum_written_out(place, order):
    model, gap, wanted = stack(), 0.3, 0.0
    layers, places = affine_layers(model), [place(n).double() for n in (3, 5, 2)]
    for layer, below, above in zip(layers, places[:-1], places[1:], strict=True):
        for i, row in enumerate(layer.weight.detach().numpy()):
            for j, weight in enumerate(row):
                steps = [*np.abs(above[i].numpy() - below[j].numpy()), gap]
                wanted += abs(weight) * sum(step**order for step in steps) ** (1 / order)
        wanted += 0.7 * sum(map(abs, layer.bias.tolist())) if layer.bias is not None else 0
    found = locality(layers, lengths(places, gap=gap, order=order), bias=0.7)
    np.testing.assert_allclose(found.item(), wanted, rtol=1e-12)


def test_its_slope_is_the_length_with_the_sign_of_the_weight():
    model = stack()
    layers, far = affine_layers(model), lengths([on_a_line(n).double() for n in (3, 5, 2)], gap=0.1)
    locality(layers, far).backward()
    torch.testing.assert_close(layers[1].weight.grad, far[1] * layers[1].weight.detach().sign())
    assert layers[0].bias.grad is None


def test_places_are_within_the_unit_and_apart():
    for n in (1, 2, 7, 9, 10):
        line, grid = on_a_line(n), on_a_grid(n)
        assert line.shape == (n, 1)
        assert grid.shape == (n, 2)
        for places in (line, grid):
            assert ((places > 0) & (places < 1)).all()
            assert len({tuple(place.tolist()) for place in places}) == n


def test_layers_of_any_stack_are_found():
    model = MLP(MLPConfig(d_in=4, d_out=2, hidden=(7, 3)))
    assert [tuple(layer.weight.shape) for layer in affine_layers(model)] == [(7, 4), (3, 7), (2, 3)]
    normed = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    assert [layer.weight.shape for layer in affine_layers(normed)] == [(2, 4)]


def test_what_is_no_stack_is_refused():
    with pytest.raises(ValueError, match="Sequential has none"):
        affine_layers(nn.Sequential(nn.ReLU()))
    with pytest.raises(ValueError, match=r"take what the one before gives: got sizes \[\(2, 3\), \(4, 1\)\]"):
        affine_layers(nn.Sequential(nn.Linear(2, 3), nn.Linear(4, 1)))
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    with pytest.raises(ValueError, match="two layers share one"):
        affine_layers(nn.Sequential(first, second))


def test_wrong_lengths_are_refused():
    with pytest.raises(ValueError, match=r"lengths of shapes \[\(5, 3\), \(2, 5\)\] were wanted"):
        locality(affine_layers(stack()), [torch.ones(5, 3)])
    with pytest.raises(ValueError, match="gap is at least 0 and order at least 1"):
        lengths([on_a_line(2), on_a_line(2)], gap=0.1, order=0.5)
