from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from lawful.laws import Claim, agreement, shape
from lawful.optim import EMA


def claims() -> Iterator[Claim]:
    """The average, written out as a weighted sum."""

    def average(x):
        model = nn.ParameterDict({"x": x[0].detach().clone()})
        ema = EMA(model, decay=0.75)
        for weights in x[1:]:
            model["x"].data.copy_(weights)
            ema.update(model)
        return ema.tensors["x"]

    def weighted_sum(x):
        powers = 0.75 ** torch.arange(len(x) - 1, -1, -1).to(x)
        return torch.cat([powers[:1], 0.25 * powers[1:]]) @ x

    yield Claim(agreement(other=weighted_sum), average, shape("t:1..4 3"), name="EMA, written out")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def perturb(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator))
    model(torch.randn(5, 3, generator=generator))


def test_matches_pytorch():
    model = network()
    ours, theirs = EMA(model, decay=0.9), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    theirs.update_parameters(model)
    for seed in range(10):
        perturb(model, seed)
        ours.update(model)
        theirs.update_parameters(model)
    expected = theirs.module.state_dict()
    assert ours.tensors.keys() == expected.keys()
    for name, x in ours.tensors.items():
        torch.testing.assert_close(x, expected[name])


def test_complex_parameters_are_averaged():
    model = nn.ParameterDict({"x": torch.tensor([1.0 + 2.0j])})
    ema = EMA(model, decay=0.75)
    model["x"].data.zero_()
    ema.update(model)
    torch.testing.assert_close(ema.tensors["x"], torch.tensor([0.75 + 1.5j]))


def test_the_weights_of_the_model_are_restored():
    model = network()
    ema = EMA(model, decay=0.5)
    perturb(model, 0)
    own = {name: x.clone() for name, x in model.state_dict().items()}
    parameters = list(model.parameters())

    def inside():
        with ema.average_parameters(model):
            assert torch.equal(model[0].weight, ema.tensors["0.weight"])
            raise KeyboardInterrupt("inside the block")

    with pytest.raises(KeyboardInterrupt, match="inside the block"):
        inside()
    assert all(torch.equal(x, own[name]) for name, x in model.state_dict().items())
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))


def test_state_dict_round_trip():
    model = network()
    one = EMA(model, decay=0.5)
    perturb(model, 0)
    one.update(model)
    other = EMA(network(), decay=0.5)
    other.load_state_dict({name: x.clone() for name, x in one.state_dict().items()})
    perturb(model, 1)
    for ema in (one, other):
        ema.update(model)
    assert all(torch.equal(x, other.tensors[name]) for name, x in one.tensors.items())


def test_shared_weights_are_averaged_once():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    ema = EMA(model, decay=0.5)
    before = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.add_(1)
    ema.update(model)
    torch.testing.assert_close(ema.tensors["0.weight"], before + 0.5)


def test_errors_name_what_was_expected():
    with pytest.raises(ValueError, match=r"decay must be in \[0, 1\], got 1\.1"):
        EMA(network(), decay=1.1)
    with pytest.raises(ValueError, match=r"expected tensors \['bias', 'weight'\], got \[\]"):
        EMA(nn.Linear(2, 2), decay=0.9).update(nn.ReLU())
