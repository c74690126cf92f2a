"""Equivalence: two ways to compute the same result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lawful.laws._helpers import axis_size, require_axis, require_real, transform_along
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Axis, Inapplicable, law
from lawful.laws.statements import AtMost, Equal, Statement


@law("f(x) = g(x)", eval_if_random=True, every_input=True, discover_with=None)
def agreement(f: Map, *xs: Tensor, other: str | Callable[..., Any]) -> Statement:
    """Two functions return the same output for the same inputs.

    `other` is a function, or the name of a method of the module. Its first output is compared.

    Satisfied by: a fused and a plain implementation; a sparse and a dense one; a module and its reference.
    Broken by: an implementation that ignores an argument; a mask aligned to the wrong corner.
    """
    return Equal(f(*xs), f.with_function(other)(*xs))


@law("f(x) is the same for both values of an attribute", eval_if_random=True, every_input=True, discover_with=None)
def switch_agreement(f: Map, *xs: Tensor, attribute: str, one: Any = True, other: Any = False) -> Statement:
    """A module returns the same output for two values of an attribute, such as fused or not.

    Satisfied by: a flag that only selects an implementation.
    Broken by: a fused implementation that ignores the mask, the scale or the dropout.
    """
    if not hasattr(f.target, attribute):
        raise Inapplicable(f"{type(f.target).__name__} has no attribute {attribute!r}")

    def with_value(value: Any) -> Map:
        return f.modified(lambda target: setattr(target, attribute, value))

    return Equal(with_value(one)(*xs), with_value(other)(*xs))


def _run_steps(f: Map, pieces: list[Tensor], step: str | Callable[..., Any], state: Any) -> list[Tensor]:
    """Calls `step` on one piece after another and passes the state on. The module keeps its own state between calls."""
    outputs, step_map = [], f.method(step).stateful()
    for piece in pieces:
        found = step_map.raw_output(piece, state)
        if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[0], Tensor):
            raise Inapplicable("expected step(x, state) to return an output and a state")
        outputs.append(found[0])
        state = found[1]
    return outputs


@law("f(x) = step(x[: n]), step(x[n : n + k]), ...", eval_if_random=True)
def cached_decoding(
    f: Map, x: Tensor, *, step: str | Callable[..., Any] = "step", time: Axis = 1, draw: Draw
) -> Statement:
    """Decoding with a cache gives the same output as one full forward pass.

    `step(piece, state)` returns the outputs for a piece and the next state; the first state is None. The first
    piece is a prompt of any length, the others have equal sizes.

    Satisfied by: attention with a KV cache whose positions continue after the cached keys.
    Broken by: a causal mask aligned to the first key; positions that restart with each piece.
    """
    n = axis_size(x, time, "time")
    sizes = [draw.integer(1, n, "prompt")]
    size = draw.integer(1, 3, "piece")
    while sum(sizes) < n:
        sizes.append(min(size, n - sum(sizes)))
    outputs = _run_steps(f, list(x.split(sizes, dim=time)), step, None)
    return Equal(require_axis(f(x), x, time, "time"), torch.cat(outputs, dim=time))


@law("f(x)_t = y_t, (y_t, h_t) = step(x_t, h_{t-1})", eval_if_random=True)
def recurrence(
    f: Map,
    x: Tensor,
    *,
    step: str | Callable[..., Any] = "step",
    start: str | Callable[..., Any] | None = None,
    time: Axis = 1,
) -> Statement:
    """The recurrent form gives the same output as the parallel one, such as a convolution or a scan.

    `step(x_t, state)` takes one position, without the time axis, and returns its output and the next state. The
    first state is `start(x_0)`, or None.

    Satisfied by: a linear recurrence and its convolution; a scan.
    Broken by: a step with another discretization; a state that is read before it is updated.
    """
    first, *others = x.unbind(time)
    state = None if start is None else f.method(start).raw_output(first)
    outputs = _run_steps(f, [first, *others], step, state)
    return Equal(require_axis(f(x), x, time, "time"), torch.stack(outputs, dim=time))


@law("f(x) = [f(x[: n]), f(x[n :])]", eval_if_random=True)
def chunk_consistency(f: Map, *xs: Tensor, axis: Axis = 0, draw: Draw) -> Statement:
    """Processing the input in chunks along an axis gives the chunks of the output.

    Satisfied by: a layer applied to each position; along the batch axis, any layer that treats samples separately.
    Broken by: statistics over the axis; positions that restart with each chunk.
    """
    n = axis_size(xs[0], axis)
    cut = draw.integer(1, n - 1, "n")

    def chunk(start: int, size: int) -> Tensor:
        return f(*transform_along(f, xs, axis, lambda x, same: x.narrow(same, start, size)))

    parts = [chunk(0, cut), chunk(cut, n - cut)]
    y = require_axis(f(*xs), xs[0], axis)
    if [p.shape[axis] for p in parts] != [cut, n - cut]:
        raise Inapplicable(f"the outputs of the chunks do not have the sizes of the chunks along axis {axis}")
    return Equal(y, torch.cat(parts, dim=axis))


@law("f(sparse x) = f(x)", eval_if_random=True, discover_with=None)
def sparse_agreement(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """A sparse tensor gives the same output as the dense one.

    Satisfied by: products with a matrix.
    Broken by: an update that skips entries that are not stored; duplicate edges counted once.
    """
    sparse = torch.where(draw.normal(*require_real(x).shape) > 0, x, 0.0)
    return Equal(f(sparse.to_sparse()), f(sparse), exercised=True)


def _math_attention() -> AbstractContextManager[Any]:
    """Selects the unfused backend of `scaled_dot_product_attention`."""
    return sdpa_kernel(SDPBackend.MATH)


@law("f(x) is the same on another backend", eval_if_random=True, every_input=True, discover_with=None)
def backend_agreement(
    f: Map, *xs: Tensor, under: Callable[[], AbstractContextManager[Any]] = _math_attention
) -> Statement:
    """The default backend and the one selected by the context manager `under()` give the same output.

    By default `under` selects the unfused backend of `scaled_dot_product_attention`.

    Satisfied by: layers built from PyTorch's operations.
    Broken by: a kernel for one backend with another convention for masks or scales.
    """

    def run_in_context(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with under():
                return function(*args, **kwargs)

        return call

    return Equal(f(*xs), f.wrapped(run_in_context)(*xs))


@law("compiled f(x) = f(x)", eval_if_random=True, every_input=True, every_output=True, cases=10, discover_with=None)
def compile_agreement(f: Map, *xs: Tensor, backend: str = "inductor") -> Statement:
    """`torch.compile` does not change the output. Needs a C++ compiler, and some time.

    Satisfied by: layers that `torch.compile` can trace.
    Broken by: a branch that tracing froze; a constant that was read from a tensor.
    """

    def compile_fresh(function: Callable[..., Any]) -> Callable[..., Any]:
        torch._dynamo.reset()  # earlier compilations count against the recompile limit
        return torch.compile(function, backend=backend)

    # The noise run is not compiled, so its rounding cannot be compared: exact.
    return Equal(f.wrapped(compile_fresh)(*xs), f(*xs), exact=True)


@law("|f_low(x) - g(x)| ≤ k |g_low(x) - g(x)|", eval_if_random=True, every_input=True, discover_with=None)
def low_precision(
    f: Map, *xs: Tensor, plain: str | Callable[..., Any], dtype: str = "bfloat16", factor: float = 2.0
) -> Statement:
    """In low precision the map is about as accurate as a plain implementation.

    The reference is the plain implementation in the precision of the run, with inputs and parameters rounded to
    `dtype`. The error of the map in `dtype` is at most `factor` times the error of the plain implementation in
    `dtype`, plus a few units in the last place.

    Satisfied by: a fused kernel that accumulates in float32.
    Broken by: a softmax or a long sum that accumulates in the low precision; a cast that comes too early.
    """
    low = getattr(torch, dtype, None)
    if not isinstance(low, torch.dtype) or not low.is_floating_point:
        raise ValueError(f"dtype must be a floating-point type such as 'bfloat16', got {dtype!r}")
    rounded = {name: p.detach().to(low).to(p) for name, p in f.parameters.items()}
    f = f.with_parameters(rounded)
    g = f.method(plain) if isinstance(plain, str) else f.with_function(plain)
    inputs = [x.to(low).to(x) if x.is_floating_point() else x for x in xs]
    reference = g(*inputs)
    error = (f.cast(low)(*inputs).to(reference) - reference).abs().amax()
    plain_error = (g.cast(low)(*inputs).to(reference) - reference).abs().amax()
    floor = 4 * torch.finfo(low).eps * reference.abs().amax()
    return AtMost(error, factor * plain_error + floor, ignore_noise=True)
