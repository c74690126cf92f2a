"""Ctrl-C, with real signals to a real process."""

import os
import subprocess
import sys
import textwrap

import pytest

from lawful.training.run import Run
from tests.scripts import ROOT

SCRIPT = """
    import os, signal, sys, time
    from lawful.training.errors import TrainingFailed
    from lawful.training.run import Run
    from lawful.training.trainer import train
    from tests.faults.test_disk import ENGINE, small
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is begun without it
    folder, signals = sys.argv[1], [signal.Signals[name] for name in sys.argv[2:]]
    def interrupt():
        for number in signals:
            os.kill(os.getpid(), number)
            time.sleep(0.01)
    try:
        run = train(small(at=4, do=interrupt), trainer=ENGINE, output_dir=folder)
        print("returned", run.state)
    except TrainingFailed as failed:
        print("failed", failed)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signals.clear()
    whole = train(small(), trainer=ENGINE, output_dir=folder + "/whole")
    run = train(small(), trainer=ENGINE, resume=Run(folder + "/linear-001"))
    assert (run.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()
"""


def signalled(folder, *names):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(SCRIPT), str(folder), *names],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "500"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_once_finishes_the_step_saves_and_says_how_to_go_on(tmp_path, name):
    said = signalled(tmp_path, name)
    assert "stopping after this step; once more to stop at once" in said
    assert f"stopped after step 5; go on with: lawful train --resume {tmp_path / 'linear-001'}" in said
    assert "returned at step 5" in said
    assert "going on after step 5" in said
    assert Run(tmp_path / "linear-001").state == "finished"


def test_twice_stops_at_once(tmp_path):
    said = signalled(tmp_path, "SIGINT", "SIGINT")
    assert "failed stopped at once\nthe checkpoint of step 4 is kept; go on with: lawful train --resume" in said
    assert "going on after step 4" in said
