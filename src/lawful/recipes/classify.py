"""Classify: from examples with classes to a classifier, its figures and its report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful.blocks import CIRCULAR, SAME, Standardize
from lawful.data import Batch, Examples
from lawful.functions.activations import identity
from lawful.inference import predict
from lawful.inference.ensemble import arithmetic, geometric
from lawful.laws import Claim, batch_independence, shape, sums_to_one
from lawful.models import (
    MLP,
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
from lawful.objectives import cross_entropy
from lawful.recipes.augmentation import Augmentation
from lawful.recipes.classified import results_of
from lawful.recipes.learning import Dropped, Fraction, Suited
from lawful.recipes.robustness import Robustness, Units
from lawful.recipes.sizes import Sizes
from lawful.recipes.supervised import Members, Supervised, drawn, fit_moments, prepared, single, used
from lawful.training import AtMost, Between, Run, Training, validate

Width = Annotated[int, Between(1, 10**6)]
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
class Classify(Members):
    """Train a classifier on a table, on images, on series or on built-in data."""

    name: ClassVar[str] = "classify"

    model: Literal["mlp", "cnn", "logistic", "thresholded", "nearest"] = "mlp"
    """A perceptron; a residual convolutional network; logistic or (a bad idea) thresholded regression; neighbours."""
    hidden: Annotated[tuple[Width, ...], AtMost(100)] = (256,)
    """mlp: the width of each hidden layer."""
    width: Width = 32
    """cnn: the channels of the residual stream."""
    depth: Annotated[int, Between(0, 1000)] = 3
    """cnn: the number of residual blocks."""
    kernel: Annotated[int, Between(0, 99)] = 0
    """cnn: the taps of a convolution along each axis, an odd number; 0 for 3 on images and 5 on series."""
    dropout: Dropped = 0.3
    """mlp and cnn: the share of units that is dropped in training; predictions then have an uncertainty too."""
    neighbours: Annotated[int, Between(1, 10**6)] = 5
    """nearest: how many examples are asked."""
    order: Annotated[float, Between(1, 1e6)] = 2.0
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

    def finish(self, run: Run, training: Training) -> Mapping[str, Any]:
        """Measures the classifier on the test, and draws what it does."""
        if not isinstance(training, Supervised):
            return {}
        results = results_of(run, training)
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
        return self.together(models, arithmetic if self.learning.combine == "probabilities" else geometric)

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

    def solve(self, model: Standardized, train: Examples) -> None:
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
def evaluated(model: nn.Module, examples: Examples) -> dict[str, float]:
    """The loss and the accuracy on examples."""
    scores = predict(model, examples.inputs, link=identity)
    right = (scores.argmax(-1) == examples.targets).double().mean()
    return {"loss": float(cross_entropy(scores, examples.targets)), "accuracy": float(right)}
