import random
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lawful.data.batches import ShuffledBatches
from lawful.training import snapshots
from lawful.training.checkpoint import Checkpoints
from lawful.training.errors import TrainingFailed
from lawful.training.run import Run
from lawful.training.setup import OptimizerStep, TrainerConfig, TrainingSetup
from lawful.training.trainer import train

ENGINE = TrainerConfig(threads=1, checkpoint_every=4, law_cases=0)


def plan(steps=6, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    x = torch.randn(12, 3)
    turn = OptimizerStep(
        loss_fn=lambda m, b: m(b[0]).square().mean(), optimizer=torch.optim.Adam(model.parameters(), lr=0.1)
    )
    return TrainingSetup(model=model, optimizer_steps=[turn], batches=ShuffledBatches(x, size=4, seed=0), steps=steps, **options)


def test_a_run_has_everything(tmp_path):
    training = plan()
    run = train(training, trainer=ENGINE, output_dir=tmp_path)
    assert {"config.json", "model.safetensors", "metrics.jsonl", "results.json", "report.html", "log.txt"} <= {
        path.name for path in run.path.iterdir()
    }
    assert [line["step"] for line in run.metrics()] == [1, 2, 3, 4, 5, 6]
    assert run.results["steps"] == 6
    assert run.checkpoints.steps() == [4, 6]
    for name, tensor in load_file(run.path / "model.safetensors").items():
        assert torch.equal(tensor, training.model.state_dict()[name])


def test_patience_puts_the_best_weights_back(tmp_path):
    seen, figures = [], iter([3.0, 1.0, 2.0, 2.0])

    def evaluate(model):
        seen.append({name: t.clone() for name, t in model.state_dict().items()})
        return {"loss": next(figures)}

    training = plan(steps=50, evaluate=evaluate, eval_every=3, patience=2)
    run = train(training, trainer=TrainerConfig(threads=1, checkpoint_every=2, keep_checkpoints=1, law_cases=0), output_dir=tmp_path)
    weights = run.weights()
    assert run.results["steps"] == 12
    assert all(torch.equal(weights[name], tensor) for name, tensor in seen[1].items())


@pytest.mark.parametrize(("patience", "kept"), [(None, [1, 8, 12]), (3, [1, 8])])
def test_better_evaluations_that_follow_closely_are_written_once(tmp_path, monkeypatch, patience, kept):
    seen, written, write = [], [], Checkpoints.write

    def evaluate(model):
        seen.append({name: t.clone() for name, t in model.state_dict().items()})
        return {"loss": abs(8.0 - len(seen))}

    def noted(self, checkpoint, **options):
        written.append(checkpoint.step)
        write(self, checkpoint, **options)

    monkeypatch.setattr(Checkpoints, "write", noted)
    monkeypatch.setattr(snapshots, "APART", 1e9)
    training = plan(steps=12, evaluate=evaluate, eval_every=1, patience=patience)
    run = train(training, trainer=TrainerConfig(threads=1, keep_checkpoints=1, law_cases=0), output_dir=tmp_path)
    assert written == kept
    best = run.checkpoints.read(8)
    assert all(torch.equal(best.tensors[f"model.{name}"], tensor) for name, tensor in seen[7].items())
    assert best.facts["progress"]["step"] == 8


def test_the_callers_random_states_and_threads_are_left_alone(tmp_path):
    def states():
        return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state()), torch.get_num_threads()

    training = plan()
    before = states()
    train(training, trainer=ENGINE, output_dir=tmp_path)
    assert states() == before


def test_measuring_the_threads_leaves_no_trace(tmp_path, monkeypatch):
    def twice(step, *, among):
        step(), step()
        return 1, {1: 0.1, 2: 0.2}

    module = sys.modules["lawful.training.trainer"]
    monkeypatch.setattr(module, "candidates", lambda: [1, 2])
    monkeypatch.setattr(module, "fastest", twice)
    noisy = {"augment": lambda b: (b[0] + torch.randn_like(b[0]) + random.random() + np.random.rand(),)}
    measured = train(plan(**noisy), trainer=TrainerConfig(checkpoint_every=4, law_cases=0), output_dir=tmp_path)
    told = train(plan(**noisy), trainer=ENGINE, output_dir=tmp_path)
    assert measured.config["threads"] == 1
    assert all(torch.equal(a, told.weights()[name]) for name, a in measured.weights().items())


def test_a_run_goes_on_with_its_number_of_threads(tmp_path):
    used = []
    watched = {"augment": lambda batch: (used.append(torch.get_num_threads()), batch)[1]}
    run = train(plan(steps=2), trainer=TrainerConfig(threads=2, law_cases=0), output_dir=tmp_path)
    train(plan(steps=3, **watched), trainer=TrainerConfig(threads=1, law_cases=0), resume=Run(run.path))
    assert used == [2]


@pytest.mark.parametrize("wrong", ["x", -1, 1.5, 10**6])
def test_a_number_of_threads_that_is_none_is_refused(tmp_path, wrong):
    run = train(plan(steps=1), trainer=ENGINE, output_dir=tmp_path)
    run.config["threads"] = wrong
    with pytest.raises(TrainingFailed, match=r"threads in config.json is from 1 to 1024"):
        train(plan(), trainer=ENGINE, resume=run)


def test_other_data_is_refused(tmp_path):
    run = train(plan(steps=1, data_fingerprint="a"), trainer=ENGINE, output_dir=tmp_path)
    with pytest.raises(TrainingFailed, match="has changed since it was begun"):
        train(plan(data_fingerprint="b"), trainer=ENGINE, resume=run)


def test_a_parameter_outside_the_model_is_refused_before_the_first_step(tmp_path):
    training = plan()
    training.optimizer_steps[0].optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    with pytest.raises(TrainingFailed, match=r"changes parameters of the model: got another, of shape \[2\]"):
        train(training, trainer=ENGINE, output_dir=tmp_path)
    assert not list(tmp_path.iterdir())
