import math
from functools import partial

import pytest
import torch

from lawful.functions import pca_axes
from lawful.models.generative import (
    PCA,
    BernoulliLikelihood,
    CategoricalLatent,
    CNNAutoencoderConfig,
    CNNVAEConfig,
    GaussianLatent,
    GaussianLikelihood,
    HeteroscedasticGaussianLikelihood,
    MLPVAEConfig,
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
    named = {name: options.pop(name) for name in ("codes", "likelihood") if name in options}
    return mlp_vae(MLPVAEConfig(**{"shape": (4,), "latent": 2, "hidden": (6,), **options}), **named)


@pytest.mark.parametrize("components", [1, 3])
def test_the_bounds_of_the_linear_one_are_the_likelihood_of_pca(components):
    x = rows()
    pca = PCA.fit(x, axes=partial(pca_axes, components=components))
    model, truth = linear_vae(pca), pca.log_prob(x).value
    for k in (1, 7):
        torch.testing.assert_close(model.iwae(x, k).value, truth)
    bound = model.elbo(x, draws=400)
    assert ((bound.value - truth).abs() < 5 * bound.error).all()
    assert bound.evaluations == 401


def test_a_wrong_posterior_loosens_the_bound_and_importance_tightens_it():
    x = rows()
    pca = PCA.fit(x, axes=partial(pca_axes, components=2))
    model, truth = linear_vae(pca), pca.log_prob(x).value.mean()
    with torch.no_grad():
        model.encoder.bias[2:] += 1.0
    bounds = [float(model.elbo(x, draws=64).value.mean()), *(float(model.iwae(x, k).value.mean()) for k in (4, 256))]
    assert bounds == sorted(bounds)
    gap = 2 * (math.e - 2) / 2  # (e - 1 - 1) / 2 nats for each coordinate
    assert bounds[0] == pytest.approx(float(truth) - gap, abs=0.1)
    assert bounds[2] == pytest.approx(float(truth), abs=0.05)


@pytest.mark.long
def test_training_the_linear_decoder_finds_the_likelihood_of_pca():
    """Lucas and others: a linear VAE has no optimum but that of PCA."""
    x = rows(200, 3).float()
    pca = PCA.fit(x, axes=partial(pca_axes, components=1))
    model = small(shape=(3,), latent=1, hidden=())
    model.fit_normalizer(x)
    with torch.no_grad():  # one noise for all features, in the units of the data
        model.likelihood.units.std.fill_(1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(400):
        optimizer.zero_grad()
        model.loss(x).backward()
        noise = model.likelihood.log_noise
        noise.grad.fill_(float(noise.grad.mean()))
        optimizer.step()
    best = float(pca.log_prob(x).value.mean())
    assert best - 0.1 < float(model.iwae(x, 16).value.mean()) < best + 0.02


@pytest.mark.parametrize(
    "model",
    [
        small(),
        small(shape=(1, 2, 3), likelihood=BernoulliLikelihood((1, 2, 3))),
        small(codes=CategoricalLatent(2, classes=3)),
        small(likelihood=HeteroscedasticGaussianLikelihood((4,))),
    ],
    ids=["gaussian", "bernoulli", "categorical", "varying"],
)
def test_it_keeps_the_contract(model):
    assert isinstance(model, SupportsSample)
    assert isinstance(model, SupportsELBO)
    assert not isinstance(model, SupportsLogProb)
    x = model.sample(9, seed=3)
    assert x.shape[1:] == model.shape
    torch.testing.assert_close(model.sample(2, seed=3, first=5), x[5:7])
    found = model.elbo(x, seed=2)
    assert found.value.isfinite().all()
    assert (found.error >= 0).all()
    torch.testing.assert_close(model.elbo(x[:4], seed=2).value, found.value[:4])
    assert model.train().training
    torch.testing.assert_close(model.elbo(x, seed=2).value, found.value)
    assert model.training
    model.loss(x).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    with pytest.raises(ValueError, match="knows no labels"):
        model.elbo(x, labels=torch.zeros(9, dtype=torch.long))


@pytest.mark.parametrize("codes", [GaussianLatent(1), CategoricalLatent(1, classes=3)], ids=["gaussian", "categorical"])
def test_bounds_of_bits_are_below_their_probability_which_importance_finds(codes):
    """All patterns of three bits: their probabilities, by many codes drawn beforehand, add up to one."""
    model = small(shape=(3,), codes=codes, likelihood=BernoulliLikelihood((3,)))
    patterns = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)
    z = codes.prior(codes.noise(torch.rand(20000, codes.size, generator=torch.Generator().manual_seed(0))))
    with torch.no_grad():
        p = torch.stack([model.likelihood.log_prob(x.expand(20000, -1), model.decoder(z)) for x in patterns])
    truth = p.exp().mean(1)
    found = model.iwae(patterns, 2000).value.exp()
    torch.testing.assert_close(found, truth, rtol=0.03, atol=0)
    assert float(found.sum()) == pytest.approx(1, abs=0.02)
    assert (model.elbo(patterns, draws=200).value < found.log() + 0.02).all()


def test_nats_are_those_of_the_units_of_the_data():
    x = rows().float()
    near, far = small(shape=(5,)).fit_normalizer(x), small(shape=(5,)).fit_normalizer(100 * x + 7)
    far.load_state_dict({**near.state_dict(), **{k: v for k, v in far.state_dict().items() if "units" in k}})
    lower = near.elbo(x).value - far.elbo(100 * x + 7).value
    torch.testing.assert_close(lower, torch.full_like(lower, 5 * math.log(100)), rtol=1e-3, atol=0)


def test_without_labels_a_conditional_model_bounds_the_mixture():
    model = small(classes=3)
    x, labels = rows(30, 4).float(), torch.arange(30) % 3
    model.fit_normalizer(x, labels=labels)
    assert model.sample(6, labels=torch.tensor([0, 1, 2, 0, 1, 2])).shape == (6, 4)
    assert model.sample(5).shape == (5, 4)
    each = torch.stack([model.iwae(x, 400, labels=torch.full((30,), c)).value for c in range(3)])
    mixture = each.logsumexp(0) - math.log(3)
    torch.testing.assert_close(model.iwae(x, 400).value, mixture)
    bound = model.elbo(x, draws=32)
    assert (bound.value < mixture + 4 * bound.error).all()
    with pytest.raises(ValueError, match="labels were wanted"):
        model.encode(x)
    with pytest.raises(ValueError, match="labels are from 0 to 2"):
        model.elbo(x, labels=labels + 1)


def test_units_that_say_nothing_are_found():
    model = small(hidden=())
    with torch.no_grad():
        encoder = model.encoder[1].layers[0]
        encoder.weight[[1, 3]] = 0.0
        encoder.bias[[1, 3]] = 0.0
        encoder.weight[0] = 1.0
    found = model.active_units(rows(50, 4).float())
    assert found.active.tolist() == [True, False]
    assert float(found.nats[1]) == 0
    assert float(found.nats[0]) > 0.1


@pytest.mark.long
def test_beta_and_free_bits_change_what_codes_say():
    x = rows(100, 4).float()

    def said(**options):
        model = small().fit_normalizer(x)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(60):
            optimizer.zero_grad()
            model.loss(x, **options).backward()
            optimizer.step()
        return model.active_units(x).nats

    assert float(said(beta=50.0).sum()) < 0.1 < float(said().sum())
    assert float(said(beta=50.0, free=0.5).sum()) > 0.2


@pytest.mark.parametrize("size", [0, -1])
def test_codes_have_at_least_one_number(size):
    with pytest.raises(ValueError, match="at least 1"):
        small(latent=size)


def test_what_is_wrong_is_refused():
    model, bits = small(), small(likelihood=BernoulliLikelihood((4,)))
    for x in (torch.full((2, 4), math.nan), torch.tensor([[0.0, 1.0, 2.0, math.inf]])):
        with pytest.raises(ValueError, match="finite"):
            model.elbo(x)
    for x in (torch.zeros(0, 4), torch.zeros(2, 5)):
        with pytest.raises(ValueError, match="at least one example of shape"):
            model.elbo(x)
    with pytest.raises(ValueError, match="at least 1 code"):
        model.iwae(torch.zeros(2, 4), 0)
    with pytest.raises(ValueError, match="from 0 to 1 were wanted, for bits: got 0 to 255"):
        bits.loss(torch.tensor([[0.0, 255.0, 1.0, 2.0]]))
    with pytest.raises(ValueError, match="at least 1 choice"):
        CategoricalLatent(2, classes=1)
    with pytest.raises(ValueError, match="low is below high"):
        BernoulliLikelihood((2,), low=1.0)


def test_a_feature_that_never_varies_keeps_the_density_finite():
    x = rows(40, 4).float()
    x[:, 2] = 5.0
    for kind in (GaussianLikelihood, HeteroscedasticGaussianLikelihood):
        model = small(likelihood=kind((4,))).fit_normalizer(x)
        assert model.elbo(x).value.isfinite().all()


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 5), (2, 9)])
def test_convolutions_are_told_labels_and_share_the_networks_of_the_autoencoder(shape):
    torch.manual_seed(0)
    model = cnn_vae(CNNVAEConfig(shape=shape, latent=3, width=2, classes=4)).eval()
    x, labels = torch.randn(5, *shape), torch.tensor([0, 1, 2, 3, 3])
    model.fit_normalizer(x, labels=labels)
    assert model.encode(x, labels=labels).shape == (5, 3)
    assert not torch.allclose(model.encode(x, labels=labels), model.encode(x, labels=labels.flip(0)))
    assert model.sample(2).shape == (2, *shape)
    assert model.elbo(x, draws=2).value.shape == (5,)
    ours, plain = (
        {name: p.shape for name, p in part.named_parameters()}
        for part in (model.decoder, cnn_decoder(CNNAutoencoderConfig(shape=shape, latent=7, width=2)))
    )
    assert ours == plain
    with pytest.raises(ValueError, match="labels are from 0 to 3"):
        model.encode(x, labels=labels + 1)
