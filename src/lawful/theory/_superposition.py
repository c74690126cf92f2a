r"""Deep ReLU networks as superpositions of functions of one variable, and a bound of their error.

Each layer of the network computes signals. A signal is a sum of functions of one variable, each applied to a signal of
the layer before:

$$s_{\ell+1, k} = \sum_j \varphi_{kj}(s_{\ell, j}), \qquad
    \hat s_{\ell+1, k} = c_k + \sum_j \psi_{kj}(\hat s_{\ell, j}).$$

Here $\psi_{kj}(u) = \sum_i w_i \max(\sigma_i (u - t_i), 0)$ is what the weights compute from the units that read
signal $j$. If $|\varphi_{kj} - c_{kj} - \psi_{kj}| \le \delta_{kj}$ on the range of $s_j$, $\psi_{kj}$ has the
Lipschitz constant $\lambda_{kj}$, and $\rho_k$ is the rounding, then the errors satisfy

$$\epsilon_{\ell+1, k} \le \sum_j (\delta_{kj} + \lambda_{kj} \epsilon_{\ell, j}) + \rho_k .$$
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from lawful.theory._expressions import Expression
from lawful.theory._rounding import build_sequential, rounding_factor
from lawful.theory._univariate import Enclosed, ExpressionFunction, TooLargeError, fewest_pieces, partition


@dataclass
class Term:
    """A function of one signal of the layer before."""

    source: int
    """Index of the signal, or of the input."""
    function: Expression | Enclosed
    """The function, of `u`."""
    tolerance: float = math.inf
    """Largest error of the piecewise-linear function."""

    @property
    def is_affine(self) -> bool:
        """Whether the function needs no knots."""
        return isinstance(self.function, Expression) and _is_affine(self.function)

    @property
    def enclosed(self) -> Enclosed:
        return ExpressionFunction(self.function) if isinstance(self.function, Expression) else self.function


@dataclass
class Signal:
    """A sum of functions of the signals of the layer before."""

    terms: list[Term]


@dataclass
class _Piecewise:
    """A piecewise-linear function, and the points where its error is certified."""

    points: np.ndarray
    knots: np.ndarray
    values: np.ndarray

    @property
    def slopes(self) -> np.ndarray:
        return np.diff(self.values) / np.diff(self.knots)


@dataclass
class Units:
    r"""Units that read a signal: $\max(\sigma (u - t), 0)$. The units of an input are the input."""

    index: np.ndarray
    sign: np.ndarray
    knot: np.ndarray
    is_input: bool = False

    def __call__(self, u: np.ndarray) -> np.ndarray:
        distance = self.sign * (np.asarray(u)[:, None] - self.knot)
        return distance if self.is_input else np.maximum(distance, 0.0)


def _is_affine(f: Expression) -> bool:
    """Whether an expression is affine in u with constant expressions as factors, such as pi * u."""
    if f.op == "variable" or not f.variables:
        return True
    if f.op in ("+", "-", "neg"):
        return all(_is_affine(arg) for arg in f.args)
    if f.op == "*":
        return any(not a.variables and _is_affine(b) for a, b in (f.args, f.args[::-1]))
    return f.op == "/" and not f.args[1].variables and _is_affine(f.args[0])


def build_network(
    layers: list[list[Signal]], box: list[tuple[float, float]], *, dtype: torch.dtype, max_units: int
) -> tuple[nn.Sequential, list[list[dict[str, Any]]]]:
    """Builds the network of a superposition.

    Args:
        layers: Signals that each affine map computes; the last layer has one signal, the output.
        box: Interval of each input.
        dtype: Dtype of the network.
        max_units: Maximum number of hidden units.

    Returns:
        The network, and a description of each signal for `certify`.
    """
    round_to = np.float64 if dtype == torch.float64 else np.float32
    weights: list[tuple[np.ndarray, np.ndarray]] = []
    records: list[list[dict[str, Any]]] = []
    sources = [Units(np.array([j]), np.ones(1), np.zeros(1), True) for j in range(len(box))]
    pieces = {
        (k, i): _interpolate(term, *box[term.source])
        for k, signal in enumerate(layers[0])
        for i, term in enumerate(signal.terms)
    }
    width, total = len(box), 0
    for depth, signals in enumerate(layers):
        rows, offsets, ranges = (np.zeros((len(signals), width)), np.zeros(len(signals)), np.zeros((len(signals), 2)))
        records.append([])
        for k, signal in enumerate(signals):
            described = []
            for i, term in enumerate(signal.terms):
                units, made = sources[term.source], pieces[k, i]
                output, constant = _output_weights(units, made)
                rows[k, units.index] += output
                offsets[k] += constant
                ranges[k] += term.enclosed.range(made.points)
                text = str(term.function) if isinstance(term.function, Expression) else None
                described.append(
                    {"source": term.source, "function": text, "constant": constant, "points": made.points.tolist()}
                )
            records[-1].append({"units": [], "terms": described})
        if depth == len(layers) - 1:
            weights.append((rows, offsets))
            return build_sequential(weights, dtype=dtype), records
        unit_rows, biases, sources = [], [], []
        pieces = {}
        for k, (low, high) in enumerate(ranges):
            readers = {
                (r, i): _interpolate(term, low, high)
                for r, reader in enumerate(layers[depth + 1])
                for i, term in enumerate(reader.terms)
                if term.source == k
            }
            pieces |= readers
            signs, knots = _place_units(list(readers.values()), low, high)
            index = np.arange(len(unit_rows), len(unit_rows) + len(signs))
            unit_rows += [sign * rows[k] for sign in signs]
            biases += (-signs * (knots - offsets[k])).astype(round_to).astype(np.float64).tolist()
            sources.append(Units(index, signs, knots))
            records[-1][k] |= {"units": index.tolist(), "signs": [int(sign) for sign in signs]}
        total += len(unit_rows)
        if total > max_units:
            raise TooLargeError(f"error is too small: the network needs more than max_units={max_units:,} hidden units")
        weights.append((np.array(unit_rows).reshape(len(unit_rows), width), np.array(biases)))
        width = len(unit_rows)
    raise ValueError("expected at least one layer")


def _interpolate(term: Term, low: float, high: float) -> _Piecewise:
    """Interpolates a function on a range."""
    if not low < high:
        low, high = low - 1e-9 * (1 + abs(low)), high + 1e-9 * (1 + abs(high))
    if term.is_affine:
        ends = np.array([low, high])
        values = term.enclosed.values(ends)
        return _Piecewise(ends, ends, (values.low + values.high) / 2)
    share = 1 / 64 if isinstance(term.function, Expression) else 1 / 4  # of the tolerance for the deviation from a line
    points, values = partition(term.enclosed, low, high, term.tolerance * share)
    return _Piecewise(points, *fewest_pieces(points, values, term.tolerance * (1 - share)))


def _place_units(pieces: list[_Piecewise], low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns signs and knots of units whose sums are all functions with the given knots.

    Units to the left of the middle knot face left, and both kinds are at the middle knot.
    """
    knots = np.unique(np.concatenate([p.knots[1:-1] for p in pieces] or [np.zeros(0)]))
    if not len(knots):
        return np.ones(1), np.array([low - (high - low) / 64])
    middle = len(knots) // 2
    signs = np.where(np.arange(len(knots)) < middle, -1.0, 1.0)
    return np.insert(signs, middle, -1.0), np.insert(knots, middle, knots[middle])


def _output_weights(units: Units, piecewise: _Piecewise) -> tuple[np.ndarray, float]:
    """Returns the weights of units whose sum is a piecewise-linear function, and the constant."""
    inner, slopes = piecewise.knots[1:-1], piecewise.slopes
    if len(units.knot) == 1:
        return slopes, float(piecewise.values[0] - slopes[0] * (piecewise.knots[0] - units.knot[0]))
    left, right = (slopes[np.searchsorted(inner, units.knot, side=side)] for side in ("left", "right"))
    weights = right - left
    middle = int(np.argmax(units.sign > 0))
    weights[middle - 1], weights[middle] = -left[middle - 1], right[middle]
    return weights, float(np.interp(units.knot[middle], piecewise.knots, piecewise.values))


def certify(
    weights: list[tuple[np.ndarray, np.ndarray]],
    records: list[list[dict[str, Any]]],
    functions: list[list[list[Enclosed]]],
    box: list[tuple[float, float]],
    dtype: torch.dtype,
) -> tuple[float, list[list[dict[str, Any]]]]:
    """Bounds the error of a network on a box, from its weights.

    Args:
        weights: Weight and bias of each affine map.
        records: Description of the signals, from `build_network`.
        functions: The function of each term.
        box: Interval of each input.
        dtype: Dtype of the network.

    Returns:
        The bound, and the descriptions with ranges and errors.
    """
    one, zero = np.ones(1), np.zeros(1)
    states = [_State(low, high, 0.0, Units(np.array([j]), one, zero, True), zero) for j, (low, high) in enumerate(box)]
    found: list[list[dict[str, Any]]] = []
    for depth, ((weight, bias), signals) in enumerate(zip(weights, records, strict=True)):
        last = depth == len(weights) - 1
        next_states, described = [], []
        for k, signal in enumerate(signals):
            index = np.array([k] if last else signal["units"])
            signs = np.ones(1) if last else np.array(signal["signs"], dtype=np.float64)
            row = signs[0] * weight[index[0]]
            if not (weight[index] == signs[:, None] * row).all():
                raise ValueError("the units of a signal must have equal rows, up to the sign")
            offset, error, low, high, size, terms = 0.0, 0.0, 0.0, 0.0, 0.0, []
            used = np.zeros(len(row), dtype=bool)
            for record, function in zip(signal["terms"], functions[depth][k], strict=True):
                state = states[record["source"]]
                if used[state.units.index].any():
                    raise ValueError("two terms must not read the same signal")
                used[state.units.index] = True
                bound = _bound_term(row, state, function, np.array(record["points"]), record["constant"])
                error += bound.error + bound.slope * state.error + bound.rounding
                offset += record["constant"]
                size += bound.size
                low, high = low + bound.low, high + bound.high
                terms.append({**record, "error": bound.error, "slope": bound.slope})
            if row[~used].any():
                raise ValueError("a signal must depend on its terms only: other weights must be 0")
            error *= 1 + 1e-12
            count = int((row != 0).sum()) + 2
            rounding = rounding_factor(count, dtype) * (size + np.abs(bias[index])) * (1 + 1e-12)
            rounding = rounding + 4 * torch.finfo(dtype).tiny * count + 2.0**-50 * (np.abs(bias[index]) + abs(offset))
            if last:
                error = (error + abs(float(bias[k]) - offset) + float(rounding[0])) * (1 + 1e-12)
            described.append({**signal, "range": [low, high], "error": error, "terms": terms})
            units = Units(index, signs, offset - signs * bias[index])
            next_states.append(_State(low, high, error, units, rounding))
        covered = sorted(i for state in next_states for i in state.units.index.tolist())
        if covered != list(range(len(bias))):
            raise ValueError("each unit must read one signal")
        states = next_states
        found.append(described)
    return states[0].error, found


@dataclass
class _State:
    """A certified signal: the range of its exact value, its error, the units that read it, and their rounding."""

    low: float
    high: float
    error: float
    units: Units
    rounding: np.ndarray


class _TermBound(NamedTuple):
    """Bounds of what the weights compute from one signal."""

    error: float
    """Largest difference to the function, on the range of the exact signal."""
    slope: float
    """Largest slope, on the range of the computed signal."""
    rounding: float
    """Largest effect of the rounding of the units."""
    size: float
    """Largest sum of the absolute values of all products."""
    low: float
    high: float


def _bound_term(row: np.ndarray, state: _State, function: Enclosed, points: np.ndarray, constant: float) -> _TermBound:
    units, weights = state.units, row[state.units.index]
    inside = units.knot[(units.knot > state.low) & (units.knot < state.high)]
    points = points[(points > state.low) & (points < state.high)]
    points = np.unique(np.concatenate([points, inside, [state.low, state.high]]))
    reach = np.array([state.low - state.error, state.high + state.error])
    rounding = float(np.abs(weights) @ state.rounding)
    size = float((np.abs(units(reach)) @ np.abs(weights)).max()) + rounding
    values = np.concatenate([units(points[i : i + 1000]) @ weights for i in range(0, len(points), 1000)]) + constant
    error = float(function.deviation(points, values).magnitude.max())
    error += 2.0**-52 * (len(weights) + 8) * (size + abs(constant))  # the values are computed in float64
    slopes = np.abs(weights)
    if not units.is_input:
        places = np.unique(np.concatenate([reach, units.knot[(units.knot > reach[0]) & (units.knot < reach[1])]]))
        active = units.sign * ((places[:-1] + places[1:])[:, None] / 2 - units.knot) > 0
        slopes = np.abs(active @ (weights * units.sign))
    slope = float(slopes.max()) * (1 + 1e-12) + 2.0**-50 * float(np.abs(weights).sum())
    return _TermBound(error, slope, rounding, size, *function.range(points))
