"""Diagrams of small networks: units at their positions, weights as lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures._style import BLUE, VERMILION, Numbers, new_figure, shorten_label, to_numpy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_SLANT = (0.25, 0.35)
"""Horizontal and vertical offset of the second coordinate of a position."""
_MAX_LINE_WIDTH = 2.5


@dataclass(frozen=True, kw_only=True)
class Network:
    """Weights of a stack of linear layers, with labels of inputs and outputs."""

    weights: Sequence[Numbers]
    """Weight matrices from the input to the output, one row per output unit."""
    inputs: Sequence[object] = ()
    """Labels of the inputs; none by default."""
    outputs: Sequence[object] = ()
    """Labels of the outputs; none by default."""
    title: str = ""


def network_diagram(*networks: Network, positions: Sequence[Numbers]) -> Figure:
    """Draws networks side by side: positive weights blue, negative ones red, line widths relative to each layer.

    Args:
        networks: Networks, such as before and after training.
        positions: Positions of the units of each layer, inputs first, of shape (n, 1) or (n, 2).

    Examples:
        >>> small = Network(weights=[[[1.0, -0.5]]], inputs=("a", "b"), title="small")
        >>> figure = network_diagram(small, positions=[[[0.25], [0.75]], [[0.5]]])
        >>> figure.axes[0].get_title()
        'small'
    """
    if not networks:
        raise ValueError("expected at least one network, got none")
    figure, panels = new_figure(1, len(networks), size=(5.5 * len(networks), 1.0 + 1.4 * len(positions)))
    points = [_unit_points(to_numpy(layer), height) for height, layer in enumerate(positions)]
    for axes, network in zip(np.atleast_1d(panels), networks, strict=True):
        _draw_network(axes, network, points)
    return figure


def _unit_points(layer: np.ndarray, height: int) -> np.ndarray:
    """Returns the points of the units of a layer in the figure."""
    if layer.ndim != 2 or layer.shape[1] not in (1, 2):
        raise ValueError(f"expected positions with 1 or 2 coordinates, got shape {layer.shape}")
    depth = layer[:, 1] if layer.shape[1] == 2 else np.zeros(len(layer))
    return np.stack([layer[:, 0] + _SLANT[0] * depth, height + _SLANT[1] * depth], axis=1)


def _draw_network(axes: Axes, network: Network, points: Sequence[np.ndarray]) -> None:
    from matplotlib.collections import LineCollection

    weights = [to_numpy(w) for w in network.weights]
    expected = [(len(above), len(below)) for below, above in pairwise(points)]
    if (shapes := [w.shape for w in weights]) != expected:
        raise ValueError(f"expected weights of shapes {expected}, got {shapes}")
    for w, (below, above) in zip(weights, pairwise(points), strict=True):
        size = np.abs(w) / (np.abs(w).max() or 1.0)
        rows, columns = np.nonzero(size > 0.005)
        lines = np.stack([above[rows], below[columns]], axis=1)
        colors = np.where(w[rows, columns] > 0, BLUE, VERMILION).tolist()
        axes.add_collection(
            LineCollection(lines.tolist(), colors=colors, linewidths=_MAX_LINE_WIDTH * size[rows, columns])
        )
    for layer in points:
        axes.scatter(*layer.T, s=14, color="black", zorder=3)
    for names, layer, up in ((network.inputs, points[0], -1), (network.outputs, points[-1], 1)):
        for name, (x, y) in zip(names, layer, strict=bool(names)):
            side = "bottom" if up > 0 else "top"
            axes.annotate(
                shorten_label(name, max_length=30),
                (x, y),
                (0, 7 * up),
                textcoords="offset points",
                ha="center",
                va=side,
                fontsize=11,
            )
    axes.margins(0.08, 0.1)
    axes.set_axis_off()
    axes.set_title(network.title, fontsize=13)
