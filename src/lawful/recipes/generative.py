"""Training setup, likelihoods, baselines and figures of the generative recipes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from torch import Tensor, nn

from lawful._json import Range
from lawful.blocks.modes import eval_mode
from lawful.data import Batch, Dequantizer, ShuffledBatches
from lawful.functions import LogProbEstimate
from lawful.inference.metrics.intervals import bootstrap
from lawful.laws import Claim
from lawful.models.generative import PCA, SupportsELBO, SupportsLogProb, SupportsLogProbEstimate, SupportsSample
from lawful.probe import figures
from lawful.recipes.data import GenerativeDataConfig, GenerativeSplits
from lawful.recipes.optimization import EvaluationConfig, OptimizationConfig, _Betas, _Patience, _WarmupRatio
from lawful.training import OptimizerStep, Recipe, Run, TrainingSetup, compare_with_baselines, track

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_EVAL_EXAMPLES = 2000
"""Maximum number of observations that are evaluated during training."""
_BATCH_SIZE = 256
"""Observations that are scored at a time."""
_LOG_LIKELIHOOD, _LOWER_BOUND, _BITS = "log-likelihood", "lower bound", "bits per dimension"


# ---------------------------------------------------------------- training

_UNUSED_LABELS = "the model does not learn the labels; to sample by label, train with --conditional"


@dataclass(frozen=True, kw_only=True)
class GenerativeRecipe(GenerativeDataConfig, OptimizationConfig, EvaluationConfig, Recipe[GenerativeSplits]):
    """Base class of generative recipes that are trained by gradient descent."""

    betas: _Betas = (0.9, 0.99)
    """Betas of Adam, AdamW (also within muon) and Lion."""
    schedule: Literal["one-cycle", "cosine", "linear", "constant", "warmup-stable-decay"] = "cosine"
    warmup_ratio: _WarmupRatio = 0.02
    """Fraction of the steps used for warmup, and for the decay of warmup-stable-decay."""
    num_evals: Annotated[int, Range(1, 10**6)] | None = 20
    """Number of evaluations during training."""
    patience: _Patience = 0

    def generative_setup(
        self,
        model: nn.Module,
        splits: GenerativeSplits,
        *,
        optimizer_steps: Callable[[int], Sequence[OptimizerStep]],
        evaluate: Callable[[nn.Module], Mapping[str, float]],
        claims: Callable[[nn.Module], Iterable[Claim]],
        labels: Tensor | None = None,
        monitor: str = "loss",
        max_epochs: int | None = None,
        dequantize: bool = True,
        model_config: Mapping[str, Any] | None = None,
    ) -> TrainingSetup[GenerativeSplits]:
        """Builds the training setup of a model.

        Args:
            model: Model, with fitted normalizer.
            splits: Observations.
            optimizer_steps: Returns the losses and optimizers for a number of steps.
            evaluate: Returns validation metrics.
            claims: Returns the laws of the trained model.
            labels: Training labels of a conditional model.
            monitor: Validation metric for early stopping. The weights of its best value are restored if `patience` is
                set or the metric is the loss.
            max_epochs: Maximum number of epochs, which limits `steps`.
            dequantize: Add uniform noise to discrete data in training.
            model_config: Additional entries of `TrainingSetup.model_config`.
        """
        tensors = (splits.train,) if labels is None else (splits.train, labels)
        batch_size = min(self.batch_size or 1, len(splits.train))
        batches = ShuffledBatches(*tensors, batch_size=batch_size, seed=self.seed)
        steps = self.num_steps(len(batches))
        if max_epochs is not None:
            steps = min(steps, max_epochs * len(batches))
        dequantizer = splits.dequantizer if dequantize else None
        unused_labels = splits.classes and labels is None and hasattr(self, "conditional")
        return TrainingSetup(
            model=model,
            optimizer_steps=optimizer_steps(steps),
            batches=batches,
            steps=steps,
            evaluate=evaluate,
            eval_every=self.eval_every(steps, steps_per_epoch=len(batches)),
            monitor=monitor,
            patience=None if splits.validation is None else self.patience or None,
            restore_best=splits.validation is not None and monitor == "loss",
            augment=None if dequantizer is None else partial(_add_uniform_noise, dequantizer=dequantizer),
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=claims,
            model_config={**splits.model_config, **(model_config or {})},
            data_fingerprint=splits.fingerprint,
            notes=(splits.description, *([_UNUSED_LABELS] if unused_labels else [])),
            warnings=splits.warnings,
            data=splits,
        )


def _add_uniform_noise(batch: Batch, dequantizer: Dequantizer) -> Batch:
    """Dequantizes the observations of a batch with PyTorch's global generator."""
    x, *labels = batch
    return (x + dequantizer.width * (torch.rand_like(x) - 0.5), *labels)


# ---------------------------------------------------------------- likelihoods


def _log_likelihood(
    model: object,
    x: Tensor,
    *,
    dequantizer: Dequantizer | None = None,
    labels: Tensor | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> LogProbEstimate:
    """Returns the log-likelihood of each observation, or a lower bound, in nats and in the units of the data.

    Discrete data are dequantized; the noise of row i depends on the seed and i only.

    Args:
        model: Model with a likelihood or a lower bound.
        x: Observations, `n *shape`.
        dequantizer: Quantization levels of discrete data.
        labels: Labels for a conditional model.
        seed: Random seed of the noise.
        batch_size: Number of observations per batch. Defaults to 256.

    Raises:
        ValueError: If the model has no likelihood, or returns a value that is not finite.

    Examples:
        >>> from lawful.models.generative import PCA
        >>> _log_likelihood(PCA(shape=(2,)), torch.zeros(3, 2)).value.shape
        torch.Size([3])
    """
    y = x if dequantizer is None else dequantizer.dequantize(x, seed=seed)
    match model:
        case SupportsLogProbEstimate():
            score = model.log_prob_estimate
        case SupportsLogProb():
            score = partial(_exact_log_prob, model)
        case SupportsELBO():
            score = model.elbo_estimate
        case _:
            raise ValueError(f"{type(model).__name__} has no likelihood: it only draws samples")
    estimate = _score_batches(score, y, labels, seed=seed, batch_size=batch_size or _BATCH_SIZE)
    if not bool(estimate.value.isfinite().all()):
        row = int(estimate.value.isfinite().logical_not().nonzero()[0])
        raise ValueError(f"the model gives row {row} the log-likelihood {float(estimate.value[row])}, expected finite")
    return estimate


@torch.no_grad()
def _exact_log_prob(model: SupportsLogProb, x: Tensor, *, labels: Tensor | None, seed: int) -> LogProbEstimate:
    with eval_mode(model):
        return LogProbEstimate.exact(model.log_prob(x, labels=labels))


def _has_density(model: object) -> bool:
    """Returns whether a model has a log-density or an estimate of it, not only a lower bound."""
    return isinstance(model, SupportsLogProb | SupportsLogProbEstimate)


def _score_batches(
    score: Callable[..., LogProbEstimate],
    x: Tensor,
    labels: Tensor | None,
    *,
    seed: int = 0,
    batch_size: int = _BATCH_SIZE,
) -> LogProbEstimate:
    """Applies a score to observations batch by batch, in float64."""
    parts = [
        score(
            x[i : i + batch_size],
            labels=None if labels is None else labels[i : i + batch_size],
            seed=seed + i,
        )
        for i in track(range(0, len(x), batch_size), f"scoring {len(x):,} observations")
    ]
    value = torch.cat([part.value.detach().double() for part in parts])
    error = torch.cat([part.error.detach().double() for part in parts])
    return LogProbEstimate(value, error, max(part.evaluations for part in parts))


def _likelihood_metrics(
    nats: LogProbEstimate, *, dim: int, dequantizer: Dequantizer | None, is_bound: bool
) -> dict[str, Any]:
    """Returns the mean log-likelihood in nats, and in bits per dimension for discrete data, with intervals."""
    metrics = {_LOWER_BOUND if is_bound else _LOG_LIKELIHOOD: bootstrap(torch.mean, nats.value).json()}
    if dequantizer is not None:
        metrics[_BITS] = bootstrap(torch.mean, dequantizer.bits_per_dim(nats.value, dim)).json()
    return metrics


def _evaluate_likelihood(
    model: object,
    splits: GenerativeSplits,
    *,
    labels: Tensor | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Returns the log-likelihood of the test split, for the results of a run.

    Args:
        model: Model with a likelihood or a lower bound.
        splits: Observations.
        labels: Test labels for a conditional model.
        seed: Random seed of the noise.
    """
    nats = _log_likelihood(model, splits.test, dequantizer=splits.dequantizer, labels=labels, seed=seed)
    dim, is_bound = math.prod(splits.shape), not _has_density(model)
    return _likelihood_metrics(nats, dim=dim, dequantizer=splits.dequantizer, is_bound=is_bound)


# ---------------------------------------------------------------- baselines

_MAX_COVARIANCE_DIM = 4096


def _density_baselines(splits: GenerativeSplits) -> dict[str, float]:
    """Returns the mean log-likelihood of simple densities on the test split, in nats or in bits per dimension.

    The baselines are an independent Gaussian per feature, a full Gaussian, and the true density if it is known; for
    discrete data also a histogram per feature, which beats a Gaussian if most pixels are blank.

    Gaussians with a nearly singular covariance are left out: for discrete data, those that are worse than the uniform
    distribution; otherwise, those that are far worse than a Gaussian with one variance for all features.
    """
    dim, levels = math.prod(splits.shape), splits.dequantizer
    train = splits.dequantize(splits.train, seed=1)
    nats = {"independent Gaussians": _independent_gaussians(train, splits)}
    if dim <= _MAX_COVARIANCE_DIM:
        gaussian = PCA().fit(train, scale=_feature_scale(splits))
        nats["Gaussian"] = float(_log_likelihood(gaussian, splits.test, dequantizer=levels).value.mean())
    if levels is None:
        floor = _independent_gaussians(train, splits, shared_variance=True) - dim
        nats = {name: value for name, value in nats.items() if value >= floor}
        if splits.density is not None:
            nats["true density"] = float(splits.density.log_prob(splits.test.double()).mean())
        return nats
    bits = {f"{name}, {_BITS}": levels.bits_per_dim(value, dim) for name, value in nats.items()}
    bits = {name: value for name, value in bits.items() if value <= math.log2(levels.levels)}
    return {**bits, f"histogram per feature, {_BITS}": _histogram_baseline(splits, levels)}


def _independent_gaussians(train: Tensor, splits: GenerativeSplits, *, shared_variance: bool = False) -> float:
    rows = train.flatten(1).double()
    variance = rows.var(0, correction=0)
    variance = variance.mean().expand_as(variance) if shared_variance else variance
    variance = variance.clamp_min(1e-6 * float(variance.mean()))
    test = splits.dequantize(splits.test)
    deviation = (test.flatten(1).double() - rows.mean(0)).square() / variance
    return float(-0.5 * (deviation + (2 * math.pi * variance).log()).sum(1).mean())


def _likelihood_summary(
    metrics: Mapping[str, Any], baselines: Mapping[str, float], *, model: str, num_scored: int, is_bound: bool = False
) -> str:
    """Says in words whether a density or the best baseline is better, in bits per dimension or in nats.

    Args:
        metrics: Results of `_likelihood_metrics`.
        baselines: Results of `_density_baselines`; the true density is a bound, not a baseline.
        model: Name of the model, with its article.
        num_scored: Number of test observations.
        is_bound: Whether the model has a lower bound on the log-likelihood only.
    """
    bits = _BITS in metrics
    value = metrics[_BITS] if bits else metrics[_LOWER_BOUND if is_bound else _LOG_LIKELIHOOD]
    bound = (", an upper bound," if bits else ", a lower bound,") if is_bound else ""
    unit = _BITS if bits else "log-likelihood (nats)"
    compared = {name.removesuffix(f", {_BITS}"): v for name, v in baselines.items() if name != "true density"}
    metric = f"{unit}{bound} on {num_scored:,} test observations"
    return compare_with_baselines(metric, value, compared, higher_is_better=not bits, model=model)


def _histogram_baseline(splits: GenerativeSplits, levels: Dequantizer) -> float:
    """Returns the bits per dimension of a histogram of each feature, with add-one smoothing."""
    k = levels.levels
    train, test = (((x.flatten(1) - levels.low) / levels.width).round().long() for x in (splits.train, splits.test))
    bits = 0.0
    for column, queries in zip(train.T, test.T, strict=True):
        frequency = (column.bincount(minlength=k) + 1.0) / (len(column) + k)
        bits -= float(frequency.log2()[queries].mean())
    return bits / train.shape[1]


def _feature_scale(splits: GenerativeSplits) -> Tensor:
    """Returns the unit of each feature: the standard deviation of a column of a table; 1 for images and series."""
    std = splits.train.std(0, correction=0)
    return torch.where(std > 0, std, 1.0) if std.dim() == 1 else torch.ones_like(std)


def _squared_errors(y: Tensor, splits: GenerativeSplits) -> Tensor:
    """Returns the squared error of reconstructions of the test split, summed over the features in their units."""
    return ((y - splits.test) / _feature_scale(splits)).square().flatten(1).sum(1).double()


def _mean_baseline(splits: GenerativeSplits) -> float:
    """Returns the mean squared error of the training mean."""
    return float(_squared_errors(splits.train.mean(0), splits).mean())


@torch.no_grad()
def _pca_baseline(splits: GenerativeSplits, dims: list[int]) -> dict[str, float]:
    """Returns the reconstruction error of PCA for each latent dimension."""
    pca = PCA().fit(splits.train, scale=_feature_scale(splits))
    centered = ((splits.test.flatten(1) - pca.mean) / pca.scale).double()
    explained = (centered @ pca.components.double().T).square().mean(0).cumsum(0)
    total = float(centered.square().sum(1).mean())
    return {str(k): max(0.0, total - float(explained[min(k, len(explained)) - 1])) for k in dims}


def _powers_of_two(largest: int) -> list[int]:
    """Returns 1, 2, 4, ... up to a number."""
    return [2**i for i in range(largest.bit_length()) if 2**i <= largest]


# ---------------------------------------------------------------- figures

_NUM_POINTS, _NUM_IMAGES = 2000, 36
"""Number of samples of vectors, and of images or series."""
_NUM_RECONSTRUCTIONS = 8
"""Number of reconstructions in a figure."""


_LEAD_FIGURES = (
    "samples.png",
    "means of samples.png",
    "marginals.png",
    "samples per label.png",
    "reconstructions.png",
    "rotations.png",
)
"""Figures that the report shows first."""


def _evenly_spaced(x: Tensor, n: int) -> Tensor:
    """Returns n evenly spaced examples of the data, which may be sorted by label."""
    return x[torch.linspace(0, len(x) - 1, min(n, len(x))).long()]


def _lead_figures(run: Run) -> list[str]:
    """Returns the figures that the report shows first."""
    return [name for name in _LEAD_FIGURES if (run.figures / name).is_file()]


@torch.no_grad()
def _draw_samples(
    model: SupportsSample, n: int, *, seed: int, labels: Tensor | None = None, batch_size: int | None = None
) -> Tensor:
    """Draws samples in batches, and shows the progress. Sample i does not depend on the batch size."""
    size = batch_size or n
    parts = [
        model.sample(min(size, n - i), seed, first=i, labels=None if labels is None else labels[i : i + size]).cpu()
        for i in track(range(0, n, size), f"drawing {n:,} samples")
    ]
    return torch.cat(parts)


def _save_samples_figure(
    run: Run, model: SupportsSample, splits: GenerativeSplits, *, seed: int = 0, batch_size: int | None = None
) -> Tensor:
    """Draws samples, and writes them to `samples/samples.npy` and to figures that show them beside the test split.

    Args:
        run: The run.
        model: Model to sample from.
        splits: Observations.
        seed: Random seed.
        batch_size: Samples drawn at a time. Defaults to all.
    """
    x = _draw_samples(model, _NUM_POINTS if len(splits.shape) == 1 else _NUM_IMAGES, seed=seed, batch_size=batch_size)
    run.write_array("samples/samples.npy", x.numpy())
    log_prob = model.log_prob if splits.shape == (2,) and isinstance(model, SupportsLogProb) else None
    for name, figure in _samples_figures(x, splits, log_prob=log_prob).items():
        figures.save(figure, run.figures / f"{name}.png", root=run.root)
    return x


@torch.no_grad()
def _save_label_samples(
    run: Run, model: SupportsSample, splits: GenerativeSplits, *, seed: int = 0, batch_size: int | None = None
) -> None:
    """Writes a figure with four samples of each of the first ten labels.

    Args:
        run: The run.
        model: Conditional model.
        splits: Observations, for the names of the labels.
        seed: Random seed.
        batch_size: Samples drawn at a time. Defaults to all.
    """
    labels = torch.arange(min(10, len(splits.classes))).repeat_interleave(4)
    x = _draw_samples(model, len(labels), seed=seed, labels=labels, batch_size=batch_size)
    figures.save(_image_grid(x, splits, labels=labels), run.figures / "samples per label.png", root=run.root)


def _samples_figures(
    x: Tensor, splits: GenerativeSplits, *, log_prob: Callable[[Tensor], Tensor] | None = None
) -> dict[str, Figure]:
    """Plots samples beside test data: grids of images or series; for tables, marginals and the most correlated pair."""
    names = ("test data", "samples")
    if len(splits.shape) > 1:
        y = x[:_NUM_IMAGES] if splits.dequantizer is None else splits.dequantizer.quantize(x[:_NUM_IMAGES])
        data = _evenly_spaced(splits.test, _NUM_IMAGES)
        return {"samples": figures.data_and_samples(data, y, names=names, value_range=_value_range(splits))}
    columns = splits.spec.columns or tuple(f"x{i}" for i in range(1, 1 + splits.shape[0]))
    if splits.shape == (1,):
        return {"samples": figures.marginals(splits.test, x, columns=columns, names=names)}
    pair = _most_correlated(splits.train)
    shown = splits.test, x[: max(len(splits.test), 200)]
    clouds, axes_names = [part[:, pair] for part in shown], (columns[pair[0]], columns[pair[1]])
    plots = {"samples": figures.point_clouds(*clouds, names=names, log_prob=log_prob, axes_names=axes_names)}
    if len(columns) > 2:
        plots["marginals"] = figures.marginals(splits.test, x, columns=columns, names=names)
    return plots


def _most_correlated(rows: Tensor, *, max_columns: int = 200) -> list[int]:
    """Returns the pair of columns with the largest absolute correlation, among the first `max_columns`."""
    x = rows[:, :max_columns].double()
    z = (x - x.mean(0)) / x.std(0, correction=0).clamp_min(1e-12)
    correlation = (z.T @ z).abs().tril(-1)
    return sorted(divmod(int(correlation.argmax()), len(correlation))) if correlation.max() > 0 else [0, 1]


def _value_range(splits: GenerativeSplits) -> tuple[float, float]:
    return float(splits.train.min()), float(splits.train.max())


def _image_grid(x: Tensor, splits: GenerativeSplits, *, labels: Tensor | None = None) -> Figure:
    """Plots samples as a grid, quantized and with the value range of the data, and titled by label."""
    quantized = x if splits.dequantizer is None else splits.dequantizer.quantize(x)
    titles = [] if labels is None else [splits.classes[i] for i in labels]
    return figures.sample_grid(quantized, titles=titles, value_range=_value_range(splits))


def _latents_figure(z: Tensor, splits: GenerativeSplits, *, names: tuple[str, str]) -> Figure:
    """Plots the latents of the test split, colored by label."""
    labeled = splits.test_labels is not None
    return figures.latent_map(z, labels=splits.test_labels, names=splits.classes if labeled else None, axes_names=names)
