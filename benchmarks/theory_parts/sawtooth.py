"""Telgarsky's sawtooth: its pieces, the bound of the area to shallow networks, and the area of trained networks.

Areas are exact integrals over [0, 1] of networks in float32, the smallest of three seeds. Training: Adam with learning
rate 0.01 and cosine decay, 1,500 steps on the mean absolute error at 1,024 evenly spaced points. The bound holds for
all networks with so many pieces. First layers start with breakpoints spread over [0, 1]. No peer computes areas.
"""

from __future__ import annotations

import time
from itertools import pairwise

import torch
from torch import nn

from lawful.theory import area_between, region_upper_bound, regions_on_segment, sawtooth_gap, sawtooth_network

STEPS = 1500
SHAPES = ([16], [64], [256], [16, 16], [2], [12])


def train(target: nn.Sequential, widths: list[int], seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [module for a, b in pairwise([1, *widths, 1]) for module in (nn.Linear(a, b), nn.ReLU())]
    network = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        network[0].weight.copy_(2 * torch.randint(0, 2, network[0].weight.shape) - 1)
        network[0].bias.copy_(-network[0].weight[:, 0] * torch.rand(widths[0]))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    x = torch.linspace(0, 1, 1024)[:, None]
    y = target(x).detach()
    for _ in range(STEPS):
        optimizer.zero_grad()
        (network(x) - y).abs().mean().backward()
        optimizer.step()
        schedule.step()
    return network


def run() -> None:
    start, right = time.process_time(), 0
    for depth in range(1, 21):
        regions = regions_on_segment(sawtooth_network(depth), 0, 1)
        right += regions.num_linear_regions == regions.num_activation_regions == 2**depth
    print(
        f"The sawtooth of depth L has 2^L pieces for {right} of L = 1, ..., 20 ({time.process_time() - start:.1f} s).\n"
    )
    print("| depth of the sawtooth | its units | trained network | its pieces, at most | bound of the area | area |")
    print("|---|---|---|---|---|---|")
    for depth in (3, 5, 7, 9):
        target = sawtooth_network(depth)
        for shape in SHAPES:
            widths = shape * depth if shape in ([2], [12]) else shape
            pieces = region_upper_bound(widths, 1)
            bound = sawtooth_gap(depth, pieces)
            area = min(area_between(target, train(target, widths, seed)) for seed in range(3))
            name = f"{len(widths)} × {widths[0]}"
            holds = "" if area >= bound else " (below the bound!)"
            print(
                f"| {depth} | {2 * depth} | {name} | {pieces:,} | {float(bound):.3f} | {float(area):.3f}{holds} |",
                flush=True,
            )
