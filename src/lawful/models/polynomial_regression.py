"""Polynomial regression: a linear regression on all monomials of the input."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, made, shape
from lawful.models.linear_regression import LinearRegression, LinearRegressionConfig, residuals_at_right_angles

MOST = 100_000
"""The most monomials that a model has."""


@dataclass(frozen=True, kw_only=True)
class PolynomialRegressionConfig:
    """The sizes of a polynomial regression."""

    d_in: int
    """The size of the input."""
    d_out: int = 1
    """The number of targets."""
    degree: int = 2
    """The highest degree of a monomial."""


class Monomials(nn.Module):
    r"""Lists all products of powers of the entries, up to a degree, without the constant.

    $$x \mapsto \bigl(x_1^{\alpha_1} \cdots x_d^{\alpha_d}\bigr)_{1 \le |\alpha| \le k}, \qquad
    \text{there are } \binom{d + k}{k} - 1$$

    By rising degree, and in each in the order of the entries: $x_1, x_2, x_1^2, x_1 x_2, x_2^2$. Each is a product of
    an entry and a monomial of the degree below.

    Args:
        d: The size $d$ of the input.
        degree: $k$, at least 1.

    Examples:
        >>> Monomials(2, degree=2)(torch.tensor([2.0, 3.0]))
        tensor([2., 3., 4., 6., 9.])
    """

    def __init__(self, d: int, *, degree: int) -> None:
        super().__init__()
        if min(d, degree) < 1:
            raise ValueError(f"d and degree are at least 1: got {d=}, {degree=}")
        self.d, self.degree, self.count = d, degree, _count(d, degree)
        levels = [list(combinations_with_replacement(range(d), k)) for k in range(1, degree + 1)]
        for k in range(1, degree):
            place = {factors: i for i, factors in enumerate(levels[k - 1])}
            pairs = [(place[first], last) for *rest, last in levels[k] if (first := tuple(rest)) in place]
            self.register_buffer(f"products_{k}", torch.tensor(pairs).T, persistent=False)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch n"]:
        """Multiplies the entries of the last axis."""
        if x.shape[-1:] != (self.d,):
            raise ValueError(f"the last axis is to have size {self.d}: got shape {tuple(x.shape)}")
        levels = [x]
        for k in range(1, self.degree):
            below, entry = self.get_buffer(f"products_{k}")
            levels.append(levels[-1][..., below] * x[..., entry])
        return torch.cat(levels, dim=-1)

    def extra_repr(self) -> str:
        return f"{self.d}, degree={self.degree}"


def _count(d: int, degree: int) -> int:
    """How many monomials there are, counted before any is made."""
    if max(d, degree) > MOST or (count := math.comb(d + degree, degree) - 1) > MOST:
        raise ValueError(f"at most {MOST} monomials were wanted: got more, of {d} entries up to degree {degree}")
    return count


class PolynomialRegression(nn.Module):
    r"""Predicts targets by a polynomial of the input.

    $$y = b + \sum_{1 \le |\alpha| \le k} w_\alpha \, x^\alpha$$

    It is linear in its parameters, so that `fit` solves for the least squares. High powers of numbers that are not
    near 1 lose all digits: standardise first, as `Standardized` does.

    Args:
        config: The sizes.

    Examples:
        >>> x = torch.tensor([[-1.0], [0.0], [1.0], [2.0]])
        >>> model = PolynomialRegression(PolynomialRegressionConfig(d_in=1)).fit(x, x**2)
        >>> model(torch.tensor([[3.0]])).round(decimals=3).detach()
        tensor([[9.]])
    """

    def __init__(self, config: PolynomialRegressionConfig) -> None:
        super().__init__()
        self.config = config
        self.monomials = Monomials(config.d_in, degree=config.degree)
        self.linear = LinearRegression(LinearRegressionConfig(d_in=self.monomials.count, d_out=config.d_out))

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Maps the last axis."""
        return self.linear(self.monomials(x))

    def fit(
        self, x: Float[Tensor, "n d_in"], y: Float[Tensor, "n d_out"], *, penalty: float = 0.0
    ) -> PolynomialRegression:
        """Solves for the least squares, as `LinearRegression.fit` does."""
        self.linear.fit(self.monomials(x.double()), y, penalty=penalty)
        return self


def claims() -> Iterator[Claim]:
    """The laws that polynomial regression obeys."""

    def written_out(x: Tensor) -> Tensor:
        a, b = x.unbind(-1)
        return torch.stack([a, b, a * a, a * b, b * b, a**3, a * a * b, a * b * b, b**3], dim=-1)

    def fitted(x: Tensor, y: Tensor) -> Tensor:
        return PolynomialRegression(PolynomialRegressionConfig(d_in=1)).to(x).fit(x, y)(x)

    yield Claim(agreement(other=written_out), Monomials(2, degree=3), shape("b 2"))
    data = (shape("n:4..6 1"), shape("n:4..6 1"))
    yield Claim(residuals_at_right_angles(), fitted, data, name="PolynomialRegression.fit")

    def parabola(x: Tensor) -> Tensor:
        return 1 - x + 2 * x.square()

    apart = made(lambda x: x.tanh() / 4 + torch.arange(-2.0, 2.0)[:, None].to(x), "4 1")
    yield Claim(
        agreement(other=parabola), lambda x: fitted(x, parabola(x)), apart, name="PolynomialRegression, a parabola"
    )
