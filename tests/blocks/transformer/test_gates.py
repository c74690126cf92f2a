import torch
from torch import nn

from lawful.blocks import Gate, LayerScale, Residual, WeightedSum


def test_a_closed_gate_is_the_identity_and_learns_to_open():
    torch.manual_seed(0)
    layer, x = Residual(nn.Linear(3, 3), gate=Gate()), torch.randn(2, 3)
    assert torch.equal(layer(x), x)
    layer(x).square().sum().backward()
    assert layer.gate.weight.grad != 0
    assert (layer.block.weight.grad == 0).all()


def test_a_layer_scale_weighs_each_entry():
    layer = LayerScale(2)
    layer.weight.data = torch.tensor([2.0, 3.0])
    assert layer(torch.tensor([[1.0, 10.0]])).tolist() == [[2.0, 30.0]]
    assert LayerScale(4).weight.tolist() == [1e-4] * 4 or torch.allclose(LayerScale(4).weight, torch.tensor(1e-4))


def test_a_mix_begins_with_the_first_and_learns_the_second():
    mix, x, y = WeightedSum(), torch.randn(2, 3), torch.randn(2, 3)
    assert torch.equal(mix(x, y), x)
    mix(x, y).sum().backward()
    torch.testing.assert_close(mix.weight.grad, torch.stack([x.sum(), y.sum()]))


def test_their_parameters_are_saved():
    assert [list(m.state_dict()) for m in (Gate(), LayerScale(2), WeightedSum())] == [["weight"]] * 3
