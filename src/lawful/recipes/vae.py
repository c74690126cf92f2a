"""Variational autoencoders: latents, samples and lower bounds on the likelihood."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful._json import Config, Range, Tagged
from lawful.data import Batch, Dequantizer
from lawful.groups import SO3
from lawful.inference.metrics.intervals import bootstrap
from lawful.laws import Claim, batch_independence, shape
from lawful.losses.variational import gumbel_softmax, straight_through_gumbel
from lawful.models.generative import (
    VAE,
    BernoulliLikelihood,
    CategoricalLatent,
    DecoderLikelihood,
    DiscretizedLogisticLikelihood,
    GaussianLatent,
    GaussianLikelihood,
    HeteroscedasticGaussianLikelihood,
    SO3Latent,
    cnn_vae,
    mlp_vae,
)
from lawful.probe import figures
from lawful.recipes.data import DataSpec, GenerativeSplits
from lawful.recipes.generative import (
    _LOWER_BOUND,
    _MAX_EVAL_EXAMPLES,
    _NUM_RECONSTRUCTIONS,
    GenerativeRecipe,
    _density_baselines,
    _evenly_spaced,
    _image_grid,
    _latents_figure,
    _lead_figures,
    _likelihood_metrics,
    _likelihood_summary,
    _save_label_samples,
    _save_samples_figure,
    _score_batches,
    _value_range,
)
from lawful.recipes.optimization import _NonNegative, _PositiveInt, _Probability, _Steps
from lawful.recipes.supervised import _HiddenDims
from lawful.training import Run, TrainingSetup
from lawful.training.registry import _check_parameter_count

_NUM_MEANS = 24
"""Number of samples whose decoder means are shown."""
_NUM_ANGLES = 12
"""Number of rotations that are decoded, in one turn about an axis."""
_LatentDim = Annotated[int, Range(1, 10**5)]


@dataclass(frozen=True, kw_only=True)
class MLPVAESpec(Config, Tagged):
    """Fully connected layers, for any data."""

    name: ClassVar[str] = "mlp"

    hidden_dims: _HiddenDims = ()
    """Width of each hidden layer of the encoder; the decoder mirrors it. Defaults to 512 for images, else 128 128."""
    dropout: _Probability | None = None
    """Dropout probability. Defaults to 0.2 for images and series, else 0."""


@dataclass(frozen=True, kw_only=True)
class CNNVAESpec(Config, Tagged):
    """Convolutions, for images and series."""

    name: ClassVar[str] = "cnn"

    channels: Annotated[int, Range(1, 10**5)] = 32
    """Channels after the first convolution; each downsampling doubles them."""
    num_downsamples: Annotated[int, Range(1, 20)] = 2
    """Number of times the resolution is halved."""


@dataclass(frozen=True, kw_only=True)
class GaussianLatentSpec(Config, Tagged):
    """Gaussian latents."""

    name: ClassVar[str] = "gaussian"

    latent_dim: _LatentDim = 16
    """Number of latent variables."""


@dataclass(frozen=True, kw_only=True)
class CategoricalLatentSpec(Config, Tagged):
    """Categorical latents, trained by Gumbel-softmax."""

    name: ClassVar[str] = "categorical"

    latent_dim: _LatentDim = 16
    """Number of latent variables."""
    num_categories: Annotated[int, Range(2, 10**5)] = 8
    """Number of categories of each latent."""
    gumbel_temperature: Annotated[float, Range(1e-3, 1e3)] = 0.67
    """Temperature of the Gumbel-softmax."""
    straight_through: bool = False
    """Decode one-hot samples, with the gradient of the relaxed ones."""


@dataclass(frozen=True, kw_only=True)
class SO3LatentSpec(Config, Tagged):
    """Rotation in space, for images of an object at different rotations."""

    name: ClassVar[str] = "so3"


@dataclass(frozen=True, kw_only=True)
class VAERecipe(GenerativeRecipe):
    """Train a variational autoencoder: latents, samples and lower bounds on log-likelihoods."""

    name: ClassVar[str] = "vae"

    model: MLPVAESpec | CNNVAESpec = field(default_factory=MLPVAESpec)
    """Architecture of encoder and decoder."""
    latent: GaussianLatentSpec | CategoricalLatentSpec | SO3LatentSpec = field(default_factory=GaussianLatentSpec)
    """Distribution of the latents."""
    likelihood: Literal["auto", "gaussian", "heteroscedastic", "discretized-logistic", "bernoulli"] = "auto"
    """Likelihood of the decoder. auto: discretized-logistic for discrete data, else gaussian."""
    conditional: bool = False
    """Condition encoder and decoder on the labels."""
    beta: Annotated[float, Range(0, 1e6)] = 1.0
    """Weight of the KL divergence in training. Reported bounds use 1."""
    free_bits: Annotated[float, Range(0, 1e6)] = 0.0
    """Free bits: KL divergence of each latent, in nats, that is not penalized in training."""
    num_importance_samples: Annotated[int, Range(1, 10**5)] = 64
    """Samples of the importance-weighted bound (IWAE) on the test data."""
    steps: _Steps = 1500
    """Number of training steps."""
    batch_size: _PositiveInt | None = 64
    """Examples per step."""
    learning_rate: _NonNegative | None = 2e-3
    """Peak learning rate."""

    def setup(self) -> TrainingSetup[GenerativeSplits]:
        """Loads the observations and builds the model."""
        splits = self.load_splits()
        if self.conditional and splits.train_labels is None:
            raise ValueError(f"conditional=True needs labels, {self.data} has none")
        ends = Dequantizer(levels=2)
        if self.likelihood == "bernoulli":
            ends = splits.dequantizer or ends
            threshold = (ends.low + ends.high) / 2
            note = f"values above {threshold:g} are binarized to 1, others to 0; nats refer to the binary data"
            spec = replace(splits.spec, dequantizer=None)
            splits = replace(splits, spec=spec, warnings=(*splits.warnings, note))
        model = self._build(splits.spec, ends.low, ends.high)
        labels = splits.train_labels if self.conditional else None
        model.fit_normalizer(splits.dequantize(splits.train), labels=labels)
        return self.generative_setup(
            model,
            splits,
            optimizer_steps=lambda steps: [
                self.optimizer_step(model, self._loss, steps=steps, params=model.parameters())
            ],
            evaluate=partial(self._evaluate, splits=splits),
            claims=partial(_claims, observation_shape=splits.shape),
            labels=labels,
            model_config={"value_range": [ends.low, ends.high]},
        )

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        ends = model_config.get("value_range")
        if not (isinstance(ends, list) and len(ends) == 2 and all(type(v) in (int, float) for v in ends)):
            raise ValueError(f"model.value_range in config.json must be two numbers, got {str(ends)[:60]}")
        return self._build(DataSpec.from_config(model_config), float(ends[0]), float(ends[1]))

    def finish(self, run: Run, setup: TrainingSetup[GenerativeSplits]) -> Mapping[str, Any]:
        """Evaluates the bounds on the test split and the use of the latents, and writes figures."""
        splits, model = setup.data, _as_vae(setup.model).eval()
        labels = splits.test_labels if self.conditional else None
        test = splits.dequantize(splits.test)
        elbo = _score_batches(model.elbo_estimate, test, labels)
        iwae = _score_batches(partial(model.iwae_estimate, num_samples=self.num_importance_samples), test, labels)
        dim = math.prod(splits.shape)
        metrics = _likelihood_metrics(elbo, dim=dim, dequantizer=splits.dequantizer, is_bound=True)
        metrics[_LOWER_BOUND] = _with_standard_error(elbo.value)
        metrics[f"{_LOWER_BOUND}, IWAE-{self.num_importance_samples}"] = _with_standard_error(iwae.value)
        usage = model.active_units(test, labels=labels)
        _save_samples_figure(run, model, splits, seed=self.seed)
        if self.conditional and len(splits.shape) > 1:
            _save_label_samples(run, model, splits, seed=self.seed)
        self._plot(run, model, test, labels, splits)
        binary = self.likelihood == "bernoulli"
        baselines = _bernoulli_baseline(model, splits) if binary else _density_baselines(splits)
        compared = metrics
        if self.conditional:  # the baselines do not know the labels
            elbo = _score_batches(model.elbo_estimate, test, None)
            compared = _likelihood_metrics(elbo, dim=dim, dequantizer=splits.dequantizer, is_bound=True)
        return {
            "summary": _likelihood_summary(
                compared, baselines, model="the VAE", num_scored=len(splits.test), is_bound=True
            ),
            "lead_figures": _lead_figures(run),
            "test": metrics,
            "baselines": baselines,
            "active latents": {
                "active": int(usage.active.sum()),
                "of": len(usage.active),
                "KL divergence of each, nats": [round(v, 4) for v in usage.kl.tolist()],
            },
            "examples": splits.counts,
            "parameters": sum(p.numel() for p in model.parameters()),
            "warnings": list(splits.warnings),
        }

    def _build(self, spec: DataSpec, low: float, high: float) -> VAE:
        _check_parameter_count([partial(self._build_vae, spec, low, high)])
        return self._build_vae(spec, low, high)

    def _build_vae(self, spec: DataSpec, low: float, high: float) -> VAE:
        num_classes, images = len(spec.classes) if self.conditional else 0, len(spec.shape) > 1
        latent, likelihood = self._build_latent(), self._build_likelihood(spec, low, high)
        if isinstance(self.model, CNNVAESpec):
            if len(spec.shape) not in (2, 3):
                raise ValueError(f"model cnn needs images or series, got shape {spec.shape}: use model mlp")
            return cnn_vae(
                spec.shape,
                channels=self.model.channels,
                num_downsamples=self.model.num_downsamples,
                num_classes=num_classes,
                latent=latent,
                likelihood=likelihood,
            )
        dropout = 0.2 * images if self.model.dropout is None else self.model.dropout
        hidden_dims = self.model.hidden_dims or ((512,) if images else (128, 128))
        return mlp_vae(
            spec.shape,
            hidden_dims=hidden_dims,
            num_classes=num_classes,
            dropout=dropout,
            latent=latent,
            likelihood=likelihood,
        )

    def _build_latent(self) -> GaussianLatent | CategoricalLatent | SO3Latent:
        match self.latent:
            case GaussianLatentSpec() as spec:
                return GaussianLatent(spec.latent_dim)
            case SO3LatentSpec():
                return SO3Latent()
            case CategoricalLatentSpec() as spec:
                relaxation = straight_through_gumbel if spec.straight_through else gumbel_softmax
                return CategoricalLatent(
                    spec.latent_dim,
                    num_categories=spec.num_categories,
                    temperature=spec.gumbel_temperature,
                    relaxation=relaxation,
                )

    def _build_likelihood(self, spec: DataSpec, low: float, high: float) -> DecoderLikelihood:
        levels, likelihood = spec.dequantizer, self.likelihood
        if likelihood == "auto":
            likelihood = "gaussian" if levels is None else "discretized-logistic"
        match likelihood:
            case "bernoulli":
                return BernoulliLikelihood(spec.shape, low=low, high=high)
            case "discretized-logistic":
                if levels is None:
                    raise ValueError("likelihood discretized-logistic needs discrete data: set data_levels")
                return DiscretizedLogisticLikelihood(spec.shape, levels)
            case "heteroscedastic":
                return HeteroscedasticGaussianLikelihood(spec.shape)
            case _:
                return GaussianLikelihood(spec.shape)

    def _loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Negative ELBO of a batch, in nats. With beta or free bits it is an objective of another kind."""
        labels = batch[1] if len(batch) > 1 else None
        loss = _as_vae(model).loss(batch[0], labels=labels, beta=self.beta, free_bits=self.free_bits)
        return {"objective" if self._is_weighted else "loss": loss}

    @property
    def _is_weighted(self) -> bool:
        """Whether the objective differs from the negative ELBO."""
        return self.beta != 1 or self.free_bits > 0

    def _evaluate(self, model: nn.Module, splits: GenerativeSplits) -> dict[str, float]:
        """Negative ELBO of held-out observations, in nats, and the objective if it differs."""
        x = splits.dequantize(splits.evaluation[:_MAX_EVAL_EXAMPLES])
        labels = splits.evaluation_labels
        given = labels[:_MAX_EVAL_EXAMPLES] if self.conditional and labels is not None else None
        elbo = _score_batches(partial(_as_vae(model).elbo_estimate, num_samples=2), x, given)
        metrics = {"loss": -float(elbo.value.mean())}
        if self._is_weighted:
            with torch.random.fork_rng(devices=()), torch.no_grad():
                torch.manual_seed(1)
                metrics["objective"] = float(self._loss(model, (x,) if given is None else (x, given))["objective"])
        return metrics

    @torch.no_grad()
    def _plot(self, run: Run, model: VAE, test: Tensor, labels: Tensor | None, splits: GenerativeSplits) -> None:
        """Plots decoder means of samples, reconstructions, and the two latents of largest variance or rotations."""
        if len(splits.shape) > 1:
            means = model.sample(_NUM_MEANS, self.seed, noise=False)
            figures.save(_image_grid(means, splits), run.figures / "means of samples.png", root=run.root)
            n = _NUM_RECONSTRUCTIONS
            rebuilt = model(_evenly_spaced(test, n), labels=None if labels is None else _evenly_spaced(labels, n))
            figure = figures.reconstructions(_evenly_spaced(splits.test, n), rebuilt, names=("data", "reconstruction"))
            figures.save(figure, run.figures / "reconstructions.png", root=run.root)
        if isinstance(model.latent, SO3Latent):
            if splits.spec.is_image:
                self._plot_rotations(run, model, test[:1], None if labels is None else labels[:1], splits)
        elif model.latent.dim > 1:
            z = model.encode(test, labels=labels)
            two = z.var(0).topk(2).indices
            names = (f"latent {int(two[0]) + 1}", f"latent {int(two[1]) + 1}")
            figures.save(_latents_figure(z[:, two], splits, names=names), run.figures / "latents.png", root=run.root)

    def _plot_rotations(self, run: Run, model: VAE, x: Tensor, labels: Tensor | None, splits: GenerativeSplits) -> None:
        """Plots the decoded rotations of one example about each axis."""
        start = model.encode(x, labels=labels).unflatten(-1, (3, 3))
        angles = torch.linspace(0, 2 * math.pi, _NUM_ANGLES + 1)[:-1].to(start)
        turns = SO3().exp(angles[:, None] * torch.eye(3).to(start)[:, None])  # axis, angle, 3, 3
        z = (turns @ start).reshape(-1, 9)
        images = model.decode(z, labels=None if labels is None else labels.expand(len(z)))
        quantized = images if splits.dequantizer is None else splits.dequantizer.quantize(images)
        figure = figures.sample_grid(quantized, columns=_NUM_ANGLES, value_range=_value_range(splits))
        figures.save(figure, run.figures / "rotations.png", root=run.root)


def _bernoulli_baseline(model: VAE, splits: GenerativeSplits) -> dict[str, float]:
    """Returns the mean log-likelihood of independent Bernoulli features, with add-one smoothing."""
    train, test = (model.likelihood.normalize(x).flatten(1).double() for x in (splits.train, splits.test))
    p = (train.sum(0) + 1) / (len(train) + 2)
    nats = (test * p.log() + (1 - test) * (1 - p).log()).sum(1).mean()
    return {"independent Bernoulli features": float(nats)}


def _with_standard_error(nats: Tensor) -> dict[str, float]:
    return {**bootstrap(torch.mean, nats).json(), "standard error": float(nats.std() / len(nats) ** 0.5)}


def _claims(model: nn.Module, *, observation_shape: tuple[int, ...]) -> Iterator[Claim]:
    """A VAE treats observations independently."""
    vae = _as_vae(model)
    if not vae.num_classes:
        yield Claim(batch_independence(), vae.decode, shape(f"b {vae.latent.dim}"), name="decoder")
        if isinstance(vae.likelihood, GaussianLikelihood):
            example = shape(" ".join(map(str, ("b", *observation_shape))))
            yield Claim(batch_independence(), vae, example, name="reconstruction")


def _as_vae(model: nn.Module) -> VAE:
    if not isinstance(model, VAE):
        raise TypeError(f"expected a VAE, got {type(model).__name__}")
    return model
