r"""Discrete linear systems: the matrices of a chunk of steps, and the kernel.

A system over a chunk of steps is a few small matrices: their products with the inputs of the chunk and with the state
before it give the outputs and the next state. The kernel is a product of two matrices, of the powers of the transition
up to the root of the length and of the powers of its power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn import functional as F


class ChunkMatrices(NamedTuple):
    r"""A linear time-invariant system over a chunk of $m$ steps, for each of $d$ channels, in real numbers.

    With the inputs $u$ of a chunk and the state $s$ before it, the outputs are $y = T u + O s$ and the next state is
    $s' = M s + I u$. A complex mode is two neighboring entries of the state: its real and its imaginary part.
    """

    toeplitz: Float[Tensor, "d m m"]
    r"""$T^\top$: entry $(l, j)$ is the response $k_{j - l}$ at step $j$ to an input at step $l \le j$."""
    inputs: Float[Tensor, "d m n"]
    r"""$I^\top$: row $l$ is what an input at step $l$ adds to the state at the end of the chunk."""
    outputs: Float[Tensor, "d m n"]
    r"""$O$: row $j$ is the output at step $j$ of the state before the chunk."""
    transition: Float[Tensor, "d n n"] | Float[Tensor, "d k 2"]
    """$M$: a matrix, or the real and imaginary parts of a complex diagonal one."""


@runtime_checkable
class LinearSystem(Protocol):
    """Discrete linear time-invariant systems, one for each of $d$ channels."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of channels, and of real states of a channel."""
        ...

    def matrices(self, m: int, dtype: torch.dtype) -> ChunkMatrices:
        """Returns the system over a chunk of `m` steps."""
        ...

    def kernel(self, length: int, dtype: torch.dtype) -> Float[Tensor, "d t"]:
        """Returns the response to an impulse."""
        ...

    def step(
        self, x: Float[Tensor, "b d"], state: Float[Tensor, "b d n"]
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d n"]]:
        """Returns the output for one sample, and the next state."""
        ...

    def to(self, dtype: torch.dtype) -> LinearSystem:
        """Returns the system with weights in the precision of `dtype`."""
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

    @property
    def shape(self) -> tuple[int, int]:
        """Number of channels, and of real states of a channel."""
        return self.b.shape[0], 2 * self.b.shape[1]

    def matrices(self, m: int, dtype: torch.dtype) -> ChunkMatrices:
        """Returns the system over a chunk of `m` steps."""
        return ChunkMatrices(*_diagonal_matrices(self.transition, self.b, self.c, self.d, m, dtype)[:4])

    def step(
        self, x: Float[Tensor, "b d"], state: Float[Tensor, "b d n"]
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d n"]]:
        """Returns the output for one sample, and the next state."""
        system, modes = self.to(x.dtype), _as_complex(state)
        y = torch.addcmul(2 * (system.c * modes).real.sum(-1), system.d, x)
        return y, _as_pairs(torch.addcmul(system.b * x.unsqueeze(-1), system.transition, modes))

    def to(self, dtype: torch.dtype) -> DiagonalSystem:
        """Returns the system with weights in the precision of `dtype`."""
        transition, b, c = (x.to(dtype.to_complex()) for x in (self.transition, self.b, self.c))
        return DiagonalSystem(transition, b, c, self.d.to(dtype))

    def kernel(self, length: int, dtype: torch.dtype) -> Float[Tensor, "d t"]:
        r"""Returns the response to an impulse: $d$, then $2 \operatorname{Re} \sum c \lambda^{t - 1} b$."""
        response = _exponential_sum(self.transition, 2 * self.b * self.c, length - 1, dtype)
        return torch.cat([self.d.unsqueeze(-1).to(dtype), response], -1)


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

    @property
    def shape(self) -> tuple[int, int]:
        """Number of channels, and of states of a channel."""
        return self.b.shape[0], self.b.shape[1]

    def matrices(self, m: int, dtype: torch.dtype) -> ChunkMatrices:
        """Returns the system over a chunk of `m` steps."""
        inputs = _krylov_rows(self.transition.mT, self.b, m)
        outputs = _krylov_rows(self.transition, self.c, m)
        return ChunkMatrices(
            _toeplitz(self.d, (outputs[:, :-1] @ self.b.unsqueeze(-1)).squeeze(-1)).to(dtype),
            inputs.flip(-2).to(dtype),
            outputs.to(dtype),
            torch.linalg.matrix_power(self.transition, m).to(dtype),
        )

    def step(
        self, x: Float[Tensor, "b d"], state: Float[Tensor, "b d n"]
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d n"]]:
        """Returns the output for one sample, and the next state."""
        system = self.to(x.dtype)
        y = torch.addcmul((system.c * state).sum(-1), system.d, x)
        after = (system.transition @ state.unsqueeze(-1)).squeeze(-1)
        return y, torch.addcmul(after, system.b, x.unsqueeze(-1))

    def to(self, dtype: torch.dtype) -> DenseSystem:
        """Returns the system with weights in the precision of `dtype`."""
        return DenseSystem(*(x.to(dtype) for x in (self.transition, self.b, self.c, self.d)))

    def kernel(self, length: int, dtype: torch.dtype) -> Float[Tensor, "d t"]:
        r"""Returns the response to an impulse: $d$, then $c^\top A^{t - 1} b$."""
        m = math.isqrt(max(length - 2, 0)) + 1  # m times m responses are enough
        outputs = _krylov_rows(self.transition, self.c, m)
        states = _krylov_rows(torch.linalg.matrix_power(self.transition, m).mT, self.b, m)
        response = (states @ outputs.mT).flatten(1)[:, : length - 1]
        return torch.cat([self.d.unsqueeze(-1), response], -1).to(dtype)


def _krylov_rows(a: Float[Tensor, "d n n"], first: Float[Tensor, "d n"], m: int) -> Float[Tensor, "d m n"]:
    """Rows v, v A, v A^2 and so on, by doubling."""
    rows = first.unsqueeze(-2)
    while rows.shape[-2] < m:
        rows = torch.cat([rows, rows @ a], -2)
        a = a @ a if rows.shape[-2] < m else a
    return rows[:, :m]


def _powers(x: Complex[Tensor, "d k"], n: int, dtype: torch.dtype) -> Complex[Tensor, "d n k"]:
    """Powers 0 to n - 1, computed by doubling and rounded once."""
    powers, factor, length = x.new_empty(x.shape[0], n, x.shape[1]), x, 1
    powers[:, 0] = 1.0
    while length < n:
        more = min(length, n - length)
        torch.mul(powers[:, :more], factor.unsqueeze(1), out=powers[:, length : length + more])
        factor, length = factor * factor, length + more
    return powers.to(dtype.to_complex())


def _toeplitz(direct: Float[Tensor, " d"], response: Float[Tensor, "d n"]) -> Float[Tensor, "d m m"]:
    """The matrix with entry (l, j) = k[j - l] for l <= j, and 0 otherwise, where k is `direct` and then `response`."""
    kernel = torch.cat([direct.unsqueeze(-1), response], -1)
    m = kernel.shape[-1]
    return F.pad(kernel, (m - 1, 0)).unfold(-1, m, 1).flip(-2)


def _diagonal_sums(x: Float[Tensor, "d m m"]) -> Float[Tensor, "d m"]:
    """Sums of the entries (l, l + s) for each s >= 0: the transpose of `_toeplitz`."""
    d, m, _ = x.shape
    shifted = F.pad(F.pad(x, (0, m)).flatten(1), (0, m)).view(d, m, 2 * m + 1)  # row l is shifted to the left by l
    return shifted[..., :m].sum(1)


def _schema(inputs: str, num_outputs: int) -> str:
    """Returns the schema of an operator on tensors. Torch cannot infer it from a function that checks its types."""
    return f"({', '.join(f'Tensor {name}' for name in inputs.split())}) -> ({', '.join(['Tensor'] * num_outputs)})"


def _contiguous_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _as_complex(x: Float[Tensor, "*shape n"]) -> Complex[Tensor, "*shape k"]:
    return torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2)))


def _as_pairs(x: Complex[Tensor, "*shape k"]) -> Float[Tensor, "*shape n"]:
    return torch.view_as_real(x.resolve_conj().contiguous()).flatten(-2)


@torch.library.custom_op(
    "lawful::diagonal_matrices",
    mutates_args=(),
    schema="(Tensor transition, Tensor b, Tensor c, Tensor d, SymInt m, ScalarType dtype)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _diagonal_matrices(
    transition: Tensor, b: Tensor, c: Tensor, d: Tensor, m: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`ChunkMatrices` of a diagonal system, and the powers 0 to m of its transition, in `dtype`."""
    powers = _powers(transition, m + 1, dtype)
    b, c = b.to(powers.dtype), 2 * c.to(powers.dtype)
    outputs = torch.view_as_real(powers[:, :m] * c.unsqueeze(1))
    outputs[..., 1].neg_()
    outputs = outputs.flatten(-2)
    response = (outputs[:, :-1] @ _as_pairs(b).unsqueeze(-1)).squeeze(-1)
    return (
        _toeplitz(d.to(dtype), response).contiguous(),
        _as_pairs(powers[:, :m].flip(1) * b.unsqueeze(1)),
        outputs,
        torch.view_as_real(powers[:, m].clone(memory_format=torch.contiguous_format)),
        powers,
    )


@_diagonal_matrices.register_fake
def _(
    transition: Tensor, b: Tensor, c: Tensor, d: Tensor, m: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    dim, k = transition.shape
    real = transition.new_empty((dim, m, 2 * k), dtype=dtype)
    powers = transition.new_empty((dim, m + 1, k), dtype=dtype.to_complex())
    return real.new_empty(dim, m, m), real, torch.empty_like(real), real.new_empty(dim, k, 2), powers


@torch.library.custom_op(
    "lawful::diagonal_matrices_backward",
    mutates_args=(),
    schema=_schema("toeplitz inputs outputs last b c powers", 4),
)
def _diagonal_matrices_backward(
    toeplitz: Tensor, inputs: Tensor, outputs: Tensor, last: Tensor, b: Tensor, c: Tensor, powers: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the transition, b, c and d, from those of the matrices."""
    m, conjugates = inputs.shape[1], powers.conj().resolve_conj()
    b, c = b.conj().to(powers.dtype), 2 * c.conj().to(powers.dtype)
    kernel = _diagonal_sums(toeplitz).unsqueeze(-1)
    added = _as_complex(inputs).flip(1)  # gradient of the powers times b
    weighted = _as_complex(outputs).conj().resolve_conj()  # gradient of the powers times 2 c
    weighted[:, :-1] += kernel[:, 1:] * b.unsqueeze(1)
    gb = (conjugates[:, :m] * added).sum(1) + (conjugates[:, : m - 1] * kernel[:, 1:]).sum(1) * c
    gc = 2 * (conjugates[:, :m] * weighted).sum(1)
    gpowers = torch.cat([added * b.unsqueeze(1) + weighted * c.unsqueeze(1), torch.view_as_complex(last)[:, None]], 1)
    orders = torch.arange(1, m + 1, device=b.device).to(toeplitz).unsqueeze(-1)
    slopes = conjugates[:, :m] * orders  # of power l: l times power l - 1
    return (gpowers[:, 1:] * slopes).sum(1), gb, gc, kernel[:, 0, 0].clone()


@_diagonal_matrices_backward.register_fake
def _(
    toeplitz: Tensor, inputs: Tensor, outputs: Tensor, last: Tensor, b: Tensor, c: Tensor, powers: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mode = powers.new_empty(b.shape)
    return mode, torch.empty_like(mode), torch.empty_like(mode), toeplitz.new_empty(b.shape[0])


def _save_diagonal(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(inputs[1], inputs[2], output[4])
    ctx.dtypes = [x.dtype for x in inputs[:4]]


def _differentiate_diagonal(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    found = _diagonal_matrices_backward(*(g.contiguous() for g in grads[:4]), *ctx.saved_tensors)
    return *(g.to(dtype) for g, dtype in zip(found, ctx.dtypes, strict=True)), None, None


_diagonal_matrices.register_autograd(_differentiate_diagonal, setup_context=_save_diagonal)


@torch.library.custom_op(
    "lawful::exponential_sum",
    mutates_args=(),
    schema="(Tensor base, Tensor weights, SymInt length, ScalarType dtype) -> Tensor",
)
def _exponential_sum(base: Tensor, weights: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    r"""$\operatorname{Re} \sum_k w_k \lambda_k^l$ for each channel and l < length, in `dtype`.

    A matrix product of the powers $\lambda^{jm}$ and $\lambda^l$ with $l < m$, where m is the root of the length.
    """
    inner, outer = _two_levels(base, length, dtype)
    terms = _as_pairs(outer * weights.to(outer.dtype).unsqueeze(1))
    return (terms @ _as_pairs(inner.conj().resolve_conj()).mT).flatten(1)[:, :length].contiguous()


@_exponential_sum.register_fake
def _(base: Tensor, weights: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    return base.new_empty((base.shape[0], length), dtype=dtype)


@torch.library.custom_op("lawful::exponential_sum_backward", mutates_args=(), schema=_schema("grad base weights", 2))
def _exponential_sum_backward(grad: Tensor, base: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the base and the weights."""
    inner, outer = (x.conj().resolve_conj() for x in _two_levels(base, grad.shape[1], grad.dtype))
    m, w = inner.shape[1], weights.conj().to(inner.dtype)
    grad = F.pad(grad, (0, m * m - grad.shape[1])).unflatten(-1, (m, m))
    orders = torch.arange(m).to(grad)
    sums = _as_complex(grad @ _as_pairs(inner))
    slopes = _as_complex((grad * orders)[..., 1:] @ _as_pairs(inner[:, :-1]))  # of power l: l times power l - 1
    before = (outer[:, :-1] * sums[:, 1:] * (m * orders[1:]).unsqueeze(-1)).sum(1) * inner[:, -1]
    gbase = w * ((outer * slopes).sum(1) + before)
    return gbase.to(base.dtype), (outer * sums).sum(1).to(weights.dtype)


@_exponential_sum_backward.register_fake
def _(grad: Tensor, base: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    return _contiguous_like(base), _contiguous_like(weights)


def _two_levels(base: Tensor, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Powers l and j m of the base for l < m and j < m, where m * m is at least the length."""
    m = math.isqrt(max(length - 1, 0)) + 1
    inner = _powers(base, m + 1, torch.float64)
    return inner[:, :m].to(dtype.to_complex()), _powers(inner[:, m], m, dtype)


def _save_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _differentiate_sum(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *_exponential_sum_backward(grad, *ctx.saved_tensors), None, None


_exponential_sum.register_autograd(_differentiate_sum, setup_context=_save_sum)
