"""Variational autoencoders: latent distributions, the model, and MLP, CNN and linear architectures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.linear import Activation
from lawful.blocks.modes import eval_mode
from lawful.functions.estimate import LogProbEstimate
from lawful.functions.random import resolve_seed, uniform_noise
from lawful.laws import Claim, agreement, batch_independence, shape, transformed
from lawful.losses.variational import (
    categorical_kl,
    gaussian_kl,
    gaussian_log_prob,
    gumbel_max,
    gumbel_noise,
    gumbel_softmax,
    iwae_estimate,
    negative_elbo,
    reparameterize,
)
from lawful.models.generative.autoencoder import cnn_decoder, cnn_encoder
from lawful.models.generative.likelihoods import DecoderLikelihood, GaussianLikelihood
from lawful.models.generative.pca import PCA
from lawful.models.generative.protocols import (
    LabelChannels,
    _append_labels,
    _check_finite,
    _check_shape,
    _check_sizes,
    _class_frequencies,
    _one_hot_labels,
    _sample_shape,
    sample_labels,
)
from lawful.models.mlp import MLP

_MAX_DECODED = 32  # maximum number of latents per example in one decoder call


@runtime_checkable
class Relaxation(Protocol):
    """Differentiable sample of a categorical variable from logits and Gumbel noise."""

    def __call__(self, logits: Tensor, noise: Tensor, *, temperature: float) -> Tensor:
        """Returns a point of the probability simplex."""
        ...


@runtime_checkable
class LatentDistribution(Protocol):
    r"""Posterior $q(z \mid x)$, parameterized by the output of an encoder, and prior $p(z)$."""

    num_params: int
    """Size of the encoder's output."""
    dim: int
    """Size of the latent vector."""

    def noise(self, u: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Transforms uniform noise in (0, 1) to the noise of `rsample`."""
        ...

    def rsample(self, params: Float[Tensor, "n p"], noise: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n k"]:
        r"""Draws reparameterized samples of $q(z \mid x)$."""
        ...

    def sample_prior(self, noise: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Draws samples of $p(z)$."""
        ...

    def mean(self, params: Float[Tensor, "n p"]) -> Float[Tensor, "n k"]:
        r"""Returns the mean of $q(z \mid x)$."""
        ...

    def kl(self, params: Float[Tensor, "n p"]) -> Float[Tensor, "n u"]:
        r"""Returns $\mathrm{KL}(q(z \mid x) \Vert p(z))$ of each latent variable, in nats."""
        ...

    def log_ratio(self, params: Float[Tensor, "n p"], z: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(z) - \log q(z \mid x)$."""
        ...

    def mean_variance(self, params: Float[Tensor, "n p"]) -> Float[Tensor, " u"]:
        """Returns the variance over examples of the posterior mean of each latent variable."""
        ...


class GaussianLatent(nn.Module):
    r"""Diagonal Gaussian posterior with a standard normal prior.

    $$q(z \mid x) = \mathcal{N}(\mu, \operatorname{diag} \sigma^2), \qquad (\mu, \log \sigma^2) = \text{params}$$

    Args:
        dim: Size of the latent vector.

    Examples:
        >>> GaussianLatent(2).kl(torch.tensor([[0.0, 2.0, 0.0, 0.0]]))
        tensor([[0., 2.]])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim < 1:
            raise ValueError(f"expected dim >= 1, got {dim}")
        self.dim, self.num_params = dim, 2 * dim

    def noise(self, u: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Returns standard normal noise."""
        return torch.special.ndtri(u)

    def rsample(self, params: Float[Tensor, "n p"], noise: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n k"]:
        r"""Returns $\mu + \sigma \varepsilon$."""
        mean, log_variance = params.chunk(2, -1)
        return reparameterize(mean, log_variance, noise)

    def sample_prior(self, noise: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Returns the noise."""
        return noise

    def mean(self, params: Float[Tensor, "n p"]) -> Float[Tensor, "n k"]:
        r"""Returns $\mu$."""
        return params[:, : self.dim]

    def kl(self, params: Float[Tensor, "n p"]) -> Float[Tensor, "n k"]:
        """Returns the divergence of each coordinate."""
        return gaussian_kl(*params.chunk(2, -1))

    def log_ratio(self, params: Float[Tensor, "n p"], z: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(z) - \log q(z \mid x)$."""
        mean, log_variance = params.chunk(2, -1)
        zeros = torch.zeros_like(mean)
        return gaussian_log_prob(z, zeros, zeros) - gaussian_log_prob(z, mean, log_variance)

    def mean_variance(self, params: Float[Tensor, "n p"]) -> Float[Tensor, " k"]:
        r"""Returns the variance of each $\mu_j$ over examples."""
        return self.mean(params).var(0, correction=0)


class CategoricalLatent(nn.Module):
    r"""Independent categorical posteriors with uniform priors; latents are concatenated one-hot vectors.

    $$q(z_u = c \mid x) = \operatorname{softmax}(\ell_u)_c, \qquad \ell = \text{params}$$

    Samples are relaxed in training mode, so that they are differentiable, and exact in eval mode, so that bounds are
    valid.

    Args:
        num_variables: Number of categorical variables.
        num_categories: Number of categories of each variable.
        temperature: Temperature of the relaxation.
        relaxation: Relaxation in training: `gumbel_softmax` or `straight_through_gumbel`.

    Examples:
        >>> latent = CategoricalLatent(2, num_categories=3).eval()
        >>> latent.sample_prior(latent.noise(torch.rand(4, 6))).reshape(4, 2, 3).sum(-1).unique()
        tensor([1.])
    """

    def __init__(
        self,
        num_variables: int,
        *,
        num_categories: int,
        temperature: float = 0.67,
        relaxation: Relaxation = gumbel_softmax,
    ) -> None:
        super().__init__()
        if num_variables < 1 or num_categories < 2:
            raise ValueError(
                f"expected num_variables >= 1 and num_categories >= 2, got {num_variables} and {num_categories}"
            )
        if not 0 < temperature < math.inf:
            raise ValueError(f"expected a finite temperature > 0, got {temperature}")
        self.num_variables, self.num_categories, self.temperature = num_variables, num_categories, temperature
        self.dim = self.num_params = num_variables * num_categories
        self.relaxation = relaxation

    def noise(self, u: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Returns Gumbel noise."""
        return gumbel_noise(u)

    def rsample(self, params: Float[Tensor, "n p"], noise: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n k"]:
        """Draws one-hot vectors, relaxed in training mode."""
        noise = self._unflatten(noise)
        logits = self._unflatten(params).expand_as(noise)
        if self.training:
            return self.relaxation(logits, noise, temperature=self.temperature).flatten(-2)
        return gumbel_max(logits, noise).flatten(-2)

    def sample_prior(self, noise: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Draws uniform one-hot vectors."""
        noise = self._unflatten(noise)
        return gumbel_max(torch.zeros_like(noise), noise).flatten(-2)

    def mean(self, params: Float[Tensor, "n p"]) -> Float[Tensor, "n k"]:
        """Returns the probabilities."""
        return self._unflatten(params).softmax(-1).flatten(-2)

    def kl(self, params: Float[Tensor, "n p"]) -> Float[Tensor, "n u"]:
        """Returns the divergence of each variable."""
        return categorical_kl(self._unflatten(params))

    def log_ratio(self, params: Float[Tensor, "n p"], z: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(z) - \log q(z \mid x)$ of one-hot vectors."""
        log_q = (self._unflatten(z) * self._unflatten(params).log_softmax(-1)).sum((-2, -1))
        return -self.num_variables * math.log(self.num_categories) - log_q

    def mean_variance(self, params: Float[Tensor, "n p"]) -> Float[Tensor, " u"]:
        """Returns the variance over examples of the probabilities of each variable, summed over categories."""
        return self._unflatten(self.mean(params)).var(0, correction=0).sum(-1)

    def _unflatten(self, z: Tensor) -> Tensor:
        return z.unflatten(-1, (self.num_variables, self.num_categories))


class LatentUsage(NamedTuple):
    """Information in each latent variable."""

    variance: Float[Tensor, " u"]
    """Variance of the posterior mean over examples."""
    kl: Float[Tensor, " u"]
    """Mean divergence of the posterior from the prior, in nats."""
    active: Bool[Tensor, " u"]
    """Whether the variance is above the threshold."""


class VAE(nn.Module):
    r"""Variational autoencoder: posterior $q(z \mid x)$, decoder $p(x \mid z)$, ELBO.

    $$\log p(x) = \log \int p(x \mid z) \, p(z) \, dz \ge \mathbb{E}_{z \sim q(z \mid x)} \log p(x \mid z) -
    \mathrm{KL} \bigl(q(z \mid x), p(z)\bigr)$$

    All values are nats per example, summed over its entries, in the units of the data. A conditional model passes
    one-hot labels to both networks; without labels it bounds the mixture of the classes, weighted by their training
    frequencies.

    Reference:
        Kingma and Welling, *Auto-Encoding Variational Bayes*, 2014; Rezende, Mohamed and Wierstra, *Stochastic
        Backpropagation and Approximate Inference in Deep Generative Models*, 2014.

    Args:
        encoder: Encoder, from examples (flattened, with appended one-hot labels, if conditional) to `latent`'s
            parameters.
        decoder: Decoder, from latents with appended one-hot labels to `likelihood`'s parameters.
        latent: Latent distribution: `GaussianLatent` or `CategoricalLatent`.
        likelihood: Decoder likelihood. Defaults to `GaussianLikelihood`.
        shape: Shape of an example.
        num_classes: Number of classes; 0 for an unconditional model.

    Examples:
        >>> vae = VAE(nn.Linear(5, 4), nn.Linear(2, 5), GaussianLatent(2), shape=(5,))
        >>> vae.sample(3).shape, vae.elbo(torch.zeros(7, 5)).shape
        (torch.Size([3, 5]), torch.Size([7]))
    """

    frequencies: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        latent: LatentDistribution,
        likelihood: DecoderLikelihood | None = None,
        *,
        shape: tuple[int, ...],
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        _check_sizes(shape, num_classes)
        self.encoder, self.decoder, self.shape, self.num_classes = encoder, decoder, tuple(shape), num_classes
        self.latent = latent
        self.likelihood = GaussianLikelihood(shape) if likelihood is None else likelihood
        self.register_buffer("frequencies", torch.full((num_classes,), 1 / max(1, num_classes)))

    def fit_normalizer(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None) -> VAE:
        """Fits the normalizer of the likelihood and the class frequencies."""
        self.likelihood.fit_normalizer(self._check(x))
        if self.num_classes and labels is not None:
            self.frequencies.copy_(_class_frequencies(labels, self.num_classes))
        return self

    def posterior(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n p"]:
        r"""Returns the parameters of $q(z \mid x)$, which `latent` interprets."""
        inputs = self.likelihood.normalize(self._check(x))
        return self.encoder(_append_labels(inputs, self._one_hot(labels, x)))

    def encode(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, "n k"]:
        """Returns the posterior mean of each example."""
        return self.latent.mean(self.posterior(x, labels=labels))

    def decode(self, z: Float[Tensor, "n k"], *, labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, "n *shape"]:
        """Returns the mean of the likelihood of each latent, in the units of the data."""
        return self.likelihood.mean(self._decode(z, labels))

    def forward(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *shape"]:
        """Returns the reconstructions of examples from their posterior means."""
        return self.decode(self.encode(x, labels=labels), labels=labels)

    def elbo(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, " n"]:
        """Returns the ELBO of each example with one latent sample from torch's generator, in nats; differentiable."""
        log_likelihood, kl = self._terms(x, labels)
        return log_likelihood - kl.sum(-1)

    def loss(
        self,
        x: Float[Tensor, "n *shape"],
        *,
        labels: Int[Tensor, " n"] | None = None,
        beta: float = 1.0,
        free_bits: float = 0.0,
    ) -> Float[Tensor, ""]:
        """Returns the mean negative ELBO, with KL weight `beta` and free bits: see `negative_elbo`."""
        return negative_elbo(*self._terms(x, labels), beta=beta, free_bits=free_bits)

    @torch.no_grad()
    def elbo_estimate(
        self,
        x: Float[Tensor, "n *shape"],
        *,
        labels: Int[Tensor, " n"] | None = None,
        seed: int = 0,
        num_samples: int = 16,
    ) -> LogProbEstimate:
        """Estimates the ELBO of each example from several latent samples, in eval mode.

        Args:
            x: Examples.
            labels: Class of each example. None bounds the mixture of the classes.
            seed: Random seed.
            num_samples: Number of latent samples of each example; at least 2 for a standard error.
        """
        if self.num_classes and labels is None:
            return self._mixture_elbo(x, seed, num_samples)
        with eval_mode(self):
            params, _, log_likelihood = self._sample_posterior(x, labels, seed, num_samples)
            values = log_likelihood - self.latent.kl(params).sum(-1)
        return LogProbEstimate.from_samples(values, evaluations=num_samples + 1)

    @torch.no_grad()
    def iwae_estimate(
        self,
        x: Float[Tensor, "n *shape"],
        *,
        labels: Int[Tensor, " n"] | None = None,
        seed: int = 0,
        num_samples: int = 64,
    ) -> LogProbEstimate:
        """Estimates the importance weighted bound of each example, in eval mode: see `iwae_bound`.

        Args:
            x: Examples.
            labels: Class of each example. None bounds the mixture of the classes.
            seed: Random seed.
            num_samples: Number of latent samples of each example.
        """
        if self.num_classes and labels is None:
            bounds = [
                self.iwae_estimate(x, labels=self._full(x, c), seed=seed, num_samples=num_samples)
                for c in range(self.num_classes)
            ]
            joint = torch.stack([bound.value for bound in bounds]) + self.frequencies.log()[:, None]
            errors = joint.softmax(0) * torch.stack([bound.error for bound in bounds])
            evaluations = self.num_classes * (num_samples + 1)
            return LogProbEstimate(joint.logsumexp(0), errors.square().sum(0).sqrt(), evaluations)
        with eval_mode(self):
            params, z, log_likelihood = self._sample_posterior(x, labels, seed, num_samples)
            log_weights = log_likelihood + self.latent.log_ratio(params, z)
            return iwae_estimate(log_weights, evaluations=num_samples + 1)

    @torch.no_grad()
    def sample(
        self,
        n: int | Sequence[int],
        seed: int | None = None,
        *,
        first: int = 0,
        labels: Int[Tensor, "*n"] | None = None,
        noise: bool = True,
    ) -> Float[Tensor, "*n *shape"]:
        """Draws samples, including the noise of the likelihood.

        Args:
            n: Number of samples, or a shape.
            seed: Random seed. None draws one from torch's generator.
            first: Index of the first sample of the seed.
            labels: Class of each sample. Defaults to classes drawn by their training frequencies.
            noise: Whether to draw from the likelihood of each latent. Otherwise returns its mean, as `decode` does.
        """
        seed, sample_shape = resolve_seed(seed), _sample_shape(n)
        n = math.prod(sample_shape)
        if labels is None:
            labels = sample_labels(n, self.frequencies, seed=seed, stream=2, first=first)
        elif labels.dim() > 1:
            labels = labels.flatten()
        with eval_mode(self):
            u = self._noise(n, seed=seed, first=first, like=next(self.decoder.parameters()))
            params = self._decode(self.latent.sample_prior(u), labels)
            likelihood = self.likelihood
            x = likelihood.sample(params, seed=seed, stream=1, first=first) if noise else likelihood.mean(params)
        return x.reshape(*sample_shape, *self.shape)

    @torch.no_grad()
    def active_units(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, threshold: float = 0.01
    ) -> LatentUsage:
        """Returns the information in each latent variable. Few active variables indicate posterior collapse.

        A variable is active if the variance of its posterior mean over examples is above `threshold`.

        Reference:
            Burda, Grosse and Salakhutdinov, *Importance Weighted Autoencoders*, 2016.
        """
        with eval_mode(self):
            params = self.posterior(x, labels=labels)
        variance = self.latent.mean_variance(params)
        return LatentUsage(variance, self.latent.kl(params).mean(0), variance > threshold)

    def _terms(self, x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the log-likelihood of each example with one latent sample, and the KL divergences."""
        params = self.posterior(x, labels=labels)
        dtype = torch.promote_types(params.dtype, torch.float32)  # a half-precision uniform number is too coarse
        u = torch.rand(len(x), self.latent.dim, dtype=dtype, device=params.device)
        z = self.latent.rsample(params, self.latent.noise(u.clamp_min(torch.finfo(dtype).tiny)))
        return self.likelihood.log_prob(x, self._decode(z, labels)), self.latent.kl(params)

    def _sample_posterior(
        self, x: Tensor, labels: Tensor | None, seed: int, num_samples: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Posterior parameters, latent samples and their log-likelihoods."""
        if num_samples < 1:
            raise ValueError(f"expected num_samples >= 1, got {num_samples}")
        params = self.posterior(x, labels=labels)
        z = self.latent.rsample(params, self._noise(len(x), num_samples, seed=seed, like=params).movedim(1, 0))
        parts = [self.likelihood.log_prob(x, self._decode(some, labels)) for some in z.split(_MAX_DECODED)]
        return params, z, torch.cat(parts)

    def _mixture_elbo(self, x: Tensor, seed: int, num_samples: int) -> LogProbEstimate:
        """Returns the ELBO with a latent class, whose posterior is estimated from independent samples."""
        bounds, independent = (
            [
                self.elbo_estimate(x, labels=self._full(x, c), seed=s, num_samples=num_samples)
                for c in range(self.num_classes)
            ]
            for s in (seed, seed + 2**40)
        )
        log_prior = self.frequencies.log()[:, None]
        log_posterior = (torch.stack([bound.value for bound in independent]) + log_prior).log_softmax(0)
        posterior = log_posterior.exp()
        terms = torch.stack([bound.value for bound in bounds]) + log_prior - log_posterior
        value = torch.where(posterior > 0, posterior * terms, 0.0).sum(0)
        errors = posterior * torch.stack([bound.error for bound in bounds])
        return LogProbEstimate(value, errors.square().sum(0).sqrt(), 2 * self.num_classes * (num_samples + 1))

    def _decode(self, z: Tensor, labels: Tensor | None) -> Tensor:
        """Likelihood parameters of latents (*m, n, k)."""
        one_hot = _one_hot_labels(labels, z.shape[-2], num_classes=self.num_classes, dtype=z.dtype)
        if one_hot is not None:
            z = torch.cat([z, one_hot.expand(*z.shape[:-1], -1)], -1)
        return self.decoder(z.flatten(0, -2)).reshape(*z.shape[:-1], self.likelihood.num_params)

    def _noise(self, n: int, *sizes: int, seed: int, like: Tensor, first: int = 0) -> Tensor:
        u = uniform_noise(n, *sizes, self.latent.dim, seed=seed, first=first, dtype=torch.float64)
        return self.latent.noise(u).to(like)

    def _one_hot(self, labels: Tensor | None, x: Tensor) -> Tensor | None:
        return _one_hot_labels(labels, x.shape[0], num_classes=self.num_classes, dtype=x.dtype)

    def _full(self, x: Tensor, label: int) -> Tensor:
        return torch.full((len(x),), label, device=x.device)

    def _check(self, x: Tensor) -> Tensor:
        _check_shape(x, self.shape)
        if not x.shape[0]:
            raise ValueError(f"expected at least 1 example, got x of shape {tuple(x.shape)}")
        _check_finite(x)
        return x


def mlp_vae(
    dim: int | tuple[int, ...],
    *,
    latent_dim: int = 8,
    hidden_dims: tuple[int, ...] = (128,),
    num_classes: int = 0,
    activation: Activation = F.silu,
    dropout: float = 0.0,
    latent: LatentDistribution | None = None,
    likelihood: DecoderLikelihood | None = None,
) -> VAE:
    """Builds a variational autoencoder of two MLPs.

    Args:
        dim: Number of features, or the shape of an example.
        latent_dim: Size of the default Gaussian latent.
        hidden_dims: Hidden widths of the encoder; the decoder has them in reverse.
        num_classes: Number of classes; 0 for an unconditional model.
        activation: Activation function.
        dropout: Dropout probability of the hidden layers.
        latent: Latent distribution. Defaults to `GaussianLatent(latent_dim)`.
        likelihood: Decoder likelihood. Defaults to `GaussianLikelihood`.

    Examples:
        >>> vae = mlp_vae((1, 4, 4), latent=CategoricalLatent(3, num_categories=2))
        >>> vae.encode(torch.zeros(2, 1, 4, 4)).shape
        torch.Size([2, 6])
    """
    shape = (dim,) if isinstance(dim, int) else tuple(dim)
    _check_sizes(shape, num_classes)
    latent = GaussianLatent(latent_dim) if latent is None else latent
    likelihood = GaussianLikelihood(shape) if likelihood is None else likelihood
    encoder = MLP(
        math.prod(shape) + num_classes,
        latent.num_params,
        hidden_dims=hidden_dims,
        activation=activation,
        dropout=dropout,
    )
    decoder = MLP(
        latent.dim + num_classes,
        likelihood.num_params,
        hidden_dims=hidden_dims[::-1],
        activation=activation,
        dropout=dropout,
    )
    return VAE(nn.Sequential(nn.Flatten(), encoder), decoder, latent, likelihood, shape=shape, num_classes=num_classes)


def cnn_vae(
    shape: tuple[int, ...],
    *,
    latent_dim: int = 8,
    channels: int = 16,
    num_downsamples: int = 2,
    num_classes: int = 0,
    activation: Activation = F.silu,
    latent: LatentDistribution | None = None,
    likelihood: DecoderLikelihood | None = None,
) -> VAE:
    """Builds a variational autoencoder of a CNN encoder and decoder; labels are additional channels.

    Args:
        shape: Shape of an example: (c, t) or (c, h, w).
        latent_dim: Size of the default Gaussian latent.
        channels: Channels after the first convolution; each downsampling doubles them.
        num_downsamples: Number of stride-2 convolutions of the encoder.
        num_classes: Number of classes; 0 for an unconditional model.
        activation: Activation function.
        latent: Latent distribution. Defaults to `GaussianLatent(latent_dim)`.
        likelihood: Decoder likelihood. Defaults to `GaussianLikelihood`.

    Examples:
        >>> vae = cnn_vae((1, 7, 9), channels=4)
        >>> vae.encode(torch.zeros(2, 1, 7, 9)).shape, vae.sample(3).shape
        (torch.Size([2, 8]), torch.Size([3, 1, 7, 9]))
    """
    latent = GaussianLatent(latent_dim) if latent is None else latent
    likelihood = GaussianLikelihood(shape) if likelihood is None else likelihood
    in_channels, *space = shape
    encoder = cnn_encoder(
        (in_channels + num_classes, *space),
        latent_dim=latent.num_params,
        channels=channels,
        num_downsamples=num_downsamples,
        activation=activation,
    )
    decoder = cnn_decoder(
        (in_channels * likelihood.num_params // math.prod(shape), *space),
        latent_dim=latent.dim + num_classes,
        channels=channels,
        num_downsamples=num_downsamples,
        activation=activation,
    )
    if num_classes:
        encoder = nn.Sequential(LabelChannels(shape, num_classes), encoder)
    return VAE(encoder, decoder, latent, likelihood, shape=shape, num_classes=num_classes)


def linear_vae(pca: PCA) -> VAE:
    r"""Builds the linear variational autoencoder of a probabilistic PCA, with its exact posterior.

    $$x = W z + \mu + \sigma \varepsilon, \quad W = V (\Lambda - \sigma^2)^{1/2} \quad \Rightarrow \quad
    q(z \mid x) = \mathcal{N} \bigl(\Lambda^{-1} W^\mathsf{T} (x - \mu), \; \sigma^2 \Lambda^{-1}\bigr), \qquad
    \mathrm{ELBO} = \log p(x)$$

    The columns of $W$ are orthogonal, so that a diagonal posterior is exact and every importance weight equals $p(x)$.

    Reference:
        Lucas, Tucker, Grosse and Norouzi, *Don't Blame the ELBO!*, 2019.

    Args:
        pca: Fitted PCA.

    Examples:
        >>> x = torch.tensor([[0.0, 0.0, 1.0], [2.0, 3.0, 4.0], [4.0, 5.0, 5.0], [1.0, 0.0, 0.0]]).double()
        >>> pca = PCA().fit(x)
        >>> torch.allclose(linear_vae(pca).iwae_estimate(x, num_samples=2).value, pca.log_prob(x))
        True
    """
    k, d = pca.components.shape
    likelihood = GaussianLikelihood((d,), min_std=1e-30)
    encoder, decoder = nn.Linear(d, 2 * k), nn.Linear(k, d)
    vae = VAE(encoder, decoder, GaussianLatent(k), likelihood, shape=(d,)).to(pca.mean)
    with torch.no_grad():
        variances = pca.explained_variance.clamp_min(pca.noise_variance)
        weights = pca.components.mT * (variances - pca.noise_variance).sqrt()
        likelihood.normalizer.mean.copy_(pca.mean)
        likelihood.log_noise.fill_(float(pca.noise_variance.log()) / 2)
        encoder.bias.zero_()
        decoder.bias.zero_()
        decoder.weight.copy_(weights)
        encoder.weight.copy_(torch.cat([(weights / variances).T, torch.zeros_like(weights.T)]))
        encoder.bias[k:] = (pca.noise_variance / variances).log()
    return vae


def claims() -> Iterator[Claim]:
    """The bound of the linear VAE is the exact likelihood; samples and reconstructions do not mix."""
    x = torch.tensor([[0.0, 0.0, 1.0], [2.0, 3.0, 4.0], [4.0, 5.0, 5.0], [1.0, 0.0, 0.0], [3.0, 3.0, 0.0]]).double()
    pca = PCA(n_components=2).fit(x)
    exact = agreement(other=lambda y: PCA(n_components=2).fit(x).to(y).log_prob(y))

    def importance_weighted(y: Tensor) -> Tensor:
        return linear_vae(pca).to(y).iwae_estimate(y, num_samples=2).value

    inputs = transformed(lambda x: 2 * x.tanh(), "n 3")
    yield Claim(exact, importance_weighted, inputs, name="linear_vae: every importance weight is the likelihood")
    vae = mlp_vae((1, 2, 3), latent_dim=2, hidden_dims=(4,)).eval()
    yield Claim(batch_independence(), vae, shape("n 1 2 3"), name="mlp_vae")

    def batched(x: Tensor) -> Tensor:
        return vae.to(x).sample(len(x), 3)

    def one_by_one(x: Tensor) -> Tensor:
        return torch.cat([vae.to(x).sample(1, 3, first=i) for i in range(len(x))])

    yield Claim(agreement(other=one_by_one), batched, shape("n:1..3 2"), name="VAE.sample does not depend on n")
