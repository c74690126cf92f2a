"""A forecast: what was, what may come, and what came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures.style import BLUE, GREY, ORANGE, Numbers, array, drawing, labelled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def forecast_band(history: Numbers, quantiles: tuple[Numbers, Numbers, Numbers], *, truth: Numbers) -> Figure:
    """Draws the end of a series, the median of its forecast with a band around it, and what came.

    Args:
        history: The values that were read.
        quantiles: The low quantile, the median and the high one of each value after them.
        truth: The values after them.

    Examples:
        >>> forecast_band([1, 2, 3], ([3, 3], [4, 5], [5, 7]), truth=[4, 6]).axes[0].get_xlabel()
        'step'
    """
    figure, axes = drawing()
    past, (low, median, high), after = array(history), map(array, quantiles), array(truth)
    ahead = np.arange(1, len(median) + 1)
    axes.plot(np.arange(1 - len(past), 1), past, color=GREY, marker=".", label="read")
    axes.fill_between(ahead, low, high, color=BLUE, alpha=0.25, label="quantiles 0.1 to 0.9")
    axes.plot(ahead, median, color=BLUE, marker="o", label="median")
    axes.plot(ahead, after, color=ORANGE, marker="D", linestyle="--", label="what came")
    labelled(axes, x="step", y="value")
    axes.legend(frameon=False)
    return figure
