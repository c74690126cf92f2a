"""Custom modules, losses and data: trained, stopped and resumed from Python."""

import dataclasses
import os
import signal
from typing import ClassVar

import pytest
import torch
from torch import nn

import lawful
from lawful.data import ShuffledBatches
from lawful.inference import Ensemble
from lawful.inference.ensemble import mean_values
from lawful.laws import Claim, batch_independence, shape
from lawful.recipes import RECIPES
from lawful.training import Recipe, TrainingFailed

TRAINER = lawful.TrainerConfig(threads=1, law_cases=3)


class Wavy(nn.Module):
    """A custom layer with noise in training mode."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(1, 12), nn.Linear(12, 1)

    def forward(self, x):
        hidden = self.inner(x).sin()
        return self.outer(hidden + 0.1 * torch.randn_like(hidden) if self.training else hidden)


def squared_error(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()


def make_setup(*, steps=12, model=None, loss_fn=squared_error):
    torch.manual_seed(0)
    model = model or Wavy()
    x = torch.linspace(-3, 3, 40)[:, None]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    return lawful.TrainingSetup(
        model=model,
        optimizer_steps=[lawful.OptimizerStep(loss_fn=loss_fn, optimizer=optimizer, grad_clip_norm=1.0)],
        batches=ShuffledBatches(x, x.sin(), batch_size=10, seed=1),
        steps=steps,
        evaluate=lambda model: {"loss": float(squared_error(model, (x, x.sin())))},
        eval_every=4,
        claims=lambda model: [Claim(batch_independence(), model, shape("b 1"))],
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waves(Recipe[None]):
    """A custom recipe that trains an ensemble."""

    name: ClassVar[str] = "waves"
    seeds: int = 2
    threads: int = 1
    law_cases: int = 3

    def setup(self):
        return make_setup(model=Wavy())

    def finish(self, run, setup):
        return {}

    def build_model(self, model_config):
        return self.combine([Wavy() for _ in range(self.seeds)])

    def ensemble_members(self):
        return dataclasses.replace(self, seeds=1).with_seeds(self.seeds) if self.seeds > 1 else []

    def combine(self, models):
        return models[0] if len(models) == 1 else Ensemble(models, average=mean_values)


def test_an_ensemble_of_any_recipe(tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "waves", Waves)
    run = lawful.train(Waves(), output_dir=tmp_path)
    members = [lawful.load(path) for path in sorted((run.path / "members").iterdir())]
    x = torch.rand(5, 1)
    with torch.no_grad():
        one, other = (member(x) for member in members)
        torch.testing.assert_close(lawful.load(run)(x), (one + other) / 2)
    assert not torch.equal(one, other)


class Tied(Wavy):
    """Has a weight under two names, and a non-persistent buffer."""

    def __init__(self):
        super().__init__()
        self.again = self.inner
        self.register_buffer("scale", torch.ones(()), persistent=False)


class Tying(Waves):
    name: ClassVar[str] = "tying"

    def setup(self):
        return make_setup(model=Tied())

    def build_model(self, model_config):
        return Tied()


@pytest.mark.parametrize("steps", [3, 12])
def test_shared_weights_load_from_checkpoints_and_finished_runs(tmp_path, monkeypatch, steps):
    monkeypatch.setitem(RECIPES, "tying", Tying)
    trained = []

    class Stops(StopsAt):
        def start(self, run, setup):
            trained.append(setup.model)

        def log(self, step, metrics):
            if step == self.step:
                signal.raise_signal(signal.SIGINT)

    run = lawful.train(Tying(seeds=1), output_dir=tmp_path, loggers=[Stops(steps)])
    x = torch.rand(5, 1)
    with torch.no_grad():
        torch.testing.assert_close(lawful.load(run)(x), trained[0].eval()(x))


class Stopped(Exception):
    pass


class StopsAt:
    """A logger that fails."""

    def __init__(self, step):
        self.step = step

    def start(self, run, setup):
        pass

    def log(self, step, metrics):
        if step == self.step:
            raise Stopped(f"at step {step}")

    def close(self):
        pass


def test_trains_a_custom_module(tmp_path):
    training = make_setup(steps=200)
    run = lawful.train(training, trainer=TRAINER, output_dir=tmp_path)
    assert run.path == tmp_path / "wavy-001"
    assert run.status == "finished"
    losses = [line["validation/loss"] for line in run.metrics if "validation/loss" in line]
    assert losses[-1] < 0.2 * losses[0]
    kept = training.model.state_dict()
    assert all(torch.equal(kept[name], weight) for name, weight in run.weights().items())
    assert "batch_independence" in run.report.read_text(encoding="utf-8")


def test_it_goes_on_from_python_as_if_it_had_not_stopped(tmp_path):
    trainer = lawful.TrainerConfig(threads=1, law_cases=0, checkpoint_every=5)
    whole = lawful.train(make_setup(), trainer=trainer, output_dir=tmp_path)
    with pytest.raises(Stopped, match="at step 7"):
        lawful.train(make_setup(), trainer=trainer, output_dir=tmp_path, loggers=[StopsAt(7)])
    run = lawful.Run(tmp_path / "wavy-002")
    assert run.status != "finished"
    assert lawful.train(make_setup(), trainer=trainer, resume=run).status == "finished"
    assert all(torch.equal(weight, run.weights()[name]) for name, weight in whole.weights().items())
    assert [line["step"] for line in run.metrics] == list(range(1, 13))


class PressesCtrlC(StopsAt):
    def log(self, step, metrics):
        if step == self.step:
            os.kill(os.getpid(), signal.SIGINT)


def test_resuming_continues_the_schedule(tmp_path):
    def falling():
        training = make_setup()
        turn = dataclasses.replace(training.optimizer_steps[0], schedule=lambda step: 1 / (1 + step))
        return dataclasses.replace(training, optimizer_steps=[turn])

    whole = lawful.train(falling(), trainer=TRAINER, output_dir=tmp_path)
    training = falling()
    run = lawful.train(training, trainer=TRAINER, output_dir=tmp_path, loggers=[PressesCtrlC(5)])
    assert run.interrupted
    assert run.status == "at step 5"
    assert "stopped after step 5" in run.log.read_text(encoding="utf-8")
    assert run.report.is_file()
    run = lawful.train(training, trainer=TRAINER, resume=str(run.path))
    assert not run.interrupted
    assert all(torch.equal(weight, run.weights()[name]) for name, weight in whole.weights().items())
    assert [line["learning_rate"] for line in run.metrics] == pytest.approx([0.03 / step for step in range(1, 13)])


def test_failing_logger_is_disabled(tmp_path, capsys):
    class Away(StopsAt):
        def log(self, step, metrics):
            raise ConnectionError("no route to the dashboard")

    run = lawful.train(make_setup(steps=3), trainer=TRAINER, output_dir=tmp_path, loggers=[Away(0)])
    assert run.status == "finished"
    assert capsys.readouterr().out.count("Away is disabled: ConnectionError: no route to the dashboard") == 1


def test_two_trainings_do_not_share_a_folder(tmp_path):
    class Second(StopsAt):
        def log(self, step, metrics):
            if step == 2:
                with pytest.raises(TrainingFailed, match=r"process \d+ on .*, is training"):
                    lawful.train(make_setup(), trainer=TRAINER, resume=tmp_path / "wavy-001")

    assert lawful.train(make_setup(), trainer=TRAINER, output_dir=tmp_path, loggers=[Second(0)]).status == "finished"


def test_failure_is_logged(tmp_path):
    def broken(model, batch):
        raise KeyError("a slip of the user")

    with pytest.raises(KeyError, match="a slip of the user"):
        lawful.train(make_setup(loss_fn=broken), trainer=TRAINER, output_dir=tmp_path)
    run = lawful.Run(tmp_path / "wavy-001")
    assert "failed: KeyError: 'a slip of the user'" in run.log.read_text(encoding="utf-8")
    assert run.report.is_file()


def test_a_run_from_python_has_no_recipe(tmp_path):
    run = lawful.train(make_setup(steps=1), trainer=lawful.TrainerConfig(threads=1, law_cases=0), output_dir=tmp_path)
    with pytest.raises(ValueError, match=r"was trained from Python without a recipe: resume with lawful.train"):
        lawful.load(run)


def test_exception_in_the_loss_propagates(tmp_path):
    def broken(model, batch):
        raise KeyError("a slip of the user")

    with pytest.raises(KeyError, match="a slip of the user"):
        lawful.train(make_setup(loss_fn=broken), trainer=TRAINER, output_dir=tmp_path)


def test_nan_loss_is_reported_with_its_step(tmp_path):
    def vanishing(model, batch):
        return squared_error(model, batch).log() * 0 + float("nan")

    with pytest.raises(TrainingFailed, match="the loss is nan at step 1"):
        lawful.train(make_setup(loss_fn=vanishing), trainer=TRAINER, output_dir=tmp_path)
