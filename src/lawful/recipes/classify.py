"""How the examples of a step are varied, so that a model does not learn them by heart.

Robustness: adversarial training, and the units in which inputs are attacked.
What a model has to beat: the commonest class, the mean, and the nearest examples.
What a classifier came to: its figures with their intervals, and pictures of them.
Classify: from examples with classes to a classifier, its figures and its report.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks import CIRCULAR, SAME, Standardize
from lawful.data import Augment, Batch, SupervisedDataset, compose, cutout, gaussian_noise, random_flip, random_shift
from lawful.functions.activations import identity
from lawful.inference import activity, dead_units, ood_confidence, predict
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
    root_mean_squared_error,
)
from lawful.laws import Claim, batch_independence, shape, sums_to_one
from lawful.losses.classification import cross_entropy
from lawful.models import (
    MLP,
    KNearest,
    KNearestClassifier,
    KNearestConfig,
    MLPConfig,
    ResidualCNN,
    ResidualCNNConfig,
    SoftmaxRegression,
    SoftmaxRegressionConfig,
    Standardized,
    ThresholdedRegression,
    ThresholdedRegressionConfig,
)
from lawful.models.linear import one_hot
from lawful.probe import figures
from lawful.recipes.data import Sizes
from lawful.recipes.optimization import Dropped, Fraction, NotNegative, Suited
from lawful.recipes.supervised import Members, Supervised, drawn, fit_moments, prepared, single, used
from lawful.training import MaxLength, Range, Run, TrainingSetup, validate


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How the examples of a step are varied at random."""

    shift: Annotated[int, Range(0, 10**4)] = 0
    """The most pixels or positions by which images and series are moved."""
    flip: bool = False
    """Whether images and series are mirrored, half of the time, along their last axis."""
    cutout: Annotated[int, Range(0, 10**4)] = 0
    """The width of a square that is cut out of an image, or of a stretch of a series."""
    noise: NotNegative = 0.0
    """The standard deviation of noise that is added to every input, in units of the data."""

    def __post_init__(self) -> None:
        validate(self)

    def of(self, train: SupervisedDataset) -> Augment | None:
        """What is done to a batch of such examples, if anything.

        Raises:
            ValueError: where rows of a table were to be moved, mirrored or cut.
        """
        axes = train.inputs.dim() - 2
        if axes < 1 and (self.shift or self.flip or self.cutout):
            example = tuple(train.inputs.shape[1:])
            raise ValueError(f"shift, flip and cutout are for images and series: these examples have shape {example}")
        steps = [random_shift(self.shift, axes=axes)] if self.shift else []
        steps += [random_flip()] if self.flip else []
        steps += [cutout(self.cutout, axes=axes)] if self.cutout else []
        steps += [gaussian_noise(self.noise)] if self.noise else []
        return compose(*steps) if steps else None


NORMS: dict[str, Norm] = {"linf": LInf(), "l2": L2(), "l1": L1()}
Measured = Literal["linf", "l2", "l1"]


@dataclass(frozen=True, eq=False)
class Units:
    """What a change of inputs is measured in: standard deviations of a table's columns, else the data's own units."""

    shift: Tensor
    scale: Tensor
    box: InputBounds
    """Where inputs lie: images between the least and the largest value that was seen, others anywhere."""

    @classmethod
    def of(cls, inputs: Float[Tensor, "n ..."]) -> Units:
        if inputs.dim() == 2:
            scale = inputs.std(0, correction=0)
            return cls(inputs.mean(0), torch.where(scale > 0, scale, 1.0), FREE)
        least, most = float(inputs.min()), float(inputs.max())
        box = InputBounds(least, most) if least >= 0 and most > least else FREE
        return cls(torch.zeros(()), torch.ones(()), box)

    def measured(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """Inputs in these units; what lies outside the box, in new data, is moved to its border."""
        return self.box.clamp((x - self.shift.to(x)) / self.scale.to(x))

    def raw(self, z: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        return z * self.scale.to(z) + self.shift.to(z)


class Measuring(nn.Module):
    """A classifier that takes inputs in other units than its own."""

    def __init__(self, model: nn.Module, units: Units) -> None:
        super().__init__()
        self.model, self.units = model, units

    def forward(self, z: Float[Tensor, "n ..."]) -> Float[Tensor, "n c"]:
        return self.model(self.units.raw(z))


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """Whether a classifier is trained on the worst inputs close to the examples, rather than on these."""

    adversarial: NotNegative = 0.0
    """How far inputs are moved in training so that they fool, in units of the data (tables: deviations); 0 for not."""
    distance: Measured = "linf"
    """What that is measured in: the largest change of an entry, the Euclidean length, the sum of absolute changes."""
    attack_steps: Annotated[int, Range(1, 10**4)] = 7
    """How many gradients the attack of each training step takes."""

    def __post_init__(self) -> None:
        validate(self)

    def attacked(self, model: nn.Module, batch: Batch, units: Units | None) -> Batch:
        """The batch with its inputs moved to where they fool the model as it is; the model is not changed."""
        if not self.adversarial or units is None or not model.training:
            return batch
        x, y = batch
        seed = int(torch.randint(2**31, ()))
        attack = PGD(eps=self.adversarial, norm=NORMS[self.distance], steps=self.attack_steps, box=units.box, seed=seed)
        return units.raw(attack(Measuring(model, units), units.measured(x), y)), y

    def tested(
        self, model: nn.Module, train: SupervisedDataset, test: SupervisedDataset, *, most: int = 500
    ) -> dict[str, float]:
        """The accuracy on some test examples under a longer attack of the same distance, with its interval."""
        units = Units.of(train.inputs)
        attack = PGD(eps=self.adversarial, norm=NORMS[self.distance], enough=0.0, box=units.box)
        x, y = units.measured(test.inputs[:most]), test.targets[:most]
        return robust_accuracy(Measuring(model, units), x, y, attack=attack).json()


MOST = 20_000
"""The examples that the nearest ones are looked for among, at most."""


def of_classes(train: SupervisedDataset, test: SupervisedDataset) -> dict[str, dict[str, float]]:
    """The accuracy of always saying the commonest class, and of asking the five nearest examples."""
    classes = len(train.classes or ())
    counts = train.targets.bincount(minlength=classes)
    always = one_hot(counts.argmax().expand(len(test)), classes=classes)
    x, y, asked = _near(train, test)
    config = KNearestConfig(n=len(x), d=x.shape[1], outputs=classes, k=min(5, len(x)))
    near = KNearestClassifier(config).fit(x, y)(asked).exp()
    return {
        "commonest class": accuracy(always, test.targets).json(),
        "5 nearest examples": accuracy(near, test.targets).json(),
    }


def of_numbers(train: SupervisedDataset, test: SupervisedDataset) -> dict[str, dict[str, float]]:
    """The error of always saying the mean, and of asking the five nearest examples."""
    always = train.targets.mean(0).expand_as(test.targets)
    x, y, asked = _near(train, test)
    config = KNearestConfig(n=len(x), d=x.shape[1], outputs=y.shape[1], k=min(5, len(x)))
    near = KNearest(config).fit(x, y)(asked)
    return {
        "mean": root_mean_squared_error(always, test.targets).json(),
        "5 nearest examples": root_mean_squared_error(near, test.targets).json(),
    }


@torch.no_grad()
def _near(train: SupervisedDataset, test: SupervisedDataset) -> tuple[Tensor, Tensor, Tensor]:
    """Standardised inputs and their targets, and the inputs that are asked for."""
    some = train.take(torch.arange(min(len(train), MOST)))
    scale = Standardize(tuple(train.inputs.shape[1:])).fit(some.inputs)
    return scale(some.inputs).flatten(1), some.targets, scale(test.inputs).flatten(1)


RATES = ("precision", "recall", "f1")
SHOWN = 200
"""The rows of the sample of predictions."""


def evaluate_classifier(run: Run, training: Supervised) -> dict[str, Any]:
    """Measures a classifier on the examples that it was not trained on, and draws what it does."""
    model, parts = training.model, training.parts
    names = parts.test.classes or ()
    p = predict(model, parts.test.inputs)
    counts = confusion_matrix(p, parts.test.targets)
    scores = [score.json() for score in per_class(counts)]
    bins = [bin.json() for bin in reliability(p, parts.test.targets)]
    test = figures_of(p, parts.test.targets)
    results: dict[str, Any] = {"test": test}
    for part in ("validation", "train"):
        examples = getattr(parts, part)
        if examples is not None:
            results[part] = {"accuracy": accuracy(predict(model, examples.inputs), examples.targets).json()}
    results["baseline accuracy"] = of_classes(parts.train, parts.test)
    results["per class"] = {str(name): score["f1"] for name, score in zip(names, scores, strict=True)}
    results["examples"] = parts.counts
    drawn = {
        "confusion": figures.confusion(counts, names=names),
        "calibration": figures.reliability_diagram(bins, error=test["calibration error"]),
        "per class": figures.class_bars(scores, names=names),
        "confidence far from the data": _rays(model, training),
    }
    if dead := _dead(model, training):
        results["dead units"] = {layer: n for layer, (n, _) in dead.items()}
        drawn["dead units"] = figures.dead_unit_bars(dead)
    if parts.test.inputs.dim() > 2 and int((p.argmax(-1) != parts.test.targets).sum()):
        drawn["surest mistakes"] = figures.mistakes(parts.test.inputs, p, parts.test.targets, names=names)
    if parts.test.inputs.shape[1:] == (2,):
        axes = parts.test.columns or ("first input", "second input")
        drawn["decision regions"] = figures.decision_regions(
            lambda x: predict(model, x),
            parts.test.inputs,
            parts.test.targets,
            names=names,
            axes_names=(axes[0], axes[1]),
        )
    for name, figure in drawn.items():
        figures.save(figure, run.figures / f"{name}.png")
    for name, rows in tables(p, parts.test.targets, names, counts, scores).items():
        with (run.samples / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
    results["warnings"] = list(parts.notes)
    return results


def figures_of(p: Tensor, labels: Tensor) -> dict[str, Any]:
    """The figures of probabilities, each with its interval."""
    return {
        "accuracy": accuracy(p, labels).json(),
        "negative log-likelihood": negative_log_likelihood(p, labels).json(),
        "calibration error": calibration_error(p, labels).json(),
        "Brier score": brier(p, labels).json(),
    }


def _rays(model: nn.Module, training: Supervised) -> Any:
    found = ood_confidence(model, training.parts.train.inputs)
    return figures.confidence_along_rays(
        found.distance, found.confidence, classes=len(training.parts.test.classes or ())
    )


def _dead(model: nn.Module, training: Supervised) -> Mapping[str, tuple[int, int]]:
    """The dead units of each layer; of an ensemble, or a model without units, none are told."""
    return dead_units(activity(model, training.parts.train.inputs))


def tables(
    p: Tensor, labels: Tensor, names: tuple[str, ...], counts: Tensor, scores: list[dict[str, Any]]
) -> dict[str, list[list[object]]]:
    """The predictions of some examples, the confusion matrix and the figures of each class, with their headings."""
    said = [(row.argmax(), label, row.max()) for row, label in zip(p[:SHOWN], labels[:SHOWN], strict=True)]
    matrix = zip(names, counts.tolist(), strict=True)
    rates = [(score["support"], [f"{score[rate]['value']:.4f}" for rate in RATES]) for score in scores]
    return {
        "test predictions": [
            ["true", "predicted", "probability"],
            *([names[int(label)], names[int(best)], f"{float(sure):.4f}"] for best, label, sure in said),
        ],
        "confusion matrix": [["true", *names], *([name, *row] for name, row in matrix)],
        "per class": [
            ["class", *RATES, "examples"],
            *([name, *values, support] for name, (support, values) in zip(names, rates, strict=True)),
        ],
    }


Width = Annotated[int, Range(1, 10**6)]
SUITED: dict[str, Suited] = {"cnn": {"epochs": 20, "learning_rate": 1e-2}}
"""What a model is trained with unless it is said; `benchmarks/supervised.py` measures it."""
ONLY = {
    "hidden": ("mlp",),
    "width": ("cnn",),
    "depth": ("cnn",),
    "kernel": ("cnn",),
    "dropout": ("mlp", "cnn"),
    "neighbours": ("nearest",),
    "order": ("nearest",),
}
"""The models that an option is for."""
USUAL: Suited = {"epochs": 60, "learning_rate": 3e-3}


@dataclass(frozen=True, kw_only=True)
class ClassifyRecipe(Members):
    """Train a classifier on a table, on images, on series or on built-in data."""

    name: ClassVar[str] = "classify"

    model: Literal["mlp", "cnn", "logistic", "thresholded", "nearest"] = "mlp"
    """A perceptron; a residual convolutional network; logistic or (a bad idea) thresholded regression; neighbours."""
    hidden: Annotated[tuple[Width, ...], MaxLength(100)] = (256,)
    """mlp: the width of each hidden layer."""
    width: Width = 32
    """cnn: the channels of the residual stream."""
    depth: Annotated[int, Range(0, 1000)] = 3
    """cnn: the number of residual blocks."""
    kernel: Annotated[int, Range(0, 99)] = 0
    """cnn: the taps of a convolution along each axis, an odd number; 0 for 3 on images and 5 on series."""
    dropout: Dropped = 0.3
    """mlp and cnn: the share of units that is dropped in training; predictions then have an uncertainty too."""
    neighbours: Annotated[int, Range(1, 10**6)] = 5
    """nearest: how many examples are asked."""
    order: Annotated[float, Range(1, 1e6)] = 2.0
    """nearest: the exponent of the distance."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    smoothing: Fraction = 0.03
    """How much of the target is spread over all classes."""
    robustness: Robustness = field(default_factory=Robustness)

    def __post_init__(self) -> None:
        validate(self)
        used(self, ONLY)
        if self.robustness.adversarial and self.model in ("nearest", "thresholded"):
            raise ValueError(f"adversarial training follows gradients: the model {self.model} is fitted without")
        if self.model == "thresholded" and self.learning.members > 1 and self.learning.combine != "probabilities":
            raise ValueError("thresholded members rule classes out, and may agree on none: combine probabilities")

    def training(self) -> Supervised:
        """Reads the examples and builds the classifier."""
        parts = self.given.parts("classify")
        model = single(self.of_sizes, Sizes.of(parts.train))
        fit_moments(model, parts.train)
        fitted = self.model in ("nearest", "thresholded")
        if fitted:
            self.solve(model, drawn(parts.train, self.learning, self.engine))
        return prepared(
            model,
            parts,
            learning=self.learning.suited(**SUITED.get(self.model, USUAL)),
            engine=self.engine,
            objective=partial(self.objective, units=Units.of(parts.train.inputs)),
            evaluate=evaluated,
            claims=partial(self.claims, sizes=Sizes.of(parts.train)),
            augment=self.augmentation.of(parts.train),
            fitted=fitted,
        )

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Measures the classifier on the test, and draws what it does."""
        if not isinstance(training, Supervised):
            return {}
        results = evaluate_classifier(run, training)
        if self.robustness.adversarial:
            results["robust accuracy"] = self.robustness.tested(
                training.model, training.parts.train, training.parts.test
            )
        return results

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its weights are put in."""
        sizes = Sizes.described(facts)
        return self.combined([single(self.of_sizes, sizes) for _ in range(self.learning.members)])

    def combined(self, models: Sequence[nn.Module]) -> nn.Module:
        """Makes one model of the members of an ensemble."""
        return self.together(
            models, mean_probabilities if self.learning.combine == "probabilities" else mean_log_probabilities
        )

    # ------------------------------------------------------------ the model

    def of_sizes(self, sizes: Sizes) -> Standardized:
        """One classifier that takes raw inputs."""
        d = math.prod(sizes.shape)
        if self.model == "cnn":
            return Standardized(self.convolutional(sizes), inputs=Standardize(of_channels(sizes.shape)))
        core: nn.Module
        match self.model:
            case "mlp":
                core = MLP(MLPConfig(d_in=d, d_out=sizes.outputs, hidden=self.hidden, dropout=self.dropout))
            case "logistic":
                core = SoftmaxRegression(SoftmaxRegressionConfig(d=d, classes=sizes.outputs))
            case "thresholded":
                core = ThresholdedRegression(ThresholdedRegressionConfig(d=d, classes=sizes.outputs))
            case "nearest":
                k = min(self.neighbours, sizes.examples)
                facts = KNearestConfig(
                    n=sizes.examples, d=d, outputs=sizes.outputs, k=k, order=float(self.order), smoothing=0.1
                )
                core = KNearestClassifier(facts)
        return Standardized(nn.Sequential(nn.Flatten(1), core), inputs=Standardize(of_channels(sizes.shape)))

    def convolutional(self, sizes: Sizes) -> nn.Module:
        if len(sizes.shape) < 2:
            raise ValueError(
                f"a cnn takes images or series: these examples have shape {sizes.shape}; model mlp takes them"
            )
        series = len(sizes.shape) == 2
        return ResidualCNN(
            ResidualCNNConfig(
                channels=sizes.shape[0],
                classes=sizes.outputs,
                width=self.width,
                depth=self.depth,
                kernel=self.kernel or (5 if series else 3),
                padding=CIRCULAR if series else SAME,
                dims=len(sizes.shape) - 1,
                dropout=self.dropout,
            )
        )

    def solve(self, model: Standardized, train: SupervisedDataset) -> None:
        """Fits a model that has a closed form, on standardised inputs."""
        x = model.inputs(train.inputs).flatten(1)
        core = model.get_submodule("model.1")
        if isinstance(core, KNearestClassifier | ThresholdedRegression):
            core.fit(x, train.targets)

    # ------------------------------------------------------------ how it learns

    def objective(self, model: nn.Module, batch: Batch, units: Units | None = None) -> dict[str, Tensor]:
        """The surprise at the right classes, of inputs that are attacked if they are to be, and the accuracy."""
        x, y = self.robustness.attacked(model, batch, units)
        scores = model(x)
        right = (scores.detach().argmax(-1) == y).float().mean()
        return {"loss": cross_entropy(scores, y, smoothing=self.smoothing), "accuracy": right}

    def claims(self, model: nn.Module, sizes: Sizes) -> Iterator[Claim]:
        """What any classifier is to keep: examples do not mix, probabilities add up to 1."""
        example = shape(" ".join(map(str, ("b", *sizes.shape))))
        yield Claim(batch_independence(), model, example, name=self.model)
        yield Claim(
            sums_to_one(axis=-1), nn.Sequential(model, nn.Softmax(-1)), example, name=f"{self.model}, probabilities"
        )


def of_channels(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The moments of an example: one for each column of a table, or for each channel of an image or a series."""
    return (shape[0], *[1] * len(shape[1:]))


@torch.no_grad()
def evaluated(model: nn.Module, examples: SupervisedDataset) -> dict[str, float]:
    """The loss and the accuracy on examples."""
    scores = predict(model, examples.inputs, link=identity)
    right = (scores.argmax(-1) == examples.targets).double().mean()
    return {"loss": float(cross_entropy(scores, examples.targets)), "accuracy": float(right)}
