import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as Peer
from torch import Tensor
from torch.distributions import MultivariateNormal

from lawful.data import digits
from lawful.functions import pca_axes
from lawful.laws import (
    Claim,
    agreement,
    density_integrates_to_one,
    idempotence,
    samples_follow_density,
    shape,
    transformed,
)
from lawful.models.generative import PCA, SupportsLogProb, SupportsSample


def rows(n=60, d=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * torch.linspace(4, 0.5, d) + 2


@pytest.mark.parametrize("components", [1, 3, 5])
def test_equals_scikit_learn(components):
    x, new = rows(), rows(seed=1)
    peer = Peer(components, svd_solver="full").fit(x.numpy())
    model = PCA(components).fit(x)
    there = torch.from_numpy(peer.transform(new.numpy()))
    torch.testing.assert_close(model.transform(new).abs(), there.abs())
    torch.testing.assert_close(model(new), torch.from_numpy(peer.inverse_transform(there.numpy())))
    torch.testing.assert_close(model.explained_variance_ratio, torch.from_numpy(peer.explained_variance_ratio_))


@pytest.mark.parametrize("components", [1, 3, 5])
def test_the_score_equals_scikit_learns(components):
    """With variances over N - 1, as there."""
    x, new = rows(), rows(seed=1)
    found, more = pca_axes(x, n_components=components), 60 / 59
    model = PCA.from_components(
        replace(
            found,
            explained_variance=found.explained_variance * more,
            total_variance=found.total_variance * more,
        )
    )
    peer = Peer(components, svd_solver="full").fit(x.numpy())
    torch.testing.assert_close(model.log_prob(new), torch.from_numpy(peer.score_samples(new.numpy())))
    torch.testing.assert_close(float(model.noise_variance), float(peer.noise_variance_))


def test_protocols():
    model = PCA().fit(rows())
    assert isinstance(model, SupportsSample)
    assert isinstance(model, SupportsLogProb)
    x = model.sample(9, seed=3)
    torch.testing.assert_close(model.sample(2, seed=3, first=5), x[5:7])
    scored = model.log_prob(x)
    assert scored.shape == (9,)
    assert model.sample((2, 3)).shape == (2, 3, 6)
    with pytest.raises(ValueError, match="it takes no labels"):
        model.sample(2, labels=torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match="expected finite examples"):
        model.log_prob(x * float("nan"))


def test_samples_and_density_are_of_one_gaussian():
    x = rows()
    model = PCA(3).fit(x)
    drawn = model.sample(100000, seed=1)
    axes, noise = model.components.mT, model.noise_variance
    covariance = axes * (model.explained_variance - noise) @ axes.mT + noise * torch.eye(6)
    torch.testing.assert_close(drawn.mT.cov(), covariance, rtol=0.05, atol=0.1)
    expected = MultivariateNormal(model.mean, covariance).log_prob(x)
    torch.testing.assert_close(model.log_prob(x), expected)


def test_a_scale_is_a_change_of_units():
    """p(x) = p(x / s) / |s|."""
    x, scale = rows(), torch.linspace(0.5, 3.0, 6, dtype=torch.float64)
    scaled, plain = PCA(3).fit(x, scale=scale), PCA(3).fit(x / scale)
    torch.testing.assert_close(scaled.log_prob(x), plain.log_prob(x / scale) - scale.log().sum())
    torch.testing.assert_close(scaled.sample(5, seed=0), scale * plain.sample(5, seed=0))
    torch.testing.assert_close(scaled(x), scale * plain(x / scale))
    torch.testing.assert_close(scaled.zca(x), plain.zca(x / scale))
    torch.testing.assert_close(scaled.inverse_zca(scaled.zca(x)), scaled(x))


def test_images_of_any_shape():
    images = digits().inputs[:200]
    model = PCA(5, svd_solver="randomized").fit(images)
    assert model.shape == tuple(images.shape[1:])
    assert model.transform(images).shape == (200, 5)
    assert model.zca(images).shape == model(images).shape == images.shape
    assert model.sample(3).shape == images[:3].shape
    assert model.sample(3).dtype == images.dtype
    assert model.interpolate(images[:2], images[2:4], steps=4).shape == (4, 2, *images.shape[1:])
    with pytest.raises(ValueError, match="expected x of shape"):
        model.transform(torch.zeros(2, 5))


def test_fit_batches_equals_fit():
    images = digits().inputs[:300].double()
    whole = PCA(64).fit(images)
    streamed = PCA(64).fit_batches(images.split(17))
    assert streamed.shape == whole.shape
    torch.testing.assert_close(streamed.log_prob(images), whole.log_prob(images))


def test_rank_deficient_data_have_finite_scores_and_white_covariances():
    """Three pixels of the digits never vary: scikit-learn's score of other rows is an error."""
    x = torch.from_numpy(load_digits().data)
    model = PCA().fit(x[:1500])
    assert len(model.components) == 61
    assert model.log_prob(x[1500:]).isfinite().all()
    one = torch.eye(61, dtype=x.dtype)
    torch.testing.assert_close(model.whiten(x[:1500]).mT.cov(correction=0), one, rtol=0, atol=1e-10)
    projection = model.components.mT @ model.components
    torch.testing.assert_close(model.zca(x[:1500]).mT.cov(correction=0), projection, rtol=0, atol=1e-10)
    torch.testing.assert_close(model.inverse_zca(model.zca(x)), model(x))
    torch.testing.assert_close(model.unwhiten(model.whiten(x)), model(x))


def test_two_equal_features_and_fewer_rows_than_features():
    for x in (rows()[:, [0, 1, 1]], rows(4, 9)):
        assert PCA().fit(x).log_prob(x + 0.1).isfinite().all()


def test_load_state_dict():
    images = digits().inputs[:100]
    model = PCA(4).fit(images)
    other = PCA(4, shape=model.shape)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.log_prob(images), model.log_prob(images), rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(other.sample(3, seed=0), model.sample(3, seed=0))
    standard = PCA(1, shape=(2,)).log_prob(torch.zeros(1, 2))
    torch.testing.assert_close(standard, torch.tensor([-math.log(2 * math.pi)]))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(0, 3), "at least 2 rows"),
        (torch.zeros(1, 2, 3), "at least 2 rows"),
        (torch.full((5, 3), float("nan")), "NaN"),
        (torch.full((5, 3), float("-inf")), "infinity"),
        (torch.full((5, 3), 2.0), "expected data with variance, got 5 equal rows"),
    ],
)
def test_invalid_data(x, message):
    with pytest.raises(ValueError, match=message):
        PCA().fit(x)


def test_invalid_arguments():
    found = pca_axes(rows())
    with pytest.raises(ValueError, match="shape must have 6 entries"):
        PCA.from_components(found, shape=(2, 2))
    with pytest.raises(ValueError, match="expected 0 < min_variance_ratio < 1"):
        PCA(min_variance_ratio=0.0)
    with pytest.raises(ValueError, match="expected steps >= 2"):
        PCA.from_components(found).interpolate(torch.zeros(1, 6).double(), torch.ones(1, 6).double(), steps=1)


def test_unfitted_pca_raises():
    with pytest.raises(RuntimeError, match=r"PCA is not fitted: call fit\(x\)"):
        PCA(2).transform(rows())
    with pytest.raises(ValueError, match="requires n_components"):
        PCA(svd_solver="randomized")
    with pytest.raises(ValueError, match="requires n_components"):
        PCA().fit_batches([rows()])


def claims() -> Iterator[Claim]:
    """Laws of PCA."""
    x = torch.tensor([[4.0, 0, 0], [-4, 1, 0], [0, 3, 1], [1, -3, 0], [0, 0, -1.5], [2, 1, 2]], dtype=torch.float64)
    model = PCA(2).fit(x)
    flat = PCA(min_variance_ratio=0.1).fit(torch.cat([x[:, :2], x[:, :2] @ x.new_tensor([[1.0], [2.0]])], -1))
    near = transformed(torch.tanh, "n 3")

    def in_precision(model: PCA, x: Tensor) -> PCA:
        return deepcopy(model).to(x.dtype)

    def projected(y: Tensor) -> Tensor:
        return in_precision(model, y)(y)

    def nearest(y: Tensor) -> Tensor:
        _, _, vt = torch.linalg.svd(x - x.mean(0))
        off = y - x.mean(0).to(y)
        return y - (off @ vt[2].to(y))[:, None] * vt[2].to(y)

    yield Claim(idempotence(), projected, shape("n 3"), name="PCA")
    yield Claim(agreement(other=nearest), projected, shape("n 3"), name="PCA: the nearest point of the plane")

    def with_density(model: PCA, name: str, covariance: Tensor) -> Iterator[Claim]:
        def log_prob(y: Tensor) -> Tensor:
            return in_precision(model, y).log_prob(y)

        def written_out(y: Tensor) -> Tensor:
            return torch.distributions.MultivariateNormal(model.mean.to(y), covariance.to(y)).log_prob(y)

        def sampled(n: int) -> Tensor:
            return model.sample(n, seed=int(torch.randint(2**31, ())))

        yield Claim(agreement(other=written_out), log_prob, near, name=name)
        law = density_integrates_to_one if model is flat else samples_follow_density
        yield Claim(law(sample=sampled, log_prob=log_prob), log_prob, near, name=name)

    yield from with_density(model, "PCA of 2 axes", x.mT.cov(correction=0))
    thin = torch.cat([x[:, :2], x[:, :2] @ x.new_tensor([[1.0], [2.0]])], -1).mT.cov(correction=0)
    across = torch.linalg.cross(flat.components[0], flat.components[1])
    thick = thin + thin.trace() / 3 * 0.1 * across[:, None] * across
    yield from with_density(flat, "PCA of flat data", thick)

    def there_and_back(y: Tensor) -> Tensor:
        m = in_precision(model, y)
        return torch.stack([m.unwhiten(m.whiten(y)), m.inverse_zca(m.zca(y)), *m.interpolate(y, y.flip(0), steps=3)])

    def straight(y: Tensor) -> Tensor:
        a, b = nearest(y), nearest(y.flip(0))
        return torch.stack([a, a, a, (a + b) / 2, b])

    yield Claim(agreement(other=straight), there_and_back, near, name="PCA: whitened and back, interpolated")

    def root(y: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(x.mT.cov(correction=0))
        half = vectors[:, 1:] * values[1:].rsqrt() @ vectors[:, 1:].mT
        return (y - x.mean(0).to(y)) @ half.to(y)

    yield Claim(agreement(other=root), lambda y: in_precision(model, y).zca(y), near, name="PCA.zca")
