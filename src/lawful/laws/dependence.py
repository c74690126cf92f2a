"""Which inputs an output may depend on: its own sample, the past, a neighbourhood."""

from __future__ import annotations

import torch
from torch import Tensor

from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Axis, Inapplicable, along, law, length
from lawful.laws.statements import Equal, Occurs, Statement, at, index_along, up_to


@law("f(x)[i] does not depend on x[j], j ≠ i")
def batch_independence(f: Map, *xs: Tensor, batch: Axis = 0, draw: Draw) -> Statement:
    """The output of a sample does not depend on the other samples of its batch.

    Satisfied by: layer norm, attention within a sequence, a batch norm in evaluation.
    Broken by: a batch norm in training; a reshape that mixes samples; a maximum over the whole batch.
    """
    i = draw.integer(0, length(xs[0], batch, "batch") - 1, "i")
    mates = [draw.replace(x, lambda z: index_along(z, batch) != i) for x in xs]
    return Equal(along(f(*xs), xs[0], batch, "batch"), f(*mates), where=at(i, axis=batch), exact=True)


@law("f(x)[≤ t] does not depend on x[> t]")
def causality(f: Map, *xs: Tensor, time: Axis = 1, draw: Draw) -> Statement:
    """An output never depends on inputs that come later.

    Satisfied by: masked self-attention, a recurrence, a causal convolution.
    Broken by: attention without a mask; a norm whose statistics run over time; top-k over the sequence.
    """
    t = draw.integer(0, length(xs[0], time, "time") - 2, "t")
    changed = [draw.replace(x, lambda z: index_along(z, time) > t) for x in xs]
    return Equal(along(f(*xs), xs[0], time, "time"), f(*changed), where=up_to(t, axis=time), exact=True)


@law("f(x)[i] does not depend on x[j], |i - j| > r", discover_with=[{"radius": r} for r in (0, 1, 2, 4)])
def locality(f: Map, *xs: Tensor, radius: int, axis: Axis = 1, draw: Draw) -> Statement:
    """An output depends only on inputs at most `radius` positions away.

    Satisfied by: a convolution with 2r + 1 taps; attention within a window.
    Broken by: one tap too many; a window that lets the first position through; any pooling over the axis.
    """
    if radius < 0:
        raise ValueError(f"radius is at least 0: got {radius}")
    i = draw.integer(0, length(xs[0], axis) - 1, "i")
    changed = [draw.replace(x, lambda z: (index_along(z, axis) - i).abs() > radius) for x in xs]
    return Equal(along(f(*xs), xs[0], axis), f(*changed), where=at(i, axis=axis), exact=True)


@law("every input x_k changes f(x) at some x", every_input=True)
def every_input_matters(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """No input is ignored: for each there is a case in which another value of it gives another output.

    Satisfied by: attention that looks at its mask.
    Broken by: an argument that is taken and dropped on the way.
    """
    y = f(*xs)
    changed = [f(*xs[:n], draw.like(x), *xs[n + 1 :]) for n, x in enumerate(xs)]
    return Occurs([f"input {n}" for n in range(len(xs))], [_apart(y, z) for z in changed])


def _apart(y: Tensor, z: Tensor) -> bool:
    """Whether two outputs differ by more than rounding could."""
    if y.shape != z.shape:
        return True
    y, z = y.detach().double(), z.detach().double()
    return bool(((y - z).abs() > 1e-4 * torch.maximum(y.abs(), z.abs()).amax()).any()) if y.numel() else False


def _positions(xs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Tensor]:
    if len(xs) < 2 or xs[-1].dtype is torch.bool or xs[-1].is_floating_point():
        raise Inapplicable("the last input is to be the positions, which are whole numbers: got none")
    return xs[:-1], xs[-1]


@law("f(x, p + s) = f(x, p)", every_input=True)
def relative_position_only(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Moving all positions by one number changes nothing: only their differences count.

    The last input is the positions.

    Satisfied by: attention scores with rotary embeddings or relative biases.
    Broken by: an absolute embedding; rotary embeddings in two layouts that are mixed.
    """
    others, p = _positions(xs)
    s = draw.integer(1, 64, "s")
    return Equal(f(*others, p + s), f(*others, p))


@law("f(x, p) ≠ f(x, p') for some p, p'", every_input=True)
def positions_matter(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """The positions, which are the last input, have an effect.

    Satisfied by: any embedding of positions.
    Broken by: rotary embeddings over the head axis, which cancel; positions that are taken and dropped.
    """
    others, p = _positions(xs)
    return Occurs(["the positions"], [_apart(f(*others, p), f(*others, draw.like(p)))])


@law("f(x, n)[i] = f(x[i, : n_i], n_i)")
def ragged_batches(f: Map, x: Tensor, mask: Tensor, *, time: Axis = 1, keep: bool = True, draw: Draw) -> Statement:
    """A sample of a batch of unequal lengths comes out as it does alone, at its own length.

    The second input is a mask of shape (b, t), of which only the lengths count, or the lengths, of shape (b,).

    Satisfied by: attention under a key mask; a recurrence over packed sequences; a mean over what is there.
    Broken by: a mean over the padded length; positions counted from the end of the padding.
    """
    t, b = length(x, time, "time"), x.shape[0]
    if mask.dim() == 1 and not mask.is_floating_point() and mask.dtype is not torch.bool:
        lengths = there = mask.clamp(1, t)
    elif mask.dtype is torch.bool and tuple(mask.shape) == (b, t):
        lengths = (mask == keep).sum(1).clamp_min(1)
        there = (index_along(mask, 1) < lengths[:, None]) == keep
    else:
        raise Inapplicable(
            f"a mask of shape {(b, t)} or lengths of shape {(b,)} were wanted: got {mask.dtype} {tuple(mask.shape)}"
        )
    i = draw.integer(0, b - 1, "i")
    n = int(lengths[i])
    alone = x[i : i + 1].narrow(time, 0, n)
    together = f(x, there)[i : i + 1]
    single = f(alone, there[i : i + 1] if there.dim() == 1 else there[i : i + 1, :n])
    runs = -together.dim() <= time < together.dim() and (together.shape[time], single.shape[time]) == (t, n)
    return Equal(together.narrow(time, 0, n) if runs else together, single)
