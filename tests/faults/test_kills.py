import json
import os
import subprocess
import sys

import pytest

from tests.scripts import ROOT


def killed(folder, *options):
    """Runs `killing.py` in a process of its own, which may fork, and returns what it tells."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.faults.killing", str(folder), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_run_killed_anywhere_and_resumed_equals_one_that_was_not(tmp_path):
    told = killed(tmp_path, "--points", "20")
    assert told["kills"] >= 20
    assert told["failures"] == []


def test_a_run_killed_at_each_event_of_a_save_equals_one_that_was_not(tmp_path):
    told = killed(tmp_path, "--save")
    assert {"mkdir", "fsync", "rename", "unlink", "rmdir"} <= told["where"].keys()
    assert told["failures"] == []


@pytest.mark.long
def test_two_hundred_kills(tmp_path):
    told = killed(tmp_path, "--points", "200", "--seed", "1")
    assert told["kills"] >= 200
    assert told["failures"] == []
