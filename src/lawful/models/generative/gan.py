"""A GAN: a generator that makes samples of noise, and a critic that tells them from data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import Standardize
from lawful.blocks.dense import Activation
from lawful.blocks.modes import in_training
from lawful.blocks.normalization.spectral_norm import SpectralNorm
from lawful.functions.noise import normal_noise
from lawful.laws import Claim, agreement, batch_independence, shape
from lawful.models.generative.autoencoders import CNNAutoencoderConfig, cnn_autoencoder
from lawful.models.generative.contract import unconditional
from lawful.models.mlp import MLP, MLPConfig

Wrap = Callable[[nn.Module], nn.Module]
"""What is done to each layer of a critic: nothing, or `SpectralNorm`."""


def leaky(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The leaky ReLU of slope 0.2, which lets gradients through on both sides."""
    return F.leaky_relu(x, 0.2)


def unwrapped(layer: nn.Module) -> nn.Module:
    """Leaves a layer as it is."""
    return layer


class GAN(nn.Module):
    r"""Makes samples of noise by a generator, which a critic is to take for data.

    $$x = \sigma \, G(z) + \mu, \qquad z \sim \mathcal{N}(0, 1)$$

    It has no density: it can be sampled, not scored. The critic sees data in standard units.

    Reference:
        Goodfellow and others, *Generative Adversarial Nets*, 2014.

    Args:
        generator: $G$, from codes to examples, flat or not.
        critic: From examples to a score each, flat or not.
        shape: The shape of an example.
        latent: The size of a code $z$.
        inputs: The standardising of the data; one mean and deviation for all entries unless given.

    Examples:
        >>> model = mlp_gan(MLPGANConfig(shape=(2,), latent=3, hidden=(8,)))
        >>> torch.equal(model.sample(4, seed=1)[2:], model.sample(2, seed=1, first=2))
        True
    """

    def __init__(
        self,
        generator: nn.Module,
        critic: nn.Module,
        *,
        shape: tuple[int, ...],
        latent: int,
        inputs: Standardize | None = None,
    ) -> None:
        super().__init__()
        if latent < 1 or not shape or min(shape) < 1:
            raise ValueError(f"latent and a shape of at least 1 were wanted: got {latent} and {shape}")
        self.generator, self.critic_net, self.shape, self.latent = generator, critic, shape, latent
        self.inputs = Standardize((1,) * len(shape)) if inputs is None else inputs

    def fit_units(self, x: Float[Tensor, "n ..."]) -> GAN:
        """Reads mean and deviation of the training data."""
        self.inputs.fit(x)
        return self

    def generate(self, z: Float[Tensor, "n latent"]) -> Float[Tensor, "n ..."]:
        """Makes examples of codes, in standard units."""
        return self.generator(z).reshape(-1, *self.shape)

    def criticise(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, " n"]:
        """Scores examples in standard units: the higher, the more they look like data."""
        return self.critic_net(x).reshape(len(x))

    def forward(self, z: Float[Tensor, "n latent"]) -> Float[Tensor, "n ..."]:
        """Makes examples of codes, in the units of the data."""
        return self.inputs.inverse(self.generate(z))

    @torch.no_grad()
    def sample(
        self, n: int, seed: int = 0, *, first: int = 0, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n ..."]:
        """Draws samples in the units of the data."""
        unconditional(labels)
        weight = next(self.parameters())
        z = normal_noise(n, self.latent, seed=seed, first=first, dtype=weight.dtype, device=weight.device)
        with in_training(self):
            return self(z)


@dataclass(frozen=True, kw_only=True)
class MLPGANConfig:
    """The sizes of a GAN of dense layers, for examples of any shape."""

    shape: tuple[int, ...]
    """The shape of an example."""
    latent: int = 16
    """The size of a code."""
    hidden: tuple[int, ...] = (128, 128)
    """The width of each hidden layer, of both players."""
    activation: Activation = leaky
    """What each hidden layer applies to its entries."""


def mlp_gan(config: MLPGANConfig, *, wrap: Wrap = unwrapped) -> GAN:
    """Makes a GAN of dense layers.

    Args:
        config: The sizes.
        wrap: What is done to each layer of the critic, such as `SpectralNorm`.

    Examples:
        >>> mlp_gan(MLPGANConfig(shape=(1, 4, 4)), wrap=SpectralNorm).sample(3).shape
        torch.Size([3, 1, 4, 4])
    """
    d = math.prod(config.shape)
    sizes = partial(MLPConfig, hidden=config.hidden, activation=config.activation)
    generator, critic = MLP(sizes(d_in=config.latent, d_out=d)), MLP(sizes(d_in=d, d_out=1))
    critic.layers = nn.Sequential(*(wrap(layer) for layer in critic.layers))
    return GAN(generator, nn.Sequential(nn.Flatten(), critic), shape=config.shape, latent=config.latent)


@dataclass(frozen=True, kw_only=True)
class CNNGANConfig:
    """The sizes of a GAN of convolutions, for small images and series."""

    shape: tuple[int, ...]
    """The shape of an example, channels first."""
    latent: int = 32
    """The size of a code."""
    width: int = 32
    """The channels after the critic's first convolution; each halving doubles them."""
    halvings: int = 2
    """How often the critic halves the space axes, and the generator doubles them."""
    activation: Activation = leaky
    """What each hidden layer applies to its entries."""


def cnn_gan(config: CNNGANConfig, *, wrap: Wrap = unwrapped) -> GAN:
    """Makes a GAN of convolutions: the two halves of an autoencoder, the critic with a code of size 1.

    Args:
        config: The sizes.
        wrap: What is done to each layer of the critic with weights, such as `SpectralNorm`.

    Examples:
        >>> cnn_gan(CNNGANConfig(shape=(1, 8, 8), width=4)).sample(3).shape
        torch.Size([3, 1, 8, 8])
    """

    def sizes(latent: int) -> CNNAutoencoderConfig:
        return CNNAutoencoderConfig(
            shape=config.shape,
            latent=latent,
            width=config.width,
            halvings=config.halvings,
            activation=deepcopy(config.activation),
        )

    generator, layers = cnn_autoencoder(sizes(config.latent)).decoder, cnn_autoencoder(sizes(1)).encoder
    critic = nn.Sequential(*(wrap(layer) if hasattr(layer, "weight") else layer for layer in layers.children()))
    return GAN(generator, critic, shape=config.shape, latent=config.latent)


def claims() -> Iterator[Claim]:
    """The laws that a GAN obeys."""
    model = mlp_gan(MLPGANConfig(shape=(2, 2), latent=3, hidden=(5,)), wrap=SpectralNorm).eval()
    model.fit_units(torch.arange(16.0).reshape(4, 2, 2))
    images = cnn_gan(CNNGANConfig(shape=(1, 4, 4), latent=2, width=2, halvings=1)).eval()

    def equation(z: Tensor) -> Tensor:
        w1, b1, w2, b2 = model.generator.parameters()
        hidden = z @ w1.T + b1
        flat = torch.where(hidden > 0, hidden, 0.2 * hidden) @ w2.T + b2
        return flat.reshape(-1, 2, 2) * torch.arange(16.0).std(correction=0).to(z) + 7.5

    yield Claim(agreement(other=equation), model, shape("n 3"), name="mlp_gan")
    yield Claim(batch_independence(), images.criticise, shape("n 1 4 4"), name="cnn_gan, the critic")

    def alone(x: Tensor) -> Tensor:
        return torch.cat([images.to(x).sample(1, 3, first=i) for i in range(len(x))])

    def beside(x: Tensor) -> Tensor:
        return images.to(x).sample(len(x), 3)

    yield Claim(agreement(other=alone), beside, shape("n:1..4"), name="GAN.sample, beside others and alone")
