from dataclasses import replace
from unittest.mock import MagicMock

import pytest
import torch

from lawful.inference.attacks import PGD
from lawful.recipes import ClassifyRecipe, CNNSpec, KNNSpec, MLPSpec, RegressRecipe, attack, load
from lawful.recipes import classify as classified
from lawful.recipes.attack import AttackRecipe
from lawful.recipes.classify import _AttackUnits
from lawful.training import train

TRAINER = {"threads": 1, "law_cases": 0}
SHORT = {"epochs": 2, "batch_size": 256, **TRAINER}


def test_a_classifier_is_trained_and_attacked(tmp_path):
    recipe = AttackRecipe(
        model=CNNSpec(channels=4, num_layers=1), eps=(0.5, 4.0), attack_steps=3, num_examples=40, **SHORT
    )
    run = train(recipe, output_dir=tmp_path)
    clean = run.results["test"]["accuracy"]["value"]
    attacked = [run.results["test"][f"robust, eps {eps}"]["value"] for eps in (0.5, 4)]
    assert attacked[1] <= attacked[0] <= clean
    assert attacked[1] <= run.results["baselines"]["random noise, eps 4"]
    assert f"of size 4 in linf, the accuracy falls from {clean:.4g} to {attacked[1]:.4g}" in run.results["summary"]
    assert {file.name for file in run.figures.iterdir()} >= {"robust accuracy.png", "examples.png"}
    assert load(run)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A classifier of a table, without pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classified, "figures", MagicMock())
        table = {**SHORT, "data": "iris", "epochs": 20, "batch_size": 64}
        return train(
            ClassifyRecipe(model=MLPSpec(hidden_dims=(8,)), **table), output_dir=tmp_path_factory.mktemp("first")
        )


@pytest.mark.parametrize("by", ["fgsm", "momentum", "deepfool", "worst"])
def test_the_classifier_of_a_run_is_attacked_on_its_own_data(tmp_path, first, monkeypatch, by):
    monkeypatch.setattr(attack, "figures", MagicMock())
    run = train(
        AttackRecipe(run=str(first.path), attack=by, **({} if by == "fgsm" else {"attack_steps": 3}), **TRAINER),
        output_dir=tmp_path,
    )
    assert run.results["test"]["accuracy"]["value"] == first.results["test"]["accuracy"]["value"]
    robust = [found["value"] for name, found in run.results["test"].items() if name.startswith("robust")]
    assert robust == sorted(robust, reverse=True)
    assert run.results["units of eps"] == "linf, in standard deviations"
    same = {name: weight.tolist() for name, weight in load(first).state_dict().items()}
    assert {name: weight.tolist() for name, weight in load(run).state_dict().items()} == same


def test_a_run_as_data_is_an_error_that_names_the_option(first):
    with pytest.raises(ValueError, match=r"got the run .*: set run to attack its classifier"):
        AttackRecipe(data=str(first.path)).setup()


def test_adversarial_training_is_an_option_of_classify(tmp_path, no_figures):
    options = {
        **SHORT,
        "data": "iris",
        "epochs": 12,
        "batch_size": 32,
        "schedule": "constant",
        "learning_rate": 0.02,
    }
    robust = ClassifyRecipe(model=MLPSpec(hidden_dims=(16,)), adversarial_eps=0.5, adversarial_steps=2, **options)
    run = train(robust, output_dir=tmp_path)
    plain = train(replace(robust, adversarial_eps=0.0, adversarial_steps=7), output_dir=tmp_path)
    assert "robust accuracy" not in plain.results
    assert 0.3 < run.results["robust accuracy"]["value"] <= run.results["test"]["accuracy"]["value"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attack": "carlini-wagner"}, "carlini-wagner needs norm l2, got linf"),
        ({"attack": "deepfool", "norm": "l1"}, "deepfool supports norm l2 and linf, got l1"),
        ({"model": KNNSpec()}, "attacks need gradients: model knn has none"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AttackRecipe(**options)


@pytest.mark.parametrize("name", ["pgd", "momentum", "deepfool", "carlini-wagner", "worst"])
def test_attack_steps_is_the_number_of_steps(name):
    recipe = AttackRecipe(attack=name, norm="l2", attack_steps=3)
    built = recipe._build_attack(0.1, _AttackUnits.of(torch.zeros(2, 2)))
    attacks = [part for part in built.attacks if isinstance(part, PGD)] if name == "worst" else [built]
    assert attacks
    assert all(part.steps == 3 for part in attacks)


def test_fgsm_has_no_steps():
    with pytest.raises(ValueError, match=r"attack_steps needs attack=pgd or momentum .*, got attack=fgsm"):
        AttackRecipe(attack="fgsm", attack_steps=3)


def test_seed_draws_the_noise_that_an_attack_is_compared_with(tmp_path, first, monkeypatch):
    """Also for attacks without a random start."""
    monkeypatch.setattr(attack, "figures", MagicMock())
    noises = []
    measure = attack.robust_accuracy

    def collect(*arguments, attack):
        noises.extend([attack.seed] if isinstance(attack, PGD) and not attack.steps else [])
        return measure(*arguments, attack=attack)

    monkeypatch.setattr(attack, "robust_accuracy", collect)
    train(AttackRecipe(run=str(first.path), attack="fgsm", eps=(0.1,), seed=5, **TRAINER), output_dir=tmp_path)
    assert noises == [5]


def test_worst_has_two_random_starts_for_every_seed():
    for seed in (0, 1):
        built = AttackRecipe(attack="worst", seed=seed)._build_attack(0.1, _AttackUnits.of(torch.zeros(2, 2)))
        assert [part.seed for part in built.attacks if isinstance(part, PGD)] == [seed, seed + 1]


def test_attacks_and_adversarial_training_need_a_differentiable_classifier(tmp_path, no_figures):
    run = train(
        RegressRecipe(**SHORT),
        output_dir=tmp_path,
    )
    with pytest.raises(ValueError, match=r"expected a run of classify, got .* of regress"):
        AttackRecipe(run=str(run.path)).setup()
    with pytest.raises(ValueError, match="adversarial_eps needs a model that is trained by gradient descent"):
        ClassifyRecipe(model=KNNSpec(), adversarial_eps=0.1)
