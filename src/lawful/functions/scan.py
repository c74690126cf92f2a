r"""Linear recurrences in parallel.

A recurrence $s_{t+1} = A s_t + B u_t$ is split into chunks of some steps. The outputs of a chunk and the state at its
end are matrix products with the inputs of the chunk and the state before it. Only the states between chunks are
computed one after the other. This takes time linear in the length, and on a CPU it is faster than an FFT.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import Claim, agreement, cached_decoding, causality, linearity, shape

_CHUNK = 64
"""Steps of a chunk: longer chunks need fewer states, shorter ones smaller matrices."""


class ChunkMatrices(NamedTuple):
    r"""A linear time-invariant system over a chunk of $m$ steps, for each of $d$ channels, in real numbers.

    With the inputs $u$ of a chunk and the state $s$ before it, the outputs are $y = T u + O s$ and the next state is
    $s' = M s + I u$. A complex mode is two neighboring entries of the state: its real and its imaginary part.
    """

    toeplitz: Float[Tensor, "d m m"]
    r"""$T^\top$: entry $(l, j)$ is the response $k_{j - l}$ at step $j$ to an input at step $l \le j$."""
    inputs: Float[Tensor, "d m n"]
    r"""$I^\top$: row $l$ is what an input at step $l$ adds to the state at the end of the chunk."""
    outputs: Float[Tensor, "d n m"]
    r"""$O^\top$: column $j$ is the output at step $j$ of the state before the chunk."""
    transition: Float[Tensor, "d n n"] | Float[Tensor, "d k 2"]
    """$M$: a matrix, or the real and imaginary parts of a complex diagonal one."""


@runtime_checkable
class LinearSystem(Protocol):
    """Discrete linear time-invariant systems, one for each of $d$ channels."""

    def matrices(self, m: int, dtype: torch.dtype) -> ChunkMatrices:
        """Returns the system over a chunk of `m` steps."""
        ...


@dataclass(frozen=True)
class DiagonalSystem:
    r"""Systems with complex modes.

    $$s_{t+1} = \lambda s_t + b \, u_t, \qquad y_t = 2 \operatorname{Re} \sum c \, s_t + d \, u_t$$

    Each mode stands for itself and its complex conjugate, so that outputs are real. All weights are in double
    precision: powers of $\lambda$ lose digits.

    Args:
        transition: $\lambda$ of each channel and mode.
        b: Input weights.
        c: Output weights.
        d: Direct weight of the input.
    """

    transition: Complex[Tensor, "d k"]
    b: Complex[Tensor, "d k"]
    c: Complex[Tensor, "d k"]
    d: Float[Tensor, " d"]

    def matrices(self, m: int, dtype: torch.dtype) -> ChunkMatrices:
        """Returns the system over a chunk of `m` steps."""
        powers = _powers(self.transition, m + 1)
        outputs = torch.view_as_real(2 * self.c.unsqueeze(-1) * powers[..., :m])
        response = outputs[..., :-1, 0] * self.b.real.unsqueeze(-1) - outputs[..., :-1, 1] * self.b.imag.unsqueeze(-1)
        inputs = (self.b.unsqueeze(-1) * powers[..., :m].flip(-1)).mT
        signs = outputs.new_tensor([1.0, -1.0])
        return ChunkMatrices(
            _toeplitz(self.d, response.sum(-2)).to(dtype),
            torch.view_as_real(inputs.contiguous()).flatten(-2).to(dtype),
            (outputs * signs).transpose(-1, -2).flatten(-3, -2).to(dtype),
            torch.view_as_real(powers[..., m].contiguous()).to(dtype),
        )


@dataclass(frozen=True)
class DenseSystem:
    r"""Systems with a real transition matrix.

    $$s_{t+1} = A s_t + b \, u_t, \qquad y_t = c^\top s_t + d \, u_t$$

    All weights are in double precision: powers of $A$ lose digits.

    Args:
        transition: $A$ of each channel.
        b: Input weights.
        c: Output weights.
        d: Direct weight of the input.
    """

    transition: Float[Tensor, "d n n"]
    b: Float[Tensor, "d n"]
    c: Float[Tensor, "d n"]
    d: Float[Tensor, " d"]

    def matrices(self, m: int, dtype: torch.dtype) -> ChunkMatrices:
        """Returns the system over a chunk of `m` steps."""
        inputs, outputs = self.b.unsqueeze(-1), self.c.unsqueeze(-2)
        power, length = self.transition, 1
        while length < m:  # inputs are A^l b and outputs c A^l, for l < length; power is A^length
            inputs = torch.cat([inputs, power @ inputs], -1)
            outputs = torch.cat([outputs, outputs @ power], -2)
            length *= 2
            power = power @ power if length < m else power
        inputs, outputs = inputs[..., :m], outputs[..., :m, :]
        return ChunkMatrices(
            _toeplitz(self.d, (outputs[..., :-1, :] @ self.b.unsqueeze(-1)).squeeze(-1)).to(dtype),
            inputs.flip(-1).mT.to(dtype),
            outputs.mT.to(dtype),
            torch.linalg.matrix_power(self.transition, m).to(dtype),
        )


def _powers(x: Tensor, n: int) -> Tensor:
    """Powers 0 to n - 1 along a new last dimension, by doubling."""
    powers, factor = torch.ones_like(x).unsqueeze(-1), x.unsqueeze(-1)
    while powers.shape[-1] < n:
        powers = torch.cat([powers, powers * factor], -1)
        factor = factor * factor
    return powers[..., :n]


def _toeplitz(direct: Float[Tensor, " d"], response: Float[Tensor, "d n"]) -> Float[Tensor, "d m m"]:
    """The matrix with entry (l, j) = k[j - l] for l <= j, and 0 otherwise, where k is `direct` and then `response`."""
    kernel = torch.cat([direct.unsqueeze(-1), response], -1)
    m = kernel.shape[-1]
    return F.pad(kernel, (m - 1, 0)).unfold(-1, m, 1).flip(-2)


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
    b, t, d = x.shape
    if t == 0:
        raise ValueError(f"expected at least one time step, got x of shape {tuple(x.shape)}")
    whole = t // _CHUNK * _CHUNK if t > _CHUNK else 0
    parts = []
    for part, m in ((x[:, :whole], _CHUNK), (x[:, whole:], t - whole)):
        if part.shape[1]:
            matrices = system.matrices(m, x.dtype)
            state = x.new_zeros(b, d, matrices.inputs.shape[-1]) if state is None else state
            y, state, _ = _scan_chunks(part, *matrices, state)
            parts.append(y)
    return torch.cat(parts, 1) if len(parts) > 1 else parts[0], cast(Tensor, state)


def traced_linear_scan(x: Float[Tensor, "b t d"], system: LinearSystem) -> Float[Tensor, "b t d"]:
    """Returns the outputs of `linear_scan` without a branch on the length, for compiled and exported graphs.

    Args:
        x: Signals.
        system: `DiagonalSystem` or `DenseSystem`.
    """
    matrices = system.matrices(_CHUNK, x.dtype)
    state = x.new_zeros(x.shape[0], x.shape[2], matrices.inputs.shape[-1])
    return _scan_chunks(x, *matrices, state)[0]


def _schema(inputs: str, num_outputs: int) -> str:
    """Returns the schema of an operator on tensors. Torch cannot infer it from a function that checks its types."""
    return f"({', '.join(f'Tensor {name}' for name in inputs.split())}) -> ({', '.join(['Tensor'] * num_outputs)})"


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
    u = _split_chunks(x, toeplitz.shape[-1])
    states, last = _chunk_states(transition, torch.bmm(u, inputs), state.transpose(0, 1))
    y = torch.baddbmm(torch.bmm(u, toeplitz), states, outputs)
    return _merge_chunks(y, x), last.transpose(0, 1).clone(memory_format=torch.contiguous_format), states.flatten()


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
    m = toeplitz.shape[-1]
    u, g, states = _split_chunks(x, m), _split_chunks(gy, m), states.view(x.shape[2], -1, inputs.shape[-1])
    before, after, first = _chunk_states_backward(transition, states, torch.bmm(g, outputs.mT), last.transpose(0, 1))
    gu = torch.baddbmm(torch.bmm(g, toeplitz.mT), after, inputs.mT)
    return (
        _merge_chunks(gu, x),
        u.mT @ g,
        u.mT @ after,
        states.mT @ g,
        before,
        first.transpose(0, 1).clone(memory_format=torch.contiguous_format),
    )


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


def _split_chunks(x: Float[Tensor, "b t d"], m: int) -> Float[Tensor, "d rows m"]:
    """The chunks of each channel as rows, those of one chunk together; the last one is padded with zeros."""
    b, t, d = x.shape
    x = F.pad(x, (0, 0, 0, -t % m)) if t % m else x
    return x.reshape(b, -1, m, d).permute(3, 1, 0, 2).reshape(d, -1, m)


def _merge_chunks(y: Float[Tensor, "d rows m"], x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
    """The inverse of `_split_chunks`, for the shape of `x`."""
    b, t, d = x.shape
    y = y.view(d, -1, b, y.shape[-1]).permute(2, 1, 3, 0).reshape(b, -1, d)
    return y[:, :t].contiguous()


def _chunk_states(transition: Tensor, added: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """States before each chunk (d, rows, n) and after the last (d, b, n), from what each chunk adds (d, rows, n)."""
    b, states = state.shape[1], torch.empty_like(added)
    if _is_diagonal(transition, added):
        a, last = torch.view_as_complex(transition).unsqueeze(1), _as_complex(state).clone()
        for before, term in zip(_as_complex(states).split(b, 1), _as_complex(added).split(b, 1), strict=True):
            before.copy_(last)
            torch.addcmul(term, a, last, out=last)
        return states, torch.view_as_real(last).flatten(-2)
    for before, term in zip(states.split(b, 1), added.split(b, 1), strict=True):
        before.copy_(state)
        state = torch.baddbmm(term, state, transition.mT)
    return states, state


def _chunk_states_backward(
    transition: Tensor, states: Tensor, grad: Tensor, last: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the transition, of what each chunk adds, and of the first state."""
    b, grads = last.shape[1], torch.empty_like(states)
    if _is_diagonal(transition, states):
        a, last = torch.view_as_complex(transition).conj().resolve_conj().unsqueeze(1), _as_complex(last).clone()
        pairs = zip(_as_complex(grads).split(b, 1), _as_complex(grad).split(b, 1), strict=True)
        for after, term in reversed(list(pairs)):
            after.copy_(last)
            torch.addcmul(term, a, last, out=last)
        products = (_as_complex(grads) * _as_complex(states).conj()).sum(1)
        return torch.view_as_real(products), grads, torch.view_as_real(last).flatten(-2)
    for after, term in reversed(list(zip(grads.split(b, 1), grad.split(b, 1), strict=True))):
        after.copy_(last)
        last = torch.baddbmm(term, last, transition)
    return grads.mT @ states, grads, last


def _contiguous_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _is_diagonal(transition: Tensor, states: Tensor) -> bool:
    return transition.shape[1] != states.shape[-1]


def _as_complex(x: Float[Tensor, "*shape n"]) -> Complex[Tensor, "*shape k"]:
    return torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2)))


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
    k = kernel[..., :t].to(x.dtype)
    n = t + k.shape[-1]
    spectrum = torch.fft.rfft(x.mT, n=n) * torch.fft.rfft(k, n=n)
    return torch.fft.irfft(spectrum, n=n)[..., :t].mT


@torch.library.custom_op("lawful::selective_scan", mutates_args=(), schema=_schema("x delta a b c state", 3))
def _selective_scan(
    x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (b, t, d), the last state (b, d, n) and the states before each chunk, flat; see `_scan_chunks`."""
    y, last = _contiguous_like(x), state
    firsts = state.new_empty(-(-x.shape[1] // _CHUNK), *state.shape)
    for i, first in enumerate(firsts.unbind(0)):
        part = slice(i * _CHUNK, (i + 1) * _CHUNK)
        first.copy_(last)
        _, states = _chunk_of_states(x[:, part], delta[:, part], a, b[:, part], first)
        y[:, part] = (states @ c[:, part].transpose(0, 1).unsqueeze(-1)).squeeze(-1).transpose(0, 1)
        last = states[-1]
    return y, last.clone(), firsts.flatten()


@_selective_scan.register_fake
def _(x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    chunks = (x.shape[1] + _CHUNK - 1) // _CHUNK
    return _contiguous_like(x), _contiguous_like(state), state.new_empty(chunks * state.numel())


@torch.library.custom_op(
    "lawful::selective_scan_backward", mutates_args=(), schema=_schema("gy g x delta a b c firsts", 6)
)
def _selective_scan_backward(
    gy: Tensor, g: Tensor, x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, firsts: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, delta, a, b, c and the first state. The states of each chunk are computed again."""
    gx, gdelta, gb, gc = map(_contiguous_like, (x, delta, b, c))
    ga, g = torch.zeros_like(a, memory_format=torch.contiguous_format), g.clone()
    firsts = firsts.view(-1, *g.shape)
    for i in reversed(range(len(firsts))):
        part = slice(i * _CHUNK, (i + 1) * _CHUNK)
        decay, states = _chunk_of_states(x[:, part], delta[:, part], a, b[:, part], firsts[i])
        gys, xs, deltas, bs, cs = (v[:, part].transpose(0, 1) for v in (gy, x, delta, b, c))
        gc[:, part] = (gys.unsqueeze(2) @ states).squeeze(2).transpose(0, 1)
        grads = gys.unsqueeze(-1) * cs.unsqueeze(2)
        rows, decays = grads.unbind(0), decay.unbind(0)
        rows[-1].add_(g)
        for t in reversed(range(len(rows) - 1)):
            torch.addcmul(rows[t], decays[t + 1], rows[t + 1], out=rows[t])
        g = decays[0] * rows[0]
        gb[:, part] = ((xs * deltas).unsqueeze(2) @ grads).squeeze(2).transpose(0, 1)
        gu = (grads @ bs.unsqueeze(-1)).squeeze(-1)
        exponents = grads  # gradients of the exponents: those of the decays times the decays
        exponents.mul_(decay)
        exponents[1:].mul_(states[:-1])
        exponents[0].mul_(firsts[i])
        gx[:, part] = (gu * deltas).transpose(0, 1)
        gdelta[:, part] = (gu * xs + (exponents * a).sum(-1)).transpose(0, 1)
        ga += torch.einsum("tbdn,tbd->dn", exponents, deltas)
    return gx, gdelta, ga, gb, gc, g


@_selective_scan_backward.register_fake
def _(
    gy: Tensor, g: Tensor, x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, firsts: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    return tuple(map(_contiguous_like, (x, delta, a, b, c, g)))  # type: ignore[return-value]


def _save_for_backward(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:5], output[2])
    ctx.set_materialize_grads(True)


def _differentiate(ctx: Any, gy: Tensor, g: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    return _selective_scan_backward(gy.contiguous(), g.contiguous(), *ctx.saved_tensors)


_selective_scan.register_autograd(_differentiate, setup_context=_save_for_backward)


def _chunk_of_states(x: Tensor, delta: Tensor, a: Tensor, b: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Decays and states of a chunk, both (t, b, d, n)."""
    deltas = delta.transpose(0, 1)
    decay = (deltas.unsqueeze(-1) * a).exp_()
    states = (deltas * x.transpose(0, 1)).unsqueeze(-1) * b.transpose(0, 1).unsqueeze(2)
    rows = states.unbind(0)
    for term, factor in zip(rows, decay.unbind(0), strict=True):
        torch.addcmul(term, factor, state, out=term)
        state = term
    return decay, states


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
    if x.shape[1] == 0:
        raise ValueError(f"expected at least one time step, got x of shape {tuple(x.shape)}")
    state = x.new_zeros(x.shape[0], *a.shape) if state is None else state
    return _selective_scan(x, delta, a, b, c, state)[:2]


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

    def selective(x: Tensor) -> Tensor:
        return selective_scan(x, x.square(), -torch.ones(2, 3).to(x), x[..., [0, 1, 0]], x[..., [1, 1, 0]])[0]

    for system, name in ((diagonal, "DiagonalSystem"), (dense, "DenseSystem")):
        run = partial(_outputs, system)
        yield Claim(linearity(), run, signal, name=name)
        yield Claim(causality(time=1), run, signal, name=name)
        yield Claim(cached_decoding(step=partial(step, system)), run, signal, name=name)
        yield Claim(agreement(other=partial(traced_linear_scan, system=system)), run, signal, name=f"{name}, traced")
    yield Claim(causality(time=1), selective, signal, name="selective_scan")


def _outputs(system: LinearSystem, x: Tensor) -> Tensor:
    return linear_scan(x, system)[0]
