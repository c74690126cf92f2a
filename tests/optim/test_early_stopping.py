import json
from dataclasses import asdict

import pytest

from lawful.optim import EarlyStopping


def after(record, values):
    for step, value in enumerate(values):
        record = record.seen(value, step)
    return record


def test_stops_when_nothing_better_comes():
    values = [3.0, 2.0, 2.5, 2.0, 1.9, 2.0, 2.0, 2.0]
    stops = [after(EarlyStopping(patience=3), values[:n]).stop for n in range(len(values) + 1)]
    assert stops == [False] * 8 + [True]
    assert after(EarlyStopping(patience=3), values).step == 4
    assert not after(EarlyStopping(), values * 100).stop


def test_larger_may_be_better():
    record = after(EarlyStopping(patience=2, higher_is_better=True), [0.5, 0.9, 0.8])
    assert (record.best, record.step, record.since, record.improved, record.stop) == (0.9, 1, 1, False, False)
    assert record.seen(1.0, 3).improved


def test_what_is_not_a_number_is_never_the_best():
    record = after(EarlyStopping(patience=2), [float("nan"), float("-inf")])
    assert (record.best, record.improved, record.stop) == (None, False, True)
    assert record.seen(5.0, 2).best == 5.0


def test_makes_the_round_trip_through_json():
    record = after(EarlyStopping(patience=2), [3.0, 0.1 + 0.2, 4.0])
    assert EarlyStopping(**json.loads(json.dumps(asdict(record)))) == record


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="patience is at least 1: got 0"):
        EarlyStopping(patience=0)
