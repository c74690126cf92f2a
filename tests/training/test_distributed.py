import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from lawful.training import Run

SCRIPT = Path(__file__).parent / "processes.py"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
OPTIONS = {"clip": 0.5, "grad_accumulation_steps": 3, "ema_decay": 0.9, "checkpoint_every": 3}
WORLDS = [(size, parallel) for size in (2, 3) for parallel in ("data", "sharded")]
NAMES = [f"{parallel}{size}" for size, parallel in WORLDS]


def run_jobs(folder, jobs):
    """Runs jobs one after the other, and returns the output and exit codes of each."""
    for job in jobs:
        job["folder"] = str(folder / job["name"])
    listed = folder / "jobs.json"
    listed.write_text(json.dumps(jobs))
    command = [sys.executable, SCRIPT, listed]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return {job["name"]: job for job in map(json.loads, done.stdout.splitlines())}


SHARDED = {"size": 2, "parallel": "sharded", **OPTIONS}
STOPPED = {**SHARDED, "signal": [5, 1, "SIGTERM"]}
FAST = [
    {"name": "one", **OPTIONS},
    {"name": "data2", "size": 2, "parallel": "data", **OPTIONS},
    {"name": "sharded3", "size": 3, "parallel": "sharded", **OPTIONS},
    {"name": "stopped", **STOPPED},
    {"name": "stopped, resumed alone", "after": "stopped", **OPTIONS},
    {"name": "killed", "size": 3, "parallel": "data", **OPTIONS, "signal": [7, 1, "SIGKILL"]},
]
LONG = [
    {"name": "nan in the data", **SHARDED, "nan_row": 40},
    {"name": "data3", "size": 3, "parallel": "data", **OPTIONS},
    {"name": "sharded2", **SHARDED},
    {"name": "moved", **STOPPED},
    {"name": "moved on", "after": "moved", "size": 3, "parallel": "data", **OPTIONS, "signal": [8, 2, "SIGINT"]},
    {"name": "moved home", "after": "moved on", **OPTIONS},
    {"name": "killed again", "size": 3, "parallel": "data", **OPTIONS, "signal": [7, 1, "SIGKILL"]},
    {"name": "killed, resumed", "after": "killed again", **SHARDED},
    {"name": "dropout", **SHARDED, "dropout": 0.5},
    {"name": "dropout, stopped", **SHARDED, "dropout": 0.5, "signal": [5, 0, "SIGINT"]},
    {"name": "dropout, resumed", "after": "dropout, stopped", **SHARDED, "dropout": 0.5},
]


@pytest.fixture(scope="module")
def fast_jobs(tmp_path_factory):
    return run_jobs(tmp_path_factory.mktemp("worlds"), FAST)


@pytest.fixture(scope="module")
def long_jobs(tmp_path_factory):
    return run_jobs(tmp_path_factory.mktemp("more_worlds"), LONG)


class Jobs:
    """Jobs by name; the long ones run when the first of them is needed."""

    def __init__(self, request):
        self.request = request

    def __getitem__(self, name):
        fixture = "fast_jobs" if name in [job["name"] for job in FAST] else "long_jobs"
        return self.request.getfixturevalue(fixture)[name]


@pytest.fixture
def jobs(request):
    return Jobs(request)


def long(*values):
    return pytest.param(*values, marks=pytest.mark.long)


def losses(run):
    keys = ("loss", "validation/loss", "learning_rate")
    return [[line[key] for key in keys if key in line] for line in Run(run).metrics]


def assert_same_run(one, other):
    assert [line["step"] for line in Run(one).metrics] == [line["step"] for line in Run(other).metrics]
    for a, b in zip(losses(one), losses(other), strict=True):
        assert a == pytest.approx(b, rel=1e-12)
    for a, b in ((Run(one).weights(), Run(other).weights()), (last(one), last(other))):
        for name in a.keys() | b.keys():
            torch.testing.assert_close(a[name], b[name], rtol=1e-10, atol=1e-12)


def last(run):
    """Returns the last checkpoint without the random states."""
    tensors = Run(run).checkpoints.load_newest().tensors
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("rng")}


@pytest.mark.parametrize("name", ["data2", "sharded3", long("data3"), long("sharded2")])
def test_the_number_of_processes_changes_only_rounding(jobs, name):
    assert jobs[name]["codes"] == [0] * len(jobs[name]["codes"]), jobs[name]["output"]
    assert_same_run(jobs["one"]["run"], jobs[name]["run"])


@pytest.mark.parametrize("name", ["data2", "sharded3", long("data3"), long("sharded2")])
def test_only_rank_0_prints_and_writes(jobs, name):
    first, *others = jobs[name]["output"]
    assert "step 12 of 12" in first
    assert all(output.strip() == f"RUN {jobs[name]['run']}" for output in others)
    run = Run(jobs[name]["run"])
    assert run.report.is_file()
    assert run.results["steps"] == 12


@pytest.mark.parametrize("name", ["stopped, resumed alone", long("moved home"), long("killed, resumed")])
def test_resuming_with_another_number_of_processes(jobs, name):
    assert set(jobs[name]["codes"]) == {0}, jobs[name]["output"]
    assert "resuming after step" in jobs[name]["output"][0]
    assert_same_run(jobs["one"]["run"], jobs[name]["run"])


@pytest.mark.parametrize(("name", "step"), [("stopped", 6), long("moved on", 9), long("dropout, stopped", 6)])
def test_a_signal_to_any_process_stops_all_with_a_checkpoint(jobs, name, step):
    assert set(jobs[name]["codes"]) == {0}
    assert f"stopped after step {step}" in jobs[name]["output"][0]


def test_the_resume_command_has_the_number_of_processes(jobs):
    assert re.search(r"resume with: torchrun --nproc-per-node 2 -m lawful train --resume", jobs["stopped"]["output"][0])


def test_a_lost_process_stops_the_others(jobs):
    killed = jobs["killed"]
    assert killed["codes"] == [3, -9, 1]
    first, _, third = killed["output"]
    assert "lost process 1 at step 8\nthe checkpoint of step 6 is saved; resume with: torchrun" in first
    assert "Traceback" not in first + third
    assert third == ""


@pytest.mark.long
def test_a_resumed_run_is_bitwise_equal_to_an_uninterrupted_one(jobs):
    straight, resumed = Run(jobs["dropout"]["run"]), Run(jobs["dropout, resumed"]["run"])
    assert losses(straight.path) == losses(resumed.path)
    one, other = straight.checkpoints.load_newest().tensors, resumed.checkpoints.load_newest().tensors
    assert one.keys() == other.keys()
    assert {"rng.torch", "rng1.torch"} <= one.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["rng.torch"], one["rng1.torch"])


@pytest.mark.long
def test_the_failing_process_is_named(jobs):
    assert jobs["nan in the data"]["codes"] == [3, 1]
    assert "tensor 0 of the batch is not finite" in jobs["nan in the data"]["output"][0]


def test_each_process_writes_its_own_rows_without_pickle(jobs):
    run = Run(jobs["sharded3"]["run"])
    folder = run.checkpoints.path(12)
    shards = sorted(folder.glob("*.safetensors"))
    assert [path.name for path in shards] == [f"tensors-{i}-of-3.safetensors" for i in (1, 2, 3)]
    rows = []
    for path in shards:
        with safe_open(path, "pt") as file:
            parts = json.loads(file.metadata()["shards"])
            part, (length, _) = parts["model.embed.weight"], file.get_slice("model.embed.weight").get_shape()
            rows.append((part["offsets"][0], length))
            assert part["shape"] == [8, 4]
            assert ("model.head.bias" in parts) == (path == shards[0])
    assert rows == [(0, 3), (3, 3), (6, 2)]
    endings = {path.suffix for path in run.path.rglob("*") if path.is_file() and path.name != ".lock"}
    assert endings <= {".json", ".jsonl", ".safetensors", ".html", ".txt"}


KINDS = {
    "penalty": {"penalty": True},
    "two optimizers": {"two_optimizers": True},
    "muon": {"optimizer": "muon"},
    "max-norm": {"constrain": True, "optimizer": "sgd"},
    "tied": {"tied": True},
    "frozen": {"frozen": True},
}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_other_setups(tmp_path, kind):
    worlds = [{"name": f"{p}{n}", "size": n, "parallel": p, **KINDS[kind]} for n, p in WORLDS]
    jobs = run_jobs(tmp_path, [{"name": "one", **KINDS[kind]}, *worlds])
    for name in NAMES:
        assert set(jobs[name]["codes"]) == {0}, jobs[name]["output"]
        assert_same_run(jobs["one"]["run"], jobs[name]["run"])


@pytest.mark.long
@pytest.mark.parametrize("parallel", ["data", "sharded"])
def test_running_statistics_are_averaged_and_resume_exactly(tmp_path, parallel):
    world = {"size": 3, "parallel": parallel, "norm": True}
    jobs = [
        {"name": "straight", **world},
        {"name": "stopped", **world, "signal": [5, 0, "SIGINT"]},
        {"name": "resumed", "after": "stopped", **world},
    ]
    jobs = run_jobs(tmp_path, jobs)
    assert all(set(entry["codes"]) == {0} for entry in jobs.values()), jobs
    one, other = (Run(jobs[name]["run"]).checkpoints.load_newest().tensors for name in ("straight", "resumed"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert int(one["model.norm.num_batches_tracked"]) == 12


@pytest.mark.long
def test_torchrun_from_the_command_line(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    options = ["--data", "iris", "--epochs", "1", "--law-cases", "0"]
    done = subprocess.run(
        [*torchrun, "-m", "lawful", "train", "classify", *options],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("report: runs/classify-001/report.html") == 1
    assert (tmp_path / "runs" / "classify-001" / "report.html").is_file()


@pytest.mark.long
@pytest.mark.parametrize("lost", [0, 1])
def test_torchrun_names_a_lost_process(tmp_path, lost):
    job = {"folder": str(tmp_path / "runs"), "checkpoint_every": 3, "signal": [7, lost, "SIGKILL"]}
    (tmp_path / "jobs.json").write_text(json.dumps([job]))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--standalone"]
    done = subprocess.run(
        [*torchrun, SCRIPT, tmp_path / "jobs.json"], env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode
    assert done.stdout.count(f"FAILED lost process {lost} at step 8") == 1
    assert done.stdout.count("the checkpoint of step 6 is saved; resume with: torchrun --nproc-per-node 3") == 1
    run = Run(next((tmp_path / "runs").iterdir()))
    assert run.checkpoints.load_newest().step == 6
