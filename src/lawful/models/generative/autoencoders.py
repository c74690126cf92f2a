"""Autoencoders of dense layers, and of convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.dense import Activation
from lawful.functions import identity
from lawful.laws import Claim, agreement, batch_independence, made, shape
from lawful.models.generative.autoencoder import Autoencoder
from lawful.models.generative.corruption import Corruption
from lawful.models.mlp import MLP, MLPConfig


@dataclass(frozen=True, kw_only=True)
class MLPAutoencoderConfig:
    """The sizes of an autoencoder of dense layers."""

    shape: tuple[int, ...]
    """The shape of an example."""
    latent: int
    """The size of a code: the bottleneck."""
    hidden: tuple[int, ...] = (128,)
    """The width of each hidden layer of the encoder; the decoder has them in reverse."""
    activation: Activation = F.silu
    """What each hidden layer applies to its entries."""


def mlp_autoencoder(config: MLPAutoencoderConfig, *, corrupt: Corruption = identity) -> Autoencoder:
    """Makes an autoencoder of dense layers, for examples of any shape.

    Args:
        config: The sizes.
        corrupt: What is done to an input in training.

    Examples:
        >>> mlp_autoencoder(MLPAutoencoderConfig(shape=(40,), latent=3, hidden=()))(torch.zeros(2, 40)).shape
        torch.Size([2, 40])
    """
    _check(config.shape, config.latent)
    d, k = math.prod(config.shape), config.latent
    encoder = MLP(MLPConfig(d_in=d, d_out=k, hidden=config.hidden, activation=config.activation))
    decoder = MLP(MLPConfig(d_in=k, d_out=d, hidden=config.hidden[::-1], activation=config.activation))
    return Autoencoder(nn.Sequential(nn.Flatten(), encoder), decoder, shape=config.shape, corrupt=corrupt)


@dataclass(frozen=True, kw_only=True)
class CNNAutoencoderConfig:
    """The sizes of an autoencoder of convolutions, for series and images."""

    shape: tuple[int, ...]
    """The shape of an example, channels first: (c, t) or (c, h, w)."""
    latent: int
    """The size of a code: the bottleneck."""
    width: int = 16
    """The channels after the first convolution; each halving doubles them."""
    halvings: int = 2
    """How often the space axes are halved."""
    activation: Activation = F.silu
    """What each hidden layer applies to its entries."""

    @property
    def sizes(self) -> list[tuple[int, ...]]:
        """The shapes of what the convolutions put out, from the input to the smallest."""
        sizes = [self.shape]
        for i in range(self.halvings):
            sizes.append((self.width * 2**i, *((n + 1) // 2 for n in sizes[-1][1:])))
        return sizes


class Entrywise(nn.Module):
    """Applies a function to each entry: a copy of its own where it is a module."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = deepcopy(activation)

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Applies it."""
        return self.activation(x)


def cnn_encoder(config: CNNAutoencoderConfig) -> nn.Sequential:
    """Makes what halves series or images by convolutions, down to a code.

    Examples:
        >>> cnn_encoder(CNNAutoencoderConfig(shape=(2, 9), latent=3, width=4))(torch.zeros(5, 2, 9)).shape
        torch.Size([5, 3])
    """
    convolution, layers = _convolution(config), []
    for before, after in pairwise(config.sizes):
        layers += [convolution(before[0], after[0], 3, stride=2, padding=1), Entrywise(config.activation)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(math.prod(config.sizes[-1]), config.latent))


def cnn_decoder(config: CNNAutoencoderConfig) -> nn.Sequential:
    """Makes what doubles a code to series or images, by convolutions.

    Examples:
        >>> cnn_decoder(CNNAutoencoderConfig(shape=(2, 9), latent=3, width=4))(torch.zeros(5, 3)).shape
        torch.Size([5, 2, 9])
    """
    convolution, smallest, layers = _convolution(config), config.sizes[-1], []
    for before, after in pairwise(config.sizes):
        double = nn.Upsample(before[1:], mode="nearest")
        layers = [Entrywise(config.activation), double, convolution(after[0], before[0], 3, padding=1), *layers]
    return nn.Sequential(nn.Linear(config.latent, math.prod(smallest)), nn.Unflatten(1, smallest), *layers)


def cnn_autoencoder(config: CNNAutoencoderConfig, *, corrupt: Corruption = identity) -> Autoencoder:
    """Makes an autoencoder that halves series or images by convolutions, and doubles them again.

    Args:
        config: The sizes.
        corrupt: What is done to an input in training.

    Examples:
        >>> model = cnn_autoencoder(CNNAutoencoderConfig(shape=(1, 7, 9), latent=2, width=4))
        >>> model(torch.zeros(3, 1, 7, 9)).shape
        torch.Size([3, 1, 7, 9])
    """
    return Autoencoder(cnn_encoder(config), cnn_decoder(config), shape=config.shape, corrupt=corrupt)


def _convolution(config: CNNAutoencoderConfig) -> type[nn.Conv1d] | type[nn.Conv2d]:
    """The convolution along the space axes, after a look at the sizes."""
    _check(config.shape, config.latent)
    if len(config.shape) not in (2, 3):
        raise ValueError(f"a shape of (c, t) or (c, h, w) was wanted: got {config.shape}")
    if config.halvings < 1 or config.width < 1:
        raise ValueError(f"halvings and width are at least 1: got {config.halvings} and {config.width}")
    return nn.Conv1d if len(config.shape) == 2 else nn.Conv2d


def _check(shape: tuple[int, ...], latent: int) -> None:
    if not shape or min(shape) < 1:
        raise ValueError(f"a shape of sizes of at least 1 was wanted: got {shape}")
    if latent < 1:
        raise ValueError(f"latent is at least 1: got {latent}")


def claims() -> Iterator[Claim]:
    """The laws that both kinds of autoencoders obey."""
    dense = mlp_autoencoder(MLPAutoencoderConfig(shape=(2, 3), latent=2, hidden=(5,))).eval()
    images = cnn_autoencoder(CNNAutoencoderConfig(shape=(1, 5, 4), latent=2, width=2)).eval()
    series = cnn_autoencoder(CNNAutoencoderConfig(shape=(2, 5), latent=3, width=2, halvings=1)).eval()

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

    yield Claim(agreement(other=equation), dense, made(torch.tanh, "n 2 3"), name="mlp_autoencoder")
    yield Claim(agreement(other=convolved), series, made(torch.tanh, "n 2 5"), name="cnn_autoencoder of series")
    yield Claim(batch_independence(), images, shape("n 1 5 4"), name="cnn_autoencoder of images")
