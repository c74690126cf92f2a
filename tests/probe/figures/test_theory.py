"""Figures of theorems."""

import numpy as np
import pytest
import torch
from torch import nn

from lawful.probe.figures import piecewise_linear_curves, region_map, save, unit_contributions
from lawful.theory import (
    PiecewiseLinear,
    compile_piecewise_linear,
    regions_in_box,
    regions_on_segment,
    sawtooth_network,
)


def test_the_units_and_the_bias_sum_to_the_network(tmp_path):
    function = PiecewiseLinear([0, 1, 2, 4], [1, 3, 0, 2], left_slope=0)
    network = compile_piecewise_linear(function, dtype=torch.float64)
    figure = unit_contributions(network, -1, 6, knots=function.knots, values=function.values)
    top, bottom = figure.axes
    units = [line for line in top.lines if len(line.get_xdata()) > 2]
    assert len(units) == network[0].out_features
    x, total = bottom.lines[1].get_data()
    summed = sum(line.get_ydata() for line in units) + network[2].bias.item()
    np.testing.assert_allclose(summed, total, atol=1e-12)
    assert {0.0, 1.0, 2.0} <= set(np.asarray(x).tolist())  # the kinks are sharp
    assert bottom.lines[2].get_ydata().tolist() == [1, 3, 0, 2]
    save(figure, tmp_path / "units.png")
    assert (tmp_path / "units.png").stat().st_size > 5000


def test_the_creases_of_each_layer_and_the_regions(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 1))
    regions = regions_in_box(network, (-3, -1), (3, 2))
    figure = region_map(regions, coordinates=("s", "t"))
    first, second, colored = figure.axes
    counts = [len(collection.get_paths()) for axes in (first, second) for collection in axes.collections]
    layers = regions.unit_layers[regions.edge_units[regions.edge_units >= 0]]
    assert counts == [0, int((layers == 0).sum()), int((layers == 0).sum()), int((layers == 1).sum())]
    assert len(colored.collections[0].get_paths()) == regions.num_activation_regions
    assert colored.get_title() == f"{regions.num_linear_regions:,} linear regions"
    faces = colored.collections[0].get_facecolors()
    for a, b in regions.edge_regions.tolist():
        if min(a, b) >= 0 and regions.linear_regions[a] != regions.linear_regions[b]:
            assert (faces[a] != faces[b]).any()
    assert (colored.get_xlabel(), colored.get_xlim(), colored.get_ylim()) == ("s", (-3, 3), (-1, 2))
    save(figure, tmp_path / "regions.png")
    assert len(region_map(regions_in_box(nn.Linear(2, 1))).axes) == 1


def test_curves_go_through_all_breakpoints():
    network = sawtooth_network(4)
    figure = piecewise_linear_curves({"sawtooth": network, "line": nn.Linear(1, 1)}, -0.5, 1)
    curve, line = figure.axes[0].get_lines()
    x, y = (torch.from_numpy(np.asarray(values)) for values in curve.get_data())
    with torch.no_grad():
        np.testing.assert_allclose(network(x.float()[:, None])[:, 0], y, atol=1e-6)
    assert len(x) == 2**4 + 2
    assert len(line.get_xdata()) == 2


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="regions must be in the plane"):
        region_map(regions_on_segment(nn.Linear(1, 1), 0, 1))
    with pytest.raises(ValueError, match="networks must have one output: 'two' has 2"):
        piecewise_linear_curves({"two": nn.Linear(1, 2)}, 0, 1)
    network = compile_piecewise_linear([0, 1], [0, 1])
    with pytest.raises(ValueError, match="low must be less than high: got 1 and 0"):
        unit_contributions(network, 1, 0)
    with pytest.raises(ValueError, match="expected both or neither"):
        unit_contributions(network, 0, 1, knots=[0, 1])
    for other in (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), nn.Sequential(nn.Linear(1, 1))):
        with pytest.raises(ValueError, match="with one input and one output"):
            unit_contributions(other, 0, 1)
