from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from lawful.models.generative import GAN
from lawful.recipes import load
from lawful.recipes.generative import Gan, Observed
from lawful.training import Engine, train

ENGINE = Engine(threads=1, laws=0)
QUICK = partial(Gan, hidden=(8,), steps=4, batch=16, engine=ENGINE)


@pytest.mark.parametrize(
    ("game", "spectral", "data", "model"),
    [("non-saturating", False, "ring", "mlp"), ("wasserstein", True, "digits", "cnn")],
)
def test_every_game_runs_from_data_to_samples(tmp_path, game, spectral, data, model):
    observed = Observed(data=data, examples=200) if data == "ring" else Observed(data=data)
    recipe = QUICK(game=game, spectral=spectral, model=model, width=2, observed=observed)
    run = train(recipe, folder=tmp_path)
    assert {"mmd", "coverage", "precision"} <= run.results["test"].keys()
    assert run.results["baseline (a Gaussian)"].keys() == run.results["test"].keys()
    assert ("modes covered" in run.results["test"]) == (data == "ring")
    found = load(run)
    assert isinstance(found, GAN)
    assert found.sample(3).shape[1:] == found.shape
    assert np.load(run.samples / "samples.npy", allow_pickle=False).shape[1:] == found.shape


def test_a_cnn_of_rows_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a cnn takes images or series"):
        QUICK(model="cnn", observed=Observed(data="iris")).training()


@pytest.mark.long
def test_all_modes_of_the_ring_are_found(tmp_path):
    run = train(replace(Gan(engine=ENGINE), steps=2000), folder=tmp_path)
    found = run.results["test"]
    assert found["modes covered"] == 1
    assert found["samples in a mode"] > 0.8
    assert found["mmd"] < 0.1 * run.results["baseline (a Gaussian)"]["mmd"]
