"""Figures of state-space layers: they draw what they are given, with labels and units."""

import numpy as np
import pytest
import torch

from lawful.functions import hippo_memory as reconstruct
from lawful.probe import figures

FREQUENCIES = torch.linspace(0.0, 0.5, 9)
SIGNAL = torch.linspace(0.0, 9.0, 60).sin()
MODES = torch.tensor([[-0.1 + 40j, -0.1 - 40j], [-0.01 + 1j, 0.01 - 1j]])


def test_impulse_responses_begin_at_lag_1():
    figure = figures.impulse_response(torch.eye(20)[:, :5], max_channels=3)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["channel 0", "channel 10", "channel 19"]
    _, line = figures.impulse_response([[9.0, 0.5, 0.25]], names=["a"]).axes[0].lines
    np.testing.assert_allclose(line.get_xydata(), [[1, 0.5], [2, 0.25]])


def test_spectrum_draws_decaying_modes():
    axes = figures.spectrum(MODES, names=["fast", "slow"]).axes[0]
    fast, slow, *_ = axes.lines
    np.testing.assert_allclose(fast.get_xydata(), [[0.1, 40], [0.1, -40]], rtol=1e-6)
    np.testing.assert_allclose(slow.get_xydata(), [[0.01, 1]], rtol=1e-6)
    assert axes.get_title() == "1 of 4 modes do not decay"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["fast", "slow", "Nyquist frequency"]
    assert (axes.get_xscale(), axes.get_yscale(), axes.xaxis_inverted()) == ("log", "symlog", True)


def test_time_scales_are_sorted():
    axes = figures.time_scales([[5.0, 100.0], [1.0, 10.0]], length=64).axes[0]
    _, longest, length = axes.lines
    np.testing.assert_allclose(longest.get_ydata(), [10, 100])
    assert length.get_label() == "signal: 64 samples"


def test_frequency_response_leaves_out_frequency_0():
    phase = torch.linspace(0.0, -6.0, 9)[None]
    top, bottom = figures.frequency_response(FREQUENCIES, torch.ones(1, 9), torch.remainder(phase, 6.2831853)).axes
    np.testing.assert_allclose(top.lines[0].get_xdata(), FREQUENCIES[1:])
    np.testing.assert_allclose(np.diff(bottom.lines[0].get_ydata()), np.diff(phase[0, 1:]), rtol=1e-5)
    assert (bottom.get_xlabel(), bottom.get_ylabel()) == ("frequency [cycles/sample]", "phase [rad]")


def test_memory_shows_the_signal_and_the_reconstructions():
    memories = {n: reconstruct(SIGNAL, n, dt=0.5) for n in (2, 8)}
    figure = figures.hippo_memory(SIGNAL, memories, dt=0.5, unit="s")
    for axes, memory in zip(figure.axes, memories.values(), strict=True):
        signal, remembered = axes.lines
        np.testing.assert_allclose(signal.get_ydata(), SIGNAL)
        np.testing.assert_allclose(remembered.get_ydata(), memory.values)
        np.testing.assert_allclose(remembered.get_xdata(), signal.get_xdata())
        assert f"{memory.error:.2g}" in axes.get_title()
    assert figure.axes[-1].get_xlabel() == "time [s]"


def test_the_nyquist_frequency_is_drawn_if_a_mode_is_near_it():
    for frequency, lines in ((0.1, 0), (2.0, 2)):
        modes = torch.tensor([[-0.1 + 1j * frequency, -0.1 - 1j * frequency]])
        assert len(figures.spectrum(modes).axes[0].lines) == 1 + lines


def test_memory_may_store_states():
    figure = figures.hippo_memory(SIGNAL, {4: reconstruct(SIGNAL, 4)}, numbers="states")
    assert figure.axes[0].get_title().startswith("4 states, relative error")


def test_memory_errors_are_drawn_where_they_are_finite():
    errors = {"legs": {8: 0.5, 16: 0.1, 32: 1e-12}, "legt": {8: 0.6, 16: np.inf, 32: np.nan}}
    axes = figures.memory_errors(errors, references=["legt"]).axes[0]
    legs, legt = axes.lines
    np.testing.assert_allclose(legs.get_xydata(), [[8, 0.5], [16, 0.1], [32, 1e-12]])
    np.testing.assert_allclose(legt.get_xydata(), [[8, 0.6]])
    assert legt.get_color() != legs.get_color()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["8", "16", "32"]
    assert axes.get_ylim()[0] == 1e-7
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    with pytest.raises(ValueError, match="expected at least one memory with errors by size"):
        figures.memory_errors({})
    with pytest.raises(ValueError, match="expected at least one memory with errors by size"):
        figures.memory_errors({"legs": {}})


def test_figures_are_saved_without_warnings(tmp_path):
    drawn = (
        figures.impulse_response(torch.zeros(1, 4)),
        figures.spectrum(MODES[1:, :1]),
        figures.time_scales(torch.ones(3, 1)),
        figures.frequency_response(FREQUENCIES, torch.ones(6, 9), torch.zeros(6, 9)),
        figures.hippo_memory(torch.zeros(5), {1: reconstruct(torch.zeros(5), 1)}),
    )
    for figure in drawn:
        figures.save(figure, tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: figures.impulse_response([[1.0]]), r"at least two samples, got shape \(1, 1\)"),
        (lambda: figures.impulse_response(np.ones((2, 3)), names=["a"]), "expected 2 names, got 1"),
        (lambda: figures.spectrum(torch.zeros(2, 0)), r"not be empty, got shape \(2, 0\)"),
        (lambda: figures.time_scales(np.ones((2, 2, 2))), r"one row per channel .* got shape \(2, 2, 2\)"),
        (lambda: figures.frequency_response([0.0], [[1.0]], [[0.0]]), "with a positive frequency"),
        (lambda: figures.frequency_response([0.1], [[1.0]], [[0.0], [1.0]]), r"got \(1,\), \(1, 1\) and \(2, 1\)"),
        (lambda: figures.hippo_memory(SIGNAL, {}), "at least one memory"),
    ],
)
def test_invalid_arguments_raise(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
