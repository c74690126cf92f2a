r"""Piecewise-linear functions from data and from callables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from lawful.theory.piecewise_linear import PiecewiseLinear


def interpolate_piecewise_linear(
    function: Callable[[Tensor], Tensor],
    low: float,
    high: float,
    *,
    error: float,
    max_knots: int = 10_000,
) -> PiecewiseLinear:
    """Interpolates a function at knots that are dense where it is curved.

    A piece is split at its largest deviation until all sampled deviations are at most `error`. The deviation of a piece
    is sampled at 15 points, so the bound is not certified.

    Args:
        function: Function of a tensor of shape (n,) that returns a tensor of the same shape.
        low: First knot.
        high: Last knot.
        error: Largest sampled deviation.
        max_knots: Largest number of knots.

    Examples:
        >>> sine = interpolate_piecewise_linear(torch.sin, 0.0, 3.0, error=0.01)
        >>> x = torch.linspace(0, 3, 100, dtype=torch.float64)
        >>> bool((sine(x) - x.sin()).abs().max() < 0.01), len(sine.knots) < 20
        (True, True)
    """
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"low and high must be finite and increase: got {low} and {high}")
    if not error > 0:
        raise ValueError(f"error must be positive: got {error}")

    def values(x: np.ndarray) -> np.ndarray:
        found = function(torch.from_numpy(x.ravel())).detach().cpu().double().numpy()
        if found.shape != (x.size,):
            raise ValueError(f"function must return shape ({x.size},): got {found.shape}")
        if not np.isfinite(found).all():
            place = x.ravel()[int(np.argmin(np.isfinite(found)))]
            raise ValueError(f"function must be finite from low to high: it is not at {place:g}")
        return found.reshape(x.shape)

    fractions = np.arange(1, 16) / 16
    knots = np.array([low, high], dtype=np.float64)
    heights = values(knots)
    new = np.array([True])  # pieces that are not sampled yet
    while new.any():
        starts, ends = np.flatnonzero(new), np.flatnonzero(new) + 1
        x = knots[starts, None] + (knots[ends] - knots[starts])[:, None] * fractions
        y = values(x)
        line = heights[starts, None] + (heights[ends] - heights[starts])[:, None] * fractions
        worst = np.abs(y - line).argmax(1)
        rows = np.arange(len(starts))
        split = np.abs(y - line)[rows, worst] > error
        places = starts[split] + 1
        added, added_heights = x[rows, worst][split], y[rows, worst][split]
        narrow = (knots[places] - knots[places - 1]) < 1e-12 * (high - low)
        if narrow.any() or len(knots) + len(added) > max_knots:
            place = added[narrow.argmax()] if len(added) else low
            reason = "the function has a jump" if narrow.any() else f"more than max_knots={max_knots} knots are needed"
            raise ValueError(f"no interpolation has error={error}: {reason} near {place:g}")
        changed = np.zeros(len(knots) - 1, dtype=bool)
        changed[places - 1] = True
        new = np.repeat(changed, 1 + changed)
        knots, heights = np.insert(knots, places, added), np.insert(heights, places, added_heights)
    return PiecewiseLinear(knots, heights)


def fit_piecewise_linear(
    x: Tensor | np.ndarray, y: Tensor | np.ndarray, *, num_pieces: int, max_candidates: int = 200
) -> PiecewiseLinear:
    r"""Fits a continuous piecewise-linear function with the least sum of squares to data.

    The knots are chosen among the values of `x`, and the fit is optimal for them: dynamic programming over the last
    knot and the value there. With $F^{(k)}_j(v)$, the least cost of the data up to the candidate $x_j$ with $k$ pieces
    and the value $v$ at $x_j$,

    $$F^{(k)}_j(v) = \min_{i < j} \min_u
        \Bigl( F^{(k-1)}_i(u) + \sum_{x_i < x \le x_j} (y - \ell_{ij}(x; u, v))^2 \Bigr),$$

    where $\ell_{ij}$ is the segment from $(x_i, u)$ to $(x_j, v)$. $F$ is a minimum of parabolas. Only those on the
    lower envelope are kept.

    Reference: Fearnhead, Maidstone and Letchford, Detecting Changes in Slope With an L0 Penalty, 2019.

    Args:
        x: Inputs, in any order. Repeated ones are allowed.
        y: Targets.
        num_pieces: Number of pieces.
        max_candidates: Largest number of values of `x` that may be knots. Of more values, evenly spaced ranks.

    Examples:
        >>> x = torch.linspace(-1, 1, 21, dtype=torch.float64)
        >>> function = fit_piecewise_linear(x, (x - 0.5).abs(), num_pieces=2)
        >>> [round(float(t), 6) for t in function.knots]
        [-1.0, 0.5, 1.0]
    """
    inputs, targets = (
        (a.detach().cpu().double().numpy() if isinstance(a, Tensor) else np.asarray(a, dtype=np.float64))
        for a in (x, y)
    )
    if inputs.ndim != 1 or inputs.shape != targets.shape:
        raise ValueError(f"x and y must have one dimension and equal sizes: got {inputs.shape} and {targets.shape}")
    if not (np.isfinite(inputs).all() and np.isfinite(targets).all()):
        raise ValueError("x and y must be finite: drop or fill the missing values")
    sites = np.unique(inputs)
    if not 1 <= num_pieces < len(sites):
        raise ValueError(
            f"num_pieces must be between 1 and {len(sites) - 1}, the number of different x less one: got {num_pieces}"
        )
    if max_candidates <= num_pieces:
        raise ValueError(f"max_candidates must be larger than num_pieces={num_pieces}: got {max_candidates}")
    ranks = np.unique(np.linspace(0, len(sites) - 1, min(max_candidates, len(sites))).round().astype(int))
    candidates = sites[ranks]
    knots = candidates[_best_knots(inputs, targets, candidates, num_pieces)]
    return PiecewiseLinear(knots, _values_at_knots(inputs, targets, knots))


def _values_at_knots(x: np.ndarray, y: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Returns the least-squares values at the knots."""
    hats = np.stack([np.interp(x, knots, row) for row in np.eye(len(knots))], 1)
    return np.linalg.lstsq(hats, y, rcond=None)[0]


def _segment_costs(x: np.ndarray, y: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    r"""Returns the coefficients of $\sum (y - (1 - r) u - r v)^2$ for each pair of candidates.

    The axes are the coefficient ($u^2$, $uv$, $v^2$, $u$, $v$, 1), the start and the end. The sum is over the data
    after the start, up to the end.
    """
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    stops = np.searchsorted(x, candidates, side="right")
    costs = np.zeros((6, len(candidates), len(candidates)))
    for i in range(len(candidates) - 1):
        d, t = x[stops[i] :] - candidates[i], y[stops[i] :]
        sums = np.cumsum(np.stack([np.ones_like(d), d, d * d, t, t * d, t * t]), 1)[:, stops[i + 1 :] - stops[i] - 1]
        h = candidates[i + 1 :] - candidates[i]
        n, r, rr, t, tr, tt = sums[0], sums[1] / h, sums[2] / h**2, sums[3], sums[4] / h, sums[5]
        costs[:, i, i + 1 :] = n - 2 * r + rr, 2 * (r - rr), rr, -2 * (t - tr), -2 * tr, tt
    return costs


def _best_knots(x: np.ndarray, y: np.ndarray, candidates: np.ndarray, num_pieces: int) -> list[int]:
    """Returns the indices of the best knots, by dynamic programming over parabolas."""
    center, scale = y.mean(), y.std() or 1.0
    y = (y - center) / scale
    count = len(candidates)
    costs = _segment_costs(
        (x - candidates[0]) / (candidates[-1] - candidates[0]),
        y,
        (candidates - candidates[0]) / (candidates[-1] - candidates[0]),
    )
    # A fit with evenly spaced knots is an upper bound: a parabola above it is not needed.
    even = np.unique(np.linspace(0, count - 1, num_pieces + 1).round().astype(int))
    residual = y - np.interp(x, candidates[even], _values_at_knots(x, y, candidates[even]))
    bound = float(residual @ residual) * (1 + 1e-9) + 1e-9
    first = y[x == candidates[0]]
    parabolas = np.array([[len(first), -2 * first.sum(), first @ first]])
    ends = np.zeros(1, dtype=int)
    history = []
    for piece in range(1, num_pieces + 1):
        kept, kept_ends, parents = [], [], []
        last = piece == num_pieces
        for j in range(count - 1 if last else piece, count if last else count - (num_pieces - piece)):
            before = np.flatnonzero(ends < j)
            uu, uv, vv, u, v, one = costs[:, ends[before], j]
            a, b, c = parabolas[before].T
            curvature, slope = a + uu, b + u
            found = np.stack(
                [vv - uv**2 / (4 * curvature), v - uv * slope / (2 * curvature), one + c - slope**2 / (4 * curvature)],
                1,
            )
            minima = found[:, 2] - found[:, 1] ** 2 / (4 * found[:, 0])
            useful = np.flatnonzero(minima <= bound)
            if last:
                chosen = useful[[minima[useful].argmin()]]
            else:
                chosen = useful[_lower_envelope(found[useful])]
            kept.append(found[chosen])
            kept_ends.append(np.full(len(chosen), j))
            parents.append(before[chosen])
        parabolas, ends = np.concatenate(kept), np.concatenate(kept_ends)
        history.append((ends, np.concatenate(parents)))
    knots, index = [], 0
    for ends, parents in reversed(history):
        knots.append(int(ends[index]))
        index = int(parents[index])
    return [0, *reversed(knots)]


def _lower_envelope(parabolas: np.ndarray) -> np.ndarray:
    """Returns the indices of the parabolas $a v^2 + b v + c$ that are the smallest one for some v."""
    if len(parabolas) < 2:
        return np.arange(len(parabolas))
    a, b, c = parabolas.T
    current, place = int(np.lexsort((c, -b, a))[0]), -np.inf
    kept = [current]
    while True:
        # The next place where a parabola falls below the current one: the sign of the difference becomes negative.
        p, q, r = a - a[current], b - b[current], c - c[current]
        root = np.sqrt(np.maximum(q * q - 4 * p * r, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = np.where(np.abs(p) > 1e-14 * a, (-q - root) / (2 * p), np.where(q < 0, -r / q, np.inf))
        crossing[(q * q - 4 * p * r <= 0) | ~(crossing > place) | np.isnan(crossing)] = np.inf
        crossing[kept] = np.where(crossing[kept] > place + 1e-12 * (1 + abs(place)), crossing[kept], np.inf)
        nearest = crossing.min()
        if not np.isfinite(nearest) or len(kept) > 4 * len(a):
            return np.unique(kept)
        together = np.flatnonzero(crossing <= nearest + 1e-12 * (1 + abs(nearest)))
        current, place = int(together[(2 * a * nearest + b)[together].argmin()]), float(nearest)
        kept.append(current)
