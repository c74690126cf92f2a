import math

import pytest
import torch

from lawful.functions import LogProbEstimate
from lawful.models.generative import PCA, Autoencoder
from lawful.recipes.data import GenerativeDataConfig
from lawful.recipes.generative import (
    _density_baselines,
    _evaluate_likelihood,
    _histogram_baseline,
    _log_likelihood,
    _mean_baseline,
    _pca_baseline,
)


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


def test_baselines_include_the_true_density_if_known():
    seen = GenerativeDataConfig(data="ring", num_samples=4000).load_splits()
    found = _density_baselines(seen)
    assert found["true density"] == pytest.approx(-seen.density.entropy, abs=0.1)
    assert found["true density"] > found["Gaussian"]


def test_pca_baseline_equals_pca(iris):
    found = _pca_baseline(iris, [1, 2, 4])
    for k in (1, 2):
        model = PCA(n_components=k).fit(iris.train)
        off = (model(iris.test) - iris.test).square().sum(1).mean()
        assert found[str(k)] == pytest.approx(float(off), rel=1e-3)
    assert found["4"] == pytest.approx(0.0, abs=1e-4)
    assert _mean_baseline(iris) == pytest.approx(
        float((iris.test - iris.train.mean(0)).square().sum(1).mean()), rel=1e-5
    )
