from functools import partial
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from lawful.data import BUILTIN, Arrays, cubes
from lawful.models.generative import VAE, CategoricalLatent
from lawful.recipes import (
    CategoricalLatentSpec,
    CNNVAESpec,
    GaussianLatentSpec,
    MLPVAESpec,
    SO3LatentSpec,
    generative,
    load,
    vae,
)
from lawful.recipes.vae import VAERecipe
from lawful.training import train

TRAINER = {"threads": 1, "law_cases": 0}
QUICK = partial(
    VAERecipe, steps=6, batch_size=16, latent=GaussianLatentSpec(latent_dim=3), num_importance_samples=4, **TRAINER
)
SMALL = MLPVAESpec(hidden_dims=(8,))


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({"model": SMALL}, "digits"),
        ({"model": SMALL, "likelihood": "bernoulli", "conditional": True}, "digits"),
        ({"model": CNNVAESpec(channels=2), "likelihood": "heteroscedastic"}, "digits"),
        ({"latent": CategoricalLatentSpec(latent_dim=3, num_categories=3, straight_through=True)}, "iris"),
    ],
    ids=["discretized-logistic", "bernoulli", "cnn", "categorical"],
)
def test_every_kind_trains_and_samples(tmp_path, monkeypatch, options, data):
    monkeypatch.setattr(generative, "_NUM_IMAGES", 2)
    monkeypatch.setattr(vae, "_NUM_RECONSTRUCTIONS", 2)
    plain = len(options) == 1 and "model" in options and options["model"] == SMALL
    if not plain:  # figures take longer than the training
        for module in (vae, generative):
            monkeypatch.setattr(module, "figures", MagicMock())
    run = train(QUICK(data=data, **options), output_dir=tmp_path)
    found = run.results["test"]
    assert found["lower bound"].keys() == {"value", "low", "high", "standard error"}
    assert found["lower bound, IWAE-4"]["value"] > found["lower bound"]["value"] - 0.2
    assert ("bits per dimension" in found) == (data == "digits" and "conditional" not in options)
    assert run.results["baselines"]
    assert "the VAE" in run.results["summary"].replace("The", "the")
    discrete = data == "digits" and "conditional" not in options
    assert ("bits per dimension, an upper bound" in run.results["summary"]) == discrete
    lead = ["samples.png", "means of samples.png", "reconstructions.png"]
    assert run.results["lead_figures"] == (lead if plain else [])
    assert run.results["active latents"]["of"] == 3
    assert (run.figures / "latents.png").exists() == plain
    assert np.load(run.samples / "samples.npy", allow_pickle=False).shape[1:] == load(run).shape
    model = load(run)
    assert isinstance(model, VAE)
    assert isinstance(model.latent, CategoricalLatent) == ("latent" in options)
    labels = torch.tensor([3, 3]) if options.get("conditional") else None
    drawn = model.sample(2, labels=labels)
    if "bernoulli" in options.values():
        assert set(drawn.unique().tolist()) <= {0.0, 1.0}
        assert any("binarized" in note for note in run.results["warnings"])


def test_incompatible_options_raise():
    with pytest.raises(ValueError, match="needs labels"):
        QUICK(conditional=True, data="diabetes").setup()
    with pytest.raises(ValueError, match=r"[Bb]ernoulli|binary|values"):
        QUICK(likelihood="bernoulli", data="iris").setup()
    with pytest.raises(ValueError, match="latent"):
        GaussianLatentSpec(latent_dim=0)
    with pytest.raises(ValueError, match="needs discrete data"):
        QUICK(likelihood="discretized-logistic", data="iris").setup()
    with pytest.raises(ValueError, match="model cnn needs images or series"):
        QUICK(model=CNNVAESpec(), data="iris").setup()
    with pytest.raises(ValueError, match="value_range"):
        QUICK().build_model({"form": {}})


def test_a_latent_rotation_trains_and_its_turns_are_drawn(tmp_path, monkeypatch):
    images = cubes(samples=60, size=8)
    monkeypatch.setitem(BUILTIN, "cubes", lambda: (images, Arrays((3, 8, 8))))
    monkeypatch.setattr(generative, "_NUM_IMAGES", 2)
    run = train(QUICK(data="cubes", model=SMALL, latent=SO3LatentSpec()), output_dir=tmp_path)
    assert run.results["active latents"]["of"] == 1
    assert run.results["lead_figures"][-1] == "rotations.png"
    model = load(run)
    r = model.encode(images.inputs[:5]).unflatten(1, (3, 3))
    torch.testing.assert_close(r @ r.mT, torch.eye(3).expand(5, 3, 3))
    with pytest.raises(ValueError, match="latent_dim"):
        train("vae", data="cubes", latent="so3", latent_dim=3, output_dir=tmp_path)


@pytest.mark.long
def test_vae_on_digits_beats_the_histogram_baseline(tmp_path):
    found = train(VAERecipe(**TRAINER), output_dir=tmp_path).results
    counted = found["baselines"]["histogram per feature, bits per dimension"]
    assert found["test"]["bits per dimension"]["high"] < counted - 0.3


@pytest.mark.long
def test_bernoulli_vae_beats_independent_bernoullis(tmp_path):
    run = train(VAERecipe(likelihood="bernoulli", **TRAINER), output_dir=tmp_path)
    found = run.results["test"]
    assert found["lower bound"]["value"] > run.results["baselines"]["independent Bernoulli features"] + 4
    assert found["lower bound, IWAE-64"]["value"] > found["lower bound"]["value"]
    assert run.results["active latents"]["active"] > 4
