"""Double descent: the test error that rises where a model just fits the data, and falls again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures.style import BLUE, GREY, SEQUENTIAL, VERMILION, Numbers, array, drawing, labelled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def double_descent(
    capacity: Numbers,
    train: Numbers,
    test: Numbers,
    *,
    threshold: float | None = None,
    x: str = "parameters",
    y: str = "error",
) -> Figure:
    """Draws the errors over the capacity of the model, with the band between the seeds if there are several.

    Args:
        capacity: The capacities of the models.
        train: Their training errors, or a row of them for each seed.
        test: Their test errors, likewise.
        threshold: The capacity from which on the training data are fitted exactly.
        x: What the capacities are.
        y: What the errors are, with their unit.

    Examples:
        >>> figure = double_descent([1, 10, 100], [0.5, 0.1, 0.0], [0.6, 0.9, 0.4], threshold=20)
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['train', 'test', 'fits the training data']
    """
    size = array(capacity)
    figure, axes = drawing()
    for name, errors, colour, dash in (("train", train, BLUE, "--"), ("test", test, VERMILION, "-")):
        rows = np.atleast_2d(array(errors))
        if rows.shape[1] != len(size) or not rows.size:
            raise ValueError(f"a {name} error for each of {len(size)} capacities was wanted: got {rows.shape}")
        if len(rows) > 1:
            axes.fill_between(size, rows.min(0), rows.max(0), color=colour, alpha=0.2, linewidth=0)
        axes.plot(size, rows.mean(0), color=colour, linestyle=dash, marker="o", markersize=4, linewidth=2, label=name)
    if threshold is not None:
        axes.axvline(threshold, color=GREY, linestyle=":", linewidth=2, label="fits the training data")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    labelled(axes, x=x, y=y)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=11, frameon=False)
    return figure


def epoch_double_descent(
    epochs: Numbers,
    capacity: Numbers,
    test: Numbers,
    *,
    x: str = "epoch",
    y: str = "parameters",
    error: str = "test error",
) -> Figure:
    """Draws the test error over the epochs, as a curve for each capacity and as a map of both.

    Args:
        epochs: The epochs, from 1 on.
        capacity: The capacities of the models.
        test: The test errors, a row for each capacity.
        x: What the epochs are.
        y: What the capacities are.
        error: What the errors are, with their unit.

    Examples:
        >>> figure = epoch_double_descent([1, 10], [5, 50], [[0.5, 0.3], [0.6, 0.2]])
        >>> [axes.get_xlabel() for axes in figure.axes[:2]]
        ['epoch', 'epoch']
    """
    from matplotlib import colormaps

    times, size, errors = array(epochs), array(capacity), array(test)
    if errors.shape != (len(size), len(times)) or not errors.size:
        raise ValueError(f"errors of shape {(len(size), len(times))} were wanted: got {errors.shape}")
    figure, (left, right) = drawing(1, 2, size=(11.0, 5.0))
    shown = np.unique(np.linspace(0, len(size) - 1, 6).round().astype(int))
    for i in shown:
        colour = colormaps[SEQUENTIAL](0.9 * i / max(1, len(size) - 1))
        left.plot(times, errors[i], color=colour, linewidth=2, label=f"{size[i]:,.0f}")
    left.set_xscale("log")
    left.set_ylim(bottom=0)
    left.grid(alpha=0.25)
    left.legend(title=y, fontsize=10, frameon=False)
    labelled(left, x=x, y=error)
    image = right.pcolormesh(_edges(times), _edges(size), errors, cmap=SEQUENTIAL, rasterized=True)
    right.set_xscale("log")
    right.set_yscale("log")
    labelled(right, x=x, y=y)
    figure.colorbar(image, ax=right).set_label(error, fontsize=12)
    return figure


def _edges(centres: np.ndarray) -> np.ndarray:
    """The borders of cells around positive numbers, half way between them on a logarithmic scale."""
    logs = np.log(centres)
    middle = (logs[1:] + logs[:-1]) / 2
    first = logs[0] - ((middle[0] - logs[0]) if len(middle) else 0.5)
    last = logs[-1] + ((logs[-1] - middle[-1]) if len(middle) else 0.5)
    return np.exp([first, *middle, last])
