"""Learning curves, regression and forecast plots, and double descent."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures._style import (
    BLUE,
    GRAY,
    MARKERS,
    ORANGE,
    PALETTE,
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


_DASHES = ("-", "--", "-.", ":")


def learning_curves(
    curves: Mapping[str, tuple[Numbers, Numbers]], *, y: str = "loss", x: str = "step", best: float | None = None
) -> Figure:
    """Draws learning curves. Overfitting starts where train and validation diverge.

    The scale is logarithmic if positive values span more than a factor of 30. Long curves are drawn faint, with their
    moving average on top.

    Args:
        curves: Steps and values of each curve, by name, such as `train` and `validation`.
        y: Label of the values, with their unit.
        x: Label of the steps.
        best: Step of the best weights.

    Examples:
        >>> figure = learning_curves({"train": ([0, 1, 2], [3.0, 2.0, 1.0]), "validation": ([0, 2], [3.0, 2.0])})
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('step', 'loss')
    """
    if not curves:
        raise ValueError("expected at least one curve, got none")
    figure, axes = new_figure()
    arrays = {name: (to_numpy(steps), to_numpy(values)) for name, (steps, values) in curves.items()}
    styles = zip(cycle(PALETTE), cycle(_DASHES), cycle(MARKERS))
    for (name, (steps, values)), (color, dash, marker) in zip(arrays.items(), styles, strict=False):
        if len(steps) != len(values):
            raise ValueError(f"expected one value per step of {name!r}, got {len(steps)} and {len(values)}")
        if len(steps) > 200:
            axes.plot(steps, values, color=color, alpha=0.25, linewidth=0.8)
            steps, values = _smooth(steps, values)
        few = {"marker": marker, "markersize": 4} if len(steps) < 40 else {}
        axes.plot(
            steps, values, color=color, linestyle=dash, linewidth=2, label=shorten_label(name, max_length=40), **few
        )
    all_values = np.concatenate([values for _, values in arrays.values()])
    finite = all_values[np.isfinite(all_values)]
    if len(finite) and finite.min() > 0 and finite.max() > 30 * finite.min():
        axes.set_yscale("log")
    if best is not None:
        axes.axvline(best, color=GRAY, linestyle=":", linewidth=1.5, label="best weights")
    label_axes(axes, x=x, y=y)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=11, frameon=False)
    return figure


def _smooth(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the moving average over a window of 1/50 of the points."""
    width = len(values) // 50 + 1
    kernel = np.ones(width) / width
    return np.convolve(steps, kernel, mode="valid"), np.convolve(values, kernel, mode="valid")


_MAX_POINTS = 20_000
"""Maximum number of points of a scatter plot."""


def predicted_vs_actual(y: Numbers, target: Numbers, *, unit: str = "", names: list[str] | None = None) -> Figure:
    """Draws predictions against targets, and residuals against predictions. Of many points, some are drawn.

    Args:
        y: Predictions, of one target or several.
        target: Targets.
        unit: Unit of the targets.
        names: Names of the targets.

    Examples:
        >>> figure = predicted_vs_actual([1.0, 2.0], [1.5, 2.0], unit="kg")
        >>> [axes.get_xlabel() for axes in figure.axes]
        ['actual value [kg]', 'predicted value [kg]']
    """
    predicted, actual = to_numpy(y), to_numpy(target)
    if predicted.shape != actual.shape or not predicted.size:
        raise ValueError(f"expected predictions and targets of equal shape, got {predicted.shape} and {actual.shape}")
    predicted, actual = predicted.reshape(len(predicted), -1), actual.reshape(len(actual), -1)
    if len(predicted) > _MAX_POINTS:
        some = np.linspace(0, len(predicted) - 1, _MAX_POINTS).round().astype(int)
        predicted, actual = predicted[some], actual[some]
    names, suffix = labels_or_indices(names, predicted.shape[1]), f" [{unit}]" if unit else ""
    figure, (left, right) = new_figure(1, 2, size=(10.0, 5.0))
    look = {"s": 14, "alpha": float(np.clip(60 / np.sqrt(predicted.size), 0.15, 0.8)), "linewidths": 0}
    for i, name in enumerate(names):
        style = {**look, "color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)]}
        left.scatter(actual[:, i], predicted[:, i], label=name, **style)
        right.scatter(predicted[:, i], predicted[:, i] - actual[:, i], **style)
    ends = [min(actual.min(), predicted.min()), max(actual.max(), predicted.max())]
    left.plot(ends, ends, color=GRAY, linestyle="--", linewidth=1.5, zorder=0)
    right.axhline(0, color=GRAY, linestyle="--", linewidth=1.5, zorder=0)
    label_axes(left, x=f"actual value{suffix}", y=f"predicted value{suffix}")
    label_axes(right, x=f"predicted value{suffix}", y=f"residual{suffix}")
    if len(names) > 1:
        left.legend(fontsize=11, frameon=False)
    return figure


def forecast_band(
    history: Numbers,
    quantiles: tuple[Numbers, Numbers, Numbers],
    *,
    truth: Numbers | None = None,
    dates: np.ndarray | None = None,
    name: str = "value",
) -> Figure:
    """Draws a forecast: the end of the series, median, quantile band, and the actual values.

    Args:
        history: Values before the forecast.
        quantiles: Quantiles 0.1, 0.5 and 0.9 of each forecast value.
        truth: Actual values.
        dates: Dates of the history and of the forecast, as `datetime64`. By default the steps are numbered.
        name: Name of the values.

    Examples:
        >>> forecast_band([1, 2, 3], ([3, 3], [4, 5], [5, 7]), truth=[4, 6]).axes[0].get_xlabel()
        'step'
    """
    figure, axes = new_figure(size=(9.0, 4.5))
    past, (low, median, high) = to_numpy(history), map(to_numpy, quantiles)
    when = np.arange(1 - len(past), len(median) + 1) if dates is None else dates
    if len(when) != len(past) + len(median):
        raise ValueError(f"expected {len(past) + len(median)} dates, got {len(when)}")
    ahead = when[len(past) :]
    dotted = len(when) <= 150
    axes.plot(when[: len(past)], past, color=GRAY, marker="." if dotted else None, label="history")
    axes.fill_between(ahead, low, high, color=BLUE, alpha=0.25, label="80 % interval")
    axes.plot(ahead, median, color=BLUE, marker="o" if dotted else None, markersize=4, label="forecast")
    if truth is not None:
        style = {"marker": "D", "markersize": 4} if dotted else {}
        axes.plot(ahead, to_numpy(truth), color=ORANGE, linestyle="--", label="actual", **style)
    label_axes(axes, x="step" if dates is None else "date", y=name)
    if dates is not None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(maxticks=8)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.legend(fontsize=11, frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
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
    """Draws train and test error against the capacity of the model, with a band over seeds.

    Args:
        capacity: Capacities of the models.
        train: Training errors, or one row per seed.
        test: Test errors, or one row per seed.
        threshold: Interpolation threshold: smallest capacity that fits the training data exactly.
        x: Label of the capacities.
        y: Label of the errors, with their unit.

    Examples:
        >>> figure = double_descent([1, 10, 100], [0.5, 0.1, 0.0], [0.6, 0.9, 0.4], threshold=20)
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['train', 'test', 'interpolation threshold']
    """
    size = to_numpy(capacity)
    figure, axes = new_figure()
    for name, errors, color, dash in (("train", train, BLUE, "--"), ("test", test, VERMILION, "-")):
        rows = np.atleast_2d(to_numpy(errors))
        if rows.shape[1] != len(size) or not rows.size:
            raise ValueError(f"expected one {name} error per capacity, {len(size)}, got shape {rows.shape}")
        if len(rows) > 1:
            axes.fill_between(size, rows.min(0), rows.max(0), color=color, alpha=0.2, linewidth=0)
        axes.plot(size, rows.mean(0), color=color, linestyle=dash, marker="o", markersize=4, linewidth=2, label=name)
    if threshold is not None:
        axes.axvline(threshold, color=GRAY, linestyle=":", linewidth=2, label="interpolation threshold")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    label_axes(axes, x=x, y=y)
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
    """Draws the test error against epochs, as curves and as a map of epochs and capacities.

    Args:
        epochs: Epochs, from 1.
        capacity: Capacities of the models.
        test: Test errors, one row per capacity.
        x: Label of the epochs.
        y: Label of the capacities.
        error: Label of the errors, with their unit.

    Examples:
        >>> figure = epoch_double_descent([1, 10], [5, 50], [[0.5, 0.3], [0.6, 0.2]])
        >>> [axes.get_xlabel() for axes in figure.axes[:2]]
        ['epoch', 'epoch']
    """
    from matplotlib import colormaps
    from matplotlib.ticker import LogLocator, NullFormatter

    times, size, errors = to_numpy(epochs), to_numpy(capacity), to_numpy(test)
    if errors.shape != (len(size), len(times)) or not errors.size:
        raise ValueError(f"expected errors of shape {(len(size), len(times))}, got {errors.shape}")
    figure, (left, right) = new_figure(1, 2, size=(11.0, 5.0))
    shown = np.unique(np.linspace(0, len(size) - 1, 6).round().astype(int))
    for i in shown:
        color = colormaps[SEQUENTIAL](0.9 * i / max(1, len(size) - 1))
        left.plot(times, errors[i], color=color, linewidth=2, label=f"{size[i]:,.0f}")
    left.set_xscale("log")
    left.set_ylim(bottom=0)
    left.grid(alpha=0.25)
    left.legend(title=y, fontsize=10, frameon=False)
    label_axes(left, x=x, y=error)
    image = right.pcolormesh(_cell_edges(times), _cell_edges(size), errors, cmap=SEQUENTIAL, rasterized=True)
    right.set_xscale("log")
    right.set_yscale("log")
    label_axes(right, x=x, y=y)
    for axes in (left, right):
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    figure.colorbar(image, ax=right).set_label(error, fontsize=12)
    return figure


def _cell_edges(centers: np.ndarray) -> np.ndarray:
    """Returns the edges of cells around positive numbers, at their geometric means."""
    logs = np.log(centers)
    middle = (logs[1:] + logs[:-1]) / 2
    first = logs[0] - ((middle[0] - logs[0]) if len(middle) else 0.5)
    last = logs[-1] + ((logs[-1] - middle[-1]) if len(middle) else 0.5)
    return np.exp([first, *middle, last])
