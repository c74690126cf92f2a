"""Certified bounds beside auto_LiRPA and attacks, certified radii beside PGD, and Lipschitz constants.

Classifiers of scikit-learn's digits in float64, trained for 30 epochs. The peer is auto_LiRPA 0.3 from PyPI, which is
for torch 1.8 to 1.12: `import_peer` supplies the names that it misses in torch 2.13 and NumPy 2. Both have their
defaults: `CROWN-Optimized` takes 20 steps, and alpha-crown 30. Install it with `pip install --no-deps auto_LiRPA
appdirs`.

- A bound is as tight if it is within 1e-9 of the peer's or closer. `width` is the mean over inputs and outputs of upper
  minus lower bound. `violation` is the largest excess of an output over its bound that PGD finds, with 40 steps for
  each output and sign; negative: no bound is contradicted. `attacks / width` is the mean share of the width that PGD
  reaches.
- The radius of PGD is found by bisection: 40 steps, margin loss. The true radius is between the certified and PGD's.
- Lipschitz constants are those of random ReLU networks with 2 inputs, 2 outputs and hidden layers of 10, on [-1, 1]^2,
  in the 2-norm.

Times are processor time of one thread, of the first call.
"""

from __future__ import annotations

import statistics
import sys
import time
import types
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from lawful.inference.attacks import FREE, PGD, margin
from lawful.theory import lipschitz_bounds, output_bounds, robustness_radius

COUNT = 20  # inputs of bounds
RADII = 10  # inputs of radii
PEER_METHODS = {"ibp": "IBP", "crown": "CROWN", "alpha-crown": "CROWN-Optimized"}


def import_peer() -> Any:
    from torch._C import _onnx
    from torch.onnx._internal.torchscript_exporter import utils
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    def set_opset(version: int) -> None:
        GLOBALS.export_onnx_opset_version = version

    for name, values in {
        "numpy.lib.arraysetops": {"isin": np.isin},
        "torch.onnx.utils": {"_optimize_graph": utils._optimize_graph},
        "torch.onnx.symbolic_helper": {"_set_opset_version": set_opset},
    }.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(values)
    torch.onnx.OperatorExportTypes = _onnx.OperatorExportTypes
    torch._C.Node.__getitem__ = lambda node, key: getattr(node, node.kindOf(key))(key)
    import auto_LiRPA

    return auto_LiRPA


def networks() -> dict[str, tuple[nn.Sequential, Tensor, Tensor]]:
    digits = load_digits()
    x = torch.tensor(digits.images / 16, dtype=torch.float64)[:, None]
    y = torch.tensor(digits.target)
    torch.manual_seed(0)
    order = torch.randperm(len(x))
    train, test = order[:1400], order[1400 : 1400 + COUNT]
    found = {
        "MLP 64-50-50-10, ReLU": nn.Sequential(
            nn.Flatten(), nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 10)
        ),
        "MLP 64-50-50-10, tanh": nn.Sequential(
            nn.Flatten(), nn.Linear(64, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 10)
        ),
        "two convolutions, ReLU": nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64, 10),
        ),
    }
    for network in found.values():
        network.double()
        optimizer = torch.optim.Adam(network.parameters(), 2e-3)
        for _ in range(30):
            for batch in train[torch.randperm(len(train))].split(50):
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
                optimizer.step()
        network.requires_grad_(False)
    return {name: (network, x[test], y[test]) for name, network in found.items()}


def extremes(network: nn.Module, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Returns the smallest and the largest value of each output that PGD finds."""
    found = []
    network.requires_grad_(True)
    for sign in (-1, 1):
        values = []
        for j in range(10):

            def loss(logits: Tensor, y: Tensor, j: int = j, sign: int = sign) -> Tensor:
                return sign * logits[:, j]

            attack = PGD(eps=eps, steps=40, loss=loss, bounds=FREE)
            with torch.no_grad():
                values.append(network(attack(network, x, torch.zeros(len(x), dtype=torch.long)))[:, j])
        found.append(torch.stack(values, 1))
    network.requires_grad_(False)
    return found[0], found[1]


def compare_bounds(name: str, network: nn.Sequential, x: Tensor, eps: float) -> None:
    peer = import_peer()
    smallest, largest = extremes(network, x, eps)
    for method, theirs in PEER_METHODS.items():
        start = time.process_time()
        lower, upper = output_bounds(network, x - eps, x + eps, method=method)
        ours = time.process_time() - start
        start = time.process_time()
        torch.set_default_dtype(torch.float64)  # the peer creates tensors without a dtype
        model = peer.BoundedModule(network, x, verbose=False)
        ball = peer.PerturbationLpNorm(norm=float("inf"), eps=eps)
        low, high = (b.detach() for b in model.compute_bounds(x=(peer.BoundedTensor(x, ball),), method=theirs))
        torch.set_default_dtype(torch.float32)
        seconds = time.process_time() - start
        tight = torch.cat([lower >= low - 1e-9, upper <= high + 1e-9]).double().mean()
        width, their_width = (upper - lower).mean(), (high - low).mean()
        worst = max(float((lower - smallest).max()), float((largest - upper).max()))
        reached = ((largest - smallest) / (upper - lower)).mean()
        print(
            f"| {name} | {eps} | {method} | {width:.4f} | {their_width:.4f} | {width / their_width:.4f} | {tight:.1%} "
            f"| {worst:.1g} | {reached:.2f} | {ours / seconds:.2f} |",
            flush=True,
        )


def pgd_radius(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    network.requires_grad_(True)
    low, high = torch.zeros(len(x), dtype=x.dtype), torch.ones(len(x), dtype=x.dtype)
    for _ in range(10):
        middle = (low + high) / 2
        fooled = []
        for i in range(len(x)):
            attack = PGD(eps=float(middle[i]), steps=40, loss=margin, bounds=FREE)
            found = attack(network, x[i : i + 1], y[i : i + 1])
            with torch.no_grad():
                fooled.append(bool(network(found).argmax(1) != y[i]))
        hit = torch.tensor(fooled)
        low, high = torch.where(hit, low, middle), torch.where(hit, middle, high)
    network.requires_grad_(False)
    return high


def compare_radii(name: str, network: nn.Sequential, x: Tensor, y: Tensor) -> None:
    right = network(x).argmax(1) == y
    x, y = x[right][:RADII], y[right][:RADII]
    attacked = pgd_radius(network, x, y)
    cells = []
    for method in PEER_METHODS:
        start = time.process_time()
        radius = robustness_radius(network, x, y, method=method, steps=10)
        seconds = time.process_time() - start
        if not bool((radius <= attacked).all()):
            sys.exit("an attack contradicts a certified radius")
        cells.append(f"{radius.median():.4f}, {(radius / attacked).median():.2f}, {seconds / len(x):.2f} s")
    print(f"| {name} | {len(x)} | {attacked.median():.4f} | " + " | ".join(cells) + " |", flush=True)


def compare_constants(layers: int, seeds: range) -> None:
    rows: dict[str, list[float]] = {
        "product": [],
        "local": [],
        "50 splits": [],
        "exact": [],
        "s": [],
        "gap": [],
        "found": [],
    }
    for seed in seeds:
        torch.manual_seed(seed)
        sizes = [2, *[10] * layers, 2]
        parts = [part for i in range(len(sizes) - 1) for part in (nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU())]
        network = nn.Sequential(*parts[:-1]).double()
        low, high = -torch.ones(1, 2), torch.ones(1, 2)
        start = time.process_time()
        exact = lipschitz_bounds(network, low, high, method="exact")
        rows["s"].append(time.process_time() - start)
        rows["gap"].append(float(exact.upper / exact.lower) - 1)
        for name, options in {"product": {"method": "product"}, "local": {}, "50 splits": {"splits": 50}}.items():
            found = lipschitz_bounds(network, low, high, **options)
            rows[name].append(float(found.upper / exact.upper))
        rows["found"].append(float(found.lower / exact.upper))
    cells = [f"{statistics.median(rows[name]):.3f}" for name in ("product", "local", "50 splits", "found")]
    cells += [f"{max(rows['gap']):.1e}", f"{statistics.median(rows['s']):.2f}"]
    print(f"| {layers} | {len(seeds)} | " + " | ".join(cells) + " |", flush=True)


def run() -> None:
    found = networks()
    print(
        "| network | eps | method | width | auto_LiRPA | ratio | as tight | violation | attacks / width | time ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, (network, x, _) in found.items():
        for eps in (0.01, 0.05):
            compare_bounds(name, network, x, eps)
    print("\n| network | inputs | PGD's radius | ibp: radius, share of PGD's, time | crown | alpha-crown |")
    print("|---|---|---|---|---|---|")
    for name, (network, x, y) in found.items():
        compare_radii(name, network, x, y)
    print(
        "\n| hidden layers | networks | product / exact | local / exact | 50 splits / exact | search / exact ", end=""
    )
    print("| largest gap of exact | exact, s |\n|---|---|---|---|---|---|---|---|")
    for layers in (1, 2, 3):
        compare_constants(layers, range(5))
