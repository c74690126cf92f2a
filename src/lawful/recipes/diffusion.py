"""Diffusion models: noise paths, networks and the recipe."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful._json import Config, Range, Requires, Tagged
from lawful.blocks import Standardize
from lawful.data import Batch
from lawful.functions.random import normal_noise
from lawful.inference.metrics.intervals import bootstrap
from lawful.laws import Claim, batch_independence, shape
from lawful.losses.diffusion import (
    DiscreteTime,
    LogNormal,
    LogUniform,
    NoiseLevelDistribution,
    UniformTime,
    stratified_uniform,
)
from lawful.models.generative import (
    DiffusionModel,
    DiffusionSampling,
    NoisyClassifier,
    PatchTransformer,
    TimeMLP,
    UNet,
)
from lawful.probe import figures
from lawful.recipes.data import DataSpec, GenerativeSplits
from lawful.recipes.generative import (
    _MAX_EVAL_EXAMPLES,
    GenerativeRecipe,
    _density_baselines,
    _lead_figures,
    _likelihood_metrics,
    _likelihood_summary,
    _log_likelihood,
    _save_label_samples,
    _save_samples_figure,
)
from lawful.recipes.optimization import _Decay, _NonNegative, _WarmupRatio
from lawful.solvers.diffusion import (
    DENOISED,
    FLOW,
    NOISE,
    SCORE,
    VELOCITY,
    GaussianPath,
    Prediction,
    ProbabilityFlowLikelihood,
    cosine_path,
    ddpm_path,
    edm,
    preconditioned,
    rectified,
    sub_variance_preserving,
    variance_exploding,
    variance_preserving,
)
from lawful.training import Run, TrainingSetup
from lawful.training.registry import _check_parameter_count

_PATHS: dict[str, Callable[[], GaussianPath]] = {
    "edm": edm,
    "ve": variance_exploding,
    "vp": variance_preserving,
    "sub-vp": sub_variance_preserving,
    "ddpm": ddpm_path,
    "cosine": cosine_path,
    "rectified": rectified,
}
_PREDICTIONS = {"noise": NOISE, "denoised": DENOISED, "velocity": VELOCITY, "flow": FLOW, "score": SCORE}


# ---------------------------------------------------------------- options


@dataclass(frozen=True, kw_only=True)
class LogNormalLevelsSpec(Config, Tagged):
    """Log-normal noise levels, as in EDM."""

    name: ClassVar[str] = "log-normal"

    noise_level_mean: Annotated[float, Range(-20, 20)] = -1.2
    """Mean of the log noise level, relative to the standard deviation of the data."""
    noise_level_std: Annotated[float, Range(0.01, 20)] = 1.4
    """Standard deviation of the log noise level."""


@dataclass(frozen=True, kw_only=True)
class LogUniformLevelsSpec(Config, Tagged):
    """Uniform in the log noise level."""

    name: ClassVar[str] = "log-uniform"


@dataclass(frozen=True, kw_only=True)
class UniformTimeSpec(Config, Tagged):
    """Uniform in time."""

    name: ClassVar[str] = "uniform"


@dataclass(frozen=True, kw_only=True)
class DiscreteTimeSpec(Config, Tagged):
    """The 1000 discrete steps of DDPM."""

    name: ClassVar[str] = "discrete"


_NoiseLevelsSpec = LogNormalLevelsSpec | LogUniformLevelsSpec | UniformTimeSpec | DiscreteTimeSpec
"""Distributions of the noise levels in training."""


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig(Config):
    """Noise path, prediction target and noise levels."""

    path: Literal["edm", "ve", "vp", "sub-vp", "ddpm", "cosine", "rectified"] = "edm"
    """Noise path: variance exploding (edm, ve), variance preserving (vp, ddpm, cosine) or rectified flow."""
    prediction: Literal["edm", "noise", "denoised", "velocity", "flow", "score"] = "edm"
    """Prediction of the network: EDM's preconditioned target, noise, data, v, flow matching velocity or score."""
    noise_levels: _NoiseLevelsSpec = field(default_factory=LogNormalLevelsSpec)
    """Distribution of the noise levels in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prediction in ("noise", "score") and self.path in ("cosine", "rectified"):
            raise ValueError(
                f"path {self.path} ends in pure noise, where prediction={self.prediction} does not determine the data: "
                "use edm, denoised, velocity or flow"
            )

    def build_path(self) -> GaussianPath:
        """Builds the noise path."""
        return _PATHS[self.path]()

    def build_prediction(self, sigma_data: float) -> Prediction:
        """Builds the prediction target."""
        return preconditioned(sigma_data) if self.prediction == "edm" else _PREDICTIONS[self.prediction]

    def build_noise_levels(self) -> NoiseLevelDistribution:
        """Builds the distribution of the noise levels."""
        match self.noise_levels:
            case LogNormalLevelsSpec(noise_level_mean=mean, noise_level_std=std):
                return LogNormal(mean=mean, std=std)
            case LogUniformLevelsSpec():
                return LogUniform()
            case UniformTimeSpec():
                return UniformTime()
            case DiscreteTimeSpec():
                return DiscreteTime()


class _NetworkSpec(Config, Tagged):
    """Base class of the network specifications."""

    steps: ClassVar[int] = 1000
    """Default number of training steps."""
    batch_size: ClassVar[int] = 64
    """Default batch size."""
    learning_rate: ClassVar[float] = 2e-3
    """Default learning rate."""


@dataclass(frozen=True, kw_only=True)
class AutoNetworkSpec(_NetworkSpec):
    """U-Net for images and series, else MLP."""

    name: ClassVar[str] = "auto"


@dataclass(frozen=True, kw_only=True)
class TimeMLPSpec(_NetworkSpec):
    """Residual MLP, for vectors."""

    name: ClassVar[str] = "mlp"
    steps: ClassVar[int] = 2000
    batch_size: ClassVar[int] = 512
    learning_rate: ClassVar[float] = 3e-3

    dim: Annotated[int, Range(1, 10**5)] = 128
    """Width of the network."""
    num_layers: Annotated[int, Range(1, 1000)] = 3
    """Number of residual blocks."""


@dataclass(frozen=True, kw_only=True)
class UNetSpec(_NetworkSpec):
    """U-Net, for images and series."""

    name: ClassVar[str] = "unet"

    channels: Annotated[int, Range(1, 10**5)] = 32
    """Channels at full resolution."""
    num_blocks: Annotated[int, Range(1, 1000)] = 1
    """Residual blocks per resolution."""


@dataclass(frozen=True, kw_only=True)
class PatchTransformerSpec(_NetworkSpec):
    """Transformer on patches of images and series."""

    name: ClassVar[str] = "transformer"

    dim: Annotated[int, Range(1, 10**5)] = 64
    """Width of the transformer."""
    num_layers: Annotated[int, Range(1, 1000)] = 4
    """Number of layers."""
    patch_size: Annotated[int, Range(1, 10**4)] = 2
    """Side of a patch."""


_DenoiserSpec = AutoNetworkSpec | TimeMLPSpec | UNetSpec | PatchTransformerSpec
"""Networks of the diffusion recipe."""
_SCORE_BATCH, _SAMPLE_BATCH = 4, 9
"""Observations scored, and images drawn, at a time: small enough for the progress to be shown every few seconds."""


# ---------------------------------------------------------------- the recipe


@dataclass(frozen=True, kw_only=True)
class DiffusionRecipe(DiffusionConfig, GenerativeRecipe):
    """Train a diffusion model: samples, likelihoods and inpainting of tables, series, images and points."""

    name: ClassVar[str] = "diffusion"

    model: _DenoiserSpec = field(default_factory=AutoNetworkSpec)
    """Denoising network."""
    conditional: bool = False
    """Condition the network on the labels, for classifier-free guidance."""
    label_dropout: Annotated[float, Range(0, 1), Requires(conditional=True)] = 0.15
    """Probability of dropping a label in training of a conditional model."""
    classifier: bool = False
    """Also train a classifier of noisy data, for classifier guidance of an unconditional model."""
    guidance_scale: Annotated[float, Range(0, 1000)] = 1.0
    """Guidance scale of conditional samples; 1 samples the conditional distribution."""
    sampling_steps: Annotated[int, Range(1, 10**5)] = 32
    """Number of sampling steps."""
    num_scored: Annotated[int, Range(1, 10**7)] = 64
    """Number of test observations whose log-likelihood is computed after training."""
    weight_decay: _NonNegative = 0.0
    warmup_ratio: _WarmupRatio = 0.05
    grad_clip_norm: _NonNegative = 1.0
    ema_decay: _Decay = 0.995
    num_evals: Annotated[int, Range(1, 10**6)] | None = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.conditional and self.classifier:
            raise ValueError("conditional and classifier exclude each other: set one of them")
        if self.guidance_scale != 1 and not self._uses_labels:
            raise ValueError(f"guidance_scale={self.guidance_scale:g} needs conditional=True or classifier=True")

    def setup(self) -> TrainingSetup[GenerativeSplits]:
        """Loads the observations and builds the model."""
        splits = self.load_splits()
        recipe = self._with_data_defaults(splits.spec)
        model = recipe._build(splits.spec)
        model.fit_normalizer(splits.dequantize(splits.train))
        return recipe.generative_setup(
            model,
            splits,
            optimizer_steps=lambda steps: [
                recipe.optimizer_step(model, self._loss, steps=steps, params=model.parameters())
            ],
            evaluate=partial(self._evaluate, splits=splits),
            claims=partial(_claims, observation_shape=splits.shape),
            labels=splits.train_labels if self._uses_labels else None,
        )

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        spec = DataSpec.from_config(model_config)
        return self._with_data_defaults(spec)._build(spec)

    def finish(self, run: Run, setup: TrainingSetup[GenerativeSplits]) -> Mapping[str, Any]:
        """Compares the likelihood of test observations with simple densities, and draws samples."""
        splits, model, n = setup.data, _as_diffusion(setup.model), self.num_scored
        labels = None if splits.test_labels is None else splits.test_labels[:n]
        scored = replace(splits, test=splits.test[:n], test_labels=labels)
        size = _SCORE_BATCH if len(splits.shape) > 1 else None
        score = partial(_log_likelihood, model, scored.test, dequantizer=splits.dequantizer, batch_size=size)
        nats = score()
        dim = math.prod(splits.shape)
        metrics = _likelihood_metrics(nats, dim=dim, dequantizer=splits.dequantizer, is_bound=False)
        if self.conditional:
            metrics["log-likelihood given the labels"] = bootstrap(torch.mean, score(labels=labels).value).json()
        if model.classifier is not None:
            metrics["accuracy of the classifier at noise level 0.1"] = _classifier_accuracy(model, splits)
        test_labels = splits.test_labels if self.conditional else None
        self._plot(run, model, splits)
        baselines = _density_baselines(scored)
        return {
            "summary": _likelihood_summary(
                metrics, baselines, model="the diffusion model", num_scored=len(scored.test)
            ),
            "lead_figures": _lead_figures(run),
            "test": {**metrics, "denoising error": self._fixed_noise_loss(model, splits.test, test_labels, splits)},
            "baselines": baselines,
            "scored": len(scored.test),
            "network evaluations per likelihood": nats.evaluations,
            "error of a likelihood, nats": float(nats.error.mean()),
            "examples": splits.counts,
            "parameters": sum(p.numel() for p in model.parameters()),
            "warnings": list(splits.warnings),
        }

    @property
    def _uses_labels(self) -> bool:
        return self.conditional or self.classifier

    def _with_data_defaults(self, spec: DataSpec) -> DiffusionRecipe:
        """The recipe with the network and the optimization options for the data."""
        vectors, model = len(spec.shape) == 1, self.model
        if isinstance(model, AutoNetworkSpec):
            model = TimeMLPSpec() if vectors else UNetSpec()
        if vectors and not isinstance(model, TimeMLPSpec):
            raise ValueError(f"model {model.name} needs images or series, got shape {spec.shape}: use model mlp")
        if self._uses_labels and not spec.classes:
            option = "classifier" if self.classifier else "conditional"
            raise ValueError(f"{option}=True needs labels, {self.data} has none")
        recipe = replace(self, model=model).with_defaults(
            batch_size=model.batch_size, learning_rate=model.learning_rate
        )
        return recipe if recipe.epochs else recipe.with_defaults(steps=model.steps)

    def _build(self, spec: DataSpec) -> DiffusionModel:
        _check_parameter_count([partial(self._build_network, spec)])
        channels = (spec.shape[0], *[1] * len(spec.shape[1:]))
        return DiffusionModel(
            self._build_network(spec),
            shape=spec.shape,
            path=self.build_path(),
            prediction=self.build_prediction,
            num_classes=len(spec.classes) if self.conditional else 0,
            normalizer=Standardize(spec.shape if len(spec.shape) == 1 else channels),
            sampling=DiffusionSampling(
                steps=self.sampling_steps, guidance_scale=self.guidance_scale, classifier=self._build_classifier(spec)
            ),
            likelihood=ProbabilityFlowLikelihood(num_probes=4),
        )

    def _build_classifier(self, spec: DataSpec) -> NoisyClassifier | None:
        if not self.classifier:
            return None
        return NoisyClassifier(TimeMLP(spec.shape, out_dim=len(spec.classes)), path=self.build_path())

    def _build_network(self, spec: DataSpec) -> nn.Module:
        num_classes = len(spec.classes) if self.conditional else 0
        match self.model:
            case UNetSpec(channels=channels, num_blocks=num_blocks):
                return UNet(spec.shape, channels=channels, num_blocks=num_blocks, num_heads=1, num_classes=num_classes)
            case PatchTransformerSpec(dim=dim, num_layers=num_layers, patch_size=patch_size):
                return PatchTransformer(
                    spec.shape,
                    dim=dim,
                    num_layers=num_layers,
                    patch_size=patch_size,
                    num_heads=math.gcd(4, dim),
                    num_classes=num_classes,
                )
            case TimeMLPSpec(dim=dim, num_layers=num_layers):
                return TimeMLP(spec.shape, dim=dim, num_layers=num_layers, num_classes=num_classes)
        raise ValueError(f"model {self.model.name} has no network")

    def _loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Denoising error at random noise levels, plus the loss of the classifier."""
        diffusion, noise_levels = _as_diffusion(model), self.build_noise_levels()
        x, labels = batch[0], batch[1] if len(batch) > 1 else None
        if diffusion.classifier is None or labels is None:
            return diffusion.loss(x, labels, noise_levels=noise_levels, label_dropout=self.label_dropout)
        z, t = diffusion.normalizer(x), noise_levels.times(stratified_uniform(len(x)), diffusion.path)
        classifier_loss = partial(diffusion.classifier.loss, z, labels, t)
        return diffusion.loss(x, noise_levels=noise_levels) + classifier_loss(noise=torch.randn_like(z))

    def _fixed_noise_loss(self, model: nn.Module, x: Tensor, labels: Tensor | None, splits: GenerativeSplits) -> float:
        """Denoising error with the same noise at every evaluation."""
        x = splits.dequantize(x[:_MAX_EVAL_EXAMPLES], seed=1)
        batch = (x, labels[:_MAX_EVAL_EXAMPLES]) if self._uses_labels and labels is not None else (x,)
        with torch.random.fork_rng(devices=()), torch.no_grad():
            torch.manual_seed(1)
            return float(self._loss(model, batch))

    def _evaluate(self, model: nn.Module, splits: GenerativeSplits) -> dict[str, float]:
        return {"loss": self._fixed_noise_loss(model, splits.evaluation, splits.evaluation_labels, splits)}

    def _plot(self, run: Run, model: DiffusionModel, splits: GenerativeSplits) -> None:
        """Writes samples, samples per label, and for points the sampling trajectories and the score."""
        vectors, plots = len(splits.shape) == 1, {}
        batch_size = None if vectors else _SAMPLE_BATCH
        _save_samples_figure(run, model, splits, seed=self.seed, batch_size=batch_size)
        if self._uses_labels and not vectors:
            _save_label_samples(run, model, splits, seed=self.seed, batch_size=batch_size)
        if splits.shape == (2,):
            plots["trajectories"] = figures.trajectories(model.trajectory(60, self.seed), data=splits.test)
            low, high = float(splits.test.min()), float(splits.test.max())
            plots["score"] = figures.score_field(model.score, low=low, high=high, title="score at noise level 0.1")
        for name, figure in plots.items():
            figures.save(figure, run.figures / f"{name}.png", root=run.root)


@torch.no_grad()
def _classifier_accuracy(model: DiffusionModel, splits: GenerativeSplits, *, noise_level: float = 0.1) -> float:
    """Returns the accuracy of the guidance classifier on noisy test observations."""
    if model.classifier is None or splits.test_labels is None:
        return math.nan
    z, t = model.normalizer(splits.test), model.path.time_of(torch.tensor(noise_level, dtype=torch.float64))
    noise = normal_noise(len(z), *z.shape[1:], seed=1, dtype=z.dtype)
    predicted = model.classifier(model.path.add_noise(z, noise, t), t).argmax(-1)
    return float((predicted == splits.test_labels).double().mean())


def _claims(model: nn.Module, *, observation_shape: tuple[int, ...]) -> Iterator[Claim]:
    """The denoiser treats observations independently."""
    diffusion = _as_diffusion(model)

    def denoise(x: Tensor) -> Tensor:
        return diffusion.denoise()(x, torch.tensor(0.5, dtype=torch.float64))

    example = shape(" ".join(map(str, ("b", *observation_shape))))
    yield Claim(batch_independence(), denoise, example, name="denoiser")


def _as_diffusion(model: nn.Module) -> DiffusionModel:
    if not isinstance(model, DiffusionModel):
        raise TypeError(f"expected a DiffusionModel, got {type(model).__name__}")
    return model
