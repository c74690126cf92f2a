import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import logistic
from torch import Tensor

from lawful.data import Dequantizer
from lawful.laws import Claim, agreement, shape, transformed
from lawful.models.generative import (
    BernoulliLikelihood,
    DiscretizedLogisticLikelihood,
    GaussianLikelihood,
    HeteroscedasticGaussianLikelihood,
    cnn_vae,
)

LEVELS = Dequantizer(levels=5, low=-1.0, high=3.0)


def test_the_noise_is_at_least_min_std():
    x = torch.tensor([[1.0, 10.0], [3.0, 50.0]], dtype=torch.float64)
    params = torch.zeros(2, 2, dtype=torch.float64)
    likelihood = GaussianLikelihood((2,), min_std=0.25).double().fit_normalizer(x)
    with torch.no_grad():
        likelihood.log_noise.copy_(torch.tensor([0.1, 0.5]).log())
    mean, std = likelihood.mean_and_std(params)
    torch.testing.assert_close(mean, x.mean(0).expand(2, 2))
    torch.testing.assert_close(std, x.std(0, correction=0) * torch.tensor([0.25, 0.5], dtype=torch.float64))
    varying = HeteroscedasticGaussianLikelihood((2,), min_std=0.25).double().fit_normalizer(x)
    std = varying.mean_and_std(torch.full((1, 4), -50.0, dtype=torch.float64))[1]
    torch.testing.assert_close(std[0], 0.25 * x.std(0, correction=0))


def test_level_probabilities_equal_scipy():
    model = DiscretizedLogisticLikelihood((2, 1), LEVELS, num_components=2)
    y = torch.randn(1, model.num_params, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights, means, scales = (part.numpy() for part in y.reshape(3, 2, 2))
    share = np.exp(weights) / np.exp(weights).sum(0)
    borders = np.array([-np.inf, -0.75, -0.25, 0.25, 0.75, np.inf])
    middles = np.array([[-1 / 3], [1 / 3]])
    below = logistic.cdf(borders[:, None, None], means + middles, np.exp(scales - 1))
    expected = (np.diff(below, axis=0) * share).sum(1)
    levels = torch.linspace(-1, 3, 5, dtype=torch.float64)
    for j in range(2):
        x = torch.full((5, 2, 1), 1.0, dtype=torch.float64)
        x[:, j, 0] = levels
        found = model.double().log_prob(x, y.expand(5, -1)).exp()
        other = expected[2, 1 - j]
        np.testing.assert_allclose(found.numpy() / other, expected[:, j], rtol=1e-6)
        assert float(found.sum()) / other == pytest.approx(1, rel=1e-6)


def test_samples_follow_the_likelihood():
    torch.manual_seed(0)
    model = DiscretizedLogisticLikelihood((1,), LEVELS)
    y = torch.randn(1, model.num_params).expand(20_000, -1)
    x = model.sample(y, seed=1, stream=0, first=0)
    low, high = LEVELS.support
    assert low <= float(x.min()) <= float(x.max()) <= high
    levels = LEVELS.quantize(x)
    for level in torch.linspace(-1, 3, 5):
        expected = float(model.log_prob(level.reshape(1, 1), y[:1]).exp()) * LEVELS.width
        assert float((levels == level).double().mean()) == pytest.approx(expected, abs=0.015)
    assert float(model.mean(y[:1])) == pytest.approx(float(levels.mean()), abs=LEVELS.width / 2)
    torch.testing.assert_close(model.sample(y[:2], seed=1, stream=0, first=7), x[7:9])


def test_elbo_does_not_depend_on_the_dequantization_noise():
    torch.manual_seed(0)
    pixels = Dequantizer(levels=17)
    model = cnn_vae((1, 5, 4), channels=2, likelihood=DiscretizedLogisticLikelihood((1, 5, 4), pixels)).eval()
    x = torch.randint(17, (6, 1, 5, 4)) / 16
    bounds = [model.elbo_estimate(pixels.dequantize(x, seed=s), num_samples=2).value for s in (0, 1)]
    torch.testing.assert_close(*bounds)
    assert all(bool(v.isfinite().all()) for v in bounds)
    assert model.decode(torch.randn(3, 8)).aminmax().max <= 1


def test_log_prob_far_from_all_components_is_finite_with_a_gradient():
    model = DiscretizedLogisticLikelihood((1,), Dequantizer(levels=256), num_components=1)
    y = torch.tensor([[0.0, 1e4, -50.0], [0.0, -1e4, 50.0], [0.0, 0.0, 0.0]], requires_grad=True)
    value = model.log_prob(torch.tensor([[0.0], [1.0], [127 / 255]]), y)
    value.sum().backward()
    assert bool(value.isfinite().all())
    assert y.grad is not None
    assert bool(y.grad.isfinite().all())


def test_values_outside_the_cells():
    model = DiscretizedLogisticLikelihood((2,), Dequantizer(levels=256))
    with pytest.raises(ValueError, match="got 0 to 255"):
        model.fit_normalizer(torch.tensor([[0.0, 255.0]]))
    with pytest.raises(ValueError, match="expected values from"):
        model.log_prob(torch.tensor([[0.0, math.nan]]), torch.zeros(1, model.num_params))
    with pytest.raises(ValueError, match="expected num_components >= 1"):
        DiscretizedLogisticLikelihood((2,), LEVELS, num_components=0)


def _likelihoods_claims() -> Iterator[Claim]:
    """Laws of likelihoods."""
    data = torch.tensor([[0.0, 1.0, 5.0], [2.0, 7.0, 5.0]])
    gaussian, varying = (
        kind((3,)).fit_normalizer(data) for kind in (GaussianLikelihood, HeteroscedasticGaussianLikelihood)
    )
    near = (transformed(torch.tanh, "n 3"), transformed(torch.tanh, "2 n 3"))

    def units(x: Tensor) -> tuple[Tensor, Tensor]:
        """Deviations and means of the data, the constant feature with the least of the deviations."""
        return x.new_tensor([1.0, 3.0, 1.0]), x.new_tensor([1.0, 4.0, 5.0])

    def by_torch(x: Tensor, y: Tensor) -> Tensor:
        s, m = units(x)
        noise = s * gaussian.log_noise.exp().clamp_min(1e-3)
        return torch.distributions.Normal(y * s + m, noise).log_prob(x).sum(-1)

    def density(x: Tensor, y: Tensor) -> Tensor:
        return gaussian.to(x).log_prob(x, y)

    def sure(x: Tensor, y: Tensor) -> Tensor:
        s, m = units(x)
        noise = 1e-3 + (1 + y[..., 3:].exp() * (math.e - 1)).log()
        return torch.distributions.Normal(y[..., :3] * s + m, s * noise).log_prob(x).sum(-1)

    def varied(x: Tensor, y: Tensor) -> Tensor:
        return varying.to(x).log_prob(x, y)

    yield Claim(agreement(other=by_torch), density, near, name="GaussianLikelihood")
    both = (near[0], transformed(torch.tanh, "2 n 6"))
    yield Claim(agreement(other=sure), varied, both, name="HeteroscedasticGaussianLikelihood")
    bits = BernoulliLikelihood((3,), low=-1.0, high=3.0)

    def coins(x: Tensor, y: Tensor) -> Tensor:
        p = y.sigmoid()
        return torch.where(x > 1, p.log(), (1 - p).log()).sum(-1)

    wide = transformed(lambda x: 1 + 2 * x.tanh(), "n 3")
    yield Claim(agreement(other=coins), bits.log_prob, (wide, near[1]), name="BernoulliLikelihood")
    logistic = agreement(other=lambda y: 4 / (1 + (-y).exp()) - 1)
    yield Claim(logistic, bits.mean, shape("n 3"), name="BernoulliLikelihood.mean")


def _level_likelihood_claims() -> Iterator[Claim]:
    """Laws of the likelihood of levels."""
    levels = Dequantizer(levels=4, low=2.0, high=5.0)
    model = DiscretizedLogisticLikelihood((2,), levels, num_components=2)
    outputs = transformed(lambda y: y.tanh() / 2, "n 12")

    def inner(y: Tensor) -> Tensor:
        return model.to(y).log_prob(y.new_tensor([[3.0, 5.0]]).expand(len(y), 2), y)

    def written_out(y: Tensor) -> Tensor:
        weights, means, scales = y.unflatten(-1, (3, 2, 2)).unbind(1)
        means, scales = means + y.new_tensor([[-1 / 3], [1 / 3]]), (scales - 1).exp()
        upper, lower = (((y.new_tensor(t) - means) / scales).sigmoid() for t in ([0.0, 9e9], [-2 / 3, 2 / 3]))
        return (weights.softmax(1) * (upper - lower)).sum(1).log().sum(1)

    yield Claim(
        replace(agreement(other=written_out), cases=20), inner, outputs, name="DiscretizedLogisticLikelihood.log_prob"
    )

    def moved(y: Tensor) -> Tensor:
        return model.to(y).log_prob(y.new_tensor([[3.4, 4.6]]).expand(len(y), 2), y)

    yield Claim(
        replace(agreement(other=inner), cases=10),
        moved,
        outputs,
        name="DiscretizedLogisticLikelihood, constant on cells",
    )


def claims() -> Iterator[Claim]:
    """Second derivations of likelihoods."""
    yield from _likelihoods_claims()
    yield from _level_likelihood_claims()
