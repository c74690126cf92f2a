"""Autoencoders of dense layers, and of convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
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


class _Act(nn.Module):
    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x)


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
    _check(config.shape, config.latent)
    axes = len(config.shape) - 1
    if axes not in (1, 2):
        raise ValueError(f"a shape of (c, t) or (c, h, w) was wanted: got {config.shape}")
    if config.halvings < 1 or config.width < 1:
        raise ValueError(f"halvings and width are at least 1: got {config.halvings} and {config.width}")
    convolution = nn.Conv1d if axes == 1 else nn.Conv2d
    sizes, down, up = config.sizes, [], []
    for before, after in pairwise(sizes):
        down += [convolution(before[0], after[0], 3, stride=2, padding=1), _Act(config.activation)]
        up = [
            _Act(config.activation),
            nn.Upsample(before[1:], mode="nearest"),
            convolution(after[0], before[0], 3, padding=1),
            *up,
        ]
    d = math.prod(sizes[-1])
    encoder = nn.Sequential(*down, nn.Flatten(), nn.Linear(d, config.latent))
    decoder = nn.Sequential(nn.Linear(config.latent, d), nn.Unflatten(1, sizes[-1]), *up)
    return Autoencoder(encoder, decoder, shape=config.shape, corrupt=corrupt)


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
