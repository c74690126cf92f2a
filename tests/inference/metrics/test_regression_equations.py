"""Second derivations of the regression metrics."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from lawful.inference.metrics import mean_absolute_error, r_squared, root_mean_squared_error
from lawful.inference.metrics.regression import _r_squared
from lawful.laws import Claim, agreement, shape, transformed


def claims() -> Iterator[Claim]:
    """Laws of regression metrics."""

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
        return torch.stack([_r_squared(1 + y, constant), _r_squared(constant, constant)])

    exact = agreement(other=lambda y: torch.stack([(y == 0).all().to(y), torch.ones(()).to(y)]))
    yield Claim(exact, of_constants, transformed(torch.round, "3"), name="r_squared of a target that does not vary")
