"""What a classifier gets right and wrong, class by class, and whether it knows.

The most confident mistakes: where a classifier was sure and wrong.
Decision regions: which class a classifier gives to each point of the plane.
Figures of attacks: accuracy against the size of a change, and what the changed inputs look like.
What is wrong inside, or far out: dead units, and confidence away from the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lawful.probe.figures.style import (
    BLUE,
    GREEN,
    GREY,
    MARKERS,
    ORANGE,
    PALETTE,
    VERMILION,
    Interval,
    Numbers,
    array,
    drawing,
    labelled,
    names_of,
    words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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


def mistakes(
    x: Numbers, p: Numbers, labels: Numbers, *, names: Sequence[object] | None = None, most: int = 12
) -> Figure:
    r"""Draws the examples whose wrong class was given the highest probability, images or series.

    Args:
        x: The examples: (n, h, w), (n, c, h, w) with one or three channels, (n, t), or (n, 1, t).
        p: The probabilities of the classes.
        labels: The right classes.
        names: The names of the classes.
        most: How many are drawn.

    Examples:
        >>> figure = mistakes([[[0.0, 1.0], [1.0, 0.0]]], [[0.1, 0.9]], [0])
        >>> figure.axes[0].get_title()
        'is 0\nsaid 1, 90 %'
    """
    x, p, right = array(x), array(p), array(labels).astype(int)
    if p.ndim != 2 or not len(x) == len(p) == len(right):
        raise ValueError(f"an example and a label for each row were wanted: got {x.shape}, {p.shape} and {right.shape}")
    names, said, sure = names_of(names, p.shape[1]), p.argmax(1), p.max(1)
    wrong = np.flatnonzero(said != right)
    worst = wrong[np.argsort(-sure[wrong], kind="stable")][:most]
    columns = max(1, min(6, len(worst)))
    rows = max(1, -(-len(worst) // columns))
    figure, grid = drawing(rows, columns, size=(8.0, 1.7 * rows + 0.5))
    places = np.ravel(grid)
    for axes in places:
        axes.set_axis_off()
    for axes, i in zip(places, worst, strict=False):
        draw_example(axes, x[i])
        axes.set_title(f"is {names[right[i]]}\nsaid {names[said[i]]}, {100 * sure[i]:.0f} %", fontsize=10)
    kept = f" (the {len(worst)} that it was surest of)" if len(wrong) > len(worst) else ""
    figure.suptitle(f"{len(wrong)} mistakes in {len(p)} examples{kept}", fontsize=12)
    return figure


def draw_example(axes: Axes, x: np.ndarray) -> None:
    """One example: a series as a line, an image in its colours or in grey."""
    x = x[0] if x.ndim > 1 and x.shape[0] == 1 else x
    if x.ndim == 1:
        axes.plot(x, color=BLUE, linewidth=1.5)
    elif x.ndim == 2:
        axes.imshow(x, cmap="gray_r")
    elif x.ndim == 3 and x.shape[0] == 3:
        low, high = x.min(), x.max()
        axes.imshow(((x - low) / (high - low if high > low else 1)).transpose(1, 2, 0))
    else:
        raise ValueError(f"images of one or three channels, or series, were wanted: got shape {x.shape}")


def decision_regions(
    classify: Callable[[Tensor], Tensor],
    x: Numbers,
    labels: Numbers,
    *,
    names: Sequence[object] | None = None,
    axes_names: tuple[str, str] = ("first input", "second input"),
    points: int = 200,
) -> Figure:
    """Colours the plane by the most probable class, stronger where it is surer, and draws the data on it.

    Args:
        classify: What gives probabilities of the classes, (n, c), of points, (n, 2).
        x: The data, two numbers each.
        labels: Their classes.
        names: The names of the classes.
        axes_names: What the two numbers are, with their units.
        points: How many points there are along each side of the plane.

    Examples:
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> figure = decision_regions(lambda x: torch.softmax(x, -1), x, [0, 1], points=5)
        >>> figure.axes[0].get_xlabel()
        'first input'
    """
    from matplotlib.colors import to_rgb

    data, right = array(x), array(labels).astype(int)
    if data.ndim != 2 or data.shape[1] != 2 or len(data) != len(right) or not len(data):
        raise ValueError(f"rows of two numbers, and a class each, were wanted: got {data.shape} and {right.shape}")
    low, high = data.min(0), data.max(0)
    margin = 0.1 * np.where(high > low, high - low, 1.0)
    sides = [np.linspace(a - m, b + m, points) for a, b, m in zip(low, high, margin, strict=True)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    p = array(classify(torch.as_tensor(grid, dtype=torch.get_default_dtype())))
    c = p.shape[1]
    colours = np.array([to_rgb(PALETTE[k % len(PALETTE)]) for k in range(c)])
    sure = (p.max(1) - 1 / c) / (1 - 1 / c) if c > 1 else np.ones(len(p))
    strength = (0.1 + 0.5 * np.clip(sure, 0, 1))[:, None]
    picture = (1 - strength) + strength * colours[p.argmax(1)]
    figure, axes = drawing(size=(8.0, 6.5))
    extent = (sides[0][0], sides[0][-1], sides[1][0], sides[1][-1])
    axes.imshow(picture.reshape(points, points, 3), origin="lower", extent=extent, aspect="auto")
    for k, name in enumerate(names_of(names, c)):
        here = data[right == k]
        style = {"color": colours[k], "marker": MARKERS[k % len(MARKERS)], "edgecolors": "black", "linewidths": 0.6}
        if len(here):
            axes.scatter(*here.T, s=30, label=name, **style)
    labelled(axes, x=axes_names[0], y=axes_names[1])
    axes.legend(fontsize=11, title="true class", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def robustness_curve(eps: Numbers, accuracies: Mapping[str, Numbers], *, distance: str, chance: float) -> Figure:
    """Draws what is left of the accuracy as inputs may be changed more and more.

    Args:
        eps: The sizes of the change.
        accuracies: By the name of an attack, the accuracy at each size.
        distance: What the sizes are measured in.
        chance: The accuracy of guessing.

    Examples:
        >>> figure = robustness_curve([0, 1], {"attack": [1.0, 0.2], "noise": [1.0, 0.9]}, distance="linf", chance=0.1)
        >>> figure.axes[0].get_xlabel()
        'size of the change (linf)'
    """
    figure, axes = drawing(1, 1, size=(6.0, 4.0))
    for name, values in accuracies.items():
        axes.plot(array(eps), 100 * array(values), marker="o", label=name)
    axes.axhline(100 * chance, color="gray", linewidth=1, linestyle=":", label="guessing")
    axes.set_xlabel(f"size of the change ({distance})")
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(0, 101)
    axes.legend()
    return figure


def adversarial_examples(
    x: Numbers, near: Numbers, before: Sequence[str], after: Sequence[str], *, most: int = 8
) -> Figure:
    """Draws inputs, what an attack made of them, and the change, which is magnified to be seen.

    Args:
        x: The inputs: images or series, as `mistakes` takes them.
        near: What they became.
        before: What each was taken for.
        after: What it is taken for then.
        most: How many are drawn.

    Examples:
        >>> figure = adversarial_examples([[[0.0, 1.0]]], [[[0.1, 0.9]]], ["3"], ["8"])
        >>> [axes.get_title() for axes in figure.axes]
        ['3', '8', 'the change']
    """
    x, near = array(x)[:most], array(near)[:most]
    figure, grid = drawing(3, max(1, len(x)), size=(1.2 * max(3, len(x)), 4.2))
    places = np.asarray(grid).reshape(3, -1)
    for axes in places.flat:
        axes.set_axis_off()
    for i, (own, other) in enumerate(zip(x, near, strict=True)):
        for row, (shown, title) in enumerate(((own, before[i]), (other, after[i]), (other - own, "the change"))):
            draw_example(places[row, i], shown)
            places[row, i].set_title(title, fontsize=10)
    return figure


def dead_unit_bars(counts: Mapping[str, tuple[int, int]]) -> Figure:
    """Draws how many units of each layer are dead: 0 on all of the data.

    Args:
        counts: The dead units and all units of each layer, by its name.

    Examples:
        >>> figure = dead_unit_bars({"layers.0": (3, 64)})
        >>> figure.axes[0].texts[0].get_text()
        '3 of 64'
    """
    if not counts:
        raise ValueError("at least one layer was wanted: got none")
    figure, axes = drawing(size=(8.0, 1.6 + 0.4 * len(counts)))
    dead, units = np.array(list(counts.values()), dtype=float).T
    share, places = 100 * dead / np.maximum(units, 1), np.arange(len(counts))
    axes.barh(places, 100, color=BLUE, alpha=0.25, label="active")
    axes.barh(places, share, color=VERMILION, hatch="//", edgecolor="white", label="dead")
    for place, (some, all_) in zip(places, counts.values(), strict=True):
        axes.text(101, place, f"{some} of {all_}", va="center", fontsize=11)
    axes.set_yticks(places, [words(name, most=30) for name in counts])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    labelled(axes, x="share of the layer's units [%]", y="layer")
    axes.legend(fontsize=11, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def confidence_along_rays(distance: Numbers, confidence: Numbers, *, classes: int) -> Figure:
    """Draws how sure a classifier is along rays that leave the data.

    Args:
        distance: How far out, in radii of the data.
        confidence: The largest probability, a row for each ray.
        classes: How many classes there are: one who knows nothing is sure to one part in so many.

    Examples:
        >>> figure = confidence_along_rays([0.1, 1.0, 10.0], [[0.5, 0.6, 0.9], [0.5, 0.7, 1.0]], classes=2)
        >>> figure.axes[0].get_xscale()
        'log'
    """
    far, sure = array(distance), array(confidence)
    if sure.ndim != 2 or sure.shape[1:] != far.shape or not sure.size:
        raise ValueError(f"a row of {far.shape} for each ray was wanted: got {sure.shape}")
    figure, axes = drawing()
    low, middle, high = np.quantile(sure, [0.1, 0.5, 0.9], axis=0)
    axes.fill_between(far, low, high, color=BLUE, alpha=0.2, linewidth=0, label="8 of 10 rays")
    axes.plot(far, middle, color=BLUE, linewidth=2, label="median ray")
    axes.axhline(1 / classes, color=ORANGE, linestyle="--", linewidth=1.5, label="no idea")
    axes.axvline(1, color=GREY, linestyle=":", linewidth=1.5, label="typical data")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.03)
    labelled(axes, x="distance from the centre of the data [radii of the data]", y="largest probability of a class")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=11, frameon=False, loc="lower right")
    return figure
