import pytest
import torch
from torch import nn

from lawful.blocks import Dense
from lawful.inference import activity, dead_units, ood_confidence
from lawful.models import MLP, MLPConfig, ResidualCNN, ResidualCNNConfig


def test_units_with_a_low_bias_are_dead():
    torch.manual_seed(0)
    model = MLP(MLPConfig(d_in=3, d_out=2, hidden=(8, 5)))
    model.layers[0].bias.data[:3] = -1e6
    model.layers[1].bias.data[0] = -1e6
    x = torch.randn(100, 3)
    found = activity(model, x, batch=7)
    assert list(found) == ["layers.0", "layers.1"]
    torch.testing.assert_close(torch.cat(list(found.values())), model.active(x).float().mean(0))
    assert (found["layers.0"][:3] == 0).all()
    counts = dead_units(found)
    assert counts["layers.0"] == (int((~model.active(x).any(0))[:8].sum()), 8)


def test_channels_are_units_and_modules_of_torch_are_seen():
    model = ResidualCNN(ResidualCNNConfig(width=6, depth=2))
    found = activity(model, torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert [len(share) for share in found.values()] == [6, 6, 6, 6]
    inside = nn.Sequential(Dense(3, 4, activation=nn.ReLU()), nn.Linear(4, 2))
    assert list(activity(inside, torch.ones(2, 3))) == ["0"]
    assert activity(nn.Linear(3, 2), torch.ones(2, 3)) == {}


def test_a_module_that_is_used_twice_is_looked_at_twice():
    relu = nn.ReLU()
    model = nn.Sequential(nn.Linear(2, 3), relu, nn.Linear(3, 4), relu)
    assert {name: len(share) for name, share in activity(model, torch.ones(5, 2), batch=2).items()} == {
        "1": 3,
        "1#2": 4,
    }


def test_hooks_and_modes_are_as_before_even_after_an_error():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout())
    for x in (torch.ones(4, 2), torch.ones(4, 5)):
        try:
            activity(model, x)
        except RuntimeError:
            assert x.shape == (4, 5)
        assert all(module.training and not module._forward_hooks for module in model)


def test_a_network_of_relus_is_certain_far_away_and_one_without_slope_is_not():
    torch.manual_seed(0)
    x, relus = 5 + torch.randn(50, 2), MLP(MLPConfig(d_in=2, d_out=3, hidden=(32,)))
    bounded, state = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)), torch.get_rng_state()
    found = ood_confidence(relus, x, reach=1e5)
    assert found.confidence[:, 0].median() < 0.9 < found.confidence[:, -1].median()
    assert ood_confidence(bounded, x, reach=1e5).confidence.max() < 0.95
    assert torch.equal(torch.get_rng_state(), state)


def test_rays_go_as_far_as_they_say():
    x = torch.randn(4000, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 9, 1, 1, 4, 1])
    seen = []
    model = nn.Linear(6, 2)
    model.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    found = ood_confidence(model, x, rays=3, steps=4)
    off = (torch.cat(seen) - x.mean(0)) / x.std(0, correction=0)
    torch.testing.assert_close(off.reshape(3, 4, 6).norm(dim=-1) / 6**0.5, found.distance.expand(3, 4))
    assert (found.distance[0].item(), found.distance[-1].item()) == pytest.approx((0.1, 100.0))


def test_images_have_rays_too():
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    assert ood_confidence(model, torch.rand(5, 1, 4, 4), rays=2, steps=3).confidence.shape == (2, 3)


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="rays=0"):
        ood_confidence(nn.Linear(2, 2), torch.zeros(3, 2), rays=0)
    with pytest.raises(ValueError, match=r"rows of real numbers were wanted: got torch.float32 of shape \(3,\)"):
        ood_confidence(nn.Linear(2, 2), torch.zeros(3))
