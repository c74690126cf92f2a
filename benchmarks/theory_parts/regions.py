"""Linear regions: counts against an enumeration in fractions, and the time of regioncam.

Counts are numbers of activation regions. In the first table, the weights are in float32, and the count is compared with
one that clips polygons with a vertex per corner in fractions and shares no code with lawful. `regioncam` 0.5.2 (Rust)
computes in float32. In the second, the expected number of pieces of Telgarsky's sawtooth is known. The third has random
networks of two inputs and three layers of 64 units with PyTorch's initialization, on [-1, 1]². Ours and regioncam's
subdivision are measured alternately, with the reading of the network. `maps` adds the affine maps and the number of
linear regions, which regioncam does not compute, and the corners of all polygons. Seconds are processor time of one
thread.
"""

from __future__ import annotations

import statistics
import time
from fractions import Fraction
from itertools import pairwise

import regioncam
import torch
from torch import nn

from lawful.theory import regions_in_box, regions_on_segment, sawtooth_network

ROUNDS = 15


def build(seed: int, *dims: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [module for a, b in pairwise(dims) for module in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


@torch.no_grad()
def spoil(network: nn.Sequential, kind: str) -> None:
    """Makes some units dead, duplicate or parallel, or lets creases meet."""
    for layer in (network[0], network[2]):
        weight, bias = layer.weight, layer.bias
        if kind == "dead units":
            weight[0], bias[0] = 0.0, 0.0
            bias[1] = -100.0
        elif kind == "duplicate units":
            weight[1], bias[1] = weight[0], bias[0]
            weight[2], bias[2] = -2 * weight[0], -2 * bias[0]
        elif kind == "parallel units, one ulp apart":
            weight[1] = weight[0]
            bias[1] = torch.nextafter(bias[0], torch.tensor(2.0))
        elif kind == "parallel units, 4 ulps apart":
            weight[1], bias[1] = weight[0], bias[0]
            for _ in range(4):
                bias[1] = torch.nextafter(bias[1], torch.tensor(2.0))
        elif kind == "no biases":
            bias.zero_()
        elif kind == "weights and biases in quarters":
            weight.copy_((4 * weight).round() / 4)
            bias.copy_((4 * bias).round() / 4)


KINDS = (
    "random",
    "dead units",
    "duplicate units",
    "parallel units, one ulp apart",
    "parallel units, 4 ulps apart",
    "no biases",
    "weights and biases in quarters",
)


def count_in_fractions(network: nn.Sequential) -> int:
    """Clips polygons by one unit after the other."""
    zero, one = Fraction(0), Fraction(1)
    square = [(-one, -one), (one, -one), (one, one), (-one, one)]
    cells = [(square, [(one, zero, zero), (zero, one, zero)])]
    for module in network:
        if isinstance(module, nn.Linear):
            rows = [[Fraction(w) for w in row] for row in module.weight.tolist()]
            biases = [Fraction(b) for b in module.bias.tolist()]
            cells = [
                (
                    polygon,
                    [
                        tuple(sum((w * f[j] for w, f in zip(row, forms, strict=True)), b * (j == 2)) for j in range(3))
                        for row, b in zip(rows, biases, strict=True)
                    ],
                )
                for polygon, forms in cells
            ]
            continue
        for unit in range(len(cells[0][1])):
            split = []
            for polygon, forms in cells:
                a, b, c = forms[unit]
                values = [a * x + b * y + c for x, y in polygon]
                if max(values) > 0:
                    split.append((clip(polygon, values, 1), forms))
                if min(values) < 0 or max(values) <= 0:
                    off = [*forms[:unit], (zero, zero, zero), *forms[unit + 1 :]]
                    split.append((clip(polygon, values, -1) if max(values) > 0 else polygon, off))
            cells = split
    return len(cells)


def clip(polygon: list, values: list, sign: int) -> list:
    found = []
    for (p, v), (q, w) in zip(zip(polygon, values, strict=True), rotate(polygon, values), strict=True):
        if sign * v >= 0:
            found.append(p)
        if v * w < 0:
            found.append(tuple(a + v / (v - w) * (b - a) for a, b in zip(p, q, strict=True)))
    return found


def rotate(polygon: list, values: list) -> list:
    pairs = list(zip(polygon, values, strict=True))
    return pairs[1:] + pairs[:1]


def peer(network: nn.Sequential) -> regioncam.Regioncam:
    cam = regioncam.Regioncam(size=1.0)
    for module in network:
        if isinstance(module, nn.Linear):
            cam.linear(module.weight.detach().numpy().T.copy(), module.bias.detach().numpy())
        else:
            cam.relu()
    return cam


def peer_sawtooth(depth: int) -> int:
    cam = regioncam.Regioncam1D(size=1.0)  # [-1/2, 1/2]
    cam.linear(torch.ones(1, 1).numpy(), torch.tensor([0.5]).numpy())
    for module in sawtooth_network(depth):
        if isinstance(module, nn.Linear):
            cam.linear(module.weight.detach().numpy().T.copy(), module.bias.detach().numpy())
        else:
            cam.relu()
    return cam.num_edges


def counts() -> None:
    print("| 10 networks 2-8-8-8-1 | regions, in all | ours equal | regioncam equal | regioncam, in all |")
    print("|---|---|---|---|---|")
    for kind in KINDS:
        rows = []
        for seed in range(10):
            network = build(seed, 2, 8, 8, 8, 1)
            spoil(network, kind)
            rows.append(
                (count_in_fractions(network), regions_in_box(network).num_activation_regions, peer(network).num_faces)
            )
        exact, ours, theirs = zip(*rows, strict=True)
        equal, peer_equal = (sum(a == b for a, b in zip(exact, found, strict=True)) for found in (ours, theirs))
        print(f"| {kind} | {sum(exact)} | {equal} of 10 | {peer_equal} of 10 | {sum(theirs)} |", flush=True)


def sawtooths() -> None:
    right = peer_right = 0
    print("\n| sawtooth, depth | pieces | ours | regioncam | ours [s] | regioncam [s] | ratio |")
    print("|---|---|---|---|---|---|---|")
    for depth in range(1, 21):
        start = time.process_time()
        regions = regions_on_segment(sawtooth_network(depth), 0, 1)
        ours = regions.num_linear_regions
        middle = time.process_time()
        theirs = peer_sawtooth(depth)
        end = time.process_time()
        right += ours == regions.num_activation_regions == 2**depth
        peer_right += theirs == 2**depth
        if depth in (5, 10, 15, 20):
            a, b = middle - start, end - middle
            print(f"| {depth} | {2**depth:,} | {ours:,} | {theirs:,} | {a:.3f} | {b:.3f} | {a / b:.2f} |", flush=True)
    print(f"\nDepths 1 to 20: ours equal in {right}, regioncam in {peer_right}.")


def speed() -> None:
    print("\n| seed | regions | regioncam | ours [ms] | regioncam [ms] | ratio (middle half) | maps [ms] |")
    print("|---|---|---|---|---|---|---|")
    everything = []
    for seed in range(10):
        network = build(seed, 2, 64, 64, 64, 1)
        ours, theirs, full = [], [], []
        for i in range(ROUNDS + 1):
            for name in ("ours", "theirs") if i % 2 else ("theirs", "ours"):
                start = time.process_time()
                if name == "ours":
                    count = regions_in_box(network).num_activation_regions
                    ours.append(1e3 * (time.process_time() - start))
                else:
                    faces = peer(network).num_faces
                    theirs.append(1e3 * (time.process_time() - start))
            if i < 4:
                start = time.process_time()
                regions = regions_in_box(network)
                _ = regions.num_linear_regions, regions.weight, regions.corners
                full.append(1e3 * (time.process_time() - start))
        ratios = [a / b for a, b in zip(ours[1:], theirs[1:], strict=True)]
        everything += ratios
        low, middle, high = statistics.quantiles(ratios, n=4)
        a, b, c = (statistics.median(found[1:]) for found in (ours, theirs, full))
        spread = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        print(f"| {seed} | {count:,} | {faces:,} | {a:.1f} | {b:.1f} | {spread} | {c:.0f} |", flush=True)
    low, middle, high = statistics.quantiles(everything, n=4)
    print(f"\nAll rounds: ratio {middle:.2f} ({low:.2f} to {high:.2f}).")


def run() -> None:
    counts()
    sawtooths()
    speed()
