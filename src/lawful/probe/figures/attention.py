"""Where heads look, and what kind of head each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures.style import BLUE, SEQUENTIAL, VERMILION, Numbers, array, drawing, labelled, names_of, words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def attention_pattern(pattern: Numbers, *, tokens: Sequence[object] | None = None) -> Figure:
    """Draws how much each position looks at each, for every head: dark is nothing, bright is all.

    Args:
        pattern: The pattern, heads along the first axis, or that of a single head.
        tokens: The tokens, for the ticks.

    Examples:
        >>> figure = attention_pattern([[[1.0, 0.0], [0.5, 0.5]]], tokens=["a", "b"])
        >>> figure.axes[0].get_title()
        'head 0'
    """
    heads = array(pattern)
    heads = heads[None] if heads.ndim == 2 else heads
    if heads.ndim != 3 or not heads.size:
        raise ValueError(f"a pattern of shape (heads, queries, keys) was wanted: got {heads.shape}")
    count, queries, keys = heads.shape
    names = None if tokens is None else names_of(tokens, keys)
    columns = min(count, 4)
    rows = -(-count // columns)
    figure, grid = drawing(rows, columns, size=(max(4.0, 3.2 * columns), 3.4 * rows))
    grid = np.atleast_1d(np.asarray(grid, dtype=object)).ravel()
    images = [axes.imshow(head, cmap=SEQUENTIAL, vmin=0, vmax=1) for axes, head in zip(grid, heads, strict=False)]
    for axes in grid[count:]:
        axes.set_axis_off()
    for i, axes in enumerate(grid[:count]):
        labelled(axes, x="looks at", y="position", title=f"head {i}")
        if names is not None and keys <= 32:
            axes.set_xticks(range(keys), names, rotation=90, fontsize=8)
            axes.set_yticks(range(queries), names[keys - queries :], fontsize=8)
    figure.colorbar(images[0], ax=grid.tolist(), shrink=0.7).set_label("attention", fontsize=12)
    return figure


def head_grid(scores: Mapping[str, Numbers], *, title: str = "") -> Figure:
    """Draws a score of every head of every layer: a row a layer, a column a head.

    Args:
        scores: For each layer the scores of its heads; layers may differ in how many they have.
        title: What is scored.

    Examples:
        >>> figure = head_grid({"layers.0": [0.9, 0.1], "layers.1": [0.0, 0.2]}, title="induction")
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['0.90', '0.10', '0.00', '0.20']
    """
    rows = [array(values) for values in scores.values()]
    if not rows or any(row.ndim != 1 or not row.size for row in rows):
        raise ValueError(f"for each layer the scores of its heads were wanted: got {list(scores) or 'none'}")
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    figure, axes = drawing(size=(max(4.0, 1.5 + 0.9 * table.shape[1]), max(2.5, 1.5 + 0.5 * len(rows))))
    most = np.nanmax(np.abs(table)) or 1.0
    signed = bool((table[np.isfinite(table)] < 0).any())
    image = axes.imshow(
        table, cmap="RdBu" if signed else "Blues", vmin=-most if signed else 0, vmax=most, aspect="auto"
    )
    for i, j in np.argwhere(np.isfinite(table)):
        dark = abs(table[i, j]) > 0.6 * most
        colour = "white" if dark else "black"
        axes.text(j, i, f"{table[i, j]:.2f}", ha="center", va="center", fontsize=9, color=colour)
    axes.set_xticks(range(table.shape[1]))
    axes.set_yticks(range(len(rows)), [words(name, most=24) for name in scores])
    labelled(axes, x="head", y="layer", title=title)
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def part_bars(names: Sequence[str], values: Numbers, *, most: int = 20, what: str = "adds to the logit") -> Figure:
    """Draws the parts that add or take most as bars: paths, heads or layers.

    Args:
        names: The names of the parts.
        values: What each adds.
        most: How many are drawn, the largest.
        what: What they add to.

    Examples:
        >>> figure = part_bars(["embedding", "layers.0"], [0.1, -2.0])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['layers.0', 'embedding']
    """
    found = array(values)
    if found.ndim != 1 or len(names) != len(found) or not len(names):
        raise ValueError(f"a number for each name was wanted: got {len(names)} names, numbers of shape {found.shape}")
    order = np.argsort(-np.abs(found), kind="stable")[:most]
    figure, axes = drawing(size=(8.0, max(2.5, 1.2 + 0.32 * len(order))))
    colours = [BLUE if found[i] >= 0 else VERMILION for i in order]
    axes.barh(range(len(order)), found[order], color=colours)
    axes.set_yticks(range(len(order)), [words(names[i], most=48) for i in order])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    labelled(axes, x=what, y="part")
    return figure
