"""Signals and exit codes, in a real process."""

import os
import subprocess
import sys
import textwrap

import pytest

from lawful.training import Run
from tests.scripts import PYTHONPATH, ROOT

SCRIPT = """
    import os, signal, sys, time
    from lawful.training import Run, TrainingFailed, train
    from tests.faults.test_disk import TRAINER, make_setup, refusing
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts without it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
    class Watch:
        def __init__(self, folder):
            self.folder = folder
        def start(self, run, setup):
            self.run = run
        def log(self, step, metrics):
            if step == 6:  # the checkpoint of step 5 is written by a thread
                deadline = time.monotonic() + 10
                while 5 not in self.run.checkpoints.steps() and time.monotonic() < deadline:
                    time.sleep(0.01)
                if 5 in self.run.checkpoints.steps():
                    open(self.folder + "/saved at 5", "w").close()
        def close(self):
            pass
    uninterrupted = train(make_setup(), trainer=TRAINER, output_dir=sys.argv[1] + "/uninterrupted")
    for case in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGINT SIGINT"):
        folder, signals = sys.argv[1] + "/" + case, [signal.Signals[name] for name in case.split()]
        def interrupt():
            for number in signals:
                os.kill(os.getpid(), number)
                time.sleep(0.01)
        print("CASE", case)
        try:
            run = train(make_setup(at=4, do=interrupt), trainer=TRAINER, output_dir=folder, loggers=[Watch(folder)])
            print("returned", run.status)
        except TrainingFailed as failed:
            print("failed", failed)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        run = train(make_setup(), trainer=TRAINER, resume=Run(folder + "/linear-001"))
        assert (run.path / "model.safetensors").read_bytes() == (uninterrupted.path / "model.safetensors").read_bytes()
    try:
        train(make_setup(at=5, do=refusing(28, None)), trainer=TRAINER, output_dir=sys.argv[1])
    except TrainingFailed as failed:
        sys.exit(str(failed))
"""


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """Runs all cases in one process; returns its output by case, its result and the folder."""
    folder = tmp_path_factory.mktemp("signals")
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(SCRIPT), str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1", "COLUMNS": "500"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    cases = dict(text.split("\n", 1) for text in result.stdout.split("CASE ")[1:])
    assert len(cases) == 5, result.stderr
    return cases, result, folder


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_one_signal_finishes_the_step_and_saves(process, name):
    cases, _, folder = process
    assert "stopping after this step; press Ctrl-C again to stop immediately" in cases[name]
    assert f"stopped after step 5; resume with: lawful train --resume {folder / name / 'linear-001'}" in cases[name]
    assert "returned at step 5" in cases[name]
    assert "resuming after step 5" in cases[name]
    assert Run(folder / name / "linear-001").status == "finished"


def test_sigusr1_saves_and_goes_on(process):
    cases, _, folder = process
    assert "saving a checkpoint after this step" in cases["SIGUSR1"]
    assert "returned finished" in cases["SIGUSR1"]
    assert (folder / "SIGUSR1" / "saved at 5").exists()


def test_two_signals_stop_immediately(process):
    output = process[0]["SIGINT SIGINT"]
    assert "failed interrupted\nthe checkpoint of step 4 is saved; resume with: lawful train --resume" in output
    assert "resuming after step 4" in output


def test_a_failure_ends_a_script_with_its_message(process):
    _, result, _ = process
    assert result.returncode == 1
    assert "no space left on the disk\nthe checkpoint of step 4 is saved" in result.stderr
    assert "Traceback" not in result.stderr
