"""Transformations that the map respects: permutations, translations, any group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from lawful.laws.language import Axis, Discard, Draw, Map, Same, Statement, between, law
from lawful.laws.language.axes import along, length


def _permuted(xs: tuple[Tensor, ...], axis: int, draw: Draw) -> tuple[Tensor, list[Tensor]]:
    if (n := length(xs[0], axis)) < 2:
        raise Discard
    order = draw.permutation(n)
    return order, [x.index_select(axis, order) for x in xs]


@law("f(πx) = π f(x)")
def permutation_equivariance(f: Map, *xs: Tensor, axis: Axis = 1, draw: Draw) -> Statement:
    """Permuting the input along an axis permutes the output.

    Kept by: self-attention without positions or mask; a layer applied to each token.
    Broken by: a position embedding; a recurrence; a causal mask.
    """
    order, permuted = _permuted(xs, axis, draw)
    return Same(f(*permuted), along(f(*xs), xs[0], axis).index_select(axis, order))


@law("f(πx) = f(x)")
def permutation_invariance(f: Map, *xs: Tensor, axis: Axis = 1, draw: Draw) -> Statement:
    """Permuting the input along an axis changes nothing.

    Kept by: sum, mean and maximum over the axis; attention pooling.
    Broken by: taking the last element; a weighted sum whose weights depend on the position.
    """
    return Same(f(*_permuted(xs, axis, draw)[1]), f(*xs))


@law("f(T_s x) = T_s f(x)")
def translation_equivariance(f: Map, *xs: Tensor, axis: Axis = -1, border: int = 0, draw: Draw) -> Statement:
    """Shifting the input along an axis shifts the output.

    With `border=0` the shift is circular and every position counts; otherwise positions closer than `border`
    to either end of what was shifted do not.

    Kept by: a convolution (with circular padding; with zero padding and the border that its padding reaches).
    Broken by: a position embedding; a stride; a border that is smaller than the receptive field.
    """
    if border < 0:
        raise ValueError(f"border is at least 0: got {border}")
    n = length(xs[0], axis)
    s = draw.integer(1, n - 1 if border == 0 else n - 2 * border - 1, "s")
    moved = f(*(x.roll(s, dims=axis) for x in xs))
    y = along(f(*xs), xs[0], axis).roll(s, dims=axis)
    return Same(moved, y, where=between(s + border, n - border, axis=axis) if border else None)


@law("f(g·x) = g·f(x)")
def equivariance(
    f: Map,
    *xs: Tensor,
    sample: Callable[[Draw], Any],
    act: Callable[[Any, Tensor], Tensor],
    act_out: Callable[[Any, Tensor], Tensor] | None = None,
    draw: Draw,
) -> Statement:
    """Acting on the input with a group element acts on the output.

    `sample(draw)` gives an element, `act(g, x)` acts on the inputs that the law speaks of, and `act_out(g, y)`
    on the output (as on the input unless given).

    Kept by: layers built from invariant distances and relative vectors.
    Broken by: a layer fed an absolute coordinate; features and coordinates in the wrong order.
    """
    g = sample(draw)
    return Same(f(*(act(g, x) for x in xs)), (act_out or act)(g, f(*xs)))


@law("f(g·x) = f(x)")
def invariance(
    f: Map,
    *xs: Tensor,
    sample: Callable[[Draw], Any],
    act: Callable[[Any, Tensor], Tensor],
    draw: Draw,
) -> Statement:
    """Acting on the input with a group element changes nothing.

    Kept by: functions of distances and angles; an average over the group.
    Broken by: a projection onto a fixed axis; a readout that sees a single coordinate.
    """
    g = sample(draw)
    return Same(f(*(act(g, x) for x in xs)), f(*xs))
