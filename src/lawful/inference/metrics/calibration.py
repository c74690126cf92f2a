"""Calibration: whether of all that is said to be 80 % sure, 80 % is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.inference.metrics.classification import check
from lawful.inference.metrics.estimate import Estimate, bootstrap, wilson
from lawful.laws import Claim, boundedness, probabilities, tokens


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

    def error(p: Tensor, labels: Tensor) -> Tensor:
        confidence, right, place = _binned(p, labels, 4)
        return _gaps(right - confidence, place).to(p)

    data = (probabilities("n 3"), tokens("n", vocab=3))
    yield Claim(boundedness(low=0.0, high=1.0), error, data, name="calibration_error")
