import pytest
import torch
from torch import nn

from lawful.blocks import Residual, StochasticDepth, linear_drop_rates


def test_samples_are_dropped_as_a_whole():
    torch.manual_seed(0)
    y = StochasticDepth(0.25)(torch.ones(4000, 2, 3)).flatten(1)
    assert (y == y[:, :1]).all()
    assert float((y[:, 0] == 0).double().mean()) == pytest.approx(0.25, abs=0.04)
    torch.testing.assert_close(y.max(), torch.tensor(1 / 0.75))


def test_a_residual_branch_is_skipped_for_some_samples():
    torch.manual_seed(0)
    block = Residual(nn.Sequential(nn.Linear(3, 3), StochasticDepth(0.5)))
    x = torch.randn(100, 3)
    same = (block(x) == x).all(1)
    assert 0 < int(same.sum()) < 100


@pytest.mark.parametrize("drop", [0.0, 1.0])
def test_the_ends(drop):
    x = torch.ones(5, 2)
    torch.testing.assert_close(StochasticDepth(drop)(x), (1 - drop) * x)
    torch.testing.assert_close(StochasticDepth(drop).eval()(x), x)


def test_rates_rise_to_the_last():
    assert linear_drop_rates(2, last=0.5) == [0.25, 0.5]
    assert linear_drop_rates(0) == []


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="drop is a probability, from 0 to 1: got 2"):
        StochasticDepth(2.0)
    with pytest.raises(ValueError, match="last is a probability"):
        linear_drop_rates(3, last=-0.1)
    with pytest.raises(ValueError, match="depth is at least 0: got -1"):
        linear_drop_rates(-1)
