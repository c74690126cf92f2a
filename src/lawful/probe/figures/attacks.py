"""Figures of attacks: accuracy against the size of a change, and what the changed inputs look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures.mistakes import draw_example
from lawful.probe.figures.style import Numbers, array, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def robustness_curve(eps: Numbers, accuracies: Mapping[str, Numbers], *, distance: str, chance: float) -> Figure:
    """Draws what is left of the accuracy as inputs may be changed more and more.

    Args:
        eps: The sizes of the change.
        accuracies: By the name of an attack, the accuracy at each size.
        distance: What the sizes are measured in.
        chance: The accuracy of guessing.

    Examples:
        >>> figure = robustness_curve([0, 1], {"attack": [1.0, 0.2], "noise": [1.0, 0.9]}, distance="linf", chance=0.1)
        >>> figure.axes[0].get_xlabel()
        'size of the change (linf)'
    """
    figure, axes = drawing(1, 1, size=(6.0, 4.0))
    for name, values in accuracies.items():
        axes.plot(array(eps), 100 * array(values), marker="o", label=name)
    axes.axhline(100 * chance, color="gray", linewidth=1, linestyle=":", label="guessing")
    axes.set_xlabel(f"size of the change ({distance})")
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(0, 101)
    axes.legend()
    return figure


def adversarial_examples(
    x: Numbers, near: Numbers, before: Sequence[str], after: Sequence[str], *, most: int = 8
) -> Figure:
    """Draws inputs, what an attack made of them, and the change, which is magnified to be seen.

    Args:
        x: The inputs: images or series, as `mistakes` takes them.
        near: What they became.
        before: What each was taken for.
        after: What it is taken for then.
        most: How many are drawn.

    Examples:
        >>> figure = adversarial_examples([[[0.0, 1.0]]], [[[0.1, 0.9]]], ["3"], ["8"])
        >>> [axes.get_title() for axes in figure.axes]
        ['3', '8', 'the change']
    """
    x, near = array(x)[:most], array(near)[:most]
    figure, grid = drawing(3, max(1, len(x)), size=(1.2 * max(3, len(x)), 4.2))
    places = np.asarray(grid).reshape(3, -1)
    for axes in places.flat:
        axes.set_axis_off()
    for i, (own, other) in enumerate(zip(x, near, strict=True)):
        for row, (shown, title) in enumerate(((own, before[i]), (other, after[i]), (other - own, "the change"))):
            draw_example(places[row, i], shown)
            places[row, i].set_title(title, fontsize=10)
    return figure
