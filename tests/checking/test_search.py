"""The search: the number of the failing case, the time limit, tidy counterexamples, and no files left behind."""

import importlib.util
import json
import math
import sys

import hypothesis.configuration
import pytest
import torch

import lawful
from lawful import mask, probabilities, shape
from lawful.checking.check import SearchBudget, judge_law
from lawful.checking.verdict import Report, Verdict
from lawful.laws import Equal, agreement, all_of, commutativity, law, linearity, oddness


def entries(value):
    """Returns the entries of a tensor of a counterexample as a flat list."""
    flat = value.values
    while flat and isinstance(flat[0], list):
        flat = [x for row in flat for x in row]
    return flat


def judge(f, law, inputs, **budget):
    return judge_law(law, f, inputs, "f", SearchBudget(**budget))


def test_a_failure_is_found_within_the_requested_cases():
    """Hypothesis searches for the failure again; the report shows the first case that failed."""

    def rarely_odd(x):
        return x + ((x > 1.0) & (x < 1.02)).to(x)

    verdicts = [judge(rarely_odd, oddness(), shape("b"), cases=20, seed=seed, shrinks=1) for seed in range(12)]
    found = [verdict.counterexample.case for verdict in verdicts if verdict.status == "refuted"]
    assert found
    assert all(1 <= case <= 20 for case in found)


@law("f(x) = f(x), slowly")
def slow(f, x):
    return Equal(f(x), f(2 * x) / 2)


@pytest.fixture
def timed_out(monkeypatch):
    """The verdict on a law that is stopped after three cases."""
    module = sys.modules["lawful.checking._search"]
    clock = iter(range(10**6))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    return lawful.check(lambda x: x, slow(), inputs=shape("b"), cases=100, timeout=4)["slow"]


def test_a_time_limit_is_part_of_the_verdict(timed_out):
    assert timed_out.status == "held"
    assert timed_out.timed_out
    assert 0 < timed_out.cases < timed_out.requested_cases == 100
    assert f"held in {timed_out.cases} of 100 cases (timed out)" in str(timed_out)
    again = Verdict.from_json(json.loads(json.dumps(timed_out.to_json())))
    assert again.timed_out
    assert again.requested_cases == 100


def test_a_time_limit_is_part_of_the_summary(timed_out):
    complete = lawful.check(lambda x: x, slow(), inputs=shape("b"), cases=5)["slow"]
    assert not complete.timed_out
    assert "timed out" not in str(Report((complete,)))
    assert "2 held (1 timed out)" in str(Report((complete, timed_out)))


def test_a_combined_law_times_out_with_its_parts(monkeypatch):
    module = sys.modules["lawful.checking._search"]
    clock = iter(range(10**6))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    both = all_of(slow(), linearity())
    (found,) = lawful.check(lambda x: x, both, inputs=shape("b"), cases=100, timeout=4)
    assert found.timed_out
    assert found.requested_cases == 200


def test_values_that_must_not_be_zero_become_one():
    found = judge(torch.reciprocal, linearity(), shape("3 9"), cases=20)
    assert set(entries(found.counterexample.inputs[0])) == {1.0}
    assert "[3, 9], all 1\n" in str(found)


def test_a_mask_becomes_true():
    def masked(x, keep):
        return torch.where(keep, x, 0.0)

    other = agreement(other=lambda x, keep: masked(x, keep) + 1)
    found = judge(masked, other, (shape("2 6"), mask("2 6")), cases=20, seed=3)
    assert set(entries(found.counterexample.inputs[1])) == {True}
    assert "bool [2, 6], all True\n" in str(found)


def test_large_values_have_one_digit():
    def overflow(x):
        return torch.where(x.abs() > 1e4, 0.0, x)

    found = judge(overflow, agreement(other=lambda x: x), shape("5"), cases=40)
    (value,) = (x for x in entries(found.counterexample.inputs[0]) if x)
    assert f"{value:.0e}" == f"{value:.3e}".replace(".000", "")


def test_probabilities_become_uniform_or_tenths():
    def divergence(p, q):
        return (p * (p / q).log()).sum(-1)

    found = judge(divergence, commutativity(), (probabilities("b 4"), probabilities("b 4")), cases=20)
    assert found.status == "refuted"
    for value in found.counterexample.inputs:
        assert all(x == round(x, 2) for x in entries(value))


def test_a_simpler_tensor_simplifies_the_others():
    """The replacement can only be simple after the input is."""

    @law("f(x) = f(y)")
    def constant(f, x, *, draw):
        return Equal(f(x), f(draw.like(x)))

    found = judge(lambda x: x.sum(-1), constant(), shape("b 9"), cases=20)
    changed = [x for x in entries(found.counterexample.drawn[0]) if not math.isnan(x)]
    assert changed == [1.0]
    assert not any(entries(found.counterexample.inputs[0]))


def test_no_hypothesis_folder(tmp_path, monkeypatch):
    home = tmp_path / ".hypothesis"
    path = tmp_path / "local_constants.py"
    path.write_text("LIMIT = 12345\n")
    spec = importlib.util.spec_from_file_location("local_constants", path)
    monkeypatch.setitem(sys.modules, "local_constants", importlib.util.module_from_spec(spec))
    before = hypothesis.configuration.storage_directory(intent_to_write=False).home_directory
    hypothesis.configuration.set_hypothesis_home_dir(home)
    try:
        for seed in range(20):  # Hypothesis reads the constants of local files in few cases
            assert judge(torch.neg, oddness(), shape("b"), cases=10, seed=seed).status == "held"
        assert hypothesis.configuration.storage_directory(intent_to_write=False).home_directory == home
    finally:
        hypothesis.configuration.set_hypothesis_home_dir(before)
    assert not home.exists()
