import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful.blocks import Dropout, WeightScalingDropout


def test_equals_torch_from_one_random_state():
    x = torch.randn(10, 10, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    ours = Dropout(0.3)(x)
    torch.manual_seed(1)
    torch.testing.assert_close(ours, nn.Dropout(0.3)(x), rtol=0, atol=0)


def test_the_two_conventions_differ_by_the_probability_of_staying():
    x = torch.randn(5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(WeightScalingDropout(0.8).eval()(x), 0.8 * Dropout(0.2).eval()(x))
    torch.manual_seed(0)
    kept = WeightScalingDropout(0.8)(torch.ones(10_000))
    assert float(kept.mean()) == pytest.approx(0.8, abs=0.03)
    assert set(kept.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("layer", [Dropout(0.0), WeightScalingDropout(1.0)])
def test_nothing_is_dropped(layer):
    x = torch.ones(100)
    torch.testing.assert_close(layer(x), x)


@pytest.mark.parametrize("layer", [Dropout(1.0), WeightScalingDropout(0.0)])
def test_everything_is_dropped(layer):
    assert not layer(torch.ones(100)).any()


def test_what_is_dropped_has_no_gradient():
    x = torch.ones(100, requires_grad=True)
    torch.manual_seed(0)
    y = WeightScalingDropout(0.5)(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match="drop is a probability, from 0 to 1"):
        Dropout(p)
    with pytest.raises(ValueError, match="keep is a probability, from 0 to 1"):
        WeightScalingDropout(p)


def test_it_moves_into_a_model_of_torch():
    model = nn.Sequential(nn.Linear(3, 3), Dropout(0.5)).eval()
    x = torch.ones(2, 3)
    torch.testing.assert_close(model(x), F.linear(x, model[0].weight, model[0].bias))
