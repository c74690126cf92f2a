"""The recipe of diffusion: from data to a run, and back to a model that draws, scores and completes."""

import numpy as np
import pytest
import torch

from lawful.models.generative import SupportsLogProb, SupportsSample
from lawful.recipes import draw, load
from lawful.recipes.data import GenerativeData
from lawful.recipes.diffusion import DiffusionConfig, DiffusionRecipe
from lawful.training import TrainerConfig, train

QUICK = {"steps": 3, "batch": 16, "width": 8, "draws": 3, "scored": 2, "engine": TrainerConfig(threads=1, laws=0)}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_points_of_the_plane(here):
    run = train(DiffusionRecipe(**QUICK, given=GenerativeData(data="ring", examples=200)))
    assert {path.name for path in run.figures.iterdir()} == {"samples.png", "score.png", "trajectories.png"}
    assert {"log-likelihood", "denoising error"} <= run.results["test"].keys()
    assert "a Gaussian" in run.results["baselines"]
    assert run.results["evaluations for a score"] == 63
    assert run.results["standard error of a score, nats"] == 0
    model = load(run)
    assert isinstance(model, SupportsSample)
    assert isinstance(model, SupportsLogProb)
    x = np.load(run.samples / "samples.npy")
    torch.testing.assert_close(model.sample(5, 0), torch.tensor(x[:5]), rtol=1e-4, atol=1e-4)


def test_series_by_a_transformer_with_labels(here):
    x = np.random.default_rng(0).normal(size=(40, 1, 6)).astype("float32")
    np.savez(here / "series.npz", x=x, y=np.arange(40) % 2)
    given = GenerativeData(data=str(here / "series.npz"))
    run = train(DiffusionRecipe(**QUICK, given=given, network="transformer", depth=1, conditional=True, guidance=2.0))
    assert "bits per dimension" not in run.results["test"]
    assert "log-likelihood, labels known" in run.results["test"]
    model = load(run)
    assert model.sample(2, labels=torch.tensor([0, 1])).shape == (2, 1, 6)
    assert not draw(run, 2, label="1", steps=2).allclose(draw(run, 2, label="1"))
    with pytest.raises(ValueError, match="leads to a label"):
        draw(run, 2, guidance=2.0)
    known = torch.zeros(1, 1, 6, dtype=torch.bool)
    known[..., :3] = True
    filled = model.complete(torch.tensor(x[:1]), known, seed=1)
    assert torch.equal(filled[..., :3], torch.tensor(x[:1, :, :3]))


def test_a_classifier_guides_towards_labels(here):
    options = {**QUICK, "steps": 30, "batch": 128, "draws": 8, "learning_rate": 1e-2, "average": 0.0}
    run = train(
        DiffusionRecipe(**options, classifier=True, guidance=2.0, given=GenerativeData(data="moons", examples=400))
    )
    assert run.results["test"]["accuracy of the classifier, a little noise added"] > 0.8
    assert "log-likelihood, labels known" not in run.results["test"]
    usual = draw(run, 2, label="1")
    assert draw(run, 2, label="1", guidance=2.0).equal(usual)
    assert not draw(run, 2, label="1", guidance=1.0).allclose(usual)
    model = load(run)
    labels = torch.arange(2).repeat_interleave(30)
    drawn, test = model.sample(60, labels=labels), GenerativeData(data="moons", examples=400).parts()
    middles = torch.stack([test.test[test.test_labels == i].mean(0) for i in (0, 1)])
    near = torch.cdist(drawn, middles).argmin(1)
    assert float((near == labels).double().mean()) > 0.7


@pytest.mark.parametrize("path", ["edm", "ve", "vp", "sub-vp", "ddpm", "cosine", "rectified"])
@pytest.mark.parametrize("predicts", ["f", "noise", "denoised", "velocity", "flow", "score"])
def test_every_path_and_prediction_trains_and_draws(path, predicts):
    if predicts in ("noise", "score") and path in ("cosine", "rectified"):
        with pytest.raises(ValueError, match="noise alone"):
            DiffusionConfig(path=path, predicts=predicts)
        return
    torch.manual_seed(0)
    recipe = DiffusionRecipe(
        **QUICK, noising=DiffusionConfig(path=path, predicts=predicts), given=GenerativeData(data="ring", examples=60)
    )
    training = recipe.training()
    (turn,) = training.turns
    loss = turn.objective(training.model, (training.seen.train[:16],))
    assert loss.isfinite()
    assert training.model.sample(2).isfinite().all()


@pytest.mark.parametrize("levels", ["log-normal", "log-uniform", "uniform", "steps"])
def test_noise_levels_are_an_option(levels):
    recipe = DiffusionRecipe(
        **QUICK, noising=DiffusionConfig(levels=levels), given=GenerativeData(data="ring", examples=60)
    )
    training = recipe.training()
    assert training.evaluate(training.model)["loss"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"guidance": 2.0}, "conditional"),
        ({"conditional": True, "classifier": True}, "one of the two"),
        ({"patch": 4}, "transformer"),
        ({"steps": 0}, "steps"),
    ],
)
def test_wrong_options_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        DiffusionRecipe(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"network": "unet"}, "images or series"), ({"conditional": True}, "labels")],
)
def test_options_that_do_not_suit_the_data(options, said):
    with pytest.raises(ValueError, match=said):
        DiffusionRecipe(**options, given=GenerativeData(data="checkerboard", examples=60)).training()


@pytest.mark.long
def test_a_trained_model_beats_a_gaussian(here):
    run = train(
        DiffusionRecipe(
            steps=600,
            batch=256,
            width=64,
            scored=200,
            given=GenerativeData(data="ring", examples=4000),
            engine=QUICK["engine"],
        )
    )
    assert run.results["test"]["log-likelihood"]["low"] > run.results["baselines"]["a Gaussian"] + 1
