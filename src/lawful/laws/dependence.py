"""Which inputs an output may depend on: its own sample, the past, a neighbourhood."""

from __future__ import annotations

from torch import Tensor

from lawful.laws.language import Axis, Draw, Map, Same, Statement, at, index_along, law, up_to
from lawful.laws.language.axes import along, length


@law("f(x)[i] does not depend on x[j], j ≠ i")
def batch_independence(f: Map, *xs: Tensor, batch: Axis = 0, draw: Draw) -> Statement:
    """The output of a sample does not depend on the other samples of its batch.

    Kept by: layer norm, attention within a sequence, a batch norm in evaluation.
    Broken by: a batch norm in training; a reshape that mixes samples; a maximum over the whole batch.
    """
    i = draw.integer(0, length(xs[0], batch, "batch") - 1, "i")
    mates = [draw.replace(x, lambda z: index_along(z, batch) != i) for x in xs]
    return Same(along(f(*xs), xs[0], batch, "batch"), f(*mates), where=at(i, axis=batch), exact=True)


@law("f(x)[≤ t] does not depend on x[> t]")
def causality(f: Map, *xs: Tensor, time: Axis = 1, draw: Draw) -> Statement:
    """An output never depends on inputs that come later.

    Kept by: masked self-attention, a recurrence, a causal convolution.
    Broken by: attention without a mask; a norm whose statistics run over time; top-k over the sequence.
    """
    t = draw.integer(0, length(xs[0], time, "time") - 2, "t")
    changed = [draw.replace(x, lambda z: index_along(z, time) > t) for x in xs]
    return Same(along(f(*xs), xs[0], time, "time"), f(*changed), where=up_to(t, axis=time), exact=True)


@law("f(x)[i] does not depend on x[j], |i - j| > r")
def locality(f: Map, *xs: Tensor, radius: int, axis: Axis = 1, draw: Draw) -> Statement:
    """An output depends only on inputs at most `radius` positions away.

    Kept by: a convolution with 2r + 1 taps; attention within a window.
    Broken by: one tap too many; a window that lets the first position through; any pooling over the axis.
    """
    if radius < 0:
        raise ValueError(f"radius is at least 0: got {radius}")
    i = draw.integer(0, length(xs[0], axis) - 1, "i")
    changed = [draw.replace(x, lambda z: (index_along(z, axis) - i).abs() > radius) for x in xs]
    return Same(along(f(*xs), xs[0], axis), f(*changed), where=at(i, axis=axis), exact=True)
