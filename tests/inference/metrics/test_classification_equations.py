"""Second derivations of the classification metrics."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from lawful.inference.metrics import (
    accuracy,
    brier,
    calibration_error,
    confusion_matrix,
    negative_log_likelihood,
    per_class,
    reliability,
)
from lawful.laws import Claim, agreement, probabilities, tokens, transformed


def _classification_claims() -> Iterator[Claim]:
    """Laws of classification metrics."""
    data = (probabilities("n 3"), tokens("n", vocab_size=3))

    def right(p: Tensor, labels: Tensor) -> Tensor:
        return p.new_tensor(accuracy(p, labels).value)

    def trace(p: Tensor, labels: Tensor) -> Tensor:
        counts = confusion_matrix(p, labels).to(p)
        return counts.trace() / counts.sum()

    yield Claim(agreement(other=trace), right, data, name="accuracy and the confusion matrix")

    def scores(p: Tensor, labels: Tensor) -> Tensor:
        found = per_class(confusion_matrix(p, labels))
        return p.new_tensor([(s.precision.value, s.recall.value, s.f1.value, s.support) for s in found])

    def counted(p: Tensor, labels: Tensor) -> Tensor:
        predicted, present = (x[:, None] == torch.arange(3) for x in (p.argmax(-1), labels))
        right, called, support = ((predicted & present).sum(0), predicted.sum(0), present.sum(0))
        return (
            torch.stack([right / called, right / support, 2 * right / (called + support), support], -1)
            .nan_to_num()
            .to(p)
        )

    yield Claim(agreement(other=counted), scores, data, name="per_class")

    def losses(p: Tensor, labels: Tensor) -> Tensor:
        return p.new_tensor([negative_log_likelihood(p, labels).value, brier(p, labels).value])

    def equations(p: Tensor, labels: Tensor) -> Tensor:
        p, truth = p.double(), torch.eye(3, dtype=torch.float64)[labels]
        return torch.stack([-(truth * p.log()).sum() / len(p), (p - truth).square().sum() / len(p)])

    inside = (transformed(lambda x: (3 * x.tanh()).softmax(-1), "n 3"), tokens("n", vocab_size=3))
    yield Claim(
        replace(agreement(other=lambda p, y: equations(p, y).to(p)), cases=3),
        losses,
        inside,
        name="surprise and Brier's score",
    )


def _calibration_claims() -> Iterator[Claim]:
    """Laws of calibration."""

    def listed(p: Tensor, labels: Tensor) -> Tensor:
        rows = [(b.low, b.high, b.confidence, b.accuracy.value, b.count) for b in reliability(p, labels)]
        return p.new_tensor(rows).sum(0)

    def counted(p: Tensor, labels: Tensor) -> Tensor:
        rows = [(i / 10, (i + 1) / 10, *part) for i, part in enumerate(_reliability_by_loop(p, labels)) if part[-1]]
        return p.new_tensor(rows).sum(0)

    def error(p: Tensor, labels: Tensor) -> Tensor:
        return p.new_tensor(calibration_error(p, labels).value)

    def equation(p: Tensor, labels: Tensor) -> Tensor:
        return p.new_tensor(sum(n * abs(right - sure) for sure, right, n in _reliability_by_loop(p, labels)) / len(p))

    rounded_up = (transformed(lambda x: 1.000001 * (9 * x).softmax(-1), "n 3"), tokens("n", vocab_size=3))
    yield Claim(agreement(other=counted), listed, rounded_up, name="reliability, the bins added up")
    eight = (probabilities("8 3"), tokens("8", vocab_size=3))
    yield Claim(replace(agreement(other=equation), cases=3), error, eight, name="calibration_error")


def _reliability_by_loop(p: Tensor, labels: Tensor) -> list[tuple[float, float, int]]:
    """Confidence, accuracy and count of each of ten bins, by a loop over predictions."""
    found: list[list[tuple[float, bool]]] = [[] for _ in range(10)]
    for row, label in zip(p.double().tolist(), labels.tolist(), strict=True):
        sure = max(row)
        place = next((i for i in range(10) if sure <= (i + 1) / 10), 9)
        found[place].append((sure, row.index(sure) == label))
    means = [[sum(pair[i] for pair in part) / max(1, len(part)) for i in (0, 1)] for part in found]
    return [(sure, right, len(part)) for (sure, right), part in zip(means, found, strict=True)]


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _classification_claims()
    yield from _calibration_claims()
