from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

import lawful
from lawful.data import digits
from lawful.functions import identity, pca_axes
from lawful.laws import Claim, Draw, Equal, Map, Statement, agreement, batch_independence, law, shape, transformed
from lawful.models.generative import (
    PCA,
    Autoencoder,
    AutoencoderSampler,
    GaussianCorruption,
    MaskingCorruption,
    SupportsSample,
    cnn_autoencoder,
    linear_autoencoder,
    mlp_autoencoder,
)


def final_loss(model, x, *, steps, rate=0.02):
    """Trains on all data, and returns the final loss."""
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
    model = mlp_autoencoder(5, latent_dim=2, hidden_dims=(), activation=identity).fit_normalizer(x)
    left = final_loss(model, x, steps=400, rate=0.03)
    axes = pca_axes(x, n_components=2).components.mT.float()
    decoder = model.decoder.layers[0].weight.detach().mT
    torch.testing.assert_close(projection(decoder), axes @ axes.mT, rtol=0, atol=1e-3)
    best = PCA(2).fit(x)
    torch.testing.assert_close(left, float(((best(x) - x) / model.normalizer.std).square().mean()), rtol=1e-3, atol=0)


def test_closed_form_equals_pca():
    x = spread().double()
    for latent in (1, 2, 4):
        encoder, decoder = linear_autoencoder(x, latent_dim=latent, num_iterations=300)
        best = PCA(latent).fit(x)
        torch.testing.assert_close((x - x.mean(0)) @ encoder @ decoder + x.mean(0), best(x), rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match=r"expected latent_dim from 1 to 5 \(the number of features\), got 6"):
        linear_autoencoder(x, latent_dim=6)


def test_law_refutes_uncentered_pca():
    def uncentered(x):
        return torch.linalg.svd(x, full_matrices=False).Vh[:1]

    def off(x):
        return x.tanh() * x.new_tensor([0.5, 0.1]) + x.new_tensor([1.0, 3.0])

    found = lawful.check(uncentered, principal_span(), inputs=lawful.laws.transformed(off, "n:5..8 2"), cases=5)
    assert found.verdicts[0].status == "refuted"


def test_bottleneck_removes_noise():
    """With as many latents as features, a linear autoencoder learns nothing: it also copies noise."""
    x, noise = spread().double(), torch.randn(20, 5, generator=torch.Generator().manual_seed(3)).double()
    wide, narrow = (linear_autoencoder(x, latent_dim=k, num_iterations=100) for k in (5, 2))
    torch.testing.assert_close(noise @ wide[0] @ wide[1], noise)
    assert (noise @ narrow[0] @ narrow[1] - noise).square().sum() > 0.3 * noise.square().sum()


@pytest.mark.parametrize("num_downsamples", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 5), (2, 40), (1, 1)])
def test_any_size(shape, num_downsamples):
    model = cnn_autoencoder(shape, latent_dim=3, channels=4, num_downsamples=num_downsamples)
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
        model = mlp_autoencoder(shape, latent_dim=8, hidden_dims=(64,))
    else:
        model = cnn_autoencoder(shape, latent_dim=8, channels=8)
    left = final_loss(model.fit_normalizer(x), x, steps=60, rate=0.01)
    assert left < 0.7 * float(((x - x.mean(0)) / model.normalizer.std).square().mean())


def test_it_works_in_the_units_of_the_data():
    x = 100 * spread() + 1000
    model = mlp_autoencoder(5, latent_dim=2).fit_normalizer(x)
    z = (x - x.mean()) / x.std(correction=0)
    torch.testing.assert_close(model.normalizer(x), z, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(model.reconstruction_error(x), (model(x) - x).square().sum(-1))


def test_only_training_corrupts():
    x = spread()
    model = mlp_autoencoder(5, latent_dim=2, corruption=GaussianCorruption(1.0))
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_denoising_learns_to_denoise():
    """For data on a line, the best denoiser projects onto the line."""
    x = torch.linspace(-1, 1, 200)[:, None] * torch.tensor([1.0, 1.0])
    noise = 0.3 * torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    corruption = GaussianCorruption(0.3)
    model = mlp_autoencoder(2, latent_dim=2, hidden_dims=(32,), corruption=corruption).fit_normalizer(x)
    final_loss(model, x, steps=150)
    assert (model(x + noise).detach() - x).square().sum(-1).mean() < 0.75 * noise.square().sum(-1).mean()


def test_masking_drops_and_does_not_scale():
    torch.manual_seed(0)
    y = MaskingCorruption(0.25)(torch.ones(10000))
    assert set(y.tolist()) == {0.0, 1.0}
    assert 0.7 < float(y.mean()) < 0.8


def test_autoencoder_sampler_is_reproducible():
    x = digits().inputs[:100]
    model = mlp_autoencoder(tuple(x.shape[1:]), latent_dim=3).eval().fit_normalizer(x)
    drawn = AutoencoderSampler(PCA().fit(model.encode(x).detach()), model)
    assert isinstance(drawn, SupportsSample)
    torch.testing.assert_close(drawn.sample(2, seed=1, first=3), drawn.sample(6, seed=1)[3:5])
    assert drawn.sample((2, 3)).shape == (2, 3, *x.shape[1:])


def test_invalid_arguments():
    with pytest.raises(ValueError, match="expected latent_dim >= 1"):
        mlp_autoencoder(5, latent_dim=0)
    with pytest.raises(ValueError, match=r"\(c, t\) or \(c, h, w\)"):
        cnn_autoencoder((5,), latent_dim=2)
    with pytest.raises(ValueError, match="num_downsamples >= 1"):
        cnn_autoencoder((1, 8), latent_dim=2, num_downsamples=0)
    model = Autoencoder(nn.Linear(3, 1), nn.Linear(1, 3), shape=(3,))
    with pytest.raises(ValueError, match=r"expected x of shape \(n, 3\), got \(2, 4\)"):
        model(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="expected steps >= 2"):
        model.interpolate(torch.zeros(1, 3), torch.zeros(1, 3), steps=1)
    with pytest.raises(ValueError, match="NaN"):
        model.fit_normalizer(torch.full((4, 3), float("nan")))
    with pytest.raises(ValueError, match="expected a probability p"):
        MaskingCorruption(1.5)
    with pytest.raises(ValueError, match="expected a finite sigma >= 0"):
        GaussianCorruption(-1.0)


def _corruption_claims() -> Iterator[Claim]:
    """Laws of corruption, from one state of the generator."""

    def noise(x: Tensor) -> Tensor:
        return GaussianCorruption(0.5)(x) - x

    def alone(x: Tensor) -> Tensor:
        return 0.5 * torch.randn_like(x)

    def dropped(x: Tensor) -> Tensor:
        y = MaskingCorruption(0.3)(x)
        return torch.stack([y, (y == 0).to(x)])

    def some(x: Tensor) -> Tensor:
        gone = torch.rand_like(x) < 0.3
        return torch.stack([x.masked_fill(gone, 0.0), gone.to(x)])

    yield Claim(agreement(other=alone), noise, transformed(torch.tanh, "n 3"), name="GaussianCorruption")
    yield Claim(agreement(other=some), dropped, transformed(lambda x: x.tanh() + 2, "n 3"), name="MaskingCorruption")


def _autoencoder_claims() -> Iterator[Claim]:
    """Laws of autoencoders."""
    into, out_of = nn.Linear(6, 2), nn.Linear(2, 6)
    model = Autoencoder(nn.Sequential(nn.Flatten(), into), out_of, shape=(2, 3)).eval()
    model.normalizer.mean.fill_(0.5)
    model.normalizer.std.fill_(2.0)
    near = transformed(torch.tanh, "n 2 3")

    def decoded(z: Tensor) -> Tensor:
        return ((z @ out_of.weight.T + out_of.bias) * 2 + 0.5).reshape(-1, 2, 3)

    def encoded(x: Tensor) -> Tensor:
        return (x.flatten(1) - 0.5) / 2 @ into.weight.T + into.bias

    def losses(x: Tensor) -> Tensor:
        return torch.cat([model.reconstruction_error(x), model.loss(x)[None]])

    def squares(x: Tensor) -> Tensor:
        off = (decoded(encoded(x)) - x).square()
        return torch.cat([off.sum((1, 2)), off.mean()[None] / 4])

    def between(x: Tensor) -> Tensor:
        return model.interpolate(x, x.flip(0), steps=3)

    def straight(x: Tensor) -> Tensor:
        z, w = encoded(x), encoded(x.flip(0))
        return torch.stack([decoded(z), decoded((z + w) / 2), decoded(w)])

    yield Claim(agreement(other=lambda x: decoded(encoded(x))), model, near, name="Autoencoder")
    yield Claim(agreement(other=squares), losses, near, name="Autoencoder: errors and loss")
    yield Claim(agreement(other=straight), between, near, name="Autoencoder.interpolate")

    def clean(x: Tensor) -> Tensor:
        noisy = Autoencoder(nn.Flatten(), nn.Identity(), shape=(2, 3), corruption=lambda x: x + 1).train()
        return noisy.to(x.dtype).loss(x)

    one = agreement(other=lambda x: x.new_ones(()))
    yield Claim(one, clean, near, name="a corrupted input is compared with the clean one")


def _autoencoders_claims() -> Iterator[Claim]:
    """Laws of both kinds of autoencoders."""
    dense = mlp_autoencoder((2, 3), latent_dim=2, hidden_dims=(5,)).eval()
    images = cnn_autoencoder((1, 5, 4), latent_dim=2, channels=2).eval()
    series = cnn_autoencoder((2, 5), latent_dim=3, channels=2, num_downsamples=1).eval()

    def equation(x: Tensor) -> Tensor:
        w1, b1, w2, b2 = dense.encoder.parameters()
        v1, c1, v2, c2 = dense.decoder.parameters()
        z = F.silu(x.flatten(1) @ w1.T + b1) @ w2.T + b2
        return (F.silu(z @ v1.T + c1) @ v2.T + c2).reshape(x.shape)

    def convolved(x: Tensor) -> Tensor:
        w, b, v, c = series.encoder.parameters()
        u, e, k, f = series.decoder.parameters()
        z = F.silu(F.conv1d(x, w, b, stride=2, padding=1)).flatten(1) @ v.T + c
        small = F.silu((z @ u.T + e).reshape(-1, 2, 3))
        return F.conv1d(small[:, :, [0, 0, 1, 1, 2]], k, f, padding=1)

    yield Claim(agreement(other=equation), dense, transformed(torch.tanh, "n 2 3"), name="mlp_autoencoder")
    yield Claim(agreement(other=convolved), series, transformed(torch.tanh, "n 2 5"), name="cnn_autoencoder of series")
    yield Claim(batch_independence(), images, shape("n 1 5 4"), name="cnn_autoencoder of images")


def projection(axes: Float[Tensor, "k d"]) -> Float[Tensor, "d d"]:
    """Returns the orthogonal projection onto the space that rows span."""
    return torch.linalg.pinv(axes) @ axes


@law("rows of f(x) span the space of the first k principal axes of x", discover_with=None)
def principal_span(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """The decoder that a map fits to data spans the same space as the principal axes.

    `f(x)` is a matrix with a row for each entry of a code. The domain leaves out data in which the axis that is just
    left out varies nearly as much as the last that is kept: there the space is not known.

    Satisfied by: a linear autoencoder, fitted to the end; PCA.
    Broken by: an autoencoder that forgets the mean; one of random features; one that stopped early.
    """
    decoder = f(x)
    k = len(decoder)
    _, spread, vt = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    least = torch.finfo(x.dtype).eps ** 0.5 * spread[0]
    beyond = spread[k] if k < len(spread) else torch.zeros_like(spread[0])
    draw.assume((spread[k - 1] > least) & (beyond < 0.5 * spread[k - 1]))
    return Equal(projection(decoder), vt[:k].mT @ vt[:k], exercised=True)


def _linear_autoencoder_claims() -> Iterator[Claim]:
    """Laws of linear autoencoders."""
    turn = torch.tensor([[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])

    def spread(x: Tensor) -> Tensor:
        q = torch.linalg.qr(x.tanh() + 2 * torch.eye(len(x), 3).to(x)).Q
        return q * x.new_tensor([9.0, 3.0, 0.5]) @ turn.to(x) + x.new_tensor([1.0, 2.0, 0.0])

    data = transformed(spread, "n:6..8 3")
    for latent in (1, 2):

        def decoder(x: Tensor, latent: int = latent) -> Tensor:
            return linear_autoencoder(x, latent_dim=latent, num_iterations=30)[1]

        yield Claim(replace(principal_span(), cases=10), decoder, data, name=f"linear_autoencoder(latent_dim={latent})")

    def through(x: Tensor) -> Tensor:
        encoder, decoder = linear_autoencoder(x, latent_dim=3, num_iterations=2)
        return encoder @ decoder

    square = transformed(lambda x: x.tanh() + 3 * torch.eye(6, 3).to(x), "6 3")
    yield Claim(agreement(other=lambda x: torch.eye(3).to(x)), through, square, name="without a bottleneck: E D = 1")
    plane = transformed(lambda x: x.tanh() + torch.eye(2, 4).to(x) * 3, "2 4")
    twice = agreement(other=lambda a: torch.linalg.qr(a.mT).Q @ torch.linalg.qr(a.mT).Q.mT)
    yield Claim(twice, projection, plane, name="projection")


def claims() -> Iterator[Claim]:
    """Second derivations of autoencoders."""
    yield from _corruption_claims()
    yield from _autoencoder_claims()
    yield from _autoencoders_claims()
    yield from _linear_autoencoder_claims()
