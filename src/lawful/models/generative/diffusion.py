"""Diffusion models: preconditioned denoiser, noisy classifier for guidance, and the model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.modes import eval_mode
from lawful.blocks.standardize import Standardize
from lawful.functions.estimate import LogProbEstimate
from lawful.functions.random import resolve_seed
from lawful.laws import Claim, agreement, shape
from lawful.losses.diffusion import LogNormal, NoiseLevelDistribution, denoising_loss, stratified_uniform
from lawful.models.generative.protocols import (
    _check_finite,
    _check_labels,
    _check_shape,
    _check_sizes,
    _check_unlabeled,
    _sample_shape,
)
from lawful.solvers.diffusion import (
    DENOISED,
    Denoiser,
    ExponentialMultistep,
    GaussianPath,
    Prediction,
    ProbabilityFlowLikelihood,
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
from lawful.solvers.diffusion.paths import expand_like

_MAX_ROWS = 512  # examples that pass through the network at once
_MAX_LOG_RATIO = 10.0  # the largest |log rho| that conditions a network
_FAR_STDS = 30.0  # examples this many standard deviations from the data suggest other units


def noise_condition(path: GaussianPath, t: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    r"""Returns the noise-level input of a network, $\tfrac14 \log \rho$ with $\rho = \sigma / \alpha$, clamped.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        path: Noise path.
        t: Time $t$.

    Examples:
        >>> noise_condition(edm(), torch.tensor([0.0, 1.0]))
        tensor([-2.5000,  0.0000], dtype=torch.float64)
    """
    return path.ratio(t).log().clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO) / 4


class NoisyClassifier(nn.Module):
    r"""Classifier of noisy data at every noise level, for classifier guidance.

    $$\log p_t(y \mid x) = \operatorname{log\,softmax}_y \, f\bigl(c_\text{in}(t) \, x, \; \tfrac14 \log \rho(t)\bigr)$$

    It acts on normalized data, as the denoiser does.

    Reference:
        Dhariwal and Nichol, *Diffusion Models Beat GANs on Image Synthesis*, 2021.

    Args:
        network: Network $f$, from examples and noise levels to class logits.
        path: Noise path.
        sigma_data: Standard deviation of the normalized data, a buffer; `DiffusionModel.fit_normalizer` sets it.

    Examples:
        >>> from lawful.models.generative import TimeMLP
        >>> classifier = NoisyClassifier(TimeMLP((2,), dim=8, out_dim=3), path=edm())
        >>> classifier(torch.zeros(4, 2), torch.tensor(0.5)).exp().sum(-1).round(decimals=4).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """

    sigma_data: Tensor

    def __init__(self, network: nn.Module, *, path: GaussianPath, sigma_data: float = 1.0) -> None:
        super().__init__()
        self.network, self.path = network, path
        self.register_buffer("sigma_data", torch.tensor(sigma_data))

    def forward(self, x: Float[Tensor, "n *shape"], t: Float[Tensor, "*n"]) -> Float[Tensor, "n classes"]:
        """Returns the log-probabilities of all classes."""
        scale = expand_like(input_scale(self.path, t, sigma_data=float(self.sigma_data)), x)
        like = next(self.network.parameters(), x)
        logits = self.network((scale * x).to(like.dtype), noise_condition(self.path, t).to(like).expand(len(x)))
        return logits.to(x.dtype).log_softmax(-1)

    def log_prob_of(self, labels: Int[Tensor, " n"]) -> Callable[[Tensor, Tensor], Tensor]:
        """Returns the log-probability of given labels as a function of x and t, for `classifier_guidance`."""
        return lambda x, t: self(x, t).gather(1, labels[:, None])[:, 0]

    def loss(
        self,
        x: Float[Tensor, "n *shape"],
        labels: Int[Tensor, " n"],
        t: Float[Tensor, " n"],
        *,
        noise: Float[Tensor, "n *shape"],
    ) -> Float[Tensor, ""]:
        """Returns the mean cross-entropy of noisy data, in nats."""
        return F.cross_entropy(self(self.path.add_noise(x, noise, t), t), labels)


class PreconditionedDenoiser(nn.Module):
    r"""Denoiser from a network with inputs and targets of unit variance.

    $$D(x, t) = a(t) \, x + b(t) \, F\bigl(c_\text{in}(t) \, x, \; \tfrac14 \log \rho(t)\bigr)$$

    The network computes in its own precision; the weighted skip has the precision of $x$.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        network: Network $F$, called with examples, noise levels (`noise_condition`) and labels.
        path: Noise path.
        prediction: Function from the standard deviation of the data, the buffer `sigma_data`, to the prediction type.

    Examples:
        >>> from lawful.models.generative import TimeMLP
        >>> denoiser = PreconditionedDenoiser(TimeMLP((2,), dim=8), path=edm())
        >>> denoiser.denoise()(torch.ones(1, 2), torch.tensor(1.0)).detach()
        tensor([[0.5000, 0.5000]])
    """

    sigma_data: Tensor

    def __init__(
        self, network: nn.Module, *, path: GaussianPath, prediction: Callable[[float], Prediction] = preconditioned
    ) -> None:
        super().__init__()
        self.network, self.path, self._prediction = network, path, prediction
        self.register_buffer("sigma_data", torch.ones(()))

    @property
    def prediction(self) -> Prediction:
        """Prediction type of the network."""
        return self._prediction(float(self.sigma_data))

    def forward(
        self, x: Float[Tensor, "n *shape"], t: Float[Tensor, "*n"], labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *shape"]:
        """Returns the network's prediction for noisy data."""
        scale = expand_like(input_scale(self.path, t, sigma_data=float(self.sigma_data)), x)
        level = noise_condition(self.path, t).to(self.sigma_data).expand(len(x))
        return self.network((scale * x).to(self.sigma_data.dtype), level, labels)

    def denoise(self, labels: Int[Tensor, " n"] | None = None) -> Denoiser:
        """Returns the denoiser $D(x, t)$ for given labels."""
        prediction = self.prediction

        def denoise(x: Tensor, t: Tensor) -> Tensor:
            return convert(self(x, t, labels).to(x.dtype), x, t, self.path, source=prediction, target=DENOISED)

        return denoise

    def loss(
        self,
        x: Float[Tensor, "n *shape"],
        labels: Int[Tensor, " n"] | None = None,
        *,
        noise_levels: NoiseLevelDistribution | None = None,
        weighting: Prediction | None = None,
        reduction: Literal["mean", "sum", "none"] = "mean",
    ) -> Float[Tensor, "*reduced"]:
        """Draws noise levels and noise; returns the denoising loss."""
        noise_levels = _EDM_LEVELS if noise_levels is None else noise_levels
        return denoising_loss(
            lambda y, t: self(y, t, labels),
            x,
            noise_levels.times(stratified_uniform(len(x)), self.path),
            self.path,
            noise=torch.randn_like(x),
            prediction=self.prediction,
            weighting=weighting,
            reduction=reduction,
        )


_EDM_LEVELS = LogNormal(mean=-0.5)  # EDM's noise levels for data of standard deviation 1


@dataclass(frozen=True, kw_only=True)
class DiffusionSampling:
    """Sampling options of a diffusion model."""

    sampler: Sampler = field(default_factory=ExponentialMultistep)
    """Sampler from noise to data."""
    steps: int = 32
    """Number of steps."""
    guidance_scale: float = 1.0
    """Guidance scale; 1 is the conditional model, larger values exaggerate the label."""
    classifier: NoisyClassifier | None = None
    """Classifier for classifier guidance. Defaults to classifier-free guidance."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"expected steps >= 1, got {self.steps}")

    def guide(self, labels: Tensor, denoise: Callable[..., Denoiser], path: GaussianPath) -> Denoiser:
        """Returns the guided denoiser; `denoise` is called with or without labels."""
        if self.classifier is not None:
            log_prob = self.classifier.log_prob_of(labels)
            return classifier_guidance(denoise(), log_prob, path, scale=self.guidance_scale)
        return classifier_free_guidance(denoise(labels), denoise(), scale=self.guidance_scale)


class DiffusionModel(nn.Module):
    r"""Diffusion model: a denoiser at every noise level, with samples, likelihoods and inpainting.

    $$D(x, t) = a(t) \, x + b(t) \, F\bigl(c_\text{in}(t) \, x, \; \tfrac14 \log \rho(t)\bigr) \approx
    \mathbb{E}[x_0 \mid x_t = x], \qquad
    \nabla \log p_t = \frac{\alpha D - x}{\sigma^2}$$

    Inputs and outputs are in the units of the data; the network sees normalized data, and likelihoods include the
    determinant of the normalizer. The remaining standard deviation `sigma_data` (1 unless some features are constant)
    sets the preconditioning. A conditional model without labels is the unconditional model (null label).

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022;
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        network: Network $F$, called with examples, noise levels (`noise_condition`) and labels.
        shape: Shape of an example.
        path: Noise path. Defaults to `edm()`.
        prediction: Function from `sigma_data` to the prediction type: `preconditioned` (EDM's $F$), or for example
            `lambda _: NOISE`.
        num_classes: Number of classes of the network; 0 for an unconditional model.
        normalizer: Normalizer of the data. Defaults to one mean and standard deviation for all entries.
        sampling: Default sampling options; its classifier, if any, becomes part of the model.
        likelihood: Likelihood estimator. Defaults to `ProbabilityFlowLikelihood()`.

    Examples:
        >>> from lawful.models.generative import TimeMLP
        >>> model = DiffusionModel(TimeMLP((2,), dim=8), shape=(2,))
        >>> model = model.fit_normalizer(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> model.sample(3, steps=4).shape, model.log_prob_estimate(torch.zeros(1, 2)).evaluations
        (torch.Size([3, 2]), 63)
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        shape: tuple[int, ...],
        path: GaussianPath | None = None,
        prediction: Callable[[float], Prediction] = preconditioned,
        num_classes: int = 0,
        normalizer: Standardize | None = None,
        sampling: DiffusionSampling | None = None,
        likelihood: ProbabilityFlowLikelihood | None = None,
    ) -> None:
        _check_sizes(shape, num_classes)
        super().__init__()
        self.shape, self.num_classes = tuple(shape), num_classes
        self.denoiser = PreconditionedDenoiser(network, path=edm() if path is None else path, prediction=prediction)
        self.normalizer = Standardize((1,) * len(shape)) if normalizer is None else normalizer
        self.sampling = DiffusionSampling() if sampling is None else sampling
        self.likelihood = ProbabilityFlowLikelihood() if likelihood is None else likelihood
        self.classifier = self.sampling.classifier

    @property
    def path(self) -> GaussianPath:
        """Noise path."""
        return self.denoiser.path

    @torch.no_grad()
    def fit_normalizer(self, x: Float[Tensor, "n *shape"]) -> DiffusionModel:
        """Fits the normalizer and `sigma_data`."""
        self._check(x)
        if len(x) < 2:
            raise ValueError(f"expected at least 2 examples, got {len(x)}")
        self.normalizer.fit(x)
        sigma_data = self.normalizer(x).double().square().mean().sqrt()
        if not sigma_data > 0:
            raise ValueError("expected data with variance, got equal examples")
        self.denoiser.sigma_data.copy_(sigma_data)
        if self.classifier is not None:
            self.classifier.sigma_data.copy_(sigma_data)
        return self

    def denoise(self, labels: Int[Tensor, " n"] | None = None) -> Denoiser:
        """Returns the denoiser $D(x, t)$ of normalized data for given labels."""
        self._check_labels(labels)
        return self.denoiser.denoise(labels)

    def loss(
        self,
        x: Float[Tensor, "n *shape"],
        labels: Int[Tensor, " n"] | None = None,
        *,
        noise_levels: NoiseLevelDistribution | None = None,
        label_dropout: float = 0.15,
        weighting: Prediction | None = None,
        reduction: Literal["mean", "sum", "none"] = "mean",
    ) -> Float[Tensor, "*reduced"]:
        """Draws noise levels and noise; returns the denoising loss.

        Args:
            x: Examples, in the units of the data.
            labels: Class of each example.
            noise_levels: Distribution of noise levels. Defaults to EDM's log-normal.
            label_dropout: Probability to replace a label by the null label.
            weighting: Weighting of the noise levels: see `denoising_loss`.
            reduction: `"mean"`, `"sum"` or `"none"`.
        """
        self._check_labels(labels)
        if labels is not None and label_dropout:
            dropped = torch.rand(labels.shape, device=labels.device) < label_dropout
            labels = labels.masked_fill(dropped, self.num_classes)
        x = self.normalizer(x)
        return self.denoiser.loss(x, labels, noise_levels=noise_levels, weighting=weighting, reduction=reduction)

    @torch.inference_mode(mode=False)  # classifier guidance and traces need gradients
    @torch.no_grad()
    def sample(
        self,
        n: int | Sequence[int],
        seed: int | None = None,
        *,
        first: int = 0,
        labels: Int[Tensor, "*n"] | None = None,
        steps: int | None = None,
        guidance_scale: float | None = None,
        sampling: DiffusionSampling | None = None,
    ) -> Float[Tensor, "*n *shape"]:
        """Draws samples: `sample(16, steps=18, guidance_scale=2.0, labels=y)`.

        Args:
            n: Number of samples, or a shape.
            seed: Random seed. None draws one from torch's generator.
            first: Index of the first sample of the seed.
            labels: Class of each sample. None samples the unconditional model.
            steps: Number of sampling steps. Defaults to `sampling.steps`.
            guidance_scale: Guidance scale. Defaults to `sampling.guidance_scale`.
            sampling: Sampling options. Defaults to the model's.
        """
        sampling, sample_shape = self.sampling if sampling is None else sampling, _sample_shape(n)
        if steps is not None:
            sampling = replace(sampling, steps=steps)
        if guidance_scale is not None:
            sampling = replace(sampling, guidance_scale=guidance_scale)
        flat = labels.flatten() if labels is not None and labels.dim() > 1 else labels
        n = math.prod(sample_shape)
        if flat is not None and len(flat) != n:
            raise ValueError(f"expected labels of shape {sample_shape}, got {tuple(flat.shape)}")
        x = self._sample(
            n, lambda rows: self._guided_denoiser(_rows(flat, rows), sampling), sampling, seed=seed, first=first
        )
        return x.reshape(*sample_shape, *self.shape)

    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def inpaint(
        self,
        x: Float[Tensor, "n *shape"],
        mask: Bool[Tensor, "..."],
        seed: int | None = None,
        *,
        first: int = 0,
        labels: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n *shape"]:
        """Fills in examples where the mask is False; True marks known entries."""
        mask = mask.expand_as(x)
        known = torch.where(mask, x, 0.0)
        self._check(known)
        z = self.normalizer(known).double()

        def denoise(rows: slice) -> Denoiser:
            guided = self._guided_denoiser(_rows(labels, rows), self.sampling)
            return inpainting_denoiser(guided, z[rows], mask[rows])

        filled = self._sample(len(x), denoise, self.sampling, seed=seed, first=first)
        return torch.where(mask, x, filled.to(x))

    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def log_prob_estimate(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> LogProbEstimate:
        """Returns the log-density of each example under the probability flow, in nats."""
        self._check(x)
        z, sigma_data = self.normalizer(x).double(), float(self.denoiser.sigma_data)
        if len(z) and float(z.square().flatten(1).mean(1).sqrt().median()) > _FAR_STDS:
            warnings.warn(
                f"most examples are more than {_FAR_STDS:g} standard deviations from the training data: check their"
                " units, for example pixels from 0 to 1, not 0 to 255",
                stacklevel=2,
            )
        parts = []
        with eval_mode(self):
            for start in range(0, len(z), _MAX_ROWS):
                rows = slice(start, start + _MAX_ROWS)
                denoise = self.denoise(_rows(labels, rows))
                parts.append(
                    self.likelihood(denoise, z[rows], self.path, sigma_data=sigma_data, seed=seed, first=start)
                )
        if not parts:
            return LogProbEstimate.exact(z.new_zeros(0), evaluations=0)
        log_volume = self.normalizer.std.double().expand(self.shape).log().sum()
        value = torch.cat([part.value for part in parts]) - log_volume
        return LogProbEstimate(value, torch.cat([part.error for part in parts]), parts[0].evaluations)

    @torch.no_grad()
    def score(self, x: Float[Tensor, "n *shape"], *, noise_ratio: float = 0.1) -> Float[Tensor, "n *shape"]:
        r"""Returns the score $\nabla \log p$ of the data with Gaussian noise, relative to their standard deviation."""
        self._check(x)
        z, t = self.normalizer(x), self.path.time_of(torch.tensor(noise_ratio, dtype=torch.float64))
        alpha = float(self.path.alpha(t))
        with eval_mode(self):
            return alpha * self.path.score(alpha * z, self.denoise()(alpha * z, t), t) / self.normalizer.std

    @torch.no_grad()
    def trajectory(self, n: int, seed: int | None = None) -> Float[Tensor, "steps n *shape"]:
        """Returns samples at each sampling step, rescaled to the standard deviation of the data."""
        points: list[Tensor] = []
        denoise, sigma_data = self.denoise(), float(self.denoiser.sigma_data)

        def record(x: Tensor, t: Tensor) -> Tensor:
            scale = expand_like(input_scale(self.path, t, sigma_data=sigma_data), x)
            points.append(self.normalizer.inverse((sigma_data * scale * x).to(self.normalizer.mean)))
            return denoise(x, t)

        last = self._sample(n, lambda rows: record, self.sampling, seed=seed, first=0)
        return torch.stack([*points, last])

    def _guided_denoiser(self, labels: Tensor | None, sampling: DiffusionSampling) -> Denoiser:
        return self.denoise() if labels is None else sampling.guide(labels, self.denoise, self.path)

    def _sample(
        self,
        n: int,
        denoise: Callable[[slice], Denoiser],
        sampling: DiffusionSampling,
        *,
        seed: int | None,
        first: int,
    ) -> Tensor:
        """Samples in parts of at most `_MAX_ROWS`."""
        seed, path, parts = resolve_seed(seed), self.path, []
        like, sigma_data = self.normalizer.mean, float(self.denoiser.sigma_data)
        grid = saturating_log_grid(path, sampling.steps, sigma_data=sigma_data)
        with eval_mode(self):
            for start in range(0, n, _MAX_ROWS):
                rows, index = slice(start, min(n, start + _MAX_ROWS)), first + start
                size = rows.stop - start
                x = initial_noise(path, grid, size, *self.shape, seed=seed, first=index, sigma_data=sigma_data)
                x = sampling.sampler(
                    denoise(rows), x.to(like.device), path, grid, sigma_data=sigma_data, seed=seed, first=index
                )
                parts.append(x)
        x = torch.cat(parts) if parts else like.new_zeros(0, *self.shape)
        return self.normalizer.inverse(x.to(like))

    def _check_labels(self, labels: Tensor | None) -> None:
        if not self.num_classes:
            _check_unlabeled(labels)
        elif labels is not None:
            _check_labels(labels, len(labels), self.num_classes)

    def _check(self, x: Tensor) -> None:
        _check_shape(x, self.shape)
        _check_finite(x)


def _rows(labels: Tensor | None, rows: slice) -> Tensor | None:
    return None if labels is None else labels[rows].clone()


class _TwoModes(nn.Module):
    """EDM's F of two equal Gaussians of standard deviation 0.6 at 0.8 and -0.8, in each coordinate."""

    def forward(
        self, x: Float[Tensor, "n d"], noise_level: Float[Tensor, " n"], labels: None = None
    ) -> Float[Tensor, "n d"]:
        ratio = (4 * noise_level).exp()[:, None]
        length, total = (1 + ratio**2).sqrt(), 0.36 + ratio**2
        y = x * length
        mode = 0.8 * torch.tanh(0.8 * y / total)
        denoised = mode + 0.36 / total * (y - mode)
        return (denoised - y / length**2) * length / ratio


def claims() -> Iterator[Claim]:
    """The denoiser of an exact network is the posterior mean."""
    denoiser = PreconditionedDenoiser(_TwoModes(), path=edm())

    def denoised(x: Tensor) -> Tensor:
        return denoiser.denoise()(x, torch.tensor(0.7, dtype=torch.float64))

    def posterior_mean(x: Tensor) -> Tensor:
        p = torch.softmax(torch.stack([-((x - mode) ** 2) / (2 * (0.36 + 0.49)) for mode in (-0.8, 0.8)]), 0)
        means = torch.stack([(0.36 * x + 0.49 * mode) / (0.36 + 0.49) for mode in (-0.8, 0.8)])
        return (p * means).sum(0)

    exact = replace(agreement(other=posterior_mean), cases=20)
    yield Claim(exact, denoised, shape("n 2"), name="PreconditionedDenoiser of two Gaussians")
