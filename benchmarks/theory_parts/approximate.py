"""Approximation with a certificate: sizes, bounds, and the worst points that a search finds.

Networks of `approximate` in float32 for six functions and three errors. The error of each network is measured against
the expression in float64: on a million random points and the corners of the box, and by a direct search (differential
evolution, and L-BFGS-B from the 20 worst samples). Both must stay below the certified bound. `check` is the time of
`examples/check_certificate.py`, which does not import lawful. Times are processor time. No peer on PyPI builds networks
with such a certificate. The second table has errors down to 1e-6 in float64: squares in one layer, and deep ones.
The third one compares activations, and the fourth one sums of exponentials and squares.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import differential_evolution, minimize

from lawful.theory import ApproximationCertificate, approximate, parse_expression

TARGETS: dict[str, tuple[tuple[float, float], ...]] = {
    "sin(x)": ((-3, 3),),
    "abs(x)": ((-1, 1),),
    "sqrt(x)": ((0, 1),),
    "clip(10*x, 0, 1)": ((-1, 1),),
    "x*y": ((-1, 1), (-1, 1)),
    "exp(-(x^2 + y^2 + z^2))": ((-1, 1), (-1, 1), (-1, 1)),
}
ERRORS = (0.1, 0.01, 0.001)
SAMPLES = 1_000_000


def load_checker():
    path = Path(__file__).parents[2] / "examples/check_certificate.py"
    spec = importlib.util.spec_from_file_location("check_certificate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@torch.no_grad()
def worst_errors(network: torch.nn.Sequential, certificate: ApproximationCertificate) -> tuple[float, float]:
    """Returns the largest error over a million samples, and the largest one that a search finds."""
    function = parse_expression(certificate.expression)
    low, high = torch.tensor(list(certificate.box.values()), dtype=torch.float64).T
    dtype = network[0].weight.dtype

    def errors(x: torch.Tensor) -> torch.Tensor:
        inputs = x.to(dtype).clamp(low.to(dtype), high.to(dtype))
        exact = function(**{name: inputs[:, i].double() for i, name in enumerate(certificate.box)})
        return (network(inputs)[:, 0].double() - exact).abs()

    corners = torch.cartesian_prod(*torch.stack([low, high], 1)).reshape(-1, len(low))
    x = torch.cat([low + (high - low) * torch.rand(SAMPLES, len(low), dtype=torch.float64), corners])
    found = torch.cat([errors(part) for part in x.split(50_000)])
    sampled = float(found.max())

    def objective(point: np.ndarray) -> float:
        return -float(errors(torch.from_numpy(np.atleast_2d(point)))[0])

    bounds = list(zip(low.tolist(), high.tolist(), strict=True))
    searched = -differential_evolution(objective, bounds, seed=0, maxiter=60, popsize=10, polish=False).fun
    for start in x[found.topk(20).indices].numpy():
        searched = max(searched, -minimize(objective, start, bounds=bounds, method="L-BFGS-B").fun)
    return sampled, max(searched, sampled)


def table_of_targets() -> None:
    checker = load_checker()
    print("| function | error | units | layers | certified | samples | search | holds | build [s] | check [s] |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for text, box in TARGETS.items():
        for error in ERRORS:
            start = time.process_time()
            network, certificate = approximate(text, box, error)
            built = time.process_time() - start
            with tempfile.TemporaryDirectory() as folder:
                certificate.save(folder, network)
                start = time.process_time()
                checked = checker.check(folder)[1] <= error
                checking = time.process_time() - start
            sampled, searched = worst_errors(network, certificate)
            holds = searched <= certificate.bound <= error and checked
            print(
                f"| {text} | {error:g} | {certificate.num_units} | {len(certificate.hidden_dims)} "
                f"| {certificate.bound:.3g} | {sampled:.3g} | {searched:.3g} | {'yes' if holds else 'NO'} "
                f"| {built:.2f} | {checking:.2f} |",
                flush=True,
            )


def table_of_squares() -> None:
    print("\n| x*y, float64, error | units, squares in one layer | units, deep squares | hidden layers |")
    print("|---|---|---|---|")
    for exponent in range(1, 7):
        error = 10.0**-exponent
        _, deep = approximate("x*y", TARGETS["x*y"], error, dtype=torch.float64)
        _, flat = approximate("x*y", TARGETS["x*y"], error, levels=0, dtype=torch.float64)
        print(f"| 1e-{exponent} | {flat.num_units} | {deep.num_units} | {len(deep.hidden_dims)} |", flush=True)


def table_of_activations() -> None:
    names = ("relu", "tanh", "sigmoid", "softplus", "silu", "gelu")
    print(f"\n| sin(x), float64, error | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for error in ERRORS:
        cells = []
        for name in names:
            network, certificate = approximate("sin(x)", TARGETS["sin(x)"], error, activation=name, dtype=torch.float64)
            _, searched = worst_errors(network, certificate)
            holds = "" if searched <= certificate.bound else ", bound does NOT hold"
            cells.append(f"{certificate.num_units}{holds}")
        print(f"| {error:g} | {' | '.join(cells)} |", flush=True)


def table_of_methods() -> None:
    print("\n| function | error | units, exponentials (1 layer) | search / certified | units, squares | layers |")
    print("|---|---|---|---|---|---|")
    for text in ("x*y", "exp(-(x^2 + y^2))"):
        for error in (0.1, 0.03):
            box = ((-1, 1), (-1, 1))
            network, wide = approximate(text, box, error, method="exponentials")
            _, searched = worst_errors(network, wide)
            _, squares = approximate(text, box, error)
            print(
                f"| {text} | {error:g} | {wide.num_units} | {searched:.3g} / {wide.bound:.3g} "
                f"| {squares.num_units} | {len(squares.hidden_dims)} |",
                flush=True,
            )


def run() -> None:
    table_of_targets()
    table_of_squares()
    table_of_activations()
    table_of_methods()
