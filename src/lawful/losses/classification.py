"""Losses of classification, from logits: how surprising the right class is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from lawful.functions._validation import unless_traced
from lawful.laws import (
    Claim,
    agreement,
    convexity,
    derivative,
    gibbs_inequality,
    probabilities,
    shape,
    shift_invariance,
    tokens,
)
from lawful.losses.reduction import Reducer, each

_NO_CLASS = torch.iinfo(torch.long).min
"""What PyTorch is to ignore: no class at all, so that it refuses every one that is not there."""


def cross_entropy(
    logits: Float[Tensor, "*batch c"],
    target: Shaped[Tensor, "*target"],
    *,
    smoothing: float = 0.0,
    reduce: Reducer = torch.mean,
) -> Tensor:
    r"""Measures how surprising the right class is to a prediction.

    $$\ell(x, p) = -\sum_i p'_i \log q_i, \qquad q = \mathrm{softmax}(x), \qquad p' = (1 - s) \, p + s / c$$

    For a class $k$, $p$ is 1 at $k$, and without smoothing $\ell = -\log q_k$. The gradient by the logits is $q - p'$.
    Smoothing mixes the target with the uniform distribution, so that no logit is to be infinite. A class of
    probability 0 costs nothing, even at a logit of $-\infty$ ($0 \log 0 = 0$).

    Reference:
        Szegedy and others, *Rethinking the Inception Architecture for Computer Vision*, 2016 (smoothing).

    Args:
        logits: $x$, with the classes along the last axis.
        target: The right class $k$ of each example, or its probabilities $p$.
        smoothing: $s$, from 0 to 1.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
        tensor(0.6931)
    """
    if not 0 <= smoothing <= 1:
        raise ValueError(f"smoothing is from 0 to 1: got {smoothing}")
    _check(logits)
    c = logits.shape[-1]
    if target.is_floating_point():
        _check_probabilities(logits, target)
        p = (1 - smoothing) * target + smoothing / c
        return reduce(-(p * logits.log_softmax(-1)).masked_fill(p == 0, 0.0).sum(-1))
    _check_classes(logits, target)
    rows, classes = (logits, target) if logits.dim() == 2 else (logits.reshape(-1, c), target.reshape(-1))
    loss = partial(F.cross_entropy, rows, classes.long(), label_smoothing=smoothing, ignore_index=_NO_CLASS)
    try:
        if reduce is torch.mean:  # in one step, without the losses in between
            return loss()
        return reduce(loss(reduction="none").reshape(target.shape))
    except IndexError:
        _check_range(target, c)
        raise


def binary_cross_entropy(
    logits: Float[Tensor, "*batch"], target: Shaped[Tensor, "*target"], *, reduce: Reducer = torch.mean
) -> Tensor:
    r"""Measures how surprising a yes or no is to a prediction: the logistic loss.

    $$\ell(x, p) = -p \log \sigma(x) - (1 - p) \log (1 - \sigma(x))$$

    It is the cross-entropy of two classes with logits $x$ and 0. Of a linear model it is convex in the parameters.

    Args:
        logits: $x$, one for each question.
        target: $p$, from 0 to 1, or a truth value.
        reduce: What to make of the losses of the questions.

    Examples:
        >>> binary_cross_entropy(torch.tensor([0.0]), torch.tensor([True]))
        tensor(0.6931)
    """
    _check(logits)
    if target.shape != logits.shape:
        raise ValueError(f"a target of shape {tuple(logits.shape)} was wanted: got {tuple(target.shape)}")
    _check_truth(target)
    return reduce(F.binary_cross_entropy_with_logits(logits, target.to(logits), reduction="none"))


def focal_loss(
    logits: Float[Tensor, "*batch c"],
    target: Shaped[Tensor, "*target"],
    *,
    gamma: float = 2.0,
    reduce: Reducer = torch.mean,
) -> Tensor:
    r"""Measures surprise, and counts examples less that are easy already.

    $$\ell(x, k) = -(1 - q_k)^\gamma \log q_k, \qquad q = \mathrm{softmax}(x)$$

    $1 - q_k$ is summed from the other classes, and where it is below one half $\log q_k$ is taken from it: the loss
    keeps its digits where $q_k$ rounds to 1. Where all other logits are $-\infty$, it is 0 and so is its gradient.

    Reference:
        Lin and others, *Focal Loss for Dense Object Detection*, 2017.

    Args:
        logits: $x$, with two classes or more along the last axis.
        target: The right class $k$ of each example.
        gamma: $\gamma$, not negative; at 0 this is the cross-entropy.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> focal_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
        tensor(0.1733)
    """
    if not gamma >= 0:
        raise ValueError(f"gamma is not negative: got {gamma}")
    _check(logits)
    if logits.shape[-1] < 2:
        raise ValueError(f"at least 2 classes were wanted: got shape {tuple(logits.shape)}")
    _check_classes(logits, target)
    _check_range(target, logits.shape[-1])
    q, right = logits.log_softmax(-1), target[..., None] == torch.arange(logits.shape[-1], device=target.device)
    rest = q.masked_fill(right, -torch.inf)
    sure = rest.isneginf().all(-1)
    others = rest.masked_fill(sure[..., None], 0.0).logsumexp(-1)
    easy = others < -math.log(2)
    from_others = torch.log1p(-others.masked_fill(~easy, -1.0).exp())
    log_q = torch.where(easy, from_others, q.masked_fill(~right, 0.0).sum(-1))
    return reduce((-(gamma * others).exp() * log_q).masked_fill(sure, 0.0))


def _check(logits: Tensor) -> None:
    if not logits.is_floating_point():
        raise TypeError(f"logits are real numbers: got {logits.dtype}")
    if logits.numel() == 0 or logits.dim() == 0:
        raise ValueError(f"at least one example and one class were wanted: got shape {tuple(logits.shape)}")


def _check_classes(logits: Tensor, target: Tensor) -> None:
    if target.is_floating_point() or target.is_complex() or target.dtype is torch.bool:
        raise TypeError(f"classes are integers: got {target.dtype}")
    if target.shape != logits.shape[:-1]:
        raise ValueError(f"classes of shape {tuple(logits.shape[:-1])} were wanted: got {tuple(target.shape)}")


@unless_traced
def _check_range(target: Tensor, c: int) -> None:
    least, most = (int(bound) for bound in target.aminmax())
    if least < 0 or most >= c:
        raise ValueError(f"classes from 0 to {c - 1} were wanted: got {least} to {most}")


def _check_probabilities(logits: Tensor, target: Tensor) -> None:
    if target.shape != logits.shape:
        raise ValueError(f"probabilities of shape {tuple(logits.shape)} were wanted: got {tuple(target.shape)}")
    _check_distributions(target)


@unless_traced
def _check_distributions(p: Tensor) -> None:
    if bool((p < 0).any()):
        raise ValueError(f"probabilities are not negative: got {float(p.min())}")
    total = p.detach().sum(-1)
    off = (total - 1).abs()
    if bool((off > 1e-2).any()):
        worst = float(total.flatten()[off.nan_to_num(0.0).argmax()])
        raise ValueError(f"probabilities add up to 1 along the last axis: got {worst:g}")


@unless_traced
def _check_truth(target: Tensor) -> None:
    if bool(((target < 0) | (target > 1)).any()):
        raise ValueError(f"targets from 0 to 1 were wanted: got {float(target.min())} to {float(target.max())}")


def claims() -> Iterator[Claim]:
    """The laws that losses of classification obey."""
    logits, classes = shape("b 4"), tokens("b", vocab_size=4)
    soft = (logits, probabilities("b 4"))
    ones = partial(cross_entropy, reduce=each)
    yield Claim(shift_invariance(axis=-1), ones, soft, name="cross_entropy(reduce=each)")
    yield Claim(convexity(), cross_entropy, soft)

    def of_probabilities(p: Tensor, q: Tensor) -> Tensor:
        return ones(q.log(), p)

    yield Claim(gibbs_inequality(), of_probabilities, (probabilities("b 4"),) * 2, name="cross_entropy(q.log(), p)")

    def written_out(x: Tensor, k: Tensor) -> Tensor:
        return -torch.stack([(row.exp() / row.exp().sum())[i].log() for row, i in zip(x - x.amax(), k, strict=True)])

    yield Claim(agreement(other=written_out), ones, (logits, classes), name="cross_entropy of a class")
    smoothed = partial(cross_entropy, smoothing=0.3, reduce=torch.sum)

    def mixed(x: Tensor, k: Tensor) -> Tensor:
        return cross_entropy(x, 0.7 * F.one_hot(k, 4) + 0.3 / 4, reduce=torch.sum)

    yield Claim(agreement(other=mixed), smoothed, (logits, classes), name="cross_entropy(smoothing=0.3)")
    slope = derivative(formula=lambda x, p: x.softmax(-1) - 0.7 * p - 0.075)
    yield Claim(slope, smoothed, soft, name="cross_entropy(smoothing=0.3)")

    def as_two_classes(x: Tensor, k: Tensor) -> Tensor:
        return cross_entropy(torch.stack([torch.zeros_like(x), x], -1), k)

    questions = (shape("b"), tokens("b", vocab_size=2))
    yield Claim(agreement(other=as_two_classes), binary_cross_entropy, questions)
    slope = derivative(formula=lambda x, k: (x.sigmoid() - k) / len(x))
    yield Claim(slope, binary_cross_entropy, questions)

    def of_weights(weight: Tensor) -> Tensor:
        x = torch.linspace(-1, 2, 15).to(weight).reshape(5, 3)
        return binary_cross_entropy(x @ weight, torch.arange(5) % 2)

    yield Claim(convexity(), of_weights, shape("3"), name="binary_cross_entropy of logistic regression, by its weights")
    yield Claim(
        agreement(other=cross_entropy), partial(focal_loss, gamma=0.0), (logits, classes), name="focal_loss(gamma=0)"
    )

    def focused(x: Tensor, k: Tensor) -> Tensor:
        q = x.softmax(-1).gather(-1, k[:, None])[:, 0]
        return ((1 - q) ** 2 * ones(x, k)).mean()

    yield Claim(agreement(other=focused), focal_loss, (logits, classes))
