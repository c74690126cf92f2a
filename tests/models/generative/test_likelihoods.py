import math

import numpy as np
import pytest
import torch
from scipy.stats import logistic

from lawful.data import Dequantizer
from lawful.models.generative import CNNVAEConfig, DiscretizedLogisticLikelihood, cnn_vae

LEVELS = Dequantizer(levels=5, low=-1.0, high=3.0)


def test_every_level_has_what_scipy_gives_its_cell():
    model = DiscretizedLogisticLikelihood((2, 1), LEVELS, components=2)
    y = torch.randn(1, model.outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights, means, scales = (part.numpy() for part in y.reshape(3, 2, 2))
    share = np.exp(weights) / np.exp(weights).sum(0)
    borders = np.array([-np.inf, -0.75, -0.25, 0.25, 0.75, np.inf])
    middles = np.array([[-1 / 3], [1 / 3]])
    below = logistic.cdf(borders[:, None, None], means + middles, np.exp(scales - 1))
    wanted = (np.diff(below, axis=0) * share).sum(1)
    levels = torch.linspace(-1, 3, 5, dtype=torch.float64)
    for j in range(2):
        x = torch.full((5, 2, 1), 1.0, dtype=torch.float64)
        x[:, j, 0] = levels
        found = model.double().log_prob(x, y.expand(5, -1)).exp()
        other = wanted[2, 1 - j]
        np.testing.assert_allclose(found.numpy() / other, wanted[:, j], rtol=1e-6)
        assert float(found.sum()) / other == pytest.approx(1, rel=1e-6)


def test_samples_are_as_frequent_as_the_likelihood_says():
    torch.manual_seed(0)
    model = DiscretizedLogisticLikelihood((1,), LEVELS)
    y = torch.randn(1, model.outputs).expand(20_000, -1)
    x = model.sample(y, seed=1, stream=0, first=0)
    low, high = LEVELS.support
    assert low <= float(x.min()) <= float(x.max()) <= high
    levels = LEVELS.quantized(x)
    for level in torch.linspace(-1, 3, 5):
        wanted = float(model.log_prob(level.reshape(1, 1), y[:1]).exp()) * LEVELS.width
        assert float((levels == level).double().mean()) == pytest.approx(wanted, abs=0.015)
    assert float(model.mean(y[:1])) == pytest.approx(float(levels.mean()), abs=LEVELS.width / 2)
    torch.testing.assert_close(model.sample(y[:2], seed=1, stream=0, first=7), x[7:9])


def test_a_bound_on_levels_does_not_depend_on_where_in_their_cells_values_are():
    torch.manual_seed(0)
    pixels = Dequantizer(levels=17)
    model = cnn_vae(
        CNNVAEConfig(shape=(1, 5, 4), width=2), likelihood=DiscretizedLogisticLikelihood((1, 5, 4), pixels)
    ).eval()
    x = torch.randint(17, (6, 1, 5, 4)) / 16
    bounds = [model.elbo(pixels.dequantized(x, seed=s), draws=2).value for s in (0, 1)]
    torch.testing.assert_close(*bounds)
    assert all(bool(v.isfinite().all()) for v in bounds)
    assert model.decode(torch.randn(3, 8)).aminmax().max <= 1


def test_far_from_every_middle_it_stays_finite_and_has_a_gradient():
    model = DiscretizedLogisticLikelihood((1,), Dequantizer(levels=256), components=1)
    y = torch.tensor([[0.0, 1e4, -50.0], [0.0, -1e4, 50.0], [0.0, 0.0, 0.0]], requires_grad=True)
    value = model.log_prob(torch.tensor([[0.0], [1.0], [127 / 255]]), y)
    value.sum().backward()
    assert bool(value.isfinite().all())
    assert y.grad is not None
    assert bool(y.grad.isfinite().all())


def test_what_lies_in_no_cell_is_refused():
    model = DiscretizedLogisticLikelihood((2,), Dequantizer(levels=256))
    with pytest.raises(ValueError, match="for levels: got 0 to 255"):
        model.fit(torch.tensor([[0.0, 255.0]]))
    with pytest.raises(ValueError, match="for levels: got"):
        model.log_prob(torch.tensor([[0.0, math.nan]]), torch.zeros(1, model.outputs))
    with pytest.raises(ValueError, match="at least 1 component"):
        DiscretizedLogisticLikelihood((2,), LEVELS, components=0)
