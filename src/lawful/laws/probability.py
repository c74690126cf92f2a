"""What makes numbers probabilities: they add up, none is negative, and divergences between them behave."""

from __future__ import annotations

import torch
from torch import Tensor

from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Axis, law
from lawful.laws.statements import AtMost, Equal, Statement


@law("Σ_i f(x)_i = 1")
def sums_to_one(f: Map, *xs: Tensor, axis: Axis = -1) -> Statement:
    """The outputs along an axis add up to one.

    Satisfied by: softmax over the axis; attention weights over the keys.
    Broken by: softmax over another axis; dropout on the weights; a sigmoid.
    """
    y = f(*xs)
    if not -y.dim() <= axis < y.dim():
        raise ValueError(f"axis={axis} is out of range: the output has shape {tuple(y.shape)}")
    total = y.sum(axis)
    return Equal(total, torch.ones_like(total), exercised=True)


@law("f(x) ≥ 0")
def non_negativity(f: Map, *xs: Tensor) -> Statement:
    """No output is negative.

    Satisfied by: softmax, ReLU, a divergence, a norm.
    Broken by: a divergence with its terms swapped; a difference of rounded squares.
    """
    y = f(*xs)
    return AtMost(torch.zeros_like(y), y)


@law("D(p, q) ≥ 0, D(p, q) = 0 ⇔ p = q")
def divergence(f: Map, p: Tensor, q: Tensor, *, draw: Draw) -> Statement:
    """A divergence is not negative, zero between equal distributions, and zero only there.

    The map takes two tensors of probabilities and gives one number, or one for each row. The unequal ones are p
    and q, and p with some mass moved from one outcome to another; rows that are close to each other are outside
    the domain of the last part.

    Satisfied by: the Kullback-Leibler and Jensen-Shannon divergences, total variation.
    Broken by: terms that are swapped; a cross-entropy; a sum that forgets the last outcome.
    """
    same, moved = f(p, p), _moved(p, draw)
    left, right = [same.abs()], [torch.zeros_like(same)]
    far = f(p, q)
    for other, apart in ((q, far), (moved, f(p, moved))):
        positive = tells_apart(apart, p, other, _rounding(far))
        left += [torch.zeros_like(apart), torch.ones_like(positive)]
        right += [apart, positive]
    names = ("D(p, p)", "D(p, q)", "D(p, q) > 0", "D(p, p')", "D(p, p') > 0")
    return AtMost(left, right, names=names)


def _moved(p: Tensor, draw: Draw) -> Tensor:
    """Half of the probability of one outcome, moved to another one."""
    n = p.shape[-1]
    i = draw.integer(0, n - 1, "from")
    j = draw.choice([k for k in range(n) if k != i] or [i], "to")
    q = p.clone()
    q[..., i] = p[..., i] / 2
    q[..., j] = q[..., j] + p[..., i] / 2
    return q


def _rounding(far: Tensor) -> Tensor:
    """What rounding makes of a sum that is zero, as a part of the largest divergence."""
    return 1e-12 * far.nan_to_num(0.0, 0.0, 0.0).abs().amax()


def tells_apart(apart: Tensor, p: Tensor, q: Tensor, above: Tensor | float = 0.0) -> Tensor:
    """1 where a distance is above a bound, or need not be since p and q are close; else 0."""
    axes = tuple(range(apart.dim(), p.dim()))
    gap = (p - q).abs()
    far = (gap.amax(axes) if axes else gap.reshape(apart.shape)) > 1e-3
    return torch.where(apart.isfinite(), torch.where(far, (apart > above).to(apart), 1.0), apart)


@law("H(p, p) ≤ H(p, q), with equality only at p = q")
def gibbs_inequality(f: Map, p: Tensor, q: Tensor, *, draw: Draw) -> Statement:
    """Among all predictions q, a cross-entropy is smallest at the truth p, and only there.

    The map takes two tensors of probabilities, as for `divergence`.

    Satisfied by: cross-entropy, the Kullback-Leibler divergence, the squared error between probabilities.
    Broken by: the arguments swapped; a label smoothing that is applied to one side only.
    """
    least, moved = f(p, p), _moved(p, draw)
    left, right = list[Tensor](), list[Tensor]()
    far = f(p, q) - least
    for other, more in ((q, far), (moved, f(p, moved) - least)):
        positive = tells_apart(more, p, other, _rounding(far))
        left += [torch.zeros_like(more), torch.ones_like(positive)]
        right += [more, positive]
    names = ("H(p, q) - H(p, p)", "H(p, q) > H(p, p)", "H(p, p') - H(p, p)", "H(p, p') > H(p, p)")
    return AtMost(left, right, names=names)
