"""What a classifier came to: its figures with their intervals, and pictures of them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from lawful.inference import activity, dead_units, far_confidence, predict
from lawful.inference.metrics import (
    accuracy,
    brier,
    calibration_error,
    confusion_matrix,
    negative_log_likelihood,
    per_class,
    reliability,
)
from lawful.probe import figures
from lawful.recipes.baselines import of_classes
from lawful.recipes.supervised import Supervised
from lawful.training import Run

RATES = ("precision", "recall", "f1")
SHOWN = 200
"""The rows of the sample of predictions."""


def results_of(run: Run, training: Supervised) -> dict[str, Any]:
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
    found = far_confidence(model, training.parts.train.inputs)
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
