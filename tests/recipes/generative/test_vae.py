from functools import partial
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from lawful.models.generative import VAE, CategoricalLatent
from lawful.recipes import generative_eval as pictures
from lawful.recipes import load, vae
from lawful.recipes.data import GenerativeData
from lawful.recipes.vae import VAERecipe
from lawful.training import TrainerConfig, train

ENGINE = TrainerConfig(threads=1, laws=0)
QUICK = partial(VAERecipe, hidden=(8,), steps=6, batch=16, latent=3, importance=4, engine=ENGINE)


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({}, "digits"),
        ({"decoder": "bernoulli", "conditional": True}, "digits"),
        ({"model": "cnn", "width": 2, "decoder": "varying"}, "digits"),
        ({"codes": "categorical", "choices": 3, "relaxed": "straight-through"}, "iris"),
    ],
    ids=["levels", "bits", "convolutions", "choices"],
)
def test_every_kind_runs_from_data_to_samples(tmp_path, monkeypatch, options, data):
    monkeypatch.setattr(pictures, "PICTURES", 2)
    monkeypatch.setattr(vae, "SHOWN", 2)
    if options:  # pictures take longer than the training: one of the kinds has them
        for module in (vae, pictures):
            monkeypatch.setattr(module, "figures", MagicMock())
    run = train(QUICK(given=GenerativeData(data=data), **options), folder=tmp_path)
    found = run.results["test"]
    assert found["lower bound"].keys() == {"value", "low", "high", "standard error"}
    assert found["lower bound, IWAE-4"]["value"] > found["lower bound"]["value"] - 0.2
    assert ("bits per dimension" in found) == (data == "digits" and "conditional" not in options)
    assert run.results["baselines"]
    assert run.results["active units"]["of"] == 3
    assert (run.figures / "codes.png").exists() == (not options)
    assert np.load(run.samples / "samples.npy", allow_pickle=False).shape[1:] == load(run).shape
    model = load(run)
    assert isinstance(model, VAE)
    assert isinstance(model.codes, CategoricalLatent) == ("codes" in options)
    labels = torch.tensor([3, 3]) if options.get("conditional") else None
    drawn = model.sample(2, labels=labels)
    if "bernoulli" in options.values():
        assert set(drawn.unique().tolist()) <= {0.0, 1.0}
        assert any("bits" in note for note in run.results["warnings"])


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="wants labels"):
        QUICK(conditional=True, given=GenerativeData(data="diabetes")).training()
    with pytest.raises(ValueError, match="for bits: got"):
        QUICK(decoder="bernoulli", given=GenerativeData(data="iris")).training()
    with pytest.raises(ValueError, match="latent"):
        VAERecipe(latent=0)
    with pytest.raises(ValueError, match="the data have no levels"):
        QUICK(decoder="levels", given=GenerativeData(data="iris")).training()
    with pytest.raises(ValueError, match="a cnn takes images or series"):
        QUICK(model="cnn", given=GenerativeData(data="iris")).training()
    with pytest.raises(ValueError, match="ends are two numbers"):
        QUICK().restored({"form": {}})


@pytest.mark.long
def test_levels_of_digits_are_bounded_better_than_by_counting_them(tmp_path):
    found = train(VAERecipe(engine=ENGINE), folder=tmp_path).results
    counted = found["baselines"]["levels counted for each feature, bits per dimension"]
    assert found["test"]["bits per dimension"]["high"] < counted - 0.3


@pytest.mark.long
def test_bits_of_digits_are_bounded_better_than_by_coins(tmp_path):
    run = train(VAERecipe(decoder="bernoulli", engine=ENGINE), folder=tmp_path)
    found = run.results["test"]
    assert found["lower bound"]["value"] > run.results["baselines"]["a coin for each feature"] + 4
    assert found["lower bound, IWAE-64"]["value"] > found["lower bound"]["value"]
    assert run.results["active units"]["active"] > 4
