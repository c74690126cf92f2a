import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from lawful.optim import EMA


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def wander(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator))
    model(torch.randn(5, 3, generator=generator))


def test_equals_pytorchs():
    model = network()
    ours, theirs = EMA(model, decay=0.9), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    theirs.update_parameters(model)
    for seed in range(10):
        wander(model, seed)
        ours.update(model)
        theirs.update_parameters(model)
    wanted = theirs.module.state_dict()
    assert ours.tensors.keys() == wanted.keys()
    for name, x in ours.tensors.items():
        torch.testing.assert_close(x, wanted[name])


def test_the_model_gets_its_own_weights_back():
    model = network()
    average = EMA(model, decay=0.5)
    wander(model, 0)
    own = {name: x.clone() for name, x in model.state_dict().items()}
    parameters = list(model.parameters())

    def inside():
        with average.swapped_in(model):
            assert torch.equal(model[0].weight, average.tensors["0.weight"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inside()
    assert all(torch.equal(x, own[name]) for name, x in model.state_dict().items())
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))


def test_the_state_makes_the_round_trip():
    model = network()
    one = EMA(model, decay=0.5)
    wander(model, 0)
    one.update(model)
    other = EMA(network(), decay=0.5)
    other.load_state_dict({name: x.clone() for name, x in one.state_dict().items()})
    wander(model, 1)
    for average in (one, other):
        average.update(model)
    assert all(torch.equal(x, other.tensors[name]) for name, x in one.tensors.items())


def test_shared_weights_are_averaged_once():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    average = EMA(model, decay=0.5)
    before = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.add_(1)
    average.update(model)
    torch.testing.assert_close(average.tensors["0.weight"], before + 0.5)


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"decay is from 0 to 1: got 1\.1"):
        EMA(network(), decay=1.1)
    with pytest.raises(ValueError, match=r"the average is of \['bias', 'weight'\]: got \[\]"):
        EMA(nn.Linear(2, 2), decay=0.9).update(nn.ReLU())
