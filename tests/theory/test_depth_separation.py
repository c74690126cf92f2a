"""The sawtooth, its pieces, and the area between it and networks with few pieces."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from lawful.theory import (
    PiecewiseLinear,
    area_between,
    compile_piecewise_linear,
    region_upper_bound,
    regions_on_segment,
    sawtooth_gap,
    sawtooth_network,
)


def shallow(width, seed=0, *, activation=None):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(1, width), activation or nn.ReLU(), nn.Linear(width, 1)).double()
    with torch.no_grad():
        network[0].bias.uniform_(-1, 1)
        network[2].weight.normal_()
    return network


@pytest.mark.parametrize("depth", range(1, 13))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_sawtooth_has_two_to_the_depth_pieces(depth, dtype):
    network = sawtooth_network(depth, dtype=dtype)
    regions = regions_on_segment(network, 0, 1)
    assert regions.num_linear_regions == regions.num_activation_regions == 2**depth
    slopes = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(2 ** (depth - 1)) * 2**depth
    assert torch.equal(regions.weight[:, 0, 0], slopes)
    ends = regions.vertices[regions.edges[:, 0], 0]
    assert torch.equal(ends, torch.arange(2**depth, dtype=torch.float64) / 2**depth)
    peaks = network(((torch.arange(2**depth + 1)) / 2**depth).to(dtype)[:, None])[:, 0]
    assert torch.equal(peaks, (torch.arange(2**depth + 1) % 2).to(dtype))


@pytest.mark.long
@pytest.mark.parametrize("depth", range(13, 21))
def test_the_count_of_deep_sawtooths(depth):
    regions = regions_on_segment(sawtooth_network(depth), 0, 1)
    assert regions.num_linear_regions == regions.num_activation_regions == 2**depth


def test_the_area_equals_quadrature():
    x = (torch.arange(40_000, dtype=torch.float64)[:, None] + 0.5) / 10_000 - 2
    for seed in range(5):
        first, second = shallow(6, seed), shallow(5, seed + 50, activation=nn.LeakyReLU(0.5))
        with torch.no_grad():
            expected = (first(x) - second(x)).abs().mean() * 4
        assert float(area_between(first, second, -2, 2)) == pytest.approx(float(expected), rel=1e-4)
        assert area_between(first, first, -2, 2) == 0


def test_the_area_is_exact():
    first = compile_piecewise_linear([0, 1, 2], [0, 1, 0])
    second = compile_piecewise_linear([0, 2], [0.5, 0.5])
    assert area_between(first, second, 0, 2) == Fraction(1, 2)
    assert area_between(first, second, 0, 0.75) == Fraction(1, 8) + Fraction(1, 32)


@pytest.mark.parametrize("depth", [1, 2, 4, 6])
def test_no_function_with_few_pieces_is_closer_than_the_gap(depth):
    rng = np.random.default_rng(depth)
    sawtooth = sawtooth_network(depth, dtype=torch.float64)
    for num_pieces in (1, 2, 3, 5, 9):
        gap = sawtooth_gap(depth, num_pieces)
        for kind in range(4):
            inner = np.sort(rng.choice(np.arange(1, 64), num_pieces - 1, replace=False)) / 64
            knots = np.array([0.0, *inner, 1.0])
            with torch.no_grad():
                values = sawtooth(torch.from_numpy(knots)[:, None])[:, 0].numpy()
            if kind:
                values = 0.5 + (values - 0.5) * rng.uniform(0, 1, len(knots)) * (kind - 1)
            function = compile_piecewise_linear(PiecewiseLinear(knots, values), dtype=torch.float64)
            assert area_between(sawtooth, function) >= gap
    constant = compile_piecewise_linear([0, 1], [0.5, 0.5])
    assert area_between(sawtooth, constant) == sawtooth_gap(depth, 1) == Fraction(1, 4)


def test_a_trained_shallow_network_is_no_closer_than_the_gap():
    target, network = sawtooth_network(6), shallow(8).float()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
    x = torch.linspace(0, 1, 300)[:, None]
    before = area_between(target, network)
    with torch.no_grad():
        y = target(x)
    for _ in range(40):
        optimizer.zero_grad()
        loss = (network(x) - y).abs().mean()
        loss.backward()
        optimizer.step()
    after = area_between(target, network)
    assert sawtooth_gap(6, region_upper_bound([8], 1)) <= after < before
    assert float(after) == pytest.approx(loss.item(), rel=0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sawtooth_network(0), r"depth must be at least 1: got 0"),
        (lambda: sawtooth_gap(0, 1), r"depth must be at least 1: got 0"),
        (lambda: sawtooth_gap(1, 0), r"num_pieces must be at least 1: got 0"),
        (lambda: area_between(nn.Linear(1, 2), nn.Linear(1, 1)), r"first must have one output: got 2"),
        (lambda: area_between(nn.Linear(1, 1), nn.Linear(2, 1)), r"start must have 2 entries"),
        (lambda: area_between(nn.Linear(1, 1), nn.Linear(1, 1), 1, 1), r"start and end must differ"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
