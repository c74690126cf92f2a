r"""Linear recurrence whose weights depend on the time: the scan of Mamba.

The steps are computed one after the other, for all channels and states at once. A chunk of steps at a time is in
memory, small enough for the cache of a processor; there the exponentials, the outer products and the contractions of
all steps of the chunk are one operation each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.linear_system import _contiguous_like, _schema
from lawful.laws import Claim, cached_decoding, causality, shape

_STEP_ELEMENTS, _CHUNK_ELEMENTS, _CHUNK = 2**13, 2**17, 64
"""Largest number of states in a step and in a chunk, where the sizes allow, and of steps in a chunk."""


def selective_scan(
    x: Float[Tensor, "b t d"],
    delta: Float[Tensor, "b t d"],
    a: Float[Tensor, "d n"],
    b: Float[Tensor, "b t n"],
    c: Float[Tensor, "b t n"],
    state: Float[Tensor, "b d n"] | None = None,
) -> tuple[Float[Tensor, "b t d"], Float[Tensor, "b d n"]]:
    r"""Recurrence whose step sizes, input and output weights depend on the time: the scan of Mamba.

    $$s_t = e^{\Delta_t A} s_{t-1} + \Delta_t B_t x_t, \qquad y_t = C_t^\top s_t$$

    The states of one chunk are in memory at a time. The backward pass computes them again. There are no second
    derivatives.

    Reference:
        Gu and Dao, *Mamba: Linear-Time Sequence Modeling with Selective State Spaces*, 2023.

    Args:
        x: Inputs.
        delta: Step sizes $\Delta$, positive.
        a: Diagonal of $A$ of each channel, negative.
        b: Input weights $B$.
        c: Output weights $C$.
        state: State before the inputs. Defaults to zero.

    Returns:
        The outputs, and the state after the last input.

    Examples:
        >>> x, ones = torch.tensor([[[1.0], [0.0], [0.0]]]), torch.ones(1, 3, 1)
        >>> y, state = selective_scan(x, ones, torch.tensor([[-1.0]]), ones, ones)
        >>> y.flatten()
        tensor([1.0000, 0.3679, 0.1353])
    """
    if x.dim() != 3 or x.shape[1] == 0:
        raise ValueError(f"expected x of shape (b, t, d) with at least one time step, got {tuple(x.shape)}")
    state = x.new_zeros(x.shape[0], *a.shape) if state is None else state
    rows, steps, channels, n = *x.shape, a.shape[-1]
    weights, states = (rows, steps, n), (rows, channels, n)
    named = {"delta": (delta, tuple(x.shape)), "a": (a, (channels, n)), "b": (b, weights), "c": (c, weights)}
    for name, (value, expected) in (named | {"state": (state, states)}).items():
        if value.shape != expected:
            raise ValueError(f"expected {name} of shape {expected}, got {tuple(value.shape)}")
    if steps == 1:
        return _one_step(x, delta, a, b, c, state)
    return _selective_scan(x, delta, a, b, c, state)[:2]


def _one_step(x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrence for one step, without the overhead of an operator."""
    delta, x = delta.mT, x.mT
    state = torch.addcmul((delta * x) * b, (delta * a).exp(), state)
    return (state @ c.mT).mT, state


def _block_sizes(x: Float[Tensor, "b t d"], a: Float[Tensor, "d n"]) -> tuple[int, int]:
    """Rows of the batch and steps that are computed together. Sizes may be symbolic in an exported graph."""
    rows = cast(int, torch.sym_max(1, torch.sym_min(x.shape[0], _STEP_ELEMENTS // a.numel())))
    steps = cast(int, torch.sym_max(_CHUNK_ELEMENTS // (rows * a.numel()), 8))
    return rows, cast(int, torch.sym_min(steps, _CHUNK))


def _blocks(length: int, size: int) -> list[slice]:
    return [slice(i, min(i + size, length)) for i in range(0, length, size)]


# An operator of its own: autograd, torch.compile and torch.export would unroll the loop over the steps. Inside, states
# are (steps, rows, n, d): the channels are last, because there are more of them.


@torch.library.custom_op("lawful::selective_scan", mutates_args=(), schema=_schema("x delta a b c state", 3))
def _selective_scan(
    x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, the last state, and the states before each chunk (chunks, b, n, d), flat.

    They are flat because a dimension that may have size 1 would limit the lengths of an exported graph.
    """
    last = _contiguous_like(state)
    num_rows, steps = _block_sizes(x, a)
    firsts = x.new_empty(-(-x.shape[1] // steps), len(x), *a.mT.shape)
    rates, (inputs, *signals) = _rates(a), [_time_first(v) for v in (x, delta, b, c)]
    y, inputs = torch.empty_like(inputs), inputs * signals[0]
    for rows in _blocks(len(x), num_rows):
        before = state[rows].mT
        decays, states = (_new_steps(before, min(steps, x.shape[1])) for _ in range(2))
        for first, part in zip(firsts[:, rows], _blocks(x.shape[1], steps), strict=True):
            first.copy_(before)
            us, deltas, bs, cs = (v[part, rows] for v in (inputs, *signals))
            _, found = _chunk_of_states(us, deltas, bs, rates, first, decays, states)
            y[part, rows] = (cs.unsqueeze(2) @ found).squeeze(2)
            before = found[-1]
        last[rows] = before.mT
    y = y.transpose(0, 1).contiguous()
    return y, last, firsts.flatten()


@_selective_scan.register_fake
def _(x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    _, steps = _block_sizes(x, a)
    chunks = (x.shape[1] + steps - 1) // steps
    return _contiguous_like(x), _contiguous_like(state), state.new_empty(chunks * state.numel())


def _rates(a: Float[Tensor, "d n"]) -> Float[Tensor, "n d"]:
    """Exponents for base 2, whose exponential is several times faster."""
    return (a.mT / math.log(2)).contiguous()


class _Steps(NamedTuple):
    """Values of many steps in one tensor, and a view of each step."""

    whole: Tensor
    each: tuple[Tensor, ...]


def _new_steps(like: Tensor, count: int) -> _Steps:
    whole = like.new_empty(count, *like.shape)
    return _Steps(whole, whole.unbind(0))


def _time_first(x: Float[Tensor, "b t k"]) -> Float[Tensor, "t b k"]:
    return x.transpose(0, 1).contiguous()


def _chunk_of_states(
    inputs: Tensor, delta: Tensor, b: Tensor, rates: Tensor, state: Tensor, decays: _Steps, states: _Steps
) -> tuple[Tensor, Tensor]:
    """Decays and states of a chunk (t, b, n, d), in the given buffers."""
    t = len(inputs)
    torch.mul(delta.unsqueeze(2), rates, out=decays.whole[:t]).exp2_()
    torch.mul(inputs.unsqueeze(2), b.unsqueeze(-1), out=states.whole[:t])
    for after, decay in zip(states.each[:t], decays.each[:t], strict=True):
        state = after.addcmul_(decay, state)
    return decays.whole[:t], states.whole[:t]


@torch.library.custom_op(
    "lawful::selective_scan_backward", mutates_args=(), schema=_schema("gy last x delta a b c firsts", 6)
)
def _selective_scan_backward(
    gy: Tensor, last: Tensor, x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, firsts: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, delta, a, b, c and the first state. The states of each chunk are computed again."""
    num_rows, steps = _block_sizes(x, a)
    gys, xs, deltas, bs, cs = (_time_first(v) for v in (gy, x, delta, b, c))
    signals = gys, deltas * xs, deltas, bs, cs
    gu, gdelta, gb, gc = grads = tuple(map(torch.empty_like, signals[1:]))
    rates, transposed, gfirst = _rates(a), a.mT.contiguous(), _contiguous_like(last)
    ga, firsts = torch.zeros_like(transposed), firsts.view(-(-x.shape[1] // steps), len(x), *transposed.shape)
    for rows in _blocks(len(x), num_rows):
        after = last[rows].mT
        buffers = [_new_steps(after, min(steps, x.shape[1])) for _ in range(3)]
        for first, part in zip(firsts[:, rows].flip(0), reversed(_blocks(x.shape[1], steps)), strict=True):
            inputs = [v[part, rows] for v in signals]
            *found, added, after = _chunk_backward(inputs, transposed, rates, first, after, buffers)
            ga += added
            for grad, value in zip(grads, found, strict=True):
                grad[part, rows] = value
        gfirst[rows] = after.mT
    gdelta.addcmul_(gu, xs)
    gx, gdelta, gb, gc = (grad.transpose(0, 1).contiguous() for grad in (gu.mul_(deltas), gdelta, gb, gc))
    return gx, gdelta, ga.mT.contiguous(), gb, gc, gfirst


def _chunk_backward(
    inputs: Sequence[Tensor], a: Tensor, rates: Tensor, first: Tensor, after: Tensor, buffers: Sequence[_Steps]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of u, delta with u fixed, b, c, a and the state before a chunk, from that of the state after it.

    The inputs are the gradient of the outputs, u = delta x, delta, b and c.
    """
    (gy, u, delta, b, c), t = inputs, len(inputs[0])
    decays, states = _chunk_of_states(u, delta, b, rates, first, buffers[0], buffers[1])
    gc = (gy.unsqueeze(2) @ states.mT).squeeze(2)
    grads = torch.mul(gy.unsqueeze(2), c.unsqueeze(-1), out=buffers[2].whole[:t])  # of the states
    factors, rows = buffers[0].each, buffers[2].each
    after = rows[t - 1].add_(after)
    for i in range(t - 2, -1, -1):
        after = rows[i].addcmul_(factors[i + 1], after)
    after = factors[0] * after
    gb = (u.unsqueeze(2) @ grads.mT).squeeze(2)
    gu = (b.unsqueeze(2) @ grads).squeeze(2)
    exponents = grads.mul_(decays)  # gradients of the exponents: those of the decays times the decays
    exponents[1:] *= states[:-1]
    exponents[0] *= first
    gdelta = torch.mul(exponents, a, out=decays).sum(2)
    ga = exponents.mul_(delta.unsqueeze(2)).sum((0, 1))
    return gu, gdelta, gb, gc, ga, after


@_selective_scan_backward.register_fake
def _(
    gy: Tensor, last: Tensor, x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, firsts: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    return tuple(map(_contiguous_like, (x, delta, a, b, c, last)))  # type: ignore[return-value]


def _save_for_backward(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:5], output[2])


def _differentiate(ctx: Any, gy: Tensor, last: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    return _selective_scan_backward(gy.contiguous(), last.contiguous(), *ctx.saved_tensors)


_selective_scan.register_autograd(_differentiate, setup_context=_save_for_backward)


def claims() -> Iterator[Claim]:
    """Laws of the selective scan."""

    def scan(x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return selective_scan(x, x.square(), -torch.ones(2, 3).to(x), x[..., [0, 1, 0]], x[..., [1, 1, 0]], state)

    yield Claim(causality(time=1), lambda x: scan(x)[0], shape("b t:1..150 2"), name="selective_scan")
    yield Claim(cached_decoding(step=scan), lambda x: scan(x)[0], shape("b t:1..150 2"), name="selective_scan")
