r"""Trajectories of particles: simulated charges that attract or repel each other, or your own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.data.loading import resolve_path
from lawful.data.tables import read_arrays

_BATCH = 512
"""Trajectories that are simulated together: their state fits the cache."""


@dataclass(frozen=True)
class Trajectories:
    r"""Trajectories of particles.

    Args:
        positions: Positions at each frame.
        velocities: Velocities at each frame.
        charges: Charge of each particle, if there are charges.
    """

    positions: Float[Tensor, "b frames n d"]
    velocities: Float[Tensor, "b frames n d"]
    charges: Float[Tensor, "b n"] | None = None


@dataclass(frozen=True)
class ChargedParticles(Trajectories):
    r"""Simulated trajectories of charged particles.

    Args:
        positions: Positions at each frame.
        velocities: Velocities at each frame.
        charges: Charge of each particle, 1 or -1.
    """

    charges: Float[Tensor, "b n"]


def simulate_charged_particles(
    num_trajectories: int,
    *,
    num_particles: int = 5,
    dim: int = 3,
    steps: int = 5000,
    save_every: int = 100,
    dt: float = 1e-3,
    seed: int = 0,
) -> ChargedParticles:
    r"""Simulates charged particles by the leapfrog method, many trajectories at once.

    $$\ddot x_i = \sum_{j \ne i} q_i q_j \frac{x_i - x_j}{\lVert x_i - x_j \rVert^3}$$

    Positions are standard normal at the start, velocities have norm 0.5 and a random direction, charges are 1 or -1.
    Each component of a force is limited to 100. Frame $k$ is the state after $k + 1$ times `save_every` steps. The
    random numbers are those of the authors' simulator, in the same order, so that a seed gives their data set.

    Reference:
        Satorras, Hoogeboom and Welling, *E(n) Equivariant Graph Neural Networks*, 2021.

    Args:
        num_trajectories: Number of trajectories.
        num_particles: Number of particles.
        dim: Dimension of the space.
        steps: Number of time steps.
        save_every: Steps between frames.
        dt: Time of a step.
        seed: Seed of `numpy.random.RandomState`.

    Examples:
        >>> data = simulate_charged_particles(3, steps=300)
        >>> data.positions.shape, data.charges.shape
        (torch.Size([3, 2, 5, 3]), torch.Size([3, 5]))
    """
    for name, value in (("num_trajectories", num_trajectories), ("num_particles", num_particles), ("dim", dim)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not 0 < dt < math.inf:
        raise ValueError(f"dt must be positive and finite, got {dt}")
    if not 1 <= save_every < steps:
        raise ValueError(f"save_every must be from 1 to steps - 1, got save_every={save_every} and steps={steps}")
    frames = (steps - 1) // save_every
    charges, x, v = _initial_states(num_trajectories, num_particles, dim, frames, seed)
    parts = [
        _simulate(charges[i : i + _BATCH], x[i : i + _BATCH], v[i : i + _BATCH], frames * save_every, save_every, dt)
        for i in range(0, num_trajectories, _BATCH)
    ]
    positions, velocities = (torch.cat(part) for part in zip(*parts, strict=True))
    return ChargedParticles(positions, velocities, torch.from_numpy(charges).float())


def _initial_states(b: int, n: int, dim: int, frames: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns charges (b, n), positions and velocities (b, d, n)."""
    random = np.random.RandomState(seed)
    charges, x, v = np.empty((b, n)), np.empty((b, dim, n)), np.empty((b, dim, n))
    for k in range(b):
        charges[k] = random.choice([1.0, 0.0, -1.0], size=(n, 1), p=[0.5, 0.0, 0.5])[:, 0]
        x[k], v[k] = random.randn(dim, n), random.randn(dim, n)
        random.randn(2, frames, dim, n)  # the authors add noise of scale 0
    return charges, x, v * (0.5 / np.sqrt((v**2).sum(1, keepdims=True)))


def _simulate(
    charges: np.ndarray, start: np.ndarray, velocity: np.ndarray, steps: int, save_every: int, dt: float
) -> tuple[Tensor, Tensor]:
    """Returns positions and velocities (b, frames, n, d) in float32, computed in float64."""
    n = charges.shape[1]
    rows, columns = torch.triu_indices(n, n, 1)
    pairs = torch.zeros(len(rows), n, dtype=torch.float64)  # x_i - x_j of each pair
    pairs[torch.arange(len(rows)), rows], pairs[torch.arange(len(rows)), columns] = 1.0, -1.0
    q = torch.from_numpy(charges.T).contiguous()
    strength = q[rows] * q[columns]
    x, v = (torch.from_numpy(a).permute(1, 2, 0).contiguous() for a in (start, velocity))  # (d, n, b)
    frames = []

    def accelerate() -> None:
        between = pairs @ x
        squared = between.square().sum(0)
        between *= strength / (squared * squared.sqrt())
        v.add_((pairs.mT @ between).clamp_(-100.0, 100.0), alpha=dt)

    accelerate()
    for step in range(1, steps + 1):
        x.add_(v, alpha=dt)
        if step % save_every == 0:
            frames.append(torch.stack([x, v]).permute(0, 3, 2, 1).float())
        accelerate()
    positions, velocities = torch.stack(frames, 2)
    return positions, velocities


_SHAPES = "(trajectories, frames, particles, dimensions)"


def read_trajectories(path: str | Path) -> Trajectories:
    """Reads trajectories from an NPZ file.

    The file has the arrays `positions` and `velocities`, of shape (trajectories, frames, particles, dimensions), or
    without the first axis for one trajectory. It may have `charges`, of shape (trajectories, particles) or
    (particles,).

    Args:
        path: The file.

    Raises:
        ValueError: If an array is missing, has another shape, or has values that are not finite.
    """
    path = resolve_path(path)
    if path.suffix.lower() != ".npz":
        raise ValueError(f"expected an NPZ file with the arrays positions and velocities, got {path.name}")
    arrays = read_arrays(path)
    missing = [name for name in ("positions", "velocities") if name not in arrays]
    if missing:
        known = ", ".join(name or "one without a name" for name in arrays) or "none"
        raise ValueError(
            f"{path.name} has no array {' and '.join(missing)}, its arrays are {known}. Expected an NPZ file with "
            f"positions and velocities of shape {_SHAPES}, and optionally charges of shape (trajectories, particles)"
        )
    x, v = (_to_numbers(arrays[name], name, path.name) for name in ("positions", "velocities"))
    if x.ndim not in (3, 4):
        raise ValueError(f"positions of {path.name} must have shape {_SHAPES}, got {x.shape}")
    if v.shape != x.shape:
        raise ValueError(f"velocities of {path.name} must have the shape of positions, {x.shape}, got {v.shape}")
    x, v = (array.reshape(-1, *array.shape[-3:]) for array in (x, v))
    b, n = x.shape[0], x.shape[2]
    if not x.size:
        raise ValueError(f"positions of {path.name} has no entries: its shape is {arrays['positions'].shape}")
    charges = None
    if "charges" in arrays:
        charges = _to_numbers(arrays["charges"], "charges", path.name)
        if charges.shape not in ((b, n), (n,)):
            raise ValueError(f"charges of {path.name} must have shape ({b}, {n}) or ({n},), got {charges.shape}")
        charges = torch.from_numpy(np.broadcast_to(charges, (b, n)).astype(np.float32))
    positions, velocities = (torch.from_numpy(array.astype(np.float32)) for array in (x, v))
    return Trajectories(positions, velocities, charges)


def _to_numbers(array: np.ndarray, name: str, file: str) -> np.ndarray:
    """Checks that an array has finite real numbers."""
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} of {file} must be numbers, got dtype {array.dtype}")
    bad = np.argwhere(~np.isfinite(array.astype(float)))
    if len(bad):
        at = ", ".join(map(str, bad[0]))
        count = f"{len(bad)} NaN or infinite {'value' if len(bad) == 1 else 'values'}"
        raise ValueError(f"{name} of {file} has {count}, the first at [{at}]")
    return array
