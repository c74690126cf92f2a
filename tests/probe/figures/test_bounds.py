"""Figures of bounds."""

import numpy as np
import pytest
import torch

from lawful.probe.figures import convergence_bounds, optimizer_spectra, output_intervals, save
from lawful.theory import gradient_descent, quadratic_spectrum


def test_the_gap_is_drawn_below_its_bound(tmp_path):
    run = gradient_descent(lambda x: x.square().sum(), torch.ones(2), lipschitz=8, minimizer=torch.zeros(2), steps=30)
    figure = convergence_bounds({"gradient descent": (run.gap, run.bound)})
    gap, bound = figure.axes[0].lines
    np.testing.assert_allclose(gap.get_ydata(), run.gap)
    assert (gap.get_ydata()[1:] <= bound.get_ydata()).all()
    assert bound.get_xdata()[0] == 1
    assert figure.axes[0].get_yscale() == "log"
    save(figure, tmp_path / "a.png")


def test_the_factor_is_the_largest_root(tmp_path):
    spectrum = quadratic_spectrum(torch.tensor([3.0, 1.0, 30.0]), learning_rate=0.1, momentum=0.5)
    figure = optimizer_spectra({"heavy ball": (spectrum.curvatures, spectrum.roots)})
    line = figure.axes[0].lines[1]
    assert line.get_xdata().tolist() == [1, 3, 30]
    np.testing.assert_allclose(line.get_ydata(), spectrum.radii)
    assert len(figure.axes[1].lines[1].get_xdata()) == 6
    save(figure, tmp_path / "a.png")


def test_intervals_are_drawn_with_the_function(tmp_path):
    figure = output_intervals([0, 1, 2], {"wide": ([0, 0], [2, 3]), "tight": ([0, 1], [1, 2])}, x=[0, 2], y=[0, 2])
    axes = figure.axes[0]
    assert len(axes.collections) == 2
    assert axes.lines[0].get_ydata().tolist() == [0, 2]
    save(figure, tmp_path / "a.png")


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="runs must not be empty"):
        convergence_bounds({})
    with pytest.raises(ValueError, match="gap and bound of 'a' must be of equal length"):
        convergence_bounds({"a": ([1.0], [1.0, 2.0])})
    with pytest.raises(ValueError, match=r"roots of 'a' must be of shape \(2, 2\): got \(2,\)"):
        optimizer_spectra({"a": ([1.0, 2.0], torch.ones(2))})
    with pytest.raises(ValueError, match="spectra must not be empty"):
        optimizer_spectra({})
    with pytest.raises(ValueError, match=r"bounds of 'a' must be of shape \(1,\): got \(2,\)"):
        output_intervals([0, 1], {"a": ([0, 1], [0, 1])}, x=[0], y=[0])
