"""Figures of generative models: samples, latents, reconstructions, and densities of the plane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lawful.probe.figures._style import (
    BLUE,
    GRAY,
    MARKERS,
    ORANGE,
    PALETTE,
    SEQUENTIAL,
    Numbers,
    label_axes,
    labels_or_indices,
    new_figure,
    shorten_label,
    to_numpy,
)
from lawful.probe.figures.classification import _draw_example

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def sample_grid(
    x: Numbers, *, titles: Sequence[object] = (), columns: int = 8, value_range: tuple[float, float] | None = None
) -> Figure:
    """Draws a grid of images or series in a common range of values.

    Args:
        x: Examples: (n, c, h, w) with one or three channels, (n, c, t), or (n, d).
        titles: Title of each example.
        columns: Number of columns.
        value_range: Range of values. Defaults to the range of the examples.

    Examples:
        >>> import torch
        >>> len(sample_grid(torch.rand(5, 1, 8, 8), columns=3).axes)
        6
    """
    x = to_numpy(x)
    if x.ndim < 2 or not len(x):
        raise ValueError(f"expected at least one example, got shape {x.shape}")
    columns = max(1, min(columns, len(x)))
    rows = -(-len(x) // columns)
    figure, places = new_figure(rows, columns, size=(columns, (1.25 if titles else 1.0) * rows))
    draw = _example_drawer(x, value_range)
    for axes in np.ravel(places):
        axes.set_axis_off()
    for i, (axes, one) in enumerate(zip(np.ravel(places), x, strict=False)):
        draw(axes, one)
        if titles:
            axes.set_title(shorten_label(titles[i], max_length=14), fontsize=10)
    return figure


def data_and_samples(
    data: Numbers,
    samples: Numbers,
    *,
    names: Sequence[object] = ("data", "samples"),
    columns: int = 6,
    value_range: tuple[float, float] | None = None,
) -> Figure:
    """Draws images or series of the data beside samples of a model, in a common range of values.

    Args:
        data: Examples: (n, c, h, w) or (n, c, t). Images that have not one or three channels show the mean channel.
        samples: Samples of the same shape.
        names: Titles of the two halves.
        columns: Columns of each half.
        value_range: Range of values. Defaults to the range of the data.

    Examples:
        >>> figure = data_and_samples(torch.rand(9, 1, 8, 8), torch.rand(9, 1, 8, 8), columns=3)
        >>> [axes.get_title() for axes in figure.axes]
        ['data', 'samples']
    """
    parts = [to_numpy(part) for part in (data, samples)]
    if not all(map(len, parts)) or parts[0].shape[1:] != parts[1].shape[1:] or parts[0].ndim < 3:
        shapes = " and ".join(str(part.shape) for part in parts)
        raise ValueError(f"expected examples of shape (n, c, h, w) or (n, c, t) and samples of the same, got {shapes}")
    low, high = (float(parts[0].min()), float(parts[0].max())) if value_range is None else value_range
    high = high if high > low else low + 1.0
    scaled = [(part - low) / (high - low) for part in parts]
    figure, places = new_figure(1, 2, size=(12.0, _half_height(parts, columns) + 0.5))
    for axes, part, name in zip(places, scaled, names, strict=True):
        if part.ndim == 4:
            axes.imshow(_montage(part.clip(0, 1), columns), cmap="gray", vmin=0.0, vmax=1.0)
        else:
            _draw_series(axes, part.reshape(len(part), part.shape[1] if part.ndim == 3 else 1, -1), columns)
        axes.set_axis_off()
        axes.set_title(shorten_label(name, max_length=40), fontsize=18)
    layout: Any = figure.get_layout_engine()
    layout.set(wspace=0.04)  # between the halves
    return figure


def _half_height(parts: Sequence[np.ndarray], columns: int) -> float:
    """Returns the height in inches of a half of six inches."""
    rows = -(-max(map(len, parts)) // columns)
    aspect = parts[0].shape[2] / parts[0].shape[3] if parts[0].ndim == 4 else 0.6
    return min(24.0, max(1.0, 5.8 * rows / columns * aspect))


def _montage(images: np.ndarray, columns: int) -> np.ndarray:
    """Puts images into a grid with white gaps."""
    n, c, h, w = images.shape
    gap, rows = max(1, round(0.06 * max(h, w))), -(-n // columns)
    colors = 3 if c == 3 else 1
    sheet = np.ones((rows * (h + gap) - gap, columns * (w + gap) - gap, colors))
    for i, image in enumerate(images if c == 3 else images.mean(1, keepdims=True)):
        top, left = i // columns * (h + gap), i % columns * (w + gap)
        sheet[top : top + h, left : left + w] = image.transpose(1, 2, 0)
    return sheet if colors == 3 else sheet[:, :, 0]


def _draw_series(axes: Axes, series: np.ndarray, columns: int) -> None:
    """Draws series in a grid, one color per channel."""
    time = np.linspace(0.0, 1.0, series.shape[2])
    for i, one in enumerate(series):
        for channel, values in enumerate(one):
            color = PALETTE[channel % len(PALETTE)]
            axes.plot(1.15 * (i % columns) + time, values - 1.3 * (i // columns), color=color, linewidth=1.4)


def marginals(
    data: Numbers,
    samples: Numbers,
    *,
    columns: Sequence[object] | None = None,
    names: Sequence[object] = ("data", "samples"),
    max_columns: int = 12,
) -> Figure:
    """Draws histograms of each column of the data and of samples.

    Args:
        data: Rows of shape (n, d).
        samples: Rows of shape (m, d).
        columns: Names of the columns.
        names: Names of data and samples in the legend.
        max_columns: Maximum number of columns.

    Examples:
        >>> figure = marginals(torch.randn(99, 3), torch.randn(50, 3), columns=("age", "height", "weight"))
        >>> [axes.get_xlabel() for axes in figure.axes]
        ['age', 'height', 'weight']
    """
    x, y = to_numpy(data), to_numpy(samples)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or not x.size or not y.size:
        raise ValueError(f"expected rows of the same columns, got shapes {x.shape} and {y.shape}")
    labels = labels_or_indices(columns, x.shape[1])[:max_columns]
    across = min(4, len(labels))
    down = -(-len(labels) // across)
    figure, grid = new_figure(down, across, size=(max(6.0, 3.0 * across), 2.6 * down + 0.4))
    places = np.ravel(grid)
    for axes in places[len(labels) :]:
        axes.set_axis_off()
    for i, (axes, label) in enumerate(zip(places, labels, strict=False)):
        low, high = np.quantile(x[:, i], [0.005, 0.995])
        margin = 0.15 * (high - low) or 0.5
        count = int(np.clip(1.5 * np.sqrt(len(x)), 10, 40))
        bins = np.linspace(low - margin, high + margin, count + 1).tolist()
        for values, color, name in ((x, BLUE, names[0]), (y, ORANGE, names[1])):
            kept = values[:, i].clip(bins[0], bins[-1])
            axes.hist(kept, bins=bins, density=True, color=color, alpha=0.55, label=shorten_label(name))
        label_axes(axes, x=label, y="")
        axes.set_yticks([])
    places[0].legend(frameon=False, fontsize=11)
    return figure


def reconstructions(*rows: Numbers, names: Sequence[object]) -> Figure:
    """Draws rows of examples, such as data, corrupted and reconstructed, in the range of the first row.

    Args:
        rows: Examples, and versions of them in the same order.
        names: Names of the rows.

    Examples:
        >>> import torch
        >>> figure = reconstructions(torch.rand(4, 1, 8, 8), torch.rand(4, 1, 8, 8), names=("data", "output"))
        >>> figure.axes[4].get_ylabel()
        'output'
    """
    parts = [to_numpy(row) for row in rows]
    if not parts or len({part.shape for part in parts}) != 1 or len(names) != len(parts):
        shapes = [part.shape for part in parts]
        raise ValueError(f"expected rows of equal shape and a name for each, got {shapes} and {len(names)} names")
    n = len(parts[0])
    figure, places = new_figure(len(parts), n, size=(n + 0.6, 1.1 * len(parts)))
    draw = _example_drawer(parts[0])
    for axes_of, part, name in zip(
        np.reshape(places, (len(parts), n)), parts, labels_or_indices(names, len(parts)), strict=True
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
    """Draws latents as points of the plane, with colors and markers by label.

    Args:
        z: Latents; the first two coordinates are drawn.
        labels: Labels.
        names: Names of the labels.
        axes_names: Labels of the axes.

    Examples:
        >>> import torch
        >>> figure = latent_map(torch.randn(6, 2), labels=[0, 0, 1, 1, 2, 2], names=("a", "b", "c"))
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['a', 'b', 'c']
    """
    z = _to_plane(z)
    figure, axes = new_figure(size=(8.0, 6.5))
    size = 20.0 if len(z) < 2000 else 6.0
    if labels is None:
        axes.scatter(*z.T, s=size, color=BLUE, alpha=0.6, linewidths=0)
    else:
        number = to_numpy(labels).astype(int)
        if len(number) != len(z):
            raise ValueError(f"expected one label per latent, got {len(number)} labels and {len(z)} latents")
        many = int(number.max()) + 1 if names is None else len(names)
        for k, name in enumerate(labels_or_indices(names, many)):
            if len(here := z[number == k]):
                axes.scatter(*here.T, s=size, alpha=0.7, linewidths=0.3, label=name, **_label_style(k, many))
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=11)
    label_axes(axes, x=axes_names[0], y=axes_names[1])
    return figure


def bottleneck_curve(
    errors: dict[str, Sequence[tuple[int, float]]], *, mean: float, unit: str = "squared error"
) -> Figure:
    """Draws the reconstruction error against the latent dimension.

    Args:
        errors: Pairs of latent dimension and error, by model.
        mean: Error of predicting the mean.
        unit: Label of the error.

    Examples:
        >>> figure = bottleneck_curve({"PCA": [(1, 4.0), (2, 2.0)]}, mean=5.0)
        >>> figure.axes[0].get_xlabel()
        'latent dimension'
    """
    figure, axes = new_figure()
    axes.axhline(mean, color=GRAY, linestyle=":", label="mean")
    for i, (name, points) in enumerate(errors.items()):
        axes.plot(
            *zip(*points, strict=True),
            color=PALETTE[i % 8],
            marker=MARKERS[i % 8],
            label=shorten_label(name, max_length=40),
        )
    axes.set_xscale("log", base=2)
    units = sorted({k for points in errors.values() for k, _ in points})
    axes.set_xticks(units, [str(k) for k in units])
    axes.set_ylim(bottom=0)
    label_axes(axes, x="latent dimension", y=unit)
    axes.legend(frameon=False, fontsize=11)
    return figure


def _to_plane(x: Numbers) -> np.ndarray:
    """Returns the first two coordinates."""
    points = to_numpy(x)
    if points.ndim != 2 or points.shape[1] < 2 or not len(points):
        raise ValueError(f"expected points with at least two coordinates, got shape {points.shape}")
    return points[:, :2]


def _label_style(k: int, many: int) -> dict[str, Any]:
    """Returns the color and marker of a label; after eight labels, colors repeat with other markers."""
    cycle = k // len(PALETTE)
    style = {"color": PALETTE[k % len(PALETTE)], "marker": MARKERS[(k + cycle) % len(MARKERS)]}
    return {**style, "edgecolors": "black" if many > len(PALETTE) and cycle else "none"}


def _example_drawer(
    x: np.ndarray, value_range: tuple[float, float] | None = None
) -> Callable[[Axes, np.ndarray], None]:
    """Returns a function that draws an example in the range of all of them."""
    low, high = (float(np.nanmin(x)), float(np.nanmax(x))) if value_range is None else value_range
    high = high if high > low else low + 1.0

    def draw(axes: Axes, one: np.ndarray) -> None:
        if one.ndim == 3 and one.shape[0] in (1, 3):
            shown = one[0] if one.shape[0] == 1 else ((one - low) / (high - low)).clip(0, 1).transpose(1, 2, 0)
            axes.imshow(shown, cmap="gray", vmin=low, vmax=high)
        elif one.ndim == 2 and one.shape[0] > 1:
            axes.plot(one.T, linewidth=1.2)
        else:
            _draw_example(axes, one)
        if one.ndim < 3:
            axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))

    return draw


_Field = Callable[[Tensor], Tensor]


def trajectories(paths: Numbers, *, data: Numbers | None = None, max_paths: int = 60) -> Figure:
    """Draws the trajectories of samples in the plane, from noise (hollow) to samples (filled).

    Args:
        paths: Positions of the samples at each step: (steps, n, 2).
        data: Data points, drawn in the background.
        max_paths: Maximum number of trajectories.

    Examples:
        >>> trajectories(torch.randn(4, 3, 2)).axes[0].get_xlabel()
        'x₁'
    """
    paths = to_numpy(paths)
    if paths.ndim != 3 or paths.shape[2] != 2 or len(paths) < 2:
        raise ValueError(f"expected paths of shape (steps >= 2, n, 2), got {paths.shape}")
    figure, axes = new_figure(size=(7.0, 6.5))
    if data is not None:
        axes.scatter(*_to_plane(data)[:5000].T, s=3, color=GRAY, alpha=0.3, linewidths=0, label="data")
    for path in paths[:, :max_paths].transpose(1, 0, 2):
        axes.plot(*path.T, color=BLUE, linewidth=0.8, alpha=0.5)
    axes.scatter(*paths[0, :max_paths].T, s=18, facecolors="white", edgecolors=BLUE, label="noise", zorder=3)
    axes.scatter(
        *paths[-1, :max_paths].T, s=18, color=ORANGE, edgecolors="black", linewidths=0.5, label="sample", zorder=4
    )
    label_axes(axes, x="x₁", y="x₂")
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=11)
    return figure


def score_field(
    score: _Field,
    *,
    log_prob: _Field | None = None,
    low: float = -3.0,
    high: float = 3.0,
    arrows: int = 24,
    title: str = "",
) -> Figure:
    """Draws the score (gradient of a log-density) as arrows, over the density if it is given.

    The length of an arrow is the square root of the norm, so that small ones are visible.

    Args:
        score: Maps points (n, 2) to scores (n, 2).
        log_prob: Maps points (n, 2) to log-densities (n,).
        low: Lower end of both axes.
        high: Upper end of both axes.
        arrows: Number of arrows along each axis.
        title: Title.

    Examples:
        >>> score_field(lambda x: -x, log_prob=lambda x: -x.square().sum(-1) / 2, arrows=5).axes[0].get_ylabel()
        'x₂'
    """
    if not low < high or arrows < 2:
        raise ValueError(f"expected low < high and arrows >= 2, got {low}, {high} and {arrows}")
    figure, axes = new_figure(size=(7.0, 6.5))
    if log_prob is not None:
        axes.imshow(
            np.exp(_evaluate_on_grid(log_prob, low, high, 200).reshape(200, 200)),
            origin="lower",
            extent=(low, high, low, high),
            cmap="Greys",
            alpha=0.7,
        )
    side = np.linspace(low, high, arrows)
    field = _evaluate_on_grid(score, low, high, arrows).reshape(arrows * arrows, 2)
    length = np.linalg.norm(field, axis=1, keepdims=True)
    drawn = field / np.sqrt(np.maximum(length, 1e-12))
    drawn *= (high - low) / arrows / (np.sqrt(length).max() or 1.0)
    here = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    axes.quiver(*here.T, *drawn.T, color=BLUE, angles="xy", scale_units="xy", scale=1.0, width=0.0025)
    label_axes(axes, x="x₁", y="x₂", title=title)
    axes.set_aspect("equal")
    return figure


def point_clouds(
    *clouds: Numbers,
    names: Sequence[object],
    log_prob: _Field | None = None,
    axes_names: tuple[str, str] = ("x₁", "x₂"),
) -> Figure:
    """Draws point clouds of the plane side by side, such as data and samples, and a density.

    Args:
        clouds: Points of shape (n, 2).
        names: Names of the clouds.
        log_prob: Log-density, drawn in the last panel.
        axes_names: Labels of the axes.

    Examples:
        >>> figure = point_clouds(torch.randn(9, 2), torch.randn(9, 2), names=("data", "samples"))
        >>> [axes.get_title() for axes in figure.axes]
        ['data', 'samples']
    """
    parts = [_to_plane(cloud) for cloud in clouds]
    if len(names) != len(parts) or not parts:
        raise ValueError(f"expected one name per cloud, got {len(names)} names and {len(parts)} clouds")
    low, high = parts[0].min(0), parts[0].max(0)
    if _share_unit(low, high):
        low, high = np.full(2, low.min()), np.full(2, high.max())
    margin = 0.1 * np.where(high > low, high - low, 1.0)
    low, high = low - margin, high + margin
    panels = len(parts) + (log_prob is not None)
    figure, places = new_figure(1, panels, size=(4.8 * panels, 5.0))
    x, y = (shorten_label(name, max_length=30) for name in axes_names)
    for axes, part, name in zip(np.atleast_1d(places), parts, labels_or_indices(names, len(parts)), strict=False):
        axes.scatter(*part[:5000].T, s=14 if len(part) < 1000 else 4, color=BLUE, alpha=0.5, linewidths=0)
        label_axes(axes, x=x, y=y, title=name)
    if log_prob is not None:
        axes, p = np.atleast_1d(places)[-1], np.exp(_evaluate_on_grid(log_prob, low, high, 200).reshape(200, 200))
        extent = (float(low[0]), float(high[0]), float(low[1]), float(high[1]))
        axes.imshow(p, origin="lower", extent=extent, cmap=SEQUENTIAL)
        label_axes(axes, x=x, y=y, title="model density")
    for axes in np.atleast_1d(places):
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        axes.set_box_aspect(1)
        axes.set_aspect("auto")
    return figure


def _share_unit(low: np.ndarray, high: np.ndarray, *, ratio: float = 3.0) -> bool:
    """Whether two columns have similar ranges, so that both axes can have the same one without much empty space."""
    spans = high - low
    return bool(0 < spans.max() <= ratio * spans.min() and (high.max() - low.min()) <= 1.5 * spans.max())


def _evaluate_on_grid(field: _Field, low: np.ndarray | float, high: np.ndarray | float, points: int) -> np.ndarray:
    """Evaluates a function on a grid of the plane. Ends are for both axes, or one for each."""
    ends = np.broadcast_to(low, 2), np.broadcast_to(high, 2)
    sides = [torch.linspace(float(a), float(b), points) for a, b in zip(*ends, strict=True)]
    grid = torch.stack(torch.meshgrid(*sides, indexing="xy"), dim=-1).reshape(-1, 2)
    with torch.no_grad():
        return to_numpy(torch.cat([field(part) for part in grid.split(4096)]))
