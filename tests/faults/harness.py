"""Runs the harnesses, which fork, in processes of their own."""

import json
import os
import subprocess
import sys

from tests.scripts import PYTHONPATH, ROOT


def run_harness(name, folder, *options):
    """Runs a module of this package in its own process, which may fork, and returns its summary."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"tests.faults.{name}", str(folder), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=7200,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
