import math

import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

from lawful.losses.variational import (
    categorical_divergence,
    gaussian_kl,
    gaussian_log_density,
    gumbel,
    gumbel_max,
    gumbel_softmax,
    importance_estimate,
    iwae_bound,
    negative_elbo,
    reparameterize,
    score_function,
)


def test_the_divergence_is_that_of_pytorch_to_the_last_digit_where_the_two_are_close():
    mean, log_variance = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = kl_divergence(Normal(mean, (log_variance / 2).exp()), Normal(torch.zeros_like(mean), 1.0))
    torch.testing.assert_close(gaussian_kl(mean, log_variance), plain)
    close = gaussian_kl(torch.zeros(1), torch.tensor([1e-3]))
    assert float(close) == pytest.approx(1e-6 / 4, rel=1e-3)


def test_free_bits_cost_nothing_and_stop_the_gradient():
    kl = torch.tensor([[0.1, 2.0], [0.2, 4.0]], requires_grad=True)
    negative_elbo(torch.zeros(2), kl, free=1.0).backward()
    torch.testing.assert_close(kl.grad, torch.tensor([[0.0, 0.5], [0.0, 0.5]]))


@pytest.mark.parametrize("options", [{"beta": -1.0}, {"free": -0.1}, {"beta": math.nan}])
def test_weights_below_zero_are_refused(options):
    with pytest.raises(ValueError, match="at least 0"):
        negative_elbo(torch.zeros(2), torch.zeros(2, 1), **options)


def test_no_examples_and_no_weights_are_refused():
    with pytest.raises(ValueError, match="at least one example"):
        negative_elbo(torch.zeros(0), torch.zeros(0, 2))
    with pytest.raises(ValueError, match="k is at least 1"):
        iwae_bound(torch.zeros(0, 3))


def test_the_importance_bound_grows_with_k_towards_the_truth():
    """Of log-normal weights, whose mean is known: log w ~ N(-1/2, 1), so that E w = 1 and log p = 0."""
    logs = torch.randn(64, 4000, generator=torch.Generator().manual_seed(1), dtype=torch.float64) - 0.5
    bounds = [float(iwae_bound(logs[:k]).mean()) for k in (1, 2, 8, 64)]
    assert bounds == sorted(bounds)
    assert bounds[0] == pytest.approx(-0.5, abs=0.05)
    assert -0.05 < bounds[-1] < 0


def test_the_importance_bound_tells_its_error():
    logs = torch.randn(400, 500, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 0.3
    found = importance_estimate(logs, evaluations=400)
    assert float(found.error.mean()) == pytest.approx(float(found.value.std()), rel=0.15)
    assert importance_estimate(logs[:1], evaluations=1).error.isnan().all()


def test_huge_log_weights_stay_finite():
    assert float(iwae_bound(torch.tensor([-5000.0, -5000.0]))) == -5000.0


def test_the_gradient_through_samples_is_the_true_one_and_varies_less_than_that_through_probabilities():
    """Of E z² = μ² + σ² by μ and by log σ²: 2 μ and σ²."""
    mu, log_variance, n = 0.7, -0.4, 4000
    mean = torch.full((n,), mu, dtype=torch.float64, requires_grad=True)
    spread = torch.full((n,), log_variance, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = reparameterize(mean, spread, noise)
    through = torch.autograd.grad(z.square().sum(), (mean, spread))
    values = z.detach().square()
    logs = gaussian_log_density(z.detach()[:, None], mean[:, None], spread[:, None])
    scores = torch.autograd.grad(n * score_function(values, logs), (mean, spread))
    for one, other, truth in zip(through, scores, (2 * mu, math.exp(log_variance)), strict=True):
        for found in (one, other):
            assert float(found.mean()) == pytest.approx(truth, abs=4 * float(found.std()) / n**0.5)
        assert float(other.var()) > 3 * float(one.var())


def test_a_baseline_changes_the_variance_only():
    p = torch.zeros(2000, dtype=torch.float64, requires_grad=True)
    heads = torch.rand(2000, generator=torch.Generator().manual_seed(3)) < 0.5
    logs = torch.where(heads, torch.nn.functional.logsigmoid(p), torch.nn.functional.logsigmoid(-p))
    values = 10 + heads.double()
    plain, centred = (
        torch.autograd.grad(2000 * score_function(values, logs, baseline=b), p, retain_graph=True)[0]
        for b in (0.0, 10.5)
    )
    assert float(centred.mean()) == pytest.approx(0.25, abs=1e-9)
    assert float(plain.var()) > 100 * float(centred.var())


def test_gumbel_noise_chooses_as_often_as_the_probabilities_say():
    logits = torch.tensor([0.0, 1.0, -1.0])
    u = torch.rand(20000, 3, generator=torch.Generator().manual_seed(4))
    chosen = gumbel_max(logits.expand_as(u), gumbel(u))
    assert chosen.sum(1).eq(1).all()
    torch.testing.assert_close(chosen.mean(0), logits.softmax(0), atol=0.015, rtol=0)
    cold = gumbel_softmax(logits.expand_as(u), gumbel(u), temperature=1e-4)
    assert (cold - chosen).abs().max(1).values.gt(0.01).float().mean() < 1e-3
    warm = gumbel_softmax(logits.expand_as(u), gumbel(u), temperature=1.0)
    assert float(warm.max(1).values.mean()) < 0.9


def test_the_divergence_of_choices_is_that_of_pytorch():
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(5))
    even = kl_divergence(Categorical(logits=logits), Categorical(logits=torch.zeros(4, 5)))
    torch.testing.assert_close(categorical_divergence(logits), even)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf])
def test_a_temperature_is_above_zero(temperature):
    with pytest.raises(ValueError, match="temperature"):
        gumbel_softmax(torch.zeros(2), torch.zeros(2), temperature=temperature)
