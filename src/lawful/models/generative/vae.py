"""Codes of a variational autoencoder: what is believed of them after a look at an example, and before.

Variational autoencoders: codes that are drawn, and a lower bound on the likelihood that they give.
Variational autoencoders of dense layers, of convolutions, and the linear one whose likelihood is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.linear import Activation
from lawful.blocks.modes import eval_mode
from lawful.functions import pca_axes
from lawful.functions.estimate import LogProbEstimate
from lawful.functions.random import normal_noise, uniform_noise
from lawful.laws import Claim, agreement, batch_independence, shape, transformed
from lawful.losses.variational import (
    categorical_divergence,
    gaussian_kl,
    gaussian_log_density,
    gumbel,
    gumbel_max,
    gumbel_softmax,
    importance_estimate,
    negative_elbo,
    reparameterize,
)
from lawful.models.generative.autoencoder import CNNAutoencoderConfig, cnn_decoder, cnn_encoder
from lawful.models.generative.likelihoods import DecoderLikelihood, GaussianLikelihood
from lawful.models.generative.pca import PCA
from lawful.models.generative.protocols import LabelPlanes, beside, one_hot_labels, sample_labels
from lawful.models.mlp import MLP, MLPConfig


@runtime_checkable
class Relaxation(Protocol):
    """Makes a choice of logits and Gumbel noise that gradients pass through."""

    def __call__(self, logits: Tensor, noise: Tensor, *, temperature: float) -> Tensor:
        """Returns a point of the simplex."""
        ...


@runtime_checkable
class LatentDistribution(Protocol):
    r"""Reads the output of an encoder as a distribution $q(z \mid x)$ of codes, beside a fixed one $p(z)$."""

    outputs: int
    """How many numbers an encoder puts out for an example."""
    size: int
    """The size of a code."""

    def noise(self, u: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Turns even noise between 0 and 1, both left out, into what codes are made of."""
        ...

    def draw(self, q: Float[Tensor, "n o"], noise: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n k"]:
        r"""Draws codes from $q(z \mid x)$."""
        ...

    def prior(self, noise: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Draws codes from $p(z)$."""
        ...

    def mean(self, q: Float[Tensor, "n o"]) -> Float[Tensor, "n k"]:
        r"""Returns the mean of $q(z \mid x)$."""
        ...

    def divergence(self, q: Float[Tensor, "n o"]) -> Float[Tensor, "n u"]:
        r"""Returns the divergence of $q(z \mid x)$ from $p(z)$ for each unit of a code, in nats."""
        ...

    def log_ratio(self, q: Float[Tensor, "n o"], z: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(z) - \log q(z \mid x)$."""
        ...

    def spread(self, q: Float[Tensor, "n o"]) -> Float[Tensor, " u"]:
        """Returns how much the mean of each unit varies over examples."""
        ...


class GaussianLatent(nn.Module):
    r"""Reads the output of an encoder as a diagonal Gaussian; before a look, codes are standard normal.

    $$q(z \mid x) = \mathcal{N}(\mu, \operatorname{diag} \sigma^2), \qquad (\mu, \log \sigma^2) = \text{output}$$

    Args:
        size: The size of a code.

    Examples:
        >>> codes = GaussianLatent(2)
        >>> codes.divergence(torch.tensor([[0.0, 2.0, 0.0, 0.0]]))
        tensor([[0., 2.]])
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a code has at least 1 number: got {size}")
        self.size, self.outputs = size, 2 * size

    def noise(self, u: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Returns standard normal noise, by its quantiles."""
        return torch.special.ndtri(u)

    def draw(self, q: Float[Tensor, "n o"], noise: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n k"]:
        r"""Returns $\mu + \sigma \varepsilon$."""
        mean, log_variance = q.chunk(2, -1)
        return reparameterize(mean, log_variance, noise)

    def prior(self, noise: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Returns the noise itself."""
        return noise

    def mean(self, q: Float[Tensor, "n o"]) -> Float[Tensor, "n k"]:
        r"""Returns $\mu$."""
        return q[:, : self.size]

    def divergence(self, q: Float[Tensor, "n o"]) -> Float[Tensor, "n k"]:
        """Returns the divergence for each coordinate."""
        return gaussian_kl(*q.chunk(2, -1))

    def log_ratio(self, q: Float[Tensor, "n o"], z: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(z) - \log q(z \mid x)$."""
        mean, log_variance = q.chunk(2, -1)
        standard = torch.zeros_like(mean)
        return gaussian_log_density(z, standard, standard) - gaussian_log_density(z, mean, log_variance)

    def spread(self, q: Float[Tensor, "n o"]) -> Float[Tensor, " k"]:
        r"""Returns the variance of each $\mu_j$ over examples."""
        return self.mean(q).var(0, correction=0)


class CategoricalLatent(nn.Module):
    r"""Reads the output of an encoder as independent choices; before a look, all are as probable.

    $$q(z_u = c \mid x) = \operatorname{softmax}(\ell_u)_c, \qquad \ell = \text{output}$$

    A code is a 1 among 0s for each choice. In training it is relaxed, so that gradients pass; in evaluation it is drawn
    by `gumbel_max`, and bounds are bounds.

    Args:
        units: How many choices a code has.
        classes: Among how many each is.
        temperature: That of the relaxation.
        relaxed: How a choice is made in training: `gumbel_softmax` or `gumbel_straight`.

    Examples:
        >>> codes = CategoricalLatent(2, classes=3).eval()
        >>> codes.prior(codes.noise(torch.rand(4, 6))).reshape(4, 2, 3).sum(-1).unique()
        tensor([1.])
    """

    def __init__(
        self, units: int, *, classes: int, temperature: float = 0.67, relaxed: Relaxation = gumbel_softmax
    ) -> None:
        super().__init__()
        if units < 1 or classes < 2:
            raise ValueError(f"a code has at least 1 choice among 2: got {units} among {classes}")
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature is above 0, and finite: got {temperature}")
        self.units, self.classes, self.temperature = units, classes, temperature
        self.size = self.outputs = units * classes
        self.relaxed = relaxed

    def noise(self, u: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Returns Gumbel noise, by its quantiles."""
        return gumbel(u)

    def draw(self, q: Float[Tensor, "n o"], noise: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n k"]:
        """Chooses; in training, nearly."""
        logits, noise = self._apart(q).expand_as(self._apart(noise)), self._apart(noise)
        if self.training:
            return self.relaxed(logits, noise, temperature=self.temperature).flatten(-2)
        return gumbel_max(logits, noise).flatten(-2)

    def prior(self, noise: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Chooses, each class as often."""
        noise = self._apart(noise)
        return gumbel_max(torch.zeros_like(noise), noise).flatten(-2)

    def mean(self, q: Float[Tensor, "n o"]) -> Float[Tensor, "n k"]:
        """Returns the probabilities."""
        return self._apart(q).softmax(-1).flatten(-2)

    def divergence(self, q: Float[Tensor, "n o"]) -> Float[Tensor, "n u"]:
        """Returns the divergence for each choice."""
        return categorical_divergence(self._apart(q))

    def log_ratio(self, q: Float[Tensor, "n o"], z: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(z) - \log q(z \mid x)$ of choices."""
        chosen = (self._apart(z) * self._apart(q).log_softmax(-1)).sum((-2, -1))
        return -self.units * math.log(self.classes) - chosen

    def spread(self, q: Float[Tensor, "n o"]) -> Float[Tensor, " u"]:
        """Returns the variance of the probabilities of each choice over examples, added up."""
        return self._apart(self.mean(q)).var(0, correction=0).sum(-1)

    def _apart(self, z: Tensor) -> Tensor:
        return z.unflatten(-1, (self.units, self.classes))


def _codes_claims() -> Iterator[Claim]:
    """The laws that codes obey: the divergence is the mean of the log-ratio, exactly where it can be."""
    choices = CategoricalLatent(2, classes=3).eval()
    corners = torch.eye(3)
    each = torch.stack([torch.cat([a, b]) for a in corners for b in corners])

    def averaged(q: Tensor) -> Tensor:
        """The mean of -log p/q over all codes there are."""
        z = each.to(q)[:, None].expand(-1, len(q), -1)
        p = q.unflatten(-1, (2, 3)).softmax(-1)
        weights = torch.stack([p[:, 0, a] * p[:, 1, b] for a in range(3) for b in range(3)])
        return -(weights * choices.log_ratio(q, z)).sum(0)

    def total(q: Tensor) -> Tensor:
        return choices.divergence(q).sum(-1)

    near = transformed(torch.tanh, "n 6")
    yield Claim(agreement(other=averaged), total, near, name="CategoricalCodes.divergence")
    normal = GaussianLatent(3)

    def ratio(q: Tensor) -> Tensor:
        return normal.log_ratio(q, normal.draw(q, torch.ones_like(q[:, :3])))

    def by_torch(q: Tensor) -> Tensor:
        mean, sigma = q[:, :3], (q[:, 3:] / 2).exp()
        z = mean + sigma
        plain, own = torch.distributions.Normal(0 * mean, 0 * mean + 1), torch.distributions.Normal(mean, sigma)
        return (plain.log_prob(z) - own.log_prob(z)).sum(-1)

    yield Claim(agreement(other=by_torch), ratio, near, name="GaussianCodes.log_ratio")


CHUNK = 32
"""How many codes of each example are decoded at once."""


class LatentUsage(NamedTuple):
    """Says which units of a code say something."""

    spread: Float[Tensor, " u"]
    """The variance of each unit's mean over examples."""
    nats: Float[Tensor, " u"]
    """What each unit says of an example, on average: its divergence from what is believed before."""
    active: Bool[Tensor, " u"]
    """Whether the spread is above the threshold."""


class VAE(nn.Module):
    r"""Explains each example by a code, drawn from what an encoder believes, and scores it by a lower bound.

    $$\log p(x) = \log \int p(x \mid z) \, p(z) \, dz \ge \mathbb{E}_{z \sim q(z \mid x)} \log p(x \mid z) -
    \mathrm{KL} \bigl(q(z \mid x), p(z)\bigr)$$

    All is in nats for each example, summed over its entries, in the units of the data. With classes both networks are
    told the label, as a 1 among 0s; where none is given, the bound is one on the mixture of the classes.

    Reference:
        Kingma and Welling, *Auto-Encoding Variational Bayes*, 2014; Rezende, Mohamed and Wierstra, *Stochastic
        Backpropagation and Approximate Inference in Deep Generative Models*, 2014.

    Args:
        encoder: From examples, and labels after their flattened entries, to the numbers that `codes` reads.
        decoder: From codes, and labels after them, to the numbers that `likelihood` reads.
        shape: The shape of an example.
        codes: What codes are: `GaussianLatent` or `CategoricalCodes`.
        likelihood: What entries are: `GaussianLikelihood`, `VaryingGaussianLikelihood`, `LevelLikelihood` or
            `BernoulliLikelihood`.
        classes: How many classes there are; 0 without labels.

    Examples:
        >>> model = VAE(nn.Linear(5, 4), nn.Linear(2, 5), shape=(5,), codes=GaussianLatent(2))
        >>> model.sample(3).shape, model.elbo(torch.zeros(7, 5)).value.shape
        (torch.Size([3, 5]), torch.Size([7]))
    """

    frequencies: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        *,
        shape: tuple[int, ...],
        codes: LatentDistribution,
        likelihood: DecoderLikelihood | None = None,
        classes: int = 0,
    ) -> None:
        super().__init__()
        if not shape or min(shape) < 1:
            raise ValueError(f"an example has at least 1 number: got shape {shape}")
        if classes < 0:
            raise ValueError(f"classes are at least 0: got {classes}")
        self.encoder, self.decoder, self.shape, self.codes, self.classes = encoder, decoder, shape, codes, classes
        self.likelihood = GaussianLikelihood(shape) if likelihood is None else likelihood
        self.register_buffer("frequencies", torch.full((classes,), 1 / max(1, classes)))

    def fit_normalizer(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None) -> VAE:
        """Reads the units of the training data, and how frequent their classes are."""
        self.likelihood.fit(self._checked(x))
        if self.classes and labels is not None:
            self.frequencies.copy_(torch.bincount(labels, minlength=self.classes) / len(labels))
        return self

    def posterior(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n o"]:
        """Returns what the encoder says of examples, for `codes` to read."""
        rows = self.likelihood.inputs(self._checked(x))
        return self.encoder(beside(rows, one_hot_labels(labels, len(x), classes=self.classes, like=x)))

    def encode(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, "n k"]:
        """Returns the mean code of each example."""
        return self.codes.mean(self.posterior(x, labels=labels))

    def decode(self, z: Float[Tensor, "n k"], *, labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, "n *shape"]:
        """Returns the mean example of each code, in the units of the data."""
        return self.likelihood.mean(self._decoded(z, labels))

    def reconstruct(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *shape"]:
        """Encodes and decodes, by means."""
        return self.decode(self.encode(x, labels=labels), labels=labels)

    forward = reconstruct

    def loss(
        self,
        x: Float[Tensor, "n *shape"],
        *,
        labels: Int[Tensor, " n"] | None = None,
        beta: float = 1.0,
        free: float = 0.0,
    ) -> Float[Tensor, ""]:
        """Returns the negative bound of examples with one code each: what is trained on; see `negative_elbo`."""
        q = self.posterior(x, labels=labels)
        u = torch.rand(len(x), self.codes.size, dtype=q.dtype, device=q.device)
        z = self.codes.draw(q, self.codes.noise(u.clamp_min(torch.finfo(q.dtype).tiny)))
        fits = self.likelihood.log_prob(x, self._decoded(z, labels))
        return negative_elbo(fits, self.codes.divergence(q), beta=beta, free=free)

    @torch.no_grad()
    def elbo(
        self,
        x: Float[Tensor, "n *shape"],
        *,
        labels: Int[Tensor, " n"] | None = None,
        seed: int = 0,
        draws: int = 16,
    ) -> LogProbEstimate:
        """Bounds the log-likelihood of examples, each by several codes; the divergence is exact.

        Args:
            x: The examples.
            labels: Their classes.
            seed: What the codes depend on.
            draws: How many codes each has: two at least tell the error.
        """
        if self.classes and labels is None:
            return self._any_class(x, seed, draws)
        with eval_mode(self):
            q, _, fits = self._explained(x, labels, seed, draws)
            values = fits - self.codes.divergence(q).sum(-1)
        return LogProbEstimate.from_samples(values, evaluations=draws + 1)

    @torch.no_grad()
    def iwae(
        self, x: Float[Tensor, "n *shape"], k: int = 64, *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> LogProbEstimate:
        """Bounds the log-likelihood of examples more tightly, by k weighted codes: see `importance_bound`.

        Args:
            x: The examples.
            k: How many codes each has, at least 1.
            labels: Their classes.
            seed: What the codes depend on.
        """
        if self.classes and labels is None:
            each = [self.iwae(x, k, labels=self._all(x, c), seed=seed) for c in range(self.classes)]
            joint = torch.stack([one.value for one in each]) + self.frequencies.log()[:, None]
            errors = joint.softmax(0) * torch.stack([one.error for one in each])
            return LogProbEstimate(joint.logsumexp(0), errors.square().sum(0).sqrt(), self.classes * (k + 1))
        with eval_mode(self):
            q, z, fits = self._explained(x, labels, seed, k)
            return importance_estimate(fits + self.codes.log_ratio(q, z), evaluations=k + 1)

    @torch.no_grad()
    def sample(
        self, n: int, seed: int = 0, *, first: int = 0, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *shape"]:
        """Draws examples, noise included; without labels those of several classes are as frequent as in the data."""
        if labels is None:
            labels = sample_labels(n, self.frequencies, seed=seed, stream=2, first=first)
        with eval_mode(self):
            z = self.codes.prior(self._noise(n, seed=seed, first=first, like=next(self.decoder.parameters())))
            return self.likelihood.sample(self._decoded(z, labels), seed=seed, stream=1, first=first)

    @torch.no_grad()
    def active_units(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, least: float = 0.01
    ) -> LatentUsage:
        """Tells which units of the code say something: where few do, the posterior has collapsed.

        A unit is active where its mean varies over examples by more than `least`.

        Reference:
            Burda, Grosse and Salakhutdinov, *Importance Weighted Autoencoders*, 2016.
        """
        with eval_mode(self):
            q = self.posterior(x, labels=labels)
        spread = self.codes.spread(q)
        return LatentUsage(spread, self.codes.divergence(q).mean(0), spread > least)

    def _explained(self, x: Tensor, labels: Tensor | None, seed: int, draws: int) -> tuple[Tensor, Tensor, Tensor]:
        """What the encoder says, codes drawn from it, and how well each explains its example."""
        if draws < 1:
            raise ValueError(f"at least 1 code was wanted for each example: got {draws}")
        q = self.posterior(x, labels=labels)
        z = self.codes.draw(q, self._noise(len(x), draws, seed=seed, like=q).movedim(1, 0))
        parts = [self.likelihood.log_prob(x, self._decoded(some, labels)) for some in z.split(CHUNK)]
        return q, z, torch.cat(parts)

    def _any_class(self, x: Tensor, seed: int, draws: int) -> LogProbEstimate:
        """The bound where the class is hidden too: it is believed by other codes than those that score it."""
        each, other = (
            [self.elbo(x, labels=self._all(x, c), seed=s, draws=draws) for c in range(self.classes)]
            for s in (seed, seed + 2**40)
        )
        prior = self.frequencies.log()[:, None]
        belief = (torch.stack([one.value for one in other]) + prior).log_softmax(0)
        terms = torch.stack([one.value for one in each]) + prior - belief
        value = torch.where(belief.exp() > 0, belief.exp() * terms, 0.0).sum(0)
        errors = belief.exp() * torch.stack([one.error for one in each])
        return LogProbEstimate(value, errors.square().sum(0).sqrt(), 2 * self.classes * (draws + 1))

    def _decoded(self, z: Tensor, labels: Tensor | None) -> Tensor:
        """What the decoder says of codes, with any axes before that of examples."""
        known = one_hot_labels(labels, z.shape[-2], classes=self.classes, like=z)
        if known is not None:
            z = torch.cat([z, known.expand(*z.shape[:-1], -1)], -1)
        return self.decoder(z.flatten(0, -2)).reshape(*z.shape[:-1], self.likelihood.outputs)

    def _noise(self, n: int, *sizes: int, seed: int, like: Tensor, first: int = 0) -> Tensor:
        u = uniform_noise(n, *sizes, self.codes.size, seed=seed, first=first, dtype=torch.float64)
        return self.codes.noise(u).to(like)

    def _all(self, x: Tensor, label: int) -> Tensor:
        return torch.full((len(x),), label, device=x.device)

    def _checked(self, x: Tensor) -> Tensor:
        if x.shape[1:] != self.shape or not len(x):
            raise ValueError(f"at least one example of shape {self.shape} was wanted: got shape {tuple(x.shape)}")
        if not bool(x.isfinite().all()):
            raise ValueError("finite examples were wanted: got NaN or infinite numbers")
        return x


def _vae_claims() -> Iterator[Claim]:
    """The laws that a variational autoencoder obeys."""
    into, out_of = nn.Linear(3, 4), nn.Linear(2, 3)
    model = VAE(into, out_of, shape=(3,), codes=GaussianLatent(2))
    near = transformed(torch.tanh, "n 3")

    def weighted(x: Tensor) -> Tensor:
        return model.to(x).iwae(x, 5, seed=3).value

    def by_torch(x: Tensor) -> Tensor:
        mean, log_variance = (x @ into.weight.T + into.bias).chunk(2, -1)
        q = torch.distributions.Normal(mean, (log_variance / 2).exp())
        z = mean + q.scale * normal_noise(len(x), 5, 2, seed=3).movedim(1, 0).to(x)
        noise = dict(model.named_parameters())["likelihood.log_noise"].exp().clamp_min(1e-3)
        p, one = torch.distributions.Normal(z @ out_of.weight.T + out_of.bias, noise), torch.zeros_like(z)
        logs = p.log_prob(x).sum(-1) + (torch.distributions.Normal(one, 1.0).log_prob(z) - q.log_prob(z)).sum(-1)
        return logs.exp().mean(0).log()

    yield Claim(agreement(other=by_torch), weighted, near, name="VAE.iwae")

    def written_out(x: Tensor) -> Tensor:
        """The mean fit of the same codes, less the divergence."""
        flat = model.to(x)
        q = flat.posterior(x)
        noise = normal_noise(len(x), 4, 2, seed=1).movedim(1, 0).to(x)
        fits = torch.stack([flat.likelihood.log_prob(x, out_of(flat.codes.draw(q, e))) for e in noise]).mean(0)
        return fits - (q[:, :2].square() + q[:, 2:].exp() - 1 - q[:, 2:]).sum(-1) / 2

    def bound(x: Tensor) -> Tensor:
        return model.to(x).elbo(x, seed=1, draws=4).value

    yield Claim(agreement(other=written_out), bound, near, name="VAE.elbo")

    def alone(x: Tensor) -> Tensor:
        return torch.cat([model.to(x).sample(1, 3, first=i) for i in range(len(x))])

    def beside(x: Tensor) -> Tensor:
        return model.to(x).sample(len(x), 3)

    yield Claim(agreement(other=alone), beside, shape("n:1..3 2"), name="VAE.sample, one by one")


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


def mlp_vae(
    config: MLPVAEConfig, *, codes: LatentDistribution | None = None, likelihood: DecoderLikelihood | None = None
) -> VAE:
    """Makes a variational autoencoder of dense layers.

    Args:
        config: The sizes.
        codes: What codes are; Gaussian unless given.
        likelihood: What entries are; Gaussian unless given.

    Examples:
        >>> from lawful.models.generative.vae import CategoricalCodes
        >>> model = mlp_vae(MLPVAEConfig(shape=(1, 4, 4)), codes=CategoricalCodes(3, classes=2))
        >>> model.encode(torch.zeros(2, 1, 4, 4)).shape
        torch.Size([2, 6])
    """
    if not config.shape or min(config.shape) < 1:
        raise ValueError(f"an example has at least 1 number: got shape {config.shape}")
    codes = GaussianLatent(config.latent) if codes is None else codes
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


def cnn_vae(
    config: CNNVAEConfig, *, codes: LatentDistribution | None = None, likelihood: DecoderLikelihood | None = None
) -> VAE:
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
    codes = GaussianLatent(config.latent) if codes is None else codes
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
    vae = VAE(nn.Linear(d, 2 * k), nn.Linear(k, d), shape=(d,), codes=GaussianLatent(k), likelihood=likelihood)
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


def _vaes_claims() -> Iterator[Claim]:
    """The laws that these models obey: the linear one against the Gaussian that it is, written out."""
    x = torch.tensor([[0.0, 0.0, 1.0], [2.0, 3.0, 4.0], [4.0, 5.0, 5.0], [1.0, 0.0, 0.0], [3.0, 3.0, 0.0]]).double()
    pca = PCA.fit(x, axes=partial(pca_axes, components=2))
    axes, variances, noise, mean = (getattr(pca, name) for name in ("axes", "variances", "noise", "mean"))
    covariance = axes * (variances - noise) @ axes.T + noise * torch.eye(3).double()

    def weighted(x: Tensor) -> Tensor:
        return linear_vae(pca).to(x).iwae(x, 2).value

    def gaussian(x: Tensor) -> Tensor:
        return torch.distributions.MultivariateNormal(mean.to(x), covariance.to(x)).log_prob(x)

    near = transformed(lambda x: 2 * x.tanh(), "n 3")
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


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _codes_claims()
    yield from _vae_claims()
    yield from _vaes_claims()
