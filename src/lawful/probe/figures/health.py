"""What is wrong inside, or far out: dead units, and confidence away from the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures.style import BLUE, GREY, ORANGE, VERMILION, Numbers, array, drawing, labelled, words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def dead_unit_bars(counts: Mapping[str, tuple[int, int]]) -> Figure:
    """Draws how many units of each layer are dead: 0 on all of the data.

    Args:
        counts: The dead units and all units of each layer, by its name.

    Examples:
        >>> figure = dead_unit_bars({"layers.0": (3, 64)})
        >>> figure.axes[0].texts[0].get_text()
        '3 of 64'
    """
    if not counts:
        raise ValueError("at least one layer was wanted: got none")
    figure, axes = drawing(size=(8.0, 1.6 + 0.4 * len(counts)))
    dead, units = np.array(list(counts.values()), dtype=float).T
    share, places = 100 * dead / np.maximum(units, 1), np.arange(len(counts))
    axes.barh(places, 100, color=BLUE, alpha=0.25, label="active")
    axes.barh(places, share, color=VERMILION, hatch="//", edgecolor="white", label="dead")
    for place, (some, all_) in zip(places, counts.values(), strict=True):
        axes.text(101, place, f"{some} of {all_}", va="center", fontsize=11)
    axes.set_yticks(places, [words(name, most=30) for name in counts])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    labelled(axes, x="share of the layer's units [%]", y="layer")
    axes.legend(fontsize=11, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def confidence_along_rays(distance: Numbers, confidence: Numbers, *, classes: int) -> Figure:
    """Draws how sure a classifier is along rays that leave the data.

    Args:
        distance: How far out, in radii of the data.
        confidence: The largest probability, a row for each ray.
        classes: How many classes there are: one who knows nothing is sure to one part in so many.

    Examples:
        >>> figure = confidence_along_rays([0.1, 1.0, 10.0], [[0.5, 0.6, 0.9], [0.5, 0.7, 1.0]], classes=2)
        >>> figure.axes[0].get_xscale()
        'log'
    """
    far, sure = array(distance), array(confidence)
    if sure.ndim != 2 or sure.shape[1:] != far.shape or not sure.size:
        raise ValueError(f"a row of {far.shape} for each ray was wanted: got {sure.shape}")
    figure, axes = drawing()
    low, middle, high = np.quantile(sure, [0.1, 0.5, 0.9], axis=0)
    axes.fill_between(far, low, high, color=BLUE, alpha=0.2, linewidth=0, label="8 of 10 rays")
    axes.plot(far, middle, color=BLUE, linewidth=2, label="median ray")
    axes.axhline(1 / classes, color=ORANGE, linestyle="--", linewidth=1.5, label="no idea")
    axes.axvline(1, color=GREY, linestyle=":", linewidth=1.5, label="typical data")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.03)
    labelled(axes, x="distance from the centre of the data [radii of the data]", y="largest probability of a class")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=11, frameon=False, loc="lower right")
    return figure
