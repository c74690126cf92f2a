"""Laws of probabilities, divergences, and maps with random masks or weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lawful.laws._helpers import is_positive
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Axis, law
from lawful.laws.statements import AtMost, Equal, HasMean, Statement


@law("Σ_i f(x)_i = 1")
def sums_to_one(f: Map, *xs: Tensor, axis: Axis = -1) -> Statement:
    """The outputs along an axis have sum 1.

    Satisfied by: softmax over the axis; attention weights over the keys.
    Broken by: softmax over another axis; dropout of the weights; a sigmoid.
    """
    y = f(*xs)
    if not -y.dim() <= axis < y.dim():
        raise ValueError(f"axis={axis} is out of range for an output of shape {tuple(y.shape)}")
    total = y.sum(axis)
    return Equal(total, torch.ones_like(total), exercised=True)


@law("f(x) ≥ 0")
def non_negativity(f: Map, *xs: Tensor) -> Statement:
    """All outputs are non-negative.

    Satisfied by: softmax, ReLU, a divergence, a norm.
    Broken by: a divergence with swapped terms; a difference of rounded squares.
    """
    y = f(*xs)
    return AtMost(torch.zeros_like(y), y)


@law("D(p, q) ≥ 0, D(p, q) = 0 ⇔ p = q", eval_if_random=True)
def divergence(f: Map, p: Tensor, q: Tensor, *, draw: Draw) -> Statement:
    """A divergence is non-negative, zero for equal distributions, and zero only for them.

    The map takes two tensors of probabilities and returns one number, or one for each row. The unequal pairs are p
    and q, and p and a copy with some probability moved from one class to another. For the last part, rows that are
    very close are excluded.

    Satisfied by: the Kullback-Leibler and Jensen-Shannon divergences, total variation.
    Broken by: swapped terms; a cross-entropy; a sum without the last class.
    """
    same, moved = f(p, p), _move_probability(p, draw)
    left, right = [same.abs()], [torch.zeros_like(same)]
    far = f(p, q)
    for other, distance in ((q, far), (moved, f(p, moved))):
        positive = is_positive(distance, p, other, _rounding(far))
        left += [torch.zeros_like(distance), torch.ones_like(positive)]
        right += [distance, positive]
    names = ("D(p, p)", "D(p, q)", "D(p, q) > 0", "D(p, p')", "D(p, p') > 0")
    return AtMost(left, right, names=names)


def _move_probability(p: Tensor, draw: Draw) -> Tensor:
    """Moves half of the probability of one class to another."""
    n = p.shape[-1]
    i = draw.integer(0, n - 1, "from")
    j = draw.choice([k for k in range(n) if k != i] or [i], "to")
    q = p.clone()
    q[..., i] = p[..., i] / 2
    q[..., j] = q[..., j] + p[..., i] / 2
    return q


def _rounding(far: Tensor) -> Tensor:
    """Returns the rounding error of a zero divergence, relative to the largest one."""
    return 1e-12 * far.nan_to_num(0.0, 0.0, 0.0).abs().amax()


@law("H(p, p) ≤ H(p, q), with equality only at p = q", eval_if_random=True)
def gibbs_inequality(f: Map, p: Tensor, q: Tensor, *, draw: Draw) -> Statement:
    """As a function of q, the cross-entropy H(p, q) is smallest at q = p, and only there.

    The map takes two tensors of probabilities, as for `divergence`.

    Satisfied by: cross-entropy, the Kullback-Leibler divergence, the Brier score.
    Broken by: swapped arguments; label smoothing of one argument only.
    """
    least, moved = f(p, p), _move_probability(p, draw)
    left, right = list[Tensor](), list[Tensor]()
    far = f(p, q) - least
    for other, excess in ((q, far), (moved, f(p, moved) - least)):
        positive = is_positive(excess, p, other, _rounding(far))
        left += [torch.zeros_like(excess), torch.ones_like(positive)]
        right += [excess, positive]
    names = ("H(p, q) - H(p, p)", "H(p, q) > H(p, p)", "H(p, p') - H(p, p)", "H(p, p') > H(p, p)")
    return AtMost(left, right, names=names)


@law("E f(x; ω) = f(x) in eval mode, over random states ω", cases=10, discover_with=None)
def unbiasedness(f: Map, x: Tensor, *, expected: Callable[..., Any] | None = None, draw: Draw) -> Statement:
    """The mean output over random states equals the output in eval mode, or the output of `expected`.

    The samples of a batch must be random independently of each other: the law passes many copies of one sample at once.

    Satisfied by: dropout that divides by the keep probability, or multiplies by it in eval mode.
    Broken by: dropout scaled by the drop probability, or not scaled.
    """
    one = x[:1]
    mean = (f.eval() if expected is None else f.with_function(expected))(one)[0]
    direction = draw.normal(*mean.shape)
    many = f.with_seed(draw.integer(1, 2**16, "ω"))(one.expand(draw.samples, *one.shape[1:]))
    return HasMean((many * direction).flatten(1).sum(1), (mean * direction).sum())


@law("f(x)_i ∈ {0, s x_i} in training mode, f(x)_i = e x_i in eval mode", discover_with=None)
def dropout_scaling(f: Map, x: Tensor, *, scale: float = 1.0, eval_scale: float = 1.0) -> Statement:
    """In training mode an entry is 0 or multiplied by `scale`; in eval mode every entry is multiplied by `eval_scale`.

    Satisfied by: dropout with the scale of its keep probability.
    Broken by: additive noise; a mask applied twice, with two scales.
    """
    y = f.modified(lambda module: module.train())(x)
    return Equal([y * (y - scale * x), f.eval()(x)], [torch.zeros_like(y), eval_scale * x], exercised=True)


def _identity(x: Tensor) -> Tensor:
    return x


@law("E σ(W x)_i² = r · mean_j x_j²", cases=10, discover_with=None)
def variance_preservation(
    f: Map, x: Tensor, *, activation: Callable[[Tensor], Tensor] = _identity, ratio: float = 1.0, draw: Draw
) -> Statement:
    """A layer with randomly initialized weights multiplies the mean square of its input by `ratio`.

    The input has the shape of the weight; its first row is the input of the layer.

    Satisfied by: initializations whose variance is divided by the fan-in, with the gain of the activation.
    Broken by: a standard deviation used as a variance; a bound used as a standard deviation.
    """
    many, rows = draw.samples // len(x) + 1, x[:1].expand_as(x)
    seed = draw.integer(1, 2**16, "ω")
    weights = torch.stack([f.with_seed(seed + n)(x) for n in range(many)])
    outputs = activation((weights * rows).flatten(2).sum(-1)).square()
    return HasMean(outputs.flatten(), ratio * x[0].square().mean())


@law("D(p, q) = ∞ ⇔ p_i > 0, q_i = 0 for some i", discover_with=None)
def infinite_off_support(f: Map, p: Tensor, q: Tensor, *, draw: Draw) -> Statement:
    """The output is infinite where an outcome has probability 0 under q and not under p, and finite otherwise.

    The law sets the probability of one outcome to 0 under q, and makes it positive or 0 under p.

    Satisfied by: the Kullback-Leibler divergence, cross-entropy.
    Broken by: an eps inside the logarithm; 0 log 0 that is infinite or NaN.
    """
    n = p.shape[-1]
    one = torch.eye(n).to(p)[draw.integer(0, n - 1, "i")]
    others = (1 - one) / max(n - 1, 1)
    draw.assume(n > 1)
    with_i, without_i = (p + one) / 2, (p * (1 - one) + others) / (p * (1 - one) + others).sum(-1, keepdim=True)
    impossible = (q * (1 - one) + others) / (q * (1 - one) + others).sum(-1, keepdim=True)
    infinite, finite = f(with_i, impossible), f(without_i, impossible)
    return Equal(
        (infinite.isposinf().to(p), finite.isfinite().to(p)),
        (torch.ones_like(infinite), torch.ones_like(finite)),
        exercised=True,
    )


@law("2 f(p, q)² ≤ KL(p, q)", discover_with=None)
def pinsker_inequality(f: Map, p: Tensor, q: Tensor) -> Statement:
    """Distributions with a small Kullback-Leibler divergence are close in the metric `f`.

    Satisfied by: total variation.
    Broken by: the L1 distance, which is twice the total variation.
    """
    kl = (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(-1)
    return AtMost(2 * f(p, q).square(), kl)


@law("[1 f(x)]ᵀ [1 f(x)] / n = 1", discover_with=None)
def whiteness(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """The columns of the output have mean 0, variance 1 and no correlation.

    Inputs with a nearly singular covariance are excluded.

    Satisfied by: PCA, ZCA and Cholesky whitening.
    Broken by: standardization; whitening with an eps.
    """
    spread = torch.linalg.svdvals(x - x.mean(-2, keepdim=True))
    draw.assume(spread[-1:] > 0.1 * spread[:1])
    y = f(x)
    columns = torch.cat([torch.ones_like(y[:, :1]), y], -1)
    moments = columns.mT @ columns / len(y)
    return Equal(moments, torch.eye(len(moments)).to(y), exercised=True)
