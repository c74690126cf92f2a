import itertools

import pytest
import torch
from torch import nn

from lawful.blocks import DropConnect


def test_the_moments_are_those_over_all_masks():
    layer = DropConnect(2, 2, drop=0.3).double()
    x = torch.tensor([1.5, -2.0], dtype=torch.float64)
    outputs, weights = [], []
    for bits in itertools.product((0.0, 1.0), repeat=4):
        mask = torch.tensor(bits, dtype=torch.float64).reshape(2, 2)
        outputs.append((mask * layer.weight / 0.7) @ x + layer.bias)
        weights.append(0.7 ** sum(bits) * 0.3 ** (4 - sum(bits)))
    outputs, weights = torch.stack(outputs), torch.tensor(weights, dtype=torch.float64)[:, None]
    mean = (weights * outputs).sum(0)
    torch.testing.assert_close(layer.moments(x).mean, mean)
    torch.testing.assert_close(layer.moments(x).variance, (weights * (outputs - mean) ** 2).sum(0))


def test_evaluation_is_a_dense_layer_and_takes_its_weights():
    ours, theirs = DropConnect(4, 3, drop=0.9).eval(), nn.Linear(4, 3)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(x), theirs(x))


def test_each_sample_has_a_mask_of_its_own():
    torch.manual_seed(0)
    y = DropConnect(8, 8, drop=0.5)(torch.ones(2, 8))
    assert not torch.equal(y[0], y[1])


def test_no_weight_stays():
    layer = DropConnect(4, 3, drop=1.0)
    torch.testing.assert_close(layer(torch.ones(2, 4)), layer.bias.expand(2, 3))
    with pytest.raises(ValueError, match="nothing stays"):
        layer.moments(torch.ones(4))


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="drop is a probability, from 0 to 1: got -1"):
        DropConnect(4, 3, drop=-1.0)
    with pytest.raises(ValueError, match=r"size 4: got shape \(2, 5\)"):
        DropConnect(4, 3)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"size 4: got shape \(2, 5\)"):
        DropConnect(4, 3).moments(torch.zeros(2, 5))
