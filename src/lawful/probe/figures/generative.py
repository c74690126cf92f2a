"""Generative models in pictures: samples, codes, what is rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.probe.figures.mistakes import draw_example
from lawful.probe.figures.style import (
    BLUE,
    GREY,
    MARKERS,
    PALETTE,
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


def samples_grid(
    x: Numbers, *, titles: Sequence[object] = (), columns: int = 8, between: tuple[float, float] | None = None
) -> Figure:
    """Draws examples side by side, images or series; all in one range of values.

    Args:
        x: The examples: (n, c, h, w) with one or three channels, (n, c, t), or (n, d).
        titles: What stands above each, if anything.
        columns: How many stand in a row.
        between: The range, such as that of the data; by default that of the examples.

    Examples:
        >>> import torch
        >>> len(samples_grid(torch.rand(5, 1, 8, 8), columns=3).axes)
        6
    """
    x = array(x)
    if x.ndim < 2 or not len(x):
        raise ValueError(f"at least one example was wanted: got shape {x.shape}")
    columns = max(1, min(columns, len(x)))
    rows = -(-len(x) // columns)
    figure, places = drawing(rows, columns, size=(columns, (1.25 if titles else 1.0) * rows))
    draw = _of_one_range(x, between)
    for axes in np.ravel(places):
        axes.set_axis_off()
    for i, (axes, one) in enumerate(zip(np.ravel(places), x, strict=False)):
        draw(axes, one)
        if titles:
            axes.set_title(words(titles[i], most=14), fontsize=10)
    return figure


def reconstructions(*rows: Numbers, names: Sequence[object]) -> Figure:
    """Draws examples above what becomes of them: corrupted, rebuilt, completed; all in the range of the first row.

    Args:
        rows: The examples, and what became of each, in the same order.
        names: What each row is called.

    Examples:
        >>> import torch
        >>> figure = reconstructions(torch.rand(4, 1, 8, 8), torch.rand(4, 1, 8, 8), names=("data", "rebuilt"))
        >>> figure.axes[4].get_ylabel()
        'rebuilt'
    """
    parts = [array(row) for row in rows]
    if not parts or len({part.shape for part in parts}) != 1 or len(names) != len(parts):
        shapes = [part.shape for part in parts]
        raise ValueError(f"rows of one shape, and a name each, were wanted: got {shapes} and {len(names)} names")
    n = len(parts[0])
    figure, places = drawing(len(parts), n, size=(n + 0.6, 1.1 * len(parts)))
    draw = _of_one_range(parts[0])
    for axes_of, part, name in zip(
        np.reshape(places, (len(parts), n)), parts, names_of(names, len(parts)), strict=True
    ):
        for axes, one in zip(axes_of, part, strict=True):
            draw(axes, one)
            axes.set_xticks([])
            axes.set_yticks([])
            for side in axes.spines.values():
                side.set_visible(False)
        axes_of[0].set_ylabel(name, fontsize=11)
    return figure


def latent_map(
    z: Numbers,
    *,
    labels: Numbers | None = None,
    names: Sequence[object] | None = None,
    axes_names: tuple[str, str] = ("first coordinate", "second coordinate"),
) -> Figure:
    """Draws codes as points of a plane, coloured and marked by label.

    Args:
        z: The codes; of longer ones the first two coordinates.
        labels: The labels, if there are some.
        names: What these are called.
        axes_names: What the coordinates are.

    Examples:
        >>> import torch
        >>> figure = latent_map(torch.randn(6, 2), labels=[0, 0, 1, 1, 2, 2], names=("a", "b", "c"))
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['a', 'b', 'c']
    """
    z = plane(z)
    figure, axes = drawing(size=(8.0, 6.5))
    size = 20.0 if len(z) < 2000 else 6.0
    if labels is None:
        axes.scatter(*z.T, s=size, color=BLUE, alpha=0.6, linewidths=0)
    else:
        number = array(labels).astype(int)
        if len(number) != len(z):
            raise ValueError(f"a label for each code was wanted: got {len(number)} and {len(z)}")
        many = int(number.max()) + 1 if names is None else len(names)
        for k, name in enumerate(names_of(names, many)):
            if len(here := z[number == k]):
                axes.scatter(*here.T, s=size, alpha=0.7, linewidths=0.3, label=name, **_marked(k, many))
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=11)
    labelled(axes, x=axes_names[0], y=axes_names[1])
    return figure


def bottleneck(errors: dict[str, Sequence[tuple[int, float]]], *, mean: float, unit: str = "squared error") -> Figure:
    """Draws the error of what is rebuilt against the number of units that the code has.

    Args:
        errors: For each model, numbers of units and errors.
        mean: The error of a code without units: of always saying the mean.
        unit: What an error is.

    Examples:
        >>> figure = bottleneck({"PCA": [(1, 4.0), (2, 2.0)]}, mean=5.0)
        >>> figure.axes[0].get_xlabel()
        'units of the code'
    """
    figure, axes = drawing()
    axes.axhline(mean, color=GREY, linestyle=":", label="the mean")
    for i, (name, points) in enumerate(errors.items()):
        axes.plot(*zip(*points, strict=True), color=PALETTE[i % 8], marker=MARKERS[i % 8], label=words(name, most=40))
    axes.set_xscale("log", base=2)
    units = sorted({k for points in errors.values() for k, _ in points})
    axes.set_xticks(units, [str(k) for k in units])
    axes.set_ylim(bottom=0)
    labelled(axes, x="units of the code", y=unit)
    axes.legend(frameon=False, fontsize=11)
    return figure


def plane(x: Numbers) -> np.ndarray:
    """Points of the plane: the first two coordinates."""
    found = array(x)
    if found.ndim != 2 or found.shape[1] < 2 or not len(found):
        raise ValueError(f"points with at least two coordinates were wanted: got shape {found.shape}")
    return found[:, :2]


def _marked(k: int, many: int) -> dict[str, Any]:
    """A colour and a marker of a label: after eight of each, colours are paired with other markers."""
    turn = k // len(PALETTE)
    style = {"color": PALETTE[k % len(PALETTE)], "marker": MARKERS[(k + turn) % len(MARKERS)]}
    return {**style, "edgecolors": "black" if many > len(PALETTE) and turn else "none"}


def _of_one_range(x: np.ndarray, between: tuple[float, float] | None = None) -> Callable[[Axes, np.ndarray], None]:
    """What draws one example in the range of all of them: an image, a series, or a row as bars."""
    low, high = (float(np.nanmin(x)), float(np.nanmax(x))) if between is None else between
    high = high if high > low else low + 1.0

    def draw(axes: Axes, one: np.ndarray) -> None:
        if one.ndim == 3 and one.shape[0] in (1, 3):
            shown = one[0] if one.shape[0] == 1 else ((one - low) / (high - low)).clip(0, 1).transpose(1, 2, 0)
            axes.imshow(shown, cmap="gray_r", vmin=low, vmax=high)
        elif one.ndim == 2 and one.shape[0] > 1:
            axes.plot(one.T, linewidth=1.2)
        else:
            draw_example(axes, one)
        if one.ndim < 3:
            axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))

    return draw
