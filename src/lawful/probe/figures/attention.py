"""Attention patterns, scores of heads, and contributions to logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures._style import (
    BLUE,
    SEQUENTIAL,
    VERMILION,
    Numbers,
    label_axes,
    labels_or_indices,
    new_figure,
    shorten_label,
    to_numpy,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def attention_pattern(pattern: Numbers, *, tokens: Sequence[object] | None = None) -> Figure:
    """Draws the attention pattern of each head: dark is 0, bright is 1.

    Args:
        pattern: Attention pattern of shape (heads, queries, keys), or of a single head.
        tokens: Labels of the keys.

    Examples:
        >>> figure = attention_pattern([[[1.0, 0.0], [0.5, 0.5]]], tokens=["a", "b"])
        >>> figure.axes[0].get_title()
        'head 0'
    """
    heads = to_numpy(pattern)
    heads = heads[None] if heads.ndim == 2 else heads
    if heads.ndim != 3 or not heads.size:
        raise ValueError(f"expected a pattern of shape (heads, queries, keys), got {heads.shape}")
    count, queries, keys = heads.shape
    names = None if tokens is None else labels_or_indices(tokens, keys)
    columns = min(count, 4)
    rows = -(-count // columns)
    figure, grid = new_figure(rows, columns, size=(max(4.0, 3.2 * columns), 3.4 * rows))
    grid = np.atleast_1d(np.asarray(grid, dtype=object)).ravel()
    images = [axes.imshow(head, cmap=SEQUENTIAL, vmin=0, vmax=1) for axes, head in zip(grid, heads, strict=False)]
    for axes in grid[count:]:
        axes.set_axis_off()
    for i, axes in enumerate(grid[:count]):
        label_axes(axes, x="key", y="query", title=f"head {i}")
        if names is not None and keys <= 32:
            axes.set_xticks(range(keys), names, rotation=90, fontsize=8)
            axes.set_yticks(range(queries), names[keys - queries :], fontsize=8)
    figure.colorbar(images[0], ax=grid.tolist(), shrink=0.7).set_label("attention", fontsize=12)
    return figure


def head_grid(scores: Mapping[str, Numbers], *, title: str = "") -> Figure:
    """Draws a score of every head as a grid of layers and heads.

    Args:
        scores: Scores of the heads of each layer; layers may have different numbers of heads.
        title: Title.

    Examples:
        >>> figure = head_grid({"layers.0": [0.9, 0.1], "layers.1": [0.0, 0.2]}, title="induction")
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['0.90', '0.10', '0.00', '0.20']
    """
    rows = [to_numpy(values) for values in scores.values()]
    if not rows or any(row.ndim != 1 or not row.size for row in rows):
        raise ValueError(f"expected a non-empty 1-d array of scores for each layer, got {list(scores) or 'none'}")
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    figure, axes = new_figure(size=(max(4.0, 1.5 + 0.9 * table.shape[1]), max(2.5, 1.5 + 0.5 * len(rows))))
    largest = np.nanmax(np.abs(table)) or 1.0
    signed = bool((table[np.isfinite(table)] < 0).any())
    image = axes.imshow(
        table, cmap="RdBu" if signed else "Blues", vmin=-largest if signed else 0, vmax=largest, aspect="auto"
    )
    for i, j in np.argwhere(np.isfinite(table)):
        dark = abs(table[i, j]) > 0.6 * largest
        color = "white" if dark else "black"
        axes.text(j, i, f"{table[i, j]:.2f}", ha="center", va="center", fontsize=9, color=color)
    axes.set_xticks(range(table.shape[1]))
    axes.set_yticks(range(len(rows)), [shorten_label(name, max_length=24) for name in scores])
    label_axes(axes, x="head", y="layer", title=title)
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def contribution_bars(
    names: Sequence[str], values: Numbers, *, max_bars: int = 20, label: str = "contribution to the logit"
) -> Figure:
    """Draws the largest contributions, of paths, heads or layers, as bars.

    Args:
        names: Names of the parts.
        values: Contribution of each part.
        max_bars: Maximum number of bars.
        label: Label of the x-axis.

    Examples:
        >>> figure = contribution_bars(["embedding", "layers.0"], [0.1, -2.0])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['layers.0', 'embedding']
    """
    contributions = to_numpy(values)
    if contributions.ndim != 1 or len(names) != len(contributions) or not len(names):
        raise ValueError(f"expected one value per name, got {len(names)} names and values {contributions.shape}")
    order = np.argsort(-np.abs(contributions), kind="stable")[:max_bars]
    figure, axes = new_figure(size=(8.0, max(2.5, 1.2 + 0.32 * len(order))))
    colors = [BLUE if contributions[i] >= 0 else VERMILION for i in order]
    axes.barh(range(len(order)), contributions[order], color=colors)
    axes.set_yticks(range(len(order)), [shorten_label(names[i], max_length=48) for i in order])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    label_axes(axes, x=label, y="part")
    return figure
