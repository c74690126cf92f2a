r"""Linear recurrences in parallel.

A recurrence $s_{t+1} = A s_t + B u_t$ is split into chunks of some steps. The outputs of a chunk and the state at its
end are matrix products with the inputs of the chunk and the state before it. Only the states between chunks are
computed one after the other. This takes time linear in the length, and on a CPU it is faster than an FFT.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.linear_system import (
    DenseSystem,
    DiagonalSystem,
    LinearSystem,
    _as_complex,
    _as_pairs,
    _contiguous_like,
    _schema,
)
from lawful.laws import Claim, agreement, cached_decoding, causality, linearity, shape

_CHUNK = 64
"""Largest number of steps of a chunk."""


def linear_scan(
    x: Float[Tensor, "b t d"], system: LinearSystem, state: Float[Tensor, "b d n"] | None = None
) -> tuple[Float[Tensor, "b t d"], Float[Tensor, "b d n"]]:
    r"""Runs linear time-invariant systems over a signal, one system per channel.

    $$s_{t+1} = A s_t + b \, u_t, \qquad y_t = c^\top s_t + d \, u_t$$

    Args:
        x: Signals $u$.
        system: `DiagonalSystem` or `DenseSystem`.
        state: State before the signal, as returned by an earlier call. Defaults to zero.

    Returns:
        The outputs, and the state after the signal.

    Examples:
        >>> half = torch.tensor([[0.5]], dtype=torch.float64)
        >>> mean = DenseSystem(half.unsqueeze(0), b=half, c=half, d=half[0])
        >>> y, state = linear_scan(torch.tensor([[[1.0], [0.0], [0.0]]]), mean)
        >>> y.flatten()
        tensor([0.5000, 0.2500, 0.1250])
        >>> linear_scan(torch.zeros(1, 1, 1), mean, state)[0].flatten()
        tensor([0.0625])
    """
    _check_signal(x, system)
    t, expected = x.shape[1], (x.shape[0], *system.shape)
    state = x.new_zeros(expected) if state is None else state
    if state.shape != expected:
        raise ValueError(f"expected a state of shape {expected}, got {tuple(state.shape)}")
    if t == 1:
        y, state = system.step(x[:, 0], state)
        return y.unsqueeze(1), state
    m = _chunk_length(t)
    whole, parts = t // m * m, []
    for part, length in ((x[:, :whole], m), (x[:, whole:], t - whole)):
        if part.shape[1]:
            y, state, _ = _scan_chunks(part, *system.matrices(length, x.dtype), state)
            parts.append(y)
    return torch.cat(parts, 1) if len(parts) > 1 else parts[0], state


def _check_signal(x: Tensor, system: LinearSystem) -> None:
    if x.dim() != 3 or x.shape[1] == 0:
        raise ValueError(f"expected x of shape (b, t, d) with at least one time step, got {tuple(x.shape)}")
    if x.shape[-1] != system.shape[0]:
        raise ValueError(f"expected x with {system.shape[0]} channels, got shape {tuple(x.shape)}")


def _chunk_length(t: int) -> int:
    """Longer chunks need fewer states, shorter ones smaller matrices. The last chunk is almost full."""
    most = min(max(_CHUNK // 2, math.isqrt(t)), _CHUNK)
    return -(-t // -(-t // most))


def linear_filter(x: Float[Tensor, "b t d"], system: LinearSystem) -> Float[Tensor, "b t d"]:
    """Returns the outputs of `linear_scan` without a state. It can be compiled and exported for any length.

    Args:
        x: Signals.
        system: `DiagonalSystem` or `DenseSystem`.
    """
    _check_signal(x, system)
    matrices = system.matrices(_CHUNK if torch.compiler.is_compiling() else _chunk_length(x.shape[1]), x.dtype)
    return _scan_chunks(x, *matrices, x.new_zeros(x.shape[0], *system.shape))[0]


@torch.library.custom_op(
    "lawful::scan_chunks", mutates_args=(), schema=_schema("x toeplitz inputs outputs transition state", 3)
)
def _scan_chunks(
    x: Tensor, toeplitz: Tensor, inputs: Tensor, outputs: Tensor, transition: Tensor, state: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (b, t, d), the state (b, d, n) after whole chunks, and the states before each chunk, flat.

    An operator of its own: autograd, `torch.compile` and `torch.export` would unroll the loop over the chunks. The
    states are flat because a dimension that may have size 1 would limit the lengths of an exported graph.
    """
    if not len(x):
        return x.clone(), state.clone(), x.new_empty(0)
    u = _split_chunks(x, toeplitz.shape[-1])
    matrix = transition.mT if _is_dense(transition, inputs) else torch.view_as_complex(transition)
    states, last = _recur(matrix, torch.bmm(u, inputs), state)
    y = torch.baddbmm(torch.bmm(u, toeplitz), states, outputs.mT)
    return _merge_chunks(y, x), last, states.flatten()


@_scan_chunks.register_fake
def _(
    x: Tensor, toeplitz: Tensor, inputs: Tensor, outputs: Tensor, transition: Tensor, state: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    b, t, d = x.shape
    rows = (t + toeplitz.shape[-1] - 1) // toeplitz.shape[-1] * b
    return _contiguous_like(x), _contiguous_like(state), x.new_empty(d * rows * state.shape[-1])


@torch.library.custom_op(
    "lawful::scan_chunks_backward",
    mutates_args=(),
    schema=_schema("gy last x toeplitz inputs outputs transition states", 6),
)
def _scan_chunks_backward(
    gy: Tensor,
    last: Tensor,
    x: Tensor,
    toeplitz: Tensor,
    inputs: Tensor,
    outputs: Tensor,
    transition: Tensor,
    states: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of all inputs of `_scan_chunks`."""
    if not len(x):
        zeros = map(torch.zeros_like, (x, toeplitz, inputs, outputs, transition, last))
        return tuple(zeros)  # type: ignore[return-value]
    m = toeplitz.shape[-1]
    u, g, states = _split_chunks(x, m), _split_chunks(gy, m), states.view(x.shape[2], -1, inputs.shape[-1])
    if _is_dense(transition, inputs):
        after, first = _recur(transition, torch.bmm(g, outputs), last, reverse=True)
        gtransition = after.mT @ states
    else:
        conjugate = torch.view_as_complex(transition).conj().resolve_conj()
        after, first = _recur(conjugate, torch.bmm(g, outputs), last, reverse=True)
        gtransition = torch.view_as_real((_as_complex(after) * _as_complex(states).conj()).sum(1))
    gu = torch.baddbmm(torch.bmm(g, toeplitz.mT), after, inputs.mT)
    return _merge_chunks(gu, x), u.mT @ g, u.mT @ after, g.mT @ states, gtransition, first


@_scan_chunks_backward.register_fake
def _(
    gy: Tensor,
    last: Tensor,
    x: Tensor,
    toeplitz: Tensor,
    inputs: Tensor,
    outputs: Tensor,
    transition: Tensor,
    states: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    return tuple(map(_contiguous_like, (x, toeplitz, inputs, outputs, transition, last)))  # type: ignore[return-value]


def _save_chunks(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:5], output[2])


def _differentiate_chunks(ctx: Any, gy: Tensor, last: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    return _scan_chunks_backward(gy, last, *ctx.saved_tensors)


_scan_chunks.register_autograd(_differentiate_chunks, setup_context=_save_chunks)


def _is_dense(transition: Tensor, inputs: Tensor) -> bool:
    return transition.shape[1] == inputs.shape[-1]


def _split_chunks(x: Float[Tensor, "b t d"], m: int) -> Float[Tensor, "d rows m"]:
    """The chunks of each channel as rows; the last one of a signal is padded with zeros."""
    t, d = x.shape[1:]
    x = F.pad(x, (0, 0, 0, -t % m)) if t % m else x
    return x.reshape(-1, d).t().contiguous().view(d, -1, m)  # a transposed copy of two dimensions is fast


def _merge_chunks(y: Float[Tensor, "d rows m"], x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
    """The inverse of `_split_chunks`, for the shape of `x`."""
    b, t, d = x.shape
    return y.view(d, -1).t().contiguous().view(b, -1, d)[:, :t].contiguous()


def _recur(
    transition: Tensor, added: Tensor, first: Tensor, *, reverse: bool = False
) -> tuple[Float[Tensor, "d rows n"], Float[Tensor, "b d n"]]:
    """The recurrence over chunks, from what each adds (d, rows, n): states before each, and after the last.

    Args:
        transition: (d, k) complex, or (d, n, n), which is applied to rows.
        added: What each chunk adds.
        first: State before the first chunk.
        reverse: Run from the last chunk to the first.
    """
    is_diagonal = transition.is_complex()
    added, first = added.unflatten(1, (len(first), -1)), first.transpose(0, 1)
    if is_diagonal:
        transition, added, first = transition.unsqueeze(1), _as_complex(added), _as_complex(first)
    states, last = torch.empty_like(added), torch.empty_like(first, memory_format=torch.contiguous_format)
    order = slice(None, None, -1 if reverse else 1)
    rows = (*states.unbind(2)[order], last)
    rows[0].copy_(first)
    for term, before, after in zip(added.unbind(2)[order], rows[:-1], rows[1:], strict=True):
        if is_diagonal:
            torch.addcmul(term, transition, before, out=after)
        else:
            after.copy_(torch.baddbmm(term, before, transition))
    states, last = states.flatten(1, 2), last.transpose(0, 1)
    return (_as_pairs(states), _as_pairs(last)) if is_diagonal else (states, last.contiguous())


def fft_convolution(x: Float[Tensor, "*batch t d"], kernel: Float[Tensor, "d s"]) -> Float[Tensor, "*batch t d"]:
    r"""Causal convolution of each channel with its own long kernel, by the FFT in time $O(t \log t)$.

    $$y_{t} = \sum_{s \le t} k_{s} \, x_{t - s}$$

    Args:
        x: Signals.
        kernel: Kernel of each channel; entries beyond the length of the signal have no effect.

    Examples:
        >>> fft_convolution(torch.ones(3, 1), torch.tensor([[1.0, 2.0, 3.0]])).flatten().round()
        tensor([1., 3., 6.])
    """
    t = x.shape[-2]
    if t == 0:
        raise ValueError(f"expected x of shape (*batch, t, d) with at least one time step, got {tuple(x.shape)}")
    if x.shape[-1] != len(kernel):
        raise ValueError(f"expected x with {len(kernel)} channels, got shape {tuple(x.shape)}")
    k = kernel[..., :t].to(x.dtype)
    n = t + k.shape[-1]
    spectrum = torch.fft.rfft(x.mT, n=n) * torch.fft.rfft(k, n=n)
    return torch.fft.irfft(spectrum, n=n)[..., :t].mT


def claims() -> Iterator[Claim]:
    """Laws of scans."""
    modes = torch.tensor([[-0.1 + 1j, -0.5 + 3j], [-1.0 + 0j, -0.01 + 0.1j]], dtype=torch.complex128)
    diagonal = DiagonalSystem(modes.exp(), torch.ones_like(modes), modes.conj(), modes[:, 0].real)
    rotation = torch.tensor([[0.8, -0.6], [0.6, 0.8]], dtype=torch.float64)
    ones = torch.ones(2, 2, dtype=torch.float64)
    dense = DenseSystem(0.9 * rotation.expand(2, 2, 2), ones, ones, modes[:, 0].real)
    signal = shape("b t:1..150 2")

    def step(system: LinearSystem, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        return linear_scan(x, system, state)

    for system, name in ((diagonal, "DiagonalSystem"), (dense, "DenseSystem")):
        run = partial(_outputs, system)
        yield Claim(linearity(), run, signal, name=name)
        yield Claim(causality(time=1), run, signal, name=name)
        yield Claim(cached_decoding(step=partial(step, system)), run, signal, name=name)
        yield Claim(agreement(other=partial(linear_filter, system=system)), run, signal, name=f"{name}, linear_filter")
        yield Claim(agreement(other=partial(_convolve, system)), run, signal, name=f"{name}, convolution")


def _outputs(system: LinearSystem, x: Tensor) -> Tensor:
    return linear_scan(x, system)[0]


def _convolve(system: LinearSystem, x: Tensor) -> Tensor:
    return fft_convolution(x, system.kernel(x.shape[1], x.dtype))
