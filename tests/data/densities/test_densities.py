import math

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from lawful.data import Boxes, Density, Gaussian, Mixture, checkerboard, grid, ring, two_moons

PLANAR = {"ring": ring, "grid": lambda: grid(side=3), "two_moons": two_moons, "checkerboard": checkerboard}


def general(d=3, k=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randn(k, d, d, generator=generator, dtype=torch.float64)
    covariances = factors @ factors.mT + 0.1 * torch.eye(d)
    means = 2 * torch.randn(k, d, generator=generator, dtype=torch.float64)
    return means, covariances, torch.rand(k, generator=generator, dtype=torch.float64)


def test_mixtures_equal_pytorchs():
    means, covariances, weights = general()
    ours = Mixture.of(means=means, covariances=covariances, weights=weights)
    theirs = MixtureSameFamily(Categorical(weights), MultivariateNormal(means, covariances))
    x = 3 * torch.randn(50, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(ours.log_prob(x), theirs.log_prob(x))
    torch.testing.assert_close(ours.mean, theirs.mean)
    torch.testing.assert_close(ours.covariance.diagonal(), theirs.variance)
    torch.testing.assert_close(ours.covariances, covariances)
    y = x.clone().requires_grad_()
    torch.testing.assert_close(ours.score(x), torch.autograd.grad(theirs.log_prob(y).sum(), y)[0])


def test_samples_have_the_moments():
    means, covariances, weights = general()
    mixture = Mixture.of(means=means, covariances=covariances, weights=weights)
    x = mixture.sample(200000, seed=5)
    torch.testing.assert_close(x.mean(0), mixture.mean, rtol=0, atol=0.05)
    torch.testing.assert_close(x.mT.cov(), mixture.covariance, rtol=0.03, atol=0.1)
    share = torch.bincount(mixture.components(200000, seed=5)) / 200000
    torch.testing.assert_close(share, mixture.p.float(), rtol=0, atol=0.01)


@pytest.mark.parametrize("name", PLANAR)
def test_every_density_keeps_the_protocol(name):
    density = PLANAR[name]()
    assert isinstance(density, Density)
    assert density.d == 2
    x = density.sample(30, seed=2)
    assert x.dtype == torch.float64
    torch.testing.assert_close(density.sample(3, seed=2, first=7), x[7:10], rtol=0, atol=0)
    assert not torch.equal(density.sample(30, seed=3), x)
    assert density.log_prob(x).isfinite().all()
    assert density.score(x).shape == (30, 2)
    assert density.log_prob(x.reshape(5, 6, 2)).shape == (5, 6)


@pytest.mark.parametrize("name", PLANAR)
def test_entropies_are_those_of_samples(name):
    for density in (PLANAR[name](), PLANAR[name]().noised(0.5, 0.3)):
        surprise = -density.log_prob(density.sample(20000, seed=1))
        assert abs(density.entropy - float(surprise.mean())) < 5 * float(surprise.std()) / 20000**0.5 + 1e-9


def test_entropies_that_are_known():
    assert checkerboard().entropy == pytest.approx(math.log(8))
    assert ring().entropy == pytest.approx(math.log(8) + math.log(2 * math.pi * math.e * 0.04), abs=1e-3)
    covariance = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    normal = Gaussian(torch.zeros(2, dtype=torch.float64), covariance)
    assert normal.entropy == pytest.approx(float(MultivariateNormal(torch.zeros(2).double(), covariance).entropy()))
    for d in (1, 2, 3, 5):
        inside = d / 2 * math.log(2 * math.pi * math.e * 0.25)
        means = torch.zeros(2, d, dtype=torch.float64)
        assert Mixture.of(means=means, scale=0.5).entropy == pytest.approx(inside)
        means[1] = 9.0
        assert Mixture.of(means=means, scale=0.5).entropy == pytest.approx(inside + math.log(2), abs=1e-6)
        apart = Boxes(means, half=1.0, blur=0.1)
        assert apart.entropy == pytest.approx(math.log(2) + d * Boxes(means[:1, :1], half=1.0, blur=0.1).entropy)


def test_the_entropy_of_overlapping_components_is_the_integral():
    x = torch.linspace(-12, 12, 20001, dtype=torch.float64)[:, None]
    for gap in (0.5, 2.0, 4.0, 7.0):
        mixture = Mixture.of(means=torch.tensor([[-gap / 2], [gap / 2]], dtype=torch.float64), scale=1.0)
        p = mixture.log_prob(x).exp()
        assert mixture.entropy == pytest.approx(float(torch.special.entr(p).sum() * (x[1] - x[0])), abs=1e-6)
        square = torch.tensor([[-gap / 2, 0.0], [gap / 2, 0.0]], dtype=torch.float64)
        beside = 0.5 * math.log(2 * math.pi * math.e)
        assert Mixture.of(means=square, scale=1.0).entropy == pytest.approx(mixture.entropy + beside, abs=1e-5)


@pytest.mark.parametrize("name", PLANAR)
@pytest.mark.parametrize(("alpha", "sigma"), [(1.0, 0.5), (0.3, 0.9), (1.0, 10.0), (0.01, 1.0)])
def test_noise_is_exact(name, alpha, sigma):
    """What is denoised is the mean given the noisy point, which is Tweedie's formula of the noisy score."""
    density = PLANAR[name]()
    noisy = density.noised(alpha, sigma)
    y = noisy.sample(20, seed=4)
    tweedie = (y + sigma**2 * noisy.score(y)) / alpha
    torch.testing.assert_close(density.denoised(y, alpha, sigma), tweedie, rtol=1e-9, atol=1e-9)
    x = density.sample(20000, seed=6)
    weights = (-(y[:, None] - alpha * x).square().sum(-1) / (2 * sigma**2)).softmax(-1)
    assert (weights @ x - tweedie).abs().max() < 0.2
    leaf = y.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(noisy.log_prob(leaf).sum(), leaf)[0], noisy.score(y))


@pytest.mark.parametrize("name", PLANAR)
def test_the_ends_of_the_noise(name):
    density = PLANAR[name]()
    x = density.sample(4, seed=0)
    torch.testing.assert_close(density.denoised(x, 1.0, 0.0), x)
    torch.testing.assert_close(density.denoised(2 * x, 2.0, 1e-9), x)
    nothing = density.denoised(x, 0.0, 1.0)
    torch.testing.assert_close(nothing, nothing[:1].expand(4, 2), rtol=0, atol=1e-12)
    assert (nothing - density.sample(20000).mean(0)).abs().max() < 0.05
    standard = MultivariateNormal(torch.zeros(2).double(), torch.eye(2).double())
    torch.testing.assert_close(density.noised(0.0, 1.0).log_prob(x), standard.log_prob(x))
    for bad in ((-1.0, 1.0), (0.0, 0.0), (1.0, float("nan"))):
        with pytest.raises(ValueError, match="alpha and sigma are not negative"):
            density.noised(*bad)


def test_a_blurred_board_integrates_to_one():
    places = torch.linspace(-3, 3, 100, dtype=torch.float64)
    p = checkerboard(cells=2, side=1.0).noised(1.0, 0.2).log_prob(torch.cartesian_prod(places, places)).exp()
    assert float(p.sum() * (places[1] - places[0]) ** 2) == pytest.approx(1, abs=1e-6)


def test_blur_is_smooth_from_tiny_boxes_to_large_ones():
    """The two ways to compute it meet, and far out everything is finite."""
    x = torch.linspace(0, 60, 200, dtype=torch.float64)[:, None]
    for blur in (0.2, 0.99, 1.01, 5.0, 1e3):
        box = Boxes(torch.zeros(1, 1, dtype=torch.float64), half=1.0, blur=blur)
        assert box.log_prob(x).isfinite().all()
        assert box.score(x).isfinite().all()
        around = Boxes(torch.zeros(1, 1, dtype=torch.float64), half=1.0, blur=blur * (1 + 1e-9))
        torch.testing.assert_close(box.log_prob(x), around.log_prob(x), rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(box.score(x), around.score(x), rtol=1e-7, atol=1e-7)
    nodes = torch.linspace(-1, 1, 20001, dtype=torch.float64)
    for blur in (0.3, 0.7, 2.0):
        density = torch.distributions.Normal(0.0, blur).log_prob(x[:20] - nodes).exp()
        expected = torch.trapezoid(density, nodes) / 2
        box = Boxes(torch.zeros(1, 1, dtype=torch.float64), half=1.0, blur=blur)
        torch.testing.assert_close(box.log_prob(x[:20]).exp(), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", PLANAR)
def test_nan_in_is_nan_out(name):
    x = torch.tensor([[0.5, 0.5], [math.nan, 0.5], [math.nan, math.nan]], dtype=torch.float64)
    for density in (PLANAR[name](), PLANAR[name]().noised(0.5, 0.3), PLANAR[name]().noised(0.0, 1.0)):
        assert density.log_prob(x).isnan().tolist() == [False, True, True]
        for found in (density.score(x), density.denoised(x, 1.0, 0.0), density.denoised(x, 0.5, 2.0)):
            assert found.isnan().any(-1).tolist() == [False, True, True]


def test_what_is_no_density():
    with pytest.raises(ValueError, match="positive definite covariances"):
        Gaussian(torch.zeros(2), torch.tensor([[1.0, 1.0], [1.0, 1.0]]) - torch.eye(2))
    with pytest.raises(ValueError, match="weights"):
        Mixture.of(means=torch.zeros(2, 1), weights=torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="finite means"):
        Mixture.of(means=torch.full((2, 1), float("nan")))
    with pytest.raises(ValueError, match="even number"):
        checkerboard(cells=3)
    with pytest.raises(ValueError, match="half and blur"):
        Boxes(torch.zeros(1, 2), half=-1.0)
    with pytest.raises(ValueError, match="modes are at least 1"):
        ring(modes=0)
