"""Built-in datasets: scikit-learn's small tables and digits, MNIST-1D, two moons, a noisy sine, and rendered cubes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lawful.data.batches import make_generator
from lawful.data.cubes import cubes
from lawful.data.dataset import Arrays, SupervisedDataset
from lawful.data.table_encoding import Column, TableEncoding

_TARGETS = {"iris": "species", "wine": "cultivar", "breast-cancer": "diagnosis", "diabetes": "progression"}
"""Target name of each scikit-learn table."""


def sklearn_table(name: str) -> tuple[SupervisedDataset, TableEncoding]:
    """Loads one of scikit-learn's tables, with unscaled values.

    Args:
        name: "iris", "wine" or "breast-cancer" (classification), or "diabetes" (regression).

    Examples:
        >>> examples, encoding = sklearn_table("iris")
        >>> examples.inputs.shape, examples.classes
        (torch.Size([150, 4]), ('setosa', 'versicolor', 'virginica'))
    """
    from sklearn import datasets

    if name not in _TARGETS:
        raise ValueError(f"name must be one of {', '.join(_TARGETS)}, got {name!r}")
    load: Any = getattr(datasets, f"load_{name.replace('-', '_')}")
    data = load(scaled=False) if name == "diabetes" else load()
    columns, targets = tuple(map(str, data.feature_names)), torch.from_numpy(data.target)
    classes = None if name == "diabetes" else tuple(map(str, data.target_names))
    targets = targets.float()[:, None] if classes is None else targets.long()
    examples = SupervisedDataset(
        inputs=torch.from_numpy(data.data).float(), targets=targets, classes=classes, columns=columns, name=name
    )
    return examples, TableEncoding(tuple(map(Column, columns)), Column(_TARGETS[name], classes))


def digits() -> SupervisedDataset:
    """Loads scikit-learn's 1,797 handwritten digits of shape (1, 8, 8), between 0 and 1 in steps of 1/16.

    Reference:
        Alpaydin and Kaynak, *Optical Recognition of Handwritten Digits*, 1998.

    Examples:
        >>> digits().inputs.shape
        torch.Size([1797, 1, 8, 8])
    """
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    inputs = torch.from_numpy(data.images).float()[:, None] / 16
    targets = torch.from_numpy(data.target).long()
    return SupervisedDataset(inputs=inputs, targets=targets, classes=tuple(map(str, range(10))), name="digits")


_TEMPLATES = (
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
"""Template curve of each digit."""
_LONG, _SHORT = 72, 40
"""Number of points of a curve while it is transformed, and in the end."""
_MIN_PADDING, _MAX_PADDING = 36, 60
"""Number of zeros appended to a template."""
_MAX_SHIFT, _SCALE, _SHEAR = 48, 0.4, 0.75
_SMOOTH_NOISE, _WHITE_NOISE = 0.25, 0.02
"""Standard deviation of the correlated noise off the curve, and of the white noise everywhere."""


def mnist1d(*, samples: int = 5000, seed: int = 42) -> SupervisedDataset:
    """Generates MNIST-1D: examples of shape (1, 40), standardized.

    The examples equal the package `mnist1d` for the same seed. By default the first 4,000 are its training split, the
    others its test split.

    Reference:
        Greydanus and Kobak, *Scaling Down Deep Learning with MNIST-1D*, 2020.

    Args:
        samples: Number of examples, rounded down to a multiple of 10.
        seed: Random seed.

    Examples:
        >>> mnist1d(samples=50).inputs.shape
        torch.Size([50, 1, 40])
    """
    if samples < len(_TEMPLATES):
        raise ValueError(f"samples must be at least {len(_TEMPLATES)}, got {samples}")
    each = samples // len(_TEMPLATES)
    labels = np.repeat(np.arange(len(_TEMPLATES)), each)
    random = np.random.RandomState(seed)
    zeros, scales, shifts, smooth, rough, tilts = _random_numbers(random, len(labels))
    curves = _padded_templates()[labels, zeros] * (1 + _SCALE * (scales - 0.5))[:, None]
    curves = np.take_along_axis(curves, (np.arange(_LONG) - shifts[:, None]) % _LONG, axis=1)
    curves = np.where(curves != 0, curves, _SMOOTH_NOISE * smooth @ _blur().T) + _WHITE_NOISE * rough
    curves -= _SHEAR * (tilts - 0.5)[:, None] * np.linspace(-0.5, 0.5, _LONG)
    curves = curves @ _subsampling().T
    order = random.permutation(len(labels))
    curves = (curves - curves.mean()) / curves.std()
    return SupervisedDataset(
        inputs=torch.from_numpy(curves[order]).float()[:, None],
        targets=torch.from_numpy(labels[order]),
        classes=tuple(map(str, range(len(_TEMPLATES)))),
        name="mnist1d",
    )


def _random_numbers(random: np.random.RandomState, n: int) -> tuple[np.ndarray, ...]:
    """Draws the random numbers of each example in the order of the package `mnist1d`."""
    zeros, scales, shifts, tilts = np.empty(n, dtype=int), np.empty(n), np.empty(n, dtype=int), np.empty(n)
    smooth, rough = np.empty((n, _LONG)), np.empty((n, _LONG))
    for i in range(n):
        zeros[i] = random.rand() * (_MAX_PADDING - _MIN_PADDING + 1)
        scales[i] = random.rand()
        shifts[i] = random.randint(_MAX_SHIFT)
        smooth[i], rough[i] = random.randn(_LONG), random.randn(_LONG)
        tilts[i] = random.rand()
    return zeros, scales, shifts, smooth, rough, tilts


def _padded_templates() -> np.ndarray:
    """Returns each template with each amount of padding, resampled: (digits, paddings, points)."""
    curves = np.array(_TEMPLATES)
    curves = (curves - curves.mean(1, keepdims=True)) / curves.std(1, keepdims=True)
    curves = (curves - curves[:, :1]) / 6 + 1e-8
    points = np.linspace(0, 1, _LONG)
    padded = [[np.append(curve, np.zeros(k)) for k in range(_MIN_PADDING, _MAX_PADDING + 1)] for curve in curves]
    return np.array([[np.interp(points, np.linspace(0, 1, len(x)), x) for x in row] for row in padded])


def _blur() -> np.ndarray:
    """Returns the matrix of a Gaussian filter with standard deviation 2, truncated at 8, with reflection."""
    offsets = np.arange(-8, 9)
    weights = np.exp(-(offsets**2) / 8)
    weights /= weights.sum()
    matrix = np.zeros((_LONG, _LONG))
    for offset, weight in zip(offsets, weights, strict=True):
        places = np.arange(_LONG) + offset
        places = np.where(places < 0, -1 - places, np.where(places >= _LONG, 2 * _LONG - 1 - places, places))
        np.add.at(matrix, (np.arange(_LONG), places), weight)
    return matrix


def _subsampling() -> np.ndarray:
    """Returns the matrix that resamples a curve by linear interpolation."""
    points, knots = np.linspace(0, 1, _SHORT), np.linspace(0, 1, _LONG)
    return np.stack([np.interp(points, knots, unit) for unit in np.eye(_LONG)], axis=1)


def moons(*, samples: int = 1000, noise: float = 0.1, seed: int = 0) -> SupervisedDataset:
    r"""Generates two interleaving half circles.

    $$x = (\cos t, \sin t) \quad \text{and} \quad x = (1 - \cos t, \tfrac12 - \sin t), \qquad t \in [0, \pi]$$

    Args:
        samples: Number of points, half of them in each moon.
        noise: Standard deviation of the Gaussian noise.
        seed: Random seed.

    Examples:
        >>> moons(samples=6, noise=0.0).targets
        tensor([0, 0, 0, 1, 1, 1])
    """
    _check(samples, noise)
    generator = make_generator(seed)
    t = math.pi * torch.rand(samples, generator=generator)
    targets = (torch.arange(samples) >= (samples + 1) // 2).long()
    upper = torch.stack([t.cos(), t.sin()], dim=1)
    lower = torch.stack([1 - t.cos(), 0.5 - t.sin()], dim=1)
    points = torch.where(targets[:, None] == 0, upper, lower)
    points = points + noise * torch.randn(samples, 2, generator=generator)
    return SupervisedDataset(
        inputs=points, targets=targets, classes=("upper", "lower"), columns=("x1", "x2"), name="moons"
    )


def sine(*, samples: int = 200, noise: float = 0.1, seed: int = 0) -> SupervisedDataset:
    r"""Generates a noisy sine.

    $$y = \sin(2 \pi x) + \sigma \varepsilon, \qquad x \sim U(-1, 1), \quad \varepsilon \sim N(0, 1)$$

    Args:
        samples: Number of points.
        noise: Standard deviation $\sigma$ of the noise.
        seed: Random seed.

    Examples:
        >>> sine(samples=5).targets.shape
        torch.Size([5, 1])
    """
    _check(samples, noise)
    generator = make_generator(seed)
    x = 2 * torch.rand(samples, 1, generator=generator) - 1
    y = torch.sin(2 * math.pi * x) + noise * torch.randn(samples, 1, generator=generator)
    return SupervisedDataset(inputs=x, targets=y, columns=("x",), name="sine")


def _check(samples: int, noise: float) -> None:
    if samples < 2 or noise < 0:
        raise ValueError(f"samples must be at least 2 and noise non-negative, got {samples} and {noise}")


_Dataset = tuple[SupervisedDataset, TableEncoding | Arrays]


def _as_arrays(make: Callable[[], SupervisedDataset]) -> Callable[[], _Dataset]:
    def load() -> _Dataset:
        examples = make()
        return examples, Arrays(tuple(examples.inputs.shape[1:]), examples.classes)

    return load


def _as_table(make: Callable[[], SupervisedDataset], target: str) -> Callable[[], _Dataset]:
    def load() -> _Dataset:
        examples = make()
        return examples, TableEncoding(tuple(map(Column, examples.columns or ())), Column(target, examples.classes))

    return load


BUILTIN: dict[str, Callable[[], _Dataset]] = {
    "digits": _as_arrays(digits),
    "mnist1d": _as_arrays(mnist1d),
    "iris": lambda: sklearn_table("iris"),
    "wine": lambda: sklearn_table("wine"),
    "breast-cancer": lambda: sklearn_table("breast-cancer"),
    "diabetes": lambda: sklearn_table("diabetes"),
    "moons": _as_table(moons, "moon"),
    "sine": _as_table(sine, "y"),
    "cubes": _as_arrays(cubes),
}
"""Built-in datasets by name."""
