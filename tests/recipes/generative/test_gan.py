from dataclasses import replace
from functools import partial
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from lawful.data import Dequantizer
from lawful.models.generative import GAN
from lawful.recipes import draw, load
from lawful.recipes import gan as judging
from lawful.recipes import generative_eval as pictures
from lawful.recipes.data import GenerativeData
from lawful.recipes.gan import GANRecipe
from lawful.training import TrainerConfig, train


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """Few pictures, and a judge of few steps, but in the long tests."""
    if "long" not in request.keywords:
        monkeypatch.setattr(pictures, "PICTURES", 2)
        monkeypatch.setattr(judging, "STEPS", 100)


ENGINE = TrainerConfig(threads=1, laws=0)
QUICK = partial(GANRecipe, hidden=(8,), steps=4, batch=16, engine=ENGINE)


@pytest.mark.parametrize(
    ("game", "spectral", "data", "model"),
    [("non-saturating", False, "ring", "mlp"), ("wasserstein", True, "digits", "cnn")],
)
def test_every_game_runs_from_data_to_samples(tmp_path, game, spectral, data, model):
    observed = GenerativeData(data=data, examples=200) if data == "ring" else GenerativeData(data=data)
    recipe = QUICK(game=game, spectral=spectral, model=model, width=2, given=observed)
    run = train(recipe, folder=tmp_path)
    assert {"mmd", "coverage", "precision"} <= run.results["test"].keys()
    assert run.results["test"].keys() <= run.results["baseline (a Gaussian)"].keys()
    assert ("modes covered" in run.results["test"]) == (data == "ring")
    assert ("Fréchet distance in features" in run.results["test"]) == (data == "digits")
    found = load(run)
    assert isinstance(found, GAN)
    assert found.sample(3).shape[1:] == found.shape
    assert np.load(run.samples / "samples.npy", allow_pickle=False).shape[1:] == found.shape


def test_samples_that_are_in_no_mode_at_all_have_no_divergence_over_modes(tmp_path):
    recipe = GANRecipe(
        steps=2, engine=ENGINE, given=GenerativeData(data="ring", examples=50)
    )  # all samples are near the middle
    found = train(recipe, folder=tmp_path).results["test"]
    assert found["samples in a mode"]["value"] == 0
    assert "KL over modes" not in found


def test_samples_have_the_label_that_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "figures", drawn := MagicMock())  # forty pictures take longer than the training
    run = train(QUICK(conditional=True, given=GenerativeData(data="digits")), folder=tmp_path)
    assert {call.args[1].stem for call in drawn.save.call_args_list} == {"samples", "samples of labels"}
    assert 0 <= run.results["test"]["of the label asked for"]["value"] <= 1
    assert run.results["floor (training data)"]["of the label asked for"] > 0.9
    model = load(run)
    assert isinstance(model, GAN)
    asked = model.sample(2, labels=torch.tensor([3, 3]))
    torch.testing.assert_close(draw(run, 2, label="3"), Dequantizer(levels=17).quantized(asked))
    with pytest.raises(ValueError, match="wants labels"):
        QUICK(conditional=True, given=GenerativeData(data="diabetes")).training()


def test_a_cnn_of_rows_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a cnn takes images or series"):
        QUICK(model="cnn", given=GenerativeData(data="iris")).training()


@pytest.mark.long
def test_all_modes_of_the_ring_are_found(tmp_path):
    run = train(replace(GANRecipe(engine=ENGINE), steps=2000), folder=tmp_path)
    found = run.results["test"]
    assert found["modes covered"]["value"] == 1
    assert found["samples in a mode"]["value"] > 0.8
    assert found["mmd"]["value"] < 0.1 * run.results["baseline (a Gaussian)"]["mmd"]


@pytest.mark.long
def test_digits_of_every_label_look_like_digits_to_a_classifier(tmp_path):
    run = train(GANRecipe(conditional=True, given=GenerativeData(data="digits"), engine=ENGINE), folder=tmp_path)
    found, name = run.results["test"], "Fréchet distance in features"
    assert found["classes covered"]["value"] == 1
    assert found["of the label asked for"]["value"] > 0.9
    assert found[name]["value"] < 0.7 * run.results["baseline (a Gaussian)"][name]
