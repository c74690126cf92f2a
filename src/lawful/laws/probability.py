"""What makes numbers probabilities: they add up, none is negative, and divergences between them behave."""

from __future__ import annotations

import torch
from torch import Tensor

from lawful.laws.language import AtMost, Axis, Map, Same, Statement, law


@law("Σ_i f(x)_i = 1")
def sums_to_one(f: Map, *xs: Tensor, axis: Axis = -1) -> Statement:
    """The outputs along an axis add up to one.

    Kept by: softmax over the axis; attention weights over the keys.
    Broken by: softmax over another axis; dropout on the weights; a sigmoid.
    """
    y = f(*xs)
    if not -y.dim() <= axis < y.dim():
        raise ValueError(f"axis={axis} is out of range: the output has shape {tuple(y.shape)}")
    total = y.sum(axis)
    return Same(total, torch.ones_like(total), exercised=True)


@law("f(x) ≥ 0")
def non_negativity(f: Map, *xs: Tensor) -> Statement:
    """No output is negative.

    Kept by: softmax, ReLU, a divergence, a norm.
    Broken by: a divergence with its terms swapped; a difference of rounded squares.
    """
    y = f(*xs)
    return AtMost(torch.zeros_like(y), y)


@law("D(p, q) ≥ 0, D(p, q) = 0 ⇔ p = q")
def divergence(f: Map, p: Tensor, q: Tensor) -> Statement:
    """A divergence is not negative, zero between equal distributions, and zero only there.

    The map takes two tensors of probabilities and gives one number, or one for each row. Rows that are close to
    each other are outside the domain of the last part.

    Kept by: the Kullback-Leibler and Jensen-Shannon divergences, total variation.
    Broken by: terms that are swapped; a cross-entropy; an average over entries of a clamped logarithm.
    """
    apart, same = f(p, q), f(p, p)
    positive, one = _positive(apart, p, q)
    left = (torch.zeros_like(apart), same.abs(), one)
    return AtMost(left, (apart, torch.zeros_like(same), positive), names=("D(p, q)", "D(p, p)", "D(p, q) > 0"))


def _positive(apart: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """1 where a number is positive, or need not be since p and q are close; and ones."""
    axes = tuple(range(apart.dim(), p.dim()))
    gap = (p - q).abs()
    far = (gap.amax(axes) if axes else gap.reshape(apart.shape)) > 1e-3
    positive = torch.where(far, (apart > 0).double(), 1.0)
    return positive, torch.ones_like(positive)


@law("H(p, p) ≤ H(p, q), with equality only at p = q")
def gibbs_inequality(f: Map, p: Tensor, q: Tensor) -> Statement:
    """Among all predictions q, a cross-entropy is smallest at the truth p, and only there.

    The map takes two tensors of probabilities, as for `divergence`.

    Kept by: cross-entropy, the Kullback-Leibler divergence, the squared error between probabilities.
    Broken by: the arguments swapped; a label smoothing that is applied to one side only.
    """
    more = f(p, q) - f(p, p)
    positive, one = _positive(more, p, q)
    return AtMost((torch.zeros_like(more), one), (more, positive), names=("H(p, q) - H(p, p)", "strictly"))
