"""Data made by a formula: two moons to tell apart, a sine to fit."""

from __future__ import annotations

import math

import torch

from lawful.data.examples import Examples
from lawful.data.generators import generator_of


def moons(*, samples: int = 1000, noise: float = 0.1, seed: int = 0) -> Examples:
    r"""Draws points of two half circles that reach into each other.

    $$x = (\cos t, \sin t) \quad \text{and} \quad x = (1 - \cos t, \tfrac12 - \sin t), \qquad t \in [0, \pi]$$

    Args:
        samples: The number of points, half of them in each moon.
        noise: The standard deviation of what is added to each coordinate.
        seed: What the draw depends on.

    Examples:
        >>> moons(samples=6, noise=0.0).targets
        tensor([0, 0, 0, 1, 1, 1])
    """
    _check(samples, noise)
    generator = generator_of(seed)
    t = math.pi * torch.rand(samples, generator=generator)
    targets = (torch.arange(samples) >= (samples + 1) // 2).long()
    upper = torch.stack([t.cos(), t.sin()], dim=1)
    lower = torch.stack([1 - t.cos(), 0.5 - t.sin()], dim=1)
    points = torch.where(targets[:, None] == 0, upper, lower)
    points = points + noise * torch.randn(samples, 2, generator=generator)
    return Examples(inputs=points, targets=targets, classes=("upper", "lower"), columns=("x1", "x2"), name="moons")


def sine(*, samples: int = 200, noise: float = 0.1, seed: int = 0) -> Examples:
    r"""Draws points of a sine with noise.

    $$y = \sin(2 \pi x) + \sigma \varepsilon, \qquad x \sim U(-1, 1), \quad \varepsilon \sim N(0, 1)$$

    Args:
        samples: The number of points.
        noise: $\sigma$.
        seed: What the draw depends on.

    Examples:
        >>> sine(samples=5).targets.shape
        torch.Size([5, 1])
    """
    _check(samples, noise)
    generator = generator_of(seed)
    x = 2 * torch.rand(samples, 1, generator=generator) - 1
    y = torch.sin(2 * math.pi * x) + noise * torch.randn(samples, 1, generator=generator)
    return Examples(inputs=x, targets=y, columns=("x",), name="sine")


def _check(samples: int, noise: float) -> None:
    if samples < 2 or noise < 0:
        raise ValueError(f"at least 2 samples and a noise of at least 0 were wanted: got {samples} and {noise}")
