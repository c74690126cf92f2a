import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from lawful.training.run import Run

SCRIPT = Path(__file__).parent / "processes.py"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
HARD = {"clip": 0.5, "accumulate": 3, "average": 0.9, "save": 3}
WORLDS = [(size, parallel) for size in (2, 3) for parallel in ("data", "sharded")]
NAMES = [f"{parallel}{size}" for size, parallel in WORLDS]


def together(folder, jobs):
    """Runs jobs, one after the other, and returns what became of each."""
    for job in jobs:
        job["folder"] = str(folder / job["name"])
    listed = folder / "jobs.json"
    listed.write_text(json.dumps(jobs))
    command = [sys.executable, SCRIPT, listed]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return {found["name"]: found for found in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    worlds = [{"name": f"{p}{n}", "size": n, "parallel": p, **HARD} for n, p in WORLDS]
    sharded = {"size": 2, "parallel": "sharded", **HARD}
    jobs = [
        {"name": "one", **HARD},
        *worlds,
        {"name": "moved", **sharded, "signal": [5, 1, "SIGTERM"]},
        {"name": "moved on", "after": "moved", "size": 3, "parallel": "data", **HARD, "signal": [8, 2, "SIGINT"]},
        {"name": "moved home", "after": "moved on", **HARD},
        {"name": "killed", "size": 3, "parallel": "data", **HARD, "signal": [7, 1, "SIGKILL"]},
        {"name": "killed, resumed", "after": "killed", **sharded},
        {"name": "dropout", **sharded, "dropout": 0.5},
        {"name": "dropout, stopped", **sharded, "dropout": 0.5, "signal": [5, 0, "SIGINT"]},
        {"name": "dropout, resumed", "after": "dropout, stopped", **sharded, "dropout": 0.5},
        {"name": "poisoned", **sharded, "poisoned": 40},
    ]
    return together(tmp_path_factory.mktemp("worlds"), jobs)


def losses(run):
    keys = ("loss", "validation/loss", "learning_rate")
    return [[line[key] for key in keys if key in line] for line in Run(run).metrics()]


def assert_same_training(one, other):
    assert [line["step"] for line in Run(one).metrics()] == [line["step"] for line in Run(other).metrics()]
    for a, b in zip(losses(one), losses(other), strict=True):
        assert a == pytest.approx(b, rel=1e-12)
    for a, b in ((Run(one).weights(), Run(other).weights()), (last(one), last(other))):
        for name in a.keys() | b.keys():
            torch.testing.assert_close(a[name], b[name], rtol=1e-10, atol=1e-12)


def last(run):
    """The last checkpoint but for what belongs to each process."""
    tensors = Run(run).checkpoints.newest().tensors
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("random")}


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_processes_changes_nothing_but_rounding(found, name):
    assert found[name]["codes"] == [0] * len(found[name]["codes"]), found[name]["said"]
    assert_same_training(found["one"]["run"], found[name]["run"])


@pytest.mark.parametrize("name", NAMES)
def test_only_the_first_process_speaks_and_writes(found, name):
    first, *others = found[name]["said"]
    assert "step 12 of 12" in first
    assert all(said.strip() == f"RUN {found[name]['run']}" for said in others)
    run = Run(found[name]["run"])
    assert run.report.is_file()
    assert run.results["steps"] == 12


@pytest.mark.parametrize("name", ["moved home", "killed, resumed"])
def test_a_run_goes_on_with_another_number_of_processes(found, name):
    assert set(found[name]["codes"]) == {0}, found[name]["said"]
    assert "going on after step" in found[name]["said"][0]
    assert_same_training(found["one"]["run"], found[name]["run"])


@pytest.mark.parametrize(("name", "step"), [("moved", 6), ("moved on", 9), ("dropout, stopped", 6)])
def test_the_wish_of_any_process_stops_all_with_a_checkpoint(found, name, step):
    assert set(found[name]["codes"]) == {0}
    assert f"stopped after step {step}" in found[name]["said"][0]


def test_how_to_go_on_is_with_as_many_processes(found):
    assert re.search(r"go on with: torchrun --nproc-per-node 2 -m lawful train --resume", found["moved"]["said"][0])


def test_a_lost_process_stops_the_rest_and_loses_nothing(found):
    killed = found["killed"]
    assert killed["codes"] == [3, -9, 1]
    first, _, third = killed["said"]
    assert "process 1 was lost at step 8\nthe checkpoint of step 6 is kept; go on with: torchrun" in first
    assert "Traceback" not in first + third
    assert third == ""


def test_a_resumed_run_is_bitwise_that_which_was_never_stopped(found):
    straight, resumed = Run(found["dropout"]["run"]), Run(found["dropout, resumed"]["run"])
    assert losses(straight.path) == losses(resumed.path)
    one, other = straight.checkpoints.newest().tensors, resumed.checkpoints.newest().tensors
    assert one.keys() == other.keys()
    assert {"random.torch", "random1.torch"} <= one.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["random.torch"], one["random1.torch"])


def test_the_process_with_the_bad_example_is_heard(found):
    assert found["poisoned"]["codes"] == [3, 1]
    assert "the batch itself is not finite (tensor 0)" in found["poisoned"]["said"][0]


def test_each_process_writes_its_own_rows_and_nothing_is_pickled(found):
    run = Run(found["sharded3"]["run"])
    folder = run.checkpoints.at(12)
    shards = sorted(folder.glob("*.safetensors"))
    assert [path.name for path in shards] == [f"tensors-{i}-of-3.safetensors" for i in (1, 2, 3)]
    rows = []
    for path in shards:
        with safe_open(path, "pt") as file:
            parts = json.loads(file.metadata()["parts"])
            part, (length, _) = parts["model.embed.weight"], file.get_slice("model.embed.weight").get_shape()
            rows.append((part["offsets"][0], length))
            assert part["shape"] == [8, 4]
            assert ("model.head.bias" in parts) == (path == shards[0])
    assert rows == [(0, 3), (3, 3), (6, 2)]
    endings = {path.suffix for path in run.path.rglob("*") if path.is_file()}
    assert endings <= {".json", ".jsonl", ".safetensors", ".html", ".txt"}


KINDS = {
    "penalty": {"penalty": True},
    "players": {"players": True},
    "muon": {"optimizer": "muon"},
    "max-norm": {"constrain": True, "optimizer": "sgd"},
    "tied": {"tied": True},
    "frozen": {"frozen": True},
}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_other_trainings_too(tmp_path, kind):
    worlds = [{"name": f"{p}{n}", "size": n, "parallel": p, **KINDS[kind]} for n, p in WORLDS]
    found = together(tmp_path, [{"name": "one", **KINDS[kind]}, *worlds])
    for name in NAMES:
        assert set(found[name]["codes"]) == {0}, found[name]["said"]
        assert_same_training(found["one"]["run"], found[name]["run"])


@pytest.mark.long
@pytest.mark.parametrize("parallel", ["data", "sharded"])
def test_running_statistics_are_the_same_in_every_process_and_resume_exactly(tmp_path, parallel):
    world = {"size": 3, "parallel": parallel, "norm": True}
    jobs = [
        {"name": "straight", **world},
        {"name": "stopped", **world, "signal": [5, 0, "SIGINT"]},
        {"name": "resumed", "after": "stopped", **world},
    ]
    found = together(tmp_path, jobs)
    assert all(set(entry["codes"]) == {0} for entry in found.values()), found
    one, other = (Run(found[name]["run"]).checkpoints.newest().tensors for name in ("straight", "resumed"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert int(one["model.norm.num_batches_tracked"]) == 12


def test_under_torchrun_the_command_line_ends_well(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    options = ["--data", "iris", "--epochs", "1", "--laws", "0"]
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
def test_under_torchrun_a_lost_process_is_named(tmp_path, lost):
    job = {"folder": str(tmp_path / "runs"), "save": 3, "signal": [7, lost, "SIGKILL"]}
    (tmp_path / "jobs.json").write_text(json.dumps([job]))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--standalone"]
    done = subprocess.run(
        [*torchrun, SCRIPT, tmp_path / "jobs.json"], env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode
    assert done.stdout.count(f"FAILED process {lost} was lost at step 8") == 1
    assert done.stdout.count("the checkpoint of step 6 is kept; go on with: torchrun --nproc-per-node 3") == 1
    run = Run(next((tmp_path / "runs").iterdir()))
    assert run.checkpoints.newest().step == 6
