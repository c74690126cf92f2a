import math
import re

import numpy as np
import pytest

from lawful.training.report import Curve, chart


def layer(page, kind):
    return re.search(f"<g class={kind}>(.*?)</g>(?=<g class=l|<line)", page)[1]


def places(path):
    return np.array([[float(x) for x in pair.split(",")] for pair in re.findall(r"[\d.]+,[\d.]+", path)])


@pytest.mark.parametrize("kind", ["linear", "log"])
def test_curves_are_where_their_values_are(kind):
    points = [(step, 10.0 ** -(step / 10)) for step in range(1, 31)]
    page = chart("loss", [Curve("training", points)], number=0)
    at = places(re.search(r'class="curve s0" d="([^"]*)"', layer(page, kind))[1])
    values = np.array([math.log10(y) if kind == "log" else y for _, y in points])
    for axis, wanted in ((0, np.arange(1, 31)), (1, values)):
        slope, start = np.polyfit(wanted, at[:, axis], 1)
        np.testing.assert_allclose(at[:, axis], slope * wanted + start, atol=0.1)
        assert slope > 0 if axis == 0 else slope < 0
    assert (at >= 0).all()
    assert (at <= (720, 300)).all()
    assert "checked" in page


def test_ticks_are_round_and_where_they_say():
    page = chart("accuracy", [Curve("validation", [(step, step / 1000) for step in range(100, 901, 100)])], number=0)
    found = re.findall(r'class=y [^>]*y="([\d.]+)">([^<]*)<', layer(page, "linear"))
    ticks = [(float(y), float(text)) for y, text in found]
    assert [value for _, value in ticks] == [0.2, 0.4, 0.6, 0.8]
    np.testing.assert_allclose(np.diff([y for y, _ in ticks]), np.diff([y for y, _ in ticks])[0], atol=0.11)


def test_zero_and_less_have_no_logarithm():
    page = chart("loss", [Curve("training", [(1, 1.0), (2, 0.0), (3, -1.0)])], number=0)
    assert "logarithmic" not in page


def test_a_gap_stays_a_gap_and_is_told():
    page = chart("loss", [Curve("training", [(1, 3.0), (2, math.nan), (3, math.inf), (4, 2.0)])], number=0)
    assert "2 not finite, the first at step 2" in page
    assert re.search(r'class="curve s0" d="([^"]*)"', page)[1].count("M") == 2
    assert "no finite value" in chart("loss", [Curve("training", [(1, math.nan)])], number=0)


def test_numbers_at_the_ends_of_what_there_is_are_drawn():
    for values in ((5e-324, 1e-300), (1e300, -1e300), (1e300, 1e-300), (1e16, 1e16 + 2)):
        points = [(step, values[step % 2]) for step in range(100)]
        assert "nan" not in chart("loss", [Curve("training", points)], number=0)
