"""The harnesses of kills, I/O errors, power failures and attacks, at a small size; `benchmarks/RESULTS.md` has more."""

import pytest

from tests.faults.harness import run_harness


@pytest.mark.long
def test_failed_calls_of_every_recipe(tmp_path):
    summary = run_harness("injecting", tmp_path, "--cases", "160")
    assert sum(summary["cases"].values()) == 160
    assert len(summary["recipes"]) >= 20
    assert summary["failures"] == []


@pytest.mark.long
def test_attacks_on_the_user_of_a_foreign_run(tmp_path):
    summary = run_harness("attacks", tmp_path, "--every", "8", "--strings", "240")
    assert summary["attacks"] >= 60
    assert summary["failures"] == []
