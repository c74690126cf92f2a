import json
from dataclasses import asdict

import pytest

from lawful.optim import EarlyStopping


def after(stopping, values):
    for step, value in enumerate(values):
        stopping = stopping.update(value, step)
    return stopping


def test_stops_after_patience_evaluations_without_improvement():
    values = [3.0, 2.0, 2.5, 2.0, 1.9, 2.0, 2.0, 2.0]
    stops = [after(EarlyStopping(patience=3), values[:n]).should_stop for n in range(len(values) + 1)]
    assert stops == [False] * 8 + [True]
    assert after(EarlyStopping(patience=3), values).best_step == 4
    assert not after(EarlyStopping(), values * 100).should_stop


def test_higher_is_better():
    stopping = after(EarlyStopping(patience=2, higher_is_better=True), [0.5, 0.9, 0.8])
    assert (stopping.best, stopping.best_step, stopping.num_bad_evals, stopping.improved, stopping.should_stop) == (
        0.9,
        1,
        1,
        False,
        False,
    )
    assert stopping.update(1.0, 3).improved


def test_nan_and_infinity_are_never_the_best():
    stopping = after(EarlyStopping(patience=2), [float("nan"), float("-inf")])
    assert (stopping.best, stopping.improved, stopping.should_stop) == (None, False, True)
    assert stopping.update(5.0, 2).best == 5.0


def test_json_round_trip():
    stopping = after(EarlyStopping(patience=2), [3.0, 0.1 + 0.2, 4.0])
    assert EarlyStopping(**json.loads(json.dumps(asdict(stopping)))) == stopping


def test_patience_is_at_least_one():
    with pytest.raises(ValueError, match="patience must be at least 1, got 0"):
        EarlyStopping(patience=0)
