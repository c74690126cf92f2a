"""Linear regression: an affine map, fitted by least squares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks import Dense
from lawful.functions import pseudo_inverse, ridge
from lawful.laws import Claim, Map, Same, Statement, agreement, law, linearity, shape


@dataclass(frozen=True, kw_only=True)
class LinearRegressionConfig:
    """The sizes of a linear regression."""

    d_in: int
    """The size of the input."""
    d_out: int = 1
    """The number of targets."""


class LinearRegression(nn.Module):
    r"""Predicts targets by an affine map.

    $$y = W x + b, \qquad \min_{W, b} \sum_n \lVert W x_n + b - y_n \rVert^2 + \lambda \lVert W \rVert^2$$

    `fit` solves for the minimum; with gradients it trains as any model does.

    Args:
        config: The sizes.

    Examples:
        >>> model = LinearRegression(LinearRegressionConfig(d_in=1))
        >>> model = model.fit(torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [3.0]]))
        >>> model(torch.tensor([[2.0]])).detach()
        tensor([[5.]])
    """

    def __init__(self, config: LinearRegressionConfig) -> None:
        super().__init__()
        self.config = config
        self.linear = Dense(config.d_in, config.d_out)

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Maps the last axis."""
        return self.linear(x)

    def fit(self, x: Float[Tensor, "n d_in"], y: Float[Tensor, "n d_out"], *, penalty: float = 0.0) -> LinearRegression:
        r"""Solves for the least squares, in float64.

        Args:
            x: The inputs.
            y: The targets.
            penalty: $\lambda$; with 0, the smallest of all minima, if there are several.
        """
        solve_affine(self.linear, x, y, penalty=penalty)
        return self


@torch.no_grad()
def solve_affine(
    layer: Dense, x: Float[Tensor, "n d_in"], y: Float[Tensor, "n d_out"], *, penalty: float = 0.0
) -> None:
    r"""Gives a dense layer the weight and the bias of least squares.

    The bias is not penalised: with inputs and targets less their means, $W$ is solved for alone, and
    $b = \bar y - W \bar x$.

    Args:
        layer: The layer, whose parameters are overwritten.
        x: The inputs.
        y: The targets.
        penalty: $\lambda$, not negative.

    Examples:
        >>> layer = Dense(1, 1)
        >>> solve_affine(layer, torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [1.0]]))
        >>> layer.weight.item(), layer.bias.item()
        (0.0, 1.0)
    """
    d_out, d_in = layer.weight.shape
    if x.shape[1:] != (d_in,) or y.shape != (len(x), d_out) or len(x) < 1:
        wanted = f"rows of {d_in} inputs and as many of {d_out} targets"
        raise ValueError(f"{wanted} were wanted: got shapes {tuple(x.shape)} and {tuple(y.shape)}")
    if not penalty >= 0:
        raise ValueError(f"penalty is not negative: got {penalty}")
    if not (x.isfinite().all() and y.isfinite().all()):
        raise ValueError("finite inputs and targets were wanted: got NaN or infinite ones")
    x, y = x.double(), y.double()
    a, b = x - x.mean(0), y - y.mean(0)
    weight = ridge(a, b.mT, penalty=penalty) if penalty else (pseudo_inverse(a) @ b).mT
    layer.weight.copy_(weight)
    layer.bias.copy_(y.mean(0) - weight @ x.mean(0))


@law("Σ (f(x) - y) = 0 and Σ x (f(x) - y) = 0", every_input=True, tries=None)
def residuals_at_right_angles(f: Map, x: Tensor, y: Tensor) -> Statement:
    """What a fit leaves of the targets is at right angles to the constant and to each input.

    Kept by: least squares with a bias.
    Broken by: a penalty; a fit without a bias; a descent that stopped early.
    """
    a = torch.cat([torch.ones_like(x[:, :1]), x], dim=-1)
    return Same(a.mT @ f(x, y), a.mT @ y, exercised=True)


def claims() -> Iterator[Claim]:
    """The laws that linear regression obeys."""
    model = LinearRegression(LinearRegressionConfig(d_in=3, d_out=2))

    def slope(x: Tensor) -> Tensor:
        return model(x) - model(torch.zeros_like(x))

    def fitted(x: Tensor, y: Tensor) -> Tensor:
        return LinearRegression(LinearRegressionConfig(d_in=2)).to(x).fit(x, y)(x)

    def shrunk(x: Tensor, y: Tensor) -> Tensor:
        return LinearRegression(LinearRegressionConfig(d_in=2)).to(x).fit(x, y, penalty=0.5)(x)

    def closed_form(x: Tensor, y: Tensor) -> Tensor:
        a = x - x.mean(0)
        return y.mean(0) + a @ torch.linalg.solve(a.mT @ a + 0.5 * torch.eye(2).to(x), a.mT @ (y - y.mean(0)))

    data = (shape("n:5..7 2"), shape("n:5..7 1"))
    yield Claim(linearity(), slope, shape("b 3"), name="LinearRegression less its value at 0")
    yield Claim(residuals_at_right_angles(), fitted, data, name="LinearRegression.fit")
    yield Claim(agreement(other=closed_form), shrunk, data, name="LinearRegression.fit(penalty=0.5)")
