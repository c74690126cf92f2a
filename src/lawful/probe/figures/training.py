"""Learning curves: how a figure changes while a model trains.

A regression against the truth, and what it leaves.
A forecast: what was, what may come, and what came.
Double descent: the test error that rises where a model just fits the data, and falls again.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures.style import (
    BLUE,
    GREY,
    MARKERS,
    ORANGE,
    PALETTE,
    SEQUENTIAL,
    VERMILION,
    Numbers,
    array,
    drawing,
    labelled,
    names_of,
    words,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DASHES = ("-", "--", "-.", ":")


def learning_curves(
    curves: Mapping[str, tuple[Numbers, Numbers]], *, y: str = "loss", x: str = "step", best: float | None = None
) -> Figure:
    """Draws curves over the steps of training; where train and validation part, the model begins to overfit.

    Positive values that span more than a factor of 30 are drawn on a logarithmic scale. A curve with many points is
    drawn faint, with its moving average on top.

    Args:
        curves: The steps and the values of each curve, by its name: `train`, `validation`.
        y: What the values are, with their unit.
        x: What the steps are.
        best: The step whose weights are kept.

    Examples:
        >>> figure = learning_curves({"train": ([0, 1, 2], [3.0, 2.0, 1.0]), "validation": ([0, 2], [3.0, 2.0])})
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('step', 'loss')
    """
    if not curves:
        raise ValueError("at least one curve was wanted: got none")
    figure, axes = drawing()
    drawn = {name: (array(steps), array(values)) for name, (steps, values) in curves.items()}
    styles = zip(cycle(PALETTE), cycle(DASHES), cycle(MARKERS))
    for (name, (steps, values)), (colour, dash, marker) in zip(drawn.items(), styles, strict=False):
        if len(steps) != len(values):
            raise ValueError(f"as many steps as values were wanted of {name!r}: got {len(steps)} and {len(values)}")
        if len(steps) > 200:
            axes.plot(steps, values, color=colour, alpha=0.25, linewidth=0.8)
            steps, values = _smooth(steps, values)
        few = {"marker": marker, "markersize": 4} if len(steps) < 40 else {}
        axes.plot(steps, values, color=colour, linestyle=dash, linewidth=2, label=words(name, most=40), **few)
    everything = np.concatenate([values for _, values in drawn.values()])
    seen = everything[np.isfinite(everything)]
    if len(seen) and seen.min() > 0 and seen.max() > 30 * seen.min():
        axes.set_yscale("log")
    if best is not None:
        axes.axvline(best, color=GREY, linestyle=":", linewidth=1.5, label="weights that are kept")
    labelled(axes, x=x, y=y)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=11, frameon=False)
    return figure


def _smooth(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean over a window of a fiftieth of the points, at its middle."""
    width = len(values) // 50 + 1
    kernel = np.ones(width) / width
    return np.convolve(steps, kernel, mode="valid"), np.convolve(values, kernel, mode="valid")


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


def forecast_band(history: Numbers, quantiles: tuple[Numbers, Numbers, Numbers], *, truth: Numbers) -> Figure:
    """Draws the end of a series, the median of its forecast with a band around it, and what came.

    Args:
        history: The values that were read.
        quantiles: The low quantile, the median and the high one of each value after them.
        truth: The values after them.

    Examples:
        >>> forecast_band([1, 2, 3], ([3, 3], [4, 5], [5, 7]), truth=[4, 6]).axes[0].get_xlabel()
        'step'
    """
    figure, axes = drawing()
    past, (low, median, high), after = array(history), map(array, quantiles), array(truth)
    ahead = np.arange(1, len(median) + 1)
    axes.plot(np.arange(1 - len(past), 1), past, color=GREY, marker=".", label="read")
    axes.fill_between(ahead, low, high, color=BLUE, alpha=0.25, label="quantiles 0.1 to 0.9")
    axes.plot(ahead, median, color=BLUE, marker="o", label="median")
    axes.plot(ahead, after, color=ORANGE, marker="D", linestyle="--", label="what came")
    labelled(axes, x="step", y="value")
    axes.legend(frameon=False)
    return figure


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
