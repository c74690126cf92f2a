"""Shared parts of classification and regression: model specifications, prediction of rows, ensembles and the setup."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import Config, MaxLength, Range, Tagged, is_default
from lawful._names import quote
from lawful.blocks import Standardize
from lawful.data import (
    Arrays,
    Augment,
    Encodings,
    ShuffledBatches,
    SupervisedDataset,
    TableEncoding,
    bootstrap_indices,
    encoding_from_json,
    load_like,
    make_generator,
    table_from_rows,
)
from lawful.data.images import ImageEncoding
from lawful.inference import Ensemble, predict
from lawful.inference.ensemble import Average, mean_probabilities, mean_values
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
    sequence_classifier,
)
from lawful.optim.schedules import Schedule
from lawful.recipes.data import DataSplits, ExampleSpec, SupervisedDataConfig, _describe_data
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
class AutoSpec(ModelSpec):
    """Cross-validated ensemble of linear models plus MLPs for tables, CNN for images and series."""

    name: ClassVar[str] = "auto"
    epochs: ClassVar[int] = 40

    hidden_dims: _HiddenDims | None = None
    """Width of each hidden layer of the MLPs. Defaults to 64 for tables. By default, images and series get a CNN, or an
    MLP of width 256 if they have more than 4 million pixels or time steps in total."""
    dropout: _Probability | None = None
    """Dropout probability. Defaults to 0.3."""
    num_folds: Annotated[int, Range(2, 100)] = 8
    """Number of cross-validation folds for tables. Each member of the ensemble is validated on one fold."""

    def as_mlp(self) -> ModelSpec:
        """Returns the specification of one MLP."""
        return MLPSpec(
            hidden_dims=(256,) if self.hidden_dims is None else self.hidden_dims,
            dropout=0.3 if self.dropout is None else self.dropout,
        )

    def as_cnn(self) -> ModelSpec | None:
        """Returns the specification of a CNN, or None if the options or the task need another model."""
        return CNNSpec(dropout=0.3 if self.dropout is None else self.dropout) if self.hidden_dims is None else None


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
class StateSpaceSpec(ModelSpec):
    """State-space model of series, which reads images pixel by pixel and tables column by column."""

    name: ClassVar[str] = "state-space"
    epochs: ClassVar[int] = 48
    learning_rate: ClassVar[float] = 2e-2

    ssm: Literal["s4d", "s4", "selective"] = "s4d"
    """State-space model of the layers: diagonal, diagonal plus rank one, or selective (Mamba)."""
    dim: Annotated[int, Range(1, 10**6)] = 32
    """Width of the layers."""
    num_layers: Annotated[int, Range(1, 1000)] = 2
    """Number of layers."""
    state_dim: Annotated[int, Range(2, 10**4)] = 32
    """Number of states per channel."""
    dt_min: Annotated[float, Range(1e-9, 1e3)] = 0.01
    """Smallest initial step: the inverse of the longest memory, in samples. Smaller for long series."""
    dt_max: Annotated[float, Range(1e-9, 1e3)] = 0.2
    """Largest initial step."""
    dropout: _Probability = 0.1
    """Dropout probability. With dropout, predictions have an uncertainty."""


@dataclass(frozen=True, kw_only=True)
class LogisticSpec(ModelSpec):
    """Multinomial logistic regression."""

    name: ClassVar[str] = "logistic"


@dataclass(frozen=True, kw_only=True)
class ThresholdedSpec(ModelSpec):
    """Least-squares regression on one-hot labels, a weak baseline."""

    name: ClassVar[str] = "thresholded"
    closed_form: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class KNNSpec(ModelSpec):
    """K-nearest neighbors."""

    name: ClassVar[str] = "knn"
    closed_form: ClassVar[bool] = True

    num_neighbors: Annotated[int, Range(1, 10**6)] = 5
    """Number of neighbors."""
    p: Annotated[float, Range(1, 1e6)] = 2.0
    """Exponent of the Minkowski distance; 2 is Euclidean."""


@dataclass(frozen=True, kw_only=True)
class AutoRegressorSpec(AutoSpec):
    """Cross-validated ensemble of linear models plus MLPs for tables, multilayer perceptron for other data."""

    hidden_dims: _HiddenDims | None = None
    """Width of each hidden layer. Defaults to 64 for tables and 64 64 otherwise."""
    dropout: _Probability | None = None
    """Dropout probability. Defaults to 0.3 for tables and 0 otherwise."""
    loss: Literal["mse", "mae", "huber"] = "mse"
    """Loss, on standardized targets."""

    def as_cnn(self) -> None:
        """Returns None: there is no CNN for regression."""
        return

    def as_mlp(self) -> ModelSpec:
        """Returns the specification of one MLP."""
        return MLPRegressorSpec(
            hidden_dims=(64, 64) if self.hidden_dims is None else self.hidden_dims,
            dropout=0.0 if self.dropout is None else self.dropout,
            loss=self.loss,
        )


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


_ClassifierSpec = AutoSpec | MLPSpec | CNNSpec | LogisticSpec | ThresholdedSpec | KNNSpec | StateSpaceSpec
"""Models of classification."""
_RegressorSpec = AutoRegressorSpec | MLPRegressorSpec | LinearSpec | PolynomialSpec | KNNSpec
"""Models of regression."""


# ---------------------------------------------------------------- prediction of rows


class RowPredictor:
    """Predicts rows as they are in a file: what `lawful.load` returns for a run of `classify` or `regress`.

    The rows are a list of dicts, a dict of columns, a data frame, an array or a tensor with the columns in the order of
    the training data, or a file. Missing values and unknown categories are handled as by `lawful predict`. Calling the
    model itself takes encoded tensors and returns logits or values.
    """

    encoding: Encodings | None = None
    """How rows are converted to tensors."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names in the order of `predict_proba`; None for regression."""
        return _class_names(self._get_encoding())

    def predict(self, rows: Any) -> np.ndarray:
        """Returns the class of each row, or the predicted numbers: `(n,)`, or `(n, m)` with several targets.

        Classes are text, numbers, or booleans if they are true and false.
        """
        encoding = self._get_encoding()
        classes = _class_names(encoding)
        if classes is None:
            y = self._outputs(rows, _identity)
            return (y[:, 0] if y.shape[1] == 1 else y).numpy()
        labels: list[Any] = list(classes)
        if isinstance(encoding, TableEncoding) and encoding.target.is_boolean:
            labels = [label.lower() == "true" for label in labels]
        if isinstance(encoding, TableEncoding) and encoding.target.by_number:
            numbers = [float(label) for label in labels]
            labels = [int(n) for n in numbers] if all(n.is_integer() for n in numbers) else numbers
        return np.array(labels)[self.predict_proba(rows).argmax(-1)]

    def predict_proba(self, rows: Any) -> np.ndarray:
        """Returns the probability of each class, `(n, classes)`."""
        if _class_names(self._get_encoding()) is None:
            raise TypeError("predict_proba needs a classifier: this is a regression model, use predict")
        return self._outputs(rows, _softmax).numpy()

    def _outputs(self, rows: Any, link: Callable[[Tensor], Tensor]) -> Tensor:
        if not isinstance(self, nn.Module):
            raise TypeError(f"expected an nn.Module, got {type(self).__name__}")
        return predict(self, self._encode(rows), link=link)

    def _encode(self, rows: Any) -> Tensor:
        """Converts rows to the inputs of the model. Warns about filled values and unknown categories."""
        encoding = self._get_encoding()
        if isinstance(rows, str | Path):
            encoded = load_like(rows, encoding)
            inputs, notes = encoded.inputs, encoded.notes
        elif isinstance(encoding, TableEncoding):
            table = table_from_rows(rows, columns=[column.name for column in encoding.columns])
            inputs, notes = encoding.inputs(table), encoding.notes(table)
        elif isinstance(encoding, ImageEncoding) and _are_paths(rows):
            inputs, notes = encoding.inputs(list(map(Path, rows))), ()
        else:
            arrays = encoding if isinstance(encoding, Arrays) else Arrays(_image_shape(encoding))
            inputs, notes = arrays.inputs(np.asarray(rows), name="rows"), ()
        for note in notes:
            warnings.warn(note, stacklevel=5)
        return inputs

    def _get_encoding(self) -> Encodings:
        if self.encoding is None:
            raise ValueError("this model has no encoding of rows: load a trained run with lawful.load")
        return self.encoding


class SupervisedModel(RowPredictor, Standardized):
    """A model of `classify` or `regress`, with standardized inputs."""

    def member_outputs(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "m n d_out"]:
        """Returns the outputs of each network of a cross-validated model."""
        if not isinstance(self.model, Ensemble):
            raise TypeError(f"expected a cross-validated model, got {type(self.model).__name__}")
        y = self.model.member_outputs(self.normalizer(x))
        return y if self.output_normalizer is None else self.output_normalizer.inverse(y)


class SupervisedEnsemble(RowPredictor, Ensemble):
    """An ensemble of `classify` or `regress`."""


def _class_names(encoding: Encodings) -> tuple[str, ...] | None:
    return encoding.target.levels if isinstance(encoding, TableEncoding) else encoding.classes


def _are_paths(rows: Any) -> bool:
    return isinstance(rows, list | tuple) and bool(rows) and all(isinstance(row, str | Path) for row in rows)


def _image_shape(encoding: Any) -> tuple[int, ...]:
    return encoding.channels, encoding.height, encoding.width


def _softmax(logits: Tensor) -> Tensor:
    return logits.softmax(-1)


def _identity(y: Tensor) -> Tensor:
    return y


# ---------------------------------------------------------------- cross-validated networks


class _CorrectedLinear(nn.Module):
    r"""A linear model, fitted in closed form, plus a network that corrects it: $y = A x + a + f(x)$.

    The output layer of the network starts at 0.
    """

    def __init__(self, dim: int, out_dim: int, *, hidden_dims: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, out_dim).requires_grad_(False)
        self.correction = MLP(dim, out_dim, hidden_dims=hidden_dims, activation=nn.SiLU(), dropout=dropout)
        for parameter in self.correction.layers[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d_out"]:
        return self.linear(x) + self.correction(x)


_PENALTIES = (0.1, 1.0, 10.0, 100.0)
"""Penalties of the linear model to choose from by cross-validation."""
_MAX_PENALTY_ROWS = 5000
"""With more rows, the penalty is 1."""
_MAX_FOLD_ROWS = 20_000
"""With more rows, one network is trained."""
_MAX_CNN_VALUES = 4_000_000
"""With more pixels or time steps in the training examples, `auto` trains an MLP: a CNN takes minutes on a CPU."""


def _assign_folds(examples: SupervisedDataset, *, num_folds: int, seed: int) -> Int[Tensor, " n"]:
    """Assigns each example to a fold at random, stratified by class."""
    order = torch.randperm(len(examples), generator=make_generator(seed, num_folds))
    if examples.classes is not None:
        order = order[examples.targets[order].argsort(stable=True)]
    folds = torch.empty(len(examples), dtype=torch.int64)
    folds[order] = torch.arange(len(examples)) % num_folds
    return folds


@torch.no_grad()
def _fit_linear_parts(model: SupervisedModel, examples: SupervisedDataset, folds: Tensor) -> None:
    """Fits the linear part of each network to the other folds, with the penalty of the smallest loss on the folds."""
    ensemble = model.model
    if not isinstance(ensemble, Ensemble):
        raise TypeError(f"expected a cross-validated model, got {type(ensemble).__name__}")
    members = list(ensemble.members)
    x, y = model.normalizer(examples.inputs), examples.targets
    y = y if model.output_normalizer is None else model.output_normalizer(y)
    num_classes = None if examples.classes is None else len(examples.classes)

    def fit(penalty: float) -> tuple[float, list[nn.Linear]]:
        layers = [_fit_linear(x[folds != j], y[folds != j], num_classes, penalty) for j in range(len(members))]
        loss_fn = F.mse_loss if num_classes is None else F.cross_entropy
        losses = [loss_fn(layer(x[folds == j]), y[folds == j], reduction="sum") for j, layer in enumerate(layers)]
        return float(sum(losses)), layers

    penalties = _PENALTIES if len(x) <= _MAX_PENALTY_ROWS else (1.0,)
    _, best = min((fit(penalty) for penalty in penalties), key=lambda fitted: fitted[0])
    for member, layer in zip(members, best, strict=True):
        member.get_submodule("1.linear").load_state_dict(layer.state_dict())


def _fit_linear(x: Tensor, y: Tensor, num_classes: int | None, penalty: float) -> nn.Linear:
    if num_classes is not None:
        return _fit_softmax_regression(x, y, num_classes=num_classes, penalty=penalty).linear.float()
    return LinearRegression(x.shape[1], y.shape[1]).fit(x, y, penalty=penalty).linear


def _other_folds(model: nn.Module, x: Tensor, y: Tensor, folds: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the outputs of each network for the rows that it is trained on, and their targets."""
    if not isinstance(model, SupervisedModel):
        raise TypeError(f"expected a cross-validated model, got {type(model).__name__}")
    outputs = model.member_outputs(x)
    chosen = torch.arange(len(outputs), device=x.device)[:, None] != folds
    return outputs[chosen], y.expand(len(outputs), *y.shape)[chosen]


@torch.no_grad()
def _own_folds(model: nn.Module, x: Tensor, folds: Tensor) -> Tensor:
    """Returns the output for each row of the network that is not trained on it."""
    if not isinstance(model, SupervisedModel):
        raise TypeError(f"expected a cross-validated model, got {type(model).__name__}")
    device = model.normalizer.mean.device
    return model.member_outputs(x.to(device)).to(x.device)[folds, torch.arange(len(x))]


def _evaluate_folds(
    model: nn.Module,
    train: SupervisedDataset,
    folds: Tensor,
    evaluate: Callable[[nn.Module, Tensor, Tensor], Mapping[str, float]],
) -> Mapping[str, float]:
    return evaluate(model, _own_folds(model, train.inputs, folds), train.targets)


def _evaluate_examples(
    model: nn.Module,
    examples: SupervisedDataset,
    evaluate: Callable[[nn.Module, Tensor, Tensor], Mapping[str, float]],
) -> Mapping[str, float]:
    return evaluate(model, predict(model, examples.inputs, link=_identity), examples.targets)


# ---------------------------------------------------------------- building and fitting


def _build_cross_validated(spec: AutoSpec, sizes: ExampleSpec, *, classify: bool) -> SupervisedModel:
    """Builds an ensemble of networks with a linear part, for a table."""
    dim, hidden_dims = math.prod(sizes.shape), (64,) if spec.hidden_dims is None else spec.hidden_dims
    dropout = 0.3 if spec.dropout is None else float(spec.dropout)
    members = [
        nn.Sequential(nn.Flatten(1), _CorrectedLinear(dim, sizes.out_dim, hidden_dims=hidden_dims, dropout=dropout))
        for _ in range(spec.num_folds)
    ]
    return SupervisedModel(
        Ensemble(members, average=mean_probabilities if classify else mean_values),
        normalizer=Standardize(sizes.shape),
        output_normalizer=None if classify else Standardize(sizes.out_dim),
    )


def _build_classifier(spec: ModelSpec, sizes: ExampleSpec) -> SupervisedModel:
    """Builds a classifier for raw inputs; it returns logits."""
    if isinstance(spec, AutoSpec):
        return _build_cross_validated(spec, sizes, classify=True)
    channels = (sizes.shape[0], *[1] * len(sizes.shape[1:]))
    dim = math.prod(sizes.shape)
    core: nn.Module
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
            return SupervisedModel(_build_cnn(spec, sizes), normalizer=Standardize(channels))
        case StateSpaceSpec():
            series = len(sizes.shape) == 1
            return SupervisedModel(_SeriesModel(spec, sizes), normalizer=Standardize(1 if series else channels))
        case _:
            raise ValueError(f"model {spec.name} is not a classifier")
    return SupervisedModel(nn.Sequential(nn.Flatten(1), core), normalizer=Standardize(channels))


class _SeriesModel(nn.Module):
    """A sequence classifier for examples of shape (t,), (c, t) or (c, h, w)."""

    def __init__(self, spec: StateSpaceSpec, sizes: ExampleSpec) -> None:
        super().__init__()
        self.sequence = sequence_classifier(
            1 if len(sizes.shape) == 1 else sizes.shape[0],
            sizes.out_dim,
            ssm=spec.ssm,
            dim=spec.dim,
            num_layers=spec.num_layers,
            state_dim=spec.state_dim,
            dropout=float(spec.dropout),
            dt_min=float(spec.dt_min),
            dt_max=float(spec.dt_max),
        )

    def forward(self, x: Float[Tensor, "n ..."], *, rate: float = 1.0) -> Float[Tensor, "n classes"]:
        """Returns the logits. `rate` is the factor of the sampling step, as in `SequenceClassifier`."""
        x = x.unsqueeze(1) if x.dim() == 2 else x.flatten(2)
        return self.sequence(x.mT, rate=rate)


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


def _build_regressor(spec: ModelSpec, sizes: ExampleSpec) -> SupervisedModel:
    """Builds a regression model for raw inputs and raw targets."""
    if isinstance(spec, AutoSpec):
        return _build_cross_validated(spec, sizes, classify=False)
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
        case _:
            raise ValueError(f"model {spec.name} is not a regression model")
    flat = nn.Sequential(nn.Flatten(1), core)
    return SupervisedModel(flat, normalizer=Standardize(sizes.shape), output_normalizer=Standardize(out_dim))


def _build_checked(build: Callable[[], SupervisedModel]) -> SupervisedModel:
    """Builds a model after checking its number of parameters."""
    _check_parameter_count([build])
    return build()


@torch.enable_grad()
def _fit_softmax_regression(
    x: Tensor, y: Tensor, *, num_classes: int, penalty: float = 1.0, max_iter: int = 100
) -> SoftmaxRegression:
    r"""Fits softmax regression by L-BFGS in float64, with the objective of scikit-learn's `LogisticRegression`.

    $$\min_{W, b} \sum_n -\log p_{y_n}(x_n) + \frac{\lambda}{2} \lVert W \rVert^2$$
    """
    x, model = x.double(), SoftmaxRegression(x.shape[1], num_classes).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=1.0, max_iter=max_iter, history_size=20, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) + penalty / (2 * len(x)) * model.linear.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return model


def _fit_closed_form(model: Standardized, spec: ModelSpec, train: SupervisedDataset) -> None:
    """Fits a model that has a closed form, on standardized inputs and targets."""
    x, y, core = model.normalizer(train.inputs).flatten(1), train.targets, model.get_submodule("model.1")
    y = y if model.output_normalizer is None else model.output_normalizer(y)
    if isinstance(core, KNearest | KNearestClassifier | ThresholdedRegression):
        core.fit(x, y)
    elif isinstance(core, LinearRegression | PolynomialRegression) and isinstance(spec, LinearSpec | PolynomialSpec):
        core.fit(x, y, penalty=float(spec.ridge))


@torch.no_grad()
def _fit_normalizer(model: SupervisedModel, train: SupervisedDataset) -> SupervisedModel:
    """Fits the mean and standard deviation of the training examples."""
    model.fit_normalizer(train.inputs, None if model.output_normalizer is None else train.targets)
    return model


_S = TypeVar("_S", bound="SupervisedRecipe")


@dataclass(frozen=True, kw_only=True)
class SupervisedRecipe(
    SupervisedDataConfig, OptimizationConfig, EvaluationConfig, RegularizationConfig, Recipe[DataSplits]
):
    """Base class of classification and regression."""

    batch_size: _PositiveInt | None = 64
    schedule: Literal["one-cycle", "cosine", "linear", "constant", "warmup-stable-decay"] = "one-cycle"
    warmup_ratio: _WarmupRatio = None
    """Fraction of the steps used for warmup, and for the decay of warmup-stable-decay. Defaults to 0 for the constant
    schedule and to 0.1 for others."""
    num_evals: _NumEvals = None
    patience: _Patience = 0
    num_members: Annotated[int, Range(1, 100)] = 1
    """Number of models in the ensemble, with consecutive seeds. Models that are fitted in closed form need bagging."""
    bagging: bool = False
    """Train each member on a bootstrap sample of the training data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        spec = getattr(self, "model", None)
        if isinstance(spec, ModelSpec) and spec.closed_form:
            for name in self._gradient_options():
                if not is_default(self, name):
                    raise ValueError(
                        f"{name} needs a model that is trained by gradient descent: model {spec.name} is fitted in "
                        "closed form"
                    )
            for name in ("seed", "num_members"):
                if not self.bagging and not is_default(self, name):
                    raise ValueError(
                        f"{name} needs bagging: model {spec.name} is deterministic, only split_seed changes its data"
                    )

    def _gradient_options(self) -> Iterator[str]:
        """The options that a model with a closed form does not have."""
        for config in (OptimizationConfig, EvaluationConfig, RegularizationConfig):
            yield from (field.name for field in fields(config))

    def build_schedule(self, steps: int) -> Schedule:
        """Builds the schedule of the learning rate. A constant one has no warmup by default."""
        if self.schedule in ("constant", "one-cycle") or self.warmup_steps is not None:
            return super().build_schedule(steps)
        return super(SupervisedRecipe, self.with_defaults(warmup_ratio=0.1)).build_schedule(steps)

    def ensemble_members(self: _S) -> Sequence[_S]:
        """Returns the recipes of the members of an ensemble, or nothing for one model."""
        return [] if self.num_members == 1 else replace(self, num_members=1).with_seeds(self.num_members)

    def resolve_model(self, sizes: ExampleSpec) -> ModelSpec:
        """Returns the specification of the model. `auto` becomes a CNN or an MLP if it is not cross-validated."""
        spec = self._model_spec
        if not isinstance(spec, AutoSpec) or self._is_cross_validated(sizes):
            return spec
        return self._choose_network(spec, sizes)[0]

    @property
    def _model_spec(self) -> ModelSpec:
        spec = getattr(self, "model", None)
        if not isinstance(spec, ModelSpec):
            raise TypeError(f"expected a field model with a ModelSpec, got {type(spec).__name__}")
        return spec

    def _is_cross_validated(self, sizes: ExampleSpec) -> bool:
        """Whether the model is `auto` and nothing prevents cross-validation."""
        spec = self._model_spec
        if not isinstance(spec, AutoSpec):
            return False
        reasons = self._reasons_for_one_network(spec, sizes)
        if reasons and spec.num_folds != AutoSpec.num_folds:
            raise ValueError(
                f"num_folds={spec.num_folds} needs a cross-validated model: model auto is one "
                + self._choose_network(spec, sizes)[1]
            )
        return not reasons

    def _choose_network(self, spec: AutoSpec, sizes: ExampleSpec) -> tuple[ModelSpec, str]:
        """Returns the specification of one network, and its name with the reason."""
        num_values = sizes.num_examples * math.prod(sizes.shape[1:])
        cnn, reasons = spec.as_cnn() if len(sizes.shape) > 1 else None, self._reasons_for_one_network(spec, sizes)
        if cnn is not None and self.parallel == "data" and num_values <= _MAX_CNN_VALUES:
            return cnn, f"CNN, because the data are {'series' if len(sizes.shape) == 2 else 'images'}"
        if cnn is not None and num_values > _MAX_CNN_VALUES:
            what = "time steps" if len(sizes.shape) == 2 else "pixels"
            reasons = [f"a CNN is slow for {num_values:,} {what}; model cnn trains one nevertheless"]
        return spec.as_mlp(), f"MLP, because {' and '.join(reasons)}"

    def _reasons_for_one_network(self, spec: AutoSpec, sizes: ExampleSpec) -> list[str]:
        """Says why `auto` is one network; nothing for a table of a size that is cheap to cross-validate."""
        eps, n = getattr(self, "adversarial_eps", 0.0), sizes.num_examples
        reasons = {
            "the data are not a table": len(sizes.shape) != 1,
            f"{n} training rows are fewer than two for each of {spec.num_folds} folds": n < 2 * spec.num_folds,
            f"{n:,} training rows are more than {_MAX_FOLD_ROWS:,}": n > _MAX_FOLD_ROWS,
            f"validation_fraction={self.validation_fraction}": not self.validation_fraction,
            f"bagging={self.bagging}": self.bagging,
            f"parallel={self.parallel}": self.parallel != "data",
            f"adversarial_eps={eps}": eps > 0,
        }
        return [reason for reason, holds in reasons.items() if holds]

    def _describe_choice(self, splits: DataSplits) -> dict[str, str]:
        """Says which model `auto` is, and why; nothing for other models."""
        spec, sizes = self._model_spec, ExampleSpec.of(splits.train)
        if not isinstance(spec, AutoSpec):
            return {}
        if self._reasons_for_one_network(spec, sizes):
            return {"auto": self._choose_network(spec, sizes)[1]}
        rows = len(_fitting_examples(splits))
        return {"auto": f"{spec.num_folds} cross-validated networks, because the data are a table of {rows:,} rows"}

    def _evaluated_parts(self, splits: Mapping[str, SupervisedDataset]) -> Mapping[str, SupervisedDataset]:
        """Returns the splits; with cross-validation the validation rows belong to training."""
        if "validation" not in splits or not self._is_cross_validated(ExampleSpec.of(splits["train"])):
            return splits
        return {"train": _concatenate(splits["train"], splits["validation"]), "test": splits["test"]}

    def training_examples(self, splits: DataSplits) -> SupervisedDataset:
        """Returns the training examples: all, a bootstrap sample, or with cross-validation also the validation rows."""
        if self._is_cross_validated(ExampleSpec.of(splits.train)):
            return _fitting_examples(splits)
        train = splits.train
        return train.take(bootstrap_indices(len(train), seed=self.seed)) if self.bagging else train

    def fitted_outputs(self, model: nn.Module, splits: DataSplits) -> dict[str, tuple[Tensor, Tensor]]:
        """Returns the outputs of the model and the targets, for validation and training.

        With cross-validation, the validation outputs of a row are those of the network that was not trained on it.
        """
        if not self._is_cross_validated(ExampleSpec.of(splits.train)):
            parts = {"validation": splits.validation, "train": splits.train}
            return {
                name: (predict(model, part.inputs, link=_identity), part.targets)
                for name, part in parts.items()
                if part is not None
            }
        examples, found = _fitting_examples(splits), {}
        spec = self._model_spec
        if isinstance(model, SupervisedModel) and isinstance(spec, AutoSpec):
            folds = _assign_folds(examples, num_folds=spec.num_folds, seed=self.seed)
            found["validation"] = (_own_folds(model, examples.inputs, folds), examples.targets)
        return found | {"train": (predict(model, examples.inputs, link=_identity), examples.targets)}

    def example_counts(self, splits: DataSplits) -> dict[str, Any]:
        """Returns the entry `examples` of the results, the choice of `auto`, and the number of its folds."""
        spec = self._model_spec
        choice = {f"model {name}": text for name, text in self._describe_choice(splits).items()}
        if isinstance(spec, AutoSpec) and self._is_cross_validated(ExampleSpec.of(splits.train)):
            counts = splits.counts
            train = counts["train"] + counts["validation"]
            examples = {"train": train, "test": counts["test"]}
            return {**choice, "examples": examples, "cross-validation folds": spec.num_folds}
        return {**choice, "examples": splits.counts}

    def supervised_setup(
        self,
        model: SupervisedModel,
        splits: DataSplits,
        *,
        spec: ModelSpec,
        loss_fn: LossFunction,
        evaluate: Callable[[nn.Module, Tensor, Tensor], Mapping[str, float]],
        claims: Callable[[nn.Module], Iterable[Claim]],
        augment: Augment | None = None,
    ) -> TrainingSetup[DataSplits]:
        """Builds the training setup of a model.

        Args:
            model: Model, with fitted normalizer.
            splits: Examples.
            spec: Specification of the model; one with a closed form is fitted here and needs no steps.
            loss_fn: Loss of a batch.
            evaluate: Returns metrics of the model's outputs for examples with these targets.
            claims: Returns the laws of the trained model.
            augment: Augmentation of a batch.
        """
        model.encoding = splits.encoding
        train, validation, choice = self.training_examples(splits), splits.validation, self._describe_choice(splits)
        optimization = self if spec.closed_form else self.with_defaults(learning_rate=spec.learning_rate)
        if optimization.steps is None and not spec.closed_form:
            optimization = optimization.with_defaults(epochs=spec.epochs)
        tensors, validate = (train.inputs, train.targets), None
        if isinstance(spec, AutoSpec):
            if not is_default(self, "validation_fraction"):
                raise ValueError(
                    f"validation_fraction={self.validation_fraction} has no effect: model auto cross-validates this "
                    "table. Set num_folds instead, or model=mlp to hold out rows for validation"
                )
            folds = _assign_folds(train, num_folds=spec.num_folds, seed=self.seed)
            _fit_linear_parts(model, train, folds)
            tensors = (*tensors, folds)
            validate = partial(_evaluate_folds, train=train, folds=folds, evaluate=evaluate)
        elif validation is not None:
            validate = partial(_evaluate_examples, examples=validation, evaluate=evaluate)
        batches = ShuffledBatches(*tensors, batch_size=self.batch_size or 64, seed=self.seed)
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
            evaluate=validate,
            eval_every=self.eval_every(steps, steps_per_epoch=len(batches)),
            patience=self.patience or None if steps else None,
            restore_best=validation is not None and steps > 0,
            augment=augment,
            constrain=self.constraint(),
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=claims,
            model_config={
                "encoding": splits.encoding.to_json(),
                "example_spec": ExampleSpec.of(splits.train),
                **choice,
            },
            data_fingerprint=splits.fingerprint,
            notes=[
                *(_column_lines(splits) or [_describe_data(Path(self.data).name, splits.encoding, splits.counts)]),
                *(f"model {name}: {text}" for name, text in choice.items()),
            ],
            warnings=splits.warnings,
            data=splits,
        )


def _combine_members(models: Sequence[nn.Module], average: Average) -> nn.Module:
    """Combines trained models into an ensemble; one model is returned as it is."""
    if len(models) == 1:
        return models[0]
    ensemble = SupervisedEnsemble(models, average=average)
    ensemble.encoding = getattr(models[0], "encoding", None)
    return ensemble


def _with_encoding(model: SupervisedModel, model_config: Mapping[str, Any]) -> SupervisedModel:
    """Sets the encoding of a rebuilt model, if the configuration of its run has one."""
    if "encoding" in model_config:
        model.encoding = encoding_from_json(model_config["encoding"])
    return model


# ---------------------------------------------------------------- reports

_MAX_COLUMN_LINES = 20
"""Maximum number of columns that are printed, besides the target."""
_PLURALS = {"number": "numbers", "category": "categories", "date": "dates"}
_MODEL_NAMES = {"auto": "the model", "mlp": "the MLP", "cnn": "the CNN", "knn": "k nearest neighbors"}
"""Names of models in sentences."""


def _model_name(spec: ModelSpec) -> str:
    return _MODEL_NAMES.get(spec.name, f"the {spec.name} model")


def _column_lines(splits: DataSplits) -> list[str]:
    """Describes how each column of a table is used, one line each. Of many columns, the first ones and the target."""
    inputs = [column for column in splits.columns if column.kind != "target"]
    targets = [column for column in splits.columns if column.kind == "target"]
    columns, more = inputs[:_MAX_COLUMN_LINES], Counter(column.kind for column in inputs[_MAX_COLUMN_LINES:])
    width = min(30, max((len(quote(column.name)) for column in (*columns, *targets)), default=0))
    lines = [f"  {quote(column.name):<{width}}  {column.kind:<8}  {column.detail}" for column in (*columns, *targets)]
    if more:
        kinds = ", ".join(f"{count} {kind if count == 1 else _PLURALS.get(kind, kind)}" for kind, count in more.items())
        lines.insert(len(columns), f"  and {more.total()} more: {kinds}")
    return ["columns:", *lines] if lines else []


def _column_results(splits: DataSplits) -> dict[str, Any]:
    """Returns how each column of a table is used, for the report."""
    rows = [
        {"column": column.name, "used as": column.kind, "missing": column.missing, "details": column.detail}
        for column in splits.columns
    ]
    return {"columns": rows} if rows else {}


def _fitting_examples(splits: DataSplits) -> SupervisedDataset:
    """Returns the training and validation examples together."""
    return splits.train if splits.validation is None else _concatenate(splits.train, splits.validation)


def _concatenate(first: SupervisedDataset, second: SupervisedDataset) -> SupervisedDataset:
    inputs, targets = torch.cat([first.inputs, second.inputs]), torch.cat([first.targets, second.targets])
    return replace(first, inputs=inputs, targets=targets)
