import pytest
import torch

from lawful.groups import Orthogonal
from lawful.models import EGNN, GramNetwork


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_networks_commute_with_motions(dtype):
    r, t = Orthogonal(3).sample(dtype=dtype), torch.randn(3, dtype=dtype)
    h, x, v = torch.rand(2, 6, 1, dtype=dtype), torch.randn(2, 6, 3, dtype=dtype), torch.randn(2, 6, 3, dtype=dtype)
    egnn, gram = EGNN(1, dim=8, velocity=True).to(dtype), GramNetwork(1, dim=8).to(dtype)
    for still, moved in (
        (egnn(h, x, velocity=v), egnn(h, x @ r.T + t, velocity=v @ r.T)),
        (gram(h, x, v[..., None, :]), gram(h, x @ r.T + t, v[..., None, :] @ r.T)),
    ):
        expected = still[0], still[1] @ r.T + t, still[2] @ r.T
        for one, other in zip(moved, expected, strict=True):
            scale = float(other.detach().abs().max())
            torch.testing.assert_close(one, other, rtol=0, atol=500 * torch.finfo(dtype).eps * scale)


@pytest.mark.parametrize("kind", ["egnn", "gram"])
def test_a_force_between_two_particles_is_learned(kind):
    """Training in one direction of space generalizes to all."""
    model = EGNN(1, dim=16, num_layers=1, velocity=True) if kind == "egnn" else GramNetwork(1, dim=16, num_layers=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def predict(x, v):
        ones = torch.ones_like(x[..., :1])
        return model(ones, x, velocity=v)[1] if kind == "egnn" else model(ones, x, v[..., None, :])[1]

    def target(x, v):
        return x + 0.5 * v + 0.3 * (x - x.flip(1)) / (1 + (x - x.flip(1)).square().sum(-1, keepdim=True))

    x, v = torch.randn(2, 128, 2, 3) * torch.tensor([1.0, 0.0, 0.0])
    for _ in range(250):
        loss = (predict(x, v) - target(x, v)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    r = Orthogonal(3).sample()
    turned = (predict(x @ r.T, v @ r.T) - target(x @ r.T, v @ r.T)).square().mean()
    assert turned < 0.01
    torch.testing.assert_close(turned, (predict(x, v) - target(x, v)).square().mean(), rtol=1e-3, atol=1e-6)


def test_many_layers_with_many_neighbors_are_stable():
    torch.manual_seed(0)
    x, h = torch.randn(100, 3, requires_grad=True), torch.randn(100, 4)
    model = EGNN(4, dim=32, num_layers=16)
    first, (features, moved) = model.embed(h), model(h, x)
    assert features.norm() < 10 * first.norm()
    assert moved.norm() < 10 * x.norm()
    (features.square().mean() + moved.square().mean()).backward()
    assert all(p.grad.isfinite().all() for p in (x, *model.parameters()) if p.grad is not None)
