"""A user's own module, objective and data, trained, stopped and gone on with from Python."""

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
from lawful.inference.ensemble import mean
from lawful.laws import Claim, batch_independence, shape
from lawful.recipes import RECIPES
from lawful.training import TrainingFailed, seeded

ENGINE = lawful.TrainerConfig(threads=1, laws=3)


class Wavy(nn.Module):
    """A layer of a user's own, with noise in training."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(1, 12), nn.Linear(12, 1)

    def forward(self, x):
        hidden = self.inner(x).sin()
        return self.outer(hidden + 0.1 * torch.randn_like(hidden) if self.training else hidden)


def squared(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()


def made(*, steps=12, model=None, objective=squared):
    torch.manual_seed(0)
    model = model or Wavy()
    x = torch.linspace(-3, 3, 40)[:, None]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    return lawful.TrainingSetup(
        model=model,
        turns=[lawful.OptimizerStep(objective=objective, optimizer=optimizer, clip=1.0)],
        batches=ShuffledBatches(x, x.sin(), size=10, seed=1),
        steps=steps,
        evaluate=lambda model: {"loss": float(squared(model, (x, x.sin())))},
        every=4,
        claims=lambda model: [Claim(batch_independence(), model, shape("b 1"))],
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waves:
    """A recipe of a user's own, of which several are trained."""

    name: ClassVar[str] = "waves"
    seeds: int = 2
    engine: lawful.TrainerConfig = ENGINE

    def training(self):
        return made(model=Wavy())

    def finish(self, run, training):
        return {}

    def restored(self, facts):
        return self.combined([Wavy() for _ in range(self.seeds)])

    def members(self):
        return seeded(dataclasses.replace(self, seeds=1), self.seeds) if self.seeds > 1 else []

    def combined(self, models):
        return models[0] if len(models) == 1 else Ensemble(models, average=mean)


def test_an_ensemble_of_any_recipe(tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "waves", Waves)
    run = lawful.train(Waves(), folder=tmp_path)
    members = [lawful.load(path) for path in sorted((run.path / "members").iterdir())]
    x = torch.rand(5, 1)
    with torch.no_grad():
        one, other = (member(x) for member in members)
        torch.testing.assert_close(lawful.load(run)(x), (one + other) / 2)
    assert not torch.equal(one, other)


class Tied(Wavy):
    """Has a weight under two names, and a buffer that the weights leave out."""

    def __init__(self):
        super().__init__()
        self.again = self.inner
        self.register_buffer("scale", torch.ones(()), persistent=False)


class Tying(Waves):
    name: ClassVar[str] = "tying"

    def training(self):
        return made(model=Tied())

    def restored(self, facts):
        return Tied()


@pytest.mark.parametrize("steps", [3, 12])
def test_weights_that_are_shared_are_loaded_before_and_after_the_end(tmp_path, monkeypatch, steps):
    monkeypatch.setitem(RECIPES, "tying", Tying)
    trained = []

    class Stops(StopsAt):
        def start(self, run, training):
            trained.append(training.model)

        def log(self, step, figures):
            if step == self.step:
                signal.raise_signal(signal.SIGINT)

    run = lawful.train(Tying(seeds=1), folder=tmp_path, trackers=[Stops(steps)])
    x = torch.rand(5, 1)
    with torch.no_grad():
        torch.testing.assert_close(lawful.load(run)(x), trained[0].eval()(x))


class Stopped(Exception):
    pass


class StopsAt:
    """A tracker with a fault of its own."""

    def __init__(self, step):
        self.step = step

    def start(self, run, training):
        pass

    def log(self, step, figures):
        if step == self.step:
            raise Stopped

    def close(self):
        pass


def test_ones_own_module_is_trained(tmp_path):
    training = made(steps=200)
    run = lawful.train(training, engine=ENGINE, folder=tmp_path)
    assert run.path == tmp_path / "wavy-001"
    assert run.state == "finished"
    losses = [line["validation/loss"] for line in run.metrics() if "validation/loss" in line]
    assert losses[-1] < 0.2 * losses[0]
    kept = training.model.state_dict()
    assert all(torch.equal(kept[name], weight) for name, weight in run.weights().items())
    assert "batch_independence" in run.report.read_text(encoding="utf-8")


def test_it_goes_on_from_python_as_if_it_had_not_stopped(tmp_path):
    engine = lawful.TrainerConfig(threads=1, laws=0, save=5)
    whole = lawful.train(made(), engine=engine, folder=tmp_path)
    with pytest.raises(Stopped):
        lawful.train(made(), engine=engine, folder=tmp_path, trackers=[StopsAt(7)])
    run = lawful.Run(tmp_path / "wavy-002")
    assert run.state != "finished"
    assert lawful.train(made(), engine=engine, resume=run).state == "finished"
    assert all(torch.equal(weight, run.weights()[name]) for name, weight in whole.weights().items())
    assert [line["step"] for line in run.metrics()] == list(range(1, 13))


class PressesCtrlC(StopsAt):
    def log(self, step, figures):
        if step == self.step:
            os.kill(os.getpid(), signal.SIGINT)


def test_the_same_training_goes_on_with_its_schedule(tmp_path):
    def falling():
        training = made()
        turn = dataclasses.replace(training.turns[0], schedule=lambda step: 1 / (1 + step))
        return dataclasses.replace(training, turns=[turn])

    whole = lawful.train(falling(), engine=ENGINE, folder=tmp_path)
    training = falling()
    run = lawful.train(training, engine=ENGINE, folder=tmp_path, trackers=[PressesCtrlC(5)])
    assert run.interrupted
    assert run.state == "at step 5"
    assert "stopped after step 5" in run.log.read_text(encoding="utf-8")
    assert run.report.is_file()
    run = lawful.train(training, engine=ENGINE, resume=str(run.path))
    assert not run.interrupted
    assert all(torch.equal(weight, run.weights()[name]) for name, weight in whole.weights().items())
    assert [line["learning_rate"] for line in run.metrics()] == pytest.approx([0.03 / step for step in range(1, 13)])


def test_a_tracker_that_cannot_be_reached_is_told_no_more(tmp_path, capsys):
    class Away(StopsAt):
        def log(self, step, figures):
            raise ConnectionError("no route to the dashboard")

    run = lawful.train(made(steps=3), engine=ENGINE, folder=tmp_path, trackers=[Away(0)])
    assert run.state == "finished"
    assert capsys.readouterr().out.count("Away is told no more: ConnectionError: no route to the dashboard") == 1


def test_two_trainings_do_not_share_a_folder(tmp_path):
    class Second(StopsAt):
        def log(self, step, figures):
            if step == 2:
                with pytest.raises(TrainingFailed, match="is being trained by another process"):
                    lawful.train(made(), engine=ENGINE, resume=tmp_path / "wavy-001")

    assert lawful.train(made(), engine=ENGINE, folder=tmp_path, trackers=[Second(0)]).state == "finished"


def test_what_failed_stands_in_the_log(tmp_path):
    def broken(model, batch):
        raise KeyError("a slip of the user")

    with pytest.raises(KeyError):
        lawful.train(made(objective=broken), engine=ENGINE, folder=tmp_path)
    run = lawful.Run(tmp_path / "wavy-001")
    assert "failed: KeyError: 'a slip of the user'" in run.log.read_text(encoding="utf-8")
    assert run.report.is_file()


def test_a_run_from_python_has_no_recipe(tmp_path):
    run = lawful.train(made(steps=1), engine=lawful.TrainerConfig(threads=1, laws=0), folder=tmp_path)
    with pytest.raises(ValueError, match=r"was trained from Python, without a recipe: go on with lawful.train"):
        lawful.load(run)


def test_a_fault_of_the_objective_is_seen_as_it_is(tmp_path):
    def broken(model, batch):
        raise KeyError("a slip of the user")

    with pytest.raises(KeyError, match="a slip of the user"):
        lawful.train(made(objective=broken), engine=ENGINE, folder=tmp_path)


def test_a_loss_that_is_no_number_is_named(tmp_path):
    def vanishing(model, batch):
        return squared(model, batch).log() * 0 + float("nan")

    with pytest.raises(TrainingFailed, match="the loss is nan at step 1"):
        lawful.train(made(objective=vanishing), engine=ENGINE, folder=tmp_path)
