"""Piecewise-linear functions as networks: 1,000 random ones, exact, minimal, with time and bound.

250 functions of each family, with 2 to 1,000 knots (log-uniform). Times are processor time of one call. The rational
network of each is compared exactly with the function. `minimal` counts the networks that are proven to have the fewest
hidden units. Objects that exist before, such as the modules of PyTorch, are frozen: a full collection of garbage scans
them for 0.1 s, at the expense of whichever call triggers it. The bound is compared with the largest error that a search
finds: 1,000 random points, all knots, and 200 floats around the worst of them, against interpolation in extended
precision. The second table takes one function per family and a million points, or 100,000 for a deep network. No peer
on PyPI compiles such functions.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from lawful.theory import PiecewiseLinear, compile_piecewise_linear, prove_piecewise_linear

COUNT = 250


def normal(rng: np.random.Generator, n: int) -> PiecewiseLinear:
    return PiecewiseLinear(np.sort(rng.normal(size=n)), rng.normal(size=n))


def flat_outside(rng: np.random.Generator, n: int) -> PiecewiseLinear:
    return PiecewiseLinear(np.sort(rng.normal(size=n)), rng.normal(size=n), left_slope=0, right_slope=0)


def integers(rng: np.random.Generator, n: int) -> PiecewiseLinear:
    return PiecewiseLinear(range(n), rng.integers(-10, 11, n).tolist())


def grid(rng: np.random.Generator, n: int) -> PiecewiseLinear:
    return PiecewiseLinear(np.linspace(0, 1, n), rng.normal(size=n))


FAMILIES: dict[str, Callable[[np.random.Generator, int], PiecewiseLinear]] = {
    "knots and values normal": normal,
    "the same, constant outside": flat_outside,
    "integers": integers,
    "evenly spaced knots, values normal": grid,
}


def evaluate(function: PiecewiseLinear, x: np.ndarray) -> np.ndarray:
    """Interpolates in extended precision."""
    knots, values = (
        np.array([float(v) for v in row], dtype=np.longdouble) for row in (function.knots, function.values)
    )
    i = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    slope = (values[i + 1] - values[i]) / (knots[i + 1] - knots[i])
    return values[i] + slope * (x.astype(np.longdouble) - knots[i])


@torch.no_grad()
def worst_error(
    network: torch.nn.Sequential, function: PiecewiseLinear, samples: int, rng: np.random.Generator
) -> float:
    dtype = network[0].weight.dtype
    kind = np.float64 if dtype == torch.float64 else np.float32
    low, high = float(function.knots[0]), float(function.knots[-1])

    def errors(x: np.ndarray) -> np.ndarray:
        found = np.concatenate([network(part[:, None])[:, 0].numpy() for part in torch.from_numpy(x).split(10_000)])
        return np.abs(found.astype(np.longdouble) - evaluate(function, x))

    x = np.concatenate([rng.uniform(low, high, samples), [float(t) for t in function.knots]]).astype(kind)
    x = x[(x >= low) & (x <= high)]
    found = errors(x)
    near = x[found.argmax()] + np.arange(-100, 101) * np.spacing(x[found.argmax()])
    near = near.astype(kind)
    near = near[(near >= low) & (near <= high)]
    return float(max(found.max(), errors(near).max()))


def measure(name: str) -> None:
    rng = np.random.default_rng(0)
    compiling, proving, exact, minimal, holds, knots = [], [], 0, 0, 0, []
    ratios: dict[torch.dtype, list[float]] = {torch.float64: [], torch.float32: []}
    for _ in range(COUNT):
        n = int(np.exp(rng.uniform(np.log(2), np.log(1001))))
        function = FAMILIES[name](rng, n)
        knots.append(n)
        for dtype in ratios:
            fresh = PiecewiseLinear(
                function.knots, function.values, left_slope=function.slopes[0], right_slope=function.slopes[-1]
            )
            x, y = ([float(v) for v in row] for row in (function.knots, function.values))
            outer = {} if name != "the same, constant outside" else {"left_slope": 0, "right_slope": 0}
            start = time.process_time()
            network = compile_piecewise_linear(x, y, dtype=dtype, **outer)
            middle = time.process_time()
            proof = prove_piecewise_linear(network, fresh)
            end = time.process_time()
            if dtype == torch.float64:
                compiling.append(1e3 * (middle - start))
                proving.append(1e3 * (end - middle))
                exact += proof.exact
                minimal += proof.minimal
            worst = worst_error(network, function, 1000, rng)
            holds += worst <= proof.error
            if worst > 0:
                ratios[dtype].append(proof.error / worst)
    double, single = (f"{statistics.median(found):.0f}" for found in ratios.values())
    print(
        f"| {name} | {COUNT} | {exact} | {minimal} | {statistics.median(compiling):.2f}, {max(compiling):.1f} "
        f"| {statistics.median(proving):.1f}, {max(proving):.0f} | {holds} of {2 * COUNT} | {double}, {single} |",
        flush=True,
    )


def million(name: str) -> None:
    rng = np.random.default_rng(1)
    function = FAMILIES[name](rng, 100)
    cells = []
    for width in (None, 3):
        for dtype in (torch.float64, torch.float32):
            network = compile_piecewise_linear(function, width=width, dtype=dtype)
            proof = prove_piecewise_linear(network, function)
            worst = worst_error(network, function, 1_000_000 if width is None else 100_000, rng)
            cells.append(
                f"{worst:.1e} ≤ {proof.error:.1e}" if worst <= proof.error else f"{worst:.1e} > {proof.error:.1e}"
            )
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def run() -> None:
    compile_piecewise_linear([0, 1], [0, 1])
    gc.collect()
    gc.freeze()
    print(
        "| functions | count | exact | minimal | compile [ms], median, max | prove [ms], median, max | bound holds ",
        end="",
    )
    print("| bound / found error, float64, float32 |\n|---|---|---|---|---|---|---|---|")
    for name in FAMILIES:
        measure(name)
    print("\n| 100 knots | one hidden layer, float64 | float32 | width 3, float64 | float32 |\n|---|---|---|---|---|")
    for name in FAMILIES:
        million(name)
