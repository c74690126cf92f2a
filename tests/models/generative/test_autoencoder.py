import pytest
import torch
from torch import nn

import lawful
from lawful.data import digits
from lawful.functions import identity, pca_axes
from lawful.models.generative import (
    PCA,
    Autoencoder,
    AutoencoderSampler,
    CNNAutoencoderConfig,
    GaussianCorruption,
    MaskingCorruption,
    MLPAutoencoderConfig,
    SupportsSample,
    cnn_autoencoder,
    linear_autoencoder,
    mlp_autoencoder,
)
from lawful.models.generative.autoencoder import principal_span, projection


def trained(model, x, *, steps, rate=0.02):
    """Descends on the loss of all data, and says what is left of it."""
    torch.manual_seed(0)
    descent = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        descent.zero_grad()
        loss = model.loss(x)
        loss.backward()
        descent.step()
    return float(model.eval().loss(x).detach())


def spread(n=80):
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 2.0, 0.5, 0.3, 0.1])
    return x @ torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(1))).Q + 4


def test_a_trained_linear_autoencoder_spans_the_principal_axes():
    x = spread()
    torch.manual_seed(0)
    model = mlp_autoencoder(MLPAutoencoderConfig(shape=(5,), latent=2, hidden=(), activation=identity)).fit_normalizer(
        x
    )
    left = trained(model, x, steps=400, rate=0.03)
    axes = pca_axes(x, components=2).axes.float()
    decoder = model.decoder.layers[0].weight.detach().mT
    torch.testing.assert_close(projection(decoder), axes @ axes.mT, rtol=0, atol=1e-3)
    best = PCA(pca_axes(x, components=2)).float()
    torch.testing.assert_close(left, float(((best(x) - x) / model.inputs.std).square().mean()), rtol=1e-3, atol=0)


def test_the_closed_form_leaves_as_little_as_pca():
    x = spread().double()
    for latent in (1, 2, 4):
        encoder, decoder = linear_autoencoder(x, latent=latent, rounds=300)
        best = PCA(pca_axes(x, components=latent))
        torch.testing.assert_close((x - x.mean(0)) @ encoder @ decoder + x.mean(0), best(x), rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="latent is from 1 to the 5 features: got 6"):
        linear_autoencoder(x, latent=6)


def test_the_law_refutes_what_forgets_the_mean():
    def uncentred(x):
        return torch.linalg.svd(x, full_matrices=False).Vh[:1]

    def off(x):
        return x.tanh() * x.new_tensor([0.5, 0.1]) + x.new_tensor([1.0, 3.0])

    found = lawful.check(uncentred, principal_span(), inputs=lawful.laws.transformed(off, "n:5..8 2"), cases=5)
    assert found.verdicts[0].status == "refuted"


def test_the_bottleneck_makes_it_choose():
    """Of as many entries in a code as in the data a linear pair learns nothing: it copies noise as well."""
    x, noise = spread().double(), torch.randn(20, 5, generator=torch.Generator().manual_seed(3)).double()
    wide, narrow = (linear_autoencoder(x, latent=k, rounds=100) for k in (5, 2))
    torch.testing.assert_close(noise @ wide[0] @ wide[1], noise)
    assert (noise @ narrow[0] @ narrow[1] - noise).square().sum() > 0.3 * noise.square().sum()


@pytest.mark.parametrize("halvings", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 5), (2, 40), (1, 1)])
def test_any_size(shape, halvings):
    model = cnn_autoencoder(CNNAutoencoderConfig(shape=shape, latent=3, width=4, halvings=halvings))
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    assert model(x).shape == x.shape
    assert model.encode(x).shape == (2, 3)
    assert model.interpolate(x, x.flip(0), steps=3).shape == (3, 2, *shape)


@pytest.mark.parametrize("kind", ["dense", "convolutions"])
def test_it_learns_digits_better_than_their_mean(kind):
    x = digits().inputs[:256]
    shape = tuple(x.shape[1:])
    torch.manual_seed(0)
    if kind == "dense":
        model = mlp_autoencoder(MLPAutoencoderConfig(shape=shape, latent=8, hidden=(64,)))
    else:
        model = cnn_autoencoder(CNNAutoencoderConfig(shape=shape, latent=8, width=8))
    left = trained(model.fit_normalizer(x), x, steps=60, rate=0.01)
    assert left < 0.7 * float(((x - x.mean(0)) / model.inputs.std).square().mean())


def test_it_works_in_the_units_of_the_data():
    x = 100 * spread() + 1000
    model = mlp_autoencoder(MLPAutoencoderConfig(shape=(5,), latent=2)).fit_normalizer(x)
    z = (x - x.mean()) / x.std(correction=0)
    torch.testing.assert_close(model.inputs(x), z, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(model.errors(x), (model(x) - x).square().sum(-1))


def test_only_training_corrupts():
    x = spread()
    model = mlp_autoencoder(MLPAutoencoderConfig(shape=(5,), latent=2), corrupt=GaussianCorruption(1.0))
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_denoising_learns_to_denoise():
    """On a line, the best answer to noise is to go back to the line."""
    x = torch.linspace(-1, 1, 200)[:, None] * torch.tensor([1.0, 1.0])
    noise = 0.3 * torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    config = MLPAutoencoderConfig(shape=(2,), latent=2, hidden=(32,))
    model = mlp_autoencoder(config, corrupt=GaussianCorruption(0.3)).fit_normalizer(x)
    trained(model, x, steps=150)
    assert (model(x + noise).detach() - x).square().sum(-1).mean() < 0.75 * noise.square().sum(-1).mean()


def test_masking_drops_and_does_not_scale():
    torch.manual_seed(0)
    y = MaskingCorruption(0.25)(torch.ones(10000))
    assert set(y.tolist()) == {0.0, 1.0}
    assert 0.7 < float(y.mean()) < 0.8


def test_codes_of_a_model_give_samples():
    x = digits().inputs[:100]
    model = mlp_autoencoder(MLPAutoencoderConfig(shape=tuple(x.shape[1:]), latent=3)).eval().fit_normalizer(x)
    drawn = AutoencoderSampler(PCA.fit(model.encode(x).detach()), model)
    assert isinstance(drawn, SupportsSample)
    torch.testing.assert_close(drawn.sample(2, seed=1, first=3), drawn.sample(6, seed=1)[3:5])
    assert drawn.sample(2).shape == (2, *x.shape[1:])


def test_impossible_arguments():
    with pytest.raises(ValueError, match="latent is at least 1"):
        mlp_autoencoder(MLPAutoencoderConfig(shape=(5,), latent=0))
    with pytest.raises(ValueError, match=r"\(c, t\) or \(c, h, w\)"):
        cnn_autoencoder(CNNAutoencoderConfig(shape=(5,), latent=2))
    with pytest.raises(ValueError, match="halvings and width"):
        cnn_autoencoder(CNNAutoencoderConfig(shape=(1, 8), latent=2, halvings=0))
    model = Autoencoder(nn.Linear(3, 1), nn.Linear(1, 3), shape=(3,))
    with pytest.raises(ValueError, match=r"examples of shape \(3,\) were wanted: got shape \(2, 4\)"):
        model(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="steps are at least 2"):
        model.interpolate(torch.zeros(1, 3), torch.zeros(1, 3), steps=1)
    with pytest.raises(ValueError, match="NaN"):
        model.fit_normalizer(torch.full((4, 3), float("nan")))
    with pytest.raises(ValueError, match="p is a probability"):
        MaskingCorruption(1.5)
    with pytest.raises(ValueError, match="sigma is not negative"):
        GaussianCorruption(-1.0)
