"""Figures of theorems about networks."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from lawful.probe.figures._style import GRAY, PALETTE, VERMILION, Numbers, label_axes, new_figure, to_numpy

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
