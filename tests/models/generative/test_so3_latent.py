import math

import pytest
import torch

from lawful.groups import SO3, Haar, WrappedNormal, quaternion_to_matrix
from lawful.models.generative import BernoulliLikelihood, SO3Latent, mlp_vae


def params_of(scale, *, n=1, seed=0):
    """Encoder outputs with random locations and given scales."""
    generator = torch.Generator().manual_seed(seed)
    share = (torch.tensor(scale, dtype=torch.float64) - 1e-3) / (1.6 - 1e-3)
    start = math.log(0.3 / 1.3)
    location = torch.randn(n, 6, generator=generator, dtype=torch.float64)
    return torch.cat([location, (share.logit() - start).expand(n, 3)], -1)


@pytest.mark.parametrize("scale", [(0.01, 0.02, 0.05), (0.3, 0.3, 0.3), (0.1, 1.0, 1.5), (1.3, 1.3, 1.3)])
def test_kl_is_the_mean_log_ratio_of_samples(scale):
    latent = SO3Latent()
    params = params_of(scale)
    u = torch.rand(20_000, 1, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ratio = latent.log_ratio(params, latent.rsample(params, latent.noise(u)))
    assert float(latent.kl(params)) == pytest.approx(-float(ratio.mean()), abs=0.03)


def test_log_ratio_is_that_of_the_wrapped_normal_and_haar_distributions():
    latent, params = SO3Latent(), params_of((0.2, 0.5, 0.9), n=4)
    location = latent.mean(params).unflatten(-1, (3, 3))
    posterior = WrappedNormal(SO3(), location, torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64))
    g = Haar(SO3(), dtype=torch.float64).sample((7, 4))
    expected = Haar(SO3()).log_prob(g) - posterior.log_prob(g)
    torch.testing.assert_close(latent.log_ratio(params, g.flatten(-2)), expected)


def test_latents_are_rotations_and_the_prior_is_uniform():
    latent = SO3Latent()
    u = torch.rand(20_000, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    prior = latent.sample_prior(latent.noise(u))
    posterior = latent.rsample(params_of((0.5, 0.5, 0.5), n=3), latent.noise(u[:2, None].expand(2, 3, 9)))
    for z in (prior, posterior, latent.mean(params_of((0.1, 0.1, 0.1), n=5)), latent.mean(torch.zeros(2, 9))):
        r = z.unflatten(-1, (3, 3))
        torch.testing.assert_close(r @ r.mT, torch.eye(3, dtype=r.dtype).expand_as(r))
        torch.testing.assert_close(r.det(), torch.ones_like(r.det()))
    turned = (quaternion_to_matrix(torch.tensor([0.3, -0.5, 0.1, 0.8]).double()) @ prior.unflatten(-1, (3, 3))).flatten(
        1
    )
    for z in (prior, turned):  # the entries of a uniform rotation are uncorrelated, with mean 0 and variance 1/3
        torch.testing.assert_close(z.mT @ z / len(z), torch.eye(9, dtype=z.dtype) / 3, atol=0.01, rtol=0)
        assert float(z.mean(0).abs().max()) < 0.02


def test_gradients_of_kl_and_samples_are_the_true_ones():
    latent, params = SO3Latent(), params_of((0.1, 0.7, 1.4), n=2).requires_grad_()
    noise = latent.noise(torch.rand(2, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    assert torch.autograd.gradcheck(latent.kl, params)
    assert torch.autograd.gradcheck(lambda p: latent.rsample(p, noise), params)


def test_the_importance_weighted_bound_converges_to_the_likelihood_under_the_uniform_prior():
    torch.manual_seed(0)
    latent = SO3Latent()
    model = mlp_vae(3, latent=latent, hidden_dims=(6,), likelihood=BernoulliLikelihood((3,))).double()
    with torch.no_grad():
        list(model.encoder.parameters())[-1][6:] = 3.0  # wide posteriors
        patterns = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)
        z = Haar(SO3(), dtype=torch.float64).sample((20_000,)).flatten(1)
        truth = torch.stack([model.likelihood.log_prob(x.expand(20_000, -1), model.decoder(z)) for x in patterns])
    found = model.iwae_estimate(patterns, num_samples=2000).value.exp()
    torch.testing.assert_close(found, truth.exp().mean(1), rtol=0.03, atol=0)
    assert (model.elbo_estimate(patterns, num_samples=200).value < found.log() + 0.02).all()


def test_mean_variance_is_that_of_the_entries_of_the_matrices():
    params = params_of((0.1, 0.1, 0.1), n=3)
    matrices = SO3Latent().mean(params)
    expected = (matrices - matrices.mean(0)).square().mean(0).sum()
    torch.testing.assert_close(SO3Latent().mean_variance(params), expected[None])
