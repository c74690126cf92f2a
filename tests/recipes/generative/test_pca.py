import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA as Reference

import lawful
from lawful.models.generative import AutoencoderSampler, SupportsLogProb, SupportsSample
from lawful.probe import figures
from lawful.recipes import AutoencodeRecipe, PCARecipe, draw, load, score
from lawful.recipes.autoencode import gaussian_of
from lawful.recipes.data import GenerativeData
from lawful.recipes.pca import best
from lawful.training import TrainerConfig

ENGINE = TrainerConfig(threads=1, laws=2)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def drawn(monkeypatch):
    """The names of figures, which are not drawn."""
    names = set()
    monkeypatch.setattr(figures, "save", lambda figure, path: names.add(path.name))
    return names


def test_pca_has_the_score_of_scikit_learn(drawn):
    recipe = PCARecipe(components=2, given=GenerativeData(data="iris"), engine=ENGINE)
    run = lawful.train(recipe)
    seen = recipe.given.parts()
    reference = Reference(n_components=2).fit(seen.train.double().numpy())
    nats = torch.tensor(reference.score_samples(seen.test.double().numpy()))
    found = run.results["test"]["log-likelihood"]
    assert found["low"] < float(nats.mean()) < found["high"]
    assert abs(found["value"] - float(nats.mean())) < 0.05  # n against n - 1
    assert run.results["baselines"]["a Gaussian for each feature"] < found["value"]
    assert run.results["test"]["squared error"]["value"] < run.results["baselines"]["the mean, squared error"]
    model = load(run)
    assert isinstance(model, SupportsSample)
    assert isinstance(model, SupportsLogProb)
    assert torch.equal(draw(run, 5), model.sample(5))
    assert draw(run, 300).shape == (300, 4)
    assert drawn == {"codes.png", "error by units.png", "samples.png"}
    assert np.load(run.samples / "samples.npy").shape == (2000, 4)


@pytest.mark.parametrize("how", ["randomised", "streaming"])
def test_other_ways_find_the_same_axes(how):
    exact, other = (
        PCARecipe(components=3, how=h, given=GenerativeData(data="wine"), engine=ENGINE).training().model
        for h in ("exact", how)
    )
    assert torch.allclose(exact.variances, other.variances, rtol=1e-3)


def test_the_number_of_axes_is_that_of_the_best_score():
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(400, 6, generator=draws, dtype=torch.float64) * 0.1
    x[:, :2] += 3 * torch.randn(400, 2, generator=draws, dtype=torch.float64)
    scores = [Reference(n_components=k).fit(x[:300].numpy()).score(x[300:].numpy()) for k in range(1, 7)]
    assert best(x[:300], x[300:]) == 1 + int(np.argmax(scores)) == 2


def test_too_many_components_and_options_of_another_way_are_refused():
    with pytest.raises(ValueError, match="components are at most 4, of 108 observations"):
        PCARecipe(components=5, given=GenerativeData(data="iris")).training()
    with pytest.raises(ValueError, match="batch is for how streaming"):
        PCARecipe(batch=3)


def test_an_autoencoder_rebuilds_better_than_the_mean_and_cleans(drawn):
    recipe = AutoencodeRecipe(
        latent=3,
        hidden=(16,),
        corrupt="gaussian",
        strength=0.3,
        steps=150,
        given=GenerativeData(data="wine"),
        engine=ENGINE,
    )
    run = lawful.train(recipe)
    test, baselines = run.results["test"], run.results["baselines"]
    assert test["squared error"]["value"] < baselines["the mean, squared error"]
    assert {"squared error, corrupted", "squared error, cleaned"} <= test.keys()
    assert drawn == {"codes.png", "error by units.png", "samples.png"}
    own = run.results["squared error by units"]["main directions of the code"]
    assert own["3"] == pytest.approx(test["squared error"]["value"], rel=1e-3)
    assert own["1"] > own["3"]
    model = load(run)
    assert isinstance(model, AutoencoderSampler)
    assert isinstance(model, SupportsSample)
    x = draw(run, 2000, seed=1)
    train = recipe.given.parts().train
    assert torch.allclose(x.mean(0), train.mean(0), atol=0.3 * float(train.std(0).max()))
    assert score(run, "wine").errors.shape == (178,)


def test_images_are_drawn_with_what_is_rebuilt_of_them():
    run = lawful.train(PCARecipe(components=3, engine=TrainerConfig(threads=1, laws=0)))
    names = {"codes", "components", "error by units", "rebuilt", "samples"}
    assert {path.stem for path in run.figures.glob("*.png")} == names
    bits, baselines = run.results["test"]["bits per dimension"]["value"], run.results["baselines"]
    assert baselines["levels counted for each feature, bits per dimension"] < bits


def test_a_code_that_does_not_vary_is_no_obstacle():
    recipe = AutoencodeRecipe(
        latent=6, hidden=(), steps=3, learning_rate=0.0, given=GenerativeData(data="moons", examples=60)
    )
    training = recipe.training()
    with torch.no_grad():
        training.model.autoencoder.encoder[1].layers[-1].weight[3:].zero_()
    z = training.model.autoencoder.encode(training.seen.train).detach()
    found = gaussian_of(z)
    assert found.components == 6
    assert bool(found.sample(100).isfinite().all())
    assert float(found.sample(100)[:, 3:].std(0).max()) < 0.1


def test_convolutions_are_for_images_and_series():
    with pytest.raises(ValueError, match=r"a cnn takes images or series: these have shape \(4,\)"):
        AutoencodeRecipe(model="cnn", given=GenerativeData(data="iris")).training()
    model = AutoencodeRecipe(model="cnn", width=2, latent=2).training().model
    assert model.shape == (1, 8, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corrupt": "masking", "strength": 2.0}, "strength is a share"),
        ({"patience": 3, "given": GenerativeData(validation=0.0)}, "patience wants observations"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AutoencodeRecipe(**options)
