import pytest
from torch import nn

from lawful.recipes.optimization import Descent


def muons(optimizer):
    return next(group for group in optimizer.param_groups if group["kind"] == "muon")


@pytest.fixture
def model():
    return nn.ModuleDict({"layers": nn.Linear(3, 3)})


def test_the_momentum_warms_up_in_a_share_of_the_steps(model):
    group = muons(Descent(momentum=0.9, momentum_warmup=0.25).optimizer_of(model, steps=40))
    assert (group["beta"], group["first"], group["rise"]) == (0.9, pytest.approx(0.8), 10)


def test_without_a_warm_up_it_is_as_it_is(model):
    group = muons(Descent(momentum=0.9).optimizer_of(model, steps=40))
    assert group["beta"] == 0.9
    assert "rise" not in group
