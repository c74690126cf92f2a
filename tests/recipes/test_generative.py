import math

import numpy as np
import pytest
import torch

from lawful.functions import LogProbEstimate
from lawful.models.generative import PCA, Autoencoder
from lawful.recipes import AutoencodeRecipe, GANRecipe, VAERecipe
from lawful.recipes.data import GenerativeDataConfig
from lawful.recipes.generative import (
    _density_baselines,
    _draw_samples,
    _evaluate_likelihood,
    _histogram_baseline,
    _log_likelihood,
    _mean_baseline,
    _pca_baseline,
    _samples_figures,
)
from lawful.training import loggers


class Bounded:
    """A model with a lower bound: the sum of the entries."""

    def elbo(self, x, *, labels=None):
        return x.flatten(1).sum(1)

    def elbo_estimate(self, x, *, labels=None, seed=0):
        return LogProbEstimate(x.flatten(1).sum(1), torch.full((len(x),), 0.5), 7)


@pytest.fixture(scope="module")
def digits():
    return GenerativeDataConfig(data="digits").load_splits()


@pytest.fixture(scope="module")
def iris():
    return GenerativeDataConfig(data="iris").load_splits()


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (VAERecipe(data="iris"), True),
        (VAERecipe(data="iris", conditional=True), False),
        (VAERecipe(data="diabetes"), False),
        (AutoencodeRecipe(data="iris"), False),
    ],
    ids=["unused", "conditional", "no labels", "no option"],
)
def test_labels_that_the_model_does_not_learn_are_noted(recipe, said):
    notes = recipe.setup().notes
    assert any("train with --conditional" in note for note in notes) == said


@pytest.mark.parametrize(("recipe", "restored"), [(VAERecipe, True), (GANRecipe, False)])
def test_weights_with_the_best_validation_loss_are_kept(recipe, restored):
    """The metric of a GAN is too noisy for that."""
    assert recipe(data="iris").setup().restore_best == restored
    assert not recipe(data="iris", validation_fraction=0.0).setup().restore_best


def test_log_likelihood_does_not_depend_on_the_batch_size(iris):
    model = PCA().fit(iris.train)
    whole, parts = _log_likelihood(model, iris.test), _log_likelihood(model, iris.test, batch_size=7)
    assert torch.allclose(whole.value, parts.value)
    assert whole.value.dtype == torch.float64


def test_dequantization_does_not_depend_on_the_batch_size(digits):
    model = PCA(min_variance_ratio=1e-3).fit(digits.train)
    whole, parts = (
        _log_likelihood(model, digits.test[:30], dequantizer=digits.dequantizer, batch_size=rows) for rows in (30, 7)
    )
    assert torch.allclose(whole.value, parts.value, atol=1e-3)


def test_lower_bound_is_labeled_and_has_a_standard_error(iris):
    found = _log_likelihood(Bounded(), iris.test)
    assert torch.equal(found.error, torch.full((30,), 0.5, dtype=torch.float64))
    assert found.evaluations == 7
    assert _evaluate_likelihood(Bounded(), iris).keys() == {"lower bound"}


def test_missing_or_nan_likelihood_raises(iris):
    model = Autoencoder(torch.nn.Linear(4, 2), torch.nn.Linear(2, 4), shape=(4,))
    with pytest.raises(ValueError, match="Autoencoder has no likelihood"):
        _log_likelihood(model, iris.test)
    broken = PCA().fit(iris.train)
    broken.mean[0] = math.nan
    with pytest.raises(ValueError, match="the model gives row 0 the log-likelihood nan"):
        _log_likelihood(broken, iris.test)


def test_gaussian_baselines_equal_torch(iris):
    found = _density_baselines(iris)
    train, test = iris.train.double(), iris.test.double()
    normal = torch.distributions.Normal(train.mean(0), train.std(0, correction=0))
    assert found["independent Gaussians"] == pytest.approx(float(normal.log_prob(test).sum(1).mean()), rel=1e-6)
    whole = torch.distributions.MultivariateNormal(train.mean(0), train.T.cov(correction=0))
    assert found["Gaussian"] == pytest.approx(float(whole.log_prob(test).mean()), rel=1e-3)


def test_histogram_baseline_uses_add_one_smoothing(digits):
    train, test = ((x.flatten(1) * 16).round().long() for x in (digits.train, digits.test))
    shares = (torch.stack([(train == level).sum(0) for level in range(17)]) + 1) / (len(train) + 17)
    bits = -float(shares.log2().gather(0, test).mean())
    assert _histogram_baseline(digits, digits.dequantizer) == pytest.approx(bits, rel=1e-5)
    found = _density_baselines(digits)
    assert set(found) == {
        f"{name}, bits per dimension" for name in ("independent Gaussians", "Gaussian", "histogram per feature")
    }


@pytest.mark.parametrize("dtype", [np.uint8, np.float32], ids=["8-bit images", "continuous images"])
def test_absurd_baselines_are_left_out(tmp_path, dtype):
    """Few images with constant borders: the covariance of a Gaussian is singular."""
    rng = np.random.default_rng(0)
    x = np.zeros((60, 1, 12, 12))
    x[:, :, 3:9, 3:9] = rng.integers(0, 256, (60, 1, 6, 6))
    x[50:] = rng.integers(0, 256, (10, 1, 12, 12))  # images without the borders
    np.save(tmp_path / "images.npy", x.astype(dtype))
    splits = GenerativeDataConfig(data=str(tmp_path / "images.npy")).load_splits()
    train = splits.dequantize(splits.train, seed=1)
    absurd = float(_log_likelihood(PCA().fit(train), splits.test, dequantizer=splits.dequantizer).value.mean())
    found = _density_baselines(splits)
    if dtype is np.uint8:
        assert splits.dequantizer.bits_per_dim(absurd, 144) > 9
        assert max(found.values()) <= 8
        assert "histogram per feature, bits per dimension" in found
    assert not any(name.startswith("Gaussian") for name in found)


def test_samples_are_shown_beside_test_data(iris, digits):
    for splits, names in ((iris, {"samples", "marginals"}), (digits, {"samples"})):
        x = PCA().fit(splits.train).sample(50, seed=0)
        plots = _samples_figures(x, splits)
        assert plots.keys() == names
        titles = [axes.get_title() for axes in plots["samples"].axes]
        assert titles[:2] == ["test data", "samples"]
    axes = _samples_figures(PCA().fit(iris.train).sample(9, seed=0), iris)["samples"].axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("petal length (cm)", "petal width (cm)")


def test_batches_of_samples_show_their_progress(digits, monkeypatch, capsys):
    for name in ("_QUIET_SECONDS", "_LINE_SECONDS"):
        monkeypatch.setattr(loggers, name, 0.0)
    model = PCA(n_components=3).fit(digits.train)
    with loggers._evaluation_console(loggers.ConsoleLogger()):
        x = _draw_samples(model, 10, seed=1, batch_size=4)
    assert capsys.readouterr().out.splitlines()[-1] == "drawing 10 samples: 3 of 3"
    torch.testing.assert_close(x, model.sample(10, 1))


def test_baselines_include_the_true_density_if_known():
    seen = GenerativeDataConfig(data="ring", num_samples=4000).load_splits()
    found = _density_baselines(seen)
    assert found["true density"] == pytest.approx(-seen.density.entropy, abs=0.1)
    assert found["true density"] > found["Gaussian"]


def test_pca_baseline_equals_pca(iris):
    found = _pca_baseline(iris, [1, 2, 4])
    std = iris.train.std(0, correction=0)
    for k in (1, 2):
        model = PCA(n_components=k).fit(iris.train / std)
        off = (model(iris.test / std) - iris.test / std).square().sum(1).mean()
        assert found[str(k)] == pytest.approx(float(off), rel=1e-3)
    assert found["4"] == pytest.approx(0.0, abs=1e-4)
    assert _mean_baseline(iris) == pytest.approx(
        float(((iris.test - iris.train.mean(0)) / std).square().sum(1).mean()), rel=1e-5
    )
