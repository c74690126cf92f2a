import math
from collections.abc import Iterator
from dataclasses import replace
from math import log, pi

import pytest
import torch
from torch import Tensor

from lawful.data.densities import GaussianMixture, gaussian_density, ring
from lawful.laws import Claim, agreement, batch_independence, shape, transformed
from lawful.solvers.diffusion import (
    ExponentialMultistep,
    ProbabilityFlowLikelihood,
    classifier_free_guidance,
    classifier_guidance,
    curl,
    edm,
    initial_noise,
    inpainting_denoiser,
    log_prob_along,
    prior_mismatch,
    rectified,
    saturating_log_grid,
    score_of_energy,
    variance_preserving,
)
from tests.solvers.diffusion.analytic import PATHS, exact_denoiser, gaussian_denoiser


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_the_likelihood_of_a_known_density(path):
    target = ring(radius=2.0, scale=0.2)
    x = target.sample(24, seed=0)
    found = ProbabilityFlowLikelihood()(exact_denoiser(target, path), x, path, sigma_data=math.sqrt(2.04))
    assert found.evaluations <= 64
    off = (found.value - target.log_prob(x)).abs()
    assert float(off.square().mean().sqrt()) < 1e-3
    assert (off <= found.error).all()
    assert (found.error < 0.1).all()


@pytest.mark.parametrize("scale", [0.15, 1.0, 4.0])
@pytest.mark.parametrize("path", [edm(), rectified()], ids=lambda path: path.name)
def test_the_reported_error_covers_the_true_error_at_every_scale_of_the_data(path, scale):
    means = scale * torch.tensor([[-1.2, 0.4], [0.9, 0.8], [0.3, -1.2]], dtype=torch.float64)
    widths = torch.tensor([0.15, 0.3, 0.5], dtype=torch.float64)[:, None].expand(3, 2)
    target = GaussianMixture(torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64), means, (scale * widths).square())
    x = target.sample(60, seed=1)
    found = ProbabilityFlowLikelihood()(exact_denoiser(target, path), x, path, sigma_data=scale)
    off = (found.value - target.log_prob(x)).abs()
    assert float(off.max()) < 5e-3
    assert float((off <= found.error).double().mean()) >= 0.95
    assert float(found.error.max()) < 0.1


def test_likelihoods_scale_with_the_data():
    def log_prob(scale):
        path = edm(80.0 * scale)
        target = ring(modes=3, radius=1.2 * scale, scale=0.3 * scale)
        x = scale * torch.tensor([[1.0, 0.2], [-0.3, 0.4]], dtype=torch.float64)
        return ProbabilityFlowLikelihood(steps=6)(exact_denoiser(target, path), x, path, sigma_data=scale)

    one, wide = log_prob(1.0), log_prob(4.0)
    torch.testing.assert_close(wide.value + 2 * log(4.0), one.value)
    torch.testing.assert_close(wide.error, one.error)


@pytest.mark.parametrize(("sigma_max", "within"), [(2.0, 0.1), (5.0, 0.01), (20.0, 1e-3)])
def test_the_error_includes_the_rest_of_a_path_that_ends_before_pure_noise(sigma_max, within):
    path, target = edm(sigma_max), ring(modes=3, radius=1.0, scale=0.4)
    x = target.sample(20, seed=0)
    found = ProbabilityFlowLikelihood()(exact_denoiser(target, path), x, path, sigma_data=0.8)
    off = (found.value - target.log_prob(x)).abs()
    assert float(off.max()) < within
    assert float((off <= found.error).double().mean()) >= 0.95


def test_the_order_of_the_likelihood():
    path, target = rectified(), ring(modes=3, radius=1.0, scale=0.4)
    x = target.sample(20, seed=0)

    def error(steps):
        found = ProbabilityFlowLikelihood(steps=steps)(exact_denoiser(target, path), x, path, sigma_data=0.8)
        return float((found.value - target.log_prob(x)).square().mean().sqrt())

    assert math.log2(error(30) / error(60)) > 3.5


def test_it_integrates_to_one():
    path, target = rectified(), ring(modes=3, radius=1.0, scale=0.3)
    side = torch.arange(-3, 3.01, 0.15, dtype=torch.float64)
    places = torch.cartesian_prod(side, side)
    found = ProbabilityFlowLikelihood()(exact_denoiser(target, path), places, path)
    assert float(found.value.exp().sum()) * 0.15**2 == pytest.approx(1, abs=1e-3)


def test_standard_error_beyond_16_dimensions():
    d, path = 20, variance_preserving()
    root = torch.randn(d, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 5
    target = gaussian_density(
        torch.zeros(d, dtype=torch.float64), 0.3 * torch.eye(d, dtype=torch.float64) + root @ root.T
    )
    x = target.sample(16, seed=0)
    likelihood = ProbabilityFlowLikelihood(steps=16, num_probes=16)
    found = likelihood(exact_denoiser(target, path), x, path, sigma_data=1.1, seed=5)
    off = (found.value - target.log_prob(x)) / found.error
    assert (found.error > 0).all()
    assert 0.3 < float(off.square().mean().sqrt()) < 2
    part = likelihood(exact_denoiser(target, path), x[3:5], path, sigma_data=1.1, seed=5, first=3)
    torch.testing.assert_close(part.value, found.value[3:5])


def test_likelihoods_of_images_vectors_and_scalars():
    path = rectified()
    for size in ((2, 4, 4), (3,), ()):
        x = torch.full((2, *size), 0.3)
        found = ProbabilityFlowLikelihood()(gaussian_denoiser(path, 0.5, 0.6), x, path, sigma_data=0.6)
        exact = math.prod(size) * (-0.5 * (0.2 / 0.6) ** 2 - math.log(0.6) - 0.5 * math.log(2 * math.pi))
        torch.testing.assert_close(found.value, torch.full((2,), exact, dtype=torch.float64), atol=1e-3, rtol=0)


def test_the_mismatch_at_the_end():
    assert prior_mismatch(rectified(), 3.0) == 0
    assert 0 < prior_mismatch(edm(), 1.0) < 1e-4
    assert prior_mismatch(edm(1.0), 1.0) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="second_moment"):
        prior_mismatch(edm(), -1.0)


def test_invalid_likelihoods():
    path, x = edm(), torch.ones(2, 2)
    for wrong in ({"steps": 1}, {"num_probes": 1}):
        with pytest.raises(ValueError, match="expected steps >= 2 and num_probes >= 2"):
            ProbabilityFlowLikelihood(**wrong)
    with pytest.raises(ValueError, match="finite sigma_data > 0, got 0"):
        ProbabilityFlowLikelihood()(lambda x, t: x, x, path, sigma_data=0.0)
    with pytest.raises(ValueError, match="not differentiable by x"):
        ProbabilityFlowLikelihood()(lambda x, t: x.detach(), x, path)
    with pytest.raises(ValueError, match="finite"):
        ProbabilityFlowLikelihood()(lambda x, t: x, x * math.nan, path)
    with pytest.raises(ValueError, match="NaN or infinity"):
        ProbabilityFlowLikelihood()(lambda x, t: x * math.nan, x, path)
    assert ProbabilityFlowLikelihood()(lambda x, t: x / 2, x[:0], path).value.shape == (0,)


def test_both_guidances_sample_the_conditional_density():
    path = edm()
    grid = saturating_log_grid(path, 24)
    everything = ring(modes=2, radius=1.0, scale=0.3)

    def log_prob(x, t):
        """Log-probabilities of the mode of a noisy point."""
        variance = 0.09 + float(path.sigma(t)) ** 2
        return torch.log_softmax(-torch.cdist(x, everything.means).square() / 2 / variance, -1)[:, 0]

    x = initial_noise(path, grid, 200, 2)
    plain = ExponentialMultistep()(first_mode_denoiser(path), x, path, grid)
    by_bayes = ExponentialMultistep()(
        classifier_guidance(exact_denoiser(everything, path), log_prob, path), x, path, grid
    )
    torch.testing.assert_close(by_bayes, plain, atol=1e-3, rtol=0)
    free = classifier_free_guidance(first_mode_denoiser(path), exact_denoiser(everything, path), scale=1.0)
    torch.testing.assert_close(ExponentialMultistep()(free, x, path, grid), plain)
    more = classifier_free_guidance(first_mode_denoiser(path), exact_denoiser(everything, path), scale=4.0)
    assert float(ExponentialMultistep()(more, x, path, grid)[:, 0].mean()) > float(plain[:, 0].mean())
    with pytest.raises(ValueError, match=r"shape \(200,\) from log_prob, got shape \(200,\), requires_grad=False"):
        classifier_guidance(first_mode_denoiser(path), lambda x, t: torch.zeros(len(x)), path)(x, grid[0])
    with pytest.raises(ValueError, match="expected a finite scale"):
        classifier_free_guidance(lambda x, t: x, lambda x, t: x, scale=math.nan)


def first_mode_denoiser(path):
    def denoise(x, t):
        variance = float(path.sigma(t)) ** 2
        return (0.09 * x + variance * torch.tensor([1.0, 0.0]).to(x)) / (0.09 + variance)

    return denoise


def test_inpainting_keeps_known_values():
    path, target = edm(), gaussian_density(torch.zeros(2).double(), torch.tensor([[1.0, 0.95], [0.95, 1.0]]).double())
    grid = saturating_log_grid(path, 30)
    known, mask = torch.tensor([1.5, 0.0]).double(), torch.tensor([True, False])
    x = ExponentialMultistep()(
        inpainting_denoiser(exact_denoiser(target, path), known, mask), initial_noise(path, grid, 500, 2), path, grid
    )
    torch.testing.assert_close(x[:, 0], torch.full((500,), 1.5).double())
    assert float(x[:, 1].mean()) > 0.7
    with pytest.raises(ValueError, match="expected finite known values"):
        inpainting_denoiser(lambda x, t: x, known * math.nan, mask)
    with pytest.raises(ValueError, match=r"shape of known, \(2,\), got \(3,\)"):
        inpainting_denoiser(lambda x, t: x, known, torch.ones(3, dtype=torch.bool))


def test_the_energy_view():
    target = ring(modes=3, radius=1.0, scale=0.5)
    x = target.sample(20, seed=0)
    origin = torch.zeros(2, dtype=torch.float64)
    found = log_prob_along(target.score, x, origin)
    torch.testing.assert_close(found, target.log_prob(x) - target.log_prob(origin[None]), atol=1e-6, rtol=0)
    score = score_of_energy(lambda x: -target.log_prob(x))
    torch.testing.assert_close(score(x), target.score(x))
    assert float(curl(target.score, x).max()) < 1e-9
    assert float(curl(lambda x: torch.stack([x[:, 1], -x[:, 0]], 1), x).min()) > 1e6
    with pytest.raises(ValueError, match="expected num_nodes >= 1"):
        log_prob_along(target.score, x, origin, num_nodes=0)


def _own_claims() -> Iterator[Claim]:
    """Laws of the likelihood."""
    path, weights = variance_preserving(), torch.tensor([0.3, 0.7], dtype=torch.float64)

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        """Two Gaussians of variance 1 at 1 and -1, in each coordinate."""
        a, s = path.alpha(t).to(x), path.sigma(t).to(x)
        total = s.square() + a.square()
        side = torch.tanh(a * x / total + 0.5 * (weights[1] / weights[0]).log().to(x))
        return (a * x + s.square() * side) / total

    def log_prob(x: Tensor) -> Tensor:
        logs = [weights[i].log().to(x) - (x - side).square() / 2 for i, side in enumerate((-1, 1))]
        return (torch.logaddexp(*logs) - 0.5 * log(2 * pi)).sum(-1)

    def found(x: Tensor) -> Tensor:
        return ProbabilityFlowLikelihood(steps=12)(denoise, x, path, sigma_data=1.4).value.to(x)

    near = replace(agreement(other=log_prob), rtol=1e-2, cases=3)
    yield Claim(near, found, transformed(lambda x: 2 * torch.tanh(x), "n:1..2 2"), name="Likelihood of a mixture")
    yield Claim(replace(batch_independence(), cases=2), found, transformed(torch.tanh, "n:2..3 1"), name="Likelihood")

    def of_many(x: Tensor) -> Tensor:
        """A Gaussian in 18 dimensions: its Jacobian is diagonal, so that Hutchinson's estimator is exact."""

        def shrink(x: Tensor, t: Tensor) -> Tensor:
            return path.alpha(t).to(x) * x

        estimate = ProbabilityFlowLikelihood(steps=2, num_probes=2)(shrink, x, path)
        return (estimate.value + estimate.error).to(x)

    gaussian = replace(agreement(other=lambda x: -0.5 * (x.square() + log(2 * pi)).sum(-1)), rtol=1e-3, cases=3)
    yield Claim(gaussian, of_many, transformed(torch.tanh, "n:1..2 18"), name="Likelihood, Hutchinson")


def _guidance_claims() -> Iterator[Claim]:
    """Laws of guidance."""
    path, t = variance_preserving(), torch.tensor(0.4, dtype=torch.float64)

    for scale in (0.0, 1.0, 2.5):

        def guided(x: Tensor, scale: float = scale) -> Tensor:
            return classifier_free_guidance(lambda x, t: x.sin(), lambda x, t: x.cos(), scale=scale)(x, t)

        other = agreement(other=lambda x, g=scale: g * x.sin() + (1 - g) * x.cos())
        yield Claim(other, guided, shape("n 2"), name=f"classifier_free_guidance, scale {scale:g}")

    def posterior(x: Tensor) -> Tensor:
        """Posterior of Gaussian data of variance 1, observed at 3 with noise of variance 4, under the path's noise."""
        a, s = path.alpha(t).to(x), path.sigma(t).to(x)
        mean, left = a * x / (a**2 + s**2), s**2 / (a**2 + s**2)

        def log_prob(x: Tensor, t: Tensor) -> Tensor:
            return -0.5 * ((3 - a * x / (a**2 + s**2)).square() / (4 + left)).sum(-1)

        return classifier_guidance(lambda x, t: mean, log_prob, path)(x, t)

    def conjugate(x: Tensor) -> Tensor:
        a, s = path.alpha(t).to(x), path.sigma(t).to(x)
        return (a * x / s**2 + 3 / 4) / (1 + a**2 / s**2 + 1 / 4)

    yield Claim(agreement(other=conjugate), posterior, shape("n 2"), name="classifier_guidance, Bayes' rule")


def _inpainting_claims() -> Iterator[Claim]:
    """Laws of inpainting."""
    mask = torch.tensor([True, False, True])

    def completed(x: Tensor, known: Tensor) -> Tensor:
        return inpainting_denoiser(lambda x, t: x.cos(), known, mask)(x, torch.tensor(1.0))

    def put(x: Tensor, known: Tensor) -> Tensor:
        return torch.stack([known[:, 0], x[:, 1].cos(), known[:, 2]], 1)

    yield Claim(agreement(other=put), completed, (shape("n 3"), shape("n 3")), name="completing")


def claims() -> Iterator[Claim]:
    """Second derivations of likelihoods and guidance."""
    yield from _own_claims()
    yield from _guidance_claims()
    yield from _inpainting_claims()
