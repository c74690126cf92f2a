import math

import numpy as np
import pytest

from lawful.training.report import Curve, charts, envelope, smooth


def noisy(n, seed=0):
    values = np.random.default_rng(seed).normal(size=n)
    return [(step, float(y)) for step, y in enumerate(values)]


def test_figures_of_one_name_share_a_chart_and_the_loss_is_first():
    lines = [
        {"step": 1, "learning_rate": 0.1, "accuracy": 0.1, "loss": 3.0, "time": 0.1},
        {"step": 2, "validation/accuracy": 0.2, "validation/loss": 2.0, "note": "text", "on": True},
        {"step": 2, "loss": 1.0},
    ]
    found = charts(lines)
    assert list(found) == ["loss", "accuracy", "learning_rate"]
    assert found["loss"] == [Curve("training", [(1, 3.0), (2, 1.0)]), Curve("validation", [(2, 2.0)])]


def test_a_step_taken_twice_counts_as_the_second_time():
    lines = [{"step": step, "loss": float(step)} for step in (1, 2, 3)] + [{"step": 2, "loss": -2.0}]
    assert charts(lines)["loss"][0].points == [(1, 1.0), (2, -2.0), (3, 3.0)]


@pytest.mark.parametrize("n", [10, 2000, 2001, 5000, 100003])
def test_an_envelope_is_short_and_keeps_the_extremes(n):
    points = noisy(n)
    kept = envelope(points)
    assert len(kept) <= 2000
    assert set(kept) <= set(points)
    assert kept == sorted(kept)
    values = [y for _, y in points]
    assert (min(y for _, y in kept), max(y for _, y in kept)) == (min(values), max(values))


def test_an_envelope_has_a_gap_where_there_is_no_number():
    points = [(step, math.nan if 4000 <= step < 6000 else 1.0) for step in range(10000)]
    assert {step // 2000 for step, y in envelope(points) if math.isnan(y)} == {2}


def test_smoothing_equals_numpys_running_mean_in_the_middle():
    points = noisy(1000)
    smoothed = np.array([y for _, y in smooth(points)])
    wanted = np.convolve([y for _, y in points], np.full(21, 1 / 21), mode="valid")
    np.testing.assert_allclose(smoothed[10:-10], wanted, atol=1e-12)
    assert smoothed[0] == points[0][1]
    np.testing.assert_allclose(smoothed[-1], np.mean([y for _, y in points[-11:]]))


def test_smoothing_loses_no_digits_and_thins_out():
    points = [(step, 10.0 ** (10 - 25 * step / 20000)) for step in range(20001)]
    smoothed = smooth(points)
    assert len(smoothed) == 1000
    assert (smoothed[0], smoothed[-1][0]) == (points[0], 20000)
    for step, y in smoothed[:-20]:
        assert 0.9 < y / points[step][1] < 1.2


def test_smoothing_passes_over_what_is_not_finite():
    assert smooth([(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0)]) == [(0, 1.0), (3, 1.5)]
    assert smooth([]) == []
