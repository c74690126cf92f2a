import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal, kl_divergence

from lawful.laws import (
    AtMost,
    Claim,
    Draw,
    HasMean,
    Map,
    Statement,
    agreement,
    boundedness,
    derivative,
    law,
    reparameterized_gradient,
    shape,
    sums_to_one,
    transformed,
)
from lawful.losses import straight_through_gumbel
from lawful.losses.variational import (
    categorical_kl,
    gaussian_kl,
    gaussian_log_prob,
    gumbel_max,
    gumbel_noise,
    gumbel_softmax,
    iwae_bound,
    iwae_estimate,
    negative_elbo,
    reparameterize,
    score_function_loss,
)


def test_gaussian_kl_equals_torch_and_is_accurate_near_zero():
    mean, log_variance = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = kl_divergence(Normal(mean, (log_variance / 2).exp()), Normal(torch.zeros_like(mean), 1.0))
    torch.testing.assert_close(gaussian_kl(mean, log_variance), plain)
    close = gaussian_kl(torch.zeros(1), torch.tensor([1e-3]))
    assert float(close) == pytest.approx(1e-6 / 4, rel=1e-3)


def test_free_bits_cost_nothing_and_stop_the_gradient():
    kl = torch.tensor([[0.1, 2.0], [0.2, 4.0]], requires_grad=True)
    negative_elbo(torch.zeros(2), kl, free_bits=1.0).backward()
    torch.testing.assert_close(kl.grad, torch.tensor([[0.0, 0.5], [0.0, 0.5]]))


@pytest.mark.parametrize("options", [{"beta": -1.0}, {"free_bits": -0.1}, {"beta": math.nan}])
def test_negative_weights_raise(options):
    with pytest.raises(ValueError, match="expected finite beta >= 0"):
        negative_elbo(torch.zeros(2), torch.zeros(2, 1), **options)


def test_no_examples_and_no_weights_are_refused():
    with pytest.raises(ValueError, match="expected at least one example"):
        negative_elbo(torch.zeros(0), torch.zeros(0, 2))
    with pytest.raises(ValueError, match="expected k >= 1"):
        iwae_bound(torch.zeros(0, 3))


def test_the_importance_bound_grows_with_k_towards_the_truth():
    """Of log-normal weights, whose mean is known: log w ~ N(-1/2, 1), so that E w = 1 and log p = 0."""
    logs = torch.randn(64, 4000, generator=torch.Generator().manual_seed(1), dtype=torch.float64) - 0.5
    bounds = [float(iwae_bound(logs[:k]).mean()) for k in (1, 2, 8, 64)]
    assert bounds == sorted(bounds)
    assert bounds[0] == pytest.approx(-0.5, abs=0.05)
    assert -0.05 < bounds[-1] < 0


def test_iwae_standard_error_matches_the_spread():
    logs = torch.randn(400, 500, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 0.3
    found = iwae_estimate(logs, evaluations=400)
    assert float(found.error.mean()) == pytest.approx(float(found.value.std()), rel=0.15)
    assert iwae_estimate(logs[:1], evaluations=1).error.isnan().all()


def test_huge_log_weights_stay_finite():
    assert float(iwae_bound(torch.tensor([-5000.0, -5000.0]))) == -5000.0


def test_reparameterized_gradient_is_unbiased_with_less_variance_than_score_function():
    """Of E z² = μ² + σ² by μ and by log σ²: 2 μ and σ²."""
    mu, log_variance, n = 0.7, -0.4, 4000
    mean = torch.full((n,), mu, dtype=torch.float64, requires_grad=True)
    spread = torch.full((n,), log_variance, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = reparameterize(mean, spread, noise)
    through = torch.autograd.grad(z.square().sum(), (mean, spread))
    values = z.detach().square()
    logs = gaussian_log_prob(z.detach()[:, None], mean[:, None], spread[:, None])
    scores = torch.autograd.grad(n * score_function_loss(values, logs), (mean, spread))
    for one, other, truth in zip(through, scores, (2 * mu, math.exp(log_variance)), strict=True):
        for found in (one, other):
            assert float(found.mean()) == pytest.approx(truth, abs=4 * float(found.std()) / n**0.5)
        assert float(other.var()) > 3 * float(one.var())


def test_a_baseline_changes_the_variance_only():
    p = torch.zeros(2000, dtype=torch.float64, requires_grad=True)
    heads = torch.rand(2000, generator=torch.Generator().manual_seed(3)) < 0.5
    logs = torch.where(heads, torch.nn.functional.logsigmoid(p), torch.nn.functional.logsigmoid(-p))
    values = 10 + heads.double()
    plain, centered = (
        torch.autograd.grad(2000 * score_function_loss(values, logs, baseline=b), p, retain_graph=True)[0]
        for b in (0.0, 10.5)
    )
    assert float(centered.mean()) == pytest.approx(0.25, abs=1e-9)
    assert float(plain.var()) > 100 * float(centered.var())


def test_gumbel_max_samples_follow_the_probabilities():
    logits = torch.tensor([0.0, 1.0, -1.0])
    u = torch.rand(20000, 3, generator=torch.Generator().manual_seed(4))
    chosen = gumbel_max(logits.expand_as(u), gumbel_noise(u))
    assert chosen.sum(1).eq(1).all()
    torch.testing.assert_close(chosen.mean(0), logits.softmax(0), atol=0.015, rtol=0)
    cold = gumbel_softmax(logits.expand_as(u), gumbel_noise(u), temperature=1e-4)
    assert (cold - chosen).abs().max(1).values.gt(0.01).float().mean() < 1e-3
    warm = gumbel_softmax(logits.expand_as(u), gumbel_noise(u), temperature=1.0)
    assert float(warm.max(1).values.mean()) < 0.9


def test_categorical_kl_equals_torch():
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(5))
    even = kl_divergence(Categorical(logits=logits), Categorical(logits=torch.zeros(4, 5)))
    torch.testing.assert_close(categorical_kl(logits), even)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf])
def test_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match="temperature"):
        gumbel_softmax(torch.zeros(2), torch.zeros(2), temperature=temperature)


def _elbo_claims() -> Iterator[Claim]:
    """Laws of the bound."""
    near = transformed(torch.tanh, "n 3")

    def by_torch(mean: Tensor, log_variance: Tensor) -> Tensor:
        q = torch.distributions.Normal(mean, (log_variance / 2).exp())
        return torch.distributions.kl_divergence(
            q, torch.distributions.Normal(mean.new_tensor(0.5), mean.new_tensor(2))
        )

    def to_another(mean: Tensor, log_variance: Tensor) -> Tensor:
        return gaussian_kl(mean, log_variance, prior_mean=0.5, prior_log_variance=math.log(4))

    yield Claim(agreement(other=by_torch), to_another, (near, near), name="gaussian_kl")
    yield Claim(derivative(formula=lambda m, s: m), gaussian_kl, (near, near))
    yield Claim(boundedness(low=0.0), gaussian_kl, (near, near))

    def to_itself(mean: Tensor, log_variance: Tensor) -> Tensor:
        return gaussian_kl(mean, log_variance, prior_mean=mean, prior_log_variance=log_variance)

    zero = agreement(other=lambda m, s: torch.zeros_like(m))
    yield Claim(zero, to_itself, (near, near), name="gaussian_kl from itself")

    def one_by_one(x: Tensor, kl: Tensor) -> Tensor:
        total = -x.sum() / len(x)
        for column in kl.T:
            mean = column.sum() / len(kl)
            total = total + 3 * (mean if mean > 0.5 else torch.full_like(mean, 0.5))
        return total

    def loss(x: Tensor, kl: Tensor) -> Tensor:
        return negative_elbo(x, kl, beta=3.0, free_bits=0.5)

    yield Claim(agreement(other=one_by_one), loss, (shape("n"), transformed(torch.abs, "n 3")), name="negative_elbo")


@law("mean(x) ≤ f(x) ≤ max(x)")
def between_mean_and_largest(f: Map, x: Tensor) -> Statement:
    """The bound lies between the mean of the log-weights (the ELBO of the same latents) and their maximum.

    Satisfied by: the log of a mean of exponentials.
    Broken by: the same with its sign turned; a sum for a mean.
    """
    value = f(x)
    return AtMost(torch.stack([x.mean(0), value]), torch.stack([value, x.amax(0)]))


def _iwae_claims() -> Iterator[Claim]:
    """Laws of the bound."""
    near = transformed(lambda x: 3 * x.tanh(), "k:2..6 n")
    yield Claim(agreement(other=lambda x: x.exp().mean(0).log()), iwae_bound, near)
    yield Claim(between_mean_and_largest(), iwae_bound, near)
    yield Claim(derivative(formula=lambda x: x.softmax(0)), iwae_bound, shape("k n"))

    def error(x: Tensor) -> Tensor:
        return iwae_estimate(x, evaluations=1).error

    def by_hand(x: Tensor) -> Tensor:
        w, k = x.exp(), len(x)
        mean = w.sum(0) / k
        return ((w - mean).square().sum(0) / (k - 1) / k).sqrt() / mean

    yield Claim(agreement(other=by_hand), error, near, name="iwae_estimate, its error")


@law("P(f(ℓ) = c) = softmax(ℓ)_c", cases=4)
def chosen_as_often(f: Map, logits: Tensor, *, draw: Draw) -> Statement:
    """Samples follow their probabilities.

    Satisfied by: the largest of logits with Gumbel noise.
    Broken by: normal noise; noise of the wrong sign.
    """
    i = draw.integer(0, len(logits) - 1, "c")
    return HasMean(f.with_seed(draw.integer(0, 2**16))(logits)[:, i], logits.softmax(0)[i])


def _gumbel_claims() -> Iterator[Claim]:
    """Laws of relaxed categorical samples."""
    both = (transformed(torch.tanh, "n 3"), transformed(lambda x: gumbel_noise(x.sigmoid() * 0.9 + 0.05), "n 3"))

    def cooled(logits: Tensor, noise: Tensor) -> Tensor:
        return gumbel_softmax(logits, noise, temperature=0.5)

    def by_powers(logits: Tensor, noise: Tensor) -> Tensor:
        w = (logits + noise).exp().square()
        return w / w.sum(-1, keepdim=True)

    yield Claim(agreement(other=by_powers), cooled, both, name="gumbel_softmax")
    yield Claim(sums_to_one(axis=-1), cooled, both, name="gumbel_softmax")

    def chosen(logits: Tensor) -> Tensor:
        return gumbel_max(logits.expand(4000, -1), gumbel_noise(torch.rand(4000, len(logits)).to(logits)))

    yield Claim(chosen_as_often(), chosen, transformed(torch.tanh, "3"), name="gumbel_max")

    def first(logits: Tensor, noise: Tensor) -> Tensor:
        return cooled(logits, noise)[:, 0]

    def slope(logits: Tensor, noise: Tensor) -> Tensor:
        z = by_powers(logits, noise)
        return 2 * z[:, :1] * (logits.new_tensor([1.0, 0.0, 0.0]) - z)

    yield Claim(derivative(formula=slope), first, both, name="gumbel_softmax, its first entry")

    def passed(logits: Tensor, noise: Tensor) -> Tensor:
        return straight_through_gumbel(logits, noise, temperature=0.5)[:, 0]

    yield Claim(derivative(formula=slope), passed, both, name="straight_through_gumbel, its gradient")

    def entropy(x: Tensor) -> Tensor:
        return math.log(4) - torch.distributions.Categorical(logits=x).entropy()

    yield Claim(agreement(other=entropy), categorical_kl, shape("n 4"))


class _Gaussian(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor([0.3, -0.5]))
        self.log_variance = nn.Parameter(torch.tensor([-0.4, 0.6]))

    def rsample(self, n: int) -> Tensor:
        return reparameterize(self.mean, self.log_variance, torch.randn(n, 2, dtype=self.mean.dtype))

    def log_prob(self, z: Tensor) -> Tensor:
        return gaussian_log_prob(z, self.mean, self.log_variance)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mean


def _gradient_estimators_claims() -> Iterator[Claim]:
    """Laws of the estimators."""
    yield Claim(reparameterized_gradient(), _Gaussian(), shape("n 2"), name="reparameterize")
    near = transformed(torch.tanh, "n 2")

    def by_torch(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        return torch.distributions.Normal(mean, log_variance.exp().sqrt()).log_prob(z).sum(-1)

    yield Claim(agreement(other=by_torch), gaussian_log_prob, (near, near, near))

    def of_a_coin(x: Tensor) -> Tensor:
        """1 plus the score-function gradient of E h with respect to the logit of a coin, averaged over both sides."""
        with torch.enable_grad():
            p = x[0].detach().requires_grad_()
            sides = torch.stack([nn.functional.logsigmoid(p), nn.functional.logsigmoid(-p)])
            weighted = 2 * sides.exp().detach() * sides
            return torch.autograd.grad(score_function_loss(x[1:], weighted, baseline=0.7), p)[0] + 1

    def exact(x: Tensor) -> Tensor:
        return 1 + (x[1] - x[2]) * x[0].sigmoid() * (1 - x[0].sigmoid())

    yield Claim(agreement(other=exact), of_a_coin, transformed(torch.tanh, "3"), name="score_function_loss, of a coin")


def claims() -> Iterator[Claim]:
    """Second derivations of variational losses."""
    yield from _elbo_claims()
    yield from _iwae_claims()
    yield from _gumbel_claims()
    yield from _gradient_estimators_claims()
