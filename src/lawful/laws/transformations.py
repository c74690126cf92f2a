"""Equivariance and invariance under permutations, reversals, translations and any group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from lawful.laws._helpers import axis_size, require_axis, require_real, transform_along
from lawful.laws.interfaces import Draw, Map, RejectCase
from lawful.laws.law import Axis, Inapplicable, law
from lawful.laws.statements import Equal, Statement, between


def _several_positions(xs: tuple[Tensor, ...], axis: int) -> int:
    """Returns the size of the axis; rejects cases with a single position."""
    if (n := axis_size(xs[0], axis)) < 2:
        raise RejectCase
    return n


def _permute(f: Map, xs: tuple[Tensor, ...], axis: int, draw: Draw) -> tuple[Tensor, list[Tensor]]:
    order = draw.permutation(_several_positions(xs, axis))
    return order, transform_along(f, xs, axis, lambda x, same: x.index_select(same, order))


@law("f(πx) = π f(x)", eval_if_random=True)
def permutation_equivariance(f: Map, *xs: Tensor, axis: Axis = 1, draw: Draw) -> Statement:
    """Permuting the input along an axis permutes the output.

    Satisfied by: self-attention without positions or mask; a layer applied to each token.
    Broken by: a position embedding; a recurrence; a causal mask.
    """
    order, permuted = _permute(f, xs, axis, draw)
    return Equal(f(*permuted), require_axis(f(*xs), xs[0], axis).index_select(axis, order))


@law("f(πx) = f(x)", eval_if_random=True)
def permutation_invariance(f: Map, *xs: Tensor, axis: Axis = 1, draw: Draw) -> Statement:
    """Permuting the input along an axis changes nothing.

    Satisfied by: sum, mean and maximum over the axis; attention pooling.
    Broken by: taking the last element; a weighted sum whose weights depend on the position.
    """
    return Equal(f(*_permute(f, xs, axis, draw)[1]), f(*xs))


@law("f(x reversed) = f(x) reversed", eval_if_random=True)
def reversal_equivariance(f: Map, *xs: Tensor, axis: Axis = 1) -> Statement:
    """Reversing the input along an axis reverses the output.

    Satisfied by: any permutation-equivariant map; a convolution with a symmetric kernel.
    Broken by: a recurrence; a causal mask.
    """
    _several_positions(xs, axis)
    flipped = transform_along(f, xs, axis, Tensor.flip)
    return Equal(f(*flipped), require_axis(f(*xs), xs[0], axis).flip(axis))


@law("f(x reversed) = f(x)", eval_if_random=True)
def reversal_invariance(f: Map, *xs: Tensor, axis: Axis = 1) -> Statement:
    """Reversing the input along an axis changes nothing.

    Satisfied by: any permutation-invariant map; a sum with symmetric weights.
    Broken by: taking the last element; a recurrence.
    """
    _several_positions(xs, axis)
    return Equal(f(*transform_along(f, xs, axis, Tensor.flip)), f(*xs))


@law("f(T_s x) = T_s f(x)", eval_if_random=True, discover_with=[{"border": b} for b in (0, 1, 2, 4)])
def translation_equivariance(f: Map, *xs: Tensor, axis: Axis = -1, border: int = 0, draw: Draw) -> Statement:
    """Shifting the input along an axis shifts the output.

    With `border=0` the shift is circular and all positions are compared. Otherwise positions closer than `border` to
    either end are not compared.

    Satisfied by: a convolution with circular padding, or with zero padding and a border of the padding size.
    Broken by: a position embedding; a stride; a border smaller than half the kernel.
    """
    if border < 0:
        raise ValueError(f"border must be at least 0, got {border}")
    n = axis_size(xs[0], axis)
    s = draw.integer(1, n - 1 if border == 0 else n - 2 * border - 1, "s")
    moved = f(*transform_along(f, xs, axis, lambda x, same: x.roll(s, dims=same)))
    y = require_axis(f(*xs), xs[0], axis).roll(s, dims=axis)
    return Equal(moved, y, where=between(s + border, n - border, axis=axis) if border else None)


@law("f(T_s x) = f(x)", eval_if_random=True)
def translation_invariance(f: Map, *xs: Tensor, axis: Axis = -1, draw: Draw) -> Statement:
    """Shifting the input circularly along an axis changes nothing.

    Satisfied by: any permutation-invariant map; circular convolutions and the mean of their output.
    Broken by: a linear layer on all positions; a position embedding.
    """
    s = draw.integer(1, _several_positions(xs, axis) - 1, "s")
    return Equal(f(*transform_along(f, xs, axis, lambda x, same: x.roll(s, dims=same))), f(*xs))


_Sample = Callable[[Draw], Any]
_Action = Callable[[Any, Tensor], Tensor]


class SupportsAction(Protocol):
    """A group with random elements and an action on vectors, such as `lawful.groups.SO3()`."""

    def sample(self, *, generator: torch.Generator | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """Draws an element."""
        ...

    def act(self, g: Tensor, x: Tensor) -> Tensor:
        """Applies an element to the vectors in the last axis of x."""
        ...


def _identity(g: Any, y: Tensor) -> Tensor:
    return y


def _group_action(
    group: SupportsAction | None, axis: int, sample: _Sample | None, act: _Action | tuple[_Action, ...] | None
) -> tuple[_Sample, _Action | tuple[_Action, ...]]:
    """Returns `sample` and `act`, which default to the group's sampler and its action along an axis.

    A Lie group element is drawn in float64 in every precision, so that both precisions use the same element.
    """
    if group is None:
        if sample is None or act is None:
            raise ValueError("expected group=, or both sample= and act=")
        return sample, act
    if not hasattr(group, "sample") or not hasattr(group, "act"):
        raise ValueError(f"group must have methods sample and act, got {type(group).__name__}")
    dtype = torch.float64 if hasattr(group, "exp") else None

    def sample_element(draw: Draw) -> Tensor:
        g = group.sample(generator=torch.Generator().manual_seed(draw.integer(0, 2**31 - 1)), dtype=dtype)
        if not isinstance(g, Tensor):
            raise ValueError(f"group must have tensors as elements, got {group!r}: check its factors one by one")
        return g

    def act_on_axis(g: Tensor, x: Tensor) -> Tensor:
        dtype = x.dtype.to_complex() if g.is_complex() else x.dtype if g.is_floating_point() else g.dtype
        return group.act(g.to(x.device, dtype), x.movedim(axis, -1)).movedim(-1, axis)

    return sample or sample_element, act or act_on_axis


@law("f(g·x) = g·f(x)", eval_if_random=True, discover_with=None)
def equivariance(
    f: Map,
    *xs: Tensor,
    group: SupportsAction | None = None,
    axis: int = -1,
    sample: _Sample | None = None,
    act: _Action | tuple[_Action, ...] | None = None,
    act_out: _Action | None = None,
    error: Callable[[Any], float] | None = None,
    draw: Draw,
) -> Statement:
    """Transforming the input by a group element transforms the output.

    `group`, such as `lawful.groups.SO3()`, acts on the vectors along `axis`. For other actions, `sample(draw)` returns
    an element, `act(g, x)` acts on the inputs (a tuple holds one action per input) and `act_out(g, y)` acts on the
    output; it defaults to the action on the first input. For an approximate action, such as the rotation of an image
    by 30 degrees, `error(g)` is the allowed error relative to the largest output, and 0 for exact elements.

    Satisfied by: layers built from invariant distances and relative vectors.
    Broken by: a layer that reads an absolute coordinate; features and coordinates in the wrong order.
    """
    sample, act = _group_action(group, axis, sample, act)
    g = sample(draw)
    acts = _one_action_per_input(act, xs)
    expected = (act_out or acts[0])(g, f(*xs))
    transformed = f(*(one(g, x) for one, x in zip(acts, xs, strict=True)))
    return Equal(transformed, expected, atol=_tolerance(error, g, expected))


@law("f(g·x) = f(x)", eval_if_random=True, discover_with=None)
def invariance(
    f: Map,
    *xs: Tensor,
    group: SupportsAction | None = None,
    axis: int = -1,
    sample: _Sample | None = None,
    act: _Action | tuple[_Action, ...] | None = None,
    error: Callable[[Any], float] | None = None,
    draw: Draw,
) -> Statement:
    """Transforming the input by a group element changes nothing.

    The parameters are the same as in `equivariance`.

    Satisfied by: functions of distances and angles; an average over the group.
    Broken by: a projection onto a fixed axis; a readout of a single coordinate.
    """
    sample, act = _group_action(group, axis, sample, act)
    g = sample(draw)
    y = f(*xs)
    transformed = f(*(one(g, x) for one, x in zip(_one_action_per_input(act, xs), xs, strict=True)))
    return Equal(transformed, y, atol=_tolerance(error, g, y))


def _one_action_per_input(act: _Action | tuple[_Action, ...], xs: tuple[Tensor, ...]) -> tuple[_Action, ...]:
    acts = act if isinstance(act, tuple) else (act,) * len(xs)
    if len(acts) != len(xs):
        raise ValueError(f"act needs one action per input: got {len(acts)} for {len(xs)} inputs")
    return acts


def _tolerance(error: Callable[[Any], float] | None, g: Any, y: Tensor) -> Tensor | float:
    return 0.0 if error is None or not y.numel() else error(g) * y.abs().amax()


@law("Df(g·x)ᵀ(g·c) = g·Df(x)ᵀ c, g orthogonal", eval_if_random=True, discover_with=None)
def gradient_equivariance(
    f: Map,
    x: Tensor,
    *,
    group: SupportsAction | None = None,
    axis: int = -1,
    sample: _Sample | None = None,
    act: _Action | None = None,
    act_out: _Action = _identity,
    draw: Draw,
) -> Statement:
    """The gradient transforms like the input, as forces do for an energy.

    The parameters are the same as in `equivariance`; the action must be orthogonal. The output is invariant unless
    `act_out` is given.

    Satisfied by: the gradient of an energy that depends on distances.
    Broken by: an energy that is invariant, with a gradient that is detached from some of the input.
    """
    sample, action = _group_action(group, axis, sample, act)
    g, (act,) = sample(draw), _one_action_per_input(action, (x,))

    def input_gradient(z: Tensor, cotangent: Callable[[Tensor], Tensor]) -> Tensor:
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            y = f(z)
            if not y.requires_grad:
                raise Inapplicable("the output does not require a gradient")
            return torch.autograd.grad(y, z, cotangent(y).clone())[0]

    cotangents: list[Tensor] = []

    def draw_cotangent(y: Tensor) -> Tensor:
        cotangents.append(draw.normal(*y.shape))
        return cotangents[0]

    expected = act(g, input_gradient(require_real(x), draw_cotangent))
    return Equal(input_gradient(act(g, x), lambda y: act_out(g, cotangents[0])), expected)
