"""Losses of regression: how far numbers are from the right ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import AtMost, Claim, Map, Statement, agreement, convexity, law, lipschitz, metric, shape
from lawful.losses.reduction import Reduce, each


def lp_error(
    prediction: Float[Tensor, "*shape"], target: Float[Tensor, "*target"], *, p: float, reduce: Reduce = torch.mean
) -> Tensor:
    r"""Averages a power of what the predictions are off by.

    $$\ell(v, w) = \frac{1}{d} \sum_{j=1}^{d} |v_j - w_j|^p$$

    Examples lie along the first axis, and $j$ runs over all others. At $p = 1$ this is the mean absolute error, at
    $p = 2$ the mean squared error.

    Args:
        prediction: $v$, for each example.
        target: $w$, of the same shape.
        p: The power $p$, at least 1, where the loss is convex, and finite.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> lp_error(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0]]), p=3.0)
        tensor(4.5000)
    """
    if not 1 <= p < math.inf:
        raise ValueError(f"p is at least 1 and finite: got {p}")
    if p == 2:  # whose second derivative at 0 an absolute value would lose
        return squared_error(prediction, target, reduce=reduce)
    _check(prediction, target)
    return reduce(_per_example((prediction - target).abs() ** p))


def absolute_error(
    prediction: Float[Tensor, "*shape"], target: Float[Tensor, "*target"], *, reduce: Reduce = torch.mean
) -> Tensor:
    r"""Averages how far predictions are off: the mean absolute error.

    $$\ell(v, w) = \frac{1}{d} \sum_{j=1}^{d} |v_j - w_j|$$

    The best constant prediction is a median. The gradient at $v_j = w_j$ is 0.

    Args:
        prediction: $v$, for each example; examples lie along the first axis.
        target: $w$, of the same shape.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> absolute_error(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
        tensor(1.5000)
    """
    return _reduced(F.l1_loss, prediction, target, reduce)


def squared_error(
    prediction: Float[Tensor, "*shape"], target: Float[Tensor, "*target"], *, reduce: Reduce = torch.mean
) -> Tensor:
    r"""Averages the squares of what predictions are off by: the mean squared error.

    $$\ell(v, w) = \frac{1}{d} \sum_{j=1}^{d} (v_j - w_j)^2$$

    The best constant prediction is the mean. Of a linear model the loss is convex in the parameters.

    Args:
        prediction: $v$, for each example; examples lie along the first axis.
        target: $w$, of the same shape.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> squared_error(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
        tensor(2.5000)
    """
    return _reduced(F.mse_loss, prediction, target, reduce)


def huber_loss(
    prediction: Float[Tensor, "*shape"],
    target: Float[Tensor, "*target"],
    *,
    delta: float = 1.0,
    reduce: Reduce = torch.mean,
) -> Tensor:
    r"""Averages squares of small errors and absolute values of large ones, so that an outlier does not pull harder.

    $$\ell(v, w) = \frac{1}{d} \sum_{j=1}^{d} h(v_j - w_j), \qquad
    h(r) = \begin{cases} r^2 / 2 & |r| \le \delta \\ \delta (|r| - \delta / 2) & |r| > \delta \end{cases}$$

    Reference:
        Huber, *Robust Estimation of a Location Parameter*, 1964.

    Args:
        prediction: $v$, for each example; examples lie along the first axis.
        target: $w$, of the same shape.
        delta: $\delta$, above 0: the bound of the slope of $h$.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> huber_loss(torch.tensor([1.0, 3.0]), torch.tensor([0.0, 0.0]))
        tensor(1.5000)
    """
    if not delta > 0:
        raise ValueError(f"delta is above 0: got {delta}")
    return _reduced(partial(F.huber_loss, delta=delta), prediction, target, reduce)


def _check(prediction: Tensor, target: Tensor) -> None:
    if prediction.shape != target.shape:
        raise ValueError(f"a target of shape {tuple(prediction.shape)} was wanted: got {tuple(target.shape)}")
    if prediction.numel() == 0 or prediction.dim() == 0:
        raise ValueError(f"a batch of at least one example was wanted: got shape {tuple(prediction.shape)}")
    if not (prediction.is_floating_point() and target.is_floating_point()):
        raise TypeError(f"real numbers were wanted: got {prediction.dtype} and {target.dtype}")


def _per_example(errors: Tensor) -> Tensor:
    return errors.reshape(len(errors), -1).mean(-1)


def _reduced(loss: Callable[..., Tensor], prediction: Tensor, target: Tensor, reduce: Reduce) -> Tensor:
    """Reduces a loss of PyTorch's over the examples; to the mean in one step, without the losses in between."""
    _check(prediction, target)
    if reduce is torch.mean:
        return loss(prediction, target)
    return reduce(_per_example(loss(prediction, target, reduction="none")))


@law("h(x, y) ≤ |x - y|² / 2, h(x, y) ≤ δ |x - y|", discover_with=None)
def robustness(f: Map, x: Tensor, y: Tensor, *, delta: float) -> Statement:
    """The loss is nowhere above half the square of the error, nor above a multiple of the error.

    Satisfied by: the Huber loss.
    Broken by: a square; an absolute value.
    """
    off = (x - y).abs()
    return AtMost([f(x, y)] * 2, [off.square().mean(-1) / 2, delta * off.mean(-1)], names=("square", "absolute value"))


def claims() -> Iterator[Claim]:
    """The laws that losses of regression obey."""
    pair = (shape("n 3"), shape("n 3"))
    yield Claim(metric(), partial(absolute_error, reduce=each), pair, name="absolute_error(reduce=each)")
    square, cubed = partial(lp_error, p=2.0), partial(lp_error, p=3.0)
    for loss, power in ((absolute_error, 1), (squared_error, 2), (square, 2), (cubed, 3)):

        def equation(v: Tensor, w: Tensor, power: int = power) -> Tensor:
            return ((v - w) ** 2).sqrt().pow(power).sum() / v.numel()

        yield Claim(agreement(other=equation), loss, pair, name=f"|v - w|^{power}")

    def of_weights(weight: Tensor) -> Tensor:
        x = torch.linspace(-1, 2, 15).to(weight).reshape(5, 3)
        return squared_error(x @ weight, x.sin().sum(-1))

    yield Claim(convexity(), of_weights, shape("3"), name="squared_error of linear regression, by its weights")
    narrow = partial(huber_loss, delta=0.7, reduce=each)

    def pieces(v: Tensor, w: Tensor) -> Tensor:
        small = (v - w).abs().clamp_max(0.7)
        return (small * ((v - w).abs() - small / 2)).mean(-1)

    yield Claim(agreement(other=pieces), narrow, pair, name="huber_loss(delta=0.7)")
    yield Claim(robustness(delta=0.7), narrow, pair, name="huber_loss(delta=0.7)")

    def from_zero(v: Tensor) -> Tensor:
        return narrow(v, torch.zeros_like(v))

    yield Claim(lipschitz(constant=0.7), from_zero, shape("n 1"), name="huber_loss(delta=0.7)")
    yield Claim(convexity(), from_zero, shape("n 3"), name="huber_loss(delta=0.7)")
