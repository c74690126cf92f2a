"""Autoencoders: the model, corruptions of a denoising autoencoder, and MLP, CNN and linear architectures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import Standardize
from lawful.blocks.linear import Activation
from lawful.functions import identity, normal_noise
from lawful.laws import Claim, batch_independence, shape
from lawful.models.generative.protocols import SupportsSample, _check_shape, _check_sizes
from lawful.models.mlp import MLP

Corruption = Callable[[Tensor], Tensor]
"""Corrupts normalized inputs of an autoencoder in training."""


class GaussianCorruption(nn.Module):
    r"""Adds Gaussian noise, $\tilde x = x + \sigma \varepsilon$.

    Args:
        sigma: Standard deviation of the noise.

    Examples:
        >>> GaussianCorruption(0.1)(torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """

    def __init__(self, sigma: float) -> None:
        super().__init__()
        if not 0 <= sigma < math.inf:
            raise ValueError(f"expected a finite sigma >= 0, got {sigma}")
        self.sigma = sigma

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Adds noise."""
        return x + self.sigma * torch.randn_like(x)


class MaskingCorruption(nn.Module):
    r"""Sets entries to 0 with probability $p$, without rescaling the others.

    Args:
        p: Probability of an entry to be set to 0.

    Examples:
        >>> MaskingCorruption(1.0)(torch.ones(3))
        tensor([0., 0., 0.])
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"expected a probability p from 0 to 1, got {p}")
        self.p = p

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Masks entries."""
        return x * (torch.rand_like(x) >= self.p)


class Autoencoder(nn.Module):
    r"""Autoencoder, or denoising autoencoder if inputs are corrupted in training.

    $$z = E(\tilde x), \qquad \hat x = D(z), \qquad \mathcal{L} = \lVert \hat x - x \rVert^2$$

    Inputs and outputs are in the units of the data; the encoder and the decoder see normalized data, and the corruption
    acts on normalized data.

    Reference:
        Vincent, Larochelle, Bengio and Manzagol, *Extracting and Composing Robust Features with Denoising
        Autoencoders*, 2008.

    Args:
        encoder: Encoder $E$, from a batch of examples to latents.
        decoder: Decoder $D$, from latents to a batch of examples.
        shape: Shape of an example.
        normalizer: Normalizer of the data. Defaults to one mean and standard deviation for all entries.
        corruption: Corruption of the inputs in training, such as `GaussianCorruption`.

    Examples:
        >>> model = Autoencoder(nn.Linear(5, 2), nn.Linear(2, 5), shape=(5,))
        >>> model.encode(torch.zeros(3, 5)).shape, model(torch.zeros(3, 5)).shape
        (torch.Size([3, 2]), torch.Size([3, 5]))
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        *,
        shape: tuple[int, ...],
        normalizer: Standardize | None = None,
        corruption: Corruption = identity,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder, self.shape, self.corruption = encoder, decoder, tuple(shape), corruption
        self.normalizer = Standardize((1,) * len(shape)) if normalizer is None else normalizer

    def fit_normalizer(self, x: Float[Tensor, "n *shape"]) -> Autoencoder:
        """Fits the mean and standard deviation of the training data."""
        self.normalizer.fit(x)
        return self

    def encode(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n k"]:
        """Returns the latents $z$; in training mode, of corrupted examples."""
        _check_shape(x, self.shape)
        x = self.normalizer(x)
        return self.encoder(self.corruption(x) if self.training else x)

    def decode(self, z: Float[Tensor, "n k"]) -> Float[Tensor, "n *shape"]:
        r"""Returns the reconstructions $\hat x$ from latents."""
        return self.normalizer.inverse(self.decoder(z).reshape(-1, *self.shape))

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns the reconstructions of examples."""
        return self.decode(self.encode(x))

    def reconstruction_error(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, " n"]:
        r"""Returns $\lVert \hat x - x \rVert^2$ of each example, in the units of the data."""
        return (self(x) - x).square().flatten(1).sum(-1)

    def loss(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, ""]:
        r"""Returns the mean squared error of the reconstructions, in normalized units."""
        return (self.normalizer(self(x)) - self.normalizer(x)).square().mean()

    def interpolate(
        self, a: Float[Tensor, "n *shape"], b: Float[Tensor, "n *shape"], *, steps: int = 8
    ) -> Float[Tensor, "steps n *shape"]:
        """Decodes linear interpolations between the latents of two batches, ends included."""
        if steps < 2:
            raise ValueError(f"expected steps >= 2, got {steps}")
        z, w = self.encode(a), self.encode(b)
        return torch.stack([self.decode(z + (w - z) * (i / (steps - 1))) for i in range(steps)])


class AutoencoderSampler(nn.Module):
    """Autoencoder with a generative model of its latents, so that it can be sampled.

    Args:
        latent_model: Generative model of latents, such as `PCA` fitted to the latents of the training data.
        autoencoder: Autoencoder that decodes them.

    Examples:
        >>> from lawful.models.generative.pca import PCA
        >>> model = Autoencoder(nn.Linear(5, 2), nn.Linear(2, 5), shape=(5,))
        >>> AutoencoderSampler(PCA().fit(model.encode(torch.randn(9, 5)).detach()), model).sample(4).shape
        torch.Size([4, 5])
    """

    def __init__(self, latent_model: SupportsSample, autoencoder: Autoencoder) -> None:
        super().__init__()
        self.latent_model, self.autoencoder = latent_model, autoencoder

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an example."""
        return self.autoencoder.shape

    @torch.no_grad()
    def sample(
        self,
        n: int | Sequence[int],
        seed: int | None = None,
        *,
        first: int = 0,
        labels: Int[Tensor, "*n"] | None = None,
    ) -> Float[Tensor, "*n *shape"]:
        """Draws latents and decodes them."""
        z = self.latent_model.sample(n, seed, first=first, labels=labels)
        return self.autoencoder.decode(z.reshape(-1, z.shape[-1])).reshape(*z.shape[:-1], *self.shape)


def mlp_autoencoder(
    dim: int | tuple[int, ...],
    *,
    latent_dim: int,
    hidden_dims: tuple[int, ...] = (128,),
    activation: Activation = F.silu,
    corruption: Corruption = identity,
) -> Autoencoder:
    """Builds an autoencoder of two MLPs.

    Args:
        dim: Number of features, or the shape of an example.
        latent_dim: Size of the latent vector.
        hidden_dims: Hidden widths of the encoder; the decoder has them in reverse.
        activation: Activation function.
        corruption: Corruption of the inputs in training.

    Examples:
        >>> mlp_autoencoder(dim=40, latent_dim=3, hidden_dims=())(torch.zeros(2, 40)).shape
        torch.Size([2, 40])
    """
    shape = (dim,) if isinstance(dim, int) else tuple(dim)
    _check(shape, latent_dim)
    d = math.prod(shape)
    encoder = MLP(d, latent_dim, hidden_dims=hidden_dims, activation=activation)
    decoder = MLP(latent_dim, d, hidden_dims=hidden_dims[::-1], activation=activation)
    return Autoencoder(nn.Sequential(nn.Flatten(), encoder), decoder, shape=shape, corruption=corruption)


def cnn_encoder(
    shape: tuple[int, ...],
    *,
    latent_dim: int,
    channels: int = 16,
    num_downsamples: int = 2,
    activation: Activation = F.silu,
) -> nn.Sequential:
    """Builds a convolutional encoder of series or images.

    Args:
        shape: Shape of an example: (c, t) or (c, h, w).
        latent_dim: Size of the output vector.
        channels: Channels after the first convolution; each downsampling doubles them.
        num_downsamples: Number of stride-2 convolutions.
        activation: Activation function.

    Examples:
        >>> cnn_encoder((2, 9), latent_dim=3, channels=4)(torch.zeros(5, 2, 9)).shape
        torch.Size([5, 3])
    """
    convolution, sizes = _convolution(shape, latent_dim), _sizes(shape, channels, num_downsamples)
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [convolution(before[0], after[0], 3, stride=2, padding=1), _ActivationModule(activation)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(math.prod(sizes[-1]), latent_dim))


def cnn_decoder(
    shape: tuple[int, ...],
    *,
    latent_dim: int,
    channels: int = 16,
    num_downsamples: int = 2,
    activation: Activation = F.silu,
) -> nn.Sequential:
    """Builds a convolutional decoder to series or images, the mirror image of `cnn_encoder`.

    Args:
        shape: Shape of an example: (c, t) or (c, h, w).
        latent_dim: Size of the input vector.
        channels: Channels before the last convolution.
        num_downsamples: Number of upsamplings.
        activation: Activation function.

    Examples:
        >>> cnn_decoder((2, 9), latent_dim=3, channels=4)(torch.zeros(5, 3)).shape
        torch.Size([5, 2, 9])
    """
    convolution, sizes = _convolution(shape, latent_dim), _sizes(shape, channels, num_downsamples)
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        upsample = nn.Upsample(before[1:], mode="nearest")
        layers = [_ActivationModule(activation), upsample, convolution(after[0], before[0], 3, padding=1), *layers]
    return nn.Sequential(nn.Linear(latent_dim, math.prod(sizes[-1])), nn.Unflatten(1, sizes[-1]), *layers)


def cnn_autoencoder(
    shape: tuple[int, ...],
    *,
    latent_dim: int,
    channels: int = 16,
    num_downsamples: int = 2,
    activation: Activation = F.silu,
    corruption: Corruption = identity,
) -> Autoencoder:
    """Builds a convolutional autoencoder of series or images.

    Args:
        shape: Shape of an example: (c, t) or (c, h, w).
        latent_dim: Size of the latent vector.
        channels: Channels after the first convolution; each downsampling doubles them.
        num_downsamples: Number of stride-2 convolutions of the encoder.
        activation: Activation function.
        corruption: Corruption of the inputs in training.

    Examples:
        >>> model = cnn_autoencoder((1, 7, 9), latent_dim=2, channels=4)
        >>> model(torch.zeros(3, 1, 7, 9)).shape
        torch.Size([3, 1, 7, 9])
    """
    encoder, decoder = (
        build(shape, latent_dim=latent_dim, channels=channels, num_downsamples=num_downsamples, activation=activation)
        for build in (cnn_encoder, cnn_decoder)
    )
    return Autoencoder(encoder, decoder, shape=shape, corruption=corruption)


def linear_autoencoder(
    x: Float[Tensor, "n d"], *, latent_dim: int, num_iterations: int = 50
) -> tuple[Float[Tensor, "d k"], Float[Tensor, "k d"]]:
    r"""Fits a linear encoder and decoder by alternating least squares.

    $$\min_{E, D} \lVert X - X E D \rVert^2, \qquad D \leftarrow (X E)^+ X, \quad E \leftarrow D^+$$

    for centered $X$. Every minimum has the same product $E D$, the projection onto the first $k$ principal components;
    $E$ and $D$ are unique up to an invertible $k \times k$ matrix. The error shrinks by $\lambda_{k + 1} / \lambda_k$
    in each iteration. For $k \ge d$ the product is the identity.

    Reference:
        Baldi and Hornik, *Neural Networks and Principal Component Analysis*, 1989.

    Args:
        x: Data $X$, one sample per row.
        latent_dim: Size $k$ of the latent vector.
        num_iterations: Number of iterations.

    Returns:
        $E$ and $D$.

    Examples:
        >>> x = torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
        >>> encoder, decoder = linear_autoencoder(x, latent_dim=1)
        >>> encoder @ decoder
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    if not 1 <= latent_dim <= x.shape[1]:
        raise ValueError(f"expected latent_dim from 1 to {x.shape[1]} (the number of features), got {latent_dim}")
    centered = x - x.mean(0)
    encoder = normal_noise(x.shape[1], latent_dim, seed=0, dtype=x.dtype, device=x.device)
    decoder = encoder.mT
    for _ in range(num_iterations):
        decoder = torch.linalg.pinv(centered @ encoder) @ centered
        encoder = torch.linalg.pinv(decoder)
    return encoder, decoder


class _ActivationModule(nn.Module):
    """Wraps an activation function as a module; an activation that is a module is copied."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = deepcopy(activation)

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Applies the activation."""
        return self.activation(x)


def _sizes(shape: tuple[int, ...], channels: int, num_downsamples: int) -> list[tuple[int, ...]]:
    """The shapes after each downsampling, from the input to the smallest."""
    if num_downsamples < 1 or channels < 1:
        raise ValueError(f"expected num_downsamples >= 1 and channels >= 1, got {num_downsamples} and {channels}")
    sizes = [shape]
    for i in range(num_downsamples):
        sizes.append((channels * 2**i, *((n + 1) // 2 for n in sizes[-1][1:])))
    return sizes


def _convolution(shape: tuple[int, ...], latent_dim: int) -> type[nn.Conv1d] | type[nn.Conv2d]:
    _check(shape, latent_dim)
    if len(shape) not in (2, 3):
        raise ValueError(f"expected a shape (c, t) or (c, h, w), got {shape}")
    return nn.Conv1d if len(shape) == 2 else nn.Conv2d


def _check(shape: tuple[int, ...], latent_dim: int) -> None:
    _check_sizes(shape)
    if latent_dim < 1:
        raise ValueError(f"expected latent_dim >= 1, got {latent_dim}")


def claims() -> Iterator[Claim]:
    """Examples do not mix."""
    mlp = mlp_autoencoder((2, 3), latent_dim=2, hidden_dims=(5,)).eval()
    cnn = cnn_autoencoder((1, 5, 4), latent_dim=2, channels=2).eval()
    yield Claim(batch_independence(), mlp, shape("n 2 3"), name="mlp_autoencoder")
    yield Claim(batch_independence(), cnn, shape("n 1 5 4"), name="cnn_autoencoder")
