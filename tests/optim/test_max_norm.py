import pytest
import torch
from torch import nn

from lawful.optim import max_norm


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(3, 4, 2), nn.LayerNorm(4), nn.Linear(4, 2))


def apply_max_norm(x, limit):
    module = nn.ParameterDict({"weight": x.clone()})
    max_norm(module, limit=limit)
    return module["weight"].detach()


def test_matches_renorm():
    x = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(apply_max_norm(x, 1.5), torch.renorm(x, 2, 0, 1.5), rtol=1e-6, atol=1e-6)


def test_name_pattern_selects_layers():
    model = network()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    max_norm(model, limit=0.1, params="0.*")
    assert (model[0].weight.flatten(1).norm(dim=1) <= 0.1 + 1e-6).all()
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) == (name != "0.weight")
    max_norm(model, limit=0.1)
    assert (model[2].weight.norm(dim=1) <= 0.1 + 1e-6).all()
    assert torch.equal(model[1].weight, before["1.weight"])


def test_a_tied_weight_is_found_by_each_of_its_names():
    model = nn.ModuleDict({"embedding": nn.Embedding(5, 3), "head": nn.Linear(3, 5)})
    model["head"].weight = model["embedding"].weight
    max_norm(model, limit=0.1, params="head.*")
    assert (model["embedding"].weight.norm(dim=1) <= 0.1 + 1e-6).all()


def test_short_rows_stay_bitwise_equal():
    x = torch.tensor([[0.1, 0.2], [0.0, 0.0]])
    assert torch.equal(apply_max_norm(x, 1.0), x)


def test_errors_name_what_was_expected():
    with pytest.raises(
        ValueError, match=r"no weight matches params='1\.\*', the module has \['0\.weight', '2\.weight'\]"
    ):
        max_norm(network(), limit=1.0, params="1.*")
    with pytest.raises(ValueError, match=r"limit must be positive, got -1\.0"):
        max_norm(network(), limit=-1.0)


def test_frozen_weights_stay():
    layer, head = nn.Linear(4, 2), nn.Linear(2, 2)
    head.weight.requires_grad_(False)
    before = head.weight.clone()
    max_norm(nn.Sequential(layer, head), limit=0.01)
    assert torch.equal(head.weight, before)
    assert float(layer.weight.detach().norm(dim=1).max()) < 0.0101
