import ctypes
import random
import resource
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lawful.data.batches import ShuffledBatches
from lawful.training import Checkpoints, OptimizerStep, Run, TrainerConfig, TrainingFailed, TrainingSetup, train
from lawful.training import trainer as trainer_module
from lawful.training.trainer import _fastest, _keep_freed_memory, _return_freed_memory, _thread_counts

ENGINE = TrainerConfig(threads=1, checkpoint_every=4, law_cases=0)


def plan(steps=6, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    x = torch.randn(12, 3)
    turn = OptimizerStep(
        loss_fn=lambda m, b: m(b[0]).square().mean(), optimizer=torch.optim.Adam(model.parameters(), lr=0.1)
    )
    return TrainingSetup(
        model=model, optimizer_steps=[turn], batches=ShuffledBatches(x, batch_size=4, seed=0), steps=steps, **options
    )


def test_files_of_a_run(tmp_path):
    training = plan()
    run = train(training, trainer=ENGINE, output_dir=tmp_path)
    assert {"config.json", "model.safetensors", "metrics.jsonl", "results.json", "report.html", "log.txt"} <= {
        path.name for path in run.path.iterdir()
    }
    assert [line["step"] for line in run.metrics] == [1, 2, 3, 4, 5, 6]
    assert run.results["steps"] == 6
    assert run.checkpoints.steps() == [4, 6]
    for name, tensor in load_file(run.path / "model.safetensors").items():
        assert torch.equal(tensor, training.model.state_dict()[name])


def test_early_stopping_restores_the_best_weights(tmp_path):
    seen, figures = [], iter([3.0, 1.0, 2.0, 2.0])

    def evaluate(model):
        seen.append({name: t.clone() for name, t in model.state_dict().items()})
        return {"loss": next(figures)}

    training = plan(steps=50, evaluate=evaluate, eval_every=3, patience=2)
    run = train(
        training,
        trainer=TrainerConfig(threads=1, checkpoint_every=2, keep_checkpoints=1, law_cases=0),
        output_dir=tmp_path,
    )
    weights = run.weights()
    assert run.results["steps"] == 12
    assert all(torch.equal(weights[name], tensor) for name, tensor in seen[1].items())


@pytest.mark.parametrize(("patience", "kept"), [(None, [1, 8, 12]), (3, [1, 8])])
def test_better_evaluations_in_quick_succession_are_saved_once(tmp_path, monkeypatch, patience, kept):
    seen, written, write = [], [], Checkpoints.save

    def evaluate(model):
        seen.append({name: t.clone() for name, t in model.state_dict().items()})
        return {"loss": abs(8.0 - len(seen))}

    def noted(self, checkpoint, **options):
        written.append(checkpoint.step)
        write(self, checkpoint, **options)

    monkeypatch.setattr(Checkpoints, "save", noted)
    monkeypatch.setattr(trainer_module, "_BEST_SECONDS", 1e9)
    training = plan(steps=12, evaluate=evaluate, eval_every=1, patience=patience)
    run = train(training, trainer=TrainerConfig(threads=1, keep_checkpoints=1, law_cases=0), output_dir=tmp_path)
    assert written == kept
    best = run.checkpoints.load(8)
    assert all(torch.equal(best.tensors[f"model.{name}"], tensor) for name, tensor in seen[7].items())
    assert best.metadata["progress"]["step"] == 8


def test_checkpoints_by_time(tmp_path):
    trainer = replace(ENGINE, checkpoint_every=1000, keep_checkpoints=9)
    assert train(plan(), trainer=trainer, output_dir=tmp_path).checkpoints.steps() == [6]
    often = train(plan(), trainer=replace(trainer, checkpoint_minutes=1e-9), output_dir=tmp_path)
    assert often.checkpoints.steps() == [1, 2, 3, 4, 5, 6]
    never = train(plan(), trainer=replace(trainer, checkpoint_minutes=0), output_dir=tmp_path)
    assert never.checkpoints.steps() == [6]


def test_training_goes_on_while_a_copy_of_the_state_is_written(tmp_path, monkeypatch):
    true, later, steps_at_save = Checkpoints.save, threading.Event(), []

    def slow(self, checkpoint, **options):
        assert later.wait(60)
        steps_at_save.append(checkpoint.step)
        true(self, checkpoint, **options)

    class Watch(Recorder):
        def log(self, step, metrics):
            if step == 6:
                assert steps_at_save == []  # of step 4
                later.set()

    monkeypatch.setattr(Checkpoints, "save", slow)
    run = train(plan(), trainer=ENGINE, output_dir=tmp_path, loggers=[Watch()])
    monkeypatch.undo()
    assert steps_at_save == [4, 6]
    expected = train(plan(), trainer=replace(ENGINE, checkpoint_every=1), output_dir=tmp_path / "other")
    for name, tensor in expected.checkpoints.load(6).tensors.items():
        assert torch.equal(run.checkpoints.load(6).tensors[name], tensor)
    assert run.checkpoints.load(4).metadata["progress"]["step"] == 4


class Recorder:
    """A logger that does nothing."""

    def start(self, run, setup):
        pass

    def log(self, step, metrics):
        pass

    def close(self):
        pass


def test_random_states_and_threads_of_the_caller_are_restored(tmp_path):
    def states():
        return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state()), torch.get_num_threads()

    training = plan()
    before = states()
    train(training, trainer=ENGINE, output_dir=tmp_path)
    assert states() == before


def test_measuring_threads_has_no_side_effects(tmp_path, monkeypatch):
    def twice(step, counts):
        step(), step()
        return 1, {1: 0.1, 2: 0.2}

    monkeypatch.setattr(trainer_module, "_thread_counts", lambda: [1, 2])
    monkeypatch.setattr(trainer_module, "_fastest", twice)
    noisy = {"augment": lambda b: (b[0] + torch.randn_like(b[0]) + random.random() + np.random.rand(),)}
    measured = train(plan(**noisy), trainer=TrainerConfig(checkpoint_every=4, law_cases=0), output_dir=tmp_path)
    timed = train(plan(**noisy), trainer=ENGINE, output_dir=tmp_path)
    assert measured.config["threads"] == 1
    assert all(torch.equal(a, timed.weights()[name]) for name, a in measured.weights().items())


def test_a_resumed_run_uses_its_number_of_threads(tmp_path):
    used = []
    watched = {"augment": lambda batch: (used.append(torch.get_num_threads()), batch)[1]}
    run = train(plan(steps=2), trainer=TrainerConfig(threads=2, law_cases=0), output_dir=tmp_path)
    train(plan(steps=3, **watched), trainer=TrainerConfig(threads=1, law_cases=0), resume=Run(run.path))
    assert used == [2]


def test_resuming_a_finished_run_says_that_nothing_is_trained(tmp_path, capsys):
    run = train(plan(steps=2), trainer=ENGINE, output_dir=tmp_path)
    train(plan(steps=2), trainer=ENGINE, resume=Run(run.path))
    assert "all 2 steps are done: evaluating the model again" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["x", -1, 1.5, 10**6])
def test_an_invalid_number_of_threads_is_refused(tmp_path, wrong):
    run = train(plan(steps=1), trainer=ENGINE, output_dir=tmp_path)
    run.config["threads"] = wrong
    with pytest.raises(TrainingFailed, match=r"threads in config.json must be from 1 to 1024"):
        train(plan(), trainer=ENGINE, resume=run)


def test_resuming_with_other_data_is_refused(tmp_path):
    run = train(plan(steps=1, data_fingerprint="a"), trainer=ENGINE, output_dir=tmp_path)
    with pytest.raises(TrainingFailed, match="its data, or their split, have changed"):
        train(plan(data_fingerprint="b"), trainer=ENGINE, resume=run)


def test_a_parameter_outside_the_model_is_refused(tmp_path):
    training = plan()
    training.optimizer_steps[0].optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    with pytest.raises(TrainingFailed, match=r"a parameter of shape \[2\] that is not in the model"):
        train(training, trainer=ENGINE, output_dir=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture(autouse=True)
def _kept():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_candidates_double_up_to_what_is_allowed(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(6))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert _thread_counts() == [1, 2, 4, 6]
    for allowed, expected in (("3", [1, 2, 3]), ("0", [1, 2, 4, 6]), ("4,2", [1, 2, 4, 6]), ("99", [1, 2, 4, 6])):
        monkeypatch.setenv("OMP_NUM_THREADS", allowed)
        assert _thread_counts() == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [({1: 9, 2: 3, 4: 8}, 2), ({1: 9, 2: 8.5, 4: 8.2}, 1), ({1: 1, 2: 5, 4: 5}, 1)]
)
def test_more_threads_are_used_only_if_10_percent_faster(monkeypatch, seconds, expected):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def step():
        now[0] += seconds[torch.get_num_threads()] / 1000

    best, took = _fastest(step, [1, 2, 4])
    assert best == expected == torch.get_num_threads()
    assert took == pytest.approx({n: value / 1000 for n, value in seconds.items()})


def test_slow_steps_are_timed_once(monkeypatch):
    now, calls = [0.0], []
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def step():
        calls.append(torch.get_num_threads())
        now[0] += 10

    _fastest(step, [1, 2])
    assert calls == [1, 1, 2, 2]


def has_mallopt():
    try:
        return bool(ctypes.CDLL(None).mallopt)
    except (OSError, AttributeError, TypeError):
        return False


@pytest.mark.skipif(not has_mallopt(), reason="another C library")
def test_freed_memory_is_kept():
    def page_faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(50):
            torch.ones(500_000)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert _keep_freed_memory()
    page_faults()
    assert page_faults() < 50 * 2_000_000 // 4096 / 10


KEPT_BYTES = """
import resource, torch
from contextlib import nullcontext
from lawful.training.trainer import _keep_freed_memory, _return_freed_memory

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

_keep_freed_memory()
with {context}():
    before = resident_bytes()
    blocks = [torch.ones(500_000) for _ in range(40)]
    above = torch.ones(5000)  # keeps the top of the heap in use
    del blocks
    print(resident_bytes() - before)
"""


@pytest.mark.skipif(not has_mallopt() or not Path("/proc/self/statm").exists(), reason="another C library")
def test_an_evaluation_returns_large_freed_blocks():
    def kept_bytes(context):
        code = KEPT_BYTES.format(context=context)
        return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    assert kept_bytes("nullcontext") > 60e6
    assert kept_bytes("_return_freed_memory") < 20e6


def test_other_c_libraries_are_ignored(monkeypatch):
    def without(name):
        raise OSError("no library")

    monkeypatch.setattr(trainer_module.ctypes, "CDLL", without)
    assert _keep_freed_memory() is False
    with _return_freed_memory():
        pass
