import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.harness import run_harness
from tests.scripts import PYTHONPATH


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    return run_harness("killing", tmp_path_factory.mktemp("kills"), "--points", "6", "--save", "kinds")


def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(summary):
    assert summary["random"]["kills"] >= 6
    assert summary["random"]["failures"] == []


def test_kills_at_each_kind_of_event_of_a_save(summary):
    assert {"mkdir", "fsync", "rename", "unlink", "rmdir"} <= summary["save"]["where"].keys()
    assert summary["save"]["failures"] == []


@pytest.mark.long
def test_two_hundred_kills_and_each_event_of_a_save(tmp_path):
    summary = run_harness("killing", tmp_path, "--points", "200", "--seed", "1", "--save", "all")
    assert summary["random"]["kills"] >= 200
    assert summary["random"]["failures"] == []
    assert summary["save"]["failures"] == []


@pytest.mark.long
def test_killed_torchrun(tmp_path):
    """Both processes are killed at random moments; the resumed run equals an uninterrupted one, bit for bit."""
    summary = kill_torchrun(tmp_path, kills=20, seed=0)
    assert summary["kills"] == 20
    assert summary["equal"]


def kill_torchrun(folder, *, kills, seed):
    """Kills a training with two processes at random moments, and resumes it each time."""
    draw, options = random.Random(seed), ["--threads", "1", "--law-cases", "0", "--checkpoint-every", "3"]
    begin = ["regress", "--data", "diabetes", "--model", "mlp", "--steps", "600", *options]

    def start(*words):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [*torchrun, "-m", "lawful", "train", *words], cwd=folder, env=environment, stdout=subprocess.DEVNULL
        )

    assert start(*begin, "--output-dir", "whole").wait(600) == 0
    process, run, done = start(*begin, "--output-dir", "killed"), folder / "killed" / "regress-001", 0
    while done < kills:
        while process.poll() is None and not list(run.glob("state/step-*")):
            time.sleep(0.02)
        time.sleep(draw.uniform(0, 10))  # starting takes a part of it
        if process.poll() is None:
            workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for pid in (process.pid, *map(int, workers)):
                os.kill(pid, signal.SIGKILL)
            done += 1
        process.wait()
        process = start("--resume", str(run))
    assert process.wait(600) == 0
    weights = [(path / "model.safetensors").read_bytes() for path in (run, folder / "whole" / "regress-001")]
    return {"kills": done, "equal": weights[0] == weights[1]}
