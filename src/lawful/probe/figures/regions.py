"""Decision regions: which class a classifier gives to each point of the plane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lawful.probe.figures.style import MARKERS, PALETTE, Numbers, array, drawing, labelled, names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def decision_regions(
    classify: Callable[[Tensor], Tensor],
    x: Numbers,
    labels: Numbers,
    *,
    names: Sequence[object] | None = None,
    axes_names: tuple[str, str] = ("first input", "second input"),
    points: int = 200,
) -> Figure:
    """Colours the plane by the most probable class, stronger where it is surer, and draws the data on it.

    Args:
        classify: What gives probabilities of the classes, (n, c), of points, (n, 2).
        x: The data, two numbers each.
        labels: Their classes.
        names: The names of the classes.
        axes_names: What the two numbers are, with their units.
        points: How many points there are along each side of the plane.

    Examples:
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> figure = decision_regions(lambda x: torch.softmax(x, -1), x, [0, 1], points=5)
        >>> figure.axes[0].get_xlabel()
        'first input'
    """
    from matplotlib.colors import to_rgb

    data, right = array(x), array(labels).astype(int)
    if data.ndim != 2 or data.shape[1] != 2 or len(data) != len(right) or not len(data):
        raise ValueError(f"rows of two numbers, and a class each, were wanted: got {data.shape} and {right.shape}")
    low, high = data.min(0), data.max(0)
    margin = 0.1 * np.where(high > low, high - low, 1.0)
    sides = [np.linspace(a - m, b + m, points) for a, b, m in zip(low, high, margin, strict=True)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    p = array(classify(torch.as_tensor(grid, dtype=torch.get_default_dtype())))
    c = p.shape[1]
    colours = np.array([to_rgb(PALETTE[k % len(PALETTE)]) for k in range(c)])
    sure = (p.max(1) - 1 / c) / (1 - 1 / c) if c > 1 else np.ones(len(p))
    strength = (0.1 + 0.5 * np.clip(sure, 0, 1))[:, None]
    picture = (1 - strength) + strength * colours[p.argmax(1)]
    figure, axes = drawing(size=(8.0, 6.5))
    extent = (sides[0][0], sides[0][-1], sides[1][0], sides[1][-1])
    axes.imshow(picture.reshape(points, points, 3), origin="lower", extent=extent, aspect="auto")
    for k, name in enumerate(names_of(names, c)):
        here = data[right == k]
        style = {"color": colours[k], "marker": MARKERS[k % len(MARKERS)], "edgecolors": "black", "linewidths": 0.6}
        if len(here):
            axes.scatter(*here.T, s=30, label=name, **style)
    labelled(axes, x=axes_names[0], y=axes_names[1])
    axes.legend(fontsize=11, title="true class", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure
