"""Densities in the plane, made of Gaussians: a ring, a grid, two moons."""

from __future__ import annotations

import math

import torch

from lawful.data.densities.mixture import Mixture


def ring(*, modes: int = 8, radius: float = 2.0, scale: float = 0.2, dtype: torch.dtype = torch.float64) -> Mixture:
    r"""Puts Gaussians of one scale on a circle, evenly.

    $$\mu_k = r \, (\cos \tfrac{2 \pi k}{K}, \sin \tfrac{2 \pi k}{K}), \qquad \Sigma_k = s^2$$

    Args:
        modes: $K$.
        radius: $r$.
        scale: $s$.
        dtype: The precision.

    Examples:
        >>> ring().means.shape, round(ring().entropy, 3)
        (torch.Size([8, 2]), 1.698)
    """
    if modes < 1:
        raise ValueError(f"modes are at least 1: got {modes}")
    angles = 2 * math.pi * torch.arange(modes, dtype=dtype) / modes
    return Mixture.of(means=radius * torch.stack([angles.cos(), angles.sin()], dim=1), scale=scale)


def grid(*, side: int = 5, gap: float = 1.0, scale: float = 0.1, dtype: torch.dtype = torch.float64) -> Mixture:
    """Puts Gaussians of one scale on the points of a square grid around 0.

    Args:
        side: How many there are along each edge.
        gap: How far they are apart.
        scale: Their standard deviation.
        dtype: The precision.

    Examples:
        >>> len(grid().weights)
        25
    """
    if side < 1:
        raise ValueError(f"side is at least 1: got {side}")
    places = gap * (torch.arange(side, dtype=dtype) - (side - 1) / 2)
    return Mixture.of(means=torch.cartesian_prod(places, places), scale=scale)


def two_moons(*, modes: int = 32, scale: float = 0.1, dtype: torch.dtype = torch.float64) -> Mixture:
    r"""Puts Gaussians of one scale along two half circles that reach into each other, as near as makes them smooth.

    $$\mu = (\cos t, \sin t) \quad \text{and} \quad \mu = (1 - \cos t, \tfrac12 - \sin t), \qquad t \in [0, \pi]$$

    Args:
        modes: How many there are in each moon.
        scale: Their standard deviation; what is added to a point of `moons`.
        dtype: The precision.

    Examples:
        >>> two_moons().sample(3).shape
        torch.Size([3, 2])
    """
    if modes < 1:
        raise ValueError(f"modes are at least 1: got {modes}")
    t = math.pi * (torch.arange(modes, dtype=dtype) + 0.5) / modes
    upper = torch.stack([t.cos(), t.sin()], dim=1)
    return Mixture.of(means=torch.cat([upper, upper.new_tensor([1.0, 0.5]) - upper]), scale=scale)
