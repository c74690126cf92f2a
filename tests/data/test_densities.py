import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from lawful.data import Density, GaussianMixture, UniformBoxes, checkerboard, gaussian_density, grid, ring, two_moons
from lawful.laws import Claim, agreement, derivative, samples_follow_density, shape, transformed

PLANAR = {"ring": ring, "grid": lambda: grid(side=3), "two_moons": two_moons, "checkerboard": checkerboard}


def general(d=3, k=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randn(k, d, d, generator=generator, dtype=torch.float64)
    covariances = factors @ factors.mT + 0.1 * torch.eye(d)
    means = 2 * torch.randn(k, d, generator=generator, dtype=torch.float64)
    return means, covariances, torch.rand(k, generator=generator, dtype=torch.float64)


def test_mixtures_equal_pytorchs():
    means, covariances, weights = general()
    ours = GaussianMixture.from_moments(means=means, covariances=covariances, weights=weights)
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
    mixture = GaussianMixture.from_moments(means=means, covariances=covariances, weights=weights)
    x = mixture.sample(200000, seed=5)
    torch.testing.assert_close(x.mean(0), mixture.mean, rtol=0, atol=0.05)
    torch.testing.assert_close(x.mT.cov(), mixture.covariance, rtol=0.03, atol=0.1)
    share = torch.bincount(mixture.sample_components(200000, seed=5)) / 200000
    torch.testing.assert_close(share, mixture.p.float(), rtol=0, atol=0.01)


def test_the_modes_of_ring_and_grid():
    around = ring(modes=3, radius=5.0, scale=0.5)
    torch.testing.assert_close(around.means.norm(dim=1), torch.full((3,), 5.0, dtype=torch.float64))
    torch.testing.assert_close(torch.pdist(around.means), torch.full((3,), 5 * 3**0.5, dtype=torch.float64))
    square = grid(side=2, spacing=3.0, scale=0.5)
    assert sorted(square.means.tolist()) == [[-1.5, -1.5], [-1.5, 1.5], [1.5, -1.5], [1.5, 1.5]]
    for density in (around, square):
        torch.testing.assert_close(density.variances, torch.full_like(density.means, 0.25))


@pytest.mark.parametrize("name", PLANAR)
def test_densities_follow_the_protocol(name):
    density = PLANAR[name]()
    assert isinstance(density, Density)
    assert density.dim == 2
    x = density.sample(30, seed=2)
    assert x.dtype == torch.float64
    torch.testing.assert_close(density.sample(3, seed=2, first=7), x[7:10], rtol=0, atol=0)
    assert not torch.equal(density.sample(30, seed=3), x)
    assert density.log_prob(x).isfinite().all()
    assert density.score(x).shape == (30, 2)
    assert density.log_prob(x.reshape(5, 6, 2)).shape == (5, 6)


@pytest.mark.parametrize("name", PLANAR)
def test_entropy_equals_monte_carlo(name):
    for density in (PLANAR[name](), PLANAR[name]().with_noise(0.5, 0.3)):
        surprise = -density.log_prob(density.sample(20000, seed=1))
        assert abs(density.entropy - float(surprise.mean())) < 5 * float(surprise.std()) / 20000**0.5 + 1e-9


def test_entropies_that_are_known():
    assert checkerboard().entropy == pytest.approx(math.log(8))
    assert ring().entropy == pytest.approx(math.log(8) + math.log(2 * math.pi * math.e * 0.04), abs=1e-3)
    covariance = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    normal = gaussian_density(torch.zeros(2, dtype=torch.float64), covariance)
    assert normal.entropy == pytest.approx(float(MultivariateNormal(torch.zeros(2).double(), covariance).entropy()))
    for d in (1, 2, 3, 5):
        inside = d / 2 * math.log(2 * math.pi * math.e * 0.25)
        means = torch.zeros(2, d, dtype=torch.float64)
        assert GaussianMixture.from_moments(means=means, scale=0.5).entropy == pytest.approx(inside)
        means[1] = 9.0
        assert GaussianMixture.from_moments(means=means, scale=0.5).entropy == pytest.approx(
            inside + math.log(2), abs=1e-6
        )
        apart = UniformBoxes(means, half_width=1.0, noise_std=0.1)
        assert apart.entropy == pytest.approx(
            math.log(2) + d * UniformBoxes(means[:1, :1], half_width=1.0, noise_std=0.1).entropy
        )


def test_the_entropy_of_noisy_boxes_follows_the_units():
    """H(c x) = H(x) + log c, although the noise is a small part of a box."""
    boxes = UniformBoxes(torch.tensor([[0.0], [3.0]]), half_width=1.0, noise_std=0.003)
    for c in (1e-3, 1e3):
        assert boxes.with_noise(c, 0.0).entropy == pytest.approx(boxes.entropy + math.log(c), abs=1e-9)


def test_the_entropy_of_overlapping_components_is_the_integral():
    x = torch.linspace(-12, 12, 20001, dtype=torch.float64)[:, None]
    for gap in (0.5, 2.0, 4.0, 7.0):
        mixture = GaussianMixture.from_moments(
            means=torch.tensor([[-gap / 2], [gap / 2]], dtype=torch.float64), scale=1.0
        )
        p = mixture.log_prob(x).exp()
        assert mixture.entropy == pytest.approx(float(torch.special.entr(p).sum() * (x[1] - x[0])), abs=1e-6)
        square = torch.tensor([[-gap / 2, 0.0], [gap / 2, 0.0]], dtype=torch.float64)
        beside = 0.5 * math.log(2 * math.pi * math.e)
        assert GaussianMixture.from_moments(means=square, scale=1.0).entropy == pytest.approx(
            mixture.entropy + beside, abs=1e-5
        )


@pytest.mark.parametrize("name", PLANAR)
@pytest.mark.parametrize(("alpha", "sigma"), [(1.0, 0.5), (0.3, 0.9), (1.0, 10.0), (0.01, 1.0)])
def test_noise_is_exact(name, alpha, sigma):
    """The denoiser is the posterior mean: Tweedie's formula of the noisy score."""
    density = PLANAR[name]()
    noisy = density.with_noise(alpha, sigma)
    y = noisy.sample(20, seed=4)
    tweedie = (y + sigma**2 * noisy.score(y)) / alpha
    torch.testing.assert_close(density.denoise(y, alpha, sigma), tweedie, rtol=1e-9, atol=1e-9)
    x = density.sample(20000, seed=6)
    weights = (-(y[:, None] - alpha * x).square().sum(-1) / (2 * sigma**2)).softmax(-1)
    assert (weights @ x - tweedie).abs().max() < 0.2
    leaf = y.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(noisy.log_prob(leaf).sum(), leaf)[0], noisy.score(y))


def test_denoising_boxes_that_are_noisy_themselves():
    density, alpha, sigma = checkerboard(cells=2).with_noise(0.8, 0.3), 0.6, 0.5
    noisy = density.with_noise(alpha, sigma)
    y = noisy.sample(20, seed=4)
    torch.testing.assert_close(density.denoise(y, alpha, sigma), (y + sigma**2 * noisy.score(y)) / alpha)


@pytest.mark.parametrize("name", PLANAR)
def test_denoise_without_noise_and_with_pure_noise(name):
    density = PLANAR[name]()
    x = density.sample(4, seed=0)
    torch.testing.assert_close(density.denoise(x, 1.0, 0.0), x)
    torch.testing.assert_close(density.denoise(2 * x, 2.0, 1e-9), x)
    nothing = density.denoise(x, 0.0, 1.0)
    torch.testing.assert_close(nothing, nothing[:1].expand(4, 2), rtol=0, atol=1e-12)
    assert (nothing - density.sample(20000, seed=0).mean(0)).abs().max() < 0.05
    standard = MultivariateNormal(torch.zeros(2).double(), torch.eye(2).double())
    torch.testing.assert_close(density.with_noise(0.0, 1.0).log_prob(x), standard.log_prob(x))
    for bad in ((-1.0, 1.0), (0.0, 0.0), (1.0, float("nan"))):
        with pytest.raises(ValueError, match="expected finite alpha >= 0"):
            density.with_noise(*bad)


def test_a_noisy_checkerboard_integrates_to_one():
    places = torch.linspace(-3, 3, 100, dtype=torch.float64)
    p = checkerboard(cells=2, side=1.0).with_noise(1.0, 0.2).log_prob(torch.cartesian_prod(places, places)).exp()
    assert float(p.sum() * (places[1] - places[0]) ** 2) == pytest.approx(1, abs=1e-6)


def test_noisy_boxes_are_smooth_for_every_noise():
    """Both ways to compute it agree, and all values far away are finite."""
    x = torch.linspace(0, 60, 200, dtype=torch.float64)[:, None]
    for blur in (0.2, 0.99, 1.01, 5.0, 1e3):
        box = UniformBoxes(torch.zeros(1, 1, dtype=torch.float64), half_width=1.0, noise_std=blur)
        assert box.log_prob(x).isfinite().all()
        assert box.score(x).isfinite().all()
        around = UniformBoxes(torch.zeros(1, 1, dtype=torch.float64), half_width=1.0, noise_std=blur * (1 + 1e-9))
        torch.testing.assert_close(box.log_prob(x), around.log_prob(x), rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(box.score(x), around.score(x), rtol=1e-7, atol=1e-7)
    nodes = torch.linspace(-1, 1, 20001, dtype=torch.float64)
    for blur in (0.3, 0.7, 2.0):
        density = torch.distributions.Normal(0.0, blur).log_prob(x[:20] - nodes).exp()
        expected = torch.trapezoid(density, nodes) / 2
        box = UniformBoxes(torch.zeros(1, 1, dtype=torch.float64), half_width=1.0, noise_std=blur)
        torch.testing.assert_close(box.log_prob(x[:20]).exp(), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", PLANAR)
def test_nan_in_is_nan_out(name):
    x = torch.tensor([[0.5, 0.5], [math.nan, 0.5], [math.nan, math.nan]], dtype=torch.float64)
    for density in (PLANAR[name](), PLANAR[name]().with_noise(0.5, 0.3), PLANAR[name]().with_noise(0.0, 1.0)):
        assert density.log_prob(x).isnan().tolist() == [False, True, True]
        for found in (density.score(x), density.denoise(x, 1.0, 0.0), density.denoise(x, 0.5, 2.0)):
            assert found.isnan().any(-1).tolist() == [False, True, True]


def test_invalid_arguments():
    with pytest.raises(ValueError, match="expected positive definite covariances"):
        gaussian_density(torch.zeros(2), torch.tensor([[1.0, 1.0], [1.0, 1.0]]) - torch.eye(2))
    with pytest.raises(ValueError, match="non-negative weights"):
        GaussianMixture.from_moments(means=torch.zeros(2, 1), weights=torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="expected finite means"):
        GaussianMixture.from_moments(means=torch.full((2, 1), float("nan")))
    with pytest.raises(ValueError, match="expected an even number"):
        checkerboard(cells=3)
    with pytest.raises(ValueError, match="expected half_width >= 0"):
        UniformBoxes(torch.zeros(1, 2), half_width=-1.0)
    with pytest.raises(ValueError, match="expected modes >= 1"):
        ring(modes=0)


def _boxes_claims() -> Iterator[Claim]:
    """Laws of boxes, blurred a little and a lot."""
    board, few = checkerboard(cells=2, side=2.0), partial(replace, cases=20)

    def under(alpha: float, sigma: float) -> Iterator[Claim]:
        def noised(x: Tensor) -> UniformBoxes:
            return board.to(x.dtype).with_noise(alpha, sigma)

        def log_prob(x: Tensor) -> Tensor:
            return noised(x).log_prob(x)

        def equation(x: Tensor) -> Tensor:
            """The density of squares around (-1, -1) and (1, 1), by differences of `erfc`."""
            off = (x[..., None, :] - alpha * x.new_tensor([[-1.0, -1.0], [1.0, 1.0]])).abs()
            near, far = (torch.special.erfc((off + end) / (sigma * 2**0.5)) for end in (-alpha, alpha))
            return (((near - far) / (4 * alpha)).prod(-1).sum(-1) / 2).log()

        def by_tweedie(y: Tensor) -> Tensor:
            return (y + sigma**2 * noised(y).score(y)) / alpha

        def denoised(y: Tensor) -> Tensor:
            return board.to(y.dtype).denoise(y, alpha, sigma)

        name, near = f"checkerboard.with_noise({alpha}, {sigma})", transformed(lambda x: 2 * x.tanh(), "b 2")
        yield Claim(few(agreement(other=equation)), log_prob, near, name=name)
        yield Claim(few(derivative(formula=lambda x: noised(x).score(x))), log_prob, near, name=f"{name}.score")
        yield Claim(few(agreement(other=by_tweedie)), denoised, near, name=f"{name}, denoised")

    yield from under(1.0, 0.3)
    yield from under(0.5, 0.8)

    def small(x: Tensor) -> Tensor:
        return UniformBoxes(x.new_zeros(1, 2), half_width=1e-5).with_noise(1.0, 1.0).log_prob(x)

    def point(x: Tensor) -> Tensor:
        return -x.square().sum(-1) / 2 - math.log(2 * math.pi)

    almost = replace(agreement(other=point), rtol=1e-8)
    yield Claim(almost, small, transformed(torch.tanh, "b 2"), name="a tiny box is a point")


def _mixture_claims() -> Iterator[Claim]:
    """Laws of mixtures."""
    factors = torch.tensor([[[1.0, 0.0], [0.5, 0.8]], [[0.6, 0.3], [0.0, 0.4]], [[0.9, -0.2], [0.1, 0.7]]])
    covariances, means = factors @ factors.mT, torch.tensor([[-1.0, 0.0], [1.0, 0.5], [0.0, -1.5]])
    weights = torch.tensor([0.5, 0.25, 0.25])

    def like(x: Tensor) -> GaussianMixture:
        given = (means.to(x), covariances.to(x), weights.to(x))
        return GaussianMixture.from_moments(means=given[0], covariances=given[1], weights=given[2])

    def log_prob(x: Tensor) -> Tensor:
        return like(x).log_prob(x)

    def written_out(x: Tensor) -> Tensor:
        parts = zip(weights.to(x), means.to(x), covariances.to(x), strict=True)
        normal = torch.distributions.MultivariateNormal
        return torch.stack([normal(m, c).log_prob(x) + w.log() for w, m, c in parts]).logsumexp(0)

    near = shape("b 2")
    yield Claim(agreement(other=written_out), log_prob, near, name="GaussianMixture.log_prob")
    yield Claim(derivative(formula=lambda x: like(x).score(x)), log_prob, near, name="GaussianMixture.score")

    def sampled(n: int) -> Tensor:
        return like(torch.zeros(1)).sample(n, seed=int(torch.randint(2**31, ())))

    yield Claim(
        samples_follow_density(sample=sampled, log_prob=log_prob), log_prob, near, name="GaussianMixture.sample"
    )

    def by_tweedie(x: Tensor) -> Tensor:
        return (x + 0.7**2 * like(x).with_noise(0.6, 0.7).score(x)) / 0.6

    def denoised(x: Tensor) -> Tensor:
        return like(x).denoise(x, 0.6, 0.7)

    yield Claim(agreement(other=by_tweedie), denoised, near, name="GaussianMixture.denoised = (y + σ² score) / α")

    def under_noise(x: Tensor) -> Tensor:
        given = 0.6 * means.to(x), 0.36 * covariances.to(x) + 0.49 * torch.eye(2).to(x)
        return GaussianMixture.from_moments(means=given[0], covariances=given[1], weights=weights.to(x)).log_prob(x)

    def noised(x: Tensor) -> Tensor:
        return like(x).with_noise(0.6, 0.7).log_prob(x)

    yield Claim(agreement(other=under_noise), noised, near, name="GaussianMixture.noised")
    isotropic = GaussianMixture.from_moments(means=means, scale=0.5)
    full = GaussianMixture.from_moments(means=means, covariances=0.25 * torch.eye(2).expand(3, 2, 2))
    for method in ("log_prob", "score", "responsibilities"):

        def of_one_scale(x: Tensor, method: str = method) -> Tensor:
            return getattr(isotropic.to(x.dtype), method)(x)

        def of_matrices(x: Tensor, method: str = method) -> Tensor:
            return getattr(full.to(x.dtype), method)(x)

        yield Claim(agreement(other=of_matrices), of_one_scale, near, name=f"GaussianMixture.{method}, one scale")


def claims() -> Iterator[Claim]:
    """Second derivations of densities."""
    yield from _boxes_claims()
    yield from _mixture_claims()
