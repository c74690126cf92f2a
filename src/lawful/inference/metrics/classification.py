"""How good a classifier is: accuracy, each class, and how surprising the truth is to it.

Calibration: whether of all that is said to be 80 % sure, 80 % is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.inference.metrics.intervals import ConfidenceInterval, bootstrap, wilson
from lawful.laws import Claim, agreement, probabilities, tokens, transformed


def accuracy(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> ConfidenceInterval:
    r"""Counts how often the most probable class is the right one, with Wilson's interval.

    $$\frac{1}{n} \left| \{ i : \arg\max_k p_{ik} = y_i \} \right|$$

    Args:
        p: The probabilities $p$, or any scores, of the classes.
        labels: The right classes $y$.

    Examples:
        >>> print(accuracy(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1])))
        0.5 [0.09453, 0.9055]
    """
    check(p, labels)
    return wilson(int((p.argmax(-1) == labels).sum()), len(labels))


def confusion_matrix(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Int[Tensor, "c c"]:
    r"""Counts how often each class, a row, was taken for each class, a column.

    $$C_{jk} = \left| \{ i : y_i = j, \ \arg\max_l p_{il} = k \} \right|$$

    Args:
        p: The probabilities $p$, or any scores, of the classes.
        labels: The right classes $y$.

    Examples:
        >>> confusion_matrix(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
        tensor([[1, 0],
                [1, 0]])
    """
    check(p, labels)
    c = p.shape[-1]
    return torch.bincount(labels.long() * c + p.argmax(-1), minlength=c * c).reshape(c, c)


@dataclass(frozen=True)
class ClassScores:
    """How well one class is told from the others."""

    precision: ConfidenceInterval
    """Of those that are said to have the class, the share that has it."""
    recall: ConfidenceInterval
    """Of those that have the class, the share that is said to have it."""
    f1: ConfidenceInterval
    """The harmonic mean of both."""
    support: int
    """How many have the class."""

    def json(self) -> dict[str, dict[str, float] | int]:
        """Returns what is written to a file."""
        scores = {"precision": self.precision.json(), "recall": self.recall.json(), "f1": self.f1.json()}
        return {**scores, "support": self.support}


def per_class(confusion: Int[Tensor, "c c"]) -> list[ClassScores]:
    r"""Measures each class against all others, from the counts of right and wrong.

    $$P = \frac{t}{t + f}, \qquad R = \frac{t}{t + m}, \qquad F_1 = \frac{2 P R}{P + R} = \frac{2 J}{1 + J}, \quad
    J = \frac{t}{t + f + m}$$

    $t$ is how many of a class were found, $m$ missed and $f$ falsely said to be of it. $J$ is a proportion too, so
    that Wilson's interval serves all three. A class that is never there or never predicted has scores of 0 that may
    be anything from 0 to 1.

    Args:
        confusion: The counts of `confusion_matrix`.

    Examples:
        >>> print(per_class(torch.tensor([[8, 2], [0, 5]]))[0].recall)
        0.8 [0.4902, 0.9433]
    """
    if confusion.dim() != 2 or confusion.shape[0] != confusion.shape[1]:
        raise ValueError(f"a square matrix of counts was wanted: got shape {tuple(confusion.shape)}")
    scores = []
    for found, said, there in torch.stack([confusion.diag(), confusion.sum(0), confusion.sum(1)], dim=1).tolist():
        jaccard = wilson(found, said + there - found)
        f1 = ConfidenceInterval(*(2 * j / (1 + j) for j in (jaccard.value, jaccard.low, jaccard.high)))
        scores.append(ClassScores(wilson(found, said), wilson(found, there), f1, there))
    return scores


def surprise(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""Measures how surprising the right class of each example is, $-\log p_{i y_i}$.

    A probability below the rounding of the numbers counts as that much, so that a mistake of one who is certain is
    large but finite.

    Args:
        p: The probabilities $p$ of the classes.
        labels: The right classes $y$.

    Examples:
        >>> surprise(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.tensor([0, 1]))
        tensor([ 0.6931, 15.9424])
    """
    check(p, labels)
    return -p.gather(-1, labels.long()[:, None])[:, 0].clamp_min(torch.finfo(p.dtype).eps).log()


def negative_log_likelihood(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> ConfidenceInterval:
    r"""Averages the surprise of the right classes, with an interval by the bootstrap.

    $$-\frac{1}{n} \sum_i \log p_{i y_i}$$

    Args:
        p: The probabilities $p$ of the classes.
        labels: The right classes $y$.

    Examples:
        >>> print(negative_log_likelihood(torch.tensor([[0.5, 0.5]]), torch.tensor([0])))
        0.6931 [0.6931, 0.6931]
    """
    return bootstrap(torch.mean, surprise(p, labels).double())


def brier(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> ConfidenceInterval:
    r"""Averages the squared distance from the truth, with an interval by the bootstrap.

    $$\frac{1}{n} \sum_i \sum_k (p_{ik} - [k = y_i])^2$$

    It is 0 for one who is certain and right, 2 for one who is certain and wrong.

    Reference:
        Brier, *Verification of Forecasts Expressed in Terms of Probability*, 1950.

    Args:
        p: The probabilities $p$ of the classes.
        labels: The right classes $y$.

    Examples:
        >>> print(brier(torch.tensor([[0.5, 0.5]]), torch.tensor([0])))
        0.5 [0.5, 0.5]
    """
    check(p, labels)
    truth = labels.long()[:, None] == torch.arange(p.shape[-1], device=labels.device)
    return bootstrap(torch.mean, (p.double() - truth.double()).square().sum(-1))


def check(p: Tensor, labels: Tensor) -> None:
    """Refuses what are no rows of probabilities with a class each."""
    if p.dim() != 2 or not p.is_floating_point() or 0 in p.shape:
        wanted = "at least one row of probabilities, one for each class,"
        raise ValueError(f"{wanted} was wanted: got {p.dtype} of shape {tuple(p.shape)}")
    if labels.shape != p.shape[:1] or labels.is_floating_point():
        wanted = f"{len(p)} classes"
        raise ValueError(f"{wanted} were wanted: got {labels.dtype} of shape {tuple(labels.shape)}")
    if p.isnan().any():
        raise ValueError("probabilities were wanted: got NaN")
    if not 0 <= int(labels.min()) <= int(labels.max()) < p.shape[1]:
        bounds = f"{int(labels.min())} to {int(labels.max())}"
        raise ValueError(f"classes from 0 to {p.shape[1] - 1} were wanted: got {bounds}")


def _classification_claims() -> Iterator[Claim]:
    """The laws that the figures of a classifier obey."""
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
        said, there = (x[:, None] == torch.arange(3) for x in (p.argmax(-1), labels))
        right, called, support = ((said & there).sum(0), said.sum(0), there.sum(0))
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


@dataclass(frozen=True)
class Bin:
    """Predictions of like confidence."""

    low: float
    """The least confidence that belongs here."""
    high: float
    """The most."""
    confidence: float
    """Their mean confidence."""
    accuracy: ConfidenceInterval
    """How many of them are right."""
    count: int
    """How many there are."""

    def json(self) -> dict[str, object]:
        """Returns what is written to a file."""
        return {**vars(self), "accuracy": self.accuracy.json()}


def reliability(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"], *, bins: int = 10) -> list[Bin]:
    r"""Sorts predictions by their confidence, the largest probability, and says how many are right in each bin.

    Bins are equally wide; a confidence on a border belongs to the bin below. Bins with nothing in them are left out.

    Args:
        p: The probabilities $p$ of the classes.
        labels: The right classes.
        bins: How many bins there are from 0 to 1.

    Examples:
        >>> found = reliability(torch.tensor([[0.9, 0.1], [0.85, 0.15]]), torch.tensor([0, 1]))
        >>> [(b.count, round(b.confidence, 3), b.accuracy.value) for b in found]
        [(2, 0.875, 0.5)]
    """
    confidence, right, place = _binned(p, labels, bins)
    found = []
    for i in place.unique().tolist():
        here = place == i
        hits, n = int(right[here].sum()), int(here.sum())
        found.append(Bin(i / bins, (i + 1) / bins, float(confidence[here].mean()), wilson(hits, n), n))
    return found


def calibration_error(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"], *, bins: int = 10) -> ConfidenceInterval:
    r"""Averages how far confidence and accuracy are apart, bin by bin, with an interval by the bootstrap.

    $$\mathrm{ECE} = \sum_b \frac{n_b}{n} \, \bigl| \mathrm{accuracy}_b - \mathrm{confidence}_b \bigr|$$

    By chance alone it is above 0, the more so with few examples or many bins.

    Reference:
        Guo, Pleiss, Sun and Weinberger, *On Calibration of Modern Neural Networks*, 2017.

    Args:
        p: The probabilities $p$ of the classes.
        labels: The right classes.
        bins: How many bins there are from 0 to 1.

    Examples:
        >>> p = torch.tensor([[0.75, 0.25]]).expand(4, 2)
        >>> calibration_error(p, torch.tensor([0, 0, 0, 1])).value
        0.0
    """
    confidence, right, place = _binned(p, labels, bins)
    return bootstrap(_gaps, right - confidence, place)


def _gaps(off: Tensor, place: Tensor) -> Tensor:
    """The mean over all examples of how far off their bins are, from how far off each is."""
    return torch.zeros(int(place.max()) + 1, dtype=off.dtype).index_add(0, place, off).abs().sum() / len(off)


def _binned(p: Tensor, labels: Tensor, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """The confidence of each prediction, whether it is right, and its bin."""
    check(p, labels)
    if bins < 1:
        raise ValueError(f"bins are at least 1: got {bins}")
    confidence, said = p.double().cpu().max(-1)
    place = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    return confidence, (said == labels.cpu()).double(), place


def _calibration_claims() -> Iterator[Claim]:
    """The laws that calibration obeys."""

    def listed(p: Tensor, labels: Tensor) -> Tensor:
        rows = [(b.low, b.high, b.confidence, b.accuracy.value, b.count) for b in reliability(p, labels)]
        return p.new_tensor(rows).sum(0)

    def counted(p: Tensor, labels: Tensor) -> Tensor:
        rows = [(i / 10, (i + 1) / 10, *part) for i, part in enumerate(_by_tenths(p, labels)) if part[-1]]
        return p.new_tensor(rows).sum(0)

    def error(p: Tensor, labels: Tensor) -> Tensor:
        return p.new_tensor(calibration_error(p, labels).value)

    def equation(p: Tensor, labels: Tensor) -> Tensor:
        return p.new_tensor(sum(n * abs(right - sure) for sure, right, n in _by_tenths(p, labels)) / len(p))

    rounded_up = (transformed(lambda x: 1.000001 * (9 * x).softmax(-1), "n 3"), tokens("n", vocab_size=3))
    yield Claim(agreement(other=counted), listed, rounded_up, name="reliability, the bins added up")
    eight = (probabilities("8 3"), tokens("8", vocab_size=3))
    yield Claim(replace(agreement(other=equation), cases=3), error, eight, name="calibration_error")


def _by_tenths(p: Tensor, labels: Tensor) -> list[tuple[float, float, int]]:
    """The confidence, the accuracy and the count of each tenth, one prediction after the other."""
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
