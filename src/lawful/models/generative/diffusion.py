"""A classifier of noisy data, which guides samples towards a class.

A network made into a denoiser: by a path, a parametrisation and the scale of the data.
How a score model draws samples, and guides them towards labels.
Score models: a network that denoises, and with it samples, likelihoods and completions.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lawful.blocks.modes import eval_mode
from lawful.blocks.standardize import Standardize
from lawful.functions.estimate import LogProbEstimate
from lawful.laws import Claim, agreement, shape, transformed
from lawful.losses.classification import cross_entropy
from lawful.losses.diffusion import LogNormal, NoiseLevelDistribution, denoising_error, stratified
from lawful.losses.reduction import Reduce
from lawful.models.generative.protocols import unconditional
from lawful.solvers.diffusion import (
    DENOISED,
    Denoiser,
    ExponentialMultistep,
    GaussianPath,
    Likelihood,
    Prediction,
    Sampler,
    classifier_free_guidance,
    classifier_guidance,
    convert,
    edm,
    initial_noise,
    inpainting_denoiser,
    input_scale,
    preconditioned,
    saturating_log_grid,
)
from lawful.solvers.diffusion.parameterization import input_scale
from lawful.solvers.diffusion.paths import GaussianPath, expand_like, variance_preserving

CLOSEST = 10.0
r"""The largest $|\log \rho|$ that a network is told of."""


def condition_of(path: GaussianPath, t: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    r"""Returns what a network is told of a noise level, $\tfrac14 \log \rho$ with $\rho = \sigma / \alpha$, bounded.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        path: The path.
        t: $t$.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> condition_of(edm(), torch.tensor([0.0, 1.0]))
        tensor([-2.5000,  0.0000], dtype=torch.float64)
    """
    return path.ratio(t).log().clamp(-CLOSEST, CLOSEST) / 4


class NoisyClassifier(nn.Module):
    r"""Says which class data belong to that are seen through noise, at every noise level.

    $$\log p_t(y \mid x) = \operatorname{log\,softmax}_y \, f\bigl(c_\text{in}(t) \, x, \; \tfrac14 \log \rho(t)\bigr)$$

    Where there is only noise it is to say how frequent classes are. It lives where the denoiser does, in standard
    units.

    Reference:
        Dhariwal and Nichol, *Diffusion Models Beat GANs on Image Synthesis*, 2021.

    Args:
        network: $f$, from examples and noise levels to a score for each class.
        path: The path from data to noise.
        sigma_data: The standard deviation of the data, a buffer; a score model that it guides sets it.

    Examples:
        >>> from lawful.models.generative.networks import TimeMLP, TimeMLPConfig
        >>> network = TimeMLP(TimeMLPConfig(shape=(2,), width=8, outputs=3))
        >>> classifier = NoisyClassifier(network, path=variance_preserving())
        >>> classifier(torch.zeros(4, 2), torch.tensor(0.5)).exp().sum(-1).round(decimals=4).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """

    sigma_data: Tensor

    def __init__(self, network: nn.Module, *, path: GaussianPath, sigma_data: float = 1.0) -> None:
        super().__init__()
        self.network, self.path = network, path
        self.register_buffer("sigma_data", torch.tensor(sigma_data))

    def forward(self, x: Float[Tensor, "n *shape"], t: Float[Tensor, "*n"]) -> Float[Tensor, "n classes"]:
        """The log-probabilities of all classes."""
        inward = expand_like(input_scale(self.path, t, sigma_data=float(self.sigma_data)), x)
        like = next(self.network.parameters(), x)
        scores = self.network((inward * x).to(like.dtype), condition_of(self.path, t).to(like).expand(len(x)))
        return scores.to(x.dtype).log_softmax(-1)

    def towards(self, labels: Int[Tensor, " n"]) -> Callable[[Tensor, Tensor], Tensor]:
        """The log-probability of a label for each example: what `by_classifier` takes."""
        return lambda x, t: self(x, t).gather(1, labels[:, None])[:, 0]

    def loss(
        self,
        x: Float[Tensor, "n *shape"],
        labels: Int[Tensor, " n"],
        t: Float[Tensor, " n"],
        *,
        noise: Float[Tensor, "n *shape"],
        reduce: Reduce = torch.mean,
    ) -> Float[Tensor, "*reduced"]:
        """The surprise at the labels of noisy data."""
        return cross_entropy(self(self.path.noised(x, noise, t), t), labels, reduce=reduce)


class _Bayes(nn.Module):
    """The exact classifier of two Gaussians of variance 1 at 2 and -2, on the VP path, for sigma_data = 1."""

    def forward(self, x: Float[Tensor, "n 1"], c: Float[Tensor, " n"]) -> Float[Tensor, "n 2"]:
        alpha = 1 / (1 + (8 * c).exp()).sqrt()
        return torch.cat([2 * alpha[:, None] * x, -2 * alpha[:, None] * x], 1)


def _noisy_classifier_claims() -> Iterator[Claim]:
    """The laws that the classifier of noisy data obeys."""
    path = variance_preserving()
    classifier = NoisyClassifier(_Bayes(), path=path)

    def odds(x: Tensor, t: Tensor) -> Tensor:
        """Of noisy data, whose variance is 1: log N(x; 2 a, 1) - log N(x; -2 a, 1)."""
        a = path.alpha(t).to(x)[:, None]
        return ((x + 2 * a).square() - (x - 2 * a).square()) / 2

    def found(x: Tensor, t: Tensor) -> Tensor:
        both = classifier(x, t)
        return both[:, :1] - both[:, 1:]

    inputs = (transformed(torch.tanh, "n 1"), transformed(lambda u: 0.1 + 0.6 * torch.sigmoid(u), "n"))
    yield Claim(agreement(other=odds), found, inputs, name="NoisyClassifier of two Gaussians")


EVERY_LEVEL = LogNormal(mean=-0.5)
"""EDM's noise levels, for data of a standard deviation of 1."""


class PreconditionedDenoiser(nn.Module):
    r"""Makes a network that sees and predicts numbers of the size of 1 into a denoiser.

    $$D(x, t) = a(t) \, x + b(t) \, F\bigl(c_\text{in}(t) \, x, \; \tfrac14 \log \rho(t)\bigr)$$

    The network computes in its own precision; the weighted skip is added in that of $x$.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        network: $F$, from examples, noise levels (`condition_of`) and labels.
        path: The path from data to noise.
        predicts: From the standard deviation of the data, the buffer `sigma_data`, to what the network predicts.

    Examples:
        >>> from lawful.models.generative.networks import TimeMLP, TimeMLPConfig
        >>> core = PreconditionedDenoiser(TimeMLP(TimeMLPConfig(shape=(2,), width=8)), path=edm())
        >>> core.denoiser()(torch.ones(1, 2), torch.tensor(1.0))
        tensor([[0.5000, 0.5000]], grad_fn=<AddBackward0>)
    """

    sigma_data: Tensor

    def __init__(
        self, network: nn.Module, *, path: GaussianPath, predicts: Callable[[float], Prediction] = preconditioned
    ) -> None:
        super().__init__()
        self.network, self.path, self.predicts = network, path, predicts
        self.register_buffer("sigma_data", torch.ones(()))

    @property
    def prediction(self) -> Prediction:
        """What the network predicts."""
        return self.predicts(float(self.sigma_data))

    def forward(
        self, x: Float[Tensor, "n *shape"], t: Float[Tensor, "*n"], labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *shape"]:
        """What the network predicts of noisy data."""
        inward = expand_like(input_scale(self.path, t, sigma_data=float(self.sigma_data)), x)
        level = condition_of(self.path, t).to(self.sigma_data).expand(len(x))
        return self.network((inward * x).to(self.sigma_data.dtype), level, labels)

    def denoiser(self, labels: Int[Tensor, " n"] | None = None) -> Denoiser:
        """The map from noisy data and times to what they were without noise."""
        given = self.prediction

        def denoise(x: Tensor, t: Tensor) -> Tensor:
            return convert(self(x, t, labels).to(x.dtype), x, t, self.path, given=given, to=DENOISED)

        return denoise

    def error(
        self,
        x: Float[Tensor, "n *shape"],
        labels: Int[Tensor, " n"] | None = None,
        *,
        levels: NoiseLevelDistribution = EVERY_LEVEL,
        counted: Prediction | None = None,
        reduce: Reduce = torch.mean,
    ) -> Float[Tensor, "*reduced"]:
        """Draws noise levels and noise, and returns the error of what is predicted."""
        return denoising_error(
            lambda y, t: self(y, t, labels),
            x,
            levels.times(stratified(len(x)), self.path),
            self.path,
            noise=torch.randn_like(x),
            predicts=self.prediction,
            counted=counted,
            reduce=reduce,
        )


class TwoModes(nn.Module):
    """The exact F of two equal Gaussians of deviation 0.6 at 0.8 and -0.8, in each coordinate, on EDM's path."""

    def forward(self, x: Float[Tensor, "n d"], c: Float[Tensor, " n"], labels: None = None) -> Float[Tensor, "n d"]:
        ratio = (4 * c).exp()[:, None]
        length, total = (1 + ratio**2).sqrt(), 0.36 + ratio**2
        y = x * length
        side = 0.8 * torch.tanh(0.8 * y / total)
        denoised = side + 0.36 / total * (y - side)
        return (denoised - y / length**2) * length / ratio


def _denoising_network_claims() -> Iterator[Claim]:
    """The laws that denoising networks obey."""
    core = PreconditionedDenoiser(TwoModes(), path=edm())

    def denoised(x: Tensor) -> Tensor:
        return core.denoiser()(x, torch.tensor(0.7, dtype=torch.float64))

    def by_weights(x: Tensor) -> Tensor:
        """The mean of two posterior means, by their responsibilities."""
        p = torch.softmax(torch.stack([-((x - side) ** 2) / (2 * (0.36 + 0.49)) for side in (-0.8, 0.8)]), 0)
        means = torch.stack([(0.36 * x + 0.49 * side) / (0.36 + 0.49) for side in (-0.8, 0.8)])
        return (p * means).sum(0)

    yield Claim(replace(agreement(other=by_weights), cases=20), denoised, shape("n 2"), name="denoiser")


EXPONENTIAL = ExponentialMultistep()


@dataclass(frozen=True, kw_only=True)
class DiffusionSampling:
    """How samples are drawn."""

    sampler: Sampler = EXPONENTIAL
    """The way from noise to data."""
    steps: int = 32
    """Its number of steps."""
    guidance: float = 1.0
    """The scale of guidance: 1 is the plain conditional model, more exaggerates the label."""
    classifier: NoisyClassifier | None = None
    """What guides towards labels; the null label, without a classifier."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps are at least 1: got {self.steps}")

    def towards(self, labels: Tensor, denoiser: Callable[..., Denoiser], path: GaussianPath) -> Denoiser:
        """Guides a denoiser, made with labels or without, towards labels."""
        if self.classifier is not None:
            return classifier_guidance(denoiser(), self.classifier.towards(labels), path, scale=self.guidance)
        return classifier_free_guidance(denoiser(labels), denoiser(), scale=self.guidance)


USUAL = DiffusionSampling()


_ROWS = 512
TRACED = Likelihood(scale=1.0)
FAR = 30.0
"""So many standard deviations from the data, on average over a batch, other units are suspected."""


class DiffusionModel(nn.Module):
    r"""Denoises data at every noise level, and so knows their score, their likelihood and new samples.

    $$D(x, t) = a(t) \, x + b(t) \, F\bigl(c_\text{in}(t) \, x, \; \tfrac14 \log \rho(t)\bigr) \approx
    \mathbb{E}[x_0 \mid x_t = x], \qquad
    \nabla \log p_t = \frac{\alpha D - x}{\sigma^2}$$

    Data go in and come out in their own units. Inside they are standardised, and the determinant of that is part of
    their likelihood; what standard deviation remains (`sigma_data`, 1 unless some features never vary) is measured,
    and sets the weighted skip. Of a model with classes, no labels means the unconditional model, which the null label
    stands for.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022;
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        network: $F$, from examples, noise levels (`condition_of`) and labels.
        shape: The shape of an example.
        path: The path from data to noise.
        predicts: From `sigma_data` to what the network predicts: EDM's $F$, or say `lambda _: NOISE`.
        classes: The number of labels that the network knows; 0 for none.
        units: How data are standardised: one mean and deviation for all entries unless given.
        drawing: How samples are drawn; its classifier, if it has one, becomes part of the model.
        likelihood: How likelihoods are found; its scale counts in deviations of the data, and its spread is theirs.

    Examples:
        >>> from lawful.models.generative.networks import TimeMLP, TimeMLPConfig
        >>> model = DiffusionModel(TimeMLP(TimeMLPConfig(shape=(2,), width=8)), shape=(2,))
        >>> model = model.fit(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> model.sample(3).shape, model.log_prob(torch.zeros(1, 2)).evaluations
        (torch.Size([3, 2]), 63)
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        shape: tuple[int, ...],
        path: GaussianPath | None = None,
        predicts: Callable[[float], Prediction] = preconditioned,
        classes: int = 0,
        units: Standardize | None = None,
        drawing: DiffusionSampling = USUAL,
        likelihood: Likelihood = TRACED,
    ) -> None:
        if not shape or min(shape) < 1 or classes < 0:
            raise ValueError(f"sizes of at least 1 and no fewer than 0 classes were wanted: got {shape} and {classes}")
        super().__init__()
        self.shape, self.classes = tuple(shape), classes
        self.core = PreconditionedDenoiser(network, path=edm() if path is None else path, predicts=predicts)
        self.units = Standardize((1,) * len(shape)) if units is None else units
        self.drawing, self.likelihood, self.guide = drawing, likelihood, drawing.classifier

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "n *shape"]) -> DiffusionModel:
        """Reads the data's moments; it trains nothing."""
        self._check(x)
        if len(x) < 2:
            raise ValueError(f"at least 2 examples were wanted, to learn how they vary: got {len(x)}")
        self.units.fit(x)
        spread = self.units(x).double().square().mean().sqrt()
        if not spread > 0:
            raise ValueError("examples that vary were wanted: all are the same")
        self.core.sigma_data.copy_(spread)
        if self.guide is not None:
            self.guide.sigma_data.copy_(spread)
        return self

    def denoiser(self, labels: Int[Tensor, " n"] | None = None) -> Denoiser:
        """The map from noisy data and times to what they were without noise, in standard units."""
        self._labelled(labels)
        return self.core.denoiser(labels)

    def loss(
        self,
        x: Float[Tensor, "n *shape"],
        labels: Int[Tensor, " n"] | None = None,
        *,
        levels: NoiseLevelDistribution = EVERY_LEVEL,
        unlabelled: float = 0.15,
        counted: Prediction | None = None,
        reduce: Reduce = torch.mean,
    ) -> Float[Tensor, "*reduced"]:
        """Draws noise levels and noise, and returns the error of the denoiser: what is trained on.

        Args:
            x: Examples, in their own units.
            labels: Their labels.
            levels: How training is spread over noise levels.
            unlabelled: The share of examples that is shown with the null label.
            counted: How noise levels are weighted: see `denoising_error`.
            reduce: What to make of the losses of the examples.
        """
        self._labelled(labels)
        if labels is not None and unlabelled:
            hidden = torch.rand(labels.shape, device=labels.device) < unlabelled
            labels = labels.masked_fill(hidden, self.classes)
        return self.core.error(self.units(x), labels, levels=levels, counted=counted, reduce=reduce)

    # ------------------------------------------------------------ what it is for, in the data's units

    @torch.inference_mode(mode=False)  # a classifier that guides, and a trace, need gradients
    @torch.no_grad()
    def sample(
        self,
        n: int,
        seed: int = 0,
        *,
        first: int = 0,
        labels: Int[Tensor, " n"] | None = None,
        drawing: DiffusionSampling | None = None,
    ) -> Float[Tensor, "n *shape"]:
        """Draws examples; without labels those of the unconditional model."""
        how = self.drawing if drawing is None else drawing
        return self._drawn(n, lambda rows: self._guided(_rows_of(labels, rows), how), how, seed=seed, first=first)

    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def complete(
        self,
        x: Float[Tensor, "n *shape"],
        mask: Bool[Tensor, "..."],
        seed: int = 0,
        *,
        first: int = 0,
        labels: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n *shape"]:
        """Fills examples in where the mask, of one example or of each, is false; where it is true they stay."""
        mask = mask.expand_as(x)
        known = torch.where(mask, x, 0.0)
        self._check(known)
        z = self.units(known).double()

        def denoise(rows: slice) -> Denoiser:
            guided = self._guided(_rows_of(labels, rows), self.drawing)
            return inpainting_denoiser(guided, z[rows], mask[rows])

        drawn = self._drawn(len(x), denoise, self.drawing, seed=seed, first=first)
        return torch.where(mask, x, drawn.to(x))

    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def log_prob(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> LogProbEstimate:
        """Returns the log-density of each example, in nats: by the probability flow."""
        self._check(x)
        z, spread = self.units(x).double(), float(self.core.sigma_data)
        if len(z) and float(z.square().flatten(1).mean(1).sqrt().median()) > FAR:
            warnings.warn(
                f"most examples are more than {FAR:g} deviations away from the training data: are they in the same"
                " units, 0 to 1, say, and not 0 to 255?",
                stacklevel=2,
            )
        found, how = [], replace(self.likelihood, scale=self.likelihood.scale * spread, spread=spread)
        with eval_mode(self):
            for start in range(0, len(z), _ROWS):
                rows = slice(start, start + _ROWS)
                denoise = self.denoiser(_rows_of(labels, rows))
                found.append(how(denoise, z[rows], self.core.path, seed=seed, first=start))
        if not found:
            return LogProbEstimate.exact(z.new_zeros(0), evaluations=0)
        volume = self.units.std.double().expand(self.shape).log().sum()
        value = torch.cat([part.value for part in found]) - volume
        return LogProbEstimate(value, torch.cat([part.error for part in found]), found[0].evaluations)

    @torch.no_grad()
    def score(self, x: Float[Tensor, "n *shape"], *, ratio: float = 0.1) -> Float[Tensor, "n *shape"]:
        r"""Returns $\nabla \log p$ of data with noise: of so many of their deviations."""
        self._check(x)
        z, t = self.units(x), self.core.path.time_of(torch.tensor(ratio, dtype=torch.float64))
        alpha = float(self.core.path.alpha(t))
        with eval_mode(self):
            return alpha * self.core.path.score(alpha * z, self.denoiser()(alpha * z, t), t) / self.units.std

    @torch.no_grad()
    def trajectory(self, n: int, seed: int = 0) -> Float[Tensor, "steps n *shape"]:
        """Returns where samples are at each step, shrunk to the length that data have; the last are the samples."""
        ways: list[Tensor] = []
        denoise, spread = self.denoiser(), float(self.core.sigma_data)

        def seen(x: Tensor, t: Tensor) -> Tensor:
            inward = expand_like(input_scale(self.core.path, t, sigma_data=spread), x)
            ways.append(self.units.inverse((spread * inward * x).to(self.units.mean)))
            return denoise(x, t)

        last = self._drawn(n, lambda rows: seen, self.drawing, seed=seed, first=0)
        return torch.stack([*ways, last])

    # ------------------------------------------------------------ how

    def _guided(self, labels: Tensor | None, how: DiffusionSampling) -> Denoiser:
        return self.denoiser() if labels is None else how.towards(labels, self.denoiser, self.core.path)

    def _drawn(
        self, n: int, denoise: Callable[[slice], Denoiser], how: DiffusionSampling, *, seed: int, first: int
    ) -> Tensor:
        """Goes from noise to data, some examples at a time."""
        like, parts = self.units.mean, []
        grid, spread = saturating_log_grid(self.core.path, how.steps), float(self.core.sigma_data)
        with eval_mode(self):
            for start in range(0, n, _ROWS):
                rows, at = slice(start, min(n, start + _ROWS)), first + start
                x = initial_noise(
                    self.core.path, grid, rows.stop - start, *self.shape, seed=seed, first=at, spread=spread
                )
                parts.append(how.sampler(denoise(rows), x.to(like.device), self.core.path, grid, seed=seed, first=at))
        if n < 0:
            raise ValueError(f"n is at least 0: got {n}")
        drawn = torch.cat(parts) if parts else like.new_zeros(0, *self.shape)
        return self.units.inverse(drawn.to(like))

    def _labelled(self, labels: Tensor | None) -> None:
        if not self.classes:
            unconditional(labels)
        elif labels is not None and labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            raise ValueError(f"labels are from 0 to {self.classes - 1}: got {int(labels.min())} to {int(labels.max())}")

    def _check(self, x: Tensor) -> None:
        if tuple(x.shape[1:]) != self.shape:
            raise ValueError(f"examples of shape {self.shape} were wanted: got shape {tuple(x.shape)}")
        if not bool(x.isfinite().all()):
            raise ValueError("finite examples were wanted: got NaN or infinite ones")


def _rows_of(labels: Tensor | None, rows: slice) -> Tensor | None:
    return None if labels is None else labels[rows].clone()


def _score_model_claims() -> Iterator[Claim]:
    """The laws that score models obey."""
    model = DiffusionModel(TwoModes(), shape=(2,), units=Standardize(2), likelihood=Likelihood(steps=4))
    with torch.no_grad():
        model.units.mean.copy_(torch.tensor([3.0, -1.0]))
        model.units.std.copy_(torch.tensor([2.0, 0.5]))

    def log_density(x: Tensor) -> Tensor:
        """By the change of variables."""
        z = (x - torch.tensor([3.0, -1.0]).to(x)) / torch.tensor([2.0, 0.5]).to(x)
        sides = [torch.distributions.Normal(side, 0.6).log_prob(z) - math.log(2) for side in (-0.8, 0.8)]
        return torch.logaddexp(*sides).sum(-1)  # log 2 + log 0.5 = 0

    def found(x: Tensor) -> Tensor:
        return model.log_prob(x).value.to(x)

    near = transformed(
        lambda x: torch.tensor([3.0, -1.0]).to(x) + torch.tensor([2.0, 0.5]).to(x) * x.tanh(), "n:1..2 2"
    )
    yield Claim(replace(agreement(other=log_density, rtol=3e-2), cases=2), found, near, name="log_prob")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _noisy_classifier_claims()
    yield from _denoising_network_claims()
    yield from _score_model_claims()
