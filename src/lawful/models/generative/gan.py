"""Generative adversarial networks: the model, and MLP and CNN architectures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import Standardize
from lawful.blocks.linear import Activation
from lawful.blocks.modes import eval_mode
from lawful.functions import identity
from lawful.functions.random import normal_noise, resolve_seed
from lawful.laws import Claim, agreement, batch_independence, shape
from lawful.models.generative.autoencoder import _ActivationModule, cnn_decoder, cnn_encoder
from lawful.models.generative.protocols import (
    LabelChannels,
    _append_labels,
    _check_sizes,
    _class_frequencies,
    _one_hot_labels,
    _sample_shape,
    sample_labels,
)
from lawful.models.mlp import MLP

LayerWrapper = Callable[[nn.Module], nn.Module]
"""Wraps a layer, such as `torch.nn.utils.parametrizations.spectral_norm`."""


def _leaky_relu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    return F.leaky_relu(x, 0.2)


class GAN(nn.Module):
    r"""Generative adversarial network: a generator and a critic.

    $$x = \sigma \, G(z) + \mu, \qquad z \sim \mathcal{N}(0, 1)$$

    The model has samples but no density. The critic sees normalized data. A conditional model passes one-hot labels to
    both networks.

    Reference:
        Goodfellow and others, *Generative Adversarial Nets*, 2014; Mirza and Osindero, *Conditional Generative
        Adversarial Nets*, 2014.

    Args:
        generator: Generator $G$, from latents with appended one-hot labels to normalized examples, flat or not.
        critic: Critic, from normalized examples (flattened, with appended one-hot labels, if conditional) to a score.
        shape: Shape of an example.
        latent_dim: Size of the latent vector.
        normalizer: Normalizer of the data. Defaults to one mean and standard deviation for each feature of a vector,
            and for all entries of images and series.
        num_classes: Number of classes; 0 for an unconditional model.

    Examples:
        >>> gan = mlp_gan(dim=2, latent_dim=3, hidden_dims=(8,))
        >>> torch.equal(gan.sample(4, seed=1)[2:], gan.sample(2, seed=1, first=2))
        True
    """

    frequencies: Tensor

    def __init__(
        self,
        generator: nn.Module,
        critic: nn.Module,
        *,
        shape: tuple[int, ...],
        latent_dim: int,
        normalizer: Standardize | None = None,
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        _check_sizes(shape, num_classes)
        if latent_dim < 1:
            raise ValueError(f"expected latent_dim >= 1, got {latent_dim}")
        self.generator, self.critic, self.shape = generator, critic, tuple(shape)
        self.latent_dim, self.num_classes = latent_dim, num_classes
        default = shape if len(shape) == 1 else (1,) * len(shape)
        self.normalizer = Standardize(default) if normalizer is None else normalizer
        self.register_buffer("frequencies", torch.full((num_classes,), 1 / max(1, num_classes)))

    def fit_normalizer(self, x: Float[Tensor, "n ..."], *, labels: Int[Tensor, " n"] | None = None) -> GAN:
        """Fits the normalizer and the class frequencies."""
        self.normalizer.fit(x)
        if self.num_classes and labels is not None:
            self.frequencies.copy_(_class_frequencies(labels, self.num_classes))
        return self

    @torch.no_grad()
    def set_normalizer_range(self, low: float, high: float) -> GAN:
        """Normalizes the interval [low, high] to [-1, 1], without data."""
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"expected finite low < high, got low={low}, high={high}")
        self.normalizer.mean.fill_((low + high) / 2)
        self.normalizer.std.fill_((high - low) / 2)
        return self

    def generate(
        self, z: Float[Tensor, "n latent"], *, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n ..."]:
        """Generates normalized examples from latents."""
        one_hot = _one_hot_labels(labels, z.shape[0], num_classes=self.num_classes, dtype=z.dtype)
        return self.generator(_append_labels(z, one_hot)).reshape(-1, *self.shape)

    def critic_scores(
        self, x: Float[Tensor, "n ..."], *, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, " n"]:
        """Returns the critic's score of each normalized example, high for data."""
        one_hot = _one_hot_labels(labels, x.shape[0], num_classes=self.num_classes, dtype=x.dtype)
        return self.critic(_append_labels(x, one_hot)).reshape(x.shape[0])

    def forward(
        self, z: Float[Tensor, "n latent"], *, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n ..."]:
        """Generates examples from latents, in the units of the data."""
        return self.normalizer.inverse(self.generate(z, labels=labels))

    @torch.no_grad()
    def sample(
        self,
        n: int | Sequence[int],
        seed: int | None = None,
        *,
        first: int = 0,
        labels: Int[Tensor, "*n"] | None = None,
    ) -> Float[Tensor, "*n *shape"]:
        """Draws samples, in the units of the data.

        Args:
            n: Number of samples, or a shape.
            seed: Random seed. None draws one from torch's generator.
            first: Index of the first sample of the seed.
            labels: Class of each sample. Defaults to classes drawn by their training frequencies.
        """
        seed, sample_shape, weight = resolve_seed(seed), _sample_shape(n), next(self.parameters())
        n = math.prod(sample_shape)
        if labels is None:
            labels = sample_labels(n, self.frequencies, seed=seed, stream=1, first=first)
        elif labels.dim() > 1:
            labels = labels.flatten()
        z = normal_noise(n, self.latent_dim, seed=seed, first=first, dtype=weight.dtype, device=weight.device)
        with eval_mode(self):
            return self(z, labels=labels).reshape(*sample_shape, *self.shape)


def mlp_gan(
    dim: int | tuple[int, ...],
    *,
    latent_dim: int = 16,
    hidden_dims: tuple[int, ...] = (128, 128),
    num_classes: int = 0,
    activation: Activation = _leaky_relu,
    output_activation: Activation = identity,
    wrap_critic: LayerWrapper | None = None,
) -> GAN:
    """Builds a GAN of two MLPs.

    Args:
        dim: Number of features, or the shape of an example.
        latent_dim: Size of the latent vector.
        hidden_dims: Hidden widths of both networks.
        num_classes: Number of classes; 0 for an unconditional model.
        activation: Activation function. Defaults to a leaky ReLU of slope 0.2.
        output_activation: Activation of the generator's output, such as `torch.tanh` for data in [-1, 1].
        wrap_critic: Wrapper of each layer of the critic, such as spectral normalization.

    Examples:
        >>> mlp_gan((1, 4, 4)).sample(3).shape
        torch.Size([3, 1, 4, 4])
    """
    shape = (dim,) if isinstance(dim, int) else tuple(dim)
    d = math.prod(shape)
    generator = MLP(
        latent_dim + num_classes,
        d,
        hidden_dims=hidden_dims,
        activation=activation,
        output_activation=output_activation,
    )
    critic = MLP(d + num_classes, 1, hidden_dims=hidden_dims, activation=activation)
    critic.layers = nn.ModuleList(_wrap(critic.layers, wrap_critic))
    return GAN(
        generator, nn.Sequential(nn.Flatten(), critic), shape=shape, latent_dim=latent_dim, num_classes=num_classes
    )


def cnn_gan(
    shape: tuple[int, ...],
    *,
    latent_dim: int = 32,
    channels: int = 32,
    num_downsamples: int = 2,
    num_classes: int = 0,
    activation: Activation = _leaky_relu,
    output_activation: Activation = identity,
    wrap_critic: LayerWrapper | None = None,
) -> GAN:
    """Builds a GAN of a CNN generator and critic for small images and series.

    Args:
        shape: Shape of an example: (c, t) or (c, h, w).
        latent_dim: Size of the latent vector.
        channels: Channels after the critic's first convolution; each downsampling doubles them.
        num_downsamples: Number of stride-2 convolutions of the critic, and of upsamplings of the generator.
        num_classes: Number of classes; 0 for an unconditional model.
        activation: Activation function. Defaults to a leaky ReLU of slope 0.2.
        output_activation: Activation of the generator's output, such as `torch.tanh` for data in [-1, 1].
        wrap_critic: Wrapper of each layer of the critic, such as spectral normalization.

    Examples:
        >>> cnn_gan((1, 8, 8), channels=4).sample(3).shape
        torch.Size([3, 1, 8, 8])
    """
    in_channels, *space = shape
    generator = cnn_decoder(
        shape,
        latent_dim=latent_dim + num_classes,
        channels=channels,
        num_downsamples=num_downsamples,
        activation=activation,
    )
    critic = cnn_encoder(
        (in_channels + num_classes, *space),
        latent_dim=1,
        channels=channels,
        num_downsamples=num_downsamples,
        activation=activation,
    )
    labels = [LabelChannels(shape, num_classes)] if num_classes else []
    return GAN(
        nn.Sequential(generator, _ActivationModule(output_activation)),
        nn.Sequential(*labels, *_wrap(critic, wrap_critic)),
        shape=shape,
        latent_dim=latent_dim,
        num_classes=num_classes,
    )


def _wrap(layers: nn.Module, wrapper: LayerWrapper | None) -> list[nn.Module]:
    """Returns the child layers. Layers with a weight are wrapped."""
    return [layer if wrapper is None or not hasattr(layer, "weight") else wrapper(layer) for layer in layers.children()]


def claims() -> Iterator[Claim]:
    """Examples do not mix, and samples do not depend on n."""
    gan = cnn_gan((1, 4, 4), latent_dim=2, channels=2, num_downsamples=1).eval()
    yield Claim(batch_independence(), gan.critic_scores, shape("n 1 4 4"), name="cnn_gan: critic")

    def batched(x: Tensor) -> Tensor:
        return gan.to(x).sample(len(x), 3)

    def one_by_one(x: Tensor) -> Tensor:
        return torch.cat([gan.to(x).sample(1, 3, first=i) for i in range(len(x))])

    yield Claim(agreement(other=one_by_one), batched, shape("n:1..4"), name="GAN.sample does not depend on n")
