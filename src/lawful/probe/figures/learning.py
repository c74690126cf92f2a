"""Learning curves: how a figure changes while a model trains."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures.style import GREY, MARKERS, PALETTE, Numbers, array, drawing, labelled, words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHES = ("-", "--", "-.", ":")


def learning_curves(
    curves: Mapping[str, tuple[Numbers, Numbers]], *, y: str = "loss", x: str = "step", best: float | None = None
) -> Figure:
    """Draws curves over the steps of training; where train and validation part, the model begins to overfit.

    Positive values that span more than a factor of 30 are drawn on a logarithmic scale. A curve with many points is
    drawn faint, with its moving average on top.

    Args:
        curves: The steps and the values of each curve, by its name: `train`, `validation`.
        y: What the values are, with their unit.
        x: What the steps are.
        best: The step whose weights are kept.

    Examples:
        >>> figure = learning_curves({"train": ([0, 1, 2], [3.0, 2.0, 1.0]), "validation": ([0, 2], [3.0, 2.0])})
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('step', 'loss')
    """
    if not curves:
        raise ValueError("at least one curve was wanted: got none")
    figure, axes = drawing()
    drawn = {name: (array(steps), array(values)) for name, (steps, values) in curves.items()}
    styles = zip(cycle(PALETTE), cycle(DASHES), cycle(MARKERS))
    for (name, (steps, values)), (colour, dash, marker) in zip(drawn.items(), styles, strict=False):
        if len(steps) != len(values):
            raise ValueError(f"as many steps as values were wanted of {name!r}: got {len(steps)} and {len(values)}")
        if len(steps) > 200:
            axes.plot(steps, values, color=colour, alpha=0.25, linewidth=0.8)
            steps, values = _smooth(steps, values)
        few = {"marker": marker, "markersize": 4} if len(steps) < 40 else {}
        axes.plot(steps, values, color=colour, linestyle=dash, linewidth=2, label=words(name, most=40), **few)
    everything = np.concatenate([values for _, values in drawn.values()])
    seen = everything[np.isfinite(everything)]
    if len(seen) and seen.min() > 0 and seen.max() > 30 * seen.min():
        axes.set_yscale("log")
    if best is not None:
        axes.axvline(best, color=GREY, linestyle=":", linewidth=1.5, label="weights that are kept")
    labelled(axes, x=x, y=y)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=11, frameon=False)
    return figure


def _smooth(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean over a window of a fiftieth of the points, at its middle."""
    width = len(values) // 50 + 1
    kernel = np.ones(width) / width
    return np.convolve(steps, kernel, mode="valid"), np.convolve(values, kernel, mode="valid")
