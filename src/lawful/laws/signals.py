"""Signals: filters that do not depend on the time, and on the sampling rate only as a filter should."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from lawful.laws._helpers import axis_size, require_axis, require_real
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Axis, law
from lawful.laws.statements import AtMost, Equal, Statement


@law("f(0, ..., 0, x) = 0, ..., 0, f(x) after the zeros", eval_if_random=True, discover_with=None)
def time_invariance(f: Map, x: Tensor, *, time: Axis = 1, draw: Draw) -> Statement:
    """Delaying the input by some zeros delays the output.

    Satisfied by: a causal convolution; a state-space model whose matrices are constant.
    Broken by: a position embedding; a bias before the state, so that zeros change the state (Mamba's convolution).
    """
    n = axis_size(x, time, "time")
    s = draw.integer(1, n, "delay")
    delayed = torch.cat([torch.zeros_like(x.narrow(time, 0, s)), x], dim=time)
    return Equal(f(delayed).narrow(time, s, n), require_axis(f(x), x, time, "time"))


@law("|f(x at half of the samples, rate=2) - f(x) there| <= bound |f(x)|", eval_if_random=True, discover_with=None)
def resampling(
    f: Map, x: Tensor, *, bound: float = 0.01, periods: int = 8, samples: int = 512, time: Axis = 1
) -> Statement:
    """Halving the sampling rate of a band-limited signal, with `rate=2`, hardly changes the output.

    The signal is smooth: its first entries along the time axis are the amplitudes of `periods` sine waves, sampled
    `samples` times. `bound` is relative to the norm of the output.

    Satisfied by: a state-space layer whose recurrence and convolution use `rate` times the learned step.
    Broken by: a step that ignores `rate`; a recurrence over samples instead of time.
    """
    n = min(axis_size(require_real(x), time, "time"), periods)
    times = torch.arange(samples, dtype=x.dtype, device=x.device) / samples
    angles = 2 * torch.pi * times.unsqueeze(-1) * torch.arange(1, n + 1, dtype=x.dtype, device=x.device)
    signal = torch.tensordot(x.narrow(time, 0, n).movedim(time, -1), angles.sin(), dims=([-1], [1])).movedim(-1, time)
    every_other = torch.arange(1, samples, 2, device=x.device)
    y = require_axis(f(signal), signal, time, "time").index_select(time, every_other)
    half = f.with_function(partial(f.target, rate=2.0))(signal.index_select(time, every_other))
    return AtMost(torch.linalg.vector_norm(half - y), bound * torch.linalg.vector_norm(y))
