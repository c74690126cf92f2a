"""Regress: from examples with numbers to predict to a model, its figures and its report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful.blocks import Standardize
from lawful.data import Batch, SupervisedDataset
from lawful.functions.activations import identity
from lawful.inference import activity, dead_units, predict
from lawful.inference.ensemble import mean
from lawful.inference.metrics import mean_absolute_error, r_squared, root_mean_squared_error
from lawful.laws import Claim, batch_independence, shape
from lawful.losses.regression import absolute_error, huber_loss, squared_error
from lawful.models import (
    MLP,
    KNearest,
    KNearestConfig,
    LinearRegression,
    LinearRegressionConfig,
    MLPConfig,
    PolynomialRegression,
    PolynomialRegressionConfig,
    Standardized,
)
from lawful.probe import figures
from lawful.recipes.classify import of_numbers
from lawful.recipes.data import Sizes, SupervisedData
from lawful.recipes.optimization import Dropped, Learning, NotNegative
from lawful.recipes.supervised import Members, Supervised, drawn, fit_moments, prepared, single, used
from lawful.training import MaxLength, Range, Run, TrainingSetup, validate

Width = Annotated[int, Range(1, 10**6)]
ONLY = {
    "hidden": ("mlp",),
    "dropout": ("mlp",),
    "loss": ("mlp",),
    "degree": ("polynomial",),
    "ridge": ("linear", "polynomial"),
    "neighbours": ("nearest",),
    "order": ("nearest",),
}
"""The models that an option is for."""
LOSSES = {"squared": squared_error, "absolute": absolute_error, "huber": huber_loss}


@dataclass(frozen=True, kw_only=True)
class RegressRecipe(Members):
    """Train a regression on a table, on arrays or on built-in data."""

    name: ClassVar[str] = "regress"

    model: Literal["mlp", "linear", "polynomial", "nearest"] = "mlp"
    """A multilayer perceptron; an affine map or a polynomial, by least squares; or the mean of the nearest examples."""
    hidden: Annotated[tuple[Width, ...], MaxLength(100)] = (64, 64)
    """mlp: the width of each hidden layer."""
    dropout: Dropped = 0.0
    """mlp: the share of units that is dropped in training; predictions then have an uncertainty too."""
    loss: Literal["squared", "absolute", "huber"] = "squared"
    """mlp: what is made small, in standard deviations of the targets."""
    degree: Annotated[int, Range(1, 100)] = 2
    """polynomial: the highest degree."""
    ridge: NotNegative = 0.0
    """linear and polynomial: the penalty on squared weights."""
    neighbours: Annotated[int, Range(1, 10**6)] = 5
    """nearest: how many examples are asked."""
    order: Annotated[float, Range(1, 1e6)] = 2.0
    """nearest: the exponent of the distance."""
    given: SupervisedData = field(default_factory=lambda: SupervisedData(data="diabetes"))
    learning: Learning = field(default_factory=lambda: Learning(patience=20))

    def __post_init__(self) -> None:
        validate(self)
        used(self, ONLY)

    def training(self) -> Supervised:
        """Reads the examples and builds the model."""
        parts = self.given.parts("regress")
        model = fit_moments(single(self.of_sizes, Sizes.of(parts.train)), parts.train)
        fitted = self.model != "mlp"
        if fitted:
            self.solve(model, drawn(parts.train, self.learning, self.engine))
        return prepared(
            model,
            parts,
            learning=self.learning.suited(epochs=100, learning_rate=3e-3),
            engine=self.engine,
            objective=self.objective,
            evaluate=self.evaluated,
            claims=self.claims,
            fitted=fitted,
        )

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Measures the model on the test, and draws what it does."""
        if not isinstance(training, Supervised):
            return {}
        parts, found = training.parts, {}
        for name in ("test", "validation", "train"):
            examples = getattr(parts, name)
            if examples is not None:
                found[name] = figures_of(predict(training.model, examples.inputs, link=identity), examples.targets)
        y = predict(training.model, parts.test.inputs, link=identity)
        figures.save(figures.predicted_and_true(y, parts.test.targets), run.figures / "predicted and true.png")
        dead = dead_units(activity(training.model, parts.train.inputs))
        if dead:
            found["dead units"] = {layer: n for layer, (n, _) in dead.items()}
            figures.save(figures.dead_unit_bars(dead), run.figures / "dead units.png")
        return {
            **found,
            "baseline root mean squared error": of_numbers(parts.train, parts.test),
            "examples": parts.counts,
            "warnings": list(parts.notes),
        }

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its weights are put in."""
        sizes = Sizes.described(facts)
        return self.combined([single(self.of_sizes, sizes) for _ in range(self.learning.members)])

    def combined(self, models: Sequence[nn.Module]) -> nn.Module:
        """Makes one model of the members of an ensemble."""
        return self.together(models, mean)

    # ------------------------------------------------------------ the model

    def of_sizes(self, sizes: Sizes) -> Standardized:
        """One model that takes raw inputs and gives raw predictions."""
        d, outputs = math.prod(sizes.shape), sizes.outputs
        core: nn.Module
        match self.model:
            case "mlp":
                core = MLP(MLPConfig(d_in=d, d_out=outputs, hidden=self.hidden, dropout=float(self.dropout)))
            case "linear":
                core = LinearRegression(LinearRegressionConfig(d_in=d, d_out=outputs))
            case "polynomial":
                core = PolynomialRegression(PolynomialRegressionConfig(d_in=d, d_out=outputs, degree=self.degree))
            case "nearest":
                k = min(self.neighbours, sizes.examples)
                core = KNearest(KNearestConfig(n=sizes.examples, d=d, outputs=outputs, k=k, order=float(self.order)))
        flat = nn.Sequential(nn.Flatten(1), core)
        return Standardized(flat, inputs=Standardize(sizes.shape), outputs=Standardize(outputs))

    def solve(self, model: Standardized, train: SupervisedDataset) -> None:
        """Fits a model that has a closed form, in standard units."""
        x, y, core = model.inputs(train.inputs).flatten(1), train.targets, model.get_submodule("model.1")
        y = y if model.outputs is None else model.outputs(y)
        if isinstance(core, KNearest):
            core.fit(x, y)
        elif isinstance(core, LinearRegression | PolynomialRegression):
            core.fit(x, y, penalty=float(self.ridge))

    # ------------------------------------------------------------ how it learns

    def objective(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss in standard deviations of the targets."""
        return LOSSES[self.loss](*in_standard_units(model, *batch))

    @torch.no_grad()
    def evaluated(self, model: nn.Module, examples: SupervisedDataset) -> dict[str, float]:
        """The loss on examples, and the root of the mean squared error in the units of the targets."""
        y, target = predict(model, examples.inputs, link=identity), examples.targets
        loss = LOSSES[self.loss](*(units(model)(v) for v in (y, target)))
        return {"loss": float(loss), "error": float((y - target).square().mean().sqrt())}

    def claims(self, model: nn.Module) -> Iterator[Claim]:
        """What any model of this kind is to keep: examples do not mix."""
        moments = next(m for m in model.modules() if isinstance(m, Standardized)).inputs.mean
        example = shape(" ".join(map(str, ("b", *moments.shape))))
        yield Claim(batch_independence(), model, example, name=self.model)


def units(model: nn.Module) -> nn.Module:
    """What turns targets into standard deviations of them."""
    if not isinstance(model, Standardized) or model.outputs is None:
        raise TypeError(f"a model with standardised outputs was wanted: got {type(model).__name__}")
    return model.outputs


def in_standard_units(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Predictions and targets in standard deviations of the targets."""
    scale = units(model)
    return scale(model(x)), scale(y)


def figures_of(y: Tensor, target: Tensor) -> dict[str, Any]:
    """The figures of predictions, each with its interval."""
    return {
        "root mean squared error": root_mean_squared_error(y, target).json(),
        "mean absolute error": mean_absolute_error(y, target).json(),
        "R²": r_squared(y, target).json(),
    }
