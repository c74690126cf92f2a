from dataclasses import replace
from unittest.mock import MagicMock

import pytest
import torch

from lawful.recipes import ClassifyRecipe, RegressRecipe, attack, load
from lawful.recipes import classify as classified
from lawful.recipes.attack import AttackRecipe
from lawful.recipes.classify import Robustness
from lawful.recipes.data import SupervisedData
from lawful.recipes.optimization import Learning
from lawful.training import TrainerConfig, train

ENGINE = TrainerConfig(threads=1, laws=0)
SHORT = {"learning": Learning(epochs=2, batch=256), "engine": ENGINE}


def test_a_classifier_is_trained_and_attacked(tmp_path):
    recipe = AttackRecipe(width=4, depth=1, eps=(0.5, 4.0), steps=3, examples=40, **SHORT)
    run = train(recipe, folder=tmp_path)
    clean = run.results["test"]["accuracy"]["value"]
    attacked = [run.results["test"][f"robust, eps {eps}"]["value"] for eps in (0.5, 4)]
    assert attacked[1] <= attacked[0] <= clean
    assert attacked[1] <= run.results["baselines"]["random noise, eps 4"]
    assert {file.name for file in run.figures.iterdir()} >= {"robust accuracy.png", "examples.png"}
    assert load(run)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A classifier of a table, without pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classified, "figures", MagicMock())
        table = {**SHORT, "given": SupervisedData(data="iris"), "learning": Learning(epochs=20, batch=64)}
        return train(ClassifyRecipe(hidden=(8,), **table), folder=tmp_path_factory.mktemp("first"))


@pytest.mark.parametrize("by", ["fgsm", "momentum", "deepfool", "worst"])
def test_the_classifier_of_a_run_is_attacked_on_its_own_data(tmp_path, first, monkeypatch, by):
    monkeypatch.setattr(attack, "figures", MagicMock())
    run = train(AttackRecipe(run=str(first.path), by=by, steps=3, engine=ENGINE), folder=tmp_path)
    assert run.results["test"]["accuracy"]["value"] == first.results["test"]["accuracy"]["value"]
    robust = [found["value"] for name, found in run.results["test"].items() if name.startswith("robust")]
    assert robust == sorted(robust, reverse=True)
    assert run.results["measured in"] == "linf, of standard deviations"
    same = {name: weight.tolist() for name, weight in load(first).state_dict().items()}
    assert {name: weight.tolist() for name, weight in load(run).state_dict().items()} == same


def test_adversarial_training_is_an_option_of_classify(tmp_path, undrawn):
    options = {
        **SHORT,
        "given": SupervisedData(data="iris"),
        "learning": Learning(epochs=12, batch=32, schedule="constant", learning_rate=0.02),
    }
    robust = ClassifyRecipe(hidden=(16,), robustness=Robustness(adversarial=0.5, attack_steps=2), **options)
    run = train(robust, folder=tmp_path)
    plain = train(replace(robust, robustness=Robustness()), folder=tmp_path)
    assert "robust accuracy" not in plain.results
    assert 0.3 < run.results["robust accuracy"]["value"] <= run.results["test"]["accuracy"]["value"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "carlini-wagner"}, "carlini-wagner is for the norm l2: say --norm l2"),
        ({"by": "deepfool", "norm": "l1"}, "deepfool is for the norms l2 and linf: got l1"),
        ({"model": "nearest"}, "an attack follows gradients: the model nearest has none"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AttackRecipe(**options)


def test_only_classifiers_are_attacked_or_trained_so(tmp_path, undrawn):
    run = train(
        RegressRecipe(given=SupervisedData(data="diabetes"), **{**SHORT, "learning": Learning(epochs=1)}),
        folder=tmp_path,
    )
    with pytest.raises(ValueError, match=r"an attack is for classifiers: .* is a run of regress"):
        AttackRecipe(run=str(run.path)).training()
    with pytest.raises(ValueError, match="adversarial training follows gradients"):
        ClassifyRecipe(model="nearest", robustness=Robustness(adversarial=0.1))
