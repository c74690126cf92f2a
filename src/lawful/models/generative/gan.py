"""A GAN: a generator that makes samples of noise, and a critic that tells them from data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from lawful.blocks import Standardize
from lawful.blocks.linear import Activation
from lawful.blocks.modes import eval_mode
from lawful.functions import identity
from lawful.functions.random import normal_noise
from lawful.laws import Claim, agreement, batch_independence, shape
from lawful.models.generative.autoencoder import ActivationModule, CNNAutoencoderConfig, cnn_decoder, cnn_encoder
from lawful.models.generative.protocols import LabelPlanes, beside, one_hot_labels, sample_labels
from lawful.models.mlp import MLP

Wrap = Callable[[nn.Module], nn.Module]
"""What is done to each layer of a critic: nothing, or `spectral_norm`."""


def leaky(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The leaky ReLU of slope 0.2, which lets gradients through on both sides."""
    return F.leaky_relu(x, 0.2)


def unwrapped(layer: nn.Module) -> nn.Module:
    """Leaves a layer as it is."""
    return layer


class GAN(nn.Module):
    r"""Makes samples of noise by a generator, which a critic is to take for data.

    $$x = \sigma \, G(z) + \mu, \qquad z \sim \mathcal{N}(0, 1)$$

    It has no density: it can be sampled, not scored. The critic sees data in standard units. With classes both players
    are told the label, as a 1 among 0s; where none is given, samples have classes as frequent as in the data.

    Reference:
        Goodfellow and others, *Generative Adversarial Nets*, 2014; Mirza and Osindero, *Conditional Generative
        Adversarial Nets*, 2014.

    Args:
        generator: $G$, from codes, and labels after them, to examples, flat or not.
        critic: From examples, or their flattened entries and labels after them, to a score each.
        shape: The shape of an example.
        latent: The size of a code $z$.
        inputs: The standardising of the data; one mean and deviation for all entries unless given.
        classes: How many classes there are; 0 without labels.

    Examples:
        >>> model = mlp_gan(MLPGANConfig(shape=(2,), latent=3, hidden=(8,)))
        >>> torch.equal(model.sample(4, seed=1)[2:], model.sample(2, seed=1, first=2))
        True
    """

    frequencies: Tensor

    def __init__(
        self,
        generator: nn.Module,
        critic: nn.Module,
        *,
        shape: tuple[int, ...],
        latent: int,
        inputs: Standardize | None = None,
        classes: int = 0,
    ) -> None:
        super().__init__()
        if latent < 1 or not shape or min(shape) < 1:
            raise ValueError(f"latent and a shape of at least 1 were wanted: got {latent} and {shape}")
        if classes < 0:
            raise ValueError(f"classes are at least 0: got {classes}")
        self.generator, self.critic_net, self.shape, self.latent, self.classes = (
            generator,
            critic,
            shape,
            latent,
            classes,
        )
        self.inputs = Standardize((1,) * len(shape)) if inputs is None else inputs
        self.register_buffer("frequencies", torch.full((classes,), 1 / max(1, classes)))

    def fit_normalizer(self, x: Float[Tensor, "n ..."], *, labels: Int[Tensor, " n"] | None = None) -> GAN:
        """Reads mean and deviation of the training data, and how frequent their classes are."""
        self.inputs.fit(x)
        if self.classes and labels is not None:
            self.frequencies.copy_(torch.bincount(labels, minlength=self.classes) / len(labels))
        return self

    @torch.no_grad()
    def within(self, low: float, high: float) -> GAN:
        """Takes the units from a range instead: it becomes the interval from -1 to 1."""
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"low is below high, both finite: got {low} and {high}")
        self.inputs.mean.fill_((low + high) / 2)
        self.inputs.std.fill_((high - low) / 2)
        return self

    def generate(
        self, z: Float[Tensor, "n latent"], *, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n ..."]:
        """Makes examples of codes, in standard units."""
        known = one_hot_labels(labels, len(z), classes=self.classes, like=z)
        return self.generator(beside(z, known)).reshape(-1, *self.shape)

    def critic_scores(
        self, x: Float[Tensor, "n ..."], *, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, " n"]:
        """Scores examples in standard units: the higher, the more they look like data."""
        return self.critic_net(beside(x, one_hot_labels(labels, len(x), classes=self.classes, like=x))).reshape(len(x))

    def forward(
        self, z: Float[Tensor, "n latent"], *, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n ..."]:
        """Makes examples of codes, in the units of the data."""
        return self.inputs.inverse(self.generate(z, labels=labels))

    @torch.no_grad()
    def sample(
        self, n: int, seed: int = 0, *, first: int = 0, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n ..."]:
        """Draws samples in the units of the data."""
        if labels is None:
            labels = sample_labels(n, self.frequencies, seed=seed, stream=1, first=first)
        weight = next(self.parameters())
        z = normal_noise(n, self.latent, seed=seed, first=first, dtype=weight.dtype, device=weight.device)
        with eval_mode(self):
            return self(z, labels=labels)


@dataclass(frozen=True, kw_only=True)
class MLPGANConfig:
    """The sizes of a GAN of dense layers, for examples of any shape."""

    shape: tuple[int, ...]
    """The shape of an example."""
    latent: int = 16
    """The size of a code."""
    hidden: tuple[int, ...] = (128, 128)
    """The width of each hidden layer, of both players."""
    classes: int = 0
    """How many classes there are; 0 without labels."""
    activation: Activation = leaky
    """What each hidden layer applies to its entries."""
    output: Activation = identity
    """What the generator applies to its output: tanh for data from -1 to 1."""


def mlp_gan(config: MLPGANConfig, *, wrap: Wrap = unwrapped) -> GAN:
    """Makes a GAN of dense layers.

    Args:
        config: The sizes.
        wrap: What is done to each layer of the critic, such as `spectral_norm`.

    Examples:
        >>> mlp_gan(MLPGANConfig(shape=(1, 4, 4)), wrap=spectral_norm).sample(3).shape
        torch.Size([3, 1, 4, 4])
    """
    d = math.prod(config.shape)
    network = partial(MLP, hidden_dims=config.hidden, activation=config.activation)
    generator = network(config.latent + config.classes, d, output_activation=config.output)
    critic = network(d + config.classes, 1)
    critic.layers = nn.ModuleList(wrap(layer) for layer in critic.layers)
    return GAN(
        generator,
        nn.Sequential(nn.Flatten(), critic),
        shape=config.shape,
        latent=config.latent,
        classes=config.classes,
    )


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
    classes: int = 0
    """How many classes there are; 0 without labels."""
    activation: Activation = leaky
    """What each hidden layer applies to its entries."""
    output: Activation = identity
    """What the generator applies to its output: tanh for data from -1 to 1."""


def cnn_gan(config: CNNGANConfig, *, wrap: Wrap = unwrapped) -> GAN:
    """Makes a GAN of convolutions: the two halves of an autoencoder, the critic with a code of size 1.

    Args:
        config: The sizes.
        wrap: What is done to each layer of the critic with weights, such as `spectral_norm`.

    Examples:
        >>> cnn_gan(CNNGANConfig(shape=(1, 8, 8), width=4)).sample(3).shape
        torch.Size([3, 1, 8, 8])
    """
    (channels, *space), classes = config.shape, config.classes
    sizes = partial(CNNAutoencoderConfig, width=config.width, halvings=config.halvings, activation=config.activation)
    generator = cnn_decoder(sizes(shape=config.shape, latent=config.latent + classes))
    layers = cnn_encoder(sizes(shape=(channels + classes, *space), latent=1)).children()
    critic = [wrap(layer) if hasattr(layer, "weight") else layer for layer in layers]
    return GAN(
        nn.Sequential(generator, ActivationModule(config.output)),
        nn.Sequential(*[LabelPlanes(config.shape, classes)] * bool(classes), *critic),
        shape=config.shape,
        latent=config.latent,
        classes=classes,
    )


def claims() -> Iterator[Claim]:
    """The laws that a GAN obeys."""
    model = mlp_gan(MLPGANConfig(shape=(2, 2), latent=3, hidden=(5,)), wrap=spectral_norm).eval()
    model.fit_normalizer(torch.arange(16.0).reshape(4, 2, 2))
    images = cnn_gan(CNNGANConfig(shape=(1, 4, 4), latent=2, width=2, halvings=1)).eval()

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
