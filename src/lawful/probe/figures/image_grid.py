"""A network drawn with its units at their places: weights are lines, as thick as they are large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures.style import BLUE, VERMILION, Numbers, array, drawing, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SLANT = (0.25, 0.35)
"""How far the second coordinate of a place leads to the right and up, where places have two."""
THICKEST = 2.5


@dataclass(frozen=True, kw_only=True)
class Network:
    """The weights of a stack of affine layers, and what its ends are called."""

    weights: Sequence[Numbers]
    """From the input to the output, each with a row for each unit that it leads to."""
    inputs: Sequence[object] = ()
    """The names of the inputs, as they are placed; none are written if there are none."""
    outputs: Sequence[object] = ()
    """The names of the outputs, likewise."""
    title: str = ""


def laid_out(*networks: Network, places: Sequence[Numbers]) -> Figure:
    """Draws networks side by side: blue for weights above 0, red below, thickness relative to the largest of a layer.

    Args:
        networks: What to draw, such as a network before and after training.
        places: Where the units of each layer are, the inputs first: `n 1` or `n 2`.

    Examples:
        >>> small = Network(weights=[[[1.0, -0.5]]], inputs=("a", "b"), title="small")
        >>> figure = laid_out(small, places=[[[0.25], [0.75]], [[0.5]]])
        >>> figure.axes[0].get_title()
        'small'
    """
    if not networks:
        raise ValueError("at least one network was wanted: got none")
    figure, panels = drawing(1, len(networks), size=(5.5 * len(networks), 1.0 + 1.4 * len(places)))
    points = [_points(array(layer), height) for height, layer in enumerate(places)]
    for axes, network in zip(np.atleast_1d(panels), networks, strict=True):
        _draw(axes, network, points)
    return figure


def _points(layer: np.ndarray, height: int) -> np.ndarray:
    """Where the units of a layer are on the paper."""
    if layer.ndim != 2 or layer.shape[1] not in (1, 2):
        raise ValueError(f"places with 1 or 2 coordinates were wanted: got shape {layer.shape}")
    depth = layer[:, 1] if layer.shape[1] == 2 else np.zeros(len(layer))
    return np.stack([layer[:, 0] + SLANT[0] * depth, height + SLANT[1] * depth], axis=1)


def _draw(axes: Axes, network: Network, points: Sequence[np.ndarray]) -> None:
    from matplotlib.collections import LineCollection

    weights = [array(w) for w in network.weights]
    wanted = [(len(above), len(below)) for below, above in pairwise(points)]
    if (shapes := [w.shape for w in weights]) != wanted:
        raise ValueError(f"weights of shapes {wanted} were wanted: got {shapes}")
    for w, (below, above) in zip(weights, pairwise(points), strict=True):
        size = np.abs(w) / (np.abs(w).max() or 1.0)
        rows, columns = np.nonzero(size > 0.005)
        lines = np.stack([above[rows], below[columns]], axis=1)
        colours = np.where(w[rows, columns] > 0, BLUE, VERMILION).tolist()
        axes.add_collection(LineCollection(lines.tolist(), colors=colours, linewidths=THICKEST * size[rows, columns]))
    for layer in points:
        axes.scatter(*layer.T, s=14, color="black", zorder=3)
    for names, layer, up in ((network.inputs, points[0], -1), (network.outputs, points[-1], 1)):
        for name, (x, y) in zip(names, layer, strict=bool(names)):
            side = "bottom" if up > 0 else "top"
            axes.annotate(
                words(name, most=30), (x, y), (0, 7 * up), textcoords="offset points", ha="center", va=side, fontsize=11
            )
    axes.margins(0.08, 0.1)
    axes.set_axis_off()
    axes.set_title(network.title, fontsize=13)
