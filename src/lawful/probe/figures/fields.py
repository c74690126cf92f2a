"""Densities of the plane in pictures: points, the way from noise to data, the score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lawful.probe.figures.generative import plane
from lawful.probe.figures.style import BLUE, GREY, ORANGE, SEQUENTIAL, Numbers, array, drawing, labelled, names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
