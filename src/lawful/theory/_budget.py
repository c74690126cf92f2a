r"""How an error is divided among the functions of a superposition.

A piecewise-linear function with error $\delta$ takes about $c / \sqrt\delta$ pieces with
$c = \tfrac14 \int \sqrt{|\varphi''|}$. With the weight $w$ of its error in the output, the sum of all pieces is
smallest under $\sum w \delta = \epsilon$ if $\delta$ is proportional to $(c / w)^{2/3}$.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lawful.theory._superposition import Signal, Term

_FREE = 1e-4
"""Share of the error for functions that are piecewise linear."""


def divide_error(
    layers: list[list[Signal]],
    box: list[tuple[float, float]],
    error: float,
    certified: Sequence[Sequence[dict[str, Any]]] | None = None,
) -> None:
    """Sets the tolerances of all terms.

    Args:
        layers: The superposition.
        box: Interval of each input.
        error: Error of the output.
        certified: Descriptions of an earlier network, whose slopes are used.
    """
    ranges = list(box)
    costs: list[list[list[float]]] = []
    slopes: list[list[list[float]]] = []
    for depth, signals in enumerate(layers):
        found, costs_here, slopes_here = [], [], []
        for k, signal in enumerate(signals):
            low = high = 0.0
            costs_here.append([])
            slopes_here.append([])
            for i, term in enumerate(signal.terms):
                start, stop = ranges[term.source]
                x = np.linspace(start, stop, 513)
                values = term.enclosed.values(x)
                y = np.clip((values.low + values.high) / 2, -1e300, 1e300)
                bend = np.abs(np.diff(y, 2))
                bend[bend < 1e-11 * (1 + np.abs(y).max())] = 0.0
                costs_here[-1].append(0.0 if (bend > 0).sum() <= 8 else float(np.sqrt(bend).sum()) / 4)
                slope = float(np.abs(np.diff(y)).max() / max(x[1] - x[0], 1e-300))
                slopes_here[-1].append(certified[depth][k]["terms"][i]["slope"] if certified else slope)
                low, high = low + float(y.min()), high + float(y.max())
            found.append((low, max(high, np.nextafter(low, np.inf))))
        ranges = found
        costs.append(costs_here)
        slopes.append(slopes_here)
    weights = _output_weights(layers, slopes)
    flat: list[tuple[Term, float, float]] = [
        (term, costs[d][k][i], max(weights[d][k], 1e-12))
        for d, signals in enumerate(layers)
        for k, signal in enumerate(signals)
        for i, term in enumerate(signal.terms)
        if not term.is_affine
    ]
    total = sum(w * (c / w) ** (2 / 3) for _, c, w in flat)
    for term, c, w in flat:
        share = (c / w) ** (2 / 3) / total if total else 1 / (w * len(flat))
        term.tolerance = error * (share if c or not total else _FREE / (w * len(flat)))


def _output_weights(layers: list[list[Signal]], slopes: list[list[list[float]]]) -> list[list[float]]:
    """Returns how much an error of each signal changes the output at most."""
    weights = [[1.0]]
    for signals, steep, before in zip(layers[:0:-1], slopes[:0:-1], layers[-2::-1], strict=True):
        here = [0.0] * len(before)
        for k, signal in enumerate(signals):
            for term, slope in zip(signal.terms, steep[k], strict=True):
                here[term.source] += weights[0][k] * slope
        weights.insert(0, here)
    return weights
