"""Classification: augmentation, adversarial training, baselines, evaluation and the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import Config, Range, Requires
from lawful.blocks import Standardize
from lawful.data import Augment, Batch, SupervisedDataset, compose, cutout, gaussian_noise, random_flip, random_shift
from lawful.inference import activation_frequency, dead_units, ood_confidence, predict
from lawful.inference.attacks import FREE, L1, L2, PGD, InputBounds, LInf, Norm, robust_accuracy
from lawful.inference.ensemble import mean_log_probabilities, mean_probabilities
from lawful.inference.metrics import (
    accuracy,
    brier,
    calibration_error,
    confusion_matrix,
    negative_log_likelihood,
    per_class,
    reliability,
)
from lawful.laws import Claim, batch_independence, shape, sums_to_one
from lawful.models import KNearestClassifier
from lawful.probe import figures
from lawful.recipes.data import DataSplits, ExampleSpec
from lawful.recipes.optimization import _classification_loss, _Fraction, _NonNegative
from lawful.recipes.supervised import (
    AutoSpec,
    SupervisedRecipe,
    ThresholdedSpec,
    _build_checked,
    _build_classifier,
    _ClassifierSpec,
    _column_results,
    _combine_members,
    _fit_normalizer,
    _fit_softmax_regression,
    _fitting_examples,
    _model_name,
    _other_folds,
    _with_encoding,
)
from lawful.training import Run, TrainingSetup, compare_with_baselines

# ---------------------------------------------------------------- augmentation


@dataclass(frozen=True, kw_only=True)
class AugmentationConfig(Config):
    """Random augmentation of the training examples."""

    random_shift: Annotated[int, Range(0, 10**4)] = 0
    """Maximum random shift of images and series, in pixels or time steps."""
    random_flip: bool = False
    """Flip images and series along the last axis with probability 0.5."""
    cutout: Annotated[int, Range(0, 10**4)] = 0
    """Side of the random square of an image, or length of the interval of a series, that is set to 0 (cutout)."""
    noise_std: _NonNegative = 0.0
    """Standard deviation of the Gaussian noise added to the inputs, in units of the data."""

    def augmentation(self, train: SupervisedDataset) -> Augment | None:
        """Returns the augmentation of a batch, or None.

        Raises:
            ValueError: If the examples are rows of a table.
        """
        axes = train.inputs.dim() - 2
        if axes < 1 and (self.random_shift or self.random_flip or self.cutout):
            example = tuple(train.inputs.shape[1:])
            raise ValueError(
                f"random_shift, random_flip and cutout need images or series, got examples of shape {example}"
            )
        steps = [random_shift(self.random_shift, axes=axes)] if self.random_shift else []
        steps += [random_flip()] if self.random_flip else []
        steps += [cutout(self.cutout, axes=axes)] if self.cutout else []
        steps += [gaussian_noise(self.noise_std)] if self.noise_std else []
        return compose(*steps) if steps else None


# ---------------------------------------------------------------- adversarial robustness

_NORMS: dict[str, Norm] = {"linf": LInf(), "l2": L2(), "l1": L1()}
"""Norms of perturbations."""
_NormName = Literal["linf", "l2", "l1"]
"""Name of a norm."""


@dataclass(frozen=True, eq=False)
class _AttackUnits:
    """Units of perturbations: standard deviations for the columns of a table, else the units of the data."""

    shift: Tensor
    scale: Tensor
    bounds: InputBounds
    """Range of the inputs: the range of the training data for images, unbounded otherwise."""

    @classmethod
    def of(cls, inputs: Float[Tensor, "n ..."]) -> _AttackUnits:
        """Reads the units from training inputs."""
        if inputs.dim() == 2:
            scale = inputs.std(0, correction=0)
            return cls(inputs.mean(0), torch.where(scale > 0, scale, 1.0), FREE)
        low, high = float(inputs.min()), float(inputs.max())
        bounds = InputBounds(low, high) if low >= 0 and high > low else FREE
        return cls(torch.zeros(()), torch.ones(()), bounds)

    def normalize(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """Converts inputs to these units, clamped to the bounds."""
        return self.bounds.clamp((x - self.shift.to(x)) / self.scale.to(x))

    def denormalize(self, z: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """Converts inputs back to the units of the data."""
        return z * self.scale.to(z) + self.shift.to(z)


class _NormalizedClassifier(nn.Module):
    """A classifier for inputs in `AttackUnits`."""

    def __init__(self, model: nn.Module, units: _AttackUnits) -> None:
        super().__init__()
        self.model, self.units = model, units

    def forward(self, z: Float[Tensor, "n ..."]) -> Float[Tensor, "n c"]:
        return self.model(self.units.denormalize(z))


@dataclass(frozen=True, kw_only=True)
class AdversarialConfig(Config):
    """Adversarial training."""

    adversarial_eps: _NonNegative = 0.0
    """Size of adversarial perturbations in training, in units of the data (tables: standard deviations); 0 disables."""
    adversarial_norm: Annotated[_NormName, Requires(adversarial_eps=True)] = "linf"
    """Norm of adversarial perturbations in training."""
    adversarial_steps: Annotated[int, Range(1, 10**4), Requires(adversarial_eps=True)] = 7
    """PGD steps per training step."""

    def perturb(self, model: nn.Module, batch: Batch, units: _AttackUnits) -> Batch:
        """Returns the batch with adversarial inputs, in training mode."""
        if not self.adversarial_eps or not model.training:
            return batch
        x, y, *_ = batch
        attack = PGD(
            eps=self.adversarial_eps,
            norm=_NORMS[self.adversarial_norm],
            steps=self.adversarial_steps,
            bounds=units.bounds,
            seed=int(torch.randint(2**31, ())),
        )
        return units.denormalize(attack(_NormalizedClassifier(model, units), units.normalize(x), y)), y

    def robust_test_accuracy(
        self, model: nn.Module, splits: DataSplits, *, num_examples: int = 500
    ) -> dict[str, float]:
        """Returns the accuracy under a longer attack of the same size, with its confidence interval."""
        units = _AttackUnits.of(splits.train.inputs)
        attack = PGD(eps=self.adversarial_eps, norm=_NORMS[self.adversarial_norm], stop_margin=0.0, bounds=units.bounds)
        x, y = units.normalize(splits.test.inputs[:num_examples]), splits.test.targets[:num_examples]
        return robust_accuracy(_NormalizedClassifier(model, units), x, y, attack=attack).json()


# ---------------------------------------------------------------- baselines

_MAX_NEIGHBOR_EXAMPLES = 20_000
"""Maximum number of training examples of the baselines."""
_MAX_DISTANCES = 10**8
"""Maximum number of distances of the baseline of nearest neighbors."""
_MAX_LOGISTIC_SIZE = 10**8
"""Maximum number of examples, times features, times classes, of the logistic baseline."""


def _classification_baselines(train: SupervisedDataset, test: SupervisedDataset) -> dict[str, dict[str, float]]:
    """Returns the accuracy of the most frequent class, of the 5 nearest neighbors and of logistic regression."""
    num_classes = len(train.classes or ())
    counts = train.targets.bincount(minlength=num_classes)
    majority = F.one_hot(counts.argmax().expand(len(test)), num_classes).to(torch.get_default_dtype())
    x, y, scale = _neighbor_inputs(train)
    some = _neighbor_queries(len(x), len(test))
    nearest = KNearestClassifier(len(x), x.shape[1], num_classes, k=min(5, len(x))).fit(x, y)
    neighbors = _baseline_outputs(nearest, scale, test.inputs[some]).exp()
    found = {"most frequent class": majority, "5 nearest neighbors": neighbors}
    if x.numel() * num_classes <= _MAX_LOGISTIC_SIZE:
        with torch.no_grad():
            model = _fit_softmax_regression(x, y, num_classes=num_classes)
            logits = _baseline_outputs(lambda queries: model(queries.double()), scale, test.inputs)
        found["logistic regression"] = logits.softmax(-1).to(majority)
    shown = {"5 nearest neighbors": test.targets[some]}
    return {name: accuracy(p, shown.get(name, test.targets)).json() for name, p in found.items()}


def _neighbor_queries(num_examples: int, num_queries: int) -> Tensor:
    """Returns the test rows whose nearest neighbors are searched: all, or evenly spaced ones of a large split."""
    count = min(num_queries, max(1000, _MAX_DISTANCES // num_examples))
    return torch.linspace(0, num_queries - 1, count, dtype=torch.float64).round().long()


@torch.no_grad()
def _neighbor_inputs(train: SupervisedDataset) -> tuple[Tensor, Tensor, Standardize]:
    """Returns standardized training inputs as rows, their targets, and what standardizes the inputs."""
    spread = torch.linspace(0, len(train) - 1, min(len(train), _MAX_NEIGHBOR_EXAMPLES)).round().long()
    some = train.take(spread)  # files are often sorted by class
    scale = Standardize(tuple(train.inputs.shape[1:])).fit(some.inputs)
    return scale(some.inputs).flatten(1), some.targets, scale


_QUERY_ROWS = 2**14
"""Number of test examples that a baseline predicts at a time."""


@torch.no_grad()
def _baseline_outputs(model: Callable[[Tensor], Tensor], scale: Standardize, inputs: Tensor) -> Tensor:
    """Returns the outputs of a baseline for standardized inputs."""
    return torch.cat([model(scale(part).flatten(1)) for part in inputs.split(_QUERY_ROWS)])


# ---------------------------------------------------------------- evaluation

_RATES = ("precision", "recall", "f1")
_PREDICTION_ROWS, _PREDICTION_EXAMPLES = 200, 24
"""Rows of the file with test predictions, and images of the figure."""
_LEAD_FIGURES = ("predictions", "most confident mistakes", "decision regions")
"""Figures that the report shows first: they show the data."""


def _evaluate_classifier(run: Run, model: nn.Module, splits: DataSplits, shown: Tensor) -> dict[str, Any]:
    """Evaluates a classifier on the test split and writes figures, of test inputs as in `shown`, and tables."""
    test = splits.test
    names = test.classes or ()
    p = predict(model, test.inputs)
    counts = confusion_matrix(p, test.targets)
    scores = [score.json() for score in per_class(counts)]
    bins = [bin.json() for bin in reliability(p, test.targets)]
    metrics = _classification_metrics(p, test.targets)
    results: dict[str, Any] = {"test": metrics}
    results["baseline accuracy"] = _classification_baselines(_fitting_examples(splits), test)
    results["F1 per class"] = {str(name): score["f1"] for name, score in zip(names, scores, strict=True)}
    rays = ood_confidence(model, splits.train.inputs)
    plots = {
        "confusion": figures.confusion_matrix(counts, names=names),
        "calibration": figures.reliability_diagram(bins, error=metrics["calibration error"]),
        "per class": figures.class_scores(scores, names=names),
        "confidence far from the data": figures.confidence_along_rays(
            rays.distance, rays.confidence, classes=len(names)
        ),
    }
    if dead := dead_units(activation_frequency(model, splits.train.inputs)):
        results["dead units"] = {layer: n for layer, (n, _) in dead.items()}
        plots["dead units"] = figures.dead_unit_bars(dead)
    if shown.dim() > 2:
        some = torch.linspace(0, len(p) - 1, min(len(p), _PREDICTION_EXAMPLES)).long()  # the split is sorted by class
        plots["predictions"] = figures.predictions(shown[some], p[some], test.targets[some], names=names)
        if int((p.argmax(-1) != test.targets).sum()):
            plots["most confident mistakes"] = figures.mistakes(shown, p, test.targets, names=names)
    if test.inputs.shape[1:] == (2,):
        axes = test.columns or ("first input", "second input")
        plots["decision regions"] = figures.decision_regions(
            lambda x: predict(model, x), test.inputs, test.targets, names=names, axes_names=(axes[0], axes[1])
        )
    for name, figure in plots.items():
        figures.save(figure, run.figures / f"{name}.png", root=run.root)
    results["lead_figures"] = [f"{name}.png" for name in _LEAD_FIGURES if name in plots]
    for name, rows in _tables(p, test.targets, names, counts, scores).items():
        run.write_csv(f"samples/{name}.csv", rows)
    results["warnings"] = list(splits.warnings)
    return results | _column_results(splits)


def _classification_metrics(p: Tensor, labels: Tensor) -> dict[str, Any]:
    """Returns metrics of predicted probabilities, with confidence intervals."""
    return {
        "accuracy": accuracy(p, labels).json(),
        "negative log-likelihood": negative_log_likelihood(p, labels).json(),
        "calibration error": calibration_error(p, labels).json(),
        "Brier score": brier(p, labels).json(),
    }


def _tables(
    p: Tensor, labels: Tensor, names: tuple[str, ...], counts: Tensor, scores: list[dict[str, Any]]
) -> dict[str, list[Any]]:
    """Some predictions, the confusion matrix and the scores of each class, as rows with a header."""
    some = zip(p[:_PREDICTION_ROWS], labels[:_PREDICTION_ROWS], strict=True)
    predictions: list[list[object]] = [
        [names[int(label)], names[int(row.argmax())], f"{float(row.max()):.4f}"] for row, label in some
    ]
    matrix = [[name, *row] for name, row in zip(names, counts.tolist(), strict=True)]
    rates = [
        [name, *(f"{score[rate]['value']:.4f}" for rate in _RATES), score["support"]]
        for name, score in zip(names, scores, strict=True)
    ]
    return {
        "test predictions": [["true", "predicted", "probability"], *predictions],
        "confusion matrix": [["true", *names], *matrix],
        "per class": [["class", *_RATES, "examples"], *rates],
    }


# ---------------------------------------------------------------- the recipe


@dataclass(frozen=True, kw_only=True)
class ClassifyRecipe(AugmentationConfig, AdversarialConfig, SupervisedRecipe):
    """Train a classifier on a table, images, series or built-in data."""

    name: ClassVar[str] = "classify"

    model: _ClassifierSpec = field(default_factory=AutoSpec)
    """Model architecture."""
    label_smoothing: _Fraction | None = None
    """Label smoothing. Defaults to 0 if model auto cross-validates a table, and to 0.03 otherwise."""
    combine_with: Annotated[Literal["probabilities", "log-probabilities"], Requires(num_members=Range(2, 100))] = (
        "probabilities"
    )
    """Quantity that an ensemble averages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.model, ThresholdedSpec) and self.num_members > 1 and self.combine_with != "probabilities":
            raise ValueError("an ensemble of thresholded models needs combine_with='probabilities'")

    def ensemble_members(self) -> Sequence[ClassifyRecipe]:
        """Returns the recipes of the members of an ensemble, or nothing for one model."""
        member = replace(self, num_members=1, combine_with="probabilities")
        return [] if self.num_members == 1 else member.with_seeds(self.num_members)

    def _gradient_options(self) -> Iterator[str]:
        yield from super()._gradient_options()
        yield from (field.name for config in (AugmentationConfig, AdversarialConfig) for field in fields(config))
        yield "label_smoothing"

    def setup(self) -> TrainingSetup[DataSplits]:
        """Loads the examples and builds the classifier."""
        splits = self.load_splits("classify")
        sizes = ExampleSpec.of(splits.train)
        spec = self.resolve_model(sizes)
        model = _build_checked(partial(_build_classifier, spec, sizes))
        return self.supervised_setup(
            _fit_normalizer(model, self.training_examples(splits)),
            splits,
            spec=spec,
            loss_fn=partial(self._loss, units=_AttackUnits.of(splits.train.inputs)),
            evaluate=_evaluate,
            claims=partial(self._claims, sizes=sizes),
            augment=self._augment_inputs(splits.train),
        )

    def _as_series(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """Returns inputs with an axis of channels, if a recipe reads the rows of a table as series."""
        return x

    def _augment_inputs(self, train: SupervisedDataset) -> Augment | None:
        """Returns the augmentation of a batch, in the shape that `_as_series` gives it."""
        series = self._as_series(train.inputs)
        augment = self.augmentation(replace(train, inputs=series, columns=None))
        if augment is None or series.shape == train.inputs.shape:
            return augment

        def apply(batch: Batch) -> Batch:
            x, *others = batch
            moved, *others = augment((self._as_series(x), *others))
            return moved.reshape(x.shape), *others

        return apply

    def finish(self, run: Run, setup: TrainingSetup[DataSplits]) -> Mapping[str, Any]:
        """Evaluates the classifier on the test split and writes figures."""
        results = _evaluate_classifier(run, setup.model, setup.data, self._as_series(setup.data.test.inputs))
        for name, (logits, targets) in self.fitted_outputs(setup.model, setup.data).items():
            results[name] = {"accuracy": accuracy(logits.softmax(-1), targets).json()}
        results |= self.example_counts(setup.data)
        results["summary"] = compare_with_baselines(
            "test accuracy",
            results["test"]["accuracy"],
            results["baseline accuracy"],
            higher_is_better=True,
            model=_model_name(self.model),
        )
        if "logistic regression beats" in results["summary"]:
            results["summary"] += " Train it with --model logistic."
        if self.adversarial_eps:
            results["robust accuracy"] = self.robust_test_accuracy(setup.model, setup.data)
        return results

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        sizes = ExampleSpec.from_config(model_config)
        build = partial(_build_classifier, self.resolve_model(sizes), sizes)
        return self.combine([_with_encoding(_build_checked(build), model_config) for _ in range(self.num_members)])

    def combine(self, models: Sequence[nn.Module]) -> nn.Module:
        """Combines the members of an ensemble."""
        probabilities = self.combine_with == "probabilities"
        return _combine_members(models, mean_probabilities if probabilities else mean_log_probabilities)

    def _loss(self, model: nn.Module, batch: Batch, units: _AttackUnits) -> dict[str, Tensor]:
        """Cross-entropy and accuracy. The objective has smoothed labels, and adversarial inputs if they are used."""
        x, y, *folds = self.perturb(model, batch, units)
        logits, y = _other_folds(model, x, y, *folds) if folds else (model(x), y)
        default = 0.0 if folds else 0.03
        label_smoothing = default if self.label_smoothing is None else self.label_smoothing
        metrics = _classification_loss(logits, y, label_smoothing=label_smoothing)
        if not self.adversarial_eps:
            return metrics
        objective = metrics["objective" if label_smoothing else "loss"]
        return {"objective": objective, "adversarial_accuracy": metrics["accuracy"]}

    def _claims(self, model: nn.Module, sizes: ExampleSpec) -> Iterator[Claim]:
        """A classifier treats examples independently and returns probabilities."""
        example, name = shape(" ".join(map(str, ("b", *sizes.shape)))), self.model.name
        yield Claim(batch_independence(), model, example, name=name)
        yield Claim(sums_to_one(axis=-1), nn.Sequential(model, nn.Softmax(-1)), example, name=f"{name}, probabilities")


def _evaluate(model: nn.Module, logits: Tensor, targets: Tensor) -> dict[str, float]:
    """Cross-entropy and accuracy."""
    correct = (logits.argmax(-1) == targets).double().mean()
    return {"loss": float(F.cross_entropy(logits, targets)), "accuracy": float(correct)}
