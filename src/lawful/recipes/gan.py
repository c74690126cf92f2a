"""Generative adversarial networks: a generator and a critic, with metrics of sample quality."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from lawful._json import Config, MaxLength, Range, Tagged
from lawful.blocks import Standardize
from lawful.data import Batch, GaussianMixture, gaussian_density
from lawful.functions import identity
from lawful.inference.metrics import class_coverage, frechet_distance, mmd, mode_coverage, neighbor_coverage
from lawful.inference.metrics.samples import gaussian_kernel, median_width
from lawful.laws import Claim, batch_independence, shape
from lawful.losses.gan import HINGE, MINIMAX, NON_SATURATING, WASSERSTEIN, GANLoss, gradient_penalty, r1_penalty
from lawful.models import MLP
from lawful.models.generative import GAN, cnn_gan, mlp_gan, sample_labels
from lawful.optim import adamw
from lawful.recipes.data import DataSpec, GenerativeSplits
from lawful.recipes.generative import (
    GenerativeRecipe,
    _feature_scale,
    _lead_figures,
    _save_label_samples,
    _save_samples_figure,
)
from lawful.recipes.optimization import _Betas, _Decay, _NonNegative, _WarmupRatio
from lawful.recipes.supervised import _HiddenDims
from lawful.training import OptimizerStep, Run, TrainingSetup, compare_with_baselines
from lawful.training.registry import _check_parameter_count

# ---------------------------------------------------------------- a classifier that judges samples

_JUDGE_DIMS, _JUDGE_STEPS, _JUDGE_BATCH_SIZE, _JUDGE_LEARNING_RATE = (128, 32), 600, 128, 3e-3


@dataclass(frozen=True)
class _FeatureClassifier:
    """A small classifier of the training data; its features compare samples with data."""

    normalizer: Standardize
    backbone: nn.Module
    """Maps standardized examples to 32 features."""
    head: nn.Module
    """Maps features to logits."""
    num_classes: int

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """Returns the features before the last layer."""
        return self.backbone(self.normalizer(x.float()).flatten(1))

    def predict(self, x: Tensor) -> Tensor:
        """Returns the class of each example."""
        return self.head(self.features(x)).argmax(-1)

    def metrics(self, x: Tensor, data: Tensor, *, labels: Tensor | None) -> dict[str, float]:
        """Returns metrics of samples compared with data, and the label accuracy of conditional samples."""
        metrics = {"classes covered": class_coverage(self.predict(x), num_classes=self.num_classes).coverage}
        if min(len(x), len(data)) > _JUDGE_DIMS[-1]:
            metrics["Fréchet distance of features"] = frechet_distance(self.features(x), self.features(data))
        if labels is not None:
            metrics["label accuracy"] = float((self.predict(x) == labels).double().mean())
        return metrics


def _train_feature_classifier(splits: GenerativeSplits, *, seed: int = 0) -> _FeatureClassifier | None:
    """Trains a classifier on the training data; None without labels or with a known density."""
    y = splits.train_labels
    if y is None or splits.density is not None or len(splits.classes) < 2:
        return None
    x, num_classes = splits.train, len(splits.classes)
    normalizer = Standardize((1,) * (x.dim() - 1) if x.dim() > 2 else x.shape[1:]).fit(x)
    rows = normalizer(x).flatten(1)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = MLP(rows.shape[1], num_classes, hidden_dims=_JUDGE_DIMS)
        optimizer = adamw(model.parameters(), lr=_JUDGE_LEARNING_RATE)
        for _ in range(_JUDGE_STEPS):
            some = torch.randint(len(rows), (_JUDGE_BATCH_SIZE,))
            optimizer.zero_grad()
            F.cross_entropy(model(rows[some]), y[some]).backward()
            optimizer.step()
    model.eval().requires_grad_(False)
    *hidden, head = model.layers
    backbone = nn.Sequential(*(module for layer in hidden for module in (layer, nn.ReLU())))
    return _FeatureClassifier(normalizer, backbone, head, num_classes)


# ---------------------------------------------------------------- the recipe

_GAN_LOSSES: dict[str, GANLoss] = {
    "minimax": MINIMAX,
    "non-saturating": NON_SATURATING,
    "wasserstein": WASSERSTEIN,
    "hinge": HINGE,
}
_MAX_SAMPLES, _NUM_NEIGHBORS = 2000, 5
_BASELINE_METRICS = ("Fréchet distance of features", "modes covered", "mmd")


@dataclass(frozen=True, kw_only=True)
class MLPGANSpec(Config, Tagged):
    """Fully connected generator and critic."""

    name: ClassVar[str] = "mlp"

    hidden_dims: Annotated[_HiddenDims, MaxLength(20)] = ()
    """Width of each hidden layer. Defaults to 128 128 128 for vectors and 256 256 for images and series."""


@dataclass(frozen=True, kw_only=True)
class CNNGANSpec(Config, Tagged):
    """Convolutional generator and critic, for images and series."""

    name: ClassVar[str] = "cnn"

    channels: Annotated[int, Range(1, 10**4)] = 32
    """Channels after the critic's first convolution; each downsampling doubles them."""


@dataclass(frozen=True, kw_only=True)
class GANRecipe(GenerativeRecipe):
    """Train a generative adversarial network, and measure how well its samples cover the data."""

    name: ClassVar[str] = "gan"

    model: MLPGANSpec | CNNGANSpec = field(default_factory=MLPGANSpec)
    """Architecture of generator and critic."""
    data: Annotated[str, MaxLength(4096)] = "ring"
    latent_dim: Annotated[int, Range(1, 10**4)] = 16
    """Dimension of the generator's noise."""
    gan_loss: Literal["non-saturating", "minimax", "wasserstein", "hinge"] = "non-saturating"
    """Loss of generator and critic."""
    gradient_penalty: Annotated[float, Range(0, 1e6)] | None = None
    """Weight of the gradient penalty: WGAN-GP for wasserstein, else R1. Defaults to 0.1 for vectors, 1 for images."""
    conditional: bool = False
    """Condition generator and critic on the labels."""
    spectral_norm: bool = False
    """Apply spectral normalization to the critic."""
    critic_learning_rate: Annotated[float, Range(0, 1)] = 1e-3
    """Learning rate of the critic."""
    weight_decay: _NonNegative = 0.0
    betas: _Betas = (0.5, 0.99)
    schedule: Literal["one-cycle", "cosine", "linear", "constant", "warmup-stable-decay"] = "constant"
    warmup_ratio: _WarmupRatio = None
    ema_decay: _Decay = 0.995

    def setup(self) -> TrainingSetup[GenerativeSplits]:
        """Loads the observations and builds generator and critic."""
        splits = self.load_splits()
        if self.conditional and splits.train_labels is None:
            raise ValueError(f"conditional=True needs labels, {self.data} has none")
        if (smallest := min(len(splits.evaluation), len(splits.test))) < 2:
            raise ValueError(f"every split needs at least 2 observations to compare samples with, got {smallest}")
        recipe = self._with_data_defaults(splits.spec)
        labels, levels = splits.train_labels if self.conditional else None, splits.dequantizer
        model = recipe._build(splits.spec).fit_normalizer(splits.train, labels=labels)
        if levels is not None:
            model.set_normalizer_range(levels.low, levels.high)
        return recipe.generative_setup(
            model,
            splits,
            optimizer_steps=partial(recipe._optimizer_steps, model),
            evaluate=partial(_evaluate, splits=splits),
            claims=partial(self._claims, observation_shape=splits.shape),
            labels=labels,
            monitor="mmd",
            dequantize=False,
        )

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        spec = DataSpec.from_config(model_config)
        return self._with_data_defaults(spec)._build(spec)

    def finish(self, run: Run, setup: TrainingSetup[GenerativeSplits]) -> Mapping[str, Any]:
        """Compares samples, the training data and a Gaussian with the test split."""
        splits, model = setup.data, _as_gan(setup.model).eval()
        n = min(_MAX_SAMPLES, 4 * len(splits.test))
        labels = sample_labels(n, model.frequencies, seed=self.seed, stream=1, first=0)
        samples = model.sample(n, self.seed, labels=labels).cpu()
        rows = splits.train.flatten(1).double()
        gaussian = gaussian_density(rows.mean(0), rows.T.cov() + 1e-9 * torch.eye(rows.shape[1], dtype=torch.float64))
        compared = {
            "samples": (samples, labels),
            "training data": (splits.train[:_MAX_SAMPLES], splits.train_labels if self.conditional else None),
            "Gaussian": (gaussian.sample(n, seed=0), None),
        }
        classifier = _train_feature_classifier(splits)
        metrics = {name: _sample_metrics(*pair, splits, classifier) for name, pair in compared.items()}
        _save_samples_figure(run, model, splits, seed=self.seed)
        if self.conditional and len(splits.shape) > 1:
            _save_label_samples(run, model, splits, seed=self.seed)
        is_table = len(splits.shape) == 1
        summary = compare_with_baselines(
            f"maximum mean discrepancy of the samples to the test data{' (standardized columns)' * is_table}",
            metrics["samples"]["mmd"],
            {"Gaussian": metrics["Gaussian"]["mmd"]},
            higher_is_better=False,
            model="the GAN",
        )
        shown = [name for name in _BASELINE_METRICS if name in metrics["samples"]]
        return {
            "summary": f"{summary} The training data itself has {metrics['training data']['mmd']:.4g}.",
            "lead_figures": _lead_figures(run),
            "test": {name: {"value": value} for name, value in metrics["samples"].items()},
            "baselines": {
                f"{kind}, {name}": metrics[kind][name] for kind in ("training data", "Gaussian") for name in shown
            },
            "metrics of the training data": metrics["training data"],
            "metrics of a Gaussian": metrics["Gaussian"],
            "examples": splits.counts,
            "parameters": sum(p.numel() for p in model.parameters()),
            "warnings": list(splits.warnings),
        }

    def _with_data_defaults(self, spec: DataSpec) -> GANRecipe:
        """The recipe with the options for vectors, or for images and series."""
        vectors, model = len(spec.shape) == 1, self.model
        if isinstance(model, MLPGANSpec) and not model.hidden_dims:
            model = MLPGANSpec(hidden_dims=(128, 128, 128) if vectors else (256, 256))
        recipe = replace(self, model=model).with_defaults(
            gradient_penalty=0.1 if vectors else 1.0,
            batch_size=256 if vectors else 64,
            learning_rate=1e-3 if vectors else 5e-4,
        )
        return recipe if recipe.epochs else recipe.with_defaults(steps=6000 if vectors else 4000)

    def _build(self, spec: DataSpec) -> GAN:
        _check_parameter_count([partial(self._build_gan, spec)])
        return self._build_gan(spec)

    def _build_gan(self, spec: DataSpec) -> GAN:
        wrap_critic = spectral_norm if self.spectral_norm else None
        num_classes = len(spec.classes) if self.conditional else 0
        output_activation = identity if spec.dequantizer is None else torch.tanh
        if isinstance(self.model, CNNGANSpec):
            if len(spec.shape) not in (2, 3):
                raise ValueError(f"model cnn needs images or series, got shape {spec.shape}: use model mlp")
            return cnn_gan(
                spec.shape,
                latent_dim=self.latent_dim,
                channels=self.model.channels,
                num_classes=num_classes,
                output_activation=output_activation,
                wrap_critic=wrap_critic,
            )
        return mlp_gan(
            spec.shape,
            latent_dim=self.latent_dim,
            hidden_dims=self.model.hidden_dims,
            num_classes=num_classes,
            output_activation=output_activation,
            wrap_critic=wrap_critic,
        )

    def _optimizer_steps(self, model: GAN, steps: int) -> list[OptimizerStep]:
        critic = replace(self, learning_rate=self.critic_learning_rate).optimizer_step(
            model.critic, self._critic_loss, steps=steps, params=model.critic.parameters()
        )
        generator = self.optimizer_step(
            model.generator, self._generator_loss, steps=steps, params=model.generator.parameters()
        )
        return [replace(critic, name="critic"), replace(generator, name="generator")]

    def _critic_loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Loss of the critic with its gradient penalty."""
        gan, labels = _as_gan(model), batch[1] if len(batch) > 1 else None
        real, critic = gan.normalizer(batch[0]), partial(gan.critic_scores, labels=labels)
        with torch.no_grad():
            fake = gan.generate(torch.randn(len(real), self.latent_dim).to(real), labels=labels)
        both = None if labels is None else torch.cat([labels, labels])
        scores = gan.critic_scores(torch.cat([real, fake]), labels=both)
        loss = _GAN_LOSSES[self.gan_loss].critic(scores[: len(real)], scores[len(real) :])
        if not self.gradient_penalty:
            return {"loss": loss}
        if self.gan_loss == "wasserstein":
            penalty = gradient_penalty(critic, real, fake, torch.rand(len(real)).to(real))
        else:
            penalty = r1_penalty(critic, real)
        return {"loss": loss + self.gradient_penalty * penalty, "gradient_penalty": penalty}

    def _generator_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        gan, labels = _as_gan(model), batch[1] if len(batch) > 1 else None
        z = torch.randn(len(batch[0]), self.latent_dim).to(batch[0])
        scores = gan.critic_scores(gan.generate(z, labels=labels), labels=labels)
        return _GAN_LOSSES[self.gan_loss].generator(scores)

    def _claims(self, model: nn.Module, observation_shape: tuple[int, ...]) -> Iterator[Claim]:
        """Generator and critic treat examples independently."""
        if not self.conditional:
            gan, example = _as_gan(model), shape(" ".join(map(str, ("b", *observation_shape))))
            yield Claim(batch_independence(), gan.critic_scores, example, name="critic")
            yield Claim(batch_independence(), gan.generate, shape(f"b {self.latent_dim}"), name="generator")


def _evaluate(model: nn.Module, splits: GenerativeSplits) -> dict[str, float]:
    """Maximum mean discrepancy between samples and held-out observations."""
    data, scale = splits.evaluation[:_MAX_SAMPLES], _feature_scale(splits)
    samples = _as_gan(model).sample(min(_MAX_SAMPLES, len(data)), seed=0).cpu()
    return {"mmd": _mmd(samples / scale, data / scale)}


def _mmd(x: Tensor, data: Tensor) -> float:
    """Maximum mean discrepancy of standardized samples and observations."""
    rows = data.flatten(1)
    width = median_width(rows) if bool((rows != rows[0]).any()) else 1.0
    return mmd(x.flatten(1), rows, kernel=partial(gaussian_kernel, width=width / 4))


def _sample_metrics(
    x: Tensor, labels: Tensor | None, splits: GenerativeSplits, classifier: _FeatureClassifier | None
) -> dict[str, float]:
    """Distances between samples and the test split, and coverage. The columns of a table are standardized."""
    x, data = x.reshape(-1, *splits.shape), splits.test[:_MAX_SAMPLES]
    metrics: dict[str, float] = {}
    if classifier is not None:
        metrics |= classifier.metrics(x, data, labels=None if labels is None else labels[:_MAX_SAMPLES])
    scale = _feature_scale(splits)
    rows, test = (x.to(data) / scale).flatten(1), (data / scale).flatten(1)
    metrics["mmd"] = _mmd(rows, test)
    if min(len(x), len(data)) > _NUM_NEIGHBORS:
        neighbors = neighbor_coverage(test, rows, k=_NUM_NEIGHBORS)
        metrics |= {"precision": neighbors.precision, "coverage": neighbors.coverage}
    if min(len(x), len(data)) > test.shape[1]:
        metrics["Fréchet distance"] = frechet_distance(rows, test)
    if isinstance(splits.density, GaussianMixture) and len(splits.density.weights) <= 64:
        scale = float(splits.density.covariances[0].diagonal().max().sqrt())
        modes = mode_coverage(x.flatten(1), splits.density.means, scale=scale)
        metrics |= {"modes covered": modes.coverage, "samples near a mode": modes.quality}
        if modes.quality:
            metrics["KL over modes"] = modes.divergence()
    return metrics


def _as_gan(model: nn.Module) -> GAN:
    if not isinstance(model, GAN):
        raise TypeError(f"expected a GAN, got {type(model).__name__}")
    return model
