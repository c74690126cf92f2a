"""Regression losses that PyTorch lacks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import Claim, agreement, convexity, mean_over_samples, shape
from lawful.losses.reduction import _reduce


def lp_loss(
    prediction: Float[Tensor, "*shape"],
    target: Float[Tensor, "*target"],
    *,
    p: float,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    r"""Returns the $L^p$ loss, which generalizes `l1_loss` ($p = 1$) and `mse_loss` ($p = 2$).

    $$\ell(v, w) = |v - w|^p$$

    Args:
        prediction: Predictions $v$.
        target: Targets $w$, of the same shape.
        p: Power $p \ge 1$.
        reduction: `"mean"`, `"sum"` or `"none"`, over all entries.

    Examples:
        >>> lp_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0]]), p=3.0)
        tensor(4.5000)
    """
    if not 1 <= p < math.inf:
        raise ValueError(f"expected a finite p >= 1, got {p}")
    if prediction.shape != target.shape:
        raise ValueError(f"expected a target of shape {tuple(prediction.shape)}, got {tuple(target.shape)}")
    if prediction.numel() == 0:
        raise ValueError(f"expected at least one entry, got shape {tuple(prediction.shape)}")
    if not (prediction.is_floating_point() and target.is_floating_point()):
        raise TypeError(f"expected floating-point tensors, got {prediction.dtype} and {target.dtype}")
    if p == 2:  # the absolute value would lose the second derivative at 0
        return F.mse_loss(prediction, target, reduction=reduction)
    return _reduce((prediction - target).abs() ** p, reduction)


def claims() -> Iterator[Claim]:
    """`lp_loss` generalizes PyTorch's losses, and is convex and a mean over samples."""
    pair = (shape("n 3"), shape("n 3"))
    yield Claim(agreement(other=F.l1_loss), partial(lp_loss, p=1.0), pair, name="lp_loss(p=1)")
    yield Claim(agreement(other=F.mse_loss), partial(lp_loss, p=2.0), pair, name="lp_loss(p=2)")
    yield Claim(mean_over_samples(), partial(lp_loss, p=3.0), pair, name="lp_loss(p=3)")
    yield Claim(convexity(), lambda v: lp_loss(v, torch.zeros_like(v), p=3.0), shape("n 3"), name="lp_loss(p=3)")
