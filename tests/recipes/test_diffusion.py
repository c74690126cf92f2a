"""The diffusion recipe: from data to a run, and to a model that samples, scores and inpaints."""

import numpy as np
import pytest
import torch

from lawful.models.generative import SupportsLogProbEstimate, SupportsSample
from lawful.recipes import (
    DiscreteTimeSpec,
    LogNormalLevelsSpec,
    LogUniformLevelsSpec,
    PatchTransformerSpec,
    TimeMLPSpec,
    UNetSpec,
    UniformTimeSpec,
    generative,
    load,
    sample_from_run,
)
from lawful.recipes.data import GenerativeDataConfig
from lawful.recipes.diffusion import DiffusionConfig, DiffusionRecipe
from lawful.training import loggers, train

TRAINER = {"threads": 1, "law_cases": 0}
SMALL = {"steps": 3, "batch_size": 16, "sampling_steps": 3, "num_scored": 2, **TRAINER}
QUICK = {"model": TimeMLPSpec(dim=8), **SMALL}


@pytest.fixture
def work_dir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_points_of_the_plane(work_dir, monkeypatch, capsys):
    for name in ("_QUIET_SECONDS", "_LINE_SECONDS"):
        monkeypatch.setattr(loggers, name, 0.0)
    monkeypatch.setattr(generative, "_BATCH_SIZE", 1)
    run = train(DiffusionRecipe(**QUICK, data="ring", num_samples=200))
    assert {path.name for path in run.figures.iterdir()} == {"samples.png", "score.png", "trajectories.png"}
    assert {"log-likelihood", "denoising error"} <= run.results["test"].keys()
    assert "Gaussian" in run.results["baselines"]
    assert "the diffusion model" in run.results["summary"].replace("The", "the")
    assert run.results["lead_figures"] == ["samples.png"]
    lines = capsys.readouterr().out.splitlines()
    evaluation = lines[lines.index("evaluating the trained model") :]
    assert {"scoring 2 observations: 2 of 2", "drawing 2,000 samples: 0 of 1"} <= {*evaluation}
    assert run.results["network evaluations per likelihood"] == 63
    assert 0 < run.results["error of a likelihood, nats"] < 1
    model = load(run)
    assert isinstance(model, SupportsSample)
    assert isinstance(model, SupportsLogProbEstimate)
    x = np.load(run.samples / "samples.npy")
    torch.testing.assert_close(model.sample(5, 0), torch.tensor(x[:5]), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("unchecked")  # type checks would take most of the time
def test_series_by_a_transformer_with_labels(work_dir):
    x = np.random.default_rng(0).normal(size=(40, 1, 6)).astype("float32")
    np.savez(work_dir / "series.npz", x=x, y=np.arange(40) % 2)
    model = PatchTransformerSpec(dim=8, num_layers=1)
    options = {"data": str(work_dir / "series.npz"), "conditional": True, "guidance_scale": 2.0}
    run = train(DiffusionRecipe(**SMALL, **options, model=model))
    assert "bits per dimension" not in run.results["test"]
    assert "log-likelihood given the labels" in run.results["test"]
    model = load(run)
    assert model.sample(2, labels=torch.tensor([0, 1])).shape == (2, 1, 6)
    assert not sample_from_run(run, 2, label="1", steps=2).allclose(sample_from_run(run, 2, label="1"))
    with pytest.raises(ValueError, match="needs a label"):
        sample_from_run(run, 2, guidance_scale=2.0)
    known = torch.zeros(1, 1, 6, dtype=torch.bool)
    known[..., :3] = True
    filled = model.inpaint(torch.tensor(x[:1]), known, seed=1)
    assert torch.equal(filled[..., :3], torch.tensor(x[:1, :, :3]))


@pytest.mark.usefixtures("unchecked")
def test_a_classifier_guides_towards_labels(work_dir):
    options = {**QUICK, "steps": 30, "batch_size": 128, "sampling_steps": 8, "learning_rate": 1e-2, "ema_decay": 0.0}
    run = train(DiffusionRecipe(**options, classifier=True, guidance_scale=2.0, data="moons", num_samples=400))
    assert run.results["test"]["accuracy of the classifier at noise level 0.1"] > 0.8
    assert "log-likelihood given the labels" not in run.results["test"]
    usual = sample_from_run(run, 2, label="1")
    assert sample_from_run(run, 2, label="1", guidance_scale=2.0).equal(usual)
    assert not sample_from_run(run, 2, label="1", guidance_scale=1.0).allclose(usual)
    model = load(run)
    labels = torch.arange(2).repeat_interleave(30)
    drawn, test = model.sample(60, labels=labels), GenerativeDataConfig(data="moons", num_samples=400).load_splits()
    middles = torch.stack([test.test[test.test_labels == i].mean(0) for i in (0, 1)])
    near = torch.cdist(drawn, middles).argmin(1)
    assert float((near == labels).double().mean()) > 0.7


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("path", ["edm", "ve", "vp", "sub-vp", "ddpm", "cosine", "rectified"])
@pytest.mark.parametrize("predicts", ["edm", "noise", "denoised", "velocity", "flow", "score"])
def test_every_path_and_prediction_trains_and_samples(path, predicts):
    if predicts in ("noise", "score") and path in ("cosine", "rectified"):
        with pytest.raises(ValueError, match="pure noise"):
            DiffusionConfig(path=path, prediction=predicts)
        return
    torch.manual_seed(0)
    recipe = DiffusionRecipe(**QUICK, path=path, prediction=predicts, data="ring", num_samples=60)
    training = recipe.setup()
    loss = training.optimizer_steps[0].loss_fn(training.model, (training.data.train[:16],))
    assert loss.isfinite()
    assert training.model.sample(2).isfinite().all()


@pytest.mark.parametrize("levels", [LogNormalLevelsSpec, LogUniformLevelsSpec, UniformTimeSpec, DiscreteTimeSpec])
def test_noise_levels_are_an_option(levels):
    recipe = DiffusionRecipe(**QUICK, noise_levels=levels(), data="ring", num_samples=60)
    training = recipe.setup()
    assert training.evaluate(training.model)["loss"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"guidance_scale": 2.0}, "conditional"),
        ({"conditional": True, "classifier": True}, "set one of them"),
        ({"steps": 0}, "steps"),
    ],
)
def test_wrong_options_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        DiffusionRecipe(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"model": UNetSpec()}, "images or series"), ({"conditional": True}, "labels")],
)
def test_options_that_do_not_fit_the_data(options, said):
    with pytest.raises(ValueError, match=said):
        DiffusionRecipe(**options, data="checkerboard", num_samples=60).setup()


@pytest.mark.long
def test_a_trained_model_beats_a_gaussian(work_dir):
    run = train(
        DiffusionRecipe(
            steps=600,
            batch_size=256,
            model=TimeMLPSpec(dim=64),
            num_scored=200,
            data="ring",
            num_samples=4000,
            **TRAINER,
        )
    )
    assert run.results["test"]["log-likelihood"]["low"] > run.results["baselines"]["Gaussian"] + 1
