"""Two ways to the same result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lawful.laws._helpers import axis_size, require_axis, require_real
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Axis, Inapplicable, law
from lawful.laws.statements import AtMost, Equal, Statement


@law("f(x) = g(x)", every_input=True, discover_with=None)
def agreement(f: Map, *xs: Tensor, other: Callable[..., Any]) -> Statement:
    """Two maps give the same output on the same inputs.

    Satisfied by: a fused and a plain path; a sparse and a dense one; a module and its reference.
    Broken by: a path that drops an argument; a mask aligned to the wrong corner.
    """
    return Equal(f(*xs), f.with_function(other)(*xs))


@law("f(x) = f(x) with a switch set otherwise", every_input=True, discover_with=None)
def switch_agreement(f: Map, *xs: Tensor, attribute: str, one: Any = True, other: Any = False) -> Statement:
    """A module gives the same output whichever way one of its attributes is set: fused or plain, say.

    Satisfied by: a flag that only chooses how to compute.
    Broken by: a fused path that drops the mask, the scale or the dropout of the plain one.
    """
    if not hasattr(f.target, attribute):
        raise Inapplicable(f"{type(f.target).__name__} has no attribute {attribute!r}")

    def switched(value: Any) -> Map:
        return f.modified(lambda target: setattr(target, attribute, value), f"{{f}}.{attribute} = {value!r}")

    return Equal(switched(one)(*xs), switched(other)(*xs))


def _stepped(f: Map, pieces: list[Tensor], step: str | Callable[..., Any], state: Any) -> list[Tensor]:
    """Feeds pieces one after another, and hands the state on; what the module keeps itself stays too."""
    outputs, stepping = [], f.method(step).stateful()
    for piece in pieces:
        found = stepping.raw_output(piece, state)
        if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[0], Tensor):
            raise Inapplicable("a step is to return an output and a state")
        outputs.append(found[0])
        state = found[1]
    return outputs


@law("f(x) = step(x[: n]), step(x[n : n + k]), ...")
def cached_decoding(
    f: Map, x: Tensor, *, step: str | Callable[..., Any] = "step", time: Axis = 1, draw: Draw
) -> Statement:
    """Decoding piece by piece with a cache gives what the full pass gives.

    `step(piece, state)` returns the outputs of a piece and the next state; the first state is None. The first
    piece is a prompt of any length, the others are of one size.

    Satisfied by: attention with a key-value cache and positions that go on where the cache ends.
    Broken by: a mask aligned to the top left; positions that start anew with each piece.
    """
    n = axis_size(x, time, "time")
    sizes = [draw.integer(1, n, "prompt")]
    size = draw.integer(1, 3, "piece")
    while sum(sizes) < n:
        sizes.append(min(size, n - sum(sizes)))
    outputs = _stepped(f, list(x.split(sizes, dim=time)), step, None)
    return Equal(require_axis(f(x), x, time, "time"), torch.cat(outputs, dim=time))


@law("f(x)_t = y_t, (y_t, h_t) = step(x_t, h_{t-1})")
def recurrence(
    f: Map,
    x: Tensor,
    *,
    step: str | Callable[..., Any] = "step",
    start: str | Callable[..., Any] | None = None,
    time: Axis = 1,
) -> Statement:
    """The recurrent form gives what the parallel one, a convolution or a scan, gives.

    `step(x_t, state)` takes one position, without the time axis, and returns its output and the next state. The
    first state is what `start(x_0)` returns, or None.

    Satisfied by: a linear recurrence and its convolution; a scan.
    Broken by: a step that is discretised otherwise; a state that is updated after it is read.
    """
    first, *others = x.unbind(time)
    state = None if start is None else f.method(start).raw_output(first)
    outputs = _stepped(f, [first, *others], step, state)
    return Equal(require_axis(f(x), x, time, "time"), torch.stack(outputs, dim=time))


@law("f(x) = [f(x[: n]), f(x[n :])]")
def chunk_consistency(f: Map, *xs: Tensor, axis: Axis = 0, draw: Draw) -> Statement:
    """The parts of an input, put through one by one, give the parts of the output.

    Satisfied by: layers applied to each position; anything over the batch axis that keeps samples apart.
    Broken by: statistics over the axis; a chunk that does not know its place.
    """
    n = axis_size(xs[0], axis)
    cut = draw.integer(1, n - 1, "n")
    parts = [f(*(x.narrow(axis, a, b) for x in xs)) for a, b in ((0, cut), (cut, n - cut))]
    y = require_axis(f(*xs), xs[0], axis)
    if [p.shape[axis] for p in parts] != [cut, n - cut]:
        raise Inapplicable(f"the output does not run along axis {axis} in parts")
    return Equal(y, torch.cat(parts, dim=axis))


@law("f(sparse x) = f(x)", discover_with=None)
def sparse_agreement(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """A sparse tensor gives what the dense one gives.

    Satisfied by: products with a matrix.
    Broken by: an update that forgets the entries that are not stored; duplicate edges counted once.
    """
    thin = torch.where(draw.normal(*require_real(x).shape) > 0, x, 0.0)
    return Equal(f(thin.to_sparse()), f(thin), exercised=True)


def plain_attention() -> AbstractContextManager[Any]:
    """Makes PyTorch compute attention step by step rather than fused."""
    return sdpa_kernel(SDPBackend.MATH)


@law("f(x) = f(x) on another backend", every_input=True, discover_with=None)
def backend_agreement(
    f: Map, *xs: Tensor, under: Callable[[], AbstractContextManager[Any]] = plain_attention
) -> Statement:
    """One backend gives what another gives: the usual one, and that inside `under()`, a context.

    By default the other one is attention that is computed step by step.

    Satisfied by: layers of PyTorch's own operations.
    Broken by: a kernel for one backend with another convention for masks or scales.
    """

    def inside(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with under():
                return function(*args, **kwargs)

        return call

    return Equal(f(*xs), f.wrapped(inside)(*xs))


@law("compiled f(x) = f(x)", every_input=True, every_output=True, cases=10, discover_with=None)
def compile_agreement(f: Map, *xs: Tensor, backend: str = "inductor") -> Statement:
    """The compiled map gives what the plain one gives. It needs a compiler, and some time.

    Satisfied by: layers that `torch.compile` can follow.
    Broken by: a branch that was frozen while it was traced; a constant that was read from a tensor.
    """
    said = f"torch.compile({{f}}, backend={backend!r})"

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        torch._dynamo.reset()  # what was compiled before counts against a limit, beyond which nothing is
        return torch.compile(function, backend=backend)

    return Equal(f.wrapped(compiled, said)(*xs), f(*xs), exact=True)  # a noisy run is not compiled: no noise to compare


@law("|f_low(x) - g(x)| ≤ k |g_low(x) - g(x)|", every_input=True, discover_with=None)
def low_precision(
    f: Map, *xs: Tensor, plain: str | Callable[..., Any], dtype: str = "bfloat16", factor: float = 2.0
) -> Statement:
    """In low precision the map is not much further from the truth than a plain implementation of it.

    The truth is the plain implementation in the precision of the run, of inputs and parameters that `dtype` can
    hold. Its largest error in `dtype`, times a factor and not below a few last places, bounds that of the map.

    Satisfied by: a fused kernel that adds up in float32.
    Broken by: a softmax or a long sum that adds up in the low precision itself; a cast too early.
    """
    low = getattr(torch, dtype, None)
    if not isinstance(low, torch.dtype) or not low.is_floating_point:
        raise ValueError(f"dtype is a real type, such as bfloat16: got {dtype!r}")
    held = {name: p.detach().to(low).to(p) for name, p in f.parameters.items()}
    f = f.with_parameters(held)
    g = f.method(plain) if isinstance(plain, str) else f.with_function(plain)
    inputs = [x.to(low).to(x) if x.is_floating_point() else x for x in xs]
    truth = g(*inputs)
    ours, theirs = f.cast(low)(*inputs).to(truth), g.cast(low)(*inputs).to(truth)
    floor = 4 * torch.finfo(low).eps * truth.abs().amax()
    return AtMost((ours - truth).abs().amax(), factor * (theirs - truth).abs().amax() + floor, ignore_noise=True)
