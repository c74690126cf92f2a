r"""HiPPO: the history of a signal as coefficients of orthogonal functions, updated online.

At time $t$, the past value $f(s)$ has the age $u = (t - s) / \theta$, where $\theta$ is the window. The state holds the
coefficients of the history in functions $\phi_n$ that are orthonormal under a measure $w$. It obeys a linear ODE:

$$c_n(t) = \int f(t - \theta u) \, \phi_n(u) \, w(u) \, du, \qquad \theta \, \dot c = A c + B f$$
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful._suggest import did_you_mean
from lawful.functions._validation import any_true, check_square
from lawful.laws import Claim, agreement, causality, linearity, shape


@dataclass(frozen=True)
class HiPPOOperator:
    r"""A HiPPO operator: measure, basis and the ODE $\theta \, \dot c = A c + B f$.

    $$A + A^\mathsf{T} = \text{shift} \cdot I - P P^\mathsf{T}$$

    $P$ has few columns, the displacement rank. So $A$ is a normal matrix plus a matrix of low rank, which S4 uses, and
    the product with a vector takes linear time.

    Reference:
        Gu, Dao, Ermon, Rudra and Ré, *HiPPO: Recurrent Memory with Optimal Polynomial Projections*, 2020.
        Gu, Johnson, Timalsina, Rudra and Ré, *How to Train Your HiPPO*, 2022.

    Args:
        name: Name in `HIPPO_OPERATORS`.
        matrices: Function from the number of coefficients to $A$ and $B$, in float64.
        matvec: Function from $x$ to $A x$ along the last dimension, in linear time.
        basis: Function from the number of coefficients and ages $u$ to $\phi_n(u)$, along a new last dimension.
        measure: Function from ages $u$ to $w(u)$.
        shift: Multiple of the identity in $A + A^\mathsf{T}$.
        low_rank: Function from the number of coefficients to $P$, in float64.
        max_age: Largest age under the measure.
        scaled: Whether the window is all of the elapsed time, $\theta = t$. The ODE is then time-invariant in $\log t$.

    Examples:
        >>> HIPPO_OPERATORS["lagt"].matrices(2)
        (tensor([[-1., -0.],
                [-1., -1.]], dtype=torch.float64), tensor([1., 1.], dtype=torch.float64))
        >>> HIPPO_OPERATORS["legt"].displacement_rank
        2
    """

    name: str
    matrices: Callable[[int], tuple[Tensor, Tensor]]
    matvec: Callable[[Tensor], Tensor]
    basis: Callable[[int, Tensor], Tensor]
    measure: Callable[[Tensor], Tensor]
    shift: float
    low_rank: Callable[[int], Tensor]
    max_age: float = 1.0
    scaled: bool = False

    @property
    def displacement_rank(self) -> int:
        """Number of columns of $P$."""
        return self.low_rank(3).shape[-1]


_FLOAT64 = torch.empty(0, dtype=torch.float64)


def _index(n: int, like: Tensor = _FLOAT64) -> Tensor:
    """Returns 0, 1, …, n - 1."""
    if n < 1:
        raise ValueError(f"num_coefficients must be at least 1, got {n}")
    return torch.arange(n).to(like)


def _legendre_scale(n: int, like: Tensor = _FLOAT64) -> Tensor:
    """Returns sqrt(2k + 1), which normalizes the Legendre polynomials on [0, 1]."""
    return (2 * _index(n, like) + 1).sqrt()


def _signs(n: int, like: Tensor = _FLOAT64) -> Tensor:
    return 1 - 2 * (_index(n, like) % 2)


def _recurrence(n: int, second: Tensor, following: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
    """Returns the first n polynomials of a three-term recurrence: 1, `second`, then `following(k, p_k, p_{k-1})`."""
    terms = [torch.ones_like(second), second]
    for k in range(1, len(_index(n)) - 1):
        terms.append(following(k, terms[k], terms[k - 1]))
    return torch.stack(terms[:n]).movedim(0, -1)


def _legendre_basis(n: int, u: Tensor) -> Tensor:
    x, scale = 1 - 2 * u, _legendre_scale(n, u)
    return scale * _recurrence(n, x, lambda k, p, before: ((2 * k + 1) * x * p - k * before) / (k + 1))


def _uniform_measure(u: Tensor) -> Tensor:
    return ((u >= 0) & (u <= 1)).to(u)


def _legs_matrices(n: int) -> tuple[Tensor, Tensor]:
    v = _legendre_scale(n)
    return -torch.outer(v, v).tril(-1) - torch.diag(_index(n) + 1), v


def _legs_matvec(x: Tensor) -> Tensor:
    v = _legendre_scale(x.shape[-1], x)
    return _index(x.shape[-1], x) * x - v * (v * x).cumsum(-1)


def _legs_low_rank(n: int) -> Tensor:
    return _legendre_scale(n)[:, None]


def _legt_matrices(n: int) -> tuple[Tensor, Tensor]:
    v, signs = _legendre_scale(n), _signs(n)
    return -torch.outer(v, v).tril() - torch.outer(signs * v, signs * v).triu(1), v


def _legt_matvec(x: Tensor) -> Tensor:
    v, signs = _legendre_scale(x.shape[-1], x), _signs(x.shape[-1], x)
    alternating = signs * v * x
    later = alternating.flip(-1).cumsum(-1).flip(-1) - alternating
    return -v * ((v * x).cumsum(-1) + signs * later)


def _legt_low_rank(n: int) -> Tensor:
    return torch.stack([_legendre_scale(n), _signs(n) * _legendre_scale(n)], -1)


def _laguerre_basis(n: int, u: Tensor) -> Tensor:
    return _recurrence(n, 1 - u, lambda k, p, before: ((2 * k + 1 - u) * p - k * before) / (k + 1))


def _exponential_measure(u: Tensor) -> Tensor:
    return (-u.clamp_min(0)).exp() * (u >= 0)


def _lagt_matrices(n: int) -> tuple[Tensor, Tensor]:
    ones = torch.ones_like(_index(n))
    return -torch.outer(ones, ones).tril(), ones


def _lagt_matvec(x: Tensor) -> Tensor:
    return -x.cumsum(-1)


def _lagt_low_rank(n: int) -> Tensor:
    return torch.ones_like(_index(n))[:, None]


def _fourier_basis(n: int, u: Tensor) -> Tensor:
    """Returns 1, then √2 cos(2πmu) and √2 sin(2πmu) for m = 1, 2 and so on."""
    if len(_index(n)) % 2 == 0:
        raise ValueError(
            "num_coefficients must be odd for operator 'fourier', which has a constant and pairs of cosine and sine: "
            f"got {n}"
        )
    angles = 2 * math.pi * u[..., None] * torch.arange(1, n // 2 + 1).to(u)
    waves = math.sqrt(2) * torch.stack([angles.cos(), angles.sin()], -1).flatten(-2)
    return torch.cat([torch.ones_like(u)[..., None], waves], -1)


def _fourier_at_zero(n: int, like: Tensor = _FLOAT64) -> Tensor:
    return _fourier_basis(n, torch.zeros(()).to(_index(1, like)))


def _fourier_matrices(n: int) -> tuple[Tensor, Tensor]:
    at_zero = _fourier_at_zero(n)
    below = math.pi * (_index(n) + 1) * (_index(n) % 2)  # 2πm below the diagonal, in the column of cosine m
    derivative = torch.diag(below[:-1], -1) - torch.diag(below[:-1], 1)
    return derivative - 2 * torch.outer(at_zero, at_zero), 2 * at_zero


def _fourier_matvec(x: Tensor) -> Tensor:
    at_zero = _fourier_at_zero(x.shape[-1], x)
    frequencies = 2 * math.pi * torch.arange(1, x.shape[-1] // 2 + 1).to(x)
    rotated = torch.stack([-frequencies * x[..., 2::2], frequencies * x[..., 1::2]], -1).flatten(-2)
    derivative = torch.cat([torch.zeros_like(x[..., :1]), rotated], -1)
    return derivative - 2 * at_zero * (x @ at_zero)[..., None]


def _fourier_low_rank(n: int) -> Tensor:
    return 2 * _fourier_at_zero(n)[:, None]


_LEGENDRE, _LAGUERRE = (_legendre_basis, _uniform_measure), (_laguerre_basis, _exponential_measure)
_OPERATORS = (
    HiPPOOperator("legs", _legs_matrices, _legs_matvec, *_LEGENDRE, -1.0, _legs_low_rank, scaled=True),
    HiPPOOperator("legt", _legt_matrices, _legt_matvec, *_LEGENDRE, 0.0, _legt_low_rank),
    HiPPOOperator("lagt", _lagt_matrices, _lagt_matvec, *_LAGUERRE, -1.0, _lagt_low_rank, max_age=math.inf),
    HiPPOOperator(
        "fourier", _fourier_matrices, _fourier_matvec, _fourier_basis, _uniform_measure, 0.0, _fourier_low_rank
    ),
)
HIPPO_OPERATORS: dict[str, HiPPOOperator] = {operator.name: operator for operator in _OPERATORS}
r"""HiPPO operators by name. A constant signal has constant coefficients under each: $A e_0 + B = 0$.

- `"legs"`: Legendre polynomials on all of the past, stretched as it grows.
- `"legt"`: Legendre polynomials on the last window.
- `"lagt"`: Laguerre polynomials under an exponentially decaying measure with time constant $\theta$.
- `"fourier"`: constant, cosines and sines on the last window. The number of coefficients must be odd.
"""


class Discretization(NamedTuple):
    r"""One step of a discretized linear ODE: $c_{k+1} = \bar A c_k + \bar B_0 f_k + \bar B_1 f_{k+1}$.

    Args:
        transition: Matrix $\bar A$.
        start_weight: Weight $\bar B_0$ of the sample at the start of the step.
        end_weight: Weight $\bar B_1$ of the sample at the end of the step.
    """

    transition: Float[Tensor, "*batch n n"]
    start_weight: Float[Tensor, "*batch n"]
    end_weight: Float[Tensor, "*batch n"]


_SLOPE_WEIGHTS = {"forward_euler": (1.0, 0.0), "backward_euler": (0.0, 1.0), "bilinear": (0.5, 0.5)}
_METHODS = (*_SLOPE_WEIGHTS, "zoh", "foh")


def discretize(
    a: Float[Tensor, "*#batch n n"],
    b: Float[Tensor, "*#batch n"],
    dt: float | Float[Tensor, "*#batch"],
    *,
    method: str = "foh",
) -> Discretization:
    r"""Discretizes a linear ODE with a sampled input, $\dot c = A c + B f$.

    - `"forward_euler"`, `"backward_euler"`: the slope at the start or at the end of the step. Order 1.
    - `"bilinear"`: the mean of both slopes, also called trapezoidal rule or Tustin's method. Order 2.
    - `"zoh"`: zero-order hold, exact for an input that is constant on the step. Order 1 for a smooth input.
    - `"foh"`: first-order hold, exact for an input that is linear on the step. Order 2 for a smooth input.

    Batch dimensions broadcast, so that many step sizes share one matrix.

    Args:
        a: Matrix $A$.
        b: Vector $B$.
        dt: Step size, greater than 0.
        method: One of the methods above.

    Examples:
        >>> step = discretize(torch.tensor([[-1.0]]), torch.tensor([1.0]), 2.0, method="bilinear")
        >>> step.transition, step.start_weight, step.end_weight
        (tensor([[0.]]), tensor([0.5000]), tensor([0.5000]))
    """
    _check_method(method)
    if check_square(a).shape[-1] != b.shape[-1]:
        shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"expected a of shape (*batch, n, n) and b of shape (*batch, n), got {shapes}")
    size = torch.as_tensor(dt, dtype=a.dtype, device=a.device)
    if any_true(~((size > 0) & size.isfinite())):
        raise ValueError(f"dt must be finite and greater than 0, got {dt}")
    if method in _SLOPE_WEIGHTS:
        start, end = _SLOPE_WEIGHTS[method]
        return _slope_step(a, b, start * size, end * size)
    n = a.shape[-1]
    # exp of [[A, B, 0], [0, 0, 1], [0, 0, 0]] integrates the responses to inputs 1 and t
    generator = a.new_zeros(*torch.broadcast_shapes(a.shape[:-2], b.shape[:-1], size.shape), n + 2, n + 2)
    generator[..., :n, :n], generator[..., :n, n] = a * size[..., None, None], b * size[..., None]
    generator[..., n, n + 1] = 1.0
    solution = torch.linalg.matrix_exp(generator)
    transition, constant, ramp = solution[..., :n, :n], solution[..., :n, n], solution[..., :n, n + 1]
    ramp = torch.zeros_like(constant) if method == "zoh" else ramp
    return Discretization(transition, constant - ramp, ramp)


def _slope_step(a: Tensor, b: Tensor, start: Tensor, end: Tensor) -> Discretization:
    """Solves c' = c + start (A c + B f) + end (A c' + B f')."""
    one, start, end = torch.eye(a.shape[-1]).to(a), start[..., None], end[..., None]
    parts = one + start[..., None] * a, (start * b)[..., None], (end * b)[..., None]
    batch = torch.broadcast_shapes(*(part.shape[:-2] for part in parts))
    right = torch.cat([part.expand(*batch, *part.shape[-2:]) for part in parts], -1)
    solution = torch.linalg.solve(one - end[..., None] * a, right)
    return Discretization(solution[..., :-2], solution[..., -2], solution[..., -1])


def _legs_steps(n: int, k: Tensor, method: str) -> Discretization:
    r"""Returns the steps of HiPPO-LegS from $k \, dt$ to $(k + 1) \, dt$, which do not depend on $dt$.

    An exact step compresses the history to the fraction $\rho = k / (k + 1)$ of the new one, appends a constant or
    linear piece, and projects both. With $\sigma = 1 - u$ and $\psi(\sigma) = \phi(u)$, the transition is
    $\bar A = \rho \int_0^1 \psi(\rho \sigma) \, \psi(\sigma)^\mathsf{T} d\sigma = \rho^{-A}$. Gauss-Legendre quadrature
    is exact and stable here, unlike the matrix exponential of $-A \log \rho$.
    """
    if method in _SLOPE_WEIGHTS:
        start, end = _SLOPE_WEIGHTS[method]
        return _slope_step(*_legs_matrices(n), torch.where(k > 0, start / k.clamp_min(1), 0.0), end / (k + 1))
    rho = k[:, None] / (k[:, None] + 1)
    nodes, weights = _gauss_legendre(n)
    compressed, history = _legendre_basis(n, 1 - rho * nodes), weights[:, None] * _legendre_basis(n, 1 - nodes)
    nodes, weights = _gauss_legendre(n // 2 + 1)  # exact up to degree n
    piece = _legendre_basis(n, (1 - rho) * (1 - nodes)).mT * (1 - rho)[..., None]
    end = piece @ (weights * nodes) * (method == "foh")
    transition = compressed.mT @ history * rho[..., None]
    start = torch.eye(n)[0] - transition[..., 0] - end  # a constant stays constant
    return Discretization(transition, start, end)


def _gauss_legendre(n: int) -> tuple[Tensor, Tensor]:
    """Returns nodes and weights for integrals over [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return torch.from_numpy((nodes + 1) / 2), torch.from_numpy(weights / 2)


_CHUNK_ENTRIES = 2**18  # two megabytes of float64


def hippo_project(
    signal: Float[Tensor, "*batch t"],
    num_coefficients: int,
    *,
    operator: str = "legs",
    dt: float = 1.0,
    window: float | None = None,
    method: str = "foh",
) -> Float[Tensor, "*batch t n"]:
    r"""Projects the history of a signal onto the basis of a HiPPO operator, online, at every sample.

    $$c_n(t) = \int f(t - \theta u) \, \phi_n(u) \, w(u) \, du$$

    The samples are at $t = 0, dt, 2 \, dt, \dots$. Before the first sample the signal is taken to be constant. The
    matrices are computed in float64, the recurrence in the dtype of the signal (half precision in float32).

    `"legs"` remembers all of the past and has no window. Its coefficients do not depend on `dt`. Its ODE is singular at
    $t = 0$; the steps of `"zoh"` and `"foh"` are exact there as well.

    For a smooth signal the error is of order 2 in `dt` with `"foh"` and `"bilinear"`, and of order 1 with the others.
    With `"foh"` it is only that of linear interpolation between samples, for any number of coefficients.

    Reference:
        Gu, Dao, Ermon, Rudra and Ré, *HiPPO: Recurrent Memory with Optimal Polynomial Projections*, 2020.

    Args:
        signal: Samples, along the last dimension.
        num_coefficients: Number of coefficients $n$.
        operator: Name in `HIPPO_OPERATORS`.
        dt: Time between samples.
        window: Window $\theta$, in the unit of `dt`. Required for all operators but `"legs"`, which takes none.
        method: Discretization: `"foh"`, `"zoh"`, `"bilinear"`, `"backward_euler"` or `"forward_euler"`.

    Examples:
        >>> hippo_project(torch.tensor([0.0, 1.0, 2.0]), 2)  # at the end: mean 1, slope 2
        tensor([[0.0000, 0.0000],
                [0.5000, 0.2887],
                [1.0000, 0.5774]])
    """
    chosen = _find_operator(operator)
    _check_method(method)
    _check_signal(signal)
    scale = _relative_step(chosen, dt, window)
    f = signal.reshape(-1, signal.shape[-1]).to(torch.promote_types(signal.dtype, torch.float32))
    a, b = chosen.matrices(num_coefficients)
    c = torch.cat([f[:, :1], f.new_zeros(len(f), num_coefficients - 1)], -1)
    coefficients = [c]
    invariant = None if chosen.scaled else discretize(a, b, scale, method=method)
    for k in torch.arange(f.shape[-1] - 1).split(max(1, _CHUNK_ENTRIES // num_coefficients**2)):
        steps = invariant or _legs_steps(num_coefficients, k.double(), method)
        transition, start, end = (x.to(f) for x in steps)
        inputs = f[:, k, None] * start + f[:, k + 1, None] * end
        for matrix, added in zip(transition.mT.expand(len(k), -1, -1), inputs.unbind(1), strict=True):
            c = torch.addmm(added, c, matrix)
            coefficients.append(c)
    return torch.stack(coefficients, 1).reshape(*signal.shape, num_coefficients).to(signal)


def hippo_reconstruct(
    coefficients: Float[Tensor, "*batch n"], ages: Float[Tensor, " m"], *, operator: str = "legs"
) -> Float[Tensor, "*batch m"]:
    r"""Reconstructs the past of a signal from the coefficients of a HiPPO operator.

    $$f(t - \theta u) \approx \sum_n c_n \, \phi_n(u)$$

    Args:
        coefficients: Coefficients $c$ at one time, as from `hippo_project`.
        ages: Ages $u$ in windows: 0 is now, 1 is one window ago (with `"legs"`, the beginning).
        operator: Name in `HIPPO_OPERATORS`.

    Examples:
        >>> coefficients = hippo_project(torch.tensor([0.0, 1.0, 2.0]), 2)
        >>> hippo_reconstruct(coefficients[-1], torch.tensor([0.0, 0.5, 1.0])).round(decimals=4)
        tensor([2., 1., 0.])
    """
    chosen = _find_operator(operator)
    if any_true(~((ages >= 0) & (ages <= chosen.max_age))):
        bounds = f"between 0 and {chosen.max_age:g}"
        raise ValueError(f"ages must be {bounds} for operator {operator!r}, got {ages.min():g} to {ages.max():g}")
    return coefficients @ chosen.basis(coefficients.shape[-1], ages.double()).to(coefficients).mT


class HiPPOMemory(NamedTuple):
    """A signal as a HiPPO operator remembers it at its end.

    Args:
        times: Times of the remembered samples, the last ones of the signal.
        values: Reconstructed samples.
        error: Relative L2 error of the reconstruction, weighted by the measure.
    """

    times: Float[Tensor, " m"]
    values: Float[Tensor, "*batch m"]
    error: Float[Tensor, "*batch"]


def hippo_memory(
    signal: Float[Tensor, "*batch t"],
    num_coefficients: int,
    *,
    operator: str = "legs",
    dt: float = 1.0,
    window: float | None = None,
    method: str = "foh",
) -> HiPPOMemory:
    r"""Reconstructs a signal from the coefficients at its end, and measures the error.

    $$\text{error}^2 = \frac{\sum_k w(u_k) \, (\hat f_k - f_k)^2}{\sum_k w(u_k) \, f_k^2}$$

    `"legs"` reconstructs all samples, `"legt"` and `"fourier"` those of the last window, `"lagt"` those whose weight is
    above the rounding error.

    Args:
        signal: Samples, along the last dimension.
        num_coefficients: Number of coefficients.
        operator: Name in `HIPPO_OPERATORS`.
        dt: Time between samples.
        window: Window, in the unit of `dt`. Required for all operators but `"legs"`, which takes none.
        method: Discretization, as in `hippo_project`.

    Examples:
        >>> memory = hippo_memory(torch.arange(5.0), 2, dt=0.25)
        >>> memory.times, memory.values.round(decimals=4)
        (tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000]), tensor([0., 1., 2., 3., 4.]))
        >>> bool(memory.error < 1e-6)
        True
    """
    c = hippo_project(signal, num_coefficients, operator=operator, dt=dt, window=window, method=method)[..., -1, :]
    chosen, count = HIPPO_OPERATORS[operator], signal.shape[-1]
    steps = torch.arange(count - 1, -1, -1, dtype=torch.float64, device=signal.device)
    scale = _relative_step(chosen, dt, window)
    ages = (steps / max(count - 1, 1) if chosen.scaled else steps * scale).round(decimals=12)
    kept = chosen.measure(ages) > torch.finfo(signal.dtype).eps
    weights, past = chosen.measure(ages[kept]).sqrt().to(signal), signal[..., kept]
    values = hippo_reconstruct(c, ages[kept], operator=operator)
    total = torch.linalg.vector_norm(weights * past, dim=-1)
    error = torch.linalg.vector_norm(weights * (values - past), dim=-1) / total.masked_fill(total == 0, 1.0)
    return HiPPOMemory(((count - 1 - steps[kept]) * dt).to(signal), values, error)


def _find_operator(name: str) -> HiPPOOperator:
    if name not in HIPPO_OPERATORS:
        known = ", ".join(HIPPO_OPERATORS)
        raise ValueError(f"unknown operator {name!r}{did_you_mean(name, HIPPO_OPERATORS)} Operators: {known}")
    return HIPPO_OPERATORS[name]


def _check_method(name: str) -> None:
    if name not in _METHODS:
        raise ValueError(f"unknown method {name!r}{did_you_mean(name, _METHODS)} Methods: {', '.join(_METHODS)}")


def _check_signal(signal: Tensor) -> None:
    if not signal.is_floating_point():
        raise TypeError(f"signal must have a floating-point dtype, got {signal.dtype}")
    if signal.dim() == 0 or signal.shape[-1] == 0:
        raise ValueError(f"signal must have at least one sample along its last dimension, got {tuple(signal.shape)}")
    if any_true(~signal.isfinite()):
        raise ValueError("signal must be finite, got NaN or infinite samples")


def _relative_step(operator: HiPPOOperator, dt: float, window: float | None) -> float:
    """Returns the step in windows, dt / θ."""
    if not 0 < dt < math.inf:
        raise ValueError(f"dt must be finite and greater than 0, got {dt}")
    if operator.scaled:
        if window is not None:
            raise ValueError(f"operator {operator.name!r} remembers all of the past and takes no window, got {window}")
        return dt
    if window is None:
        raise ValueError(f"operator {operator.name!r} needs a window: pass its length in the unit of dt")
    if not 0 < window < math.inf:
        raise ValueError(f"window must be finite and greater than 0, got {window}")
    return dt / window


def claims() -> Iterator[Claim]:
    """Laws of HiPPO operators."""

    def interpolated(signal: Tensor) -> Tensor:
        middle = (signal[..., 1:] + signal[..., :-1]) / 2
        return torch.cat([signal[..., :1], torch.stack([middle, signal[..., 1:]], -1).flatten(-2)], -1)

    for name, operator in HIPPO_OPERATORS.items():
        project = partial(hippo_project, num_coefficients=3, operator=name, window=None if operator.scaled else 2.0)

        def resampled(signal: Tensor, project: Callable[..., Tensor] = project) -> Tensor:
            return project(interpolated(signal), dt=0.5)[..., ::2, :]

        def dense(x: Tensor, operator: HiPPOOperator = operator) -> Tensor:
            return x @ operator.matrices(x.shape[-1])[0].to(x).mT

        for law in (linearity(), causality(time=1), agreement(other=resampled)):
            yield Claim(law, project, shape("b t"), name=f"hippo_project(operator={name!r})")
        yield Claim(agreement(other=dense), operator.matvec, shape("b 5"), name=f"{name}: matvec")
