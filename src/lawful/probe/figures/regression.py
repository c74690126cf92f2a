"""A regression against the truth, and what it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures.style import GREY, MARKERS, PALETTE, Numbers, array, drawing, labelled, names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def predicted_and_true(y: Numbers, target: Numbers, *, unit: str = "", names: list[str] | None = None) -> Figure:
    """Draws predictions over the truth, and the residuals over the predictions.

    Residuals without a pattern are noise; a bow or a fan is something that the model has not learnt.

    Args:
        y: The predictions, of one target or of several.
        target: The truth.
        unit: The unit of the targets.
        names: The names of the targets.

    Examples:
        >>> figure = predicted_and_true([1.0, 2.0], [1.5, 2.0], unit="kg")
        >>> [axes.get_xlabel() for axes in figure.axes]
        ['true value [kg]', 'predicted value [kg]']
    """
    said, true = array(y), array(target)
    if said.shape != true.shape or not said.size:
        raise ValueError(f"as many predictions as targets were wanted: got shapes {said.shape} and {true.shape}")
    said, true = said.reshape(len(said), -1), true.reshape(len(true), -1)
    names, suffix = names_of(names, said.shape[1]), f" [{unit}]" if unit else ""
    figure, (left, right) = drawing(1, 2, size=(10.0, 5.0))
    look = {"s": 14, "alpha": float(np.clip(60 / np.sqrt(said.size), 0.15, 0.8)), "linewidths": 0}
    for i, name in enumerate(names):
        style = {**look, "color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)]}
        left.scatter(true[:, i], said[:, i], label=name, **style)
        right.scatter(said[:, i], said[:, i] - true[:, i], **style)
    ends = [min(true.min(), said.min()), max(true.max(), said.max())]
    left.plot(ends, ends, color=GREY, linestyle="--", linewidth=1.5, zorder=0)
    right.axhline(0, color=GREY, linestyle="--", linewidth=1.5, zorder=0)
    labelled(left, x=f"true value{suffix}", y=f"predicted value{suffix}")
    labelled(right, x=f"predicted value{suffix}", y=f"residual: predicted less true{suffix}")
    if len(names) > 1:
        left.legend(fontsize=11, frameon=False)
    return figure
