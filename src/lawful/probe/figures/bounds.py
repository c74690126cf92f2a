"""Figures of bounds beside what they bound: gradient descent, spectra of optimizers, and outputs of a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from lawful.probe.figures._style import GRAY, MARKERS, PALETTE, Numbers, label_axes, new_figure, to_numpy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLORS = tuple(color for color in PALETTE if color != GRAY)


def convergence_bounds(runs: Mapping[str, tuple[Numbers, Numbers]]) -> Figure:
    """Draws the gap to the minimum over the steps of runs, and the bound of each as a dashed line.

    Args:
        runs: Gap and bound at each step from 0 on, by name, such as `gap` and `bound` of a
            `lawful.theory.ConvergenceRun`.

    Examples:
        >>> figure = convergence_bounds({"gradient descent": ([4.0, 1.0, 0.25], [4.0, 2.0, 1.0])})
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['gradient descent', 'bound']
    """
    if not runs:
        raise ValueError("runs must not be empty")
    figure, axes = new_figure()
    for (name, (gap, bound)), color, marker in zip(runs.items(), _COLORS, MARKERS, strict=False):
        gap, bound = to_numpy(gap), to_numpy(bound)
        if gap.shape != bound.shape or gap.ndim != 1:
            raise ValueError(f"gap and bound of {name!r} must be of equal length: got {gap.shape} and {bound.shape}")
        steps = np.arange(len(gap))
        shown = gap > 0  # zero and less are off a logarithmic scale
        axes.plot(
            steps[shown],
            gap[shown],
            color=color,
            marker=marker,
            markevery=max(1, len(gap) // 8),
            label=name,
            linewidth=2,
        )
        axes.plot(steps[1:], bound[1:], color=color, linestyle="--", linewidth=1.5, label="bound")
    axes.set_yscale("log")
    label_axes(axes, x="step", y="gap to the minimum")
    axes.legend(fontsize=11, frameon=False)
    return figure


def optimizer_spectra(spectra: Mapping[str, tuple[Numbers, Tensor | np.ndarray]]) -> Figure:
    """Draws the factor per step over the curvature, and the roots in the complex plane with the unit circle.

    Args:
        spectra: Curvatures of shape (n,) and roots of shape (n, 2), by name, such as `curvatures` and `roots` of a
            `lawful.theory.QuadraticSpectrum`.

    Examples:
        >>> import torch
        >>> from lawful.theory import quadratic_spectrum
        >>> spectrum = quadratic_spectrum(torch.linspace(1, 10, 20), learning_rate=0.1, momentum=0.5)
        >>> figure = optimizer_spectra({"heavy ball": (spectrum.curvatures, spectrum.roots)})
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['factor per step', 'imaginary part']
    """
    if not spectra:
        raise ValueError("spectra must not be empty")
    figure, (left, right) = new_figure(1, 2, size=(11.0, 5.0))
    angle = np.linspace(0, 2 * np.pi, 200)
    left.axhline(1, color=GRAY, linewidth=1)
    right.plot(np.cos(angle), np.sin(angle), color=GRAY, linewidth=1)
    for (name, (curvatures, roots)), color, marker in zip(spectra.items(), _COLORS, MARKERS, strict=False):
        values = np.asarray(roots.detach().cpu() if isinstance(roots, Tensor) else roots, dtype=complex)
        x = to_numpy(curvatures)
        if values.shape != (*x.shape, 2):
            raise ValueError(f"roots of {name!r} must be of shape {(*x.shape, 2)}: got {values.shape}")
        order = np.argsort(x)
        left.plot(x[order], np.abs(values).max(-1)[order], color=color, linewidth=2, label=name)
        every = values[order][:: max(1, len(x) // 40)].ravel()
        right.plot(every.real, every.imag, color=color, marker=marker, linestyle="", markersize=4, label=name)
    right.set_aspect("equal", adjustable="datalim")
    label_axes(left, x="curvature", y="factor per step")
    label_axes(right, x="real part", y="imaginary part")
    left.legend(fontsize=11, frameon=False)
    return figure


def output_intervals(
    edges: Numbers, bounds: Mapping[str, tuple[Numbers, Numbers]], *, x: Numbers, y: Numbers
) -> Figure:
    """Draws a function of one variable, and bounds of its values on intervals.

    Args:
        edges: Ends of the n intervals, n + 1 increasing numbers.
        bounds: Lower and upper bounds on each interval, by name, from the loosest to the tightest.
        x: Inputs of the function.
        y: Values of the function.

    Examples:
        >>> figure = output_intervals([0, 1, 2], {"interval": ([0, 1], [1, 2])}, x=[0, 1, 2], y=[0, 1, 2])
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['interval', 'network']
    """
    ends = to_numpy(edges)
    figure, axes = new_figure()
    for i, ((name, pair), color) in enumerate(zip(bounds.items(), _COLORS[1:], strict=False)):
        low, high = (to_numpy(values) for values in pair)
        if low.shape != (len(ends) - 1,) or high.shape != low.shape:
            raise ValueError(f"bounds of {name!r} must be of shape {(len(ends) - 1,)}: got {low.shape}, {high.shape}")
        axes.fill_between(
            ends,
            np.append(low, low[-1]),
            np.append(high, high[-1]),
            step="post",
            color=color,
            alpha=0.3 + 0.2 * i,
            label=name,
        )
    axes.plot(to_numpy(x), to_numpy(y), color=PALETTE[0], linewidth=2, label="network")
    label_axes(axes, x="x", y="output")
    axes.legend(fontsize=11, frameon=False)
    return figure
