"""Transformations that the map respects: permutations, translations, any group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lawful.laws._helpers import axis_size, require_axis, require_real
from lawful.laws.interfaces import Draw, Map, RejectCase
from lawful.laws.law import Axis, Inapplicable, law
from lawful.laws.statements import Equal, Statement, between


def _several(xs: tuple[Tensor, ...], axis: int) -> int:
    """The size of the axis; a case with one position says nothing."""
    if (n := axis_size(xs[0], axis)) < 2:
        raise RejectCase
    return n


def _permuted(xs: tuple[Tensor, ...], axis: int, draw: Draw) -> tuple[Tensor, list[Tensor]]:
    order = draw.permutation(_several(xs, axis))
    return order, [x.index_select(axis, order) for x in xs]


@law("f(πx) = π f(x)")
def permutation_equivariance(f: Map, *xs: Tensor, axis: Axis = 1, draw: Draw) -> Statement:
    """Permuting the input along an axis permutes the output.

    Satisfied by: self-attention without positions or mask; a layer applied to each token.
    Broken by: a position embedding; a recurrence; a causal mask.
    """
    order, permuted = _permuted(xs, axis, draw)
    return Equal(f(*permuted), require_axis(f(*xs), xs[0], axis).index_select(axis, order))


@law("f(πx) = f(x)")
def permutation_invariance(f: Map, *xs: Tensor, axis: Axis = 1, draw: Draw) -> Statement:
    """Permuting the input along an axis changes nothing.

    Satisfied by: sum, mean and maximum over the axis; attention pooling.
    Broken by: taking the last element; a weighted sum whose weights depend on the position.
    """
    return Equal(f(*_permuted(xs, axis, draw)[1]), f(*xs))


@law("f(x reversed) = f(x) reversed")
def reversal_equivariance(f: Map, *xs: Tensor, axis: Axis = 1) -> Statement:
    """Reversing the input along an axis reverses the output.

    Satisfied by: whatever is equivariant under all permutations; a convolution with a symmetric kernel.
    Broken by: a recurrence; a causal mask.
    """
    _several(xs, axis)
    return Equal(f(*(x.flip(axis) for x in xs)), require_axis(f(*xs), xs[0], axis).flip(axis))


@law("f(x reversed) = f(x)")
def reversal_invariance(f: Map, *xs: Tensor, axis: Axis = 1) -> Statement:
    """Reversing the input along an axis changes nothing.

    Satisfied by: whatever is invariant under all permutations; a palindrome's sum.
    Broken by: taking the last element; a recurrence.
    """
    _several(xs, axis)
    return Equal(f(*(x.flip(axis) for x in xs)), f(*xs))


@law("f(T_s x) = T_s f(x)", discover_with=[{"border": b} for b in (0, 1, 2, 4)])
def translation_equivariance(f: Map, *xs: Tensor, axis: Axis = -1, border: int = 0, draw: Draw) -> Statement:
    """Shifting the input along an axis shifts the output.

    With `border=0` the shift is circular and every position counts; otherwise positions closer than `border`
    to either end of what was shifted do not.

    Satisfied by: a convolution (with circular padding; with zero padding and the border that its padding reaches).
    Broken by: a position embedding; a stride; a border that is smaller than the receptive field.
    """
    if border < 0:
        raise ValueError(f"border is at least 0: got {border}")
    n = axis_size(xs[0], axis)
    s = draw.integer(1, n - 1 if border == 0 else n - 2 * border - 1, "s")
    moved = f(*(x.roll(s, dims=axis) for x in xs))
    y = require_axis(f(*xs), xs[0], axis).roll(s, dims=axis)
    return Equal(moved, y, where=between(s + border, n - border, axis=axis) if border else None)


Sample = Callable[[Draw], Any]
Action = Callable[[Any, Tensor], Tensor]


def _identity(g: Any, y: Tensor) -> Tensor:
    return y


@law("f(g·x) = g·f(x)", discover_with=None)
def equivariance(
    f: Map,
    *xs: Tensor,
    sample: Sample,
    act: Action | tuple[Action, ...],
    act_out: Action | None = None,
    error: Callable[[Any], float] | None = None,
    draw: Draw,
) -> Statement:
    """Acting on the input with a group element acts on the output.

    `sample(draw)` gives an element, `act(g, x)` acts on the inputs that the law speaks of (a tuple of actions: one
    for each), and `act_out(g, y)` on the output (as on the first input unless given). Where the action itself is
    approximate for some elements, as when an image is turned by other than right angles, `error(g)` is the part of
    the output's size that it may be off by: 0 for the elements that are exact.

    Satisfied by: layers built from invariant distances and relative vectors.
    Broken by: a layer fed an absolute coordinate; features and coordinates in the wrong order.
    """
    g = sample(draw)
    acts = _each(act, xs)
    acted = (act_out or acts[0])(g, f(*xs))
    moved = f(*(one(g, x) for one, x in zip(acts, xs, strict=True)))
    return Equal(moved, acted, atol=_slack(error, g, acted))


@law("f(g·x) = f(x)", discover_with=None)
def invariance(
    f: Map,
    *xs: Tensor,
    sample: Sample,
    act: Action | tuple[Action, ...],
    error: Callable[[Any], float] | None = None,
    draw: Draw,
) -> Statement:
    """Acting on the input with a group element changes nothing.

    `sample`, `act` and `error` are as in `equivariance`.

    Satisfied by: functions of distances and angles; an average over the group.
    Broken by: a projection onto a fixed axis; a readout that sees a single coordinate.
    """
    g = sample(draw)
    y = f(*xs)
    moved = f(*(one(g, x) for one, x in zip(_each(act, xs), xs, strict=True)))
    return Equal(moved, y, atol=_slack(error, g, y))


def _each(act: Action | tuple[Action, ...], xs: tuple[Tensor, ...]) -> tuple[Action, ...]:
    """An action for each input."""
    acts = act if isinstance(act, tuple) else (act,) * len(xs)
    if len(acts) != len(xs):
        raise ValueError(f"as many actions as inputs were wanted: got {len(acts)} for {len(xs)}")
    return acts


def _slack(error: Callable[[Any], float] | None, g: Any, y: Tensor) -> Tensor | float:
    return 0.0 if error is None or not y.numel() else error(g) * y.abs().amax()


@law("Df(g·x)ᵀ(g·c) = g·Df(x)ᵀ c, g orthogonal", discover_with=None)
def gradient_equivariance(
    f: Map, x: Tensor, *, sample: Sample, act: Action, act_out: Action = _identity, draw: Draw
) -> Statement:
    """The gradient turns with the input, as forces do with an energy.

    `sample` and `act` are as in `equivariance`; the actions are orthogonal. The output does not change unless
    `act_out` is given.

    Satisfied by: the gradient of an energy that depends on distances.
    Broken by: an energy whose value is invariant but whose gradient is detached from some of the input.
    """
    g = sample(draw)

    def pulled(z: Tensor, cotangent: Callable[[Tensor], Tensor]) -> Tensor:
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            y = f(z)
            if not y.requires_grad:
                raise Inapplicable("the map passes no gradient")
            return torch.autograd.grad(y, z, cotangent(y).clone())[0]

    drawn: list[Tensor] = []

    def keep(y: Tensor) -> Tensor:
        drawn.append(draw.normal(*y.shape))
        return drawn[0]

    right = act(g, pulled(require_real(x), keep))
    return Equal(pulled(act(g, x), lambda y: act_out(g, drawn[0])), right)
