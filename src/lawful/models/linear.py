"""Linear regression: an affine map, fitted by least squares.

Polynomial regression: a linear regression on all monomials of the input.
Softmax regression: multinomial logistic regression, a dense layer and a softmax.
Logistic regression: a dense layer and a sigmoid.
Labels as targets of a regression: 1 at the class, 0 elsewhere.
Thresholded regression: least squares on labels, and the largest output. A bad idea, to compare with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from lawful.blocks import Dense
from lawful.functions import pinv, ridge
from lawful.laws import (
    AtMost,
    Claim,
    Draw,
    Equal,
    Map,
    Statement,
    agreement,
    boundedness,
    convexity,
    law,
    linearity,
    shape,
    sums_to_one,
    tokens,
    transformed,
)


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
    weight = ridge(a, b.mT, penalty=penalty) if penalty else (pinv(a) @ b).mT
    layer.weight.copy_(weight)
    layer.bias.copy_(y.mean(0) - weight @ x.mean(0))


@law("Σ (f(x) - y) = 0 and Σ x (f(x) - y) = 0", every_input=True, discover_with=None)
def residuals_at_right_angles(f: Map, x: Tensor, y: Tensor) -> Statement:
    """What a fit leaves of the targets is at right angles to the constant and to each input.

    Satisfied by: least squares with a bias.
    Broken by: a penalty; a fit without a bias; a descent that stopped early.
    """
    a = torch.cat([torch.ones_like(x[:, :1]), x], dim=-1)
    return Equal(a.mT @ f(x, y), a.mT @ y, exercised=True)


def _linear_regression_claims() -> Iterator[Claim]:
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


def _polynomial_regression_claims() -> Iterator[Claim]:
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

    apart = transformed(lambda x: x.tanh() / 4 + torch.arange(-2.0, 2.0)[:, None].to(x), "4 1")
    yield Claim(
        agreement(other=parabola), lambda x: fitted(x, parabola(x)), apart, name="PolynomialRegression, a parabola"
    )


@dataclass(frozen=True, kw_only=True)
class SoftmaxRegressionConfig:
    """The sizes of a softmax regression."""

    d: int
    """The size of the input."""
    classes: int
    """The number of classes."""


class SoftmaxRegression(nn.Module):
    r"""Scores each class by an affine map; the softmax of the scores is the probabilities.

    $$s = W x + b, \qquad p_i = \frac{e^{s_i}}{\sum_j e^{s_j}}$$

    With two classes it is the logistic regression whose weight is the difference of the rows of $W$. The negative
    log-likelihood is convex in $W$ and $b$. Adding one row to all rows changes no probability.

    Args:
        config: The sizes.

    Examples:
        >>> model = SoftmaxRegression(SoftmaxRegressionConfig(d=3, classes=4))
        >>> model(torch.zeros(5, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(self, config: SoftmaxRegressionConfig) -> None:
        super().__init__()
        self.config = config
        self.linear = Dense(config.d, config.classes)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch classes"]:
        """Returns the scores of the classes."""
        return self.linear(x)


def _softmax_regression_claims() -> Iterator[Claim]:
    """The laws that softmax regression obeys."""
    model = SoftmaxRegression(SoftmaxRegressionConfig(d=3, classes=2))
    points, labels = torch.linspace(-2.0, 2.0, 12).reshape(4, 3).sin(), torch.tensor([0, 1, 1, 0])

    def slope(x: Tensor) -> Tensor:
        return model(x) - model(torch.zeros_like(x))

    def second(x: Tensor) -> Tensor:
        return model(x).softmax(-1)[..., 1]

    def logistic(x: Tensor) -> Tensor:
        weight, bias = (p[1] - p[0] for p in model.parameters())
        return torch.sigmoid(x @ weight + bias)

    def loss(parameters: Tensor) -> Tensor:
        named = {"linear.weight": parameters[:, :3], "linear.bias": parameters[:, 3]}
        return F.cross_entropy(functional_call(model, named, (points.to(parameters),)), labels)

    yield Claim(linearity(), slope, shape("b 3"), name="SoftmaxRegression less its value at 0")
    yield Claim(agreement(other=logistic), second, shape("b 3"), name="SoftmaxRegression of two classes")
    yield Claim(convexity(), loss, shape("2 4"), name="SoftmaxRegression, negative log-likelihood")


@dataclass(frozen=True, kw_only=True)
class LogisticRegressionConfig:
    """The size of a logistic regression."""

    d: int
    """The size of the input."""


class LogisticRegression(nn.Module):
    r"""Gives the probability of one of two classes, by the sigmoid of an affine score.

    $$p = \frac{1}{1 + e^{-(w \cdot x + b)}}, \qquad \log \frac{p}{1 - p} = w \cdot x + b$$

    It is a multilayer perceptron without hidden layers. The score is the log-odds, and its negative log-likelihood
    is a convex function of $w$ and $b$. Train on `score`, which does not saturate.

    Args:
        config: The size.

    Examples:
        >>> model = LogisticRegression(LogisticRegressionConfig(d=3))
        >>> model(torch.zeros(5, 3)).shape
        torch.Size([5])
    """

    def __init__(self, config: LogisticRegressionConfig) -> None:
        super().__init__()
        self.config = config
        self.linear = Dense(config.d, 1)

    def score(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        """Returns the log-odds."""
        return self.linear(x).squeeze(-1)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        """Returns the probability."""
        return torch.sigmoid(self.score(x))


@law("s(x) ≤ s(y) ⇒ f(x) ≤ f(y)", discover_with=None)
def monotone_in_score(f: Map, x: Tensor, *, score: str = "score", draw: Draw) -> Statement:
    """Of two inputs the one with the higher score has no lower output.

    Satisfied by: a sigmoid or any other increasing function of the score.
    Broken by: a probability of the other class.
    """
    y = draw.like(x)
    lower = f.method(score)(x) <= f.method(score)(y)
    here, there = f(x), f(y)
    return AtMost(torch.where(lower, here, there), torch.where(lower, there, here))


def _logistic_regression_claims() -> Iterator[Claim]:
    """The laws that logistic regression obeys."""
    model = LogisticRegression(LogisticRegressionConfig(d=3))
    points = torch.linspace(-2.0, 2.0, 12).reshape(4, 3).sin()
    signs = torch.tensor([-1.0, 1.0, 1.0, -1.0])

    def equation(x: Tensor) -> Tensor:
        return 1 / (1 + torch.exp(-(x * model.linear.weight[0]).sum(-1) - model.linear.bias))

    def loss(parameters: Tensor) -> Tensor:
        named = {"weight": parameters[None, :3], "bias": parameters[3:]}
        scores = functional_call(model.linear, named, (points.to(parameters),))
        return torch.logaddexp(scores[:, 0] * signs.to(scores), torch.zeros_like(scores[:, 0])).sum()

    yield Claim(agreement(other=equation), model, shape("b 3"))
    yield Claim(boundedness(low=0.0, high=1.0), model, shape("b 3"))
    yield Claim(monotone_in_score(), model, shape("b 3"))
    yield Claim(convexity(), loss, shape("4"), name="LogisticRegression, negative log-likelihood")


def one_hot(labels: Int[Tensor, " n"], *, classes: int) -> Float[Tensor, "n classes"]:
    r"""Turns each class into a unit vector, $k \mapsto e_k$, after a look at whether there is such a class.

    Args:
        labels: The classes $k$, from 0.
        classes: How many there are.

    Examples:
        >>> one_hot(torch.tensor([0, 2]), classes=3)
        tensor([[1., 0., 0.],
                [0., 0., 1.]])
    """
    if labels.is_floating_point() or labels.dim() != 1:
        raise TypeError(f"a row of integers was wanted: got {labels.dtype} of shape {tuple(labels.shape)}")
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        bounds = f"{int(labels.min())} to {int(labels.max())}"
        raise ValueError(f"labels from 0 to {classes - 1} were wanted: got {bounds}")
    return F.one_hot(labels.long(), classes).to(torch.get_default_dtype())


def _labels_claims() -> Iterator[Claim]:
    """The laws that targets of labels obey."""

    def vectors(labels: Tensor) -> Tensor:
        return one_hot(labels, classes=3)

    yield Claim(sums_to_one(), vectors, tokens("n", vocab_size=3), name="one_hot")
    yield Claim(agreement(other=lambda k: torch.eye(3)[k]), vectors, tokens("n", vocab_size=3), name="one_hot")


@dataclass(frozen=True, kw_only=True)
class ThresholdedRegressionConfig:
    """The sizes of a thresholded regression."""

    d: int
    """The size of the input."""
    classes: int = 2
    """The number of classes."""


class ThresholdedRegression(nn.Module):
    r"""Regresses on labels of 0 and 1, and takes the class whose regression is largest.

    $$r = W x + b, \qquad \hat k = \arg\max_i r_i, \qquad \min_{W, b} \sum_n \lVert W x_n + b - e_{k_n} \rVert^2$$

    With two classes this is a threshold: $r_1 > \frac{1}{2}$. What is made small is the squared error before the
    threshold, not the number of mistakes after it: points far on the right side cost as much as mistakes do, and pull
    the boundary over. Logistic regression does not have this fault. There are no probabilities either: the class has
    1, all others 0. Of equal regressions the first class wins.

    Args:
        config: The sizes.

    Examples:
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [40.0]])
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> model = ThresholdedRegression(ThresholdedRegressionConfig(d=1)).fit(x, labels)
        >>> model(x).argmax(-1)
        tensor([0, 0, 0, 1])
    """

    def __init__(self, config: ThresholdedRegressionConfig) -> None:
        super().__init__()
        self.config = config
        self.linear = Dense(config.d, config.classes)

    def regress(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch classes"]:
        """Returns what is thresholded; with gradients it is trained on squared error."""
        return self.linear(x)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch classes"]:
        r"""Returns the logarithm of 1 at the class, and of 0 at the others: 0 and $-\infty$."""
        r = self.regress(x)
        return torch.full_like(r, -torch.inf).scatter(-1, r.argmax(-1, keepdim=True), 0.0)

    def fit(self, x: Float[Tensor, "n d"], labels: Int[Tensor, " n"], *, penalty: float = 0.0) -> ThresholdedRegression:
        """Solves for the least squares, as `LinearRegression.fit` does, with a target of 1 for the label."""
        solve_affine(self.linear, x, one_hot(labels, classes=self.config.classes), penalty=penalty)
        return self


def _thresholded_regression_claims() -> Iterator[Claim]:
    """The laws that thresholded regression obeys."""
    model = ThresholdedRegression(ThresholdedRegressionConfig(d=2))
    labels = torch.tensor([0, 1, 1, 0, 1])

    def frequencies(x: Tensor) -> Tensor:
        return model(x).softmax(-1)

    def both(x: Tensor) -> Tensor:
        return ThresholdedRegression(ThresholdedRegressionConfig(d=2)).to(x).fit(x, labels).regress(x)

    yield Claim(sums_to_one(), frequencies, shape("b 2"), name="ThresholdedRegression, softmax")
    yield Claim(sums_to_one(), both, shape("5 2"), name="ThresholdedRegression.regress, fitted")
    largest = agreement(other=lambda x: one_hot(model.regress(x).argmax(-1), classes=2).to(x))
    yield Claim(largest, frequencies, shape("b 2"), name="ThresholdedRegression, largest")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _linear_regression_claims()
    yield from _polynomial_regression_claims()
    yield from _softmax_regression_claims()
    yield from _logistic_regression_claims()
    yield from _labels_claims()
    yield from _thresholded_regression_claims()
