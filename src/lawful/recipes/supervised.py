"""What classification and regression share: model specifications, ensembles and the training setup."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, TypeVar

import torch
from torch import nn

from lawful._json import Config, MaxLength, Range, Tagged
from lawful.blocks import Standardize
from lawful.data import Augment, ShuffledBatches, SupervisedDataset, bootstrap_indices
from lawful.inference import Ensemble
from lawful.inference.ensemble import Average
from lawful.laws import Claim
from lawful.models import (
    CNN,
    MLP,
    KNearest,
    KNearestClassifier,
    LinearRegression,
    PolynomialRegression,
    SoftmaxRegression,
    Standardized,
    ThresholdedRegression,
)
from lawful.optim.schedules import Schedule
from lawful.recipes.data import DataSplits, ExampleSpec, SupervisedDataConfig
from lawful.recipes.optimization import (
    EvaluationConfig,
    OptimizationConfig,
    RegularizationConfig,
    _NonNegative,
    _NumEvals,
    _Patience,
    _PositiveInt,
    _Probability,
    _WarmupRatio,
)
from lawful.training import LossFunction, Recipe, TrainingSetup
from lawful.training.registry import _check_parameter_count

_HiddenDims = Annotated[tuple[Annotated[int, Range(1, 10**6)], ...], MaxLength(100)]
"""Widths of hidden layers."""


class ModelSpec(Config, Tagged):
    """Base class of the model specifications of supervised recipes."""

    epochs: ClassVar[int] = 60
    """Default number of epochs."""
    learning_rate: ClassVar[float] = 3e-3
    """Default learning rate."""
    closed_form: ClassVar[bool] = False
    """Whether the model is fitted without gradient descent."""


@dataclass(frozen=True, kw_only=True)
class MLPSpec(ModelSpec):
    """Multilayer perceptron."""

    name: ClassVar[str] = "mlp"

    hidden_dims: _HiddenDims = (256,)
    """Width of each hidden layer."""
    dropout: _Probability = 0.3
    """Dropout probability. With dropout, predictions have an uncertainty."""


@dataclass(frozen=True, kw_only=True)
class CNNSpec(ModelSpec):
    """Residual convolutional network for images and series."""

    name: ClassVar[str] = "cnn"
    epochs: ClassVar[int] = 20
    learning_rate: ClassVar[float] = 1e-2

    channels: Annotated[int, Range(1, 10**6)] = 32
    """Number of channels."""
    num_layers: Annotated[int, Range(0, 1000)] = 3
    """Number of residual blocks."""
    kernel_size: Annotated[int, Range(0, 99)] = 0
    """Kernel size, an odd number. 0 chooses 3 for images and 5 for series."""
    dropout: _Probability = 0.3
    """Dropout probability. With dropout, predictions have an uncertainty."""


@dataclass(frozen=True, kw_only=True)
class LogisticSpec(ModelSpec):
    """Multinomial logistic regression."""

    name: ClassVar[str] = "logistic"


@dataclass(frozen=True, kw_only=True)
class ThresholdedSpec(ModelSpec):
    """Least-squares regression on one-hot targets, with thresholds: a baseline that logistic regression beats."""

    name: ClassVar[str] = "thresholded"
    closed_form: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class KNNSpec(ModelSpec):
    """K nearest neighbors."""

    name: ClassVar[str] = "knn"
    closed_form: ClassVar[bool] = True

    num_neighbors: Annotated[int, Range(1, 10**6)] = 5
    """Number of neighbors."""
    p: Annotated[float, Range(1, 1e6)] = 2.0
    """Exponent of the Minkowski distance; 2 is Euclidean."""


@dataclass(frozen=True, kw_only=True)
class MLPRegressorSpec(ModelSpec):
    """Multilayer perceptron."""

    name: ClassVar[str] = "mlp"
    epochs: ClassVar[int] = 100

    hidden_dims: _HiddenDims = (64, 64)
    """Width of each hidden layer."""
    dropout: _Probability = 0.0
    """Dropout probability. With dropout, predictions have an uncertainty."""
    loss: Literal["mse", "mae", "huber"] = "mse"
    """Loss, on standardized targets."""


@dataclass(frozen=True, kw_only=True)
class LinearSpec(ModelSpec):
    """Linear regression by least squares."""

    name: ClassVar[str] = "linear"
    closed_form: ClassVar[bool] = True

    ridge: _NonNegative = 0.0
    """Ridge penalty."""


@dataclass(frozen=True, kw_only=True)
class PolynomialSpec(ModelSpec):
    """Polynomial regression by least squares."""

    name: ClassVar[str] = "polynomial"
    closed_form: ClassVar[bool] = True

    degree: Annotated[int, Range(1, 100)] = 2
    """Degree of the polynomial."""
    ridge: _NonNegative = 0.0
    """Ridge penalty."""


_ClassifierSpec = MLPSpec | CNNSpec | LogisticSpec | ThresholdedSpec | KNNSpec
"""Models of classification."""
_RegressorSpec = MLPRegressorSpec | LinearSpec | PolynomialSpec | KNNSpec
"""Models of regression."""


def _build_classifier(spec: _ClassifierSpec, sizes: ExampleSpec) -> Standardized:
    """Builds a classifier for raw inputs; it returns logits."""
    channels = (sizes.shape[0], *[1] * len(sizes.shape[1:]))
    dim, core = math.prod(sizes.shape), None
    match spec:
        case MLPSpec():
            core = MLP(dim, sizes.out_dim, hidden_dims=spec.hidden_dims, dropout=float(spec.dropout))
        case LogisticSpec():
            core = SoftmaxRegression(dim, sizes.out_dim)
        case ThresholdedSpec():
            core = ThresholdedRegression(dim, sizes.out_dim)
        case KNNSpec():
            k = min(spec.num_neighbors, sizes.num_examples)
            core = KNearestClassifier(sizes.num_examples, dim, sizes.out_dim, k=k, p=float(spec.p), smoothing=0.1)
        case CNNSpec():
            return Standardized(_build_cnn(spec, sizes), normalizer=Standardize(channels))
    return Standardized(nn.Sequential(nn.Flatten(1), core), normalizer=Standardize(channels))


def _build_cnn(spec: CNNSpec, sizes: ExampleSpec) -> nn.Module:
    if len(sizes.shape) < 2:
        raise ValueError(f"model cnn needs images or series, got examples of shape {sizes.shape}: use model mlp")
    series = len(sizes.shape) == 2
    return CNN(
        sizes.shape[0],
        sizes.out_dim,
        channels=spec.channels,
        num_blocks=spec.num_layers,
        kernel_size=spec.kernel_size or (5 if series else 3),
        padding_mode="circular" if series else "zeros",
        spatial_dims=len(sizes.shape) - 1,
        dropout=spec.dropout,
    )


def _build_regressor(spec: _RegressorSpec, sizes: ExampleSpec) -> Standardized:
    """Builds a regression model for raw inputs and raw targets."""
    dim, out_dim = math.prod(sizes.shape), sizes.out_dim
    core: nn.Module
    match spec:
        case MLPRegressorSpec():
            core = MLP(dim, out_dim, hidden_dims=spec.hidden_dims, dropout=float(spec.dropout))
        case LinearSpec():
            core = LinearRegression(dim, out_dim)
        case PolynomialSpec():
            core = PolynomialRegression(dim, out_dim, degree=spec.degree)
        case KNNSpec():
            k = min(spec.num_neighbors, sizes.num_examples)
            core = KNearest(sizes.num_examples, dim, out_dim, k=k, p=float(spec.p))
    flat = nn.Sequential(nn.Flatten(1), core)
    return Standardized(flat, normalizer=Standardize(sizes.shape), output_normalizer=Standardize(out_dim))


def _build_checked(build: Callable[[], Standardized]) -> Standardized:
    """Builds a model after checking its number of parameters."""
    _check_parameter_count([build])
    return build()


def _fit_closed_form(model: Standardized, spec: ModelSpec, train: SupervisedDataset) -> None:
    """Fits a model that has a closed form, on standardized inputs and targets."""
    x, y, core = model.normalizer(train.inputs).flatten(1), train.targets, model.get_submodule("model.1")
    y = y if model.output_normalizer is None else model.output_normalizer(y)
    if isinstance(core, KNearest | KNearestClassifier | ThresholdedRegression):
        core.fit(x, y)
    elif isinstance(core, LinearRegression | PolynomialRegression) and isinstance(spec, LinearSpec | PolynomialSpec):
        core.fit(x, y, penalty=float(spec.ridge))


@torch.no_grad()
def _fit_normalizer(model: Standardized, train: SupervisedDataset) -> Standardized:
    """Fits the mean and standard deviation of the training examples."""
    return model.fit_normalizer(train.inputs, None if model.output_normalizer is None else train.targets)


_S = TypeVar("_S", bound="SupervisedRecipe")


@dataclass(frozen=True, kw_only=True)
class SupervisedRecipe(
    SupervisedDataConfig, OptimizationConfig, EvaluationConfig, RegularizationConfig, Recipe[DataSplits]
):
    """Base class of classification and regression."""

    batch_size: _PositiveInt | None = 64
    schedule: Literal["one-cycle", "cosine", "linear", "constant", "warmup-stable-decay"] = "one-cycle"
    warmup_ratio: _WarmupRatio = None
    """Fraction of the steps used for warmup, and for the decay of warmup-stable-decay. Defaults to 0.1, for constant
    to 0."""
    num_evals: _NumEvals = None
    patience: _Patience = 0
    num_members: Annotated[int, Range(1, 100)] = 1
    """Number of models in the ensemble, with consecutive seeds."""
    bagging: bool = False
    """Train each member on a bootstrap sample of the training data."""

    def build_schedule(self, steps: int) -> Schedule:
        """Builds the schedule of the learning rate. A constant one has no warmup by default."""
        if self.schedule in ("constant", "one-cycle") or self.warmup_steps is not None:
            return super().build_schedule(steps)
        return super(SupervisedRecipe, self.with_defaults(warmup_ratio=0.1)).build_schedule(steps)

    def ensemble_members(self: _S) -> Sequence[_S]:
        """Returns the recipes of the members of an ensemble, or nothing for one model."""
        return [] if self.num_members == 1 else replace(self, num_members=1).with_seeds(self.num_members)

    def training_examples(self, splits: DataSplits) -> SupervisedDataset:
        """Returns the training examples: all of them, or a bootstrap sample."""
        train = splits.train
        return train.take(bootstrap_indices(len(train), seed=self.seed)) if self.bagging else train

    def supervised_setup(
        self,
        model: Standardized,
        splits: DataSplits,
        *,
        spec: ModelSpec,
        loss_fn: LossFunction,
        evaluate: Callable[[nn.Module, SupervisedDataset], Mapping[str, float]],
        claims: Callable[[nn.Module], Iterable[Claim]],
        augment: Augment | None = None,
    ) -> TrainingSetup[DataSplits]:
        """Builds the training setup of a model.

        Args:
            model: Model, with fitted normalizer.
            splits: Examples.
            spec: Specification of the model; one with a closed form is fitted here and needs no steps.
            loss_fn: Loss of a batch.
            evaluate: Returns metrics of the model on a dataset.
            claims: Returns the laws of the trained model.
            augment: Augmentation of a batch.
        """
        train, validation = self.training_examples(splits), splits.validation
        optimization = self.with_defaults(learning_rate=spec.learning_rate)
        if optimization.steps is None:
            optimization = optimization.with_defaults(epochs=spec.epochs)
        batches = ShuffledBatches(train.inputs, train.targets, batch_size=self.batch_size or 64, seed=self.seed)
        steps = 0 if spec.closed_form else optimization.num_steps(len(batches))
        if spec.closed_form:
            _fit_closed_form(model, spec, train)
        if self.patience and validation is None and steps:
            raise ValueError("patience needs validation data: set validation_fraction above 0, or patience=0")
        step = optimization.optimizer_step(model, self.add_penalty(model, loss_fn), steps=steps) if steps else None
        return TrainingSetup(
            model=model,
            optimizer_steps=[] if step is None else [step],
            batches=batches,
            steps=steps,
            evaluate=None if validation is None else lambda model: evaluate(model, validation),
            eval_every=self.eval_every(steps, steps_per_epoch=len(batches)),
            patience=self.patience or None if steps else None,
            augment=augment,
            constrain=self.constraint(),
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=claims,
            model_config={"encoding": splits.encoding.to_json(), "example_spec": ExampleSpec.of(splits.train)},
            data_fingerprint=splits.fingerprint,
            warnings=splits.warnings,
            data=splits,
        )


def _combine_members(models: Sequence[nn.Module], average: Average) -> nn.Module:
    """Combines trained models into an ensemble; one model is returned as it is."""
    return models[0] if len(models) == 1 else Ensemble(models, average=average)
