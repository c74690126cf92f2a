import time

import pytest
import torch

from lawful.training.trainer import candidates, fastest


@pytest.fixture(autouse=True)
def _kept():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_candidates_double_up_to_what_is_allowed(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(6))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert candidates() == [1, 2, 4, 6]
    for allowed, wanted in (("3", [1, 2, 3]), ("0", [1, 2, 4, 6]), ("4,2", [1, 2, 4, 6]), ("99", [1, 2, 4, 6])):
        monkeypatch.setenv("OMP_NUM_THREADS", allowed)
        assert candidates() == wanted


@pytest.mark.parametrize(
    ("seconds", "wanted"), [({1: 9, 2: 3, 4: 8}, 2), ({1: 9, 2: 8.5, 4: 8.2}, 1), ({1: 1, 2: 5, 4: 5}, 1)]
)
def test_the_fastest_is_taken_and_more_only_if_they_save_a_tenth(monkeypatch, seconds, wanted):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def step():
        now[0] += seconds[torch.get_num_threads()] / 1000

    best, took = fastest(step, among=[1, 2, 4])
    assert best == wanted == torch.get_num_threads()
    assert took == pytest.approx({n: value / 1000 for n, value in seconds.items()})


def test_slow_steps_are_timed_once(monkeypatch):
    now, calls = [0.0], []
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def step():
        calls.append(torch.get_num_threads())
        now[0] += 10

    fastest(step, among=[1, 2])
    assert calls == [1, 1, 2, 2]
