import math

from lawful.training.loggers import LEVELS, duration, sparkline, without_controls


def test_a_sparkline_rises_and_falls_with_its_values():
    assert sparkline([]) == ""
    assert sparkline([2.0]) == "▁"
    assert sparkline([math.nan] * 3) == "xxx"
    assert sparkline([-1.0, 0.0, 1.0]) == "▁▅█"
    assert sparkline([1e-6, 1e-3, 1.0]) == "▁▅█"
    assert len(sparkline(range(1000))) == 30
    heights = [LEVELS.index(c) for c in sparkline(range(1000))]
    assert heights == sorted(heights)
    assert sparkline([0.0, 1.0, 100.0]) == "▁▁█"


def test_times_are_written_for_people():
    times = {0: "0:00", 59.6: "1:00", 3599: "59:59", 3600: "1:00:00", 86400: "24:00:00", 172800: "2 d 0 h"}
    assert {seconds: duration(seconds) for seconds in times} == times
    assert duration(math.inf) == duration(math.nan) == "-"


def test_nothing_steers_the_terminal():
    assert without_controls("a\x1b]0;title\x07\r\x9b31m\u202eb\n") == "a ]0;title   31m b\n"
