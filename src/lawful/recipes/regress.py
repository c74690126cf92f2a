"""Regression: baselines, evaluation and the recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import MaxLength
from lawful.data import Batch, SupervisedDataset
from lawful.inference import activation_frequency, dead_units, predict
from lawful.inference.ensemble import mean_values
from lawful.inference.metrics import mean_absolute_error, r_squared, root_mean_squared_error
from lawful.laws import Claim, batch_independence, shape
from lawful.models import KNearest, LinearRegression, Standardized
from lawful.probe import figures
from lawful.recipes.classify import _baseline_outputs, _neighbor_inputs, _neighbor_queries
from lawful.recipes.data import DataSplits, ExampleSpec
from lawful.recipes.optimization import _Patience
from lawful.recipes.supervised import (
    AutoRegressorSpec,
    MLPRegressorSpec,
    SupervisedRecipe,
    _build_checked,
    _build_regressor,
    _column_results,
    _combine_members,
    _fit_normalizer,
    _fitting_examples,
    _model_name,
    _other_folds,
    _RegressorSpec,
    _with_encoding,
)
from lawful.training import Run, TrainingSetup, compare_with_baselines

_LOSSES = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}


@dataclass(frozen=True, kw_only=True)
class RegressRecipe(SupervisedRecipe):
    """Train a regression model on a table, arrays or built-in data."""

    name: ClassVar[str] = "regress"

    model: _RegressorSpec = field(default_factory=AutoRegressorSpec)
    """Model architecture."""
    data: Annotated[str, MaxLength(4096)] = "diabetes"
    """CSV, TSV, Parquet or NumPy file, or a name: diabetes, sine."""
    patience: _Patience = 20

    def setup(self) -> TrainingSetup[DataSplits]:
        """Loads the examples and builds the model."""
        splits = self.load_splits("regress")
        sizes = ExampleSpec.of(splits.train)
        spec = self.resolve_model(sizes)
        model = _build_checked(partial(_build_regressor, spec, sizes))
        return self.supervised_setup(
            _fit_normalizer(model, self.training_examples(splits)),
            splits,
            spec=spec,
            loss_fn=self._loss,
            evaluate=self._evaluate,
            claims=self._claims,
        )

    def finish(self, run: Run, setup: TrainingSetup[DataSplits]) -> Mapping[str, Any]:
        """Evaluates the model on the test split and writes figures."""
        splits, model = setup.data, setup.model
        y = _predict(model, splits.test.inputs)
        results: dict[str, Any] = {"test": _regression_metrics(y, splits.test.targets)}
        for name, (predicted, targets) in self.fitted_outputs(model, splits).items():
            results[name] = _regression_metrics(predicted, targets)
        figures.save(
            figures.predicted_vs_actual(y, splits.test.targets), run.figures / "predicted and true.png", root=run.root
        )
        if dead := dead_units(activation_frequency(model, splits.train.inputs)):
            results["dead units"] = {layer: n for layer, (n, _) in dead.items()}
            figures.save(figures.dead_unit_bars(dead), run.figures / "dead units.png", root=run.root)
        baselines = _regression_baselines(_fitting_examples(splits), splits.test)
        summary = compare_with_baselines(
            "test root mean squared error",
            results["test"]["root mean squared error"],
            baselines,
            higher_is_better=False,
            model=_model_name(self.model),
        )
        if "ridge regression beats" in summary:
            summary += " Train it with --model linear --ridge 1."
        return {
            **results,
            "baseline root mean squared error": baselines,
            **self.example_counts(splits),
            "summary": summary,
            "warnings": list(splits.warnings),
            **_column_results(splits),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        sizes = ExampleSpec.from_config(model_config)
        build = partial(_build_regressor, self.resolve_model(sizes), sizes)
        return self.combine([_with_encoding(_build_checked(build), model_config) for _ in range(self.num_members)])

    def combine(self, models: Sequence[nn.Module]) -> nn.Module:
        """Combines the members of an ensemble."""
        return _combine_members(models, mean_values)

    @property
    def _loss_fn(self) -> Any:
        spec = self.model
        return _LOSSES[spec.loss] if isinstance(spec, AutoRegressorSpec | MLPRegressorSpec) else F.mse_loss

    def _loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Loss on standardized targets."""
        x, y, *folds = batch
        predicted, y = _other_folds(model, x, y, *folds) if folds else (model(x), y)
        standardize = _target_standardizer(model)
        return self._loss_fn(standardize(predicted), standardize(y))

    @torch.no_grad()
    def _evaluate(self, model: nn.Module, y: Tensor, target: Tensor) -> dict[str, float]:
        """Loss on standardized targets, and RMSE in the units of the targets."""
        standardize = _target_standardizer(model)
        loss = self._loss_fn(standardize(y), standardize(target))
        return {"loss": float(loss), "rmse": float((y - target).square().mean().sqrt())}

    def _claims(self, model: nn.Module) -> Iterator[Claim]:
        """A regression model treats examples independently."""
        moments = next(m for m in model.modules() if isinstance(m, Standardized)).normalizer.mean
        yield Claim(batch_independence(), model, shape(" ".join(map(str, ("b", *moments.shape)))), name=self.model.name)


def _regression_baselines(train: SupervisedDataset, test: SupervisedDataset) -> dict[str, dict[str, float]]:
    """Returns the RMSE of the mean, of the 5 nearest neighbors and of ridge regression with penalty 1."""
    constant = train.targets.mean(0).expand_as(test.targets)
    x, y, scale = _neighbor_inputs(train)
    some = _neighbor_queries(len(x), len(test))
    nearest = KNearest(len(x), x.shape[1], y.shape[1], k=min(5, len(x))).fit(x, y)
    neighbors = _baseline_outputs(nearest, scale, test.inputs[some])
    ridge = LinearRegression(x.shape[1], y.shape[1]).fit(x, y, penalty=1.0)
    linear = _baseline_outputs(ridge, scale, test.inputs)
    found = {"mean": constant, "5 nearest neighbors": neighbors, "ridge regression": linear}
    shown = {"5 nearest neighbors": test.targets[some]}
    return {name: root_mean_squared_error(y, shown.get(name, test.targets)).json() for name, y in found.items()}


def _regression_metrics(y: Tensor, target: Tensor) -> dict[str, Any]:
    """Returns metrics of predictions, with confidence intervals."""
    return {
        "root mean squared error": root_mean_squared_error(y, target).json(),
        "mean absolute error": mean_absolute_error(y, target).json(),
        "R²": r_squared(y, target).json(),
    }


def _predict(model: nn.Module, x: Tensor) -> Tensor:
    return predict(model, x, link=lambda y: y)


def _target_standardizer(model: nn.Module) -> nn.Module:
    if not isinstance(model, Standardized) or model.output_normalizer is None:
        raise TypeError(f"expected a Standardized model with standardized outputs, got {type(model).__name__}")
    return model.output_normalizer
