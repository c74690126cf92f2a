"""Diagrams of networks."""

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection

from lawful.losses.regularization import grid_positions, line_positions
from lawful.probe.figures import Network, as_svg, network_diagram

W = [torch.tensor([[1.0, -0.5], [0.0, 0.25], [2.0, 1e-9]]), torch.tensor([[-1.0, 1.0, 0.5]])]


def test_weights_are_lines_in_the_color_of_their_sign():
    figure = network_diagram(Network(weights=W), positions=[line_positions(n) for n in (2, 3, 1)])
    first, second = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    assert len(first.get_segments()) == 4
    assert len(second.get_segments()) == 3
    blue, red = first.get_colors()[0], first.get_colors()[1]
    assert tuple(blue) != tuple(red)
    np.testing.assert_allclose(np.divide(first.get_linewidths(), max(first.get_linewidths())), [0.5, 0.25, 0.125, 1.0])
    np.testing.assert_allclose(first.get_segments()[0], [[1 / 6, 1], [1 / 4, 0]])


def test_labels_of_inputs_and_outputs():
    network = Network(weights=W, inputs=("b", "a"), outputs=("$5",), title="after")
    text = as_svg(network_diagram(network, network, positions=[grid_positions(n) for n in (2, 3, 1)]))
    assert text.count("<svg") == 1


def test_invalid_arguments_raise():
    positions = [line_positions(n) for n in (2, 3, 1)]
    with pytest.raises(ValueError, match=r"expected weights of shapes \[\(3, 2\), \(1, 3\)\]"):
        network_diagram(Network(weights=W[:1]), positions=positions)
    with pytest.raises(ValueError, match="at least one network"):
        network_diagram(positions=positions)
    with pytest.raises(ValueError, match="1 or 2 coordinates"):
        network_diagram(Network(weights=W), positions=[np.ones((n, 3)) for n in (2, 3, 1)])
    with pytest.raises(ValueError, match="longer"):
        network_diagram(Network(weights=W, inputs=("a",)), positions=positions)
