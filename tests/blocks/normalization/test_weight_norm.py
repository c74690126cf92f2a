import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from lawful.blocks import Convolution, WeightNorm


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_equals_torch_and_its_weights_move_over(axis):
    torch.manual_seed(0)
    theirs = parametrizations.weight_norm(nn.Linear(3, 2).double(), dim=axis % 2)
    ours = nn.Linear(3, 2).double()
    parametrize.register_parametrization(ours, "weight", WeightNorm(axis=axis))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x))


def test_putting_it_on_changes_nothing_and_the_scale_of_v_does_not_matter():
    torch.manual_seed(0)
    layer = Convolution(2, 3, kernel=(3, 3)).double()
    x = torch.randn(1, 2, 5, 5, dtype=torch.float64)
    before = layer(x)
    parametrize.register_parametrization(layer, "weight", WeightNorm())
    torch.testing.assert_close(layer(x), before)
    v = layer.parametrizations.weight.original1
    v.data *= torch.tensor([0.1, 2.0, 30.0]).reshape(3, 1, 1, 1)
    torch.testing.assert_close(layer(x), before)
    layer(x).square().sum().backward()
    torch.testing.assert_close((v * v.grad).sum((1, 2, 3)), torch.zeros(3, dtype=torch.float64), atol=1e-9, rtol=0)


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"each of 2 vectors was wanted: got shape \(1, 3\)"):
        WeightNorm()(torch.ones(1, 3), torch.ones(2, 3))
    assert WeightNorm()(torch.ones(1, 1), torch.zeros(1, 2)).isnan().all()
