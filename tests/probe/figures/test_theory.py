"""Figures of theorems."""

import numpy as np
import pytest
import torch
from torch import nn

from lawful.probe.figures import save, unit_contributions
from lawful.theory import PiecewiseLinear, compile_piecewise_linear


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


def test_bad_input_is_refused():
    network = compile_piecewise_linear([0, 1], [0, 1])
    with pytest.raises(ValueError, match="low must be less than high: got 1 and 0"):
        unit_contributions(network, 1, 0)
    with pytest.raises(ValueError, match="expected both or neither"):
        unit_contributions(network, 0, 1, knots=[0, 1])
    for other in (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), nn.Sequential(nn.Linear(1, 1))):
        with pytest.raises(ValueError, match="with one input and one output"):
            unit_contributions(other, 0, 1)
