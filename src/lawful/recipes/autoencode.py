"""Autoencoders: data through a bottleneck and back, from clean or corrupted inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful._json import Config, Range, Tagged
from lawful.blocks import Standardize
from lawful.data import Batch
from lawful.functions.pca import PrincipalComponents
from lawful.inference.metrics.intervals import bootstrap
from lawful.laws import Claim, batch_independence, shape
from lawful.models.generative import (
    PCA,
    Autoencoder,
    AutoencoderSampler,
    GaussianCorruption,
    MaskingCorruption,
    cnn_autoencoder,
    mlp_autoencoder,
)
from lawful.probe import figures
from lawful.recipes.data import DataSpec, GenerativeSplits
from lawful.recipes.generative import (
    _NUM_RECONSTRUCTIONS,
    GenerativeRecipe,
    _evenly_spaced,
    _latents_figure,
    _lead_figures,
    _mean_baseline,
    _pca_baseline,
    _powers_of_two,
    _save_samples_figure,
    _squared_errors,
)
from lawful.recipes.optimization import _Betas, _NonNegative, _PositiveInt, _Steps
from lawful.recipes.supervised import _HiddenDims
from lawful.training import Run, TrainingSetup, compare_with_baselines
from lawful.training.registry import _check_parameter_count


@dataclass(frozen=True, kw_only=True)
class MLPAutoencoderSpec(Config, Tagged):
    """Fully connected layers, for any data."""

    name: ClassVar[str] = "mlp"

    hidden_dims: _HiddenDims = (128,)
    """Width of each hidden layer of the encoder; the decoder mirrors it."""


@dataclass(frozen=True, kw_only=True)
class CNNAutoencoderSpec(Config, Tagged):
    """Convolutions, for images and series."""

    name: ClassVar[str] = "cnn"

    channels: Annotated[int, Range(1, 10**6)] = 16
    """Channels after the first convolution; each downsampling doubles them."""
    num_downsamples: Annotated[int, Range(1, 20)] = 2
    """Number of times the resolution is halved."""


@dataclass(frozen=True, kw_only=True)
class NoCorruptionSpec(Config, Tagged):
    """Clean inputs."""

    name: ClassVar[str] = "none"


@dataclass(frozen=True, kw_only=True)
class GaussianCorruptionSpec(Config, Tagged):
    """Gaussian noise."""

    name: ClassVar[str] = "gaussian"

    corruption_std: Annotated[float, Range(0, 1e6)] = 0.5
    """Standard deviation of the noise, in standard deviations of the data."""


@dataclass(frozen=True, kw_only=True)
class MaskingCorruptionSpec(Config, Tagged):
    """Random entries set to the mean."""

    name: ClassVar[str] = "masking"

    mask_fraction: Annotated[float, Range(0, 1)] = 0.5
    """Fraction of the masked entries."""


_CorruptionSpec = NoCorruptionSpec | GaussianCorruptionSpec | MaskingCorruptionSpec
"""Corruptions of a denoising autoencoder."""


@dataclass(frozen=True, kw_only=True)
class AutoencodeRecipe(GenerativeRecipe):
    """Train an autoencoder or a denoising autoencoder, and compare its bottleneck with PCA."""

    name: ClassVar[str] = "autoencode"

    model: MLPAutoencoderSpec | CNNAutoencoderSpec = field(default_factory=MLPAutoencoderSpec)
    """Architecture of encoder and decoder."""
    latent_dim: Annotated[int, Range(1, 10**5)] = 8
    """Dimension of the latent space."""
    corruption: _CorruptionSpec = field(default_factory=NoCorruptionSpec)
    """Corruption of the inputs in training; the model learns to undo it."""
    steps: _Steps = 1500
    """Number of training steps."""
    batch_size: _PositiveInt | None = 64
    """Examples per step."""
    learning_rate: _NonNegative | None = 5e-3
    """Peak learning rate."""
    weight_decay: _NonNegative = 1e-4
    betas: _Betas = None
    schedule: Literal["one-cycle", "cosine", "linear", "constant", "warmup-stable-decay"] = "one-cycle"

    def setup(self) -> TrainingSetup[GenerativeSplits]:
        """Loads the observations and builds the autoencoder."""
        splits = self.load_splits()
        model = self._build(splits.spec)
        autoencoder = model.autoencoder
        autoencoder.fit_normalizer(splits.train)
        return self.generative_setup(
            model,
            splits,
            optimizer_steps=lambda steps: [
                self.optimizer_step(model, self._loss, steps=steps, params=autoencoder.parameters())
            ],
            evaluate=partial(self._evaluate, x=splits.evaluation),
            claims=partial(_claims, observation_shape=splits.shape),
            dequantize=False,
        )

    def finish(self, run: Run, setup: TrainingSetup[GenerativeSplits]) -> Mapping[str, Any]:
        """Fits a Gaussian to the latents, evaluates the reconstructions of the test split and writes figures."""
        model, splits = _as_sampler(setup.model).eval(), setup.data
        with torch.no_grad():
            gaussian = _fit_latent_gaussian(model.autoencoder.encode(splits.train))
            _latent_gaussian(model).load_state_dict(gaussian.state_dict())
            run.save_weights(model.state_dict())
            return self._results(run, model, splits)

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        return self._build(DataSpec.from_config(model_config))

    def _build(self, spec: DataSpec) -> AutoencoderSampler:
        """The autoencoder with a Gaussian over latents, which is fitted after training."""
        _check_parameter_count([partial(self._build_autoencoder, spec.shape)])
        prior = PCA(shape=(self.latent_dim,))
        return AutoencoderSampler(prior, self._build_autoencoder(spec.shape))

    def _build_autoencoder(self, of: tuple[int, ...]) -> Autoencoder:
        match self.model:
            case MLPAutoencoderSpec(hidden_dims=hidden_dims):
                model = mlp_autoencoder(
                    of, latent_dim=self.latent_dim, hidden_dims=hidden_dims, corruption=self._build_corruption()
                )
            case CNNAutoencoderSpec(channels=channels, num_downsamples=num_downsamples):
                if len(of) not in (2, 3):
                    raise ValueError(f"model cnn needs images or series, got shape {of}: use model mlp")
                model = cnn_autoencoder(
                    of,
                    latent_dim=self.latent_dim,
                    channels=channels,
                    num_downsamples=num_downsamples,
                    corruption=self._build_corruption(),
                )
        if len(of) == 1:  # each column has its own unit
            model.normalizer = Standardize(of)
        return model

    def _build_corruption(self) -> Callable[[Tensor], Tensor]:
        match self.corruption:
            case GaussianCorruptionSpec(corruption_std=std):
                return GaussianCorruption(std)
            case MaskingCorruptionSpec(mask_fraction=fraction):
                return MaskingCorruption(fraction)
            case NoCorruptionSpec():
                return nn.Identity()

    @property
    def _is_denoising(self) -> bool:
        return not isinstance(self.corruption, NoCorruptionSpec)

    def _loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Squared error of the reconstruction, on standardized data; of corrupted inputs it is called objective."""
        return {"objective" if self._is_denoising else "loss": _as_sampler(model).autoencoder.loss(batch[0])}

    @torch.no_grad()
    def _evaluate(self, model: nn.Module, x: Tensor) -> dict[str, float]:
        """Squared error of the reconstruction, on standardized data: of clean and of corrupted inputs."""
        autoencoder = _as_sampler(model).autoencoder
        metrics = {"loss": float(autoencoder.loss(x))}
        if self._is_denoising:
            y, normalizer = autoencoder(_corrupt(autoencoder, x, seed=1)), autoencoder.normalizer
            metrics["objective"] = float((normalizer(y) - normalizer(x)).square().mean())
        return metrics

    def _results(self, run: Run, model: AutoencoderSampler, splits: GenerativeSplits) -> dict[str, Any]:
        autoencoder, test = model.autoencoder, splits.test
        errors, mean = _squared_errors(autoencoder(test), splits), _mean_baseline(splits)
        dims = sorted({*_powers_of_two(math.prod(splits.shape)), self.latent_dim})
        pca = _pca_baseline(splits, dims)
        own = _principal_direction_errors(model, splits, [k for k in dims if k <= self.latent_dim])
        curves = {"PCA": pca, f"principal directions of {self.latent_dim} latents": own}
        plots = {
            "error by latent dimension": figures.bottleneck_curve(
                {name: [(int(k), error) for k, error in curve.items()] for name, curve in curves.items()}, mean=mean
            ),
        }
        results: dict[str, Any] = {
            "test": {
                "squared error": bootstrap(torch.mean, errors).json(),
                "explained variance ratio": {"value": 1 - float(errors.mean()) / mean},
            },
            "baselines": {
                "mean, squared error": mean,
                f"PCA with {self.latent_dim} components, squared error": pca[str(self.latent_dim)],
            },
            "squared error by latent dimension": {"PCA": pca, "principal directions of the latents": own},
            "examples": splits.counts,
            "parameters": sum(p.numel() for p in model.parameters()),
            "warnings": list(splits.warnings),
        }
        n = _NUM_RECONSTRUCTIONS
        rows = {"data": _evenly_spaced(test, n), "reconstruction": _evenly_spaced(autoencoder(test), n)}
        if self._is_denoising:
            corrupted = _corrupt(autoencoder, test, seed=self.seed)
            denoised = autoencoder(corrupted)
            for name, y in (("corrupted", corrupted), ("denoised", denoised)):
                error = _squared_errors(y, splits)
                results["test"][f"squared error, {name}"] = bootstrap(torch.mean, error).json()
            rows = {
                "data": _evenly_spaced(test, n),
                "corrupted": _evenly_spaced(corrupted, n),
                "denoised": _evenly_spaced(denoised, n),
            }
        if len(splits.shape) > 1:
            plots["reconstructions"] = figures.reconstructions(*rows.values(), names=[*rows])
        if self.latent_dim > 1:
            latents = _latent_gaussian(model).transform(autoencoder.encode(test))
            names = ("first principal direction of the latents", "second principal direction")
            plots["latents"] = _latents_figure(latents, splits, names=names)
        for name, figure in plots.items():
            figures.save(figure, run.figures / f"{name}.png", root=run.root)
        _save_samples_figure(run, model, splits, seed=self.seed)
        rivals = {"the mean": mean, f"PCA with {self.latent_dim} components": pca[str(self.latent_dim)]}
        return {
            "summary": compare_with_baselines(
                f"squared error of the reconstruction{' (standardized columns)' if test.dim() == 2 else ''} "
                f"through {self.latent_dim} latents, on {len(test):,} test observations",
                results["test"]["squared error"],
                rivals,
                higher_is_better=False,
                model="the autoencoder",
            ),
            "lead_figures": _lead_figures(run),
            **results,
        }


def _fit_latent_gaussian(z: Tensor) -> PCA:
    """Fits a Gaussian to latents, along all principal directions, including directions of zero variance."""
    z = z.double()
    mean = z.mean(0)
    values, axes = torch.linalg.eigh((z - mean).T @ (z - mean) / len(z))
    values, axes = values.flip(0), axes.flip(1)
    values = values.clamp_min(1e-6 * max(float(values.mean()), 1e-30))
    components = PrincipalComponents(len(z), mean, axes.mT, values, float(values.sum()), axes * values.rsqrt())
    return PCA.from_components(components).float()


def _principal_direction_errors(
    model: AutoencoderSampler, splits: GenerativeSplits, dims: list[int]
) -> dict[str, float]:
    """Returns the reconstruction error with the first principal directions of the latents only."""
    prior = _latent_gaussian(model)
    z, errors = prior.transform(model.autoencoder.encode(splits.test)), {}
    for k in dims:
        truncated = torch.cat([z[:, :k], torch.zeros_like(z[:, k:])], 1)
        y = model.autoencoder.decode(prior.inverse_transform(truncated))
        errors[str(k)] = float(_squared_errors(y, splits).mean())
    return errors


@torch.no_grad()
def _corrupt(autoencoder: Autoencoder, x: Tensor, *, seed: int) -> Tensor:
    """Returns corrupted observations; the corruption depends on the seed only."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return autoencoder.normalizer.inverse(autoencoder.corruption(autoencoder.normalizer(x)))


def _claims(model: nn.Module, *, observation_shape: tuple[int, ...]) -> Iterator[Claim]:
    """Encoder and decoder treat observations independently."""
    autoencoder = _as_sampler(model).autoencoder
    example = shape(" ".join(map(str, ("b", *observation_shape))))
    yield Claim(batch_independence(), autoencoder, example, name="reconstruction")
    yield Claim(batch_independence(), autoencoder.encode, example, name="latents")


def _latent_gaussian(model: AutoencoderSampler) -> PCA:
    if not isinstance(model.latent_model, PCA):
        raise TypeError(f"expected a Gaussian over latents, got {type(model.latent_model).__name__}")
    return model.latent_model


def _as_sampler(model: nn.Module) -> AutoencoderSampler:
    if not isinstance(model, AutoencoderSampler):
        raise TypeError(f"expected an AutoencoderSampler, got {type(model).__name__}")
    return model
