import math

import pytest
import torch

from lawful.data.densities import Gaussian, ring
from lawful.solvers.diffusion import (
    ExponentialMultistep,
    Likelihood,
    classifier_free_guidance,
    classifier_guidance,
    curl,
    edm,
    initial_noise,
    inpainting_denoiser,
    log_density_along,
    prior_mismatch,
    rectified,
    saturating_log_grid,
    score_of_energy,
    variance_preserving,
)
from lawful.solvers.ode import DORMAND_PRINCE, EULER
from tests.solvers.diffusion.analytic import PATHS, of_density, of_gaussian


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_the_likelihood_of_a_known_density(path):
    target = ring(radius=2.0, scale=0.2)
    x = target.sample(24, seed=0)
    found = Likelihood(spread=math.sqrt(2.04))(of_density(target, path), x, path)
    assert found.evaluations <= 64
    assert float((found.value - target.log_prob(x)).square().mean().sqrt()) < 1e-3
    assert (found.error == 0).all()


def test_it_integrates_to_one():
    path, target = rectified(), ring(modes=3, radius=1.0, scale=0.3)
    side = torch.arange(-3, 3.01, 0.15, dtype=torch.float64)
    places = torch.cartesian_prod(side, side)
    found = Likelihood()(of_density(target, path), places, path)
    assert float(found.value.exp().sum()) * 0.15**2 == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(("tableau", "steps", "within"), [(EULER, 40, 0.2), (DORMAND_PRINCE, 10, 0.01)])
def test_other_methods(tableau, steps, within):
    path, target = edm(), ring(radius=0.7, scale=0.3)
    x = target.sample(16, seed=1)
    found = Likelihood(tableau=tableau, steps=steps)(of_density(target, path), x, path)
    assert float((found.value - target.log_prob(x)).abs().max()) < within


def test_beyond_16_dimensions_the_error_is_told():
    d, path = 20, variance_preserving()
    root = torch.randn(d, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 5
    target = Gaussian(torch.zeros(d, dtype=torch.float64), 0.3 * torch.eye(d, dtype=torch.float64) + root @ root.T)
    x = target.sample(16, seed=0)
    found = Likelihood(steps=8, probes=16, spread=1.0)(of_density(target, path), x, path, seed=5)
    off = (found.value - target.log_prob(x)) / found.error
    assert (found.error > 0).all()
    assert 0.3 < float(off.square().mean().sqrt()) < 2
    part = Likelihood(steps=8, probes=16, spread=1.0)(of_density(target, path), x[3:5], path, seed=5, first=3)
    torch.testing.assert_close(part.value, found.value[3:5])


def test_images_and_numbers_have_likelihoods():
    path = rectified()
    for shape in ((2, 4, 4), (3,), ()):
        x = torch.full((2, *shape), 0.3)
        found = Likelihood(scale=0.6, steps=8)(of_gaussian(path, 0.5, 0.6), x, path)
        exact = math.prod(shape) * (-0.5 * (0.2 / 0.6) ** 2 - math.log(0.6) - 0.5 * math.log(2 * math.pi))
        torch.testing.assert_close(found.value, torch.full((2,), exact, dtype=torch.float64), atol=1e-3, rtol=0)


def test_the_mismatch_at_the_end():
    assert prior_mismatch(rectified(), 3.0) == 0
    assert 0 < prior_mismatch(edm(), 1.0) < 1e-4
    assert prior_mismatch(edm(1.0), 1.0) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="second moment"):
        prior_mismatch(edm(), -1.0)


def test_bad_likelihoods_are_refused():
    path, x = edm(), torch.ones(2, 2)
    for wrong in ({"steps": 0}, {"probes": 1}, {"scale": 0.0}, {"spread": -1.0}):
        with pytest.raises(ValueError, match="at least 1 step and 2 probes"):
            Likelihood(**wrong)
    with pytest.raises(ValueError, match="passes no gradient"):
        Likelihood()(lambda x, t: x.detach(), x, path)
    with pytest.raises(ValueError, match="finite"):
        Likelihood()(lambda x, t: x, x * math.nan, path)
    with pytest.raises(ValueError, match="NaN or infinity"):
        Likelihood()(lambda x, t: x * math.nan, x, path)
    assert Likelihood()(lambda x, t: x / 2, x[:0], path).value.shape == (0,)


def test_both_guidances_give_the_conditional_law():
    path = edm()
    grid = saturating_log_grid(path, 24)
    everything = ring(modes=2, radius=1.0, scale=0.3)

    def log_prob(x, t):
        """Of which mode a noisy point is."""
        variance = 0.09 + float(path.sigma(t)) ** 2
        return torch.log_softmax(-torch.cdist(x, everything.means).square() / 2 / variance, -1)[:, 0]

    x = initial_noise(path, grid, 200, 2)
    plain = ExponentialMultistep()(of_gaussian_at(path), x, path, grid)
    by_bayes = ExponentialMultistep()(classifier_guidance(of_density(everything, path), log_prob, path), x, path, grid)
    torch.testing.assert_close(by_bayes, plain, atol=1e-3, rtol=0)
    free = classifier_free_guidance(of_gaussian_at(path), of_density(everything, path), scale=1.0)
    torch.testing.assert_close(ExponentialMultistep()(free, x, path, grid), plain)
    more = classifier_free_guidance(of_gaussian_at(path), of_density(everything, path), scale=4.0)
    assert float(ExponentialMultistep()(more, x, path, grid)[:, 0].mean()) > float(plain[:, 0].mean())
    with pytest.raises(ValueError, match=r"of each of 200 samples .* got shape \(200,\), without a gradient"):
        classifier_guidance(of_gaussian_at(path), lambda x, t: torch.zeros(len(x)), path)(x, grid[0])
    with pytest.raises(ValueError, match="finite scale"):
        classifier_free_guidance(lambda x, t: x, lambda x, t: x, scale=math.nan)


def of_gaussian_at(path):
    def denoise(x, t):
        variance = float(path.sigma(t)) ** 2
        return (0.09 * x + variance * torch.tensor([1.0, 0.0]).to(x)) / (0.09 + variance)

    return denoise


def test_completion_keeps_what_is_known_and_fills_in_the_rest():
    path, target = edm(), Gaussian(torch.zeros(2).double(), torch.tensor([[1.0, 0.95], [0.95, 1.0]]).double())
    grid = saturating_log_grid(path, 30)
    known, mask = torch.tensor([1.5, 0.0]).double(), torch.tensor([True, False])
    x = ExponentialMultistep()(
        inpainting_denoiser(of_density(target, path), known, mask), initial_noise(path, grid, 500, 2), path, grid
    )
    torch.testing.assert_close(x[:, 0], torch.full((500,), 1.5).double())
    assert float(x[:, 1].mean()) > 0.7
    with pytest.raises(ValueError, match="known values are to be finite"):
        inpainting_denoiser(lambda x, t: x, known * math.nan, mask)
    with pytest.raises(ValueError, match=r"shape of what is known, \(2,\), is wanted: got \(3,\)"):
        inpainting_denoiser(lambda x, t: x, known, torch.ones(3, dtype=torch.bool))


def test_the_energy_view():
    target = ring(modes=3, radius=1.0, scale=0.5)
    x = target.sample(20, seed=0)
    origin = torch.zeros(2, dtype=torch.float64)
    found = log_density_along(target.score, x, origin)
    torch.testing.assert_close(found, target.log_prob(x) - target.log_prob(origin[None]), atol=1e-6, rtol=0)
    score = score_of_energy(lambda x: -target.log_prob(x))
    torch.testing.assert_close(score(x), target.score(x))
    assert float(curl(target.score, x).max()) < 1e-9
    assert float(curl(lambda x: torch.stack([x[:, 1], -x[:, 0]], 1), x).min()) > 1e6
    with pytest.raises(ValueError, match="at least 1 node"):
        log_density_along(target.score, x, origin, nodes=0)
