from dataclasses import replace
from functools import partial

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as Peer
from torch.distributions import MultivariateNormal

from lawful.data import digits
from lawful.functions import pca_axes, randomized_pca_axes
from lawful.models.generative import PCA, SupportsLogProb, SupportsSample


def rows(n=60, d=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * torch.linspace(4, 0.5, d) + 2


@pytest.mark.parametrize("components", [1, 3, 5])
def test_equals_scikit_learn(components):
    x, new = rows(), rows(seed=1)
    peer = Peer(components, svd_solver="full").fit(x.numpy())
    model = PCA.fit(x, axes=partial(pca_axes, components=components))
    there = torch.from_numpy(peer.transform(new.numpy()))
    torch.testing.assert_close(model.project(new).abs(), there.abs())
    torch.testing.assert_close(model(new), torch.from_numpy(peer.inverse_transform(there.numpy())))
    torch.testing.assert_close(model.explained, torch.from_numpy(peer.explained_variance_ratio_))


@pytest.mark.parametrize("components", [1, 3, 5])
def test_the_score_equals_scikit_learns(components):
    """With variances over N - 1, as there."""
    x, new = rows(), rows(seed=1)
    found, more = pca_axes(x, components=components), 60 / 59
    model = PCA(replace(found, variances=found.variances * more, total=found.total * more))
    peer = Peer(components, svd_solver="full").fit(x.numpy())
    torch.testing.assert_close(model.log_prob(new).value, torch.from_numpy(peer.score_samples(new.numpy())))
    torch.testing.assert_close(float(model.noise), float(peer.noise_variance_))


def test_it_keeps_the_contract():
    model = PCA.fit(rows())
    assert isinstance(model, SupportsSample)
    assert isinstance(model, SupportsLogProb)
    x = model.sample(9, seed=3)
    torch.testing.assert_close(model.sample(2, seed=3, first=5), x[5:7])
    scored = model.log_prob(x)
    assert scored.evaluations == 1
    assert scored.error.eq(0).all()
    with pytest.raises(ValueError, match="knows no labels"):
        model.sample(2, labels=torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match="finite examples were wanted"):
        model.log_prob(x * float("nan"))


def test_samples_and_density_are_of_one_gaussian():
    x = rows()
    model = PCA.fit(x, axes=partial(pca_axes, components=3))
    drawn = model.sample(100000, seed=1)
    covariance = model.axes * (model.variances - model.noise) @ model.axes.mT + model.noise * torch.eye(6)
    torch.testing.assert_close(drawn.mT.cov(), covariance, rtol=0.05, atol=0.1)
    expected = MultivariateNormal(model.mean, covariance).log_prob(x)
    torch.testing.assert_close(model.log_prob(x).value, expected)


def test_images_of_any_shape():
    images = digits().inputs[:200]
    model = PCA.fit(images, axes=partial(randomized_pca_axes, components=5))
    assert model.shape == tuple(images.shape[1:])
    assert model.project(images).shape == (200, 5)
    assert model.zca(images).shape == model(images).shape == images.shape
    assert model.sample(3).shape == images[:3].shape
    assert model.sample(3).dtype == images.dtype
    assert model.interpolate(images[:2], images[2:4], steps=4).shape == (4, 2, *images.shape[1:])
    with pytest.raises(ValueError, match="examples of shape"):
        model.project(torch.zeros(2, 5))


def test_a_stream_gives_what_the_whole_gives():
    images = digits().inputs[:300].double()
    whole = PCA.fit(images, axes=partial(pca_axes, components=64))
    streamed = PCA.over(images.split(17), components=64)
    assert streamed.shape == whole.shape
    torch.testing.assert_close(streamed.log_prob(images).value, whole.log_prob(images).value)


def test_rank_deficient_data_have_finite_scores_and_white_covariances():
    """Three pixels of the digits never vary: scikit-learn's score of other rows is an error."""
    x = torch.from_numpy(load_digits().data)
    model = PCA.fit(x[:1500])
    assert model.components == 61
    assert model.log_prob(x[1500:]).value.isfinite().all()
    one = torch.eye(61, dtype=x.dtype)
    torch.testing.assert_close(model.whitened(x[:1500]).mT.cov(correction=0), one, rtol=0, atol=1e-10)
    projection = model.axes @ model.axes.mT
    torch.testing.assert_close(model.zca(x[:1500]).mT.cov(correction=0), projection, rtol=0, atol=1e-10)
    torch.testing.assert_close(model.unzca(model.zca(x)), model(x))
    torch.testing.assert_close(model.unwhitened(model.whitened(x)), model(x))


def test_two_equal_features_and_fewer_rows_than_features():
    for x in (rows()[:, [0, 1, 1]], rows(4, 9)):
        assert PCA.fit(x).log_prob(x + 0.1).value.isfinite().all()


def test_a_state_is_loaded_into_an_empty_one():
    images = digits().inputs[:100]
    model = PCA.fit(images, axes=partial(pca_axes, components=4))
    other = PCA.standard(model.shape, components=4)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.log_prob(images).value, model.log_prob(images).value, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(other.sample(3), model.sample(3))
    standard = PCA.standard((2,), components=1).log_prob(torch.zeros(1, 2)).value
    torch.testing.assert_close(standard, torch.full((1,), -1.8378771))


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.zeros(0, 3), "at least 2 rows"),
        (torch.zeros(1, 2, 3), "at least 2 rows"),
        (torch.full((5, 3), float("nan")), "NaN"),
        (torch.full((5, 3), float("-inf")), "infinite"),
        (torch.full((5, 3), 2.0), "data that vary were wanted: got 5 equal rows"),
    ],
)
def test_data_that_say_nothing(x, said):
    with pytest.raises(ValueError, match=said):
        PCA.fit(x)


def test_impossible_arguments():
    found = pca_axes(rows())
    with pytest.raises(ValueError, match="a shape of 6 numbers was wanted"):
        PCA(found, shape=(2, 2))
    with pytest.raises(ValueError, match="floor is between 0 and 1"):
        PCA(found, floor=0.0)
    with pytest.raises(ValueError, match="steps are at least 2"):
        PCA(found).interpolate(torch.zeros(1, 6).double(), torch.ones(1, 6).double(), steps=1)
