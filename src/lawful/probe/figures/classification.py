"""Figures of classifiers: confusion, calibration, mistakes, decision regions, robustness, dead units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lawful.probe.figures._style import (
    BLUE,
    GRAY,
    GREEN,
    MARKERS,
    ORANGE,
    PALETTE,
    VERMILION,
    Interval,
    Numbers,
    label_axes,
    labels_or_indices,
    new_figure,
    shorten_label,
    to_numpy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def confusion_matrix(counts: Numbers, *, names: Sequence[object] | None = None) -> Figure:
    """Draws a confusion matrix: rows are true classes, colors are fractions of a row.

    Args:
        counts: Matrix of counts, true classes along the rows.
        names: Names of the classes.

    Examples:
        >>> figure = confusion_matrix([[8, 2], [0, 5]], names=["cat", "dog"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['8', '2', '0', '5']
    """
    table = to_numpy(counts)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size:
        raise ValueError(f"expected a square matrix of counts, got shape {table.shape}")
    n, names = len(table), labels_or_indices(names, len(table))
    figure, axes = new_figure(size=(8.0, 7.0))
    fraction = table / np.maximum(table.sum(1, keepdims=True), 1)
    image = axes.imshow(fraction, cmap="Blues", vmin=0, vmax=1)
    if n <= 20:
        for i, j in np.ndindex(n, n):
            dark = fraction[i, j] > 0.5
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
    label_axes(axes, x="predicted class", y="true class")
    figure.colorbar(image, ax=axes, shrink=0.8).set_label("fraction of the true class", fontsize=12)
    return figure


def reliability_diagram(bins: Sequence[Mapping[str, Any]], *, error: Interval | None = None) -> Figure:
    """Draws a reliability diagram: accuracy against confidence, on the diagonal if calibrated.

    Args:
        bins: Bins of `reliability`, as mappings.
        error: Calibration error, for the title.

    Examples:
        >>> right = {"value": 0.5, "low": 0.1, "high": 0.9}
        >>> figure = reliability_diagram([dict(low=0.8, high=0.9, confidence=0.85, accuracy=right, count=4)])
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['accuracy', 'predictions']
    """
    if not bins:
        raise ValueError("expected at least one bin, got none")
    figure, (axes, below) = new_figure(2, 1, size=(8.0, 7.0), heights=(3, 1))
    confidence = [b["confidence"] for b in bins]
    axes.plot([0, 1], [0, 1], color=GRAY, linestyle="--", linewidth=1.5, label="perfectly calibrated")
    accuracy, margins = _intervals([b["accuracy"] for b in bins])
    axes.errorbar(
        confidence,
        accuracy,
        margins,
        color=BLUE,
        marker="o",
        capsize=4,
        linewidth=2,
        label="predictions, 95 % interval",
    )
    title = "" if error is None else f"calibration error {_interval_text(error)}"
    label_axes(axes, x="", y="accuracy", title=title)
    axes.set(xlim=(0, 1), ylim=(-0.02, 1.02))
    axes.grid(alpha=0.25)
    axes.legend(fontsize=11, frameon=False, loc="lower right")
    widths = [b["high"] - b["low"] for b in bins]
    below.bar([b["low"] for b in bins], [b["count"] for b in bins], widths, align="edge", color=BLUE, edgecolor="white")
    label_axes(below, x="confidence: probability of the predicted class", y="predictions")
    return figure


def class_scores(scores: Sequence[Mapping[str, Any]], *, names: Sequence[object] | None = None) -> Figure:
    r"""Draws precision, recall and F1 of each class, with confidence intervals.

    Args:
        scores: Scores of `per_class`, as mappings.
        names: Names of the classes.

    Examples:
        >>> half = {"value": 0.5, "low": 0.4, "high": 0.6}
        >>> figure = class_scores([{"precision": half, "recall": half, "f1": half, "support": 8}])
        >>> figure.axes[0].get_xticklabels()[0].get_text()
        '0\n(8)'
    """
    if not scores:
        raise ValueError("expected at least one class, got none")
    n, names = len(scores), labels_or_indices(names, len(scores))
    figure, axes = new_figure(size=(min(8.0 + 0.3 * max(0, n - 12), 24.0), 5.0))
    places = np.arange(n)
    for i, (kind, color) in enumerate((("precision", BLUE), ("recall", ORANGE), ("f1", GREEN))):
        value, margins = _intervals([score[kind] for score in scores])
        bars = {"color": color, "error_kw": {"elinewidth": 1, "alpha": 0.7}}
        axes.bar(places + 0.27 * (i - 1), value, 0.25, yerr=margins, capsize=2, label=kind.replace("f1", "F1"), **bars)
    short = max(map(len, names)) <= 6
    labels = [f"{name}\n({score['support']})" for name, score in zip(names, scores, strict=True)]
    axes.set_xticks(places, labels, rotation=0 if short else 45, ha="center" if short else "right")
    label_axes(axes, x="class (examples)", y="score, 95 % interval")
    axes.set_ylim(0, 1.02)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(fontsize=11, frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def _intervals(estimates: Sequence[Interval]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the values, and the margins of the intervals below and above."""
    value, low, high = np.array([[e["value"], e["low"], e["high"]] for e in estimates], dtype=float).T
    return value, np.maximum([value - low, high - value], 0)


def _interval_text(estimate: Interval) -> str:
    return f"{estimate['value']:.3f} (95 % interval {estimate['low']:.3f} to {estimate['high']:.3f})"


def mistakes(
    x: Numbers, p: Numbers, labels: Numbers, *, names: Sequence[object] | None = None, max_examples: int = 12
) -> Figure:
    r"""Draws the most confident mistakes, images or series.

    Args:
        x: Examples: (n, h, w), (n, c, h, w) with one or three channels, (n, t), or (n, 1, t).
        p: Probabilities of the classes.
        labels: True classes.
        names: Names of the classes.
        max_examples: Maximum number of examples.

    Examples:
        >>> figure = mistakes([[[0.0, 1.0], [1.0, 0.0]]], [[0.1, 0.9]], [0])
        >>> figure.axes[0].get_title()
        'true 0\npredicted 1, 90 %'
    """
    x, p, true = to_numpy(x), to_numpy(p), to_numpy(labels).astype(int)
    if p.ndim != 2 or not len(x) == len(p) == len(true):
        raise ValueError(f"expected x, p and labels of equal length, got {x.shape}, {p.shape} and {true.shape}")
    names, predicted, confidence = labels_or_indices(names, p.shape[1]), p.argmax(1), p.max(1)
    wrong = np.flatnonzero(predicted != true)
    worst = wrong[np.argsort(-confidence[wrong], kind="stable")][:max_examples]
    columns = max(1, min(6, len(worst)))
    rows = max(1, -(-len(worst) // columns))
    figure, grid = new_figure(rows, columns, size=(8.0, 1.7 * rows + 0.5))
    places = np.ravel(grid)
    for axes in places:
        axes.set_axis_off()
    for axes, i in zip(places, worst, strict=False):
        _draw_example(axes, x[i], value_range=(float(x.min()), float(x.max())))
        title = f"true {names[true[i]]}\npredicted {names[predicted[i]]}, {100 * confidence[i]:.0f} %"
        axes.set_title(title, fontsize=10)
    shown = f" (the {len(worst)} most confident)" if len(wrong) > len(worst) else ""
    figure.suptitle(f"{len(wrong)} mistakes in {len(p)} examples{shown}", fontsize=12)
    return figure


def predictions(
    x: Numbers, p: Numbers, labels: Numbers, *, names: Sequence[object] | None = None, max_examples: int = 24
) -> Figure:
    r"""Draws examples with their predicted class; wrong ones in red with the true class.

    Args:
        x: Examples, images or series, as for `mistakes`.
        p: Probabilities of the classes.
        labels: True classes.
        names: Names of the classes.
        max_examples: Maximum number of examples.

    Examples:
        >>> figure = predictions([[[0.0, 1.0]], [[1.0, 0.0]]], [[0.1, 0.9], [0.2, 0.8]], [1, 0], names=("cat", "dog"))
        >>> [axes.get_title() for axes in figure.axes]
        ['dog', 'dog, not cat']
    """
    x, p, true = to_numpy(x), to_numpy(p), to_numpy(labels).astype(int)
    if p.ndim != 2 or not 0 < len(x) == len(p) == len(true):
        raise ValueError(f"expected x, p and labels of equal length, got {x.shape}, {p.shape} and {true.shape}")
    names, predicted = labels_or_indices(names, p.shape[1]), p.argmax(1)
    n = min(max_examples, len(x))
    columns = min(8, n)
    rows = -(-n // columns)
    figure, grid = new_figure(rows, columns, size=(max(4.0, 1.5 * columns), 1.8 * rows))
    for axes in np.ravel(grid):
        axes.set_axis_off()
    for i, axes in enumerate(np.ravel(grid)[:n]):
        _draw_example(axes, x[i], value_range=(float(x.min()), float(x.max())))
        right = predicted[i] == true[i]
        title = names[predicted[i]] if right else f"{names[predicted[i]]}, not {names[true[i]]}"
        axes.set_title(shorten_label(title, max_length=24), fontsize=10, color="black" if right else VERMILION)
    return figure


def _draw_example(axes: Axes, x: np.ndarray, *, value_range: tuple[float, float] | None = None) -> None:
    """Draws a series as a line, or an image in color or gray; other channels than one or three as their mean."""
    x = x[0] if x.ndim > 1 and x.shape[0] == 1 else x
    x = x if x.ndim != 3 or x.shape[0] == 3 else x.mean(0)
    low, high = (float(x.min()), float(x.max())) if value_range is None else value_range
    if x.ndim == 1:
        axes.plot(x, color=BLUE, linewidth=1.5)
    elif x.ndim == 2:
        axes.imshow(x, cmap="gray", vmin=low, vmax=high)
    elif x.ndim == 3 and x.shape[0] == 3:
        axes.imshow(((x - low) / (high - low if high > low else 1)).clip(0, 1).transpose(1, 2, 0))
    elif x.ndim == 3:  # other channels have no colors: their mean is drawn
        axes.imshow(x.mean(0), cmap="gray", vmin=low, vmax=high)
    else:
        raise ValueError(f"expected a series, or an image with one or three channels, got shape {x.shape}")


def decision_regions(
    classify: Callable[[Tensor], Tensor],
    x: Numbers,
    labels: Numbers,
    *,
    names: Sequence[object] | None = None,
    axes_names: tuple[str, str] = ("first input", "second input"),
    points: int = 200,
) -> Figure:
    """Draws the decision regions of a classifier of the plane: saturation is confidence, points are data.

    Args:
        classify: Maps points (n, 2) to class probabilities (n, c).
        x: Data of shape (n, 2).
        labels: True classes.
        names: Names of the classes.
        axes_names: Labels of the axes, with units.
        points: Resolution of the grid along each axis.

    Examples:
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> figure = decision_regions(lambda x: torch.softmax(x, -1), x, [0, 1], points=5)
        >>> figure.axes[0].get_xlabel()
        'first input'
    """
    from matplotlib.colors import to_rgb

    data, true = to_numpy(x), to_numpy(labels).astype(int)
    if data.ndim != 2 or data.shape[1] != 2 or len(data) != len(true) or not len(data):
        raise ValueError(f"expected x of shape (n, 2) and n labels, got {data.shape} and {true.shape}")
    low, high = data.min(0), data.max(0)
    margin = 0.1 * np.where(high > low, high - low, 1.0)
    sides = [np.linspace(a - m, b + m, points) for a, b, m in zip(low, high, margin, strict=True)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    p = to_numpy(classify(torch.as_tensor(grid, dtype=torch.get_default_dtype())))
    c = p.shape[1]
    colors = np.array([to_rgb(PALETTE[k % len(PALETTE)]) for k in range(c)])
    confidence = (p.max(1) - 1 / c) / (1 - 1 / c) if c > 1 else np.ones(len(p))
    strength = (0.1 + 0.5 * np.clip(confidence, 0, 1))[:, None]
    picture = (1 - strength) + strength * colors[p.argmax(1)]
    figure, axes = new_figure(size=(8.0, 6.5))
    extent = (sides[0][0], sides[0][-1], sides[1][0], sides[1][-1])
    axes.imshow(picture.reshape(points, points, 3), origin="lower", extent=extent, aspect="auto")
    for k, name in enumerate(labels_or_indices(names, c)):
        here = data[true == k]
        style = {"color": colors[k], "marker": MARKERS[k % len(MARKERS)], "edgecolors": "black", "linewidths": 0.6}
        if len(here):
            axes.scatter(*here.T, s=30, label=name, **style)
    label_axes(axes, x=axes_names[0], y=axes_names[1])
    axes.legend(fontsize=11, title="true class", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def robustness_curve(eps: Numbers, accuracies: Mapping[str, Numbers], *, distance: str, chance: float) -> Figure:
    """Draws accuracy against the size of adversarial perturbations.

    Args:
        eps: Sizes of the perturbation.
        accuracies: Accuracy at each size, by the name of the attack.
        distance: Norm of the perturbation.
        chance: Accuracy of guessing.

    Examples:
        >>> figure = robustness_curve([0, 1], {"attack": [1.0, 0.2], "noise": [1.0, 0.9]}, distance="linf", chance=0.1)
        >>> figure.axes[0].get_xlabel()
        'perturbation size (linf)'
    """
    figure, axes = new_figure(1, 1, size=(6.0, 4.0))
    for i, (name, values) in enumerate(accuracies.items()):
        style = {"color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)]}
        axes.plot(to_numpy(eps), 100 * to_numpy(values), label=name, **style)
    axes.axhline(100 * chance, color=GRAY, linewidth=1, linestyle=":", label="chance")
    label_axes(axes, x=f"perturbation size ({distance})", y="accuracy, %")
    axes.set_ylim(0, 101)
    axes.legend(frameon=False)
    return figure


def adversarial_examples(
    x: Numbers, adversarial: Numbers, before: Sequence[str], after: Sequence[str], *, max_examples: int = 8
) -> Figure:
    """Draws inputs, adversarial examples, and their difference, each in its own range.

    Args:
        x: Inputs, images or series, as for `mistakes`.
        adversarial: Adversarial examples.
        before: Predicted class of each input.
        after: Predicted class of each adversarial example.
        max_examples: Maximum number of examples.

    Examples:
        >>> figure = adversarial_examples([[[0.0, 1.0]]], [[[0.1, 0.9]]], ["3"], ["8"])
        >>> [axes.get_title() for axes in figure.axes]
        ['3', '8', 'difference']
    """
    x, adversarial = to_numpy(x)[:max_examples], to_numpy(adversarial)[:max_examples]
    figure, grid = new_figure(3, max(1, len(x)), size=(1.2 * max(3, len(x)), 4.2))
    places = np.asarray(grid).reshape(3, -1)
    for axes in places.flat:
        axes.set_axis_off()
    for i, (clean, attacked) in enumerate(zip(x, adversarial, strict=True)):
        for row, (shown, title) in enumerate(
            ((clean, before[i]), (attacked, after[i]), (attacked - clean, "difference"))
        ):
            _draw_example(places[row, i], shown)
            places[row, i].set_title(title, fontsize=10)
    return figure


def dead_unit_bars(counts: Mapping[str, tuple[int, int]]) -> Figure:
    """Draws the fraction of dead units of each layer: units that are 0 on all data.

    Args:
        counts: Number of dead units and of all units of each layer.

    Examples:
        >>> figure = dead_unit_bars({"layers.0": (3, 64)})
        >>> figure.axes[0].texts[0].get_text()
        '3 of 64'
    """
    if not counts:
        raise ValueError("expected at least one layer, got none")
    figure, axes = new_figure(size=(8.0, 1.6 + 0.4 * len(counts)))
    dead, units = np.array(list(counts.values()), dtype=float).T
    percent, places = 100 * dead / np.maximum(units, 1), np.arange(len(counts))
    axes.barh(places, 100, color=BLUE, alpha=0.25, label="active")
    axes.barh(places, percent, color=VERMILION, hatch="//", edgecolor="white", label="dead")
    for place, (some, all_) in zip(places, counts.values(), strict=True):
        axes.text(101, place, f"{some} of {all_}", va="center", fontsize=11)
    axes.set_yticks(places, [shorten_label(name, max_length=30) for name in counts])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    label_axes(axes, x="units [%]", y="layer")
    axes.legend(fontsize=11, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def confidence_along_rays(distance: Numbers, confidence: Numbers, *, classes: int) -> Figure:
    """Draws the confidence of a classifier along rays away from the data.

    Args:
        distance: Distances from the center, in radii of the data.
        confidence: Largest class probability, one row per ray.
        classes: Number of classes.

    Examples:
        >>> figure = confidence_along_rays([0.1, 1.0, 10.0], [[0.5, 0.6, 0.9], [0.5, 0.7, 1.0]], classes=2)
        >>> figure.axes[0].get_xscale()
        'log'
    """
    radius, rays = to_numpy(distance), to_numpy(confidence)
    if rays.ndim != 2 or rays.shape[1:] != radius.shape or not rays.size:
        raise ValueError(f"expected confidence of shape (rays, {len(radius)}), got {rays.shape}")
    figure, axes = new_figure()
    low, middle, high = np.quantile(rays, [0.1, 0.5, 0.9], axis=0)
    axes.fill_between(radius, low, high, color=BLUE, alpha=0.2, linewidth=0, label="10 % to 90 % of rays")
    axes.plot(radius, middle, color=BLUE, linewidth=2, label="median ray")
    axes.axhline(1 / classes, color=ORANGE, linestyle="--", linewidth=1.5, label="uniform prediction")
    axes.axvline(1, color=GRAY, linestyle=":", linewidth=1.5, label="radius of the data")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.03)
    label_axes(axes, x="distance from the center of the data [radii of the data]", y="largest class probability")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=11, frameon=False, loc="lower right")
    return figure
