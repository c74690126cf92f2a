"""Regression metrics with confidence intervals: RMSE, MAE and R²."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.inference.metrics.intervals import ConfidenceInterval, bootstrap


def root_mean_squared_error(y: Float[Tensor, "n ..."], target: Float[Tensor, "n ..."]) -> ConfidenceInterval:
    r"""Computes the root mean squared error, with a bootstrap interval.

    $$\mathrm{RMSE} = \sqrt{\tfrac{1}{n} \textstyle\sum_i (\hat y_i - y_i)^2}$$

    Args:
        y: Predictions $\hat y$.
        target: Targets $y$.

    Examples:
        >>> round(root_mean_squared_error(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])).value, 4)
        1.4142
    """
    y, target = _rows(y, target)
    return bootstrap(lambda off: off.square().mean().sqrt(), y - target)


def mean_absolute_error(y: Float[Tensor, "n ..."], target: Float[Tensor, "n ..."]) -> ConfidenceInterval:
    r"""Computes the mean absolute error, with a bootstrap interval.

    $$\mathrm{MAE} = \tfrac{1}{n} \textstyle\sum_i |\hat y_i - y_i|$$

    Args:
        y: Predictions $\hat y$.
        target: Targets $y$.

    Examples:
        >>> mean_absolute_error(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])).value
        1.0
    """
    y, target = _rows(y, target)
    return bootstrap(lambda off: off.abs().mean(), y - target)


def r_squared(y: Float[Tensor, "n ..."], target: Float[Tensor, "n ..."]) -> ConfidenceInterval:
    r"""Computes the coefficient of determination R², with a bootstrap interval.

    $$R^2 = 1 - \frac{\sum_i (\hat y_i - y_i)^2}{\sum_i (y_i - \bar y)^2}$$

    It is 1 for a perfect prediction and 0 for predicting the mean. A constant target gives 1 if the prediction is exact
    and 0 otherwise. Several targets are averaged.

    Args:
        y: Predictions $\hat y$.
        target: Targets $y$.

    Examples:
        >>> round(r_squared(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 4.0])).value, 4)
        0.7857
    """
    return bootstrap(_r_squared, *_rows(y, target))


def _r_squared(y: Tensor, target: Tensor) -> Tensor:
    left = (y - target).square().sum(0)
    off = target - target[0]
    there = (off - off.mean(0)).square().sum(0)
    share = 1 - left / there.masked_fill(there == 0, 1.0)
    return torch.where(there == 0, (left == 0).to(share), share).mean()


def _rows(y: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Returns both in float64 on the CPU."""
    if y.shape != target.shape or y.numel() == 0 or y.dim() == 0:
        shapes = f"{tuple(y.shape)} and {tuple(target.shape)}"
        raise ValueError(f"predictions and targets must have equal, non-empty shapes, got {shapes}")
    if not (y.isfinite().all() and target.isfinite().all()):
        raise ValueError("predictions and targets must be finite")
    return y.double().cpu(), target.double().cpu()
