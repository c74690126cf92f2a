"""Classification losses that PyTorch lacks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from lawful.functions._validation import unless_traced
from lawful.laws import Claim, agreement, mean_over_samples, shape, shift_invariance, tokens
from lawful.losses.reduction import _reduce


def focal_loss(
    logits: Float[Tensor, "*batch c"],
    target: Shaped[Tensor, "*target"],
    *,
    gamma: float = 2.0,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    r"""Focal loss: a cross-entropy that gives easy examples less weight.

    $$\ell(x, k) = -(1 - q_k)^\gamma \log q_k, \qquad q = \mathrm{softmax}(x)$$

    $1 - q_k$ is summed over the other classes, and $\log q_k$ is computed from it where it is below one half, so that
    the loss is accurate where $q_k$ rounds to 1. It is 0, with gradient 0, if all other logits are $-\infty$.

    Reference:
        Lin and others, *Focal Loss for Dense Object Detection*, 2017.

    Args:
        logits: Logits $x$, with at least two classes along the last axis.
        target: Class $k$ of each example.
        gamma: Focusing parameter $\gamma \ge 0$; 0 is the cross-entropy.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Examples:
        >>> focal_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
        tensor(0.1733)
    """
    if not gamma >= 0:
        raise ValueError(f"expected gamma >= 0, got {gamma}")
    _check(logits)
    if logits.shape[-1] < 2:
        raise ValueError(f"expected at least 2 classes, got logits of shape {tuple(logits.shape)}")
    _check_classes(logits, target)
    _check_range(target, logits.shape[-1])
    log_q, correct = logits.log_softmax(-1), target[..., None] == torch.arange(logits.shape[-1], device=target.device)
    others = log_q.masked_fill(correct, -torch.inf)
    certain = others.isneginf().all(-1)
    log_rest = others.masked_fill(certain[..., None], 0.0).logsumexp(-1)
    easy = log_rest < -math.log(2)
    from_rest = torch.log1p(-log_rest.masked_fill(~easy, -1.0).exp())
    log_correct = torch.where(easy, from_rest, log_q.masked_fill(~correct, 0.0).sum(-1))
    return _reduce((-(gamma * log_rest).exp() * log_correct).masked_fill(certain, 0.0), reduction)


def _check(logits: Tensor) -> None:
    if not logits.is_floating_point():
        raise TypeError(f"expected floating-point logits, got {logits.dtype}")
    if logits.numel() == 0 or logits.dim() == 0:
        raise ValueError(f"expected at least one example and one class, got logits of shape {tuple(logits.shape)}")


def _check_classes(logits: Tensor, target: Tensor) -> None:
    if target.is_floating_point() or target.is_complex() or target.dtype is torch.bool:
        raise TypeError(f"expected an integer target, got {target.dtype}")
    if target.shape != logits.shape[:-1]:
        raise ValueError(f"expected a target of shape {tuple(logits.shape[:-1])}, got {tuple(target.shape)}")


@unless_traced
def _check_range(target: Tensor, num_classes: int) -> None:
    low, high = (int(bound) for bound in target.aminmax())
    if low < 0 or high >= num_classes:
        raise ValueError(f"expected classes from 0 to {num_classes - 1}, got {low} to {high}")


def claims() -> Iterator[Claim]:
    """With gamma 0 the focal loss is the cross-entropy; a shift of the logits changes nothing; it is a mean."""
    inputs = (shape("b 4"), tokens("b", vocab_size=4))
    cross_entropy = agreement(other=F.cross_entropy)
    yield Claim(cross_entropy, partial(focal_loss, gamma=0.0), inputs, name="focal_loss(gamma=0)")
    yield Claim(mean_over_samples(), focal_loss, inputs)
    invariant = shift_invariance(axis=-1)
    yield Claim(invariant, partial(focal_loss, reduction="none"), inputs, name="focal_loss")
