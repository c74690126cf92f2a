"""Figures of theorems about networks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from lawful.probe.figures._style import (
    GRAY,
    PALETTE,
    VERMILION,
    Numbers,
    label_axes,
    new_figure,
    shorten_label,
    to_numpy,
)
from lawful.theory import ApproximationCertificate, LinearRegions, parse_expression, regions_on_segment

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def unit_contributions(
    network: nn.Sequential, low: float, high: float, *, knots: Numbers | None = None, values: Numbers | None = None
) -> Figure:
    """Draws what each hidden unit of a network of one variable adds to the output, and the sum.

    Args:
        network: `Linear`, an activation and `Linear`, such as from `lawful.theory.compile_piecewise_linear`.
        low: Start of the x-axis.
        high: End of the x-axis.
        knots: Knots of the function that the network represents.
        values: Values at the knots.

    Examples:
        >>> from lawful.theory import compile_piecewise_linear
        >>> figure = unit_contributions(compile_piecewise_linear([0, 1, 3], [0, 1, 0]), -1, 4)
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['units', 'network']
    """
    first, activation, last = network if len(network) == 3 else (None, None, None)
    linear = isinstance(first, nn.Linear) and isinstance(last, nn.Linear) and activation is not None
    if not linear or first.in_features != 1 or last.out_features != 1:
        raise ValueError("network must be a Linear, an activation and a Linear, with one input and one output")
    if not low < high:
        raise ValueError(f"low must be less than high: got {low} and {high}")
    if (knots is None) != (values is None):
        raise ValueError("knots and values are drawn together: expected both or neither")
    with torch.no_grad():
        weight, bias = first.weight[:, 0], first.bias
        inside = (-bias / weight)[weight != 0].cpu().numpy()
        kinks = inside[(inside > low) & (inside < high)]
        x = torch.from_numpy(np.unique(np.concatenate([np.linspace(low, high, 400), kinks])))
        inputs = x[:, None].to(weight.dtype)
        units = to_numpy(activation(first(inputs)) * last.weight[0])
        total = to_numpy(network(inputs)[:, 0])
    figure, (top, bottom) = new_figure(2, 1, size=(8.0, 6.0), heights=(1, 1))
    colors = cycle(color for color in PALETTE if color != GRAY)
    styles = cycle(("-", "--", "-.", ":"))
    for unit, color, style in zip(units.T, colors, styles, strict=False):
        top.plot(x, unit, color=color, linestyle=style, linewidth=1.5)
    top.axhline(0, color=GRAY, linewidth=1)
    bottom.axhline(float(last.bias.detach()), color=GRAY, linestyle=":", linewidth=1.5, label="output bias")
    bottom.plot(x, total, color=PALETTE[0], linewidth=2, label="output bias and all units")
    if knots is not None and values is not None:
        places, heights = to_numpy(knots), to_numpy(values)
        bottom.plot(places, heights, color=VERMILION, linestyle="", marker="o", markersize=6, label="knots")
    count = units.shape[1]
    label_axes(top, x="", y="units", title=f"{count} hidden unit{'' if count == 1 else 's'}")
    label_axes(bottom, x="x", y="network")
    bottom.legend(fontsize=11, frameon=False)
    return figure


def region_map(regions: LinearRegions, *, coordinates: tuple[str, str] = ("x₁", "x₂")) -> Figure:
    """Draws the creases of each layer of a network, and its linear regions.

    A crease of a layer is straight inside the regions of the layers before it, which are gray. Neighboring linear
    regions have different colors.

    Args:
        regions: Regions in the plane, from `lawful.theory.regions_in_box` or `regions_on_plane`.
        coordinates: Labels of the axes.

    Examples:
        >>> from lawful.theory import compile_max_affine, regions_in_box
        >>> network = compile_max_affine([[1, 0], [0, 1], [0, 0]], [0, 0, 0])
        >>> [axes.get_title() for axes in region_map(regions_in_box(network)).axes]
        ['creases of layer 1', 'creases of layer 2', '3 linear regions']
    """
    from matplotlib.collections import LineCollection, PolyCollection

    if regions.dim != 2:
        raise ValueError("regions must be in the plane: draw networks of one variable with piecewise_linear_curves")
    vertices, units, layers = regions.vertices.numpy(), regions.edge_units.numpy(), regions.unit_layers.numpy()
    segments, inner = vertices[regions.edges.numpy()], units >= 0
    of_edge = np.where(inner, layers[units] if len(layers) else 0, -1)
    count = int(layers.max()) + 1 if len(layers) else 0
    columns = {1: 1, 3: 3}.get(count + 1, 2 if count < 4 else 3)
    rows = -(-(count + 1) // columns)
    low, high = vertices.min(0), vertices.max(0)
    width = 4.4 if columns < 3 else 3.6
    height = width * float(np.clip((high[1] - low[1]) / (high[0] - low[0]), 0.3, 2))
    figure, grid = new_figure(rows, columns, size=(columns * (width + 0.4), rows * (height + 0.5)))
    panels = np.ravel(grid)
    for layer, axes in enumerate(panels[:count]):
        for chosen, color, width in (
            (inner & (of_edge < layer), GRAY, 0.4),
            (of_edge == layer, PALETTE[layer % (len(PALETTE) - 1)], 1.2),
        ):
            axes.add_collection(LineCollection(segments[chosen].tolist(), colors=color, linewidths=width))
        label_axes(axes, x=coordinates[0], y=coordinates[1], title=f"creases of layer {layer + 1}")
    labels = regions.linear_regions.numpy()
    pairs = regions.edge_regions.numpy()
    colors = _color_neighbors(labels[pairs[(pairs >= 0).all(1)]], regions.num_linear_regions)
    light = [_lighten(color) for color in PALETTE]
    polygons = [vertices[corners] for corners in regions.corners]
    faces = [light[colors[label] % len(light)] for label in labels]
    panels[count].add_collection(PolyCollection(polygons, facecolors=faces, edgecolors=faces, linewidths=0.3))
    number = regions.num_linear_regions
    title = f"{number:,} linear region{'' if number == 1 else 's'}"
    label_axes(panels[count], x=coordinates[0], y=coordinates[1], title=title)
    for axes in panels[: count + 1]:
        axes.set_xlim(low[0], high[0])
        axes.set_ylim(low[1], high[1])
        axes.set_aspect("equal")
    for axes in panels[count + 1 :]:
        axes.set_visible(False)
    return figure


def piecewise_linear_curves(networks: Mapping[str, nn.Module], low: float, high: float) -> Figure:
    """Draws ReLU networks of one variable exactly, through all their breakpoints.

    Args:
        networks: Networks with one input and one output, by name.
        low: Start of the x-axis.
        high: End of the x-axis.

    Examples:
        >>> from lawful.theory import sawtooth_network
        >>> figure = piecewise_linear_curves({"2 layers": sawtooth_network(2)}, 0, 1)
        >>> figure.axes[0].get_lines()[0].get_xdata().tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    figure, axes = new_figure(size=(8.0, 4.0))
    styles = cycle(("-", "--", "-.", ":"))
    colors = cycle(color for color in PALETTE if color != GRAY)
    for (name, network), style, color in zip(networks.items(), styles, colors, strict=False):
        regions = regions_on_segment(network, low, high)
        if regions.weight.shape[1] != 1:
            raise ValueError(f"networks must have one output: {name!r} has {regions.weight.shape[1]}")
        ends = regions.vertices.numpy()[regions.edges.numpy(), 0]
        x = np.append(ends[:, 0], ends[-1:, 1])
        slope, offset = regions.weight[:, 0, 0].numpy(), regions.bias[:, 0].numpy()
        y = np.append(slope * ends[:, 0] + offset, slope[-1:] * ends[-1:, 1] + offset[-1:])
        axes.plot(x, y, linestyle=style, color=color, linewidth=1.5, label=name)
    label_axes(axes, x="x", y="output")
    axes.legend(fontsize=11, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _color_neighbors(pairs: np.ndarray, count: int) -> list[int]:
    """Numbers regions so that neighbors have different numbers, greedily."""
    neighbors: list[set[int]] = [set() for _ in range(count)]
    for a, b in pairs.tolist():
        if a != b:
            neighbors[a].add(b)
            neighbors[b].add(a)
    colors = [-1] * count
    for i in sorted(range(count), key=lambda i: -len(neighbors[i])):
        used = {colors[j] for j in neighbors[i]}
        colors[i] = next(color for color in range(count) if color not in used)
    return colors


def _lighten(color: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(color)
    return (0.45 + 0.55 * red, 0.45 + 0.55 * green, 0.45 + 0.55 * blue)


def approximation_error(network: nn.Module, certificate: ApproximationCertificate, *, points: int = 1000) -> Figure:
    """Draws a function, the network that approximates it, and their difference between the certified bounds.

    Of several variables the first one varies, and the others are at the center of the box.

    Args:
        network: Network of `lawful.theory.approximate`.
        certificate: Its certificate, of an expression.
        points: Number of points.

    Examples:
        >>> from lawful.theory import approximate
        >>> figure = approximation_error(*approximate("sin(x)", (-3, 3), 0.1))
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['value', 'error']
    """
    if certificate.expression is None:
        raise ValueError("certificate must have an expression: it is about a callable")
    name, (low, high) = next(iter(certificate.box.items()))
    parameter = next(network.parameters())
    x = torch.linspace(low, high, points, dtype=torch.float64).to(parameter.dtype).clamp(low, high)
    center = {other: torch.full_like(x, (ends[0] + ends[1]) / 2) for other, ends in certificate.box.items()}
    inputs = center | {name: x}
    with torch.no_grad():
        found = network(torch.stack(list(inputs.values()), -1))[..., 0].double()
    exact = parse_expression(certificate.expression, list(inputs))(**{key: v.double() for key, v in inputs.items()})
    figure, (top, bottom) = new_figure(2, 1, size=(8.0, 6.0), heights=(2, 1))
    top.plot(x, exact, color=GRAY, linewidth=4, label=shorten_label(certificate.expression, max_length=40))
    top.plot(x, found, color=PALETTE[0], linewidth=1.5, label=f"network, {certificate.num_units} units")
    top.legend(fontsize=11, frameon=False)
    bottom.plot(x, found - exact, color=PALETTE[0], linewidth=1.5)
    for sign, label in ((1, f"certified bound {certificate.bound:.2g}"), (-1, None)):
        bottom.axhline(sign * certificate.bound, color=VERMILION, linestyle="--", linewidth=1.5, label=label)
    bottom.legend(fontsize=11, frameon=False, loc="upper right")
    bottom.set_ylim(-1.6 * certificate.bound, 2.2 * certificate.bound)
    fixed = ", ".join(f"{key} = {float(v[0]):g}" for key, v in center.items() if key != name)
    label_axes(top, x="", y="value", title=fixed)
    label_axes(bottom, x=name, y="error")
    return figure
