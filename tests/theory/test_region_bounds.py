"""Bounds on the number of regions, against sums over all indices and counts of networks."""

import math
from itertools import pairwise, product

import pytest
import torch
from torch import nn

from lawful.theory import region_lower_bound, region_upper_bound, regions_in_box, regions_on_segment, sawtooth_network


def sum_over_all_indices(widths, dim):
    total = 0
    for js in product(*(range(n + 1) for n in widths)):
        ranks = [
            min([dim, *(n - j for n, j in zip(widths[:i], js[:i], strict=True)), widths[i]]) for i in range(len(js))
        ]
        if all(j <= rank for j, rank in zip(js, ranks, strict=True)):
            total += math.prod(math.comb(n, j) for n, j in zip(widths, js, strict=True))
    return total


@pytest.mark.parametrize("widths", [[1], [5], [3, 3], [4, 2, 5], [2, 1, 3, 2]])
@pytest.mark.parametrize("dim", [1, 2, 3, 7])
def test_the_upper_bound_is_the_sum(widths, dim):
    assert region_upper_bound(widths, dim) == sum_over_all_indices(widths, dim)
    assert region_upper_bound(widths, dim) <= region_upper_bound(widths, dim, leaky=True) <= 2 ** sum(widths)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_lines_in_general_position_attain_the_bound(n):
    layer = nn.Linear(2, n, dtype=torch.float64)
    angles = torch.arange(n) + 0.5
    with torch.no_grad():  # tangents of a circle
        layer.weight.copy_(torch.stack([angles.cos(), angles.sin()], dim=1))
        layer.bias.fill_(1.0)
    regions = regions_in_box(nn.Sequential(layer, nn.ReLU()), (-1e3, -1e3), (1e3, 1e3))
    assert (
        regions.num_activation_regions
        == region_upper_bound([n], 2)
        == region_lower_bound([max(n, 2)], 2) - (0 if n > 1 else 2)
    )


@pytest.mark.parametrize("leaky", [False, True])
def test_counts_of_networks_are_within_the_bound(leaky):
    for seed, widths in enumerate([[4], [3, 3], [6, 5], [2, 5, 3], [5, 1, 4]]):
        torch.manual_seed(seed)
        layers = [
            module
            for a, b in pairwise([2, *widths])
            for module in (nn.Linear(a, b), nn.LeakyReLU(-0.5) if leaky else nn.ReLU())
        ]
        count = regions_in_box(nn.Sequential(*layers), (-100, -100), (100, 100)).num_activation_regions
        assert 1 < count <= region_upper_bound(widths, 2, leaky=leaky)


def test_sawtooth_is_between_the_bounds():
    for depth in range(1, 8):
        count = regions_on_segment(sawtooth_network(depth), -10, 10).num_linear_regions
        assert 2**depth < count <= region_upper_bound([2] * depth, 1)
        assert region_lower_bound([2] * depth, 1) <= region_upper_bound([2] * depth, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: region_upper_bound([], 1), r"widths must be positive, with at least one layer: got \[\]"),
        (lambda: region_upper_bound([3, 0], 1), r"widths must be positive.*got \[3, 0\]"),
        (lambda: region_upper_bound([3], 0), r"dim must be at least 1: got 0"),
        (lambda: region_lower_bound([3, 1], 2), r"at least dim=2 for the construction: got widths\[1\]=1"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
