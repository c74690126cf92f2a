r"""State-space layers: S4, S4D, DSS, exponential moving averages, and the selective layer of Mamba.

A state-space model maps a signal $u$ to a signal $y$ through a state $s$,

$$s'(t) = A s(t) + B u(t), \qquad y(t) = C s(t) + D u(t)$$

Sampled with step $\Delta$ it is a recurrence, and therefore also a convolution with a long kernel. The layers below
have one such model per channel. They compute the recurrence in parallel (`linear_scan`), step by step (`step`), or as
a convolution (`convolve`), with the same result. The sampling step is `rate` times the learned one, so that a trained
layer also runs on a signal with another sampling rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.kv_cache import RecurrentCache
from lawful.functions._validation import unless_traced
from lawful.functions.attention import NO_MASK, Mask
from lawful.functions.hippo import HIPPO_OPERATORS
from lawful.functions.linear_system import DenseSystem, DiagonalSystem, LinearSystem
from lawful.functions.scan import fft_convolution, linear_filter, linear_scan
from lawful.functions.selective_scan import selective_scan
from lawful.laws import (
    Claim,
    agreement,
    boundedness,
    cached_decoding,
    causality,
    linearity,
    recurrence,
    resampling,
    shape,
    time_invariance,
)


class ContinuousSystem(NamedTuple):
    r"""Matrices of continuous state-space models, one per channel, in double precision. Time is in samples.

    $$s'(t) = A s(t) + B u(t), \qquad y(t) = C s(t) + D u(t)$$

    Args:
        a: Matrix $A$.
        b: Input weights $B$.
        c: Output weights $C$.
        d: Direct weight $D$.
    """

    a: Float[Tensor, "d n n"]
    b: Float[Tensor, "d n 1"]
    c: Float[Tensor, "d 1 n"]
    d: Float[Tensor, "d 1 1"]


class _ChannelSSM(nn.Module):
    """One linear time-invariant state-space model per channel, with a skip connection.

    Subclasses define `system`, the discretized models, and `_matrices`, the continuous ones.
    """

    def __init__(self, dim: int, *, state_dim: int, dt_min: float, dt_max: float) -> None:
        super().__init__()
        if dim < 1 or state_dim < 1:
            raise ValueError(f"dim and state_dim must be at least 1, got dim={dim}, state_dim={state_dim}")
        _check_steps(dt_min, dt_max)
        self.dim, self.state_dim = dim, state_dim
        low, high = math.log(dt_min), math.log(dt_max)
        self.log_dt = nn.Parameter(low + (high - low) * torch.rand(dim))
        self.skip = nn.Parameter(torch.randn(dim))

    def system(self, rate: float = 1.0) -> LinearSystem:
        """Returns the discretized models.

        Args:
            rate: Factor of the sampling step.
        """
        raise TypeError(f"{type(self).__name__} must define system(rate)")

    def _matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        """A (d, n, n), B and C (d, n) of the models, before they are multiplied by the step."""
        raise TypeError(f"{type(self).__name__} must define _matrices()")

    def continuous(self, rate: float = 1.0) -> ContinuousSystem:
        r"""Returns the continuous models in real coordinates: $\Delta A$, $\Delta B$, $C$ and $D$.

        `scipy.signal.StateSpace` takes the four matrices of a channel.

        Args:
            rate: Factor of the sampling step.
        """
        (a, b, c), step = self._matrices(), self._steps(rate).view(-1, 1, 1)
        return ContinuousSystem(step * a, step * b.unsqueeze(-1), c.unsqueeze(-2), self.skip.double()[:, None, None])

    def kernel(self, length: int, *, rate: float = 1.0) -> Float[Tensor, "d t"]:
        r"""Returns the convolution kernel: the response to an impulse.

        Args:
            length: Number of entries.
            rate: Factor of the sampling step.
        """
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        return self.system(rate).kernel(length, _scan_dtype(self.skip))

    def forward(
        self, x: Float[Tensor, "b t d"], *, cache: RecurrentCache | None = None, rate: float = 1.0
    ) -> Float[Tensor, "b t d"]:
        """Filters signals.

        Args:
            x: Signals.
            cache: State before the signals, from `cache()`; it is updated.
            rate: Factor of the sampling step: 2 for a signal with half of the samples.
        """
        _check_signal(self, x, rate)
        with torch.autocast(x.device.type, enabled=False):
            u = x.to(_scan_dtype(self.skip))
            if cache is None:
                return linear_filter(u, self.system(rate)).to(x.dtype)
            state = self._checked(cache.state, len(x))
            if x.shape[1] == 1 and (versions := _versions(self)) is not None:  # many tokens have the same weights
                system = cache.reuse((rate, *versions), lambda: self.system(rate).to(u.dtype))
            else:
                system = self.system(rate)
            y, state = linear_scan(u, system, state)
        cache.write([state], x.shape[1])
        return y.to(x.dtype)

    def convolve(self, x: Float[Tensor, "b t d"], *, rate: float = 1.0) -> Float[Tensor, "b t d"]:
        r"""Filters signals by an FFT with the whole kernel: the same result as `forward`, in time $O(t \log t)$.

        Args:
            x: Signals.
            rate: Factor of the sampling step.
        """
        _check_signal(self, x, rate)
        with torch.autocast(x.device.type, enabled=False):
            u = x.to(_scan_dtype(self.skip))
            return fft_convolution(u, self.kernel(x.shape[1], rate=rate)).to(x.dtype)

    def step(
        self, x: Float[Tensor, "b d"], state: Float[Tensor, "b d n"], rate: float = 1.0
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d n"]]:
        """Filters one sample, and returns the output and the next state.

        Args:
            x: Sample.
            state: State, from `initial_state` or an earlier step.
            rate: Factor of the sampling step.
        """
        _check_sample(self, x)
        cache = self.cache()
        cache.write([state], 0)
        return self(x.unsqueeze(1), cache=cache, rate=rate).squeeze(1), cache.state[0]

    def initial_state(self, batch: int) -> Float[Tensor, "b d n"]:
        """Returns the zero state.

        Args:
            batch: Number of signals.
        """
        return self.skip.new_zeros(batch, self.dim, self.state_dim, dtype=_scan_dtype(self.skip))

    def cache(self, *, window: int | None = None) -> RecurrentCache:
        """Returns an empty cache, for signals that come in parts. `window` has no effect on a state."""
        return RecurrentCache()

    def _steps(self, rate: float) -> Float[Tensor, " d"]:
        """The sampling step of each channel, in double precision."""
        _check_rate(rate)
        return rate * self.log_dt.double().exp()

    def _checked(self, state: tuple[Tensor, ...], batch: int) -> Tensor | None:
        return _check_state(state[0], (batch, self.dim, self.state_dim)) if state else None

    def extra_repr(self) -> str:
        return f"{self.dim}, state_dim={self.state_dim}"


def _versions(layer: nn.Module) -> tuple[Hashable, ...] | None:
    """Identifies the values of all parameters; None if they are not known, or if gradients are needed."""
    parameters = tuple(layer.parameters())
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or any(p.is_inference() for p in parameters):
        return None
    return tuple((p.data_ptr(), p._version, p.dtype) for p in parameters)


def _vector(x: Tensor) -> nn.Parameter:
    """A flat parameter: optimizers treat it as a vector, without weight decay and without Muon."""
    return nn.Parameter(x.float().reshape(-1).clone())


def _scan_dtype(weight: Tensor) -> torch.dtype:
    """States need float32 at least, also in a model in half precision."""
    return torch.promote_types(weight.dtype, torch.float32)


def _check_signal(layer: Any, x: Tensor, rate: float) -> None:
    if x.dim() != 3 or x.shape[-1] != layer.dim or not x.shape[1]:
        raise ValueError(f"expected x of shape (b, t, {layer.dim}) with t >= 1, got {tuple(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"x must have a floating-point dtype, got {x.dtype}")
    _check_rate(rate)
    if x.device.type == "cpu" and _has_non_finite(x):
        raise ValueError("x must be finite, got NaN or infinite values")


def _check_sample(layer: Any, x: Tensor) -> None:
    if x.dim() != 2 or x.shape[-1] != layer.dim:
        raise ValueError(f"expected x of shape (b, {layer.dim}), got {tuple(x.shape)}")


def _check_rate(rate: float) -> None:
    if not 0 < rate < math.inf:
        raise ValueError(f"rate must be positive and finite, got {rate}")


def _check_state(state: Tensor, expected: tuple[int, ...]) -> Tensor:
    if not isinstance(state, Tensor) or state.shape != expected:
        found = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
        raise ValueError(f"expected a state of shape {tuple(expected)}, got {found}")
    if not state.is_floating_point():
        raise TypeError(f"state must have a floating-point dtype, got {state.dtype}")
    return state


def _check_steps(dt_min: float, dt_max: float) -> None:
    if not 0 < dt_min <= dt_max < math.inf:
        raise ValueError(f"expected 0 < dt_min <= dt_max, both finite, got dt_min={dt_min}, dt_max={dt_max}")


@unless_traced
def _has_non_finite(x: Tensor) -> bool:
    return not all(math.isfinite(bound) for bound in x.detach().aminmax()) if x.numel() else False


def _lin_modes(n: int) -> Tensor:
    return torch.complex(torch.full((n,), -0.5), math.pi * torch.arange(n))


def _inv_modes(n: int) -> Tensor:
    k = torch.arange(n, dtype=torch.float64)
    return torch.complex(torch.full((n,), -0.5), (2 * n / math.pi * (2 * n / (2 * k + 1) - 1)).float())


def _legs_modes(n: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Modes of HiPPO-LegS: $A = \Lambda - P P^*$ in the eigenbasis of its normal part, and $P$ and $B$ there.

    Only the modes with a positive imaginary part are returned; the others are their conjugates.
    """
    with torch.device("cpu"):  # an eigendecomposition has no meta kernel
        operator = HIPPO_OPERATORS["legs"]
        a, b = operator.matrices(2 * n)
        p = operator.low_rank(2 * n).squeeze(-1) / 2**0.5
        normal = a + torch.outer(p, p)
        values, vectors = torch.linalg.eigh(-1j * (normal + 0.5 * torch.eye(2 * n)))
        basis = vectors[:, values > 0]
        modes = torch.complex(torch.full((n,), -0.5, dtype=torch.float64), values[values > 0])
    device = torch.empty(0).device
    return modes.to(device), (basis.mH @ p.to(basis.dtype)).to(device), (basis.mH @ b.to(basis.dtype)).to(device)


_MODES: Mapping[str, Callable[[int], Tensor]] = {
    "lin": _lin_modes,
    "inv": _inv_modes,
    "legs": lambda n: _legs_modes(n)[0],
}
"""Initial modes $A_n$ of a diagonal model, for $n = 0, \\dots, N - 1$."""


class S4D(_ChannelSSM):
    r"""Diagonal state-space model: each channel is a sum of damped oscillations.

    $$s_n'(t) = A_n s_n(t) + u(t), \qquad y(t) = 2 \operatorname{Re} \sum_n C_n s_n(t) + D u(t)$$

    with $\operatorname{Re} A_n < 0$: every mode decays. The initial modes are $A_n = -\tfrac12 + i \pi n$ ("lin"),
    $-\tfrac12 + i \tfrac{N}{\pi} \bigl(\tfrac{N}{2n + 1} - 1\bigr)$ ("inv"), or the eigenvalues of the normal part of
    HiPPO-LegS ("legs"). With "legs" and a zero-order hold this is also DSS with exponential kernels.

    A signal between its samples is constant (`"zoh"`, as in the paper) or linear (`"foh"`). A change of the sampling
    rate changes the output of a smooth signal by $O(\Delta^2)$. A zero-order hold advances the signal by half a step;
    at another rate, the held value is a mean of two samples that keeps the advance of rate 1. The bilinear rule changes
    fast modes; at another rate, the layer keeps the modes of rate 1, and the gain and delay of slow signals.

    Reference:
        Gu, Gupta, Goel and Ré, *On the Parameterization and Initialization of Diagonal State Space Models*, 2022.

    Args:
        dim: Number of channels.
        state_dim: Number of real states per channel: two for each mode. Even.
        init: Initial modes: "lin", "inv" or "legs".
        discretization: "foh" (first-order hold), "zoh" (zero-order hold) or "bilinear".
        dt_min: Smallest initial step $\Delta$.
        dt_max: Largest initial step.

    Examples:
        >>> layer = S4D(8, state_dim=16)
        >>> layer(torch.zeros(2, 100, 8)).shape, layer.kernel(100).shape
        (torch.Size([2, 100, 8]), torch.Size([8, 100]))
    """

    def __init__(
        self,
        dim: int,
        *,
        state_dim: int = 64,
        init: str = "lin",
        discretization: Literal["foh", "zoh", "bilinear"] = "foh",
        dt_min: float = 1e-3,
        dt_max: float = 1e-1,
    ) -> None:
        super().__init__(dim, state_dim=state_dim, dt_min=dt_min, dt_max=dt_max)
        _check_choice("init", init, _MODES)
        _check_choice("discretization", discretization, ("foh", "zoh", "bilinear"))
        if state_dim % 2:
            raise ValueError(f"state_dim must be even (two states per mode), got {state_dim}")
        self.init, self.discretization = init, discretization
        modes = _MODES[init](state_dim // 2).expand(dim, -1)
        self.log_decay, self.frequency = _vector((-modes.real).log()), _vector(modes.imag)
        self.c = _vector(torch.randn(dim, state_dim // 2, 2) * 0.5**0.5)

    def modes(self) -> Complex[Tensor, "d k"]:
        """Returns the modes $A_n$ of each channel, in double precision."""
        return torch.complex(-self.log_decay.double().exp(), self.frequency.double()).view(self.dim, -1)

    def _matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        b = torch.tensor([1.0, 0.0]).to(self.c.double()).repeat(self.dim, self.state_dim // 2)
        return _real_matrix(self.modes()), b, _real_weights(self.c, self.dim)

    def system(self, rate: float = 1.0) -> DiagonalSystem:
        """Returns the discretized models."""
        a, c = self.modes(), torch.view_as_complex(self.c.double().view(self.dim, -1, 2))
        z = self._steps(rate).unsqueeze(-1) * a
        exponent = 2 * rate * torch.atanh(z / (2 * rate)) if self.discretization == "bilinear" else z
        transition, whole = exponent.exp(), torch.expm1(exponent) / a
        if self.discretization == "bilinear":
            now = whole + whole / z - transition / a
        else:
            now = _phi2(z) * z / a if self.discretization == "foh" else _hold_weight(rate) * whole
        before = whole - now
        direct = self.skip.double() + 2 * (c * now).real.sum(-1)
        return DiagonalSystem(transition, transition * now + before, c, direct)


def _hold_weight(rate: float) -> float:
    """Weight of the present sample in the value that a zero-order hold keeps; the last sample has the rest.

    The hold of a step of size `rate` is half of it early, that of rate 1 half of 1. The mean is late by the difference.
    """
    return (1 + 1 / rate) / 2


def _phi2(z: Complex[Tensor, "*shape"]) -> Complex[Tensor, "*shape"]:
    """(e^z - 1 - z) / z^2, by its series for small z."""
    small = z.abs() < 1e-2
    safe = z.masked_fill(small, 1.0)
    series = 0.5 + z / 6 * (1 + z / 4 * (1 + z / 5 * (1 + z / 6)))
    return torch.where(small, series, (torch.expm1(safe) - safe) / safe.square())


def _check_choice(name: str, value: str, choices: Any) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


_DOUBLINGS = 3
"""The bilinear rule of `S4` has 8 steps for each sample."""


class S4(_ChannelSSM):
    r"""Structured state-space model: HiPPO-LegS as a diagonal matrix plus a matrix of rank one (DPLR).

    $$A = \Lambda - P P^*, \qquad
    s_{k+1} = \bigl(I - \tfrac{h}{2} A\bigr)^{-1}
    \bigl((I + \tfrac{h}{2} A) s_k + \tfrac{h}{2} B (u_k + u_{k+1})\bigr)$$

    This is the bilinear rule, in 8 steps of size $h = \Delta / 8$ for each sample, with a signal that is linear between
    its samples. One step of size $\Delta$, as in the paper, makes fast modes ring, and the output of a resampled signal
    three times as different.

    All models are stable: the Hermitian part of $A$ is negative. The powers of $\bar A$ up to the length of a chunk are
    computed in double precision, so that kernel and recurrence agree to single precision at any length. The published
    kernel needs $C (I - \bar A^t)$ and roots of unity, which lose three digits at length 16,384.

    Reference:
        Gu, Goel and Ré, *Efficiently Modeling Long Sequences with Structured State Spaces*, 2021.

    Args:
        dim: Number of channels.
        state_dim: Number of real states per channel. Even.
        dt_min: Smallest initial step $\Delta$.
        dt_max: Largest initial step.

    Examples:
        >>> S4(8, state_dim=16)(torch.zeros(2, 100, 8)).shape
        torch.Size([2, 100, 8])
    """

    def __init__(self, dim: int, *, state_dim: int = 64, dt_min: float = 1e-3, dt_max: float = 1e-1) -> None:
        super().__init__(dim, state_dim=state_dim, dt_min=dt_min, dt_max=dt_max)
        if state_dim % 2:
            raise ValueError(f"state_dim must be even (two states per mode), got {state_dim}")
        modes, p, b = (x.expand(dim, -1) for x in _legs_modes(state_dim // 2))
        self.log_decay, self.frequency = _vector((-modes.real).log()), _vector(modes.imag)
        self.p, self.b = _vector(torch.view_as_real(p)), _vector(torch.view_as_real(b))
        self.c = _vector(torch.randn(dim, state_dim // 2, 2) * 0.5**0.5)

    def matrix(self) -> Float[Tensor, "d n n"]:
        """Returns $A$ in real coordinates: the real and the imaginary part of each mode, in double precision."""
        decay, frequency = -self.log_decay.double().exp(), self.frequency.double()
        diagonal = _real_matrix(torch.complex(decay, frequency).view(self.dim, -1))
        p = self.p.double().view(self.dim, -1)
        return diagonal - 2 * p.unsqueeze(-1) * p.unsqueeze(-2)

    def _matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.matrix(), self.b.double().view(self.dim, -1), _real_weights(self.c, self.dim)

    def system(self, rate: float = 1.0) -> DenseSystem:
        """Returns the discretized models."""
        half = self._steps(rate).view(-1, 1, 1) / 2 ** (_DOUBLINGS + 1)
        a, b = half * self.matrix(), half * self.b.double().view(self.dim, -1, 1)
        identity = torch.eye(self.state_dim, dtype=a.dtype, device=a.device)
        solved = torch.linalg.solve(identity - a, torch.cat([identity + a, b], -1))
        transition, now = solved[..., :-1], solved[..., -1:]
        before = now
        for _ in range(_DOUBLINGS):  # two steps, with the mean of both samples between them
            middle = (transition @ now + before) / 2
            transition, before, now = transition @ transition, transition @ before + middle, middle + now
        c = _real_weights(self.c, self.dim)
        direct = self.skip.double() + (c * now.squeeze(-1)).sum(-1)
        return DenseSystem(transition, (transition @ now + before).squeeze(-1), c, direct)


def _real_matrix(modes: Complex[Tensor, "d k"]) -> Float[Tensor, "d n n"]:
    """Acts on the real and the imaginary part of each coordinate as the diagonal matrix of the modes."""
    blocks = torch.stack([modes.real, -modes.imag, modes.imag, modes.real], -1).unflatten(-1, (2, 2))
    dim, k = modes.shape
    matrix = blocks.new_zeros(dim, k, 2, k, 2)
    matrix.diagonal(dim1=1, dim2=3).copy_(blocks.permute(0, 2, 3, 1))
    return matrix.flatten(3, 4).flatten(1, 2)


def _real_weights(c: Tensor, dim: int) -> Float[Tensor, "d n"]:
    """Twice the real part of the output, from pairs of real and imaginary parts."""
    return (2 * c.double().view(dim, -1, 2) * c.new_tensor([1.0, -1.0])).flatten(1)


class EMALayer(_ChannelSSM):
    r"""Exponential moving average of each channel: the state-space model with one real state.

    $$s_k = \lambda s_{k-1} + (1 - \lambda) \, u_k, \qquad \lambda = e^{-\Delta}, \qquad y_k = s_k + D u_k$$

    At another `rate` than 1, $u_k$ in the average is a mean of two samples that keeps its delay.

    Args:
        dim: Number of channels.
        dt_min: Smallest initial step $\Delta$: the inverse of the longest memory.
        dt_max: Largest initial step.

    Examples:
        >>> layer = EMALayer(1, dt_min=0.1)
        >>> y = layer(torch.ones(1, 300, 1)) - layer.skip
        >>> y[0, -1].round(decimals=3)
        tensor([1.], grad_fn=<RoundBackward1>)
    """

    def __init__(self, dim: int, *, dt_min: float = 1e-3, dt_max: float = 1.0) -> None:
        super().__init__(dim, state_dim=1, dt_min=dt_min, dt_max=dt_max)

    def _matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        one = torch.ones_like(self.skip, dtype=torch.float64).unsqueeze(-1)
        return -one.unsqueeze(-1), one, one

    def system(self, rate: float = 1.0) -> DenseSystem:
        """Returns the discretized models."""
        exponent = -self._steps(rate).unsqueeze(-1)
        decay, whole = exponent.exp(), -torch.expm1(exponent)
        now = _hold_weight(rate) * whole
        b, direct = decay * now + whole - now, self.skip + now.squeeze(-1)
        return DenseSystem(decay.unsqueeze(-1), b, torch.ones_like(decay), direct)


class StateSpace(nn.Module):
    r"""State-space layer, for the place of attention: one model per channel, an activation, and a gated projection.

    $$y = W_1 z \odot \sigma(W_2 z), \qquad z = \operatorname{gelu}(\operatorname{SSM}(x))$$

    Causal by construction. With a cache it continues from a state of constant size.

    Args:
        dim: Width of the input and output.
        ssm: Factory for the models, called with `dim`: `S4D`, `partial(S4, state_dim=32)`, `EMALayer`.
        dropout: Dropout probability after the activation.

    Examples:
        >>> layer = StateSpace(8)
        >>> layer(torch.zeros(2, 100, 8)).shape
        torch.Size([2, 100, 8])
        >>> y, state = layer.step(torch.zeros(2, 8), layer.initial_state(2))
    """

    def __init__(self, dim: int, *, ssm: Callable[[int], _ChannelSSM] = S4D, dropout: float = 0.0) -> None:
        super().__init__()
        self.dim = dim
        self.ssm = ssm(dim)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(dim, 2 * dim, bias=False)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        *,
        mask: Mask = NO_MASK,
        cache: RecurrentCache | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "b t d"]:
        """Applies the layer.

        Args:
            x: Input.
            mask: Padding, whose inputs count as zero. The layer is causal, whether the mask is or not.
            cache: State before the input, from `cache()`; it is updated.
            rate: Factor of the sampling step: 2 for a signal with half of the samples.
        """
        z = self.ssm(_zero_padding(x, mask), cache=cache, rate=rate)
        return F.glu(self.out(self.dropout(F.gelu(z))), dim=-1)

    def step(
        self, x: Float[Tensor, "b d"], state: Float[Tensor, "b d n"], rate: float = 1.0
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d n"]]:
        """Applies the layer to one sample, and returns the output and the next state.

        Args:
            x: Sample.
            state: State, from `initial_state` or an earlier step.
            rate: Factor of the sampling step.
        """
        z, state = self.ssm.step(x, state, rate)
        return F.glu(self.out(self.dropout(F.gelu(z))), dim=-1), state

    def initial_state(self, batch: int) -> Float[Tensor, "b d n"]:
        """Returns the zero state of a batch."""
        return self.ssm.initial_state(batch)

    def cache(self, *, window: int | None = None) -> RecurrentCache:
        """Returns an empty cache. `window` has no effect on a state."""
        return RecurrentCache()


def _zero_padding(x: Tensor, mask: Mask) -> Tensor:
    """Sets the inputs at padding to zero."""
    if mask.documents is not None or mask.pairs is not None or mask.window is not None or mask.prefix:
        raise ValueError("a state-space layer supports causal and padding masks only")
    if mask.padding is None:
        return x
    return x * mask.padding[..., -x.shape[1] :, None]


class SelectiveStateSpace(nn.Module):
    r"""Selective state-space layer: step sizes, input and output weights depend on the input (Mamba).

    $$s_t = e^{\Delta_t A} s_{t-1} + \Delta_t B_t x_t, \qquad y_t = C_t^\top s_t + D x_t, \qquad
    \Delta_t, B_t, C_t = \operatorname{softplus}(W_\Delta x_t), \; W_B x_t, \; W_C x_t$$

    between an input projection with a short causal convolution and a gated output projection. It is causal, but
    not linear. Because of the bias of the convolution, zeros change the state, so that it is not time-invariant either.

    Reference:
        Gu and Dao, *Mamba: Linear-Time Sequence Modeling with Selective State Spaces*, 2023.

    Args:
        dim: Width of the input and output.
        state_dim: Number of states per channel.
        expand: Inner width, as a multiple of `dim`.
        conv_size: Length of the causal convolution.
        dt_rank: Rank of $W_\Delta$. Defaults to `dim / 16`, rounded up.
        dt_min: Smallest initial step.
        dt_max: Largest initial step.

    Examples:
        >>> SelectiveStateSpace(8)(torch.zeros(2, 100, 8)).shape
        torch.Size([2, 100, 8])
    """

    def __init__(
        self,
        dim: int,
        *,
        state_dim: int = 16,
        expand: int = 2,
        conv_size: int = 4,
        dt_rank: int | None = None,
        dt_min: float = 1e-3,
        dt_max: float = 1e-1,
    ) -> None:
        super().__init__()
        inner, rank = expand * dim, -(-dim // 16) if dt_rank is None else dt_rank
        _check_steps(dt_min, dt_max)
        if min(inner, state_dim, conv_size, rank) < 1:
            sizes = f"{dim=}, {state_dim=}, {expand=}, {conv_size=}, dt_rank={rank}"
            raise ValueError(f"sizes must be at least 1, got {sizes}")
        self.dim, self.state_dim, self.inner_dim, self.dt_rank = dim, state_dim, inner, rank
        self.in_proj = nn.Linear(dim, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, conv_size, groups=inner)
        self.x_proj = nn.Linear(inner, rank + 2 * state_dim, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.log_decay = _vector(torch.arange(1.0, state_dim + 1).log().expand(inner, -1))
        self.skip = nn.Parameter(torch.ones(inner))
        self.out = nn.Linear(inner, dim, bias=False)
        dt = torch.exp(torch.rand(inner) * (math.log(dt_max) - math.log(dt_min)) + math.log(dt_min))
        with torch.no_grad():  # softplus(bias) = dt
            self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))
            nn.init.uniform_(self.dt_proj.weight, -(rank**-0.5), rank**-0.5)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        *,
        mask: Mask = NO_MASK,
        cache: RecurrentCache | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "b t d"]:
        """Applies the layer.

        Args:
            x: Input.
            mask: Padding, whose inputs do not reach the state. The layer is causal, whether the mask is or not.
            cache: State before the input, from `cache()`; it is updated.
            rate: Factor of the step sizes. The convolution is not resampled.
        """
        _check_signal(self, x, rate)
        u, gate = self.in_proj(_zero_padding(x, mask)).chunk(2, -1)
        before = u.new_zeros(u.shape[0], self.conv.kernel_size[0] - 1, self.inner_dim)
        state = None
        if cache is not None and cache.state:
            before, state = map(_check_state, cache.state, (before.shape, (len(x), self.inner_dim, self.state_dim)))
        padded = torch.cat([before.to(u.dtype), u], 1)
        u = _zero_padding(F.silu(self._convolve(padded)), mask)
        rank, b, c = self.x_proj(u).split([self.dt_rank, self.state_dim, self.state_dim], -1)
        with torch.autocast(x.device.type, enabled=False):
            dtype = _scan_dtype(self.skip)
            u, b, c, rank, weight, bias = (v.to(dtype) for v in (u, b, c, rank, self.dt_proj.weight, self.dt_proj.bias))
            delta = rate * F.softplus(F.linear(rank, weight, bias))
            a = -self.log_decay.to(dtype).exp().view(self.inner_dim, self.state_dim)
            y, state = selective_scan(u, delta, a, b, c, state)
            y = torch.addcmul(y, u, self.skip.to(dtype))
        if cache is not None:
            cache.write([padded[:, padded.shape[1] - before.shape[1] :], state], x.shape[1])
        return self.out(y.to(gate.dtype) * F.silu(gate)).to(x.dtype)

    def _convolve(self, x: Float[Tensor, "b t i"]) -> Float[Tensor, "b s i"]:
        """Convolves without padding. On a CPU, a sum of shifted products is faster than a grouped convolution."""
        size = self.conv.kernel_size[0]
        taps, t = self.conv.weight.squeeze(1).t().contiguous().unbind(0), x.shape[1] - size + 1
        y = x[:, :t] * taps[0] + cast(Tensor, self.conv.bias)
        for i, tap in enumerate(taps[1:], start=1):
            y = torch.addcmul(y, x[:, i : i + t], tap)
        return y

    def step(
        self, x: Float[Tensor, "b d"], state: tuple[Tensor, Tensor], rate: float = 1.0
    ) -> tuple[Float[Tensor, "b d"], tuple[Tensor, Tensor]]:
        """Applies the layer to one sample, and returns the output and the next state.

        Args:
            x: Sample.
            state: State, from `initial_state` or an earlier step.
            rate: Factor of the step sizes.
        """
        _check_sample(self, x)
        if not isinstance(state, tuple | list) or len(state) != 2:
            raise ValueError(f"state must have two tensors, as from initial_state, got {type(state).__name__}")
        cache = RecurrentCache()
        cache.write(state, 0)
        y = self(x.unsqueeze(1), cache=cache, rate=rate).squeeze(1)
        return y, (cache.state[0], cache.state[1])

    def initial_state(self, batch: int) -> tuple[Float[Tensor, "b s i"], Float[Tensor, "b i n"]]:
        """Returns the zero state of a batch: the last inputs of the convolution, and the state of the scan."""
        inputs = self.skip.new_zeros(batch, self.conv.kernel_size[0] - 1, self.inner_dim)
        return inputs, inputs.new_zeros(batch, self.inner_dim, self.state_dim, dtype=_scan_dtype(self.skip))

    def cache(self, *, window: int | None = None) -> RecurrentCache:
        """Returns an empty cache. `window` has no effect on a state."""
        return RecurrentCache()

    def extra_repr(self) -> str:
        return f"{self.dim}, state_dim={self.state_dim}, inner_dim={self.inner_dim}"


def claims() -> Iterator[Claim]:
    """Laws of state-space layers."""
    signal, short = shape("b t:1..150 2"), shape("b t:1..20 2")
    makes = S4D, partial(S4D, init="legs", discretization="bilinear"), S4
    models = *(make(2, state_dim=4) for make in makes), EMALayer(2)
    for layer in models:
        name = type(layer).__name__ + (f", {layer.init}, {layer.discretization}" if isinstance(layer, S4D) else "")
        for law in (linearity(), time_invariance(), agreement(other="convolve"), causality(time=1)):
            yield Claim(law, layer, signal, name=name)
        yield Claim(resampling(), layer, shape("b 8 2"), name=name)
        decay = boundedness(low=0.0, high=1.0)
        yield Claim(decay, partial(_decay, layer), shape("3"), name=f"{name}, modes at any sampling rate")
    layers = StateSpace(2, ssm=partial(S4D, state_dim=4)), SelectiveStateSpace(2, state_dim=3)
    for layer in models + layers:
        name = type(layer).__name__
        yield Claim(recurrence(start=_start(layer)), layer, short, name=name)
    for layer in layers:
        name = type(layer).__name__
        yield Claim(causality(time=1), layer, signal, name=name)
        yield Claim(cached_decoding(step=_continue(layer)), layer, short, name=f"{name}, in parts")


def _decay(layer: S4D | S4 | EMALayer, steps: Tensor) -> Tensor:
    """Absolute values of the modes of the recurrence, at a rate from the input."""
    transition = layer.system(float(steps.abs().max()) + 1e-3).transition
    return (transition if transition.is_complex() else torch.linalg.eigvals(transition)).abs()


def _start(layer: Any) -> Callable[[Tensor], Any]:
    return lambda x: layer.initial_state(len(x))


def _continue(layer: Any) -> Callable[[Tensor, Any], tuple[Tensor, Any]]:
    def step(x: Tensor, cache: RecurrentCache | None) -> tuple[Tensor, RecurrentCache]:
        cache = layer.cache() if cache is None else cache
        return layer(x, cache=cache), cache

    return step
