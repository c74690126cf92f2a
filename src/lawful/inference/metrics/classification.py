"""How good a classifier is: accuracy, each class, and how surprising the truth is to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.inference.metrics.estimate import Estimate, bootstrap, wilson
from lawful.laws import Claim, agreement, made, probabilities, tokens


def accuracy(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Estimate:
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

    precision: Estimate
    """Of those that are said to have the class, the share that has it."""
    recall: Estimate
    """Of those that have the class, the share that is said to have it."""
    f1: Estimate
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
        f1 = Estimate(*(2 * j / (1 + j) for j in (jaccard.value, jaccard.low, jaccard.high)))
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


def negative_log_likelihood(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Estimate:
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


def brier(p: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Estimate:
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


def claims() -> Iterator[Claim]:
    """The laws that the figures of a classifier obey."""
    data = (probabilities("n 3"), tokens("n", vocab=3))

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

    inside = (made(lambda x: (3 * x.tanh()).softmax(-1), "n 3"), tokens("n", vocab=3))
    yield Claim(
        replace(agreement(other=lambda p, y: equations(p, y).to(p)), cases=3),
        losses,
        inside,
        name="surprise and Brier's score",
    )
