import math

import torch
from torch import nn

from lawful.training.loop import bad_gradient, not_finite, where


def network():
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))


def test_the_first_that_is_not_finite_is_named():
    model = network()
    assert not_finite(model) is None
    model[1].running_var[0] = math.nan
    assert not_finite(model) == "1.running_var"
    model[2].weight.data[0, 1] = -math.inf
    assert not_finite(model) == "2.weight"
    assert not_finite(nn.ReLU()) is None


def test_large_is_finite_and_so_is_a_mask_of_infinities():
    model = network().half()
    model[0].weight.data.fill_(60000.0)
    model.register_buffer("mask", torch.full((3,), -math.inf))
    model.register_parameter("turning", nn.Parameter(torch.ones(2, dtype=torch.complex64)))
    assert not_finite(model) is None
    model.turning.data[0] = complex(0, math.nan)
    assert not_finite(model) == "turning"


def test_a_gradient():
    model = network()
    assert bad_gradient(model) is None
    model[2].bias.grad = torch.tensor([math.nan])
    assert bad_gradient(model) == "2.bias"


class Pair(nn.Module):
    def forward(self, x):
        return {"a": (x, [x.log()])}


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair, self.last = Pair(), nn.Identity()

    def forward(self, x):
        return self.last(self.pair(x)["a"][1][0])


def test_the_place():
    x = torch.tensor([[1.0, 2.0]])
    model = Outer()
    assert "the batch itself is not finite (tensor 1)" in where(model, lambda: None, (x, x * math.nan))
    assert where(model, lambda: model(-x), (x,)) == "the layer pair (Pair) is the first whose output is not finite"
    assert where(model, lambda: model(x), (x,)) is None
    assert not any(module._forward_hooks for module in model.modules())


def test_statistics_that_a_layer_spoilt_are_not_blamed():
    model = nn.Sequential(Outer(), nn.BatchNorm1d(2))
    x = -torch.ones(3, 2)
    assert where(model, lambda: model(x), (x,)) == "the layer 0.pair (Pair) is the first whose output is not finite"
    assert not_finite(model) == "1.running_mean"
