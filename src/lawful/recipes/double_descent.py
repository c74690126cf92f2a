"""A family of models that are trained side by side, in one loop.

Double descent: a whole family of models, from too small to far too large, trained side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.data import Batch, ShuffledBatches, SupervisedDataset, fingerprint, mnist1d, noisy_labels
from lawful.inference.metrics.intervals import wilson
from lawful.laws import Claim, batch_independence, shape
from lawful.losses.classification import cross_entropy
from lawful.models import MLP, MLPConfig
from lawful.models.cnn import StridedCNN, StridedCNNConfig
from lawful.optim import sgd
from lawful.probe import figures
from lawful.recipes.model_size import check_parameter_count
from lawful.training import OptimizerStep, Range, Run, TrainerConfig, TrainingSetup, validate


class Family(nn.Module):
    """Runs models side by side on the same inputs."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Float[Tensor, "b *shape"]) -> Float[Tensor, "b m classes"]:
        """The scores of every member."""
        return torch.stack([member(x) for member in self.members], dim=1)


def objective(model: nn.Module, batch: Batch) -> Tensor:
    """The sum of the losses of all members, so that each has the gradient of its own."""
    x, y = batch
    scores = model(x)
    members = scores.shape[1]
    return members * cross_entropy(scores.flatten(0, 1), y.repeat_interleave(members))


@torch.no_grad()
def wrong(model: nn.Module, x: Float[Tensor, "n *shape"], labels: Int[Tensor, " n"]) -> list[float]:
    """The share of wrong answers of every member."""
    device = next(model.parameters()).device
    answers = torch.cat([model(part.to(device)).argmax(-1) for part in x.split(2000)])
    return (answers.cpu() != labels[:, None]).double().mean(0).tolist()


LARGEST = {"mlp": 300, "cnn": 100}
FITTED = 0.005
"""The training error below which a model is said to fit the training data."""


@dataclass(frozen=True, kw_only=True)
class Measured(TrainingSetup):
    """A training with the examples whose errors are counted."""

    train: SupervisedDataset
    test: SupervisedDataset


@dataclass(frozen=True, kw_only=True)
class DoubleDescentRecipe:
    """Train models of many sizes on MNIST-1D with wrong labels: the test error falls, rises and falls again."""

    name: ClassVar[str] = "double-descent"

    model: Literal["mlp", "cnn"] = "mlp"
    """A perceptron with two hidden layers, or a network of three strided convolutions."""
    capacities: Annotated[int, Range(1, 200)] = 20
    """How many sizes, evenly spaced on a logarithmic scale; those that round to the same are trained once."""
    smallest: Annotated[int, Range(1, 10**5)] = 2
    """The fewest hidden units of a layer, or channels."""
    largest: Annotated[int, Range(1, 10**5)] | None = None
    """The most of them; by default 300 units or 100 channels."""
    seeds: Annotated[int, Range(1, 100)] = 1
    """How many models of each size, each with other first weights: the ensemble whose errors are averaged."""
    epochs: Annotated[int, Range(1, 10**7)] = 500
    """How often every example is seen."""
    every: Annotated[int, Range(1, 10**7)] = 2
    """Epochs from one count of the errors to the next."""
    noise: Annotated[float, Range(0, 1)] = 0.15
    """The share of the training labels that are wrong."""
    samples: Annotated[int, Range(20, 10**7)] = 16_000
    """The number of examples."""
    train: Annotated[float, Range(0.01, 0.99)] = 0.25
    """The share of them that is trained on; the others, with the right labels, are the test."""
    batch: Annotated[int, Range(1, 10**9)] = 100
    """Examples in a step."""
    learning_rate: Annotated[float, Range(0, 1e30)] = 0.01
    """The length of a step."""
    momentum: Annotated[float, Range(0, 1)] = 0.9
    """How much of the last step is in the next."""
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)
        if self.smallest > self.most:
            raise ValueError(f"smallest is at most largest: got {self.smallest} and {self.most}")

    @property
    def most(self) -> int:
        return LARGEST[self.model] if self.largest is None else self.largest

    @property
    def widths(self) -> list[int]:
        """The sizes, from the smallest to the largest."""
        return np.unique(np.geomspace(self.smallest, self.most, self.capacities).round(9).astype(int)).tolist()

    def training(self) -> Measured:
        """Makes the examples and builds the family."""
        examples = mnist1d(samples=self.samples)
        parts = torch.arange(len(examples)).tensor_split([int(self.train * len(examples))])
        right, test = (examples.take(part) for part in parts)
        labels = noisy_labels(right.targets, classes=10, fraction=self.noise, seed=self.engine.seed)
        train = replace(right, targets=labels)
        family = self.family()
        optimizer = sgd(family.parameters(), lr=self.learning_rate, momentum=self.momentum)
        batches = ShuffledBatches(train.inputs, train.targets, size=self.batch, seed=self.engine.seed)
        return Measured(
            model=family,
            turns=[OptimizerStep(objective=objective, optimizer=optimizer)],
            batches=batches,
            steps=self.epochs * len(batches),
            evaluate=lambda model: self.evaluated(model, train, test),
            every=self.every * len(batches),
            watch=None,
            claims=self.claims,
            fingerprint=fingerprint(train.inputs, labels, test.inputs, test.targets),
            train=train,
            test=test,
        )

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Draws the errors over the capacity and over the epochs, and returns those of the last."""
        if not isinstance(training, Measured) or not isinstance(training.model, Family):
            return {}
        lines = [line for line in run.metrics() if f"validation/{self.labels[0]}/test error" in line]
        errors = {part: self.table(lines, part) for part in ("train error", "test error")}
        sizes = [sum(p.numel() for p in m.parameters()) for m in training.model.members][: len(self.widths)]
        final = {part: table[-1] for part, table in errors.items()}
        fits = np.flatnonzero(final["train error"].mean(0) < FITTED)
        threshold = None if not len(fits) else sizes[fits[0]]
        figures.save(
            figures.double_descent(sizes, final["train error"], final["test error"], threshold=threshold),
            run.figures / "error over capacity.png",
        )
        over_time = errors["test error"].mean(1).T
        epochs = [line["step"] / len(training.batches) for line in lines]
        figures.save(figures.epoch_double_descent(epochs, sizes, over_time), run.figures / "error over epochs.png")
        margin = 2 * math.sqrt(0.5 / len(training.test))
        counts = {"train error": len(training.train), "test error": len(training.test)}
        return {
            **{part: self.named(table, counts[part]) for part, table in final.items()},
            "parameters": dict(zip(map(str, self.widths), sizes, strict=True)),
            "smallest that fits": None if threshold is None else str(self.widths[fits[0]]),
            "double descent over capacity": descents(final["test error"].mean(0), self.widths, margin=margin),
            "double descent over epochs, largest model": descents(*steadied(over_time[-1], epochs), margin=margin),
        }

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the family of a run, before its weights are put in."""
        return self.family()

    # ------------------------------------------------------------ the family

    def family(self) -> Family:
        """All models: every size with the first seed, then with the next.

        Raises:
            ValueError: where they have too many weights.
        """
        check_parameter_count([partial(self.member, width) for width in self.widths], copies=self.seeds)
        return Family([self.member(width) for _ in range(self.seeds) for width in self.widths])

    def member(self, width: int) -> nn.Module:
        """One model."""
        if self.model == "cnn":
            return StridedCNN(StridedCNNConfig(width=width))
        return nn.Sequential(nn.Flatten(1), MLP(MLPConfig(d_in=40, d_out=10, hidden=(width, width))))

    @property
    def labels(self) -> list[str]:
        """What the members are called in the metrics."""
        kind = "units" if self.model == "mlp" else "channels"
        several = [f", {seed}" for seed in range(self.seeds)] if self.seeds > 1 else [""]
        return [f"{width} {kind}{seed}" for seed in several for width in self.widths]

    def claims(self, model: nn.Module) -> Iterator[Claim]:
        """What the models are to keep: examples do not mix."""
        largest = model.get_submodule(f"members.{len(self.widths) - 1}")
        yield Claim(batch_independence(), largest, shape("b 1 40"), name=self.labels[len(self.widths) - 1])

    # ------------------------------------------------------------ its errors

    def evaluated(self, model: nn.Module, train: SupervisedDataset, test: SupervisedDataset) -> dict[str, float]:
        """The share of wrong answers of every member; the last weights are those to keep, whatever it is."""
        found = {}
        for part, examples in (("train error", train), ("test error", test)):
            errors = wrong(model, examples.inputs, examples.targets)
            found |= {f"{label}/{part}": error for label, error in zip(self.labels, errors, strict=True)}
        return found

    def table(self, lines: Sequence[Mapping[str, Any]], part: str) -> np.ndarray:
        """The errors by evaluation, seed and size."""
        rows = [[line[f"validation/{label}/{part}"] for label in self.labels] for line in lines]
        return np.array(rows).reshape(len(lines), self.seeds, len(self.widths))

    def named(self, errors: np.ndarray, examples: int) -> dict[str, Any]:
        """Errors by size, the mean over the seeds, each with its interval."""
        hits = (errors.mean(0) * examples).round().astype(int).tolist()
        return {str(width): wilson(n, examples).json() for width, n in zip(self.widths, hits, strict=True)}


def steadied(errors: np.ndarray, at: Sequence[float]) -> tuple[np.ndarray, Sequence[float]]:
    """Averages each error with its two neighbours on both sides, as steps of descent make them jump."""
    return (np.convolve(errors, np.full(5, 0.2), mode="valid"), at[2:-2]) if len(errors) > 4 else (errors, at)


def descents(errors: np.ndarray | Sequence[float], at: Sequence[float], *, margin: float) -> dict[str, Any]:
    """Finds the first descent of errors, the peak after it and the second descent.

    Args:
        errors: The errors, from the smallest model or the first epoch on.
        at: The sizes or the epochs.
        margin: How far errors rise to the peak, and fall from it, if that is not chance.

    Examples:
        >>> found = descents([0.6, 0.4, 0.5, 0.3], [2, 4, 8, 16], margin=0.05)
        >>> found["first"], found["peak"], found["second"], found["peak error"]
        (4, 8, 16, 0.5)
        >>> descents([0.6, 0.4, 0.3], [2, 4, 8], margin=0.05)
        {'found': False}
    """
    y = np.asarray(errors)
    rise, fall = y - np.minimum.accumulate(y), y - np.minimum.accumulate(y[::-1])[::-1]
    peak = int(np.minimum(rise, fall).argmax())
    if min(rise[peak], fall[peak]) <= margin:
        return {"found": False}
    places = {"first": int(y[:peak].argmin()), "peak": peak, "second": peak + int(y[peak:].argmin())}
    there = {"found": True} | {name: at[i] for name, i in places.items()}
    return there | {f"{name} error": float(y[i]) for name, i in places.items()}
