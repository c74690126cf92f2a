"""The harnesses of kills, I/O errors, power failures and attacks; `benchmarks/RESULTS.md` has their results."""

import pytest

from tests.faults.harness import run_harness


@pytest.mark.long
@pytest.mark.parametrize(
    ("kinds", "cases"), [(["kill"], 1000), (["error", "full"], 1000), (["power"], 600)], ids=["kill", "error", "power"]
)
def test_failed_calls_of_every_recipe(tmp_path, kinds, cases):
    """Kills, I/O errors and power failures, each up to three quarters of an hour."""
    summary = run_harness("injecting", tmp_path, "--kinds", *kinds, "--cases", str(cases))
    assert sum(summary["cases"].values()) == cases
    assert len(summary["recipes"]) >= 20
    assert summary["failures"] == []


@pytest.mark.long
def test_attacks_on_the_user_of_a_foreign_run(tmp_path):
    summary = run_harness("attacks", tmp_path, "--every", "1", "--strings", "300")
    assert summary["attacks"] >= 800
    assert summary["failures"] == []
