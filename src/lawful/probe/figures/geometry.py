"""Figures of particles, point clouds, surfaces, and generators of symmetries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lawful.probe.figures._style import (
    BLUE,
    GRAY,
    PALETTE,
    SEQUENTIAL,
    VERMILION,
    Numbers,
    label_axes,
    labels_or_indices,
    new_figure,
    to_numpy,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure


def particle_paths(paths: Numbers, predicted: Numbers, *, axes: tuple[int, int] = (0, 1)) -> Figure:
    """Draws the paths of particles, one panel per trajectory, and where they are predicted to end.

    Args:
        paths: Positions at each frame, from the input to the target: (trajectories, frames, particles, d).
        predicted: Predicted positions of the last frame: (trajectories, particles, d).
        axes: Axes of the space to draw. In one dimension, positions are drawn over frames.

    Examples:
        >>> figure = particle_paths(np.zeros((2, 4, 5, 3)), np.zeros((2, 5, 3)))
        >>> len(figure.axes), figure.axes[0].get_xlabel()
        (2, 'x₁')
    """
    x, y = to_numpy(paths), to_numpy(predicted)
    if x.ndim != 4 or not x.size or y.shape != (len(x), *x.shape[2:]):
        raise ValueError(
            "expected paths of shape (trajectories, frames, particles, d) and predictions of shape (trajectories, "
            f"particles, d), got {x.shape} and {y.shape}"
        )
    if x.shape[-1] == 1:
        frames = np.broadcast_to(np.arange(x.shape[1])[None, :, None, None], x.shape)
        x, y = np.concatenate([frames, x], -1), np.concatenate([np.full_like(y, x.shape[1] - 1), y], -1)
        labels = ("frame", "x")
    else:
        x, y = x[..., list(axes)], y[..., list(axes)]
        labels = (f"x{'₁₂₃₄₅₆₇₈₉'[axes[0]]}", f"x{'₁₂₃₄₅₆₇₈₉'[axes[1]]}")
    columns = min(3, len(x))
    rows = math.ceil(len(x) / columns)
    figure, places = new_figure(rows, columns, size=(4.3 * columns, 4.1 * rows + 0.5))
    panels = np.ravel(places)
    for panel, path, end in zip(panels, x, y, strict=False):
        for i in range(path.shape[1]):
            color = PALETTE[i % (len(PALETTE) - 2)]
            panel.plot(*path[:, i].T, color=color, linewidth=1.5)
            panel.scatter(*path[0, i], s=30, facecolors="white", edgecolors=color, zorder=3)
            panel.scatter(*path[-1, i], s=40, color=color, zorder=4)
            panel.plot(*np.stack([path[-1, i], end[i]]).T, color=GRAY, linewidth=1, linestyle=":", zorder=2)
        panel.scatter(*end.T, s=60, marker="x", color="black", linewidths=1.8, zorder=5)
        label_axes(panel, x=labels[0], y=labels[1])
        panel.set_aspect("equal" if labels[0] != "frame" else "auto", adjustable="datalim")
    for panel in panels[len(x) :]:
        panel.set_visible(False)
    marks = [
        panels[0].scatter([], [], s=30, facecolors="white", edgecolors=GRAY, label="input"),
        panels[0].scatter([], [], s=40, color=GRAY, label="true position"),
        panels[0].scatter([], [], s=60, marker="x", color="black", label="predicted position"),
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=3, frameon=False, fontsize=11)
    return figure


def point_motions(
    points: Numbers, moved: Numbers, *, expected: Numbers | None = None, names: Sequence[object] | None = None
) -> Figure:
    """Draws point clouds in the plane and arrows to where a layer moves the points, side by side.

    Args:
        points: Points: (k, n, 2).
        moved: Output for each point: (k, n, 2).
        expected: Where the points should be moved, drawn as crosses: (k, n, 2).
        names: Titles.

    Examples:
        >>> figure = point_motions(np.zeros((2, 5, 2)), np.ones((2, 5, 2)), names=["cloud", "turned cloud"])
        >>> [panel.get_title() for panel in figure.axes]
        ['cloud', 'turned cloud']
    """
    x, y = to_numpy(points), to_numpy(moved)
    crosses = y if expected is None else to_numpy(expected)
    if x.ndim != 3 or x.shape[2] != 2 or not x.size or not x.shape == y.shape == crosses.shape:
        raise ValueError(
            f"expected points, outputs and expected outputs of shape (k, n, 2), got {x.shape}, {y.shape}"
            f" and {crosses.shape}"
        )
    columns = min(4, len(x))
    rows = math.ceil(len(x) / columns)
    figure, places = new_figure(rows, columns, size=(3.9 * columns, 3.9 * rows + 0.4))
    panels = np.ravel(places)
    reach = 1.1 * float(max(np.abs(a).max() for a in (x, y, crosses))) or 1.0
    for panel, a, b, c, name in zip(panels, x, y, crosses, labels_or_indices(names, len(x)), strict=False):
        panel.quiver(*a.T, *(b - a).T, color=BLUE, angles="xy", scale_units="xy", scale=1.0, width=0.008, zorder=2)
        panel.scatter(*a.T, s=36, facecolors="white", edgecolors=BLUE, zorder=3)
        if expected is not None:
            panel.scatter(*c.T, s=50, marker="x", color=VERMILION, linewidths=1.8, zorder=4)
        label_axes(panel, x="x₁", y="x₂", title=name)
        panel.set_xlim(-reach, reach)
        panel.set_ylim(-reach, reach)
        panel.set_aspect("equal")
    for panel in panels[len(x) :]:
        panel.set_visible(False)
    marks = [
        panels[0].scatter([], [], s=36, facecolors="white", edgecolors=BLUE, label="input"),
        panels[0].scatter([], [], s=50, marker=r"$\rightarrow$", color=BLUE, label="output"),
    ]
    if expected is not None:
        marks.append(panels[0].scatter([], [], s=50, marker="x", color=VERMILION, label="expected output"))
    figure.legend(handles=marks, loc="outside lower center", ncols=3, frameon=False, fontsize=11)
    return figure


def surface_values(
    vertices: Numbers, faces: Numbers, values: Numbers, *, names: Sequence[object] | None = None, columns: int = 3
) -> Figure:
    """Draws surfaces in space, colored by a value at each vertex, in a common range of colors.

    Args:
        vertices: Vertices of each surface: (k, n, 3).
        faces: Triangles, the same for all surfaces: (m, 3).
        values: Value of each vertex: (k, n).
        names: Titles.
        columns: Number of columns.

    Examples:
        >>> corners = [[[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
        >>> figure = surface_values(corners, [[0, 1, 2]], [[0.0, 1.0, 2.0]], names=["triangle"])
        >>> figure.axes[0].get_title()
        'triangle'
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    x, triangles, v = to_numpy(vertices), to_numpy(faces).astype(int), to_numpy(values)
    if x.ndim != 3 or x.shape[2] != 3 or triangles.ndim != 2 or triangles.shape[1] != 3 or v.shape != x.shape[:2]:
        raise ValueError(
            f"expected vertices of shape (k, n, 3), faces (m, 3) and values (k, n), got {x.shape}, {triangles.shape} "
            f"and {v.shape}"
        )
    if not triangles.size or not 0 <= triangles.min() <= triangles.max() < x.shape[1]:
        raise ValueError(f"expected faces with vertices from 0 to {x.shape[1] - 1}")
    columns = max(1, min(columns, len(x)))
    rows = math.ceil(len(x) / columns)
    figure = Figure(figsize=(3.6 * columns + 0.8, 3.0 * rows), dpi=100, layout="constrained")
    colors = Normalize(float(v.min()), float(v.max()))
    middle = (x.max(1) + x.min(1)) / 2
    reach = float((x.max(1) - x.min(1)).max()) / 2 or 1.0
    panels = []
    for i, (corners, value, name) in enumerate(zip(x, v, labels_or_indices(names, len(x)), strict=True)):
        panel = figure.add_subplot(rows, columns, i + 1, projection="3d")
        shades = colormaps[SEQUENTIAL](colors(value[triangles].mean(1)))
        panel.add_collection3d(
            Poly3DCollection(corners[triangles], facecolors=shades, edgecolors=shades, linewidths=0.4)
        )
        for k, limit in enumerate((panel.set_xlim, panel.set_ylim, panel.set_zlim)):
            limit(middle[i, k] - reach, middle[i, k] + reach)
        panel.set_box_aspect((1, 1, 1), zoom=1.15)
        panel.view_init(elev=28, azim=-62)
        panel.set_axis_off()
        panel.set_title(name, fontsize=13)
        panels.append(panel)
    figure.colorbar(ScalarMappable(colors, SEQUENTIAL), ax=panels, shrink=0.6)
    return figure


def generator_matrices(generators: Numbers, *, names: Sequence[object] | None = None) -> Figure:
    """Draws generators as matrices, side by side. Entries above 0 are red and entries below 0 are blue.

    Args:
        generators: Generators: (k, rows, columns).
        names: Titles.

    Examples:
        >>> figure = generator_matrices([[[0.0, -1.0], [1.0, 0.0]]], names=["rotation"])
        >>> figure.axes[0].get_title()
        'rotation'
    """
    matrices = _matrices(generators)
    columns = min(4, len(matrices))
    rows = math.ceil(len(matrices) / columns)
    figure, places = new_figure(rows, columns, size=(3.6 * columns + 0.6, 3.7 * rows))
    panels = np.ravel(places)
    for panel, matrix, name in zip(panels, matrices, labels_or_indices(names, len(matrices)), strict=False):
        largest = float(np.abs(matrix).max()) or 1.0
        drawn = panel.imshow(matrix, cmap="RdBu_r", vmin=-largest, vmax=largest)
        panel.set_title(name, fontsize=13)
        if matrix.size <= 30:
            panel.set_xticks(range(matrix.shape[1]))
            panel.set_yticks(range(matrix.shape[0]))
            for (i, j), value in np.ndenumerate(matrix):
                dark = abs(value) > 0.6 * largest
                text = f"{0.0 if abs(value) < 0.005 else value:.2f}"
                panel.text(j, i, text, ha="center", va="center", color="white" if dark else "black", fontsize=11)
        else:
            figure.colorbar(drawn, ax=panel, shrink=0.8)
    for panel in panels[len(matrices) :]:
        panel.set_visible(False)
    return figure


def vector_fields(
    generators: Numbers, *, names: Sequence[object] | None = None, points: Numbers | None = None, arrows: int = 11
) -> Figure:
    r"""Draws the vector fields $A x + b$ of generators of the plane, side by side.

    Args:
        generators: Generators $[A \; b]$: (k, 2, 3), or $A$ alone: (k, 2, 2).
        names: Titles.
        points: Data points, drawn in the background; they also set the limits of the axes.
        arrows: Number of arrows along each axis.

    Examples:
        >>> figure = vector_fields([[[0.0, -1.0], [1.0, 0.0]]], names=["rotation"])
        >>> figure.axes[0].get_title(), figure.axes[0].get_xlabel()
        ('rotation', 'x₁')
    """
    fields = _matrices(generators)
    if fields.shape[1:] not in ((2, 2), (2, 3)):
        raise ValueError(f"expected generators of shape (k, 2, 2) or (k, 2, 3), got {fields.shape}")
    fields = np.pad(fields, ((0, 0), (0, 0), (0, 3 - fields.shape[2])))
    if points is None:
        cloud, low, high = None, np.full(2, -1.0), np.full(2, 1.0)
    else:
        cloud = to_numpy(points).reshape(-1, 2)
        low, high = cloud.min(0), cloud.max(0)
        high = np.where(high > low, high, low + 1.0)
    sides = [np.linspace(*ends, arrows) for ends in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*sides), -1).reshape(-1, 2)
    columns = min(3, len(fields))
    rows = math.ceil(len(fields) / columns)
    figure, places = new_figure(rows, columns, size=(4.4 * columns, 4.4 * rows))
    panels = np.ravel(places)
    for panel, field, name in zip(panels, fields, labels_or_indices(names, len(fields)), strict=False):
        if cloud is not None:
            panel.scatter(*cloud[:5000].T, s=5, color=GRAY, alpha=0.4, linewidths=0)
        drawn = grid @ field[:, :2].T + field[:, 2]
        longest = float(np.linalg.norm(drawn, axis=1).max()) or 1.0
        drawn = drawn * float((high - low).min()) / (arrows * longest) * 1.4
        panel.quiver(*grid.T, *drawn.T, color=BLUE, angles="xy", scale_units="xy", scale=1.0, width=0.004)
        linear, shift = field[:, :2], field[:, 2]
        if abs(np.linalg.det(linear)) > 1e-3 * float(np.abs(linear).max() or 1.0) ** 2:
            fixed = np.linalg.solve(linear, -shift)
            if bool(np.all((fixed >= low) & (fixed <= high))):
                panel.scatter(*fixed, s=50, marker="+", color=VERMILION, linewidths=2, zorder=4)
        label_axes(panel, x="x₁", y="x₂", title=name)
        panel.set_aspect("equal", adjustable="datalim")
    for panel in panels[len(fields) :]:
        panel.set_visible(False)
    return figure


def _matrices(generators: Numbers) -> np.ndarray:
    found = to_numpy(generators)
    if found.ndim != 3 or not found.size:
        raise ValueError(f"expected generators of shape (k, rows, columns), got {found.shape}")
    return found
