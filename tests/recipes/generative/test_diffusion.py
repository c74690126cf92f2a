"""The recipe of diffusion: from data to a run, and back to a model that draws, scores and completes."""

import numpy as np
import pytest
import torch

from lawful.models.generative import Generates, Scores
from lawful.recipes import load
from lawful.recipes.generative import Diffusion, Observed
from lawful.recipes.generative.noising import Noising
from lawful.training import Engine, train

QUICK = {"steps": 3, "batch": 16, "width": 8, "draws": 3, "scored": 2, "engine": Engine(threads=1, laws=0)}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_points_of_the_plane(here):
    run = train(Diffusion(**QUICK, given=Observed(data="ring", examples=200)))
    assert {path.name for path in run.figures.iterdir()} == {"samples.png", "score.png", "trajectories.png"}
    assert {"log-likelihood", "denoising error"} <= run.results["test"].keys()
    assert "a Gaussian" in run.results["baselines"]
    model = load(run)
    assert isinstance(model, Generates)
    assert isinstance(model, Scores)
    x = np.load(run.samples / "samples.npy")
    torch.testing.assert_close(model.sample(5, 0), torch.tensor(x[:5]), rtol=1e-4, atol=1e-4)


def test_series_by_a_transformer_with_labels(here):
    x = np.random.default_rng(0).normal(size=(40, 1, 6)).astype("float32")
    np.savez(here / "series.npz", x=x, y=np.arange(40) % 2)
    given = Observed(data=str(here / "series.npz"))
    run = train(Diffusion(**QUICK, given=given, network="transformer", depth=1, conditional=True, guidance=2.0))
    assert "bits per dimension" not in run.results["test"]
    assert "log-likelihood, labels known" in run.results["test"]
    model = load(run)
    assert model.sample(2, labels=torch.tensor([0, 1])).shape == (2, 1, 6)
    known = torch.zeros(1, 1, 6, dtype=torch.bool)
    known[..., :3] = True
    filled = model.complete(torch.tensor(x[:1]), known, seed=1)
    assert torch.equal(filled[..., :3], torch.tensor(x[:1, :, :3]))


@pytest.mark.parametrize("path", ["edm", "ve", "vp", "sub-vp", "ddpm", "cosine", "rectified"])
@pytest.mark.parametrize("predicts", ["f", "noise", "denoised", "velocity", "flow", "score"])
def test_every_path_and_prediction_trains_and_draws(path, predicts):
    if predicts in ("noise", "score") and path in ("cosine", "rectified"):
        with pytest.raises(ValueError, match="noise alone"):
            Noising(path=path, predicts=predicts)
        return
    torch.manual_seed(0)
    recipe = Diffusion(**QUICK, noising=Noising(path=path, predicts=predicts), given=Observed(data="ring", examples=60))
    training = recipe.training()
    (turn,) = training.turns
    loss = turn.objective(training.model, (training.seen.train[:16],))
    assert loss.isfinite()
    assert training.model.sample(2).isfinite().all()


@pytest.mark.parametrize("levels", ["log-normal", "log-uniform", "uniform", "steps"])
def test_noise_levels_are_an_option(levels):
    recipe = Diffusion(**QUICK, noising=Noising(levels=levels), given=Observed(data="ring", examples=60))
    training = recipe.training()
    assert training.evaluate(training.model)["loss"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"guidance": 2.0}, "conditional"),
        ({"patch": 4}, "transformer"),
        ({"steps": 0}, "steps"),
    ],
)
def test_wrong_options_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        Diffusion(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"network": "unet"}, "images or series"), ({"conditional": True}, "labels")],
)
def test_options_that_do_not_suit_the_data(options, said):
    with pytest.raises(ValueError, match=said):
        Diffusion(**options, given=Observed(data="checkerboard", examples=60)).training()


@pytest.mark.long
def test_a_trained_model_beats_a_gaussian(here):
    run = train(
        Diffusion(
            steps=600,
            batch=256,
            width=64,
            scored=200,
            given=Observed(data="ring", examples=4000),
            engine=QUICK["engine"],
        )
    )
    assert run.results["test"]["log-likelihood"]["low"] > run.results["baselines"]["a Gaussian"] + 1
