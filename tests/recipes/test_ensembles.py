import os
import signal
from dataclasses import replace

import pytest
import torch

from lawful.inference import predict
from lawful.recipes import ClassifyRecipe, RegressRecipe, load, recipe_of
from lawful.training import Run, TrainingFailed, train

pytestmark = pytest.mark.usefixtures("undrawn")


class Stops:
    """A tracker that presses Ctrl-C at the n-th step that it is told of."""

    def __init__(self, after):
        self.left = after

    def start(self, run, training):
        pass

    def log(self, step, figures):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)

    def close(self):
        pass


def members(run):
    return [Run(path) for path in sorted((run.path / "members").iterdir())]


@pytest.mark.parametrize("combine", ["probabilities", "log-probabilities"])
def test_an_ensemble_is_the_average_of_its_members(options, tmp_path, combine):
    recipe = ClassifyRecipe(hidden=(8,), dropout=0.0, **options(members=3, combine=combine, learning_rate=0.1))
    run = train(recipe, folder=tmp_path)
    x = recipe.given.parts("classify").test.inputs
    each = torch.stack([predict(load(member), x) for member in members(run)])
    together = each.mean(0) if combine == "probabilities" else each.log().mean(0).softmax(-1)
    torch.testing.assert_close(predict(load(run), x), together, rtol=1e-4, atol=1e-6)
    assert [member.config["options"]["engine"]["seed"] for member in members(run)] == [0, 1, 2]
    assert not torch.equal(each[0], each[1])
    assert run.results["members"] == 3
    assert run.report.is_file()


def test_an_ensemble_says_what_was_trained_and_how_it_went(options, tmp_path):
    run = train(ClassifyRecipe(hidden=(4,), **options(members=2)), folder=tmp_path)
    said = run.log.read_text()
    for number, member in enumerate(members(run), 1):
        assert f"member {number} of 2, with seed {number - 1}" in said
        accuracy = member.results["test"]["accuracy"]["value"]
        assert f"{member.path}: Finished after" in said
        assert f"test accuracy {accuracy:.4g}" in said
    each = [member.metrics() for member in members(run)]
    assert [line["step"] for line in run.metrics()] == [line["step"] for line in each[0]]
    for line, one, other in zip(run.metrics(), *each, strict=True):
        assert line["loss"] == pytest.approx((one["loss"] + other["loss"]) / 2)
        assert line["time"] == pytest.approx(one["time"] + other["time"])
    assert "validation/accuracy" in run.metrics()[-1]
    assert "There are no metrics yet" not in run.report.read_text()


def test_an_ensemble_is_not_shared_out(options, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingFailed, match="an ensemble is trained by one process"):
        train(ClassifyRecipe(**options(members=2)), folder=tmp_path)


def test_a_run_goes_on_with_the_same_options_only(options, tmp_path):
    for count in (1, 2):
        run = train(ClassifyRecipe(hidden=(8,), **options(members=count)), folder=tmp_path)
        with pytest.raises(TrainingFailed, match="was begun with another hidden"):
            train(ClassifyRecipe(hidden=(9,), **options(members=count)), resume=run)


def test_the_engine_that_was_given_stands_in_the_configuration(options, engine, tmp_path):
    run = train(ClassifyRecipe(**options()), engine=replace(engine, seed=7), folder=tmp_path)
    assert run.config["options"]["engine"]["seed"] == 7


def test_numbers_are_averaged(options, tmp_path):
    run = train(RegressRecipe(hidden=(8,), **options(data="sine", members=2)), folder=tmp_path)
    x = torch.linspace(-1, 1, 5)[:, None]
    with torch.no_grad():
        each = torch.stack([load(member)(x) for member in members(run)])
        torch.testing.assert_close(load(run)(x), each.mean(0))


def test_bagging_gives_each_member_examples_of_its_own(options, tmp_path):
    """Neighbours, and not only networks: without bagging their members are all the same."""
    spread = []
    for bagging in (False, True):
        learning = options(members=2, bagging=bagging)
        run = train(ClassifyRecipe(model="nearest", neighbours=1, **learning), folder=tmp_path)
        kept = [member.weights() for member in members(run)]
        spread.append(any(not torch.equal(kept[0][name], kept[1][name]) for name in kept[0]))
    assert spread == [False, True]


def test_bagged_batches_have_the_examples_that_were_drawn(options):
    plain, bagged = (ClassifyRecipe(**options(bagging=b, batch=1000)).training() for b in (False, True))
    rows = [{tuple(row.tolist()) for row in t.batches.batch(0)[0]} for t in (plain, bagged)]
    assert rows[1] < rows[0]
    assert 0.5 < len(rows[1]) / len(rows[0]) < 0.75  # 1 - 1/e


def test_members_that_rule_out_each_others_classes_are_averaged_as_probabilities_only(options, tmp_path):
    with pytest.raises(ValueError, match="thresholded members rule classes out"):
        ClassifyRecipe(model="thresholded", **options(members=3, combine="log-probabilities"))
    recipe = ClassifyRecipe(model="thresholded", **options(members=3, bagging=True))
    run = train(recipe, folder=tmp_path)
    p = predict(load(run), recipe.given.parts("classify").test.inputs)
    torch.testing.assert_close(p.sum(-1), torch.ones(len(p)))


@pytest.mark.parametrize("after", [pytest.param(1, marks=pytest.mark.long), 6, pytest.param(9, marks=pytest.mark.long)])
def test_an_ensemble_that_is_interrupted_goes_on_exactly(options, tmp_path, after):
    """Four steps each: stopped in the first, in the second member, and in the third."""
    recipe = ClassifyRecipe(hidden=(4,), **options(members=3, batch=54))
    whole = train(recipe, folder=tmp_path / "whole")
    stopped = train(recipe, folder=tmp_path / "stopped", trackers=[Stops(after)])
    assert stopped.state != "finished"
    assert len(members(stopped)) == 1 + (after - 1) // 4
    resumed = train(recipe_of(stopped), resume=stopped, folder=stopped.path.parent)
    assert resumed.state == "finished"
    for name, weight in whole.weights().items():
        assert torch.equal(weight, resumed.weights()[name])
    again = train(recipe_of(resumed), resume=resumed, folder=tmp_path)
    assert len(members(again)) == 3


def test_a_member_is_told_by_its_options_and_not_by_its_age(options, tmp_path):
    recipe = ClassifyRecipe(hidden=(4,), **options(members=2))
    run = train(recipe, folder=tmp_path)
    first, second = (member.path / "config.json" for member in members(run))
    os.utime(first, (2e9, 2e9))
    (second.parent / "results.json").unlink()
    before = members(run)[1].weights()
    train(recipe, resume=run, folder=tmp_path)
    assert all(torch.equal(before[name], weight) for name, weight in members(run)[1].weights().items())


def test_faults_of_the_data_are_a_sentence(options, tmp_path):
    with pytest.raises(TrainingFailed, match="the target of diabetes is numbers"):
        train(ClassifyRecipe(**options(data="diabetes", members=2)), folder=tmp_path)


def test_a_member_alone_is_the_recipe_with_its_seed(options):
    recipe = ClassifyRecipe(**options(members=2))
    alone = recipe.members()[1]
    assert alone.members() == []
    last = replace(recipe, engine=replace(recipe.engine, seed=2**63 - 1))
    assert [member.engine.seed for member in last.members()] == [2**63 - 1, 0]
    assert alone == replace(recipe, learning=replace(recipe.learning, members=1), engine=replace(recipe.engine, seed=1))
