import numpy as np
import pytest
import torch

from lawful.data import simulate_charged_particles


def simulate_one(random, n, d, steps, save_every):
    """One trajectory with loops over the particles."""
    charges = random.choice([1.0, 0.0, -1.0], size=(n, 1), p=[0.5, 0.0, 0.5])[:, 0]
    x, v = random.randn(d, n).T.copy(), random.randn(d, n).T.copy()
    v *= 0.5 / np.linalg.norm(v, axis=1, keepdims=True)
    frames = (steps - 1) // save_every
    saved = []
    for step in range(frames * save_every + 1):
        if step:
            x = x + 1e-3 * v
            if step % save_every == 0:
                saved.append((x, v))
        force = np.zeros((n, d))
        for i in range(n):
            for j in set(range(n)) - {i}:
                force[i] += charges[i] * charges[j] * (x[i] - x[j]) / np.linalg.norm(x[i] - x[j]) ** 3
        v = v + 1e-3 * force.clip(-100, 100)
    for _ in range(2):
        random.randn(frames, d, n)
    return charges, *map(np.array, zip(*saved, strict=True))


@pytest.mark.parametrize(("n", "d"), [(5, 3), (3, 2)])
def test_equals_a_simulation_with_loops(n, d):
    found = simulate_charged_particles(3, num_particles=n, dim=d, steps=200, save_every=60, seed=7)
    random = np.random.RandomState(7)
    for k in range(3):
        charges, positions, velocities = simulate_one(random, n, d, 200, 60)
        np.testing.assert_array_equal(found.charges[k], charges)
        np.testing.assert_allclose(found.positions[k], positions, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.velocities[k], velocities, rtol=1e-4, atol=1e-5)


def test_momentum_and_energy_are_conserved():
    """Not by trajectories with a collision, whose forces are limited."""
    data = simulate_charged_particles(8, steps=1001, save_every=200)
    x, v, q = data.positions.double(), data.velocities.double(), data.charges.double()
    momentum = v.sum(2)
    assert (momentum - momentum[:, :1]).abs().amax((1, 2)).median() < 1e-5
    distances = torch.cdist(x, x) + torch.eye(5, dtype=torch.float64)
    pairs = torch.triu(q[:, :, None] * q[:, None, :], 1)[:, None]
    energy = v.square().sum((2, 3)) / 2 + (pairs / distances).sum((2, 3))
    change = (energy - energy[:, :1]).abs().amax(1) / v[:, 0].square().sum((1, 2))
    assert change.median() < 0.02


def test_batches_do_not_matter(monkeypatch):
    whole = simulate_charged_particles(5, steps=100, save_every=50)
    monkeypatch.setattr("lawful.data.nbody._BATCH", 2)
    torch.testing.assert_close(simulate_charged_particles(5, steps=100, save_every=50).positions, whole.positions)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_trajectories": 0}, "num_trajectories must be at least 1, got 0"),
        ({"num_trajectories": 1, "dim": 0}, "dim must be at least 1, got 0"),
        ({"num_trajectories": 1, "dt": -1.0}, "dt must be positive and finite, got -1.0"),
        ({"num_trajectories": 1, "save_every": 10, "steps": 10}, "save_every must be from 1 to steps - 1"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        simulate_charged_particles(**options)
