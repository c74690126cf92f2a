import re

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA as Reference

import lawful
from lawful.models.generative import AutoencoderSampler, SupportsLogProb, SupportsSample
from lawful.probe import figures
from lawful.recipes import (
    AutoencodeRecipe,
    CNNAutoencoderSpec,
    ExactPCASpec,
    GaussianCorruptionSpec,
    IncrementalPCASpec,
    MLPAutoencoderSpec,
    PCARecipe,
    RandomizedPCASpec,
    load,
    sample_from_run,
    score,
)
from lawful.recipes.autoencode import _fit_latent_gaussian
from lawful.recipes.generative import _density_baselines, _mean_baseline
from lawful.recipes.pca import _best_num_components

TRAINER = {"threads": 1, "law_cases": 2}


@pytest.fixture(autouse=True)
def _work_dir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def figure_names(monkeypatch):
    """Collects the names of figures instead of drawing them."""
    names = set()
    monkeypatch.setattr(figures, "save", lambda figure, path, **options: names.add(path.name))
    return names


def test_options_of_training_steps_are_refused():
    message = r"parallel, tensorboard would be ignored: .* without training steps"
    with pytest.raises(lawful.training.TrainingFailed, match=message):
        lawful.train(PCARecipe(data="iris", parallel="sharded", tensorboard=True, **TRAINER))


def test_pca_has_the_score_of_scikit_learn(figure_names):
    recipe = PCARecipe(num_components=2, data="iris", standardize=False, **TRAINER)
    run = lawful.train(recipe)
    seen = recipe.load_splits()
    reference = Reference(n_components=2).fit(seen.train.double().numpy())
    nats = torch.tensor(reference.score_samples(seen.test.double().numpy()))
    found = run.results["test"]["log-likelihood"]
    assert found["low"] < float(nats.mean()) < found["high"]
    assert abs(found["value"] - float(nats.mean())) < 0.05  # n against n - 1
    assert run.results["baselines"]["independent Gaussians"] < found["value"]
    assert run.results["test"]["squared error"]["value"] < run.results["baselines"]["mean, squared error"]
    model = load(run)
    assert isinstance(model, SupportsSample)
    assert isinstance(model, SupportsLogProb)
    assert torch.equal(sample_from_run(run, 5), model.sample(5, seed=0))
    assert sample_from_run(run, 300).shape == (300, 4)
    assert figure_names == {"latents.png", "error by latent dimension.png", "samples.png", "marginals.png"}
    assert np.load(run.samples / "samples.npy").shape == (2000, 4)


@pytest.mark.parametrize("how", [ExactPCASpec(), RandomizedPCASpec(), IncrementalPCASpec()])
def test_columns_of_a_table_are_standardized(how, tmp_path):
    """In raw units the income has all of the variance, and samples have none of the other correlations."""
    rng = np.random.default_rng(0)
    height = rng.normal(170, 10, 500)
    rows = np.stack([height, 0.9 * height + rng.normal(0, 4, 500), rng.normal(5e4, 2e4, 500)], axis=1)
    np.savetxt(tmp_path / "people.csv", rows, delimiter=",", header="height,weight,income", comments="")
    setup = PCARecipe(num_components=2, algorithm=how, data=str(tmp_path / "people.csv"), **TRAINER).setup()
    train, test = (part.double().numpy() for part in (setup.data.train, setup.data.test))
    mean, std = train.mean(0), train.std(0)
    reference = Reference(n_components=2).fit((train - mean) / std)
    expected = reference.score((test - mean) / std) - np.log(std).sum()
    assert float(setup.model.log_prob(setup.data.test).mean()) == pytest.approx(expected, abs=0.05)
    assert np.allclose(
        setup.model(setup.data.test),
        reference.inverse_transform(reference.transform((test - mean) / std)) * std + mean,
        rtol=1e-3,
    )
    correlation = np.corrcoef(setup.model.sample(2000, 0).numpy().T)
    assert correlation[0, 1] > 0.8
    assert _density_baselines(setup.data)["Gaussian"] > _density_baselines(setup.data)["independent Gaussians"] + 0.5
    assert _mean_baseline(setup.data) == pytest.approx(3, rel=0.2)


@pytest.mark.parametrize("how", [RandomizedPCASpec(), IncrementalPCASpec()])
def test_all_algorithms_find_the_same_variances(how):
    exact, other = (
        PCARecipe(num_components=3, algorithm=h, data="wine", **TRAINER).setup().model for h in (ExactPCASpec(), how)
    )
    assert torch.allclose(exact.explained_variance, other.explained_variance, rtol=1e-3)


def test_number_of_components_maximizes_the_validation_score():
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(400, 6, generator=draws, dtype=torch.float64) * 0.1
    x[:, :2] += 3 * torch.randn(400, 2, generator=draws, dtype=torch.float64)
    scores = [Reference(n_components=k).fit(x[:300].numpy()).score(x[300:].numpy()) for k in range(1, 7)]
    assert _best_num_components(x[:300], x[300:]) == 1 + int(np.argmax(scores)) == 2


def test_too_many_components_raise():
    with pytest.raises(ValueError, match="num_components must be at most 4 for 108 observations"):
        PCARecipe(num_components=5, data="iris").setup()


def test_denoising_autoencoder_beats_the_mean(figure_names):
    recipe = AutoencodeRecipe(
        latent_dim=3,
        model=MLPAutoencoderSpec(hidden_dims=(16,)),
        corruption=GaussianCorruptionSpec(corruption_std=0.3),
        steps=150,
        data="wine",
        **TRAINER,
    )
    run = lawful.train(recipe)
    test, baselines = run.results["test"], run.results["baselines"]
    assert test["squared error"]["value"] < baselines["mean, squared error"]
    assert {"squared error, corrupted", "squared error, denoised"} <= test.keys()
    assert figure_names == {"latents.png", "error by latent dimension.png", "samples.png", "marginals.png"}
    own = run.results["squared error by latent dimension"]["principal directions of the latents"]
    assert own["3"] == pytest.approx(test["squared error"]["value"], rel=1e-3)
    assert own["1"] > own["3"]
    assert re.match("The (autoencoder|baseline PCA with 3 components) beats .*squared error", run.results["summary"])
    model = load(run)
    assert isinstance(model, AutoencoderSampler)
    assert isinstance(model, SupportsSample)
    x = sample_from_run(run, 2000, seed=1)
    train = recipe.load_splits().train
    assert torch.allclose(x.mean(0), train.mean(0), atol=0.3 * float(train.std(0).max()))
    assert score(run, "wine").errors.shape == (178,)


def test_image_run_writes_reconstructions():
    run = lawful.train(PCARecipe(num_components=3, threads=1, law_cases=0))
    names = {"latents", "components", "error by latent dimension", "reconstructions", "samples"}
    assert {path.stem for path in run.figures.glob("*.png")} == names
    bits, baselines = run.results["test"]["bits per dimension"]["value"], run.results["baselines"]
    assert baselines["histogram per feature, bits per dimension"] < bits
    assert run.results["lead_figures"] == ["samples.png", "reconstructions.png"]
    assert "The baseline histogram per feature beats it in bits per dimension" in run.results["summary"]


def test_constant_latents_are_supported():
    recipe = AutoencodeRecipe(
        latent_dim=6, model=MLPAutoencoderSpec(hidden_dims=()), steps=3, learning_rate=0.0, data="moons", num_samples=60
    )
    training = recipe.setup()
    with torch.no_grad():
        training.model.autoencoder.encoder[1].layers[-1].weight[3:].zero_()
    z = training.model.autoencoder.encode(training.data.train).detach()
    found = _fit_latent_gaussian(z)
    assert len(found.components) == 6
    assert bool(found.sample(100).isfinite().all())
    assert float(found.sample(100)[:, 3:].std(0).max()) < 0.1


def test_convolutions_are_for_images_and_series():
    with pytest.raises(ValueError, match=r"model cnn needs images or series, got shape \(4,\)"):
        AutoencodeRecipe(model=CNNAutoencoderSpec(), data="iris").setup()
    model = AutoencodeRecipe(model=CNNAutoencoderSpec(channels=2), latent_dim=2).setup().model
    assert model.shape == (1, 8, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 3, "validation_fraction": 0.0}, "patience needs validation_fraction"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AutoencodeRecipe(**options)
