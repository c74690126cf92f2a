"""Principal component analysis: a linear subspace near the data with a Gaussian density."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from lawful._json import Config, Range, Tagged, require_int
from lawful.data import ShuffledBatches
from lawful.functions import pca_axes
from lawful.inference.metrics.intervals import bootstrap
from lawful.laws import Claim, batch_independence, density_integrates_to_one, idempotence, shape
from lawful.models.generative import PCA
from lawful.probe import figures
from lawful.recipes.data import DataSpec, GenerativeDataConfig, GenerativeSplits
from lawful.recipes.generative import (
    _NUM_RECONSTRUCTIONS,
    _density_baselines,
    _evaluate_likelihood,
    _evenly_spaced,
    _latents_figure,
    _lead_figures,
    _likelihood_summary,
    _mean_baseline,
    _pca_baseline,
    _powers_of_two,
    _save_samples_figure,
    _squared_errors,
)
from lawful.training import Recipe, Run, TrainingSetup
from lawful.training.registry import _MAX_PARAMETERS


@dataclass(frozen=True, kw_only=True)
class ExactPCASpec(Config, Tagged):
    """All data at once, by an SVD."""

    name: ClassVar[str] = "exact"


@dataclass(frozen=True, kw_only=True)
class RandomizedPCASpec(Config, Tagged):
    """Randomized SVD, for many features."""

    name: ClassVar[str] = "randomized"


@dataclass(frozen=True, kw_only=True)
class IncrementalPCASpec(Config, Tagged):
    """Batch by batch, for large data."""

    name: ClassVar[str] = "incremental"

    batch_size: Annotated[int, Range(1, 10**8)] = 1024
    """Observations per batch."""


@dataclass(frozen=True, kw_only=True)
class PCARecipe(GenerativeDataConfig, Recipe[GenerativeSplits]):
    """Fit PCA: principal components, reconstructions, a density and samples."""

    name: ClassVar[str] = "pca"

    num_components: Annotated[int, Range(0, 10**6)] = 0
    """Number of components. 0 selects the best on the validation data, or 8 without validation data."""
    standardize: bool | None = None
    """Divide each feature by its standard deviation. Defaults to yes for tables, whose columns have different units."""
    algorithm: ExactPCASpec | RandomizedPCASpec | IncrementalPCASpec = field(default_factory=ExactPCASpec)
    """Algorithm of the decomposition."""

    def setup(self) -> TrainingSetup[GenerativeSplits]:
        """Loads the observations and computes the components; there are no training steps."""
        splits = self.load_splits()
        n, dim = len(splits.train), math.prod(splits.shape)
        if n <= dim:
            note = f"{n} training observations have {dim} features: the covariance is singular"
            splits = replace(splits, warnings=(*splits.warnings, note))
        train = splits.dequantize(splits.train, seed=1)
        standardize = len(splits.shape) == 1 if self.standardize is None else self.standardize
        scale = _standard_deviations(train) if standardize else None
        model = self._fit(train, self._choose_components(splits, train, scale), scale)
        return TrainingSetup(
            model=model,
            optimizer_steps=[],
            batches=ShuffledBatches(train, batch_size=len(train), seed=self.seed),
            steps=0,
            claims=partial(_claims, observation_shape=splits.shape),
            model_config={**splits.model_config, "num_components": len(model.components)},
            data_fingerprint=splits.fingerprint,
            notes=(splits.description,),
            warnings=splits.warnings,
            data=splits,
        )

    def finish(self, run: Run, setup: TrainingSetup[GenerativeSplits]) -> Mapping[str, Any]:
        """Evaluates the density and the reconstructions on the test split, and writes figures."""
        splits, model = setup.data, _as_pca(setup.model)
        errors = _squared_errors(model(splits.test), splits)
        by_dim, mean = _pca_baseline(splits, _powers_of_two(math.prod(splits.shape))), _mean_baseline(splits)
        _save_samples_figure(run, model, splits, seed=self.seed)
        curve = [(int(k), error) for k, error in by_dim.items()]
        plots = {"error by latent dimension": figures.bottleneck_curve({"PCA": curve}, mean=mean)}
        if len(model.components) > 1:
            percent = [f"{100 * float(ratio):.0f} % of the variance" for ratio in model.explained_variance_ratio[:2]]
            names = (f"first component, {percent[0]}", f"second component, {percent[1]}")
            plots["latents"] = _latents_figure(model.transform(splits.test), splits, names=names)
        if len(splits.shape) > 1:
            some = _evenly_spaced(splits.test, _NUM_RECONSTRUCTIONS)
            plots["reconstructions"] = figures.reconstructions(some, model(some), names=("data", "reconstruction"))
            plots["components"] = figures.sample_grid(model.components[:16].unflatten(1, splits.shape))
        for name, figure in plots.items():
            figures.save(figure, run.figures / f"{name}.png", root=run.root)
        metrics, baselines = _evaluate_likelihood(model, splits), _density_baselines(splits)
        name = f"PCA with {len(model.components)} components"
        explained = 1 - float(errors.mean()) / mean if mean else 1.0
        comparison = _likelihood_summary(metrics, baselines, model="it", num_scored=len(splits.test))
        return {
            "summary": f"{name} reconstructs {100 * explained:.3g} % of the variance of the test data. {comparison}",
            "lead_figures": _lead_figures(run),
            "test": {**metrics, "squared error": bootstrap(torch.mean, errors).json()},
            "baselines": {**baselines, "mean, squared error": mean},
            "components": len(model.components),
            "explained variance ratio": float(model.explained_variance_ratio.sum()),
            "squared error by latent dimension": by_dim,
            "examples": splits.counts,
            "warnings": list(splits.warnings),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        spec = DataSpec.from_config(model_config)
        dim = math.prod(spec.shape)
        components = require_int(model_config.get("num_components"), 0, dim, where="model.num_components")
        if dim * components > _MAX_PARAMETERS:
            raise ValueError(f"the model has {dim * components:,} weights, at most {_MAX_PARAMETERS:,} are supported")
        return PCA(n_components=components, shape=spec.shape)

    def _fit(self, train: Tensor, num_components: int, scale: Tensor | None) -> PCA:
        match self.algorithm:
            case ExactPCASpec():
                return PCA(n_components=num_components).fit(train, scale=scale)
            case RandomizedPCASpec():
                model = PCA(n_components=num_components, svd_solver="randomized", seed=self.seed)
                return model.fit(train, scale=scale)
            case IncrementalPCASpec(batch_size=batch_size):
                return PCA(n_components=num_components).fit_batches(train.split(batch_size), scale=scale)

    def _choose_components(self, splits: GenerativeSplits, train: Tensor, scale: Tensor | None) -> int:
        """The given number of components, or the one with the best likelihood of the validation data."""
        largest = min(math.prod(splits.shape), len(train) - 1)
        if self.num_components > largest:
            raise ValueError(
                f"num_components must be at most {largest} for {len(train)} observations of shape {splits.shape}, "
                f"got {self.num_components}"
            )
        if self.num_components or splits.validation is None or not isinstance(self.algorithm, ExactPCASpec):
            return self.num_components or min(8, largest)
        validation = splits.dequantize(splits.validation, seed=2)
        rows = [part if scale is None else part / scale for part in (train, validation)]
        return _best_num_components(*(part.flatten(1).double() for part in rows))


def _standard_deviations(x: Tensor) -> Tensor:
    """Returns the standard deviation of each feature, 1 for constant ones."""
    std = x.std(0, correction=0)
    return torch.where(std > 0, std, 1.0)


def _best_num_components(train: Tensor, validation: Tensor) -> int:
    """Returns the number of components of probabilistic PCA with the largest validation likelihood."""
    fit, d = pca_axes(train), train.shape[1]
    centered = validation - fit.mean
    along, total = (centered @ fit.components.mT).square().mean(0), float(centered.square().sum(1).mean())
    scores = []
    for k in range(1, len(fit.explained_variance) + 1):
        kept = fit.explained_variance[:k]
        rest = (fit.total_variance - float(kept.sum())) / (d - k) if k < d else 0.0
        noise = max(rest, 1e-6 * fit.total_variance / d)
        across = (total - float(along[:k].sum())) / noise + (d - k) * math.log(noise)
        scores.append(-across - float((along[:k] / kept + kept.log()).sum()))
    return 1 + max(range(len(scores)), key=scores.__getitem__)


def _as_pca(model: nn.Module) -> PCA:
    if not isinstance(model, PCA):
        raise TypeError(f"expected a PCA, got {type(model).__name__}")
    return model


def _claims(model: nn.Module, *, observation_shape: tuple[int, ...]) -> Iterator[Claim]:
    """PCA is a projection with a density, and treats observations independently."""
    pca = _as_pca(model)
    example = shape(" ".join(map(str, ("b", *observation_shape))))
    yield Claim(idempotence(), model, example, name="reconstruction")
    yield Claim(batch_independence(), pca.log_prob, example, name="log density")
    if observation_shape == (2,):

        def sample(n: int) -> Tensor:
            return pca.sample(n, seed=int(torch.randint(2**31, ())))

        def log_prob(x: Tensor) -> Tensor:
            return pca.log_prob(x)

        law = density_integrates_to_one(sample=sample, log_prob=log_prob)
        yield Claim(law, log_prob, example, name="density")
