"""Figures of state-space layers, and of what HiPPO remembers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from lawful.functions.hippo import HiPPOMemory
from lawful.probe.figures._style import (
    GRAY,
    MARKERS,
    PALETTE,
    VERMILION,
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

_DASHES = ("-", "--", "-.", ":")


def impulse_response(response: Numbers, *, names: Sequence[object] | None = None, max_channels: int = 6) -> Figure:
    """Draws the impulse responses of channels against the lag, one below the other.

    The response at lag 0 contains the skip connection and is often much larger than the others. It is not drawn.

    Args:
        response: Impulse responses, one row per channel, from `lawful.probe.impulse_response`.
        names: Names of the channels.
        max_channels: Largest number of channels. Of more channels, some are drawn, evenly spaced.

    Examples:
        >>> figure = impulse_response([[1.0, 0.5, 0.25], [1.0, 0.1, 0.01]])
        >>> len(figure.axes), figure.axes[-1].get_xlabel()
        (2, 'lag [samples]')
    """
    rows = _rows(response, "response")
    if rows.shape[1] < 2:
        raise ValueError(f"response must have at least two samples, got shape {rows.shape}")
    channels = list(_channels(rows, names, max_channels))
    count = len(channels)
    figure, places = new_figure(count, 1, size=(8.0, 1.0 + 1.1 * count), heights=(1,) * count)
    for axes, (row, style) in zip(np.ravel(places), channels, strict=True):
        axes.axhline(0, color=GRAY, linewidth=1)
        axes.plot(np.arange(1, len(row)), row[1:], color=style["color"], linewidth=1.5)
        label_axes(axes, x="", y="")
        axes.set_title(style["label"], loc="left", fontsize=11)
    figure.axes[-1].set_xlabel("lag [samples]", fontsize=12)
    figure.supylabel("impulse response", fontsize=12)
    return figure


def spectrum(modes: Tensor | np.ndarray, *, names: Sequence[object] | None = None, max_channels: int = 6) -> Figure:
    """Draws the modes of channels in the complex plane, with the Nyquist frequency if a mode is near it.

    The real part has a logarithmic scale: slow modes are on the right. Modes that grow are not drawn; the title counts
    them.

    Args:
        modes: Modes per sample, one row per channel, from `lawful.probe.spectrum`.
        names: Names of the channels.
        max_channels: Largest number of channels. Of more channels, some are drawn, evenly spaced.

    Examples:
        >>> import torch
        >>> figure = spectrum(torch.tensor([[-0.1 + 2j, -0.1 - 2j], [-0.01 + 1j, -0.01 - 1j]]))
        >>> figure.axes[0].get_ylabel()
        'frequency Im λ [rad/sample]'
    """
    values = np.atleast_2d(modes.detach().cpu().numpy() if isinstance(modes, Tensor) else modes)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"modes must have shape (d, n) and not be empty, got shape {values.shape}")
    figure, axes = new_figure()
    for (row, style), marker in zip(_channels(values, names, max_channels), cycle(MARKERS)):
        kept = row[row.real < 0]
        axes.plot(-kept.real, kept.imag, **{**style, "linestyle": "", "marker": marker, "markersize": 5, "alpha": 0.7})
    near = np.abs(values.imag).max() > np.pi / 2
    for sign, label in ((1, "Nyquist frequency"), (-1, None)) if near else ():
        axes.axhline(sign * np.pi, color=GRAY, linestyle=":", linewidth=1.5, label=label)
    axes.set_xscale("log")
    axes.invert_xaxis()
    if np.abs(values.imag).max() > 10 * np.pi:
        axes.set_yscale("symlog", linthresh=np.pi)
    growing = int((values.real >= 0).sum())
    title = f"{growing} of {values.size} modes do not decay" if growing else ""
    label_axes(axes, x="decay rate −Re λ [1/sample], slower to the right", y="frequency Im λ [rad/sample]", title=title)
    _legend(axes)
    return figure


def time_scales(scales: Numbers, *, length: int | None = None) -> Figure:
    """Draws the time scales of all channels, sorted by the longest of each.

    Args:
        scales: Time scales in samples, one row per channel, from `lawful.probe.time_scales`.
        length: Length of the signals, drawn as a line. Slower modes hardly decay within it.

    Examples:
        >>> time_scales([[1.0, 10.0], [5.0, 100.0]], length=64).axes[0].get_ylabel()
        'time scale [samples]'
    """
    rows = _rows(scales, "scales")
    rows = rows[np.argsort(rows.max(1), kind="stable")]
    figure, axes = new_figure()
    channels = np.broadcast_to(np.arange(len(rows))[:, None], rows.shape)
    axes.plot(channels.ravel(), rows.ravel(), color=PALETTE[0], linestyle="", marker="o", markersize=4, alpha=0.4)
    axes.plot(rows.max(1), color=VERMILION, marker="_", linestyle="", markersize=9, label="longest of the channel")
    if length is not None:
        axes.axhline(length, color=GRAY, linestyle="--", linewidth=1.5, label=f"signal: {length:,} samples")
    axes.set_yscale("log")
    axes.xaxis.get_major_locator().set_params(integer=True)
    label_axes(axes, x="channel, sorted by its longest time scale", y="time scale [samples]")
    axes.grid(alpha=0.25, axis="y")
    _legend(axes)
    return figure


def frequency_response(
    frequencies: Numbers,
    gain: Numbers,
    phase: Numbers,
    *,
    names: Sequence[object] | None = None,
    max_channels: int = 4,
) -> Figure:
    """Draws gain and phase against the frequency: a Bode plot.

    Args:
        frequencies: Frequencies in cycles per sample. Frequency 0 is not drawn, since the scale is logarithmic.
        gain: Gains, one row per channel, from `lawful.probe.frequency_response`.
        phase: Phases in radians, one row per channel.
        names: Names of the channels.
        max_channels: Largest number of curves. Of more channels, some are drawn, evenly spaced.

    Examples:
        >>> figure = frequency_response([0.1, 0.5], [[1.0, 0.1]], [[-0.1, -1.0]])
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['gain', 'phase [rad]']
    """
    x, gains, phases = to_numpy(frequencies), _rows(gain, "gain"), _rows(phase, "phase")
    if gains.shape != phases.shape or gains.shape[1:] != x.shape or not (x > 0).any():
        shapes = f"{x.shape}, {gains.shape} and {phases.shape}"
        raise ValueError(f"expected shapes (f,), (d, f) and (d, f) with a positive frequency, got {shapes}")
    figure, (top, bottom) = new_figure(2, 1, size=(8.0, 6.0), heights=(3, 2))
    x, gains, phases = x[x > 0], gains[:, x > 0], np.unwrap(phases[:, x > 0])
    for (row, style), (angles, _) in zip(
        _channels(gains, names, max_channels), _channels(phases, names, max_channels), strict=True
    ):
        top.plot(x, row, **style)
        bottom.plot(x, angles, **style)
    top.set_xscale("log")
    top.set_yscale("log")
    label_axes(top, x="", y="gain")
    label_axes(bottom, x="frequency [cycles/sample]", y="phase [rad]")
    for axes in (top, bottom):
        axes.grid(alpha=0.25)
    _legend(top)
    return figure


def hippo_memory(
    signal: Numbers,
    memories: Mapping[int, HiPPOMemory],
    *,
    dt: float = 1.0,
    unit: str = "samples",
    numbers: str = "coefficients",
) -> Figure:
    """Draws a signal and what a HiPPO operator remembers of it, for several numbers of coefficients.

    Args:
        signal: Samples.
        memories: Results of `lawful.functions.hippo_memory` by number of coefficients.
        dt: Time between samples.
        unit: Unit of `dt`.
        numbers: What the memory stores, such as `states`.

    Examples:
        >>> import torch
        >>> from lawful.functions import hippo_memory as reconstruct
        >>> signal = torch.linspace(0, 6, 50).sin()
        >>> figure = hippo_memory(signal, {n: reconstruct(signal, n) for n in (2, 4)})
        >>> len(figure.axes), figure.axes[0].get_title().split(",")[0]
        (2, '2 coefficients')
    """
    values = to_numpy(signal)
    if values.ndim != 1 or not memories:
        raise ValueError(f"expected one signal and at least one memory, got shape {values.shape}, {len(memories)}")
    count = len(memories)
    figure, places = new_figure(count, 1, size=(8.0, 0.8 + 1.6 * count), heights=(1,) * count)
    span = values.max() - values.min() or 1.0
    for i, (axes, (n, memory)) in enumerate(zip(np.ravel(places), memories.items(), strict=True)):
        axes.plot(dt * np.arange(len(values)), values, color=GRAY, linewidth=3, alpha=0.5, label="signal")
        axes.plot(to_numpy(memory.times), to_numpy(memory.values), color=PALETTE[0], linewidth=1.5, label="remembered")
        axes.set_ylim(values.min() - 0.3 * span, values.max() + 0.3 * span)
        title = f"{n:,} {numbers}, relative error {float(to_numpy(memory.error)):.2g}"
        label_axes(axes, x=f"time [{unit}]" if i == count - 1 else "", y="value", title=title)
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), fontsize=11, frameon=False, ncols=2, loc="outside upper left"
    )
    return figure


def memory_errors(
    errors: Mapping[str, Mapping[int, float]], *, references: Collection[str] = (), y: str = "relative error"
) -> Figure:
    """Draws the errors of memories against their size, on logarithmic scales.

    Errors that are not finite are not drawn, and errors below 1e-7, which are rounding, are outside of the axes.

    Args:
        errors: Errors by size, for each memory.
        references: Memories that are drawn in gray, for comparison.
        y: Label of the errors.

    Examples:
        >>> figure = memory_errors({"legs": {8: 0.5, 16: 0.1}, "polynomial": {8: 0.4, 16: 0.05}})
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['legs', 'polynomial']
    """
    if not errors or not all(errors.values()):
        raise ValueError(f"expected at least one memory with errors by size, got {dict(errors)}")
    figure, axes = new_figure(size=(9.0, 5.0))
    colors = cycle(color for color in PALETTE if color != GRAY)
    styles = zip(errors.items(), cycle(_DASHES), cycle(MARKERS))
    for (name, row), dash, marker in styles:
        color = GRAY if name in references else next(colors)
        points = [(n, error) for n, error in row.items() if 0 < error < np.inf]
        style = {"color": color, "linestyle": dash, "marker": marker, "markersize": 6, "linewidth": 2}
        axes.plot(*np.reshape(points, (-1, 2)).T, label=shorten_label(name, max_length=40), **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(axes.get_ylim()[0], 1e-7))
    sizes = sorted({n for row in errors.values() for n in row})
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
    label_axes(axes, x="coefficients or states", y=y)
    axes.grid(alpha=0.25)
    _legend(axes)
    return figure


def _rows(x: Numbers, name: str) -> np.ndarray:
    """Returns numbers as an array with one row per channel."""
    rows = np.atleast_2d(to_numpy(x))
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"{name} must have one row per channel and not be empty, got shape {rows.shape}")
    return rows


def _channels(
    rows: np.ndarray, names: Sequence[object] | None, max_channels: int
) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Yields the rows to draw, evenly spaced, with their style."""
    labels = labels_or_indices(names, len(rows))
    shown = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), max_channels)).round().astype(int))
    for i, color, dash in zip(shown, cycle(PALETTE), cycle(_DASHES), strict=False):
        label = labels[i] if names is not None else f"channel {i}"
        yield rows[i], {"color": color, "linestyle": dash, "linewidth": 1.5, "label": shorten_label(label)}


def _legend(axes: Axes) -> None:
    """Puts the legend beside the axes, where it covers no curve."""
    axes.legend(fontsize=10, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
