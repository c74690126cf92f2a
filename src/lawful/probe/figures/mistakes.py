"""The most confident mistakes: where a classifier was sure and wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures.style import BLUE, Numbers, array, drawing, names_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def mistakes(
    x: Numbers, p: Numbers, labels: Numbers, *, names: Sequence[object] | None = None, most: int = 12
) -> Figure:
    r"""Draws the examples whose wrong class was given the highest probability, images or series.

    Args:
        x: The examples: (n, h, w), (n, c, h, w) with one or three channels, (n, t), or (n, 1, t).
        p: The probabilities of the classes.
        labels: The right classes.
        names: The names of the classes.
        most: How many are drawn.

    Examples:
        >>> figure = mistakes([[[0.0, 1.0], [1.0, 0.0]]], [[0.1, 0.9]], [0])
        >>> figure.axes[0].get_title()
        'is 0\nsaid 1, 90 %'
    """
    x, p, right = array(x), array(p), array(labels).astype(int)
    if p.ndim != 2 or not len(x) == len(p) == len(right):
        raise ValueError(f"an example and a label for each row were wanted: got {x.shape}, {p.shape} and {right.shape}")
    names, said, sure = names_of(names, p.shape[1]), p.argmax(1), p.max(1)
    wrong = np.flatnonzero(said != right)
    worst = wrong[np.argsort(-sure[wrong], kind="stable")][:most]
    columns = max(1, min(6, len(worst)))
    rows = max(1, -(-len(worst) // columns))
    figure, grid = drawing(rows, columns, size=(8.0, 1.7 * rows + 0.5))
    places = np.ravel(grid)
    for axes in places:
        axes.set_axis_off()
    for axes, i in zip(places, worst, strict=False):
        draw_example(axes, x[i])
        axes.set_title(f"is {names[right[i]]}\nsaid {names[said[i]]}, {100 * sure[i]:.0f} %", fontsize=10)
    kept = f" (the {len(worst)} that it was surest of)" if len(wrong) > len(worst) else ""
    figure.suptitle(f"{len(wrong)} mistakes in {len(p)} examples{kept}", fontsize=12)
    return figure


def draw_example(axes: Axes, x: np.ndarray) -> None:
    """One example: a series as a line, an image in its colours or in grey."""
    x = x[0] if x.ndim > 1 and x.shape[0] == 1 else x
    if x.ndim == 1:
        axes.plot(x, color=BLUE, linewidth=1.5)
    elif x.ndim == 2:
        axes.imshow(x, cmap="gray_r")
    elif x.ndim == 3 and x.shape[0] == 3:
        low, high = x.min(), x.max()
        axes.imshow(((x - low) / (high - low if high > low else 1)).transpose(1, 2, 0))
    else:
        raise ValueError(f"images of one or three channels, or series, were wanted: got shape {x.shape}")
