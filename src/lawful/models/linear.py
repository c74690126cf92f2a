"""Linear models: linear, polynomial, softmax, logistic and thresholded regression."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations_with_replacement

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from lawful.functions import ridge
from lawful.laws import Claim, affinity, boundedness, convexity, shape, sums_to_one


class LinearRegression(nn.Module):
    r"""Linear regression, fitted by least squares.

    $$y = W x + b, \qquad \min_{W, b} \sum_n \lVert W x_n + b - y_n \rVert^2 + \lambda \lVert W \rVert^2$$

    `fit` solves for the minimum. The model can also be trained by gradient descent.

    Args:
        in_dim: Number of features.
        out_dim: Number of targets.

    Examples:
        >>> model = LinearRegression(1).fit(torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [3.0]]))
        >>> model(torch.tensor([[2.0]])).detach()
        tensor([[5.]])
    """

    def __init__(self, in_dim: int, out_dim: int = 1) -> None:
        super().__init__()
        _check_sizes(in_dim=in_dim, out_dim=out_dim)
        self.linear = nn.Linear(in_dim, out_dim)

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Maps the last axis."""
        return self.linear(x)

    def fit(self, x: Float[Tensor, "n d_in"], y: Float[Tensor, "n d_out"], *, penalty: float = 0.0) -> LinearRegression:
        r"""Computes the least-squares solution, in float64.

        Args:
            x: Inputs.
            y: Targets.
            penalty: Ridge penalty $\lambda$. With 0, the minimum-norm solution if there are several.
        """
        solve_linear(self.linear, x, y, penalty=penalty)
        return self


@torch.no_grad()
def solve_linear(
    layer: nn.Linear, x: Float[Tensor, "n d_in"], y: Float[Tensor, "n d_out"], *, penalty: float = 0.0
) -> None:
    r"""Sets the weight and the bias of a linear layer to the least-squares solution.

    The bias is not penalized: $W$ is solved for with centered inputs and targets, and $b = \bar y - W \bar x$.

    Args:
        layer: Linear layer with a bias, changed in place.
        x: Inputs.
        y: Targets.
        penalty: Ridge penalty $\lambda$.

    Examples:
        >>> layer = nn.Linear(1, 1)
        >>> solve_linear(layer, torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [1.0]]))
        >>> layer.weight.item(), layer.bias.item()
        (0.0, 1.0)
    """
    d_out, d_in = layer.weight.shape
    if x.shape[1:] != (d_in,) or y.shape != (len(x), d_out) or len(x) < 1:
        expected = f"expected x of shape (n, {d_in}) and y of shape (n, {d_out})"
        raise ValueError(f"{expected}, got {tuple(x.shape)} and {tuple(y.shape)}")
    if not penalty >= 0:
        raise ValueError(f"penalty must not be negative, got {penalty}")
    if not (x.isfinite().all() and y.isfinite().all()):
        raise ValueError("x and y must be finite, got NaN or infinite entries")
    x, y = x.double(), y.double()
    a, b = x - x.mean(0), y - y.mean(0)
    weight = ridge(a, b.mT, penalty=penalty) if penalty else (torch.linalg.pinv(a) @ b).mT
    layer.weight.copy_(weight)
    layer.bias.copy_(y.mean(0) - weight @ x.mean(0))


_MAX_FEATURES = 100_000


class PolynomialFeatures(nn.Module):
    r"""All monomials of the input up to a degree, without the constant.

    $$x \mapsto \bigl(x_1^{\alpha_1} \cdots x_d^{\alpha_d}\bigr)_{1 \le |\alpha| \le k}, \qquad
    \text{there are } \binom{d + k}{k} - 1$$

    They are ordered as in scikit-learn: $x_1, x_2, x_1^2, x_1 x_2, x_2^2$. Each is the product of an entry and a
    monomial of the degree below.

    Args:
        in_dim: Size $d$ of the input.
        degree: Maximum degree $k$.

    Examples:
        >>> PolynomialFeatures(2, degree=2)(torch.tensor([2.0, 3.0]))
        tensor([2., 3., 4., 6., 9.])
    """

    def __init__(self, in_dim: int, *, degree: int) -> None:
        super().__init__()
        _check_sizes(in_dim=in_dim, degree=degree)
        self.in_dim, self.degree, self.out_dim = in_dim, degree, _num_features(in_dim, degree)
        levels = [list(combinations_with_replacement(range(in_dim), k)) for k in range(1, degree + 1)]
        for k in range(1, degree):
            index = {factors: i for i, factors in enumerate(levels[k - 1])}
            pairs = [(index[first], last) for *rest, last in levels[k] if (first := tuple(rest)) in index]
            self.register_buffer(f"products_{k}", torch.tensor(pairs).T, persistent=False)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch n"]:
        """Returns the monomials of the last axis."""
        if x.shape[-1:] != (self.in_dim,):
            raise ValueError(f"expected x of shape (*batch, {self.in_dim}), got {tuple(x.shape)}")
        levels = [x]
        for k in range(1, self.degree):
            below, entry = self.get_buffer(f"products_{k}")
            levels.append(levels[-1][..., below] * x[..., entry])
        return torch.cat(levels, dim=-1)

    def extra_repr(self) -> str:
        return f"{self.in_dim}, degree={self.degree}"


def _num_features(in_dim: int, degree: int) -> int:
    """Returns the number of monomials, or raises a ValueError if there are too many."""
    too_large = max(in_dim, degree) > _MAX_FEATURES
    if too_large or (count := math.comb(in_dim + degree, degree) - 1) > _MAX_FEATURES:
        raise ValueError(f"{in_dim} inputs up to degree {degree} have more than {_MAX_FEATURES} monomials")
    return count


class PolynomialRegression(nn.Module):
    r"""Polynomial regression: linear regression on all monomials of the input.

    $$y = b + \sum_{1 \le |\alpha| \le k} w_\alpha \, x^\alpha$$

    High powers lose precision unless the inputs are near 1: standardize them first, as `Standardized` does.

    Args:
        in_dim: Number of features.
        out_dim: Number of targets.
        degree: Maximum degree $k$.

    Examples:
        >>> x = torch.tensor([[-1.0], [0.0], [1.0], [2.0]])
        >>> model = PolynomialRegression(1).fit(x, x**2)
        >>> model(torch.tensor([[3.0]])).round(decimals=3).detach()
        tensor([[9.]])
    """

    def __init__(self, in_dim: int, out_dim: int = 1, *, degree: int = 2) -> None:
        super().__init__()
        self.features = PolynomialFeatures(in_dim, degree=degree)
        self.linear = LinearRegression(self.features.out_dim, out_dim)

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Maps the last axis."""
        return self.linear(self.features(x))

    def fit(
        self, x: Float[Tensor, "n d_in"], y: Float[Tensor, "n d_out"], *, penalty: float = 0.0
    ) -> PolynomialRegression:
        """Computes the least-squares solution, as `LinearRegression.fit` does."""
        self.linear.fit(self.features(x.double()), y, penalty=penalty)
        return self


class SoftmaxRegression(nn.Module):
    r"""Softmax regression (multinomial logistic regression): returns the logits of the classes.

    $$s = W x + b, \qquad p_i = \frac{e^{s_i}}{\sum_j e^{s_j}}$$

    With two classes it is logistic regression, whose weight is the difference of the rows of $W$. The negative
    log-likelihood is convex in $W$ and $b$.

    Args:
        in_dim: Number of features.
        num_classes: Number of classes.

    Examples:
        >>> SoftmaxRegression(3, 4)(torch.zeros(5, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(self, in_dim: int, num_classes: int) -> None:
        super().__init__()
        _check_sizes(in_dim=in_dim, num_classes=num_classes)
        self.linear = nn.Linear(in_dim, num_classes)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch classes"]:
        """Returns the logits."""
        return self.linear(x)


class LogisticRegression(nn.Module):
    r"""Logistic regression: the probability of one of two classes.

    $$p = \frac{1}{1 + e^{-(w \cdot x + b)}}, \qquad \log \frac{p}{1 - p} = w \cdot x + b$$

    The negative log-likelihood is convex in $w$ and $b$. Train on `logits`, which do not saturate.

    Args:
        in_dim: Number of features.

    Examples:
        >>> LogisticRegression(3)(torch.zeros(5, 3)).shape
        torch.Size([5])
    """

    def __init__(self, in_dim: int) -> None:
        super().__init__()
        _check_sizes(in_dim=in_dim)
        self.linear = nn.Linear(in_dim, 1)

    def logits(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        """Returns the log-odds."""
        return self.linear(x).squeeze(-1)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        """Returns the probability."""
        return torch.sigmoid(self.logits(x))


def one_hot(labels: Int[Tensor, " n"], num_classes: int) -> Float[Tensor, "n classes"]:
    r"""Returns one-hot vectors in the default dtype, after checking the labels.

    Args:
        labels: Class labels, from 0.
        num_classes: Number of classes.

    Examples:
        >>> one_hot(torch.tensor([0, 2]), 3)
        tensor([[1., 0., 0.],
                [0., 0., 1.]])
    """
    if labels.is_floating_point() or labels.dim() != 1:
        raise TypeError(f"expected integer labels of shape (n,), got {labels.dtype} of shape {tuple(labels.shape)}")
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise ValueError(f"labels must be in [0, {num_classes}), got {int(labels.min())} to {int(labels.max())}")
    return F.one_hot(labels.long(), num_classes).to(torch.get_default_dtype())


class ThresholdedRegression(nn.Module):
    r"""Least-squares regression on one-hot labels; predicts the class with the largest output. A poor baseline.

    $$r = W x + b, \qquad \hat k = \arg\max_i r_i, \qquad \min_{W, b} \sum_n \lVert W x_n + b - e_{k_n} \rVert^2$$

    With two classes this thresholds at $r_1 > \frac{1}{2}$. Points far on the correct side have a large squared error,
    like mistakes, and shift the boundary. Logistic regression does not have this problem. There are no probabilities:
    the predicted class has probability 1. Ties go to the first class.

    Args:
        in_dim: Number of features.
        num_classes: Number of classes.

    Examples:
        >>> x, labels = torch.tensor([[0.0], [1.0], [2.0], [40.0]]), torch.tensor([0, 0, 1, 1])
        >>> ThresholdedRegression(1).fit(x, labels)(x).argmax(-1)
        tensor([0, 0, 0, 1])
    """

    def __init__(self, in_dim: int, num_classes: int = 2) -> None:
        super().__init__()
        _check_sizes(in_dim=in_dim, num_classes=num_classes)
        self.linear = nn.Linear(in_dim, num_classes)

    def regress(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch classes"]:
        """Returns the regression outputs before the threshold."""
        return self.linear(x)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch classes"]:
        r"""Returns log-probabilities: 0 at the predicted class and $-\infty$ elsewhere."""
        r = self.regress(x)
        return torch.full_like(r, -torch.inf).scatter(-1, r.argmax(-1, keepdim=True), 0.0)

    def fit(self, x: Float[Tensor, "n d"], labels: Int[Tensor, " n"], *, penalty: float = 0.0) -> ThresholdedRegression:
        """Computes the least-squares solution for one-hot labels, as `LinearRegression.fit` does."""
        solve_linear(self.linear, x, one_hot(labels, self.linear.out_features), penalty=penalty)
        return self


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def claims() -> Iterator[Claim]:
    """The laws of linear models."""
    linear, softmax, logistic = LinearRegression(3, 2), SoftmaxRegression(3, 2), LogisticRegression(3)
    thresholded = ThresholdedRegression(2)
    points, labels = torch.linspace(-2.0, 2.0, 12).reshape(4, 3).sin(), torch.tensor([0, 1, 1, 0])

    def nll(parameters: Tensor) -> Tensor:
        named = {"linear.weight": parameters[:, :3], "linear.bias": parameters[:, 3]}
        return F.cross_entropy(functional_call(softmax, named, (points.to(parameters),)), labels)

    def probabilities(x: Tensor) -> Tensor:
        return thresholded(x).softmax(-1)

    yield Claim(affinity(), linear, shape("b 3"))
    yield Claim(convexity(), nll, shape("2 4"), name="SoftmaxRegression, negative log-likelihood")
    yield Claim(boundedness(low=0.0, high=1.0), logistic, shape("b 3"))
    yield Claim(sums_to_one(), probabilities, shape("b 2"), name="ThresholdedRegression, softmax")
