"""MNIST-1D: ten short curves, the digits of a series, each example bent, moved and covered with noise."""

from __future__ import annotations

import numpy as np
import torch

from lawful.data.examples import Examples

DIGITS = (
    (5, 6, 6.5, 6.75, 7, 7, 7, 7, 6.75, 6.5, 6, 5),
    (5, 3, 3, 3.4, 3.8, 4.2, 4.6, 5, 5.4, 5.8, 5, 5),
    (5, 6, 6.5, 6.5, 6, 5.25, 4.75, 4, 3.5, 3.5, 4, 5),
    (5, 6, 6.5, 6.5, 6, 5, 5, 6, 6.5, 6.5, 6, 5),
    (5, 4.4, 3.8, 3.2, 2.6, 2.6, 5, 5, 5, 5, 5, 5),
    (5, 3, 3, 3, 3, 5, 6, 6.5, 6.5, 6, 4.5, 5),
    (5, 4, 3.5, 3.25, 3, 3, 3, 3, 3.25, 3.5, 4, 5),
    (5, 7, 7, 6.6, 6.2, 5.8, 5.4, 5, 4.6, 4.2, 5, 5),
    (5, 4, 3.5, 3.5, 4, 5, 5, 4, 3.5, 3.5, 4, 5),
    (5, 4, 3.5, 3.5, 4, 5, 5, 5, 5, 4.7, 4.3, 5),
)
"""The curve of each digit: the data that define the set."""
KNOTS, LONG, SHORT = 12, 72, 40
"""The points of a curve, of one that is stretched and moved, and of an example."""
LEAST, MOST = 36, 60
"""How many zeros follow a curve before it is stretched."""
SHIFTS, SCALES, SHEAR = 48, 0.4, 0.75
"""How far a curve is moved, how much it is scaled, how much it is tilted."""
SMOOTH, ROUGH = 0.25, 0.02
"""The standard deviations of the smooth noise off the curve and of the noise everywhere."""


def mnist1d(*, samples: int = 5000, seed: int = 42) -> Examples:
    """Makes the examples of MNIST-1D: `n 1 40`, with mean 0 and standard deviation 1.

    The random numbers are those of the package `mnist1d`, so that the examples of a seed are the same: the first 4,000
    of the default are its training part, the others its test part. All examples are transformed at once.

    Reference:
        Greydanus and Kobak, *Scaling Down Deep Learning with MNIST-1D*, 2020.

    Args:
        samples: The number of examples, rounded down to a multiple of 10.
        seed: What the draw depends on.

    Examples:
        >>> mnist1d(samples=50).inputs.shape
        torch.Size([50, 1, 40])
    """
    if samples < len(DIGITS):
        raise ValueError(f"at least {len(DIGITS)} samples were wanted: got {samples}")
    each = samples // len(DIGITS)
    labels = np.repeat(np.arange(len(DIGITS)), each)
    random = np.random.RandomState(seed)
    zeros, scales, shifts, smooth, rough, tilts = _drawn(random, len(labels))
    curves = _stretched()[labels, zeros] * (1 + SCALES * (scales - 0.5))[:, None]
    curves = np.take_along_axis(curves, (np.arange(LONG) - shifts[:, None]) % LONG, axis=1)
    curves = np.where(curves != 0, curves, SMOOTH * smooth @ _blur().T) + ROUGH * rough
    curves -= SHEAR * (tilts - 0.5)[:, None] * np.linspace(-0.5, 0.5, LONG)
    curves = curves @ _subsampling().T
    order = random.permutation(len(labels))
    curves = (curves - curves.mean()) / curves.std()
    return Examples(
        inputs=torch.from_numpy(curves[order]).float()[:, None],
        targets=torch.from_numpy(labels[order]),
        classes=tuple(map(str, range(len(DIGITS)))),
        name="mnist1d",
    )


def _drawn(random: np.random.RandomState, n: int) -> tuple[np.ndarray, ...]:
    """The random numbers of each example, one example after the other."""
    zeros, scales, shifts, tilts = np.empty(n, dtype=int), np.empty(n), np.empty(n, dtype=int), np.empty(n)
    smooth, rough = np.empty((n, LONG)), np.empty((n, LONG))
    for i in range(n):
        zeros[i] = random.rand() * (MOST - LEAST + 1)
        scales[i] = random.rand()
        shifts[i] = random.randint(SHIFTS)
        smooth[i], rough[i] = random.randn(LONG), random.randn(LONG)
        tilts[i] = random.rand()
    return zeros, scales, shifts, smooth, rough, tilts


def _stretched() -> np.ndarray:
    """The curve of each digit, followed by each number of zeros, at evenly spaced points: digits x numbers x points."""
    curves = np.array(DIGITS)
    curves = (curves - curves.mean(1, keepdims=True)) / curves.std(1, keepdims=True)
    curves = (curves - curves[:, :1]) / 6 + 1e-8
    points = np.linspace(0, 1, LONG)
    padded = [[np.append(curve, np.zeros(k)) for k in range(LEAST, MOST + 1)] for curve in curves]
    return np.array([[np.interp(points, np.linspace(0, 1, len(x)), x) for x in row] for row in padded])


def _blur() -> np.ndarray:
    """The matrix of a Gaussian filter of width 2 that is cut off at 8 and reflects at the ends."""
    offsets = np.arange(-8, 9)
    weights = np.exp(-(offsets**2) / 8)
    weights /= weights.sum()
    matrix = np.zeros((LONG, LONG))
    for offset, weight in zip(offsets, weights, strict=True):
        places = np.arange(LONG) + offset
        places = np.where(places < 0, -1 - places, np.where(places >= LONG, 2 * LONG - 1 - places, places))
        np.add.at(matrix, (np.arange(LONG), places), weight)
    return matrix


def _subsampling() -> np.ndarray:
    """The matrix that takes a curve at fewer points, with lines in between."""
    points, knots = np.linspace(0, 1, SHORT), np.linspace(0, 1, LONG)
    return np.stack([np.interp(points, knots, unit) for unit in np.eye(LONG)], axis=1)
