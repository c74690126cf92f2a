"""Generative models in pictures: samples, codes, what is rebuilt.

Densities of the plane in pictures: points, the way from noise to data, the score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lawful.probe.figures.classification import draw_example
from lawful.probe.figures.style import (
    BLUE,
    GREY,
    MARKERS,
    ORANGE,
    PALETTE,
    SEQUENTIAL,
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


Field = Callable[[Tensor], Tensor]


def trajectories(paths: Numbers, *, data: Numbers | None = None, shown: int = 60) -> Figure:
    """Draws the ways of samples through the plane, from noise (hollow) to where they end (full).

    Args:
        paths: Where each sample is at each step: (steps, n, 2).
        data: Points of the data, drawn below.
        shown: How many ways are drawn.

    Examples:
        >>> trajectories(torch.randn(4, 3, 2)).axes[0].get_xlabel()
        'x₁'
    """
    paths = array(paths)
    if paths.ndim != 3 or paths.shape[2] != 2 or len(paths) < 2:
        raise ValueError(f"at least two steps of points of the plane were wanted: got shape {paths.shape}")
    figure, axes = drawing(size=(7.0, 6.5))
    if data is not None:
        axes.scatter(*plane(data)[:5000].T, s=3, color=GREY, alpha=0.3, linewidths=0, label="data")
    for path in paths[:, :shown].transpose(1, 0, 2):
        axes.plot(*path.T, color=BLUE, linewidth=0.8, alpha=0.5)
    axes.scatter(*paths[0, :shown].T, s=18, facecolors="white", edgecolors=BLUE, label="noise", zorder=3)
    axes.scatter(*paths[-1, :shown].T, s=18, color=ORANGE, edgecolors="black", linewidths=0.5, label="sample", zorder=4)
    labelled(axes, x="x₁", y="x₂")
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=11)
    return figure


def score_field(
    score: Field,
    *,
    log_prob: Field | None = None,
    low: float = -3.0,
    high: float = 3.0,
    arrows: int = 24,
    title: str = "",
) -> Figure:
    """Draws the gradient of a log-density as arrows of the plane, above the density where it is known.

    Long arrows are drawn shorter, as the root of their length: directions stay, and the short ones are seen.

    Args:
        score: The gradient at points, from (n, 2) to (n, 2).
        log_prob: The log-density of points, from (n, 2) to (n).
        low: Where the plane begins, along both axes.
        high: Where it ends.
        arrows: How many there are along each side.
        title: What stands above.

    Examples:
        >>> score_field(lambda x: -x, log_prob=lambda x: -x.square().sum(-1) / 2, arrows=5).axes[0].get_ylabel()
        'x₂'
    """
    if not low < high or arrows < 2:
        raise ValueError(f"low below high, and at least 2 arrows, were wanted: got {low}, {high} and {arrows}")
    figure, axes = drawing(size=(7.0, 6.5))
    if log_prob is not None:
        axes.imshow(
            np.exp(_over(log_prob, low, high, 200).reshape(200, 200)),
            origin="lower",
            extent=(low, high, low, high),
            cmap="Greys",
            alpha=0.7,
        )
    side = np.linspace(low, high, arrows)
    field = _over(score, low, high, arrows).reshape(arrows * arrows, 2)
    length = np.linalg.norm(field, axis=1, keepdims=True)
    drawn = field / np.sqrt(np.maximum(length, 1e-12))
    drawn *= (high - low) / arrows / (np.sqrt(length).max() or 1.0)
    here = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    axes.quiver(*here.T, *drawn.T, color=BLUE, angles="xy", scale_units="xy", scale=1.0, width=0.0025)
    labelled(axes, x="x₁", y="x₂", title=title)
    axes.set_aspect("equal")
    return figure


def point_clouds(*clouds: Numbers, names: Sequence[object], log_prob: Field | None = None) -> Figure:
    """Draws points of the plane side by side in one frame, such as data and samples, and the density of a model.

    Args:
        clouds: The points, (n, 2) each.
        names: What each cloud is.
        log_prob: A log-density, drawn last.

    Examples:
        >>> figure = point_clouds(torch.randn(9, 2), torch.randn(9, 2), names=("data", "samples"))
        >>> [axes.get_title() for axes in figure.axes]
        ['data', 'samples']
    """
    parts = [plane(cloud) for cloud in clouds]
    if len(names) != len(parts) or not parts:
        raise ValueError(f"a name for each cloud was wanted: got {len(names)} and {len(parts)}")
    low, high = parts[0].min(), parts[0].max()
    low, high = low - 0.1 * (high - low), high + 0.1 * (high - low)
    panels = len(parts) + (log_prob is not None)
    figure, places = drawing(1, panels, size=(4.2 * panels, 4.4))
    for axes, part, name in zip(np.atleast_1d(places), parts, names_of(names, len(parts)), strict=False):
        axes.scatter(*part[:5000].T, s=4, color=BLUE, alpha=0.4, linewidths=0)
        labelled(axes, x="x₁", y="x₂", title=name)
    if log_prob is not None:
        axes, p = np.atleast_1d(places)[-1], np.exp(_over(log_prob, low, high, 200).reshape(200, 200))
        axes.imshow(p, origin="lower", extent=(low, high, low, high), cmap=SEQUENTIAL)
        labelled(axes, x="x₁", y="x₂", title="density of the model")
    for axes in np.atleast_1d(places):
        axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    return figure


def _over(field: Field, low: float, high: float, points: int) -> np.ndarray:
    """The values of a function on a grid of the plane."""
    side = torch.linspace(low, high, points)
    grid = torch.stack(torch.meshgrid(side, side, indexing="xy"), dim=-1).reshape(-1, 2)
    with torch.no_grad():
        return array(torch.cat([field(part) for part in grid.split(4096)]))
