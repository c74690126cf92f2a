import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from lawful.losses.gan import MINIMAX, NON_SATURATING, WASSERSTEIN, gradient_penalty, r1_penalty
from lawful.models.generative import GAN, CNNGANConfig, MLPGANConfig, SupportsSample, cnn_gan, mlp_gan


def small():
    torch.manual_seed(0)
    return mlp_gan(MLPGANConfig(shape=(2,), latent=3, hidden=(8,)))


def test_samples_belong_to_their_seed_and_number():
    model = small().fit_normalizer(torch.randn(50, 2) * 3 + 5)
    assert isinstance(model, SupportsSample)
    whole = model.sample(6, seed=2)
    torch.testing.assert_close(model.sample(2, seed=2, first=3), whole[3:5])
    assert not torch.equal(model.sample(6, seed=3), whole)
    assert not whole.requires_grad
    with pytest.raises(ValueError, match="knows no labels"):
        model.sample(2, labels=torch.tensor([0, 1]))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 5), (2, 9)])
def test_images_and_series_of_any_size(shape):
    model = cnn_gan(CNNGANConfig(shape=shape, latent=4, width=3), wrap=spectral_norm)
    x = model.sample(3)
    assert x.shape == (3, *shape)
    assert model.critic_scores(x).shape == (3,)
    wrapped = [layer for layer in model.critic_net if isinstance(layer, spectral_norm)]
    assert len(wrapped) == 3


def test_a_normalised_critic_has_slope_one_at_most():
    torch.manual_seed(0)
    model = mlp_gan(MLPGANConfig(shape=(4,), hidden=(16, 16)), wrap=spectral_norm).eval()
    x = torch.randn(50, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(model.critic_scores(x).sum(), x)
    assert float(slope.norm(dim=1).max()) <= 1 + 1e-5


def test_the_largest_singular_value_follows_the_weight():
    ours = spectral_norm(nn.Linear(5, 4))
    optimizer = torch.optim.SGD(ours.parameters(), 0.1)
    for _ in range(30):
        loss = (ours(torch.randn(8, 5)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(torch.linalg.matrix_norm(ours.weight.detach(), 2)) == pytest.approx(1, abs=5e-2)
    theirs = nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4), n_power_iterations=200)
    with torch.no_grad():
        theirs.parametrizations.weight.original.copy_(ours.layer.weight)
    theirs(torch.zeros(1, 5))
    for _ in range(200):
        ours.follow()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-4, atol=1e-5)


def test_games_pull_at_a_bad_sample_as_they_say():
    seen_through = torch.tensor([-20.0], requires_grad=True)
    slopes = {}
    for name, game in (("minimax", MINIMAX), ("other", NON_SATURATING), ("wasserstein", WASSERSTEIN)):
        (slopes[name],) = torch.autograd.grad(game.generator(seen_through), seen_through)
    assert abs(float(slopes["minimax"])) < 1e-8
    assert float(slopes["other"]) == pytest.approx(-1)
    assert float(slopes["wasserstein"]) == -1


def test_penalties_train_the_critic_and_nothing_else():
    model = small()
    real, fake = torch.randn(6, 2), model.generate(torch.randn(6, 3))
    for loss in (
        gradient_penalty(model.critic_scores, real, fake, torch.rand(6)),
        r1_penalty(model.critic_scores, real),
    ):
        model.zero_grad()
        loss.backward()
        assert all(p.grad is None for p in model.generator.parameters())
        assert any(bool((p.grad != 0).any()) for p in model.critic_net.parameters() if p.grad is not None)
    with pytest.raises(ValueError, match="one score for each of 6 samples"):
        r1_penalty(lambda x: x, real)


def test_bad_sizes_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="latent and a shape of at least 1 were wanted: got 0"):
        GAN(nn.Identity(), nn.Identity(), shape=(2,), latent=0)
    with pytest.raises(TypeError, match="a layer with a matrix `weight` was wanted: got ReLU"):
        spectral_norm(nn.ReLU())
    with pytest.raises(ValueError, match="constant is above 0"):
        spectral_norm(nn.Linear(2, 2), constant=0.0)


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_both_players_are_told_labels(kind):
    torch.manual_seed(0)
    if kind == "mlp":
        model = mlp_gan(MLPGANConfig(shape=(1, 4, 4), latent=2, hidden=(8,), classes=3, output=torch.tanh))
    else:
        model = cnn_gan(
            CNNGANConfig(shape=(1, 4, 4), latent=2, width=2, classes=3, output=torch.tanh), wrap=spectral_norm
        )
    labels = torch.tensor([0, 2, 2, 2])
    model.fit_normalizer(torch.randn(4, 1, 4, 4), labels=labels).within(2.0, 5.0).eval()
    x = model.sample(4, labels=labels)
    assert 2 <= float(x.min()) <= float(x.max()) <= 5
    assert not torch.allclose(x, model.sample(4, labels=2 - labels))
    scores = [model.critic_scores(x, labels=some) for some in (labels, 2 - labels)]
    assert not torch.allclose(*scores)
    torch.testing.assert_close(model.sample(5, seed=1)[3:], model.sample(2, seed=1, first=3))
    with pytest.raises(ValueError, match="labels are from 0 to 2"):
        model.sample(4, labels=labels + 1)
    with pytest.raises(ValueError, match="labels were wanted"):
        model.critic_scores(x)
