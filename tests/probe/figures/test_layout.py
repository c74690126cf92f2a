import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection

from lawful.losses.regularization import grid_positions, line_positions
from lawful.probe.figures import Network, as_svg, laid_out

W = [torch.tensor([[1.0, -0.5], [0.0, 0.25], [2.0, 1e-9]]), torch.tensor([[-1.0, 1.0, 0.5]])]


def test_each_weight_that_can_be_seen_is_a_line_in_the_colour_of_its_sign():
    figure = laid_out(Network(weights=W), places=[line_positions(n) for n in (2, 3, 1)])
    first, second = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    assert len(first.get_segments()) == 4
    assert len(second.get_segments()) == 3
    blue, red = first.get_colors()[0], first.get_colors()[1]
    assert tuple(blue) != tuple(red)
    np.testing.assert_allclose(np.divide(first.get_linewidths(), max(first.get_linewidths())), [0.5, 0.25, 0.125, 1.0])
    np.testing.assert_allclose(first.get_segments()[0], [[1 / 6, 1], [1 / 4, 0]])


def test_ends_are_named_as_they_are_placed():
    network = Network(weights=W, inputs=("b", "a"), outputs=("$5",), title="after")
    text = as_svg(laid_out(network, network, places=[grid_positions(n) for n in (2, 3, 1)]))
    assert text.count("<svg") == 1


def test_what_does_not_fit_is_refused():
    places = [line_positions(n) for n in (2, 3, 1)]
    with pytest.raises(ValueError, match=r"weights of shapes \[\(3, 2\), \(1, 3\)\] were wanted"):
        laid_out(Network(weights=W[:1]), places=places)
    with pytest.raises(ValueError, match="at least one network"):
        laid_out(places=places)
    with pytest.raises(ValueError, match="1 or 2 coordinates"):
        laid_out(Network(weights=W), places=[np.ones((n, 3)) for n in (2, 3, 1)])
    with pytest.raises(ValueError, match="longer"):
        laid_out(Network(weights=W, inputs=("a",)), places=places)
