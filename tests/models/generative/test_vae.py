import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from lawful.functions import normal_noise
from lawful.laws import Claim, agreement, batch_independence, shape, transformed
from lawful.losses.variational import gumbel_softmax, straight_through_gumbel
from lawful.models.generative import (
    PCA,
    VAE,
    BernoulliLikelihood,
    CategoricalLatent,
    GaussianLatent,
    GaussianLikelihood,
    HeteroscedasticGaussianLikelihood,
    SO3Latent,
    SupportsELBO,
    SupportsLogProb,
    SupportsSample,
    cnn_decoder,
    cnn_vae,
    linear_vae,
    mlp_vae,
)


def rows(n=80, d=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * torch.linspace(3, 0.4, d) + 1


def small(**options):
    torch.manual_seed(0)
    return mlp_vae(**{"dim": (4,), "latent_dim": 2, "hidden_dims": (6,), **options})


def test_a_model_without_classes_ignores_the_labels_of_its_training_data():
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    with_labels, without = small().fit_normalizer(x, labels=torch.arange(20) % 3), small().fit_normalizer(x)
    assert torch.equal(with_labels.sample(3, seed=0), without.sample(3, seed=0))


@pytest.mark.parametrize("components", [1, 3])
def test_linear_vae_bounds_equal_the_pca_likelihood(components):
    x = rows()
    pca = PCA(components).fit(x)
    model, truth = linear_vae(pca), pca.log_prob(x)
    for k in (1, 7):
        torch.testing.assert_close(model.iwae_estimate(x, num_samples=k).value, truth)
    bound = model.elbo_estimate(x, num_samples=400)
    assert ((bound.value - truth).abs() < 5 * bound.error).all()
    assert bound.evaluations == 401


def test_wrong_posterior_loosens_the_elbo_and_iwae_tightens_it():
    x = rows()
    pca = PCA(2).fit(x)
    model, truth = linear_vae(pca), pca.log_prob(x).mean()
    with torch.no_grad():
        model.encoder.bias[2:] += 1.0
    bounds = [
        float(model.elbo_estimate(x, num_samples=64).value.mean()),
        *(float(model.iwae_estimate(x, num_samples=k).value.mean()) for k in (4, 256)),
    ]
    assert bounds == sorted(bounds)
    gap = 2 * (math.e - 2) / 2  # (e - 1 - 1) / 2 nats for each coordinate
    assert bounds[0] == pytest.approx(float(truth) - gap, abs=0.1)
    assert bounds[2] == pytest.approx(float(truth), abs=0.05)


@pytest.mark.long
def test_training_the_linear_decoder_finds_the_likelihood_of_pca():
    """Lucas et al.: the only optimum of a linear VAE is PCA."""
    x = rows(200, 3).float()
    pca = PCA(1).fit(x)
    model = small(dim=3, latent_dim=1, hidden_dims=())
    model.fit_normalizer(x)
    with torch.no_grad():  # one noise for all features, in the units of the data
        model.likelihood.normalizer.std.fill_(1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(400):
        optimizer.zero_grad()
        model.loss(x).backward()
        noise = model.likelihood.log_noise
        noise.grad.fill_(float(noise.grad.mean()))
        optimizer.step()
    best = float(pca.log_prob(x).mean())
    assert best - 0.1 < float(model.iwae_estimate(x, num_samples=16).value.mean()) < best + 0.02


@pytest.mark.parametrize(
    "model",
    [
        small(),
        small(dim=(1, 2, 3), likelihood=BernoulliLikelihood((1, 2, 3))),
        small(latent=CategoricalLatent(2, num_categories=3)),
        small(likelihood=HeteroscedasticGaussianLikelihood((4,))),
    ],
    ids=["gaussian", "bernoulli", "categorical", "varying"],
)
def test_protocols(model):
    assert isinstance(model, SupportsSample)
    assert isinstance(model, SupportsELBO)
    assert not isinstance(model, SupportsLogProb)
    x = model.sample(9, seed=3)
    assert x.shape[1:] == model.shape
    torch.testing.assert_close(model.sample(2, seed=3, first=5), x[5:7])
    found = model.elbo_estimate(x, seed=2)
    assert found.value.isfinite().all()
    assert (found.error >= 0).all()
    torch.testing.assert_close(model.elbo_estimate(x[:4], seed=2).value, found.value[:4])
    assert model.train().training
    torch.testing.assert_close(model.elbo_estimate(x, seed=2).value, found.value)
    assert model.training
    torch.manual_seed(1)
    loss = model.loss(x)
    torch.manual_seed(1)
    torch.testing.assert_close(-model.elbo(x).mean(), loss)
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    with pytest.raises(ValueError, match="it takes no labels"):
        model.elbo(x, labels=torch.zeros(9, dtype=torch.long))


@pytest.mark.parametrize(
    "latent", [GaussianLatent(1), CategoricalLatent(1, num_categories=3)], ids=["gaussian", "categorical"]
)
def test_elbo_is_below_log_prob_and_iwae_converges_to_it(latent):
    """Probabilities of all patterns of three bits, estimated from many prior samples, add up to one."""
    model = small(dim=3, latent=latent, likelihood=BernoulliLikelihood((3,)))
    patterns = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)
    z = latent.sample_prior(latent.noise(torch.rand(20000, latent.dim, generator=torch.Generator().manual_seed(0))))
    with torch.no_grad():
        p = torch.stack([model.likelihood.log_prob(x.expand(20000, -1), model.decoder(z)) for x in patterns])
    truth = p.exp().mean(1)
    found = model.iwae_estimate(patterns, num_samples=2000).value.exp()
    torch.testing.assert_close(found, truth, rtol=0.03, atol=0)
    assert float(found.sum()) == pytest.approx(1, abs=0.02)
    assert (model.elbo_estimate(patterns, num_samples=200).value < found.log() + 0.02).all()


def test_elbo_is_in_the_units_of_the_data():
    x = rows().float()
    near, far = small(dim=5).fit_normalizer(x), small(dim=5).fit_normalizer(100 * x + 7)
    far.load_state_dict({**near.state_dict(), **{k: v for k, v in far.state_dict().items() if "normalizer" in k}})
    lower = near.elbo_estimate(x).value - far.elbo_estimate(100 * x + 7).value
    torch.testing.assert_close(lower, torch.full_like(lower, 5 * math.log(100)), rtol=1e-3, atol=0)


def test_conditional_model_without_labels_bounds_the_mixture():
    model = small(num_classes=3)
    x, labels = rows(30, 4).float(), torch.arange(30) % 3
    model.fit_normalizer(x, labels=labels)
    assert model.sample(6, labels=torch.tensor([0, 1, 2, 0, 1, 2])).shape == (6, 4)
    assert model.sample(5).shape == (5, 4)
    each = torch.stack([model.iwae_estimate(x, num_samples=400, labels=torch.full((30,), c)).value for c in range(3)])
    mixture = each.logsumexp(0) - math.log(3)
    torch.testing.assert_close(model.iwae_estimate(x, num_samples=400).value, mixture)
    bound = model.elbo_estimate(x, num_samples=32)
    assert (bound.value < mixture + 4 * bound.error).all()
    with pytest.raises(ValueError, match="labels are required"):
        model.encode(x)
    with pytest.raises(ValueError, match="expected labels from 0 to 2"):
        model.elbo(x, labels=labels + 1)


@pytest.mark.parametrize("relaxation", [gumbel_softmax, straight_through_gumbel])
def test_categorical_latents_are_relaxed_at_their_temperature(relaxation):
    latent = CategoricalLatent(2, num_categories=3, temperature=0.4, relaxation=relaxation)
    params, noise = torch.randn(5, 6), torch.randn(5, 6)
    logits = params.reshape(5, 2, 3)
    expected = relaxation(logits, noise.reshape(5, 2, 3), temperature=0.4)
    torch.testing.assert_close(latent.rsample(params, noise), expected.flatten(1))
    hard = nn.functional.one_hot((logits + noise.reshape(5, 2, 3)).argmax(-1), 3).flatten(1)
    torch.testing.assert_close(latent.eval().rsample(params, noise), hard.float())


def test_inactive_units_are_detected():
    model = small(hidden_dims=())
    with torch.no_grad():
        encoder = model.encoder[1].layers[0]
        encoder.weight[[1, 3]] = 0.0
        encoder.bias[[1, 3]] = 0.0
        encoder.weight[0] = 1.0
    found = model.active_units(rows(50, 4).float())
    assert found.active.tolist() == [True, False]
    assert model.active_units(rows(50, 4).float(), threshold=1e6).active.tolist() == [False, False]
    assert float(found.kl[1]) == 0
    assert float(found.kl[0]) > 0.1


@pytest.mark.long
def test_beta_and_free_bits_change_the_kl():
    x = rows(100, 4).float()

    def said(**options):
        model = small().fit_normalizer(x)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(60):
            optimizer.zero_grad()
            model.loss(x, **options).backward()
            optimizer.step()
        return model.active_units(x).kl

    assert float(said(beta=50.0).sum()) < 0.1 < float(said().sum())
    assert float(said(beta=50.0, free_bits=0.5).sum()) > 0.2


@pytest.mark.parametrize("size", [0, -1])
def test_latent_dim_must_be_positive(size):
    with pytest.raises(ValueError, match="expected dim >= 1"):
        small(latent_dim=size)


def test_invalid_arguments():
    model, bits = small(), small(likelihood=BernoulliLikelihood((4,)))
    for x in (torch.full((2, 4), math.nan), torch.tensor([[0.0, 1.0, 2.0, math.inf]])):
        with pytest.raises(ValueError, match="finite"):
            model.elbo_estimate(x)
    for x, message in ((torch.zeros(0, 4), "expected at least 1 example"), (torch.zeros(2, 5), "expected x of shape")):
        with pytest.raises(ValueError, match=message):
            model.elbo(x)
    with pytest.raises(ValueError, match="expected num_samples >= 1"):
        model.iwae_estimate(torch.zeros(2, 4), num_samples=0)
    with pytest.raises(ValueError, match="expected values from 0 to 1, got 0 to 255"):
        bits.loss(torch.tensor([[0.0, 255.0, 1.0, 2.0]]))
    with pytest.raises(ValueError, match="num_categories >= 2"):
        CategoricalLatent(2, num_categories=1)
    with pytest.raises(ValueError, match="expected finite low < high"):
        BernoulliLikelihood((2,), low=1.0)


def test_samples_without_noise_are_the_decoder_means_of_the_same_latents():
    model = small().fit_normalizer(rows(d=4).float())
    mean, noisy = model.sample(400, seed=3, noise=False), model.sample(400, seed=3)
    assert torch.allclose(mean[5:], model.sample(395, seed=3, first=5, noise=False), atol=1e-5)
    residual = (noisy - mean) / noisy.std(0)
    assert 0 < residual.square().mean() < 1
    assert mean.var(0).sum() < noisy.var(0).sum()


def test_constant_feature_keeps_the_elbo_finite():
    x = rows(40, 4).float()
    x[:, 2] = 5.0
    for kind in (GaussianLikelihood, HeteroscedasticGaussianLikelihood):
        model = small(likelihood=kind((4,))).fit_normalizer(x)
        assert model.elbo_estimate(x).value.isfinite().all()


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 5), (2, 9)])
def test_cnn_vae_is_conditional_and_shares_the_networks_of_the_autoencoder(shape):
    torch.manual_seed(0)
    model = cnn_vae(shape, latent_dim=3, channels=2, num_classes=4).eval()
    x, labels = torch.randn(5, *shape), torch.tensor([0, 1, 2, 3, 3])
    model.fit_normalizer(x, labels=labels)
    assert model.encode(x, labels=labels).shape == (5, 3)
    assert not torch.allclose(model.encode(x, labels=labels), model.encode(x, labels=labels.flip(0)))
    assert model.sample((2, 3)).shape == (2, 3, *shape)
    assert model.elbo_estimate(x, num_samples=2).value.shape == (5,)
    ours, plain = (
        {name: p.shape for name, p in part.named_parameters()}
        for part in (model.decoder, cnn_decoder(shape, latent_dim=7, channels=2))
    )
    assert ours == plain
    with pytest.raises(ValueError, match="expected labels from 0 to 3"):
        model.encode(x, labels=labels + 1)


def _codes_claims() -> Iterator[Claim]:
    """Laws of latents: the KL divergence is the mean of the log-ratio."""
    choices = CategoricalLatent(2, num_categories=3).eval()
    corners = torch.eye(3)
    each = torch.stack([torch.cat([a, b]) for a in corners for b in corners])

    def averaged(q: Tensor) -> Tensor:
        """The mean of -log p/q over all latents."""
        z = each.to(q)[:, None].expand(-1, len(q), -1)
        p = q.unflatten(-1, (2, 3)).softmax(-1)
        weights = torch.stack([p[:, 0, a] * p[:, 1, b] for a in range(3) for b in range(3)])
        return -(weights * choices.log_ratio(q, z)).sum(0)

    def total(q: Tensor) -> Tensor:
        return choices.kl(q).sum(-1)

    near = transformed(torch.tanh, "n 6")
    yield Claim(agreement(other=averaged), total, near, name="CategoricalLatent.kl")
    normal = GaussianLatent(3)

    def ratio(q: Tensor) -> Tensor:
        return normal.log_ratio(q, normal.rsample(q, torch.ones_like(q[:, :3])))

    def by_torch(q: Tensor) -> Tensor:
        mean, sigma = q[:, :3], (q[:, 3:] / 2).exp()
        z = mean + sigma
        plain, own = torch.distributions.Normal(0 * mean, 0 * mean + 1), torch.distributions.Normal(mean, sigma)
        return (plain.log_prob(z) - own.log_prob(z)).sum(-1)

    yield Claim(agreement(other=by_torch), ratio, near, name="GaussianLatent.log_ratio")


def _vae_claims() -> Iterator[Claim]:
    """Laws of a variational autoencoder."""
    into, out_of = nn.Linear(3, 4), nn.Linear(2, 3)
    model = VAE(into, out_of, GaussianLatent(2), shape=(3,))
    near = transformed(torch.tanh, "n 3")

    def weighted(x: Tensor) -> Tensor:
        return model.to(x).iwae_estimate(x, num_samples=5, seed=3).value

    def by_torch(x: Tensor) -> Tensor:
        mean, log_variance = (x @ into.weight.T + into.bias).chunk(2, -1)
        q = torch.distributions.Normal(mean, (log_variance / 2).exp())
        z = mean + q.scale * normal_noise(len(x), 5, 2, seed=3).movedim(1, 0).to(x)
        noise = dict(model.named_parameters())["likelihood.log_noise"].exp().clamp_min(1e-3)
        p, one = torch.distributions.Normal(z @ out_of.weight.T + out_of.bias, noise), torch.zeros_like(z)
        logs = p.log_prob(x).sum(-1) + (torch.distributions.Normal(one, 1.0).log_prob(z) - q.log_prob(z)).sum(-1)
        return logs.exp().mean(0).log()

    yield Claim(agreement(other=by_torch), weighted, near, name="VAE.iwae_estimate")

    def written_out(x: Tensor) -> Tensor:
        """The mean fit of the same codes, less the divergence."""
        flat = model.to(x)
        q = flat.posterior(x)
        noise = normal_noise(len(x), 4, 2, seed=1).movedim(1, 0).to(x)
        fits = torch.stack([flat.likelihood.log_prob(x, out_of(flat.latent.rsample(q, e))) for e in noise]).mean(0)
        return fits - (q[:, :2].square() + q[:, 2:].exp() - 1 - q[:, 2:]).sum(-1) / 2

    def bound(x: Tensor) -> Tensor:
        return model.to(x).elbo_estimate(x, seed=1, num_samples=4).value

    yield Claim(agreement(other=written_out), bound, near, name="VAE.elbo_estimate")

    def alone(x: Tensor) -> Tensor:
        return torch.cat([model.to(x).sample(1, 3, first=i) for i in range(len(x))])

    def beside(x: Tensor) -> Tensor:
        return model.to(x).sample(len(x), 3)

    yield Claim(agreement(other=alone), beside, shape("n:1..3 2"), name="VAE.sample, one by one")


def _vaes_claims() -> Iterator[Claim]:
    """Laws of VAEs: the linear one equals its Gaussian marginal."""
    x = torch.tensor([[0.0, 0.0, 1.0], [2.0, 3.0, 4.0], [4.0, 5.0, 5.0], [1.0, 0.0, 0.0], [3.0, 3.0, 0.0]]).double()
    pca = PCA(2).fit(x)
    axes, variances, noise, mean = pca.components.mT, pca.explained_variance, pca.noise_variance, pca.mean
    covariance = axes * (variances - noise) @ axes.T + noise * torch.eye(3).double()

    def weighted(x: Tensor) -> Tensor:
        return linear_vae(pca).to(x).iwae_estimate(x, num_samples=2).value

    def gaussian(x: Tensor) -> Tensor:
        return torch.distributions.MultivariateNormal(mean.to(x), covariance.to(x)).log_prob(x)

    near = transformed(lambda x: 2 * x.tanh(), "n 3")
    yield Claim(agreement(other=gaussian), weighted, near, name="linear_vae, each weight is the likelihood")

    def bound(x: Tensor) -> Tensor:
        """The fit of a linear decoder, averaged over the posterior, less the divergence."""
        model = linear_vae(pca).to(x)
        q = model.posterior(x).detach()
        shaken = (variances - noise).to(x) * q[:, 2:].exp() / noise.to(x) / 2
        fits = model.likelihood.log_prob(x, model.decoder(q[:, :2])).detach()
        return fits - shaken.sum(-1) - model.latent.kl(q).sum(-1)

    yield Claim(agreement(other=gaussian), bound, near, name="linear_vae, its ELBO is the likelihood")
    images = mlp_vae((1, 2, 3), latent_dim=2, hidden_dims=(4,)).eval()
    yield Claim(batch_independence(), images, shape("n 1 2 3"), name="mlp_vae, rebuilt")


def claims() -> Iterator[Claim]:
    """Second derivations of variational autoencoders."""
    yield from _codes_claims()
    yield from _vae_claims()
    yield from _vaes_claims()


@pytest.mark.parametrize(
    "latent",
    [GaussianLatent(2), CategoricalLatent(2, num_categories=3), SO3Latent()],
    ids=["gaussian", "categorical", "so3"],
)
def test_the_loss_is_finite_under_bfloat16_autocast(latent):
    vae, x = mlp_vae(4, latent_dim=2, latent=latent), torch.randn(8, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = vae.loss(x)
    loss.backward()
    assert bool(loss.isfinite())
