from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import is_parametrized

from lawful.laws import Claim, agreement, batch_independence, shape
from lawful.losses.gan import MINIMAX, NON_SATURATING, WASSERSTEIN, gradient_penalty, r1_penalty
from lawful.models.generative import GAN, SupportsSample, cnn_gan, mlp_gan


def small():
    torch.manual_seed(0)
    return mlp_gan(2, latent_dim=3, hidden_dims=(8,))


@pytest.mark.parametrize("num_classes", [1, 3])
def test_the_classes_are_equally_frequent_before_the_fit(num_classes):
    gan = mlp_gan(2, latent_dim=3, hidden_dims=(8,), num_classes=num_classes)
    torch.testing.assert_close(gan.frequencies, torch.full((num_classes,), 1 / num_classes))


@pytest.mark.parametrize("num_downsamples", [1, 3])
def test_the_critic_of_a_cnn_downsamples(num_downsamples):
    gan = cnn_gan((1, 8, 8), channels=2, num_downsamples=num_downsamples)
    strides = [module.stride for module in gan.critic.modules() if isinstance(module, nn.Conv2d)]
    assert strides.count((2, 2)) == num_downsamples


def test_samples_depend_only_on_seed_and_index():
    model = small().fit_normalizer(torch.randn(50, 2) * 3 + 5)
    assert isinstance(model, SupportsSample)
    whole = model.sample(6, seed=2)
    torch.testing.assert_close(model.sample(2, seed=2, first=3), whole[3:5])
    assert not torch.equal(model.sample(6, seed=3), whole)
    assert not whole.requires_grad
    with pytest.raises(ValueError, match="it takes no labels"):
        model.sample(2, labels=torch.tensor([0, 1]))


def test_features_of_vectors_have_their_own_scale():
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 1e4])
    normalized = small().fit_normalizer(x).normalizer(x)
    torch.testing.assert_close(normalized.std(0, correction=0), torch.ones(2))


def test_the_ends_of_the_normalizer_range_become_minus_one_and_one():
    normalizer = small().set_normalizer_range(2.0, 10.0).normalizer
    torch.testing.assert_close(normalizer(torch.tensor([[2.0, 10.0]])), torch.tensor([[-1.0, 1.0]]))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 5), (2, 9)])
def test_images_and_series_of_any_size(shape):
    model = cnn_gan(shape, latent_dim=4, channels=3, wrap_critic=spectral_norm)
    x = model.sample(3)
    assert x.shape == (3, *shape)
    assert model.critic_scores(x).shape == (3,)
    wrapped = [layer for layer in model.critic if is_parametrized(layer)]
    assert len(wrapped) == 3


def test_spectral_norm_makes_the_critic_1_lipschitz():
    torch.manual_seed(0)
    model = mlp_gan(4, hidden_dims=(16, 16), wrap_critic=partial(spectral_norm, n_power_iterations=200)).eval()
    x = torch.randn(50, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(model.critic_scores(x).sum(), x)
    assert float(slope.norm(dim=1).max()) <= 1 + 1e-5


def test_generator_gradients_of_bad_samples():
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
        assert any(bool((p.grad != 0).any()) for p in model.critic.parameters() if p.grad is not None)
    with pytest.raises(ValueError, match=r"expected scores of shape \(6,\)"):
        r1_penalty(lambda x: x, real)


def test_invalid_sizes():
    with pytest.raises(ValueError, match="expected latent_dim >= 1, got 0"):
        GAN(nn.Identity(), nn.Identity(), shape=(2,), latent_dim=0)


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_conditional_models(kind):
    torch.manual_seed(0)
    if kind == "mlp":
        model = mlp_gan((1, 4, 4), latent_dim=2, hidden_dims=(8,), num_classes=3, output_activation=torch.tanh)
    else:
        model = cnn_gan(
            (1, 4, 4),
            latent_dim=2,
            channels=2,
            num_classes=3,
            output_activation=torch.tanh,
            wrap_critic=spectral_norm,
        )
    labels = torch.tensor([0, 2, 2, 2])
    model.fit_normalizer(torch.randn(4, 1, 4, 4), labels=labels).set_normalizer_range(2.0, 5.0).eval()
    x = model.sample(4, seed=0, labels=labels)
    assert 2 <= float(x.min()) <= float(x.max()) <= 5
    assert not torch.allclose(x, model.sample(4, seed=0, labels=2 - labels))
    scores = [model.critic_scores(x, labels=some) for some in (labels, 2 - labels)]
    assert not torch.allclose(*scores)
    torch.testing.assert_close(model.sample(5, seed=1)[3:], model.sample(2, seed=1, first=3))
    with pytest.raises(ValueError, match="expected labels from 0 to 2"):
        model.sample(4, labels=labels + 1)
    with pytest.raises(ValueError, match="labels are required"):
        model.critic_scores(x)


def claims() -> Iterator[Claim]:
    """Laws of a GAN."""
    model = mlp_gan((2, 2), latent_dim=3, hidden_dims=(5,)).eval()
    model.fit_normalizer(torch.arange(16.0).reshape(4, 2, 2))
    images = cnn_gan((1, 4, 4), latent_dim=2, channels=2, num_downsamples=1).eval()

    def equation(z: Tensor) -> Tensor:
        w1, b1, w2, b2 = model.generator.parameters()
        hidden = z @ w1.T + b1
        flat = torch.where(hidden > 0, hidden, 0.2 * hidden) @ w2.T + b2
        return flat.reshape(-1, 2, 2) * torch.arange(16.0).std(correction=0).to(z) + 7.5

    yield Claim(agreement(other=equation), model, shape("n 3"), name="mlp_gan")
    yield Claim(batch_independence(), images.critic_scores, shape("n 1 4 4"), name="cnn_gan, the critic")

    def alone(x: Tensor) -> Tensor:
        return torch.cat([images.to(x).sample(1, 3, first=i) for i in range(len(x))])

    def beside(x: Tensor) -> Tensor:
        return images.to(x).sample(len(x), 3)

    yield Claim(agreement(other=alone), beside, shape("n:1..4"), name="GAN.sample, beside others and alone")
