import pytest
import torch
from torch import nn

from lawful.inference import activation_frequency, dead_units, ood_confidence
from lawful.laws import Claim, agreement, shape, transformed
from lawful.models import CNN, MLP


def test_units_with_low_bias_are_dead():
    torch.manual_seed(0)
    model = MLP(3, 2, hidden_dims=(8, 5))
    model.layers[0].bias.data[:3] = -1e6
    model.layers[1].bias.data[0] = -1e6
    x = torch.randn(100, 3)
    found = activation_frequency(model, x, batch_size=7)
    assert list(found) == ["activations.0", "activations.1"]
    torch.testing.assert_close(torch.cat(list(found.values())), model.active_units(x).float().mean(0))
    assert (found["activations.0"][:3] == 0).all()
    counts = dead_units(found)
    assert counts["activations.0"] == (int((~model.active_units(x).any(0))[:8].sum()), 8)


def test_channels_are_units():
    model = CNN(channels=6, num_blocks=2)
    found = activation_frequency(model, torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert [len(share) for share in found.values()] == [6, 6, 6, 6]
    assert activation_frequency(nn.Linear(3, 2), torch.ones(2, 3)) == {}


def test_module_used_twice():
    relu = nn.ReLU()
    model = nn.Sequential(nn.Linear(2, 3), relu, nn.Linear(3, 4), relu)
    assert {
        name: len(share) for name, share in activation_frequency(model, torch.ones(5, 2), batch_size=2).items()
    } == {
        "1": 3,
        "1#2": 4,
    }


def test_hooks_and_modes_are_restored_after_errors():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout())
    for x in (torch.ones(4, 2), torch.ones(4, 5)):
        try:
            activation_frequency(model, x)
        except RuntimeError:
            assert x.shape == (4, 5)
        assert all(module.training and not module._forward_hooks for module in model)


def test_relu_network_is_confident_far_away():
    torch.manual_seed(0)
    x, relus = 5 + torch.randn(50, 2), MLP(2, 3, hidden_dims=(32,))
    bounded, state = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)), torch.get_rng_state()
    found = ood_confidence(relus, x, max_distance=1e5)
    assert found.confidence[:, 0].median() < 0.9 < found.confidence[:, -1].median()
    assert ood_confidence(bounded, x, max_distance=1e5).confidence.max() < 0.95
    assert torch.equal(torch.get_rng_state(), state)


def test_ray_distances():
    x = torch.randn(4000, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 9, 1, 1, 4, 1])
    seen = []
    model = nn.Linear(6, 2)
    model.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    found = ood_confidence(model, x, num_rays=3, num_points=4)
    off = (torch.cat(seen) - x.mean(0)) / x.std(0, correction=0)
    torch.testing.assert_close(off.reshape(3, 4, 6).norm(dim=-1) / 6**0.5, found.distance.expand(3, 4))
    assert (found.distance[0].item(), found.distance[-1].item()) == pytest.approx((0.1, 100.0))


def test_rays_of_images():
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    assert ood_confidence(model, torch.rand(5, 1, 4, 4), num_rays=2, num_points=3).confidence.shape == (2, 3)


def test_errors():
    with pytest.raises(ValueError, match="num_rays=0"):
        ood_confidence(nn.Linear(2, 2), torch.zeros(3, 2), num_rays=0)
    with pytest.raises(ValueError, match=r"got torch.float32 of shape \(3,\)"):
        ood_confidence(nn.Linear(2, 2), torch.zeros(3))


def claims():
    """Second derivations of diagnostics."""
    relu, inner, plain, taps = nn.ReLU(), nn.Linear(4, 3), nn.Linear(3, 2), nn.Conv1d(1, 2, 2)
    model = nn.Sequential(inner, relu, plain, relu, nn.Unflatten(1, (1, 2)), taps, nn.Hardshrink(0.1))

    def measured(x):
        found = activation_frequency(model, x, batch_size=2)
        dead = [number for counts in dead_units(found).values() for number in counts]
        return torch.cat([*(found[name].to(x) for name in ("1", "1#2", "6")), x.new_tensor([*dead, len(found)])])

    def counted(x):
        first = inner(x).clamp_min(0)
        second = plain(first).clamp_min(0)
        third = nn.functional.hardshrink(taps(second[:, None]), 0.1)[..., 0]
        shares = [(y != 0).to(x).mean(0) for y in (first, second, third)]
        dead = [number for share in shares for number in (int((share == 0).sum()), len(share))]
        return torch.cat([*shares, x.new_tensor([*dead, 3])])

    yield Claim(agreement(other=counted), measured, shape("n 4"), name="activation_frequency, module by module")

    class Distance(nn.Module):
        """A classifier whose confidence grows with the distance from the data."""

        def __init__(self, x):
            super().__init__()
            self.center, self.radius = x.mean(0), 2**0.5 * (x - x.mean(0)).square().mean(0).sqrt()

        def forward(self, x):
            return torch.stack([((x - self.center) / self.radius).norm(dim=-1).log(), torch.zeros(len(x)).to(x)], -1)

    def along_rays(x):
        found = ood_confidence(Distance(x), x)
        return torch.cat([found.distance[None], found.confidence])

    def equation(x):
        t = 10 ** torch.linspace(-1, 2, 41, dtype=torch.float64)
        return torch.stack([t] + 32 * [t.clamp_min(1) / (1 + t)]).to(x)

    def spread_out(x):
        return x.tanh() / 2 + torch.tensor([[2.0, 1.0], [-1.0, 3.0], [0.0, -2.0]]).to(x)

    yield Claim(agreement(other=equation), along_rays, transformed(spread_out, "3 2"), name="ood_confidence")
