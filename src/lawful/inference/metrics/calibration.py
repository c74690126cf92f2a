"""Calibration: whether of all that is said to be 80 % sure, 80 % is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.inference.metrics.classification import check
from lawful.inference.metrics.estimate import Estimate, bootstrap, wilson
from lawful.laws import Claim, agreement, made, probabilities, tokens


@dataclass(frozen=True)
class Bin:
    """Predictions of like confidence."""

    low: float
    """The least confidence that belongs here."""
    high: float
    """The most."""
    confidence: float
    """Their mean confidence."""
    accuracy: Estimate
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


def calibration_error(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"], *, bins: int = 10) -> Estimate:
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


def claims() -> Iterator[Claim]:
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

    rounded_up = (made(lambda x: 1.000001 * (9 * x).softmax(-1), "n 3"), tokens("n", vocab=3))
    yield Claim(agreement(other=counted), listed, rounded_up, name="reliability, the bins added up")
    eight = (probabilities("8 3"), tokens("8", vocab=3))
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
