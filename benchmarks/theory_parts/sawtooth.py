"""Telgarsky's sawtooth: its pieces, the bound of the area to shallow networks, and the area of trained networks.

Areas are exact integrals over [0, 1] of networks in float32, the smallest of three seeds. Training: Adam with learning
rate 0.01 and cosine decay, 600 steps on the mean absolute error at 1,024 evenly spaced points. First layers start with
breakpoints spread over [0, 1]. The first bound holds for all networks of these widths, the second one for all with
as many pieces as the trained network has. No peer computes areas.
"""

from __future__ import annotations

import time
from itertools import pairwise

import torch
from torch import nn

from lawful.theory import area_between, region_upper_bound, regions_on_segment, sawtooth_gap, sawtooth_network

STEPS = 600
SHAPES = ([8], [64], [16, 16], [12])


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
    print("| sawtooth | trained network | pieces, at most | bound | pieces, trained | bound | area |")
    print("|---|---|---|---|---|---|---|")
    for depth in (3, 6, 9):
        target = sawtooth_network(depth)
        for shape in SHAPES:
            widths = shape * depth if shape == [12] else shape
            pieces = region_upper_bound(widths, 1)
            bound = sawtooth_gap(depth, pieces)
            trained = [train(target, widths, seed) for seed in range(3)]
            area, network = min(((area_between(target, network), network) for network in trained), key=lambda x: x[0])
            found = regions_on_segment(network, 0, 1).num_linear_regions
            closer = sawtooth_gap(depth, found)
            holds = "" if area >= closer >= bound else " (below a bound!)"
            print(
                f"| {depth} × 2 | {len(widths)} × {widths[0]} | {pieces:,} | {float(bound):.3f} | {found:,} "
                f"| {float(closer):.3f} | {float(area):.3f}{holds} |",
                flush=True,
            )
