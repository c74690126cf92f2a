"""The small tables that come with scikit-learn.

Handwritten digits: the 1,797 images of 8 x 8 pixels that come with scikit-learn.
MNIST-1D: ten short curves, the digits of a series, each example bent, moved and covered with noise.
Data made by a formula: two moons to tell apart, a sine to fit.
The built-in data by name, each with the encoding of new ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lawful.data.batches import make_generator
from lawful.data.dataset import Arrays, SupervisedDataset
from lawful.data.table_encoding import Column, TableEncoding

TARGETS = {"iris": "species", "wine": "cultivar", "breast-cancer": "diagnosis", "diabetes": "progression"}
"""The tables, and what the target of each is called."""


def bundled(name: str) -> tuple[SupervisedDataset, TableEncoding]:
    """Reads one of the tables `iris`, `wine`, `breast-cancer` (classes) and `diabetes` (numbers), as it was measured.

    Args:
        name: Which table.

    Examples:
        >>> examples, encoding = bundled("iris")
        >>> examples.inputs.shape, examples.classes
        (torch.Size([150, 4]), ('setosa', 'versicolor', 'virginica'))
    """
    from sklearn import datasets

    if name not in TARGETS:
        raise ValueError(f"the tables are {', '.join(TARGETS)}: got {name!r}")
    load: Any = getattr(datasets, f"load_{name.replace('-', '_')}")
    data = load(scaled=False) if name == "diabetes" else load()
    columns, targets = tuple(map(str, data.feature_names)), torch.from_numpy(data.target)
    classes = None if name == "diabetes" else tuple(map(str, data.target_names))
    targets = targets.float()[:, None] if classes is None else targets.long()
    examples = SupervisedDataset(
        inputs=torch.from_numpy(data.data).float(), targets=targets, classes=classes, columns=columns, name=name
    )
    return examples, TableEncoding(tuple(map(Column, columns)), Column(TARGETS[name], classes))


def digits() -> SupervisedDataset:
    """Reads the digits: `n 1 8 8`, from 0 to 1 in steps of 1/16.

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


def mnist1d(*, samples: int = 5000, seed: int = 42) -> SupervisedDataset:
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
    return SupervisedDataset(
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


def moons(*, samples: int = 1000, noise: float = 0.1, seed: int = 0) -> SupervisedDataset:
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
    generator = make_generator(seed)
    x = 2 * torch.rand(samples, 1, generator=generator) - 1
    y = torch.sin(2 * math.pi * x) + noise * torch.randn(samples, 1, generator=generator)
    return SupervisedDataset(inputs=x, targets=y, columns=("x",), name="sine")


def _check(samples: int, noise: float) -> None:
    if samples < 2 or noise < 0:
        raise ValueError(f"at least 2 samples and a noise of at least 0 were wanted: got {samples} and {noise}")


Made = tuple[SupervisedDataset, TableEncoding | Arrays]


def _arrays(make: Callable[[], SupervisedDataset]) -> Callable[[], Made]:
    def made() -> Made:
        examples = make()
        return examples, Arrays(tuple(examples.inputs.shape[1:]), examples.classes)

    return made


def _columns(make: Callable[[], SupervisedDataset], target: str) -> Callable[[], Made]:
    def made() -> Made:
        examples = make()
        return examples, TableEncoding(tuple(map(Column, examples.columns or ())), Column(target, examples.classes))

    return made


BUILTIN: dict[str, Callable[[], Made]] = {
    "digits": _arrays(digits),
    "mnist1d": _arrays(mnist1d),
    "iris": lambda: bundled("iris"),
    "wine": lambda: bundled("wine"),
    "breast-cancer": lambda: bundled("breast-cancer"),
    "diabetes": lambda: bundled("diabetes"),
    "moons": _columns(moons, "moon"),
    "sine": _columns(sine, "y"),
}
"""The data that need no file, by name."""
