import json
import os
import subprocess
import sys

import pytest

from tests.scripts import PYTHONPATH, ROOT


def run_killing_script(folder, *options):
    """Runs `killing.py` in its own process, which may fork, and returns its summary."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.faults.killing", str(folder), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    return run_killing_script(tmp_path_factory.mktemp("kills"), "--points", "6", "--save", "kinds")


def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(summary):
    assert summary["random"]["kills"] >= 6
    assert summary["random"]["failures"] == []


def test_kills_at_each_kind_of_event_of_a_save(summary):
    assert {"mkdir", "fsync", "rename", "unlink", "rmdir"} <= summary["save"]["where"].keys()
    assert summary["save"]["failures"] == []


@pytest.mark.long
def test_two_hundred_kills_and_each_event_of_a_save(tmp_path):
    summary = run_killing_script(tmp_path, "--points", "200", "--seed", "1", "--save", "all")
    assert summary["random"]["kills"] >= 200
    assert summary["random"]["failures"] == []
    assert summary["save"]["failures"] == []
