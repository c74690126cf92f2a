"""How good a regression is: its errors in the units of the target, and the share of variance it explains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.inference.metrics.intervals import ConfidenceInterval, bootstrap
from lawful.laws import Claim, agreement, shape, transformed


def root_mean_squared_error(y: Float[Tensor, "n ..."], target: Float[Tensor, "n ..."]) -> ConfidenceInterval:
    r"""Measures the typical error, large ones above all, with an interval by the bootstrap.

    $$\mathrm{RMSE} = \sqrt{\tfrac{1}{n} \textstyle\sum_i (\hat y_i - y_i)^2}$$

    Args:
        y: The predictions $\hat y$.
        target: The targets $y$.

    Examples:
        >>> root_mean_squared_error(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])).value
        1.4142135623730951
    """
    y, target = _rows(y, target)
    return bootstrap(lambda off: off.square().mean().sqrt(), y - target)


def mean_absolute_error(y: Float[Tensor, "n ..."], target: Float[Tensor, "n ..."]) -> ConfidenceInterval:
    r"""Measures the average error, with an interval by the bootstrap.

    $$\mathrm{MAE} = \tfrac{1}{n} \textstyle\sum_i |\hat y_i - y_i|$$

    Args:
        y: The predictions $\hat y$.
        target: The targets $y$.

    Examples:
        >>> mean_absolute_error(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])).value
        1.0
    """
    y, target = _rows(y, target)
    return bootstrap(lambda off: off.abs().mean(), y - target)


def r_squared(y: Float[Tensor, "n ..."], target: Float[Tensor, "n ..."]) -> ConfidenceInterval:
    r"""Measures the share of the variance that is explained, with an interval by the bootstrap.

    $$R^2 = 1 - \frac{\sum_i (\hat y_i - y_i)^2}{\sum_i (y_i - \bar y)^2}$$

    It is 1 for a perfect prediction, 0 for the mean, and below for what is worse. A target that does not vary gives 1
    where the prediction is exact and 0 where it is not. Of several targets it is the mean.

    Args:
        y: The predictions $\hat y$.
        target: The targets $y$.

    Examples:
        >>> r_squared(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 4.0])).value
        0.7857142857142857
    """
    return bootstrap(_explained, *_rows(y, target))


def _explained(y: Tensor, target: Tensor) -> Tensor:
    left = (y - target).square().sum(0)
    off = target - target[0]
    there = (off - off.mean(0)).square().sum(0)
    share = 1 - left / there.masked_fill(there == 0, 1.0)
    return torch.where(there == 0, (left == 0).to(share), share).mean()


def _rows(y: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both in float64, or a word on why they cannot be compared."""
    if y.shape != target.shape or y.numel() == 0 or y.dim() == 0:
        shapes = f"{tuple(y.shape)} and {tuple(target.shape)}"
        raise ValueError(f"as many predictions as targets, at least one, were wanted: got shapes {shapes}")
    if not (y.isfinite().all() and target.isfinite().all()):
        raise ValueError("finite predictions and targets were wanted: got NaN or infinite ones")
    return y.double().cpu(), target.double().cpu()


def claims() -> Iterator[Claim]:
    """The laws that the figures of a regression obey."""

    def figures(y: Tensor, target: Tensor) -> Tensor:
        found = (root_mean_squared_error(y, target), mean_absolute_error(y, target), r_squared(y, target))
        return y.new_tensor([estimate.value for estimate in found])

    def equations(y: Tensor, target: Tensor) -> Tensor:
        off = (y - target).double()
        explained = 1 - off.square().mean(0) / target.double().var(0, correction=0)
        return torch.stack([off.square().mean().sqrt(), off.abs().mean(), explained.mean()]).to(y)

    data = (shape("3 2"), transformed(lambda x: x.tanh() + torch.arange(6.0).reshape(3, 2).square().to(x), "3 2"))
    yield Claim(replace(agreement(other=equations), cases=3), figures, data, name="RMSE, MAE and R²")

    def of_constants(y: Tensor) -> Tensor:
        constant = torch.ones_like(y)
        return torch.stack([_explained(1 + y, constant), _explained(constant, constant)])

    exact = agreement(other=lambda y: torch.stack([(y == 0).all().to(y), torch.ones(()).to(y)]))
    yield Claim(exact, of_constants, transformed(torch.round, "3"), name="r_squared of a target that does not vary")
