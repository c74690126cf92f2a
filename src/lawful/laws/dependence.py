"""Dependence: which inputs an output may depend on, and which it must depend on."""

from __future__ import annotations

import torch
from torch import Tensor

from lawful.laws._helpers import axis_size, replace_along, require_axis
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Axis, Inapplicable, law
from lawful.laws.statements import Equal, Occurs, Statement, at, index_along, up_to


@law("f(x)[i] does not depend on x[j], j ≠ i")
def batch_independence(f: Map, *xs: Tensor, batch: Axis = 0, draw: Draw) -> Statement:
    """The output of a sample does not depend on the other samples in the batch.

    Satisfied by: layer norm, attention within a sequence, batch norm in eval mode.
    Broken by: batch norm in training mode; a reshape that mixes samples; a maximum over the whole batch.
    """
    i = draw.integer(0, axis_size(xs[0], batch, "batch") - 1, "i")
    changed = replace_along(f, xs, batch, lambda n: n != i, draw)
    return Equal(require_axis(f(*xs), xs[0], batch, "batch"), f(*changed), where=at(i, axis=batch), exact=True)


@law("f(x)[≤ t] does not depend on x[> t]")
def causality(f: Map, *xs: Tensor, time: Axis = 1, draw: Draw) -> Statement:
    """An output never depends on later inputs.

    Satisfied by: masked self-attention, a recurrence, a causal convolution.
    Broken by: attention without a mask; a norm whose statistics run over time; top-k over the sequence.
    """
    t = draw.integer(0, axis_size(xs[0], time, "time") - 2, "t")
    changed = replace_along(f, xs, time, lambda n: n > t, draw)
    return Equal(require_axis(f(*xs), xs[0], time, "time"), f(*changed), where=up_to(t, axis=time), exact=True)


@law("f(x)[i] does not depend on x[j], |i - j| > r", discover_with=[{"radius": r} for r in (0, 1, 2, 4)])
def locality(f: Map, *xs: Tensor, radius: int, axis: Axis = 1, draw: Draw) -> Statement:
    """An output depends only on inputs at most `radius` positions away.

    Satisfied by: a convolution with kernel size 2r + 1; attention within a window.
    Broken by: a kernel that is one too large; a window that lets the first position through; pooling over the axis.
    """
    if radius < 0:
        raise ValueError(f"radius must be at least 0, got {radius}")
    i = draw.integer(0, axis_size(xs[0], axis) - 1, "i")
    changed = replace_along(f, xs, axis, lambda n: (n - i).abs() > radius, draw)
    return Equal(require_axis(f(*xs), xs[0], axis), f(*changed), where=at(i, axis=axis), exact=True)


@law("every input x_k changes f(x) at some x", every_input=True)
def every_input_matters(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Every input has an effect: in some case, changing it changes the output.

    Satisfied by: attention that uses its mask.
    Broken by: an argument that is accepted and ignored.
    """
    y = f(*xs)
    changed = [f(*xs[:n], draw.like(x), *xs[n + 1 :]) for n, x in enumerate(xs)]
    return Occurs([f"effect of input {n}" for n in range(len(xs))], [_differ(y, z) for z in changed])


def _differ(y: Tensor, z: Tensor) -> bool:
    """Returns whether two outputs differ by more than rounding."""
    if y.shape != z.shape:
        return True
    y, z = y.detach().double(), z.detach().double()
    return bool(((y - z).abs() > 1e-4 * torch.maximum(y.abs(), z.abs()).amax()).any()) if y.numel() else False


def _split_positions(xs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Tensor]:
    if len(xs) < 2 or xs[-1].dtype is torch.bool or xs[-1].is_floating_point():
        raise Inapplicable("expected integer positions as the last input")
    return xs[:-1], xs[-1]


@law("f(x, p + s) = f(x, p)", every_input=True)
def relative_position_only(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Adding a constant to all positions changes nothing: only differences of positions matter.

    The last input holds the positions.

    Satisfied by: attention scores with rotary embeddings or relative biases.
    Broken by: absolute position embeddings; two rotary layouts mixed.
    """
    others, p = _split_positions(xs)
    s = draw.integer(1, 64, "s")
    return Equal(f(*others, p + s), f(*others, p))


@law("f(x, p) ≠ f(x, p') for some p, p'", every_input=True)
def positions_matter(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """The positions, the last input, have an effect.

    Satisfied by: any position embedding.
    Broken by: rotary embeddings over the head axis, which cancel; positions that are ignored.
    """
    others, p = _split_positions(xs)
    return Occurs(["effect of the positions"], [_differ(f(*others, p), f(*others, draw.like(p)))])


@law("f(x, n)[i] = f(x[i, : n_i], n_i)", eval_if_random=True)
def ragged_batches(f: Map, x: Tensor, mask: Tensor, *, time: Axis = 1, keep: bool = True, draw: Draw) -> Statement:
    """In a padded batch, the output of a sample is the output for that sample alone, without padding.

    The second input holds the lengths, of shape (b,), or a mask of shape (b, t), which is only used for its lengths.

    Satisfied by: attention under a key mask; a recurrence over packed sequences; a mean over valid positions.
    Broken by: a mean over the padded length; positions counted from the end of the padding.
    """
    t, b = axis_size(x, time, "time"), x.shape[0]
    if mask.dim() == 1 and not mask.is_floating_point() and mask.dtype is not torch.bool:
        lengths = valid = mask.clamp(1, t)
    elif mask.dtype is torch.bool and tuple(mask.shape) == (b, t):
        lengths = (mask == keep).sum(1).clamp_min(1)
        valid = (index_along(mask, 1) < lengths[:, None]) == keep
    else:
        raise Inapplicable(
            f"expected a mask of shape {(b, t)} or lengths of shape {(b,)}, got {mask.dtype} {tuple(mask.shape)}"
        )
    i = draw.integer(0, b - 1, "i")
    n = int(lengths[i])
    alone = x[i : i + 1].narrow(time, 0, n)
    batched = f(x, valid)
    if not batched.dim() or batched.shape[0] != b:
        shown = f"expected an output per sample, got shape {tuple(batched.shape)}"
        raise Inapplicable(shown if batched.dim() else f"{shown}: for a loss, check mean_over_samples")
    batched = batched[i : i + 1]
    single = f(alone, valid[i : i + 1] if valid.dim() == 1 else valid[i : i + 1, :n])
    has_time = -batched.dim() <= time < batched.dim() and (batched.shape[time], single.shape[time]) == (t, n)
    return Equal(batched.narrow(time, 0, n) if has_time else batched, single)
