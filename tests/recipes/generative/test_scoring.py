import math
from functools import partial

import pytest
import torch

from lawful.functions import LogProbEstimate, pca_axes
from lawful.models.generative import PCA, Autoencoder
from lawful.recipes.data import GenerativeData
from lawful.recipes.generative_eval import (
    by_units,
    density_baselines,
    held_out,
    histogram_baseline,
    log_likelihood,
    mean_error,
)


class Bounded:
    """Bounds the score of everything by its sum."""

    def elbo(self, x, *, labels=None, seed=0):
        return LogProbEstimate(x.flatten(1).sum(1), torch.full((len(x),), 0.5), 7)


@pytest.fixture(scope="module")
def digits():
    return GenerativeData(data="digits").parts()


@pytest.fixture(scope="module")
def iris():
    return GenerativeData(data="iris").parts()


def test_scores_do_not_depend_on_how_many_rows_go_at_once(iris):
    model = PCA.fit(iris.train)
    whole, parts = log_likelihood(model, iris.test), log_likelihood(model, iris.test, rows=7)
    assert torch.allclose(whole.value, parts.value)
    assert whole.value.dtype == torch.float64


def test_levels_are_spread_alike_whatever_the_rows(digits):
    model = PCA.fit(digits.train, floor=1e-3)
    whole, parts = (
        log_likelihood(model, digits.test[:30], dequantizer=digits.dequantizer, rows=rows) for rows in (30, 7)
    )
    assert torch.allclose(whole.value, parts.value, atol=1e-3)


def test_a_bound_is_called_one_and_has_its_error(iris):
    found = log_likelihood(Bounded(), iris.test)
    assert torch.equal(found.error, torch.full((30,), 0.5, dtype=torch.float64))
    assert found.evaluations == 7
    assert held_out(Bounded(), iris).keys() == {"lower bound"}


def test_what_has_no_likelihood_or_an_infinite_one_is_refused(iris):
    model = Autoencoder(torch.nn.Linear(4, 2), torch.nn.Linear(2, 4), shape=(4,))
    with pytest.raises(ValueError, match="Autoencoder draws samples and has no likelihood"):
        log_likelihood(model, iris.test)
    broken = PCA.fit(iris.train)
    broken.mean[0] = math.nan
    with pytest.raises(ValueError, match="the model gives row 0 the score nan"):
        log_likelihood(broken, iris.test)


def test_gaussians_are_those_of_torch(iris):
    found = density_baselines(iris)
    train, test = iris.train.double(), iris.test.double()
    normal = torch.distributions.Normal(train.mean(0), train.std(0, correction=0))
    assert found["a Gaussian for each feature"] == pytest.approx(float(normal.log_prob(test).sum(1).mean()), rel=1e-6)
    whole = torch.distributions.MultivariateNormal(train.mean(0), train.T.cov(correction=0))
    assert found["a Gaussian"] == pytest.approx(float(whole.log_prob(test).mean()), rel=1e-3)


def test_levels_are_counted_with_one_added(digits):
    train, test = ((x.flatten(1) * 16).round().long() for x in (digits.train, digits.test))
    shares = (torch.stack([(train == level).sum(0) for level in range(17)]) + 1) / (len(train) + 17)
    bits = -float(shares.log2().gather(0, test).mean())
    assert histogram_baseline(digits, digits.dequantizer) == pytest.approx(bits, rel=1e-5)
    found = density_baselines(digits)
    assert set(found) == {
        f"{name}, bits per dimension"
        for name in ("a Gaussian for each feature", "a Gaussian", "levels counted for each feature")
    }


def test_the_truth_stands_beside_where_it_is_known():
    seen = GenerativeData(data="ring", examples=4000).parts()
    found = density_baselines(seen)
    assert found["the density itself"] == pytest.approx(-seen.density.entropy, abs=0.1)
    assert found["the density itself"] > found["a Gaussian"]


def test_errors_by_units_are_those_of_pca(iris):
    found = by_units(iris, [1, 2, 4])
    for k in (1, 2):
        model = PCA.fit(iris.train, axes=partial(pca_axes, components=k))
        off = (model(iris.test) - iris.test).square().sum(1).mean()
        assert found[str(k)] == pytest.approx(float(off), rel=1e-3)
    assert found["4"] == pytest.approx(0.0, abs=1e-4)
    assert mean_error(iris) == pytest.approx(float((iris.test - iris.train.mean(0)).square().sum(1).mean()), rel=1e-5)
