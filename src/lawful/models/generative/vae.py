"""Variational autoencoders: codes that are drawn, and a lower bound on the likelihood that they give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lawful.blocks.modes import in_training
from lawful.functions.estimate import Estimate
from lawful.functions.noise import normal_noise, uniform_noise
from lawful.laws import Claim, agreement, made, shape
from lawful.models.generative.codes import Codes, GaussianCodes
from lawful.models.generative.labelled import beside, drawn_labels, told
from lawful.models.generative.likelihoods import DecoderLikelihood, GaussianLikelihood
from lawful.objectives.generative import importance_estimate, negative_elbo

CHUNK = 32
"""How many codes of each example are decoded at once."""


class Activity(NamedTuple):
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
        codes: What codes are: `GaussianCodes` or `CategoricalCodes`.
        likelihood: What entries are: `GaussianLikelihood`, `VaryingGaussianLikelihood`, `LevelLikelihood` or
            `BernoulliLikelihood`.
        classes: How many classes there are; 0 without labels.

    Examples:
        >>> model = VAE(nn.Linear(5, 4), nn.Linear(2, 5), shape=(5,), codes=GaussianCodes(2))
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
        codes: Codes,
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

    def fit_units(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None) -> VAE:
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
        return self.encoder(beside(rows, told(labels, len(x), classes=self.classes, like=x)))

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
    ) -> Estimate:
        """Bounds the log-likelihood of examples, each by several codes; the divergence is exact.

        Args:
            x: The examples.
            labels: Their classes.
            seed: What the codes depend on.
            draws: How many codes each has: two at least tell the error.
        """
        if self.classes and labels is None:
            return self._any_class(x, seed, draws)
        with in_training(self):
            q, _, fits = self._explained(x, labels, seed, draws)
            values = fits - self.codes.divergence(q).sum(-1)
        return Estimate.of_samples(values, evaluations=draws + 1)

    @torch.no_grad()
    def iwae(
        self, x: Float[Tensor, "n *shape"], k: int = 64, *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> Estimate:
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
            return Estimate(joint.logsumexp(0), errors.square().sum(0).sqrt(), self.classes * (k + 1))
        with in_training(self):
            q, z, fits = self._explained(x, labels, seed, k)
            return importance_estimate(fits + self.codes.log_ratio(q, z), evaluations=k + 1)

    @torch.no_grad()
    def sample(
        self, n: int, seed: int = 0, *, first: int = 0, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *shape"]:
        """Draws examples, noise included; without labels those of several classes are as frequent as in the data."""
        if labels is None:
            labels = drawn_labels(n, self.frequencies, seed=seed, stream=2, first=first)
        with in_training(self):
            z = self.codes.prior(self._noise(n, seed=seed, first=first, like=next(self.decoder.parameters())))
            return self.likelihood.sample(self._decoded(z, labels), seed=seed, stream=1, first=first)

    @torch.no_grad()
    def active_units(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, least: float = 0.01
    ) -> Activity:
        """Tells which units of the code say something: where few do, the posterior has collapsed.

        A unit is active where its mean varies over examples by more than `least`.

        Reference:
            Burda, Grosse and Salakhutdinov, *Importance Weighted Autoencoders*, 2016.
        """
        with in_training(self):
            q = self.posterior(x, labels=labels)
        spread = self.codes.spread(q)
        return Activity(spread, self.codes.divergence(q).mean(0), spread > least)

    def _explained(self, x: Tensor, labels: Tensor | None, seed: int, draws: int) -> tuple[Tensor, Tensor, Tensor]:
        """What the encoder says, codes drawn from it, and how well each explains its example."""
        if draws < 1:
            raise ValueError(f"at least 1 code was wanted for each example: got {draws}")
        q = self.posterior(x, labels=labels)
        z = self.codes.draw(q, self._noise(len(x), draws, seed=seed, like=q).movedim(1, 0))
        parts = [self.likelihood.log_prob(x, self._decoded(some, labels)) for some in z.split(CHUNK)]
        return q, z, torch.cat(parts)

    def _any_class(self, x: Tensor, seed: int, draws: int) -> Estimate:
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
        return Estimate(value, errors.square().sum(0).sqrt(), 2 * self.classes * (draws + 1))

    def _decoded(self, z: Tensor, labels: Tensor | None) -> Tensor:
        """What the decoder says of codes, with any axes before that of examples."""
        known = told(labels, z.shape[-2], classes=self.classes, like=z)
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


def claims() -> Iterator[Claim]:
    """The laws that a variational autoencoder obeys."""
    into, out_of = nn.Linear(3, 4), nn.Linear(2, 3)
    model = VAE(into, out_of, shape=(3,), codes=GaussianCodes(2))
    near = made(torch.tanh, "n 3")

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
