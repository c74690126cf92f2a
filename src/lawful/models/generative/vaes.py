"""Variational autoencoders of dense layers, of convolutions, and the linear one whose likelihood is known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.dense import Activation
from lawful.functions import principal_axes
from lawful.laws import Claim, agreement, batch_independence, made, shape
from lawful.models.generative.autoencoders import CNNAutoencoderConfig, cnn_decoder, cnn_encoder
from lawful.models.generative.codes import Codes, GaussianCodes
from lawful.models.generative.labelled import LabelPlanes
from lawful.models.generative.likelihoods import DecoderLikelihood, GaussianLikelihood
from lawful.models.generative.pca import PCA
from lawful.models.generative.vae import VAE
from lawful.models.mlp import MLP, MLPConfig


@dataclass(frozen=True, kw_only=True)
class MLPVAEConfig:
    """The sizes of a variational autoencoder of dense layers, for examples of any shape."""

    shape: tuple[int, ...]
    """The shape of an example."""
    latent: int = 8
    """The size of a code, where codes are Gaussian."""
    hidden: tuple[int, ...] = (128,)
    """The width of each hidden layer of the encoder; the decoder has them in reverse."""
    classes: int = 0
    """How many classes there are; 0 without labels."""
    activation: Activation = F.silu
    """What each hidden layer applies to its entries."""
    dropout: float = 0.0
    """The share of hidden units of the encoder and the decoder that is dropped in training."""


def mlp_vae(config: MLPVAEConfig, *, codes: Codes | None = None, likelihood: DecoderLikelihood | None = None) -> VAE:
    """Makes a variational autoencoder of dense layers.

    Args:
        config: The sizes.
        codes: What codes are; Gaussian unless given.
        likelihood: What entries are; Gaussian unless given.

    Examples:
        >>> from lawful.models.generative.codes import CategoricalCodes
        >>> model = mlp_vae(MLPVAEConfig(shape=(1, 4, 4)), codes=CategoricalCodes(3, classes=2))
        >>> model.encode(torch.zeros(2, 1, 4, 4)).shape
        torch.Size([2, 6])
    """
    if not config.shape or min(config.shape) < 1:
        raise ValueError(f"an example has at least 1 number: got shape {config.shape}")
    codes = GaussianCodes(config.latent) if codes is None else codes
    likelihood = GaussianLikelihood(config.shape) if likelihood is None else likelihood
    d, hidden, dropout = math.prod(config.shape), config.hidden, config.dropout
    encoder = MLP(
        MLPConfig(
            d_in=d + config.classes, d_out=codes.outputs, hidden=hidden, activation=config.activation, dropout=dropout
        )
    )
    decoder = MLP(
        MLPConfig(
            d_in=codes.size + config.classes,
            d_out=likelihood.outputs,
            hidden=hidden[::-1],
            activation=config.activation,
            dropout=dropout,
        )
    )
    return VAE(
        nn.Sequential(nn.Flatten(), encoder),
        decoder,
        shape=config.shape,
        codes=codes,
        likelihood=likelihood,
        classes=config.classes,
    )


@dataclass(frozen=True, kw_only=True)
class CNNVAEConfig:
    """The sizes of a variational autoencoder of convolutions, for series and images."""

    shape: tuple[int, ...]
    """The shape of an example, channels first: (c, t) or (c, h, w)."""
    latent: int = 8
    """The size of a code, where codes are Gaussian."""
    width: int = 16
    """The channels after the first convolution; each halving doubles them."""
    halvings: int = 2
    """How often the space axes are halved."""
    classes: int = 0
    """How many classes there are; 0 without labels."""
    activation: Activation = F.silu
    """What each hidden layer applies to its entries."""


def cnn_vae(config: CNNVAEConfig, *, codes: Codes | None = None, likelihood: DecoderLikelihood | None = None) -> VAE:
    """Makes a variational autoencoder of the two halves of `cnn_autoencoder`; labels are channels of their own.

    Args:
        config: The sizes.
        codes: What codes are; Gaussian unless given.
        likelihood: What entries are; Gaussian unless given. What it reads is a channel or several for each channel.

    Examples:
        >>> model = cnn_vae(CNNVAEConfig(shape=(1, 7, 9), width=4))
        >>> model.encode(torch.zeros(2, 1, 7, 9)).shape, model.sample(3).shape
        (torch.Size([2, 8]), torch.Size([3, 1, 7, 9]))
    """
    codes = GaussianCodes(config.latent) if codes is None else codes
    likelihood = GaussianLikelihood(config.shape) if likelihood is None else likelihood
    classes, (channels, *space) = config.classes, config.shape
    sizes = partial(CNNAutoencoderConfig, width=config.width, halvings=config.halvings, activation=config.activation)
    encoder = cnn_encoder(sizes(shape=(channels + classes, *space), latent=codes.outputs))
    read = channels * likelihood.outputs // math.prod(config.shape)
    decoder = cnn_decoder(sizes(shape=(read, *space), latent=codes.size + classes))
    return VAE(
        nn.Sequential(LabelPlanes(config.shape, classes), encoder) if classes else encoder,
        decoder,
        shape=config.shape,
        codes=codes,
        likelihood=likelihood,
        classes=classes,
    )


def linear_vae(model: PCA) -> VAE:
    r"""Makes the variational autoencoder that PCA is: linear, with the exact posterior, so that the bound is tight.

    $$x = W z + \mu + \sigma \varepsilon, \quad W = V (\Lambda - \sigma^2)^{1/2} \quad \Rightarrow \quad
    q(z \mid x) = \mathcal{N} \bigl(\Lambda^{-1} W^\mathsf{T} (x - \mu), \; \sigma^2 \Lambda^{-1}\bigr), \qquad
    \mathrm{ELBO} = \log p(x)$$

    The columns of $W$ are at right angles, so a diagonal posterior is exact, and every weight of an importance
    weighted bound is $p(x)$ itself.

    Reference:
        Lucas, Tucker, Grosse and Norouzi, *Don't Blame the ELBO!*, 2019.

    Args:
        model: Probabilistic PCA.

    Examples:
        >>> pca = PCA.fit(torch.tensor([[0.0, 0.0, 1.0], [2.0, 3.0, 4.0], [4.0, 5.0, 5.0], [1.0, 0.0, 0.0]]).double())
        >>> x = torch.ones(1, 3).double()
        >>> torch.allclose(linear_vae(pca).iwae(x, 2).value, pca.log_prob(x).value)
        True
    """
    d, k = model.axes.shape
    likelihood = GaussianLikelihood((d,), least=1e-30)
    vae = VAE(nn.Linear(d, 2 * k), nn.Linear(k, d), shape=(d,), codes=GaussianCodes(k), likelihood=likelihood)
    vae = vae.to(model.mean)
    with torch.no_grad():
        variances = model.variances.clamp_min(model.noise)
        weights = model.axes * (variances - model.noise).sqrt()
        likelihood.units.mean.copy_(model.mean)
        likelihood.log_noise.fill_(float(model.noise.log()) / 2)
        for layer in (vae.encoder, vae.decoder):
            layer.bias.zero_()  # pyrefly: ignore
        vae.decoder.weight.copy_(weights)  # pyrefly: ignore
        vae.encoder.weight.copy_(torch.cat([(weights / variances).T, torch.zeros_like(weights.T)]))  # pyrefly: ignore
        vae.encoder.bias[k:] = (model.noise / variances).log()  # pyrefly: ignore
    return vae


def claims() -> Iterator[Claim]:
    """The laws that these models obey: the linear one against the Gaussian that it is, written out."""
    x = torch.tensor([[0.0, 0.0, 1.0], [2.0, 3.0, 4.0], [4.0, 5.0, 5.0], [1.0, 0.0, 0.0], [3.0, 3.0, 0.0]]).double()
    pca = PCA.fit(x, axes=partial(principal_axes, components=2))
    axes, variances, noise, mean = (getattr(pca, name) for name in ("axes", "variances", "noise", "mean"))
    covariance = axes * (variances - noise) @ axes.T + noise * torch.eye(3).double()

    def weighted(x: Tensor) -> Tensor:
        return linear_vae(pca).to(x).iwae(x, 2).value

    def gaussian(x: Tensor) -> Tensor:
        return torch.distributions.MultivariateNormal(mean.to(x), covariance.to(x)).log_prob(x)

    near = made(lambda x: 2 * x.tanh(), "n 3")
    yield Claim(agreement(other=gaussian), weighted, near, name="linear_vae, each weight is the likelihood")

    def bound(x: Tensor) -> Tensor:
        """The fit of a linear decoder, averaged over the posterior, less the divergence."""
        model = linear_vae(pca).to(x)
        q = model.posterior(x).detach()
        shaken = (variances - noise).to(x) * q[:, 2:].exp() / noise.to(x) / 2
        fits = model.likelihood.log_prob(x, model.decoder(q[:, :2])).detach()
        return fits - shaken.sum(-1) - model.codes.divergence(q).sum(-1)

    yield Claim(agreement(other=gaussian), bound, near, name="linear_vae, its ELBO is the likelihood")
    images = mlp_vae(MLPVAEConfig(shape=(1, 2, 3), latent=2, hidden=(4,))).eval()
    yield Claim(batch_independence(), images, shape("n 1 2 3"), name="mlp_vae, rebuilt")
