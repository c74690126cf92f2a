"""Classification metrics with confidence intervals: accuracy, per-class scores, log-likelihood and calibration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.inference.metrics.intervals import ConfidenceInterval, bootstrap, wilson


def accuracy(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> ConfidenceInterval:
    r"""Computes the accuracy, with a Wilson interval.

    $$\frac{1}{n} \left| \{ i : \arg\max_k p_{ik} = y_i \} \right|$$

    Args:
        p: Probabilities or logits of the classes.
        labels: True classes $y$.

    Examples:
        >>> print(accuracy(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1])))
        0.5 [0.09453, 0.9055]
    """
    _check(p, labels)
    return wilson(int((p.argmax(-1) == labels).sum()), len(labels))


def confusion_matrix(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Int[Tensor, "c c"]:
    r"""Computes the confusion matrix: rows are true classes, columns are predictions.

    $$C_{jk} = \left| \{ i : y_i = j, \ \arg\max_l p_{il} = k \} \right|$$

    Args:
        p: Probabilities or logits of the classes.
        labels: True classes $y$.

    Examples:
        >>> confusion_matrix(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
        tensor([[1, 0],
                [1, 0]])
    """
    _check(p, labels)
    c = p.shape[-1]
    return torch.bincount(labels.long() * c + p.argmax(-1), minlength=c * c).reshape(c, c)


@dataclass(frozen=True)
class ClassScores:
    """Precision, recall and F1 of one class."""

    precision: ConfidenceInterval
    """Fraction of the predictions of this class that are right."""
    recall: ConfidenceInterval
    """Fraction of the examples of this class that are predicted."""
    f1: ConfidenceInterval
    """Harmonic mean of precision and recall."""
    support: int
    """Number of examples of this class."""

    def json(self) -> dict[str, dict[str, float] | int]:
        """Returns a JSON-compatible dictionary."""
        scores = {"precision": self.precision.json(), "recall": self.recall.json(), "f1": self.f1.json()}
        return {**scores, "support": self.support}


def per_class(confusion: Int[Tensor, "c c"]) -> list[ClassScores]:
    r"""Computes precision, recall and F1 of each class, with Wilson intervals.

    $$P = \frac{t}{t + f}, \qquad R = \frac{t}{t + m}, \qquad F_1 = \frac{2 P R}{P + R} = \frac{2 J}{1 + J}, \quad
    J = \frac{t}{t + f + m}$$

    $t$, $f$ and $m$ are the numbers of true positives, false positives and false negatives. $J$ is a proportion, so
    that the Wilson interval applies to all three. A class without examples or predictions has score 0 with the
    interval [0, 1].

    Args:
        confusion: Confusion matrix.

    Examples:
        >>> print(per_class(torch.tensor([[8, 2], [0, 5]]))[0].recall)
        0.8 [0.4902, 0.9433]
    """
    if confusion.dim() != 2 or confusion.shape[0] != confusion.shape[1]:
        raise ValueError(f"expected a square matrix, got shape {tuple(confusion.shape)}")
    scores = []
    for hits, predicted, support in torch.stack([confusion.diag(), confusion.sum(0), confusion.sum(1)], dim=1).tolist():
        jaccard = wilson(hits, predicted + support - hits)
        f1 = ConfidenceInterval(*(2 * j / (1 + j) for j in (jaccard.value, jaccard.low, jaccard.high)))
        scores.append(ClassScores(wilson(hits, predicted), wilson(hits, support), f1, support))
    return scores


def nll_per_example(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""Computes the negative log-likelihood of each example, $-\log p_{i y_i}$.

    Probabilities are clamped to the machine epsilon, so that the result is finite.

    Args:
        p: Probabilities of the classes.
        labels: True classes $y$.

    Examples:
        >>> nll_per_example(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.tensor([0, 1]))
        tensor([ 0.6931, 15.9424])
    """
    _check(p, labels)
    return -p.gather(-1, labels.long()[:, None])[:, 0].clamp_min(torch.finfo(p.dtype).eps).log()


def negative_log_likelihood(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> ConfidenceInterval:
    r"""Computes the mean negative log-likelihood, with a bootstrap interval.

    $$-\frac{1}{n} \sum_i \log p_{i y_i}$$

    Args:
        p: Probabilities of the classes.
        labels: True classes $y$.

    Examples:
        >>> print(negative_log_likelihood(torch.tensor([[0.5, 0.5]]), torch.tensor([0])))
        0.6931 [0.6931, 0.6931]
    """
    return bootstrap(torch.mean, nll_per_example(p, labels).double())


def brier(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> ConfidenceInterval:
    r"""Computes the Brier score, with a bootstrap interval.

    $$\frac{1}{n} \sum_i \sum_k (p_{ik} - [k = y_i])^2$$

    It is 0 for certain and right predictions, and 2 for certain and wrong ones.

    Reference:
        Brier, *Verification of Forecasts Expressed in Terms of Probability*, 1950.

    Args:
        p: Probabilities of the classes.
        labels: True classes $y$.

    Examples:
        >>> print(brier(torch.tensor([[0.5, 0.5]]), torch.tensor([0])))
        0.5 [0.5, 0.5]
    """
    _check(p, labels)
    truth = labels.long()[:, None] == torch.arange(p.shape[-1], device=labels.device)
    return bootstrap(torch.mean, (p.double() - truth.double()).square().sum(-1))


def _check(p: Tensor, labels: Tensor) -> None:
    if p.dim() != 2 or not p.is_floating_point() or 0 in p.shape:
        raise ValueError(f"expected non-empty float p of shape (n, c), got {p.dtype} of shape {tuple(p.shape)}")
    if labels.shape != p.shape[:1] or labels.is_floating_point():
        raise ValueError(f"expected {len(p)} integer labels, got {labels.dtype} of shape {tuple(labels.shape)}")
    if p.isnan().any():
        raise ValueError("p contains NaN")
    if not 0 <= int(labels.min()) <= int(labels.max()) < p.shape[1]:
        bounds = f"{int(labels.min())} to {int(labels.max())}"
        raise ValueError(f"labels must be between 0 and {p.shape[1] - 1}, got {bounds}")


@dataclass(frozen=True)
class Bin:
    """Predictions whose confidence lies in one interval."""

    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    confidence: float
    """Mean confidence."""
    accuracy: ConfidenceInterval
    """Accuracy."""
    count: int
    """Number of predictions."""

    def json(self) -> dict[str, object]:
        """Returns a JSON-compatible dictionary."""
        return {**vars(self), "accuracy": self.accuracy.json()}


def reliability(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"], *, bins: int = 10) -> list[Bin]:
    r"""Computes a reliability diagram: the accuracy of predictions, binned by confidence.

    The confidence is the largest probability. A confidence on a border belongs to the lower bin. Empty bins are
    left out.

    Args:
        p: Probabilities of the classes.
        labels: True classes.
        bins: Number of equally wide bins.

    Examples:
        >>> found = reliability(torch.tensor([[0.9, 0.1], [0.85, 0.15]]), torch.tensor([0, 1]))
        >>> [(b.count, round(b.confidence, 3), b.accuracy.value) for b in found]
        [(2, 0.875, 0.5)]
    """
    confidence, right, place = _assign_bins(p, labels, bins)
    found = []
    for i in place.unique().tolist():
        here = place == i
        hits, n = int(right[here].sum()), int(here.sum())
        found.append(Bin(i / bins, (i + 1) / bins, float(confidence[here].mean()), wilson(hits, n), n))
    return found


def calibration_error(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"], *, bins: int = 10) -> ConfidenceInterval:
    r"""Computes the expected calibration error, with a bootstrap interval.

    $$\mathrm{ECE} = \sum_b \frac{n_b}{n} \, \bigl| \mathrm{accuracy}_b - \mathrm{confidence}_b \bigr|$$

    It is biased upward, more so with few examples or many bins.

    Reference:
        Guo, Pleiss, Sun and Weinberger, *On Calibration of Modern Neural Networks*, 2017.

    Args:
        p: Probabilities of the classes.
        labels: True classes.
        bins: Number of equally wide bins.

    Examples:
        >>> p = torch.tensor([[0.75, 0.25]]).expand(4, 2)
        >>> calibration_error(p, torch.tensor([0, 0, 0, 1])).value
        0.0
    """
    confidence, right, place = _assign_bins(p, labels, bins)
    return bootstrap(_mean_gap, right - confidence, place)


def _mean_gap(off: Tensor, place: Tensor) -> Tensor:
    """Averages the absolute gap of the bins, weighted by their counts."""
    return torch.zeros(int(place.max()) + 1, dtype=off.dtype).index_add(0, place, off).abs().sum() / len(off)


def _assign_bins(p: Tensor, labels: Tensor, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the confidence, correctness and bin of each prediction."""
    _check(p, labels)
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    confidence, predicted = p.double().cpu().max(-1)
    place = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    return confidence, (predicted == labels.cpu()).double(), place
