"""What a classifier gets right and wrong, class by class, and whether it knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.probe.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Interval,
    Numbers,
    array,
    drawing,
    labelled,
    names_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def confusion(counts: Numbers, *, names: Sequence[object] | None = None) -> Figure:
    """Draws how often each class was taken for each: rows are the truth, colours shares of a row.

    Args:
        counts: The matrix of counts, true classes along the rows.
        names: The names of the classes.

    Examples:
        >>> figure = confusion([[8, 2], [0, 5]], names=["cat", "dog"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['8', '2', '0', '5']
    """
    table = array(counts)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size:
        raise ValueError(f"a square matrix of counts was wanted: got shape {table.shape}")
    n, names = len(table), names_of(names, len(table))
    figure, axes = drawing(size=(8.0, 7.0))
    share = table / np.maximum(table.sum(1, keepdims=True), 1)
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    if n <= 20:
        for i, j in np.ndindex(n, n):
            dark = share[i, j] > 0.5
            axes.text(
                *(j, i, f"{table[i, j]:.0f}"),
                ha="center",
                va="center",
                fontsize=11 if n <= 12 else 8,
                color="white" if dark else "black",
                alpha=1 if table[i, j] else 0.4,
            )
    ticks = range(0, n, -(-n // 30))
    short = max(map(len, names)) <= 3
    axes.set_xticks(ticks, [names[i] for i in ticks], rotation=0 if short else 45, ha="center" if short else "right")
    axes.set_yticks(ticks, [names[i] for i in ticks])
    labelled(axes, x="predicted class", y="true class")
    figure.colorbar(image, ax=axes, shrink=0.8).set_label("share of the true class", fontsize=12)
    return figure


def reliability_diagram(bins: Sequence[Mapping[str, Any]], *, error: Interval | None = None) -> Figure:
    """Draws how many predictions of each confidence are right: on the diagonal, confidence can be believed.

    Args:
        bins: What `reliability` finds, as it is written to a file.
        error: The calibration error, for the title.

    Examples:
        >>> right = {"value": 0.5, "low": 0.1, "high": 0.9}
        >>> figure = reliability_diagram([dict(low=0.8, high=0.9, confidence=0.85, accuracy=right, count=4)])
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['share that is right', 'predictions']
    """
    if not bins:
        raise ValueError("at least one bin was wanted: got none")
    figure, (axes, below) = drawing(2, 1, size=(8.0, 7.0), heights=(3, 1))
    sure = [b["confidence"] for b in bins]
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.5, label="perfectly calibrated")
    right, off = _intervals([b["accuracy"] for b in bins])
    axes.errorbar(sure, right, off, color=BLUE, marker="o", capsize=4, linewidth=2, label="predictions, 95 % interval")
    title = "" if error is None else f"calibration error {_said(error)}"
    labelled(axes, x="", y="share that is right", title=title)
    axes.set(xlim=(0, 1), ylim=(-0.02, 1.02))
    axes.grid(alpha=0.25)
    axes.legend(fontsize=11, frameon=False, loc="lower right")
    widths = [b["high"] - b["low"] for b in bins]
    below.bar([b["low"] for b in bins], [b["count"] for b in bins], widths, align="edge", color=BLUE, edgecolor="white")
    labelled(below, x="confidence: probability of the predicted class", y="predictions")
    return figure


def class_bars(scores: Sequence[Mapping[str, Any]], *, names: Sequence[object] | None = None) -> Figure:
    r"""Draws precision, recall and F1 of each class, with their intervals.

    Args:
        scores: What `per_class` finds, as it is written to a file.
        names: The names of the classes.

    Examples:
        >>> half = {"value": 0.5, "low": 0.4, "high": 0.6}
        >>> figure = class_bars([{"precision": half, "recall": half, "f1": half, "support": 8}])
        >>> figure.axes[0].get_xticklabels()[0].get_text()
        '0\n(8)'
    """
    if not scores:
        raise ValueError("at least one class was wanted: got none")
    n, names = len(scores), names_of(names, len(scores))
    figure, axes = drawing(size=(min(8.0 + 0.3 * max(0, n - 12), 24.0), 5.0))
    places = np.arange(n)
    for i, (kind, colour) in enumerate((("precision", BLUE), ("recall", ORANGE), ("f1", GREEN))):
        value, off = _intervals([score[kind] for score in scores])
        bars = {"color": colour, "error_kw": {"elinewidth": 1, "alpha": 0.7}}
        axes.bar(places + 0.27 * (i - 1), value, 0.25, yerr=off, capsize=2, label=kind.replace("f1", "F1"), **bars)
    short = max(map(len, names)) <= 6
    labels = [f"{name}\n({score['support']})" for name, score in zip(names, scores, strict=True)]
    axes.set_xticks(places, labels, rotation=0 if short else 45, ha="center" if short else "right")
    labelled(axes, x="class (examples)", y="score, 95 % interval")
    axes.set_ylim(0, 1.02)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(fontsize=11, frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def _intervals(estimates: Sequence[Interval]) -> tuple[np.ndarray, np.ndarray]:
    """The values, and how far the intervals reach below and above."""
    value, low, high = np.array([[e["value"], e["low"], e["high"]] for e in estimates], dtype=float).T
    return value, np.maximum([value - low, high - value], 0)


def _said(estimate: Interval) -> str:
    return f"{estimate['value']:.3f} (95 % interval {estimate['low']:.3f} to {estimate['high']:.3f})"
