from dataclasses import replace
from functools import partial
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from lawful.data import Dequantizer
from lawful.models.generative import GAN
from lawful.recipes import CNNGANSpec, MLPGANSpec, gan, generative, load, sample_from_run
from lawful.recipes.gan import GANRecipe
from lawful.training import train


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """Few figures and a short classifier training, except in slow tests."""
    if "long" not in request.keywords:
        monkeypatch.setattr(generative, "_NUM_IMAGES", 2)
        monkeypatch.setattr(gan, "_JUDGE_STEPS", 100)


TRAINER = {"threads": 1, "law_cases": 0}
QUICK = partial(GANRecipe, model=MLPGANSpec(hidden_dims=(8,)), steps=4, batch_size=16, **TRAINER)


@pytest.mark.parametrize(
    ("game", "spectral", "data", "model"),
    [
        ("non-saturating", False, "ring", MLPGANSpec(hidden_dims=(8,))),
        ("wasserstein", True, "digits", CNNGANSpec(channels=2)),
    ],
)
def test_every_gan_loss_trains_and_samples(tmp_path, game, spectral, data, model):
    size = {"num_samples": 200} if data == "ring" else {}
    recipe = QUICK(gan_loss=game, spectral_norm=spectral, model=model, data=data, **size)
    run = train(recipe, output_dir=tmp_path)
    assert {"mmd", "coverage", "precision"} <= run.results["test"].keys()
    assert run.results["test"].keys() <= run.results["metrics of a Gaussian"].keys()
    assert "the GAN" in run.results["summary"].replace("The", "the")
    assert run.results["lead_figures"] == ["samples.png"]
    assert ("modes covered" in run.results["test"]) == (data == "ring")
    assert ("Fréchet distance of features" in run.results["test"]) == (data == "digits")
    found = load(run)
    assert isinstance(found, GAN)
    assert found.sample(3).shape[1:] == found.shape
    assert np.load(run.samples / "samples.npy", allow_pickle=False).shape[1:] == found.shape


def test_metrics_of_a_table_do_not_depend_on_the_units_of_its_columns(tmp_path):
    x, units = torch.randn(200, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([1.0, 1e4])
    found = []
    for name, rows in (("m", x), ("mm", x * units)):
        np.savetxt(tmp_path / f"{name}.csv", rows.numpy(), delimiter=",", header="a,b", comments="", fmt="%.6f")
        splits = GANRecipe(data=str(tmp_path / f"{name}.csv")).load_splits()
        samples = 0.5 * splits.train.std(0) * torch.randn(80, 2, generator=torch.Generator().manual_seed(1))
        model = MagicMock(spec=GAN, sample=lambda n, seed, samples=samples: samples[:n])
        found.append(
            {**gan._sample_metrics(samples, None, splits, None), "validation": gan._evaluate(model, splits)["mmd"]}
        )
    assert found[1] == pytest.approx(found[0], rel=1e-2)
    assert found[0]["Fréchet distance"] < 2


def test_equal_observations_have_a_discrepancy():
    x = torch.zeros(3, 2)
    assert gan._mmd(x, x) == 0
    assert gan._mmd(x + 1, x) > 1


def test_kl_over_modes_is_omitted_if_no_sample_is_near_a_mode(tmp_path):
    recipe = GANRecipe(steps=2, **TRAINER, data="ring", num_samples=50)  # all samples are near the middle
    found = train(recipe, output_dir=tmp_path).results["test"]
    assert found["samples near a mode"]["value"] == 0
    assert "KL over modes" not in found


def test_conditional_samples_have_the_given_label(tmp_path, monkeypatch):
    monkeypatch.setattr(generative, "figures", drawn := MagicMock())  # forty pictures take longer than the training
    run = train(QUICK(conditional=True, data="digits"), output_dir=tmp_path)
    assert {call.args[1].stem for call in drawn.save.call_args_list} == {"samples", "samples per label"}
    assert 0 <= run.results["test"]["label accuracy"]["value"] <= 1
    assert run.results["metrics of the training data"]["label accuracy"] > 0.9
    model = load(run)
    assert isinstance(model, GAN)
    of_label = model.sample(2, 0, labels=torch.tensor([3, 3]))
    torch.testing.assert_close(sample_from_run(run, 2, label="3"), Dequantizer(levels=17).quantize(of_label))
    with pytest.raises(ValueError, match="needs labels"):
        QUICK(conditional=True, data="diabetes").setup()


def test_cnn_needs_images_or_series(tmp_path):
    with pytest.raises(ValueError, match="model cnn needs images or series"):
        QUICK(model=CNNGANSpec(), data="iris").setup()


@pytest.mark.long
def test_all_modes_of_the_ring_are_found(tmp_path):
    run = train(replace(GANRecipe(**TRAINER), steps=2000), output_dir=tmp_path)
    found = run.results["test"]
    assert found["modes covered"]["value"] == 1
    assert found["samples near a mode"]["value"] > 0.8
    assert found["mmd"]["value"] < 0.1 * run.results["metrics of a Gaussian"]["mmd"]


@pytest.mark.long
def test_digits_of_every_label_look_like_digits_to_a_classifier(tmp_path):
    run = train(GANRecipe(conditional=True, data="digits", **TRAINER), output_dir=tmp_path)
    found, name = run.results["test"], "Fréchet distance of features"
    assert found["classes covered"]["value"] == 1
    assert found["label accuracy"]["value"] > 0.9
    assert found[name]["value"] < 0.7 * run.results["metrics of a Gaussian"][name]
