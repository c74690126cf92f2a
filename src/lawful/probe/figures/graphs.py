"""Drawings of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures._style import (
    GRAY,
    MARKERS,
    PALETTE,
    VERMILION,
    Numbers,
    labels_or_indices,
    new_figure,
    shorten_label,
    to_numpy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def graph_layout(edge_index: Numbers, num_nodes: int, *, seed: int = 0) -> np.ndarray:
    """Returns positions (n, 2) of the nodes, so that neighbors are close: the spring layout of NetworkX.

    Args:
        edge_index: Source and target of each edge.
        num_nodes: Number of nodes.
        seed: Random seed.

    Examples:
        >>> graph_layout([[0, 1], [1, 2]], 3).shape
        (3, 2)
    """
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(zip(*to_numpy(edge_index).astype(int).reshape(2, -1).tolist(), strict=True))
    places = nx.spring_layout(graph, seed=seed, iterations=100, k=2.0 / max(1, num_nodes) ** 0.5, method="force")
    return np.array([places[i] for i in range(num_nodes)])


def graph_drawing(
    edge_index: Numbers,
    classes: Numbers,
    *,
    names: Sequence[object] | None = None,
    known: Numbers | None = None,
    wrong: Numbers | None = None,
    node_names: Sequence[str] | None = None,
) -> Figure:
    """Draws a graph: colors are classes, small nodes have a known label, circled ones are wrong.

    Args:
        edge_index: Source and target of each edge.
        classes: Class of each node.
        names: Names of the classes.
        known: Which nodes have a known label.
        wrong: Which nodes have a wrong class.
        node_names: Names of the nodes, written beside them.

    Examples:
        >>> figure = graph_drawing([[0, 1], [1, 2]], [0, 1, 1], names=("a", "b"))
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['a', 'b']
    """
    from matplotlib.collections import PathCollection

    figure, axes = new_figure(size=(9.0, 7.0))
    _draw_graph(axes, edge_index, classes, names=names, known=known, wrong=wrong, node_names=node_names)
    legend = axes.legend(fontsize=11, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    for handle in legend.legend_handles:
        if isinstance(handle, PathCollection):
            handle.set_sizes([60])
    return figure


def graph_grid(
    graphs: Sequence[tuple[Numbers, int]], titles: Sequence[str], *, wrong: Sequence[bool] | None = None
) -> Figure:
    """Draws small graphs side by side, with titles; wrong ones in red.

    Args:
        graphs: Edges and the number of nodes of each graph.
        titles: Title of each graph.
        wrong: Which titles are red.

    Examples:
        >>> figure = graph_grid([([[0, 1], [1, 2]], 3)], ["path"])
        >>> figure.axes[0].get_title()
        'path'
    """
    if not 0 < len(graphs) == len(titles):
        raise ValueError(f"expected graphs and titles of equal length, got {len(graphs)} and {len(titles)}")
    columns = min(6, len(graphs))
    rows = -(-len(graphs) // columns)
    figure, grid = new_figure(rows, columns, size=(max(4.0, 2.0 * columns), 2.2 * rows))
    places = np.ravel(grid)
    for axes in places:
        axes.set_axis_off()
    for k, (axes, (edges, count), title) in enumerate(zip(places, graphs, titles, strict=False)):
        _draw_graph(axes, edges, np.zeros(count), size=18)
        red = wrong is not None and wrong[k]
        axes.set_title(shorten_label(title, max_length=26), fontsize=10, color=VERMILION if red else "black")
    return figure


def _draw_graph(
    axes: Axes,
    edge_index: Numbers,
    classes: Numbers,
    *,
    names: Sequence[object] | None = None,
    known: Numbers | None = None,
    wrong: Numbers | None = None,
    node_names: Sequence[str] | None = None,
    size: float | None = None,
) -> None:
    from matplotlib.collections import LineCollection

    label = to_numpy(classes).astype(int)
    n = len(label)
    edges = to_numpy(edge_index).astype(int).reshape(2, -1)
    points = graph_layout(edges, n)
    axes.add_collection(LineCollection(points[edges.T].tolist(), colors=GRAY, linewidths=0.6, alpha=0.4, zorder=1))
    fixed = np.zeros(n, bool) if known is None else to_numpy(known).astype(bool)
    size = float(np.clip(12_000 / n, 18, 220)) if size is None else size
    texts = labels_or_indices(names, int(label.max()) + 1 if names is None else len(names))
    for k, name in enumerate(texts):
        here = label == k
        sizes = np.where(fixed[here], 0.35 * size, size)
        style = {"color": PALETTE[k % len(PALETTE)], "marker": MARKERS[k % len(MARKERS)], "zorder": 2}
        axes.scatter(*points[here].T, s=sizes, label=name, edgecolors="white", linewidths=0.5, **style)
    if wrong is not None and (mistakes := to_numpy(wrong).astype(bool)).any():
        ring = {"facecolors": "none", "edgecolors": VERMILION, "linewidths": 1.8, "zorder": 3}
        axes.scatter(*points[mistakes].T, s=2.6 * size, label="wrong", **ring)
    if fixed.any():
        axes.scatter([], [], s=0.35 * size, color=GRAY, label="small: known label")
    for place, name in zip(points, node_names or (), strict=False):
        axes.annotate(shorten_label(name, max_length=12), place, (5, 4), textcoords="offset points", fontsize=8)
    axes.set_axis_off()
    axes.margins(0.05)
