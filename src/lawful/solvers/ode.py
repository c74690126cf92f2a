"""Ordinary differential equations: Runge-Kutta tableaus, fixed and adaptive steps, and `odeint`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, batch_independence, gradient, linearity, shape, transformed

_State = TypeVar("_State", Tensor, tuple[Tensor, ...])
RateFunction = Callable[[Tensor, _State], _State]
"""Right-hand side f(t, y) of an ODE; the state y is a tensor or a tuple of tensors."""

_MIN_STEP = 1e-12  # smallest adaptive step, relative to the interval
_Row = tuple[float, ...]


@dataclass(frozen=True, eq=False)
class ODESolution(Generic[_State]):
    """Final state of an ODE."""

    y: _State
    """State at the end."""
    evaluations: int
    """Number of calls of the right-hand side."""


@dataclass(frozen=True, kw_only=True)
class Tableau:
    r"""Butcher tableau of an explicit Runge-Kutta method.

    $$k_i = f\Bigl(t + c_i h, \; y + h \sum_{j < i} a_{ij} k_j\Bigr), \qquad y' = y + h \sum_i b_i k_i$$

    Reference:
        Hairer, Nørsett and Wanner, *Solving Ordinary Differential Equations I*, 1993.

    Args:
        name: Name, for error messages.
        order: Order $p$: the error of a solution is $O(h^p)$.
        coefficients: Rows $a_{i}$ after the first, which is empty.
        weights: $b$.
        error_weights: Weights of an embedded method of lower order, for error estimates.

    Examples:
        >>> HEUN.nodes, HEUN.weights
        ((0.0, 1.0), (0.5, 0.5))
    """

    name: str
    order: int
    coefficients: tuple[_Row, ...] = ()
    weights: _Row
    error_weights: _Row = ()

    @property
    def nodes(self) -> _Row:
        r"""$c_i = \sum_j a_{ij}$, the relative times of the stages."""
        return (0.0, *(float(sum(row)) for row in self.coefficients))

    @property
    def first_same_as_last(self) -> bool:
        """Whether the last stage of a step is the first stage of the next (FSAL)."""
        return bool(self.coefficients) and self.coefficients[-1] == self.weights[:-1] and self.weights[-1] == 0


EULER = Tableau(name="Euler", order=1, weights=(1.0,))
MIDPOINT = Tableau(name="midpoint", order=2, coefficients=((1 / 2,),), weights=(0.0, 1.0))
HEUN = Tableau(name="Heun", order=2, coefficients=((1.0,),), weights=(1 / 2, 1 / 2), error_weights=(1.0, 0.0))
RK4 = Tableau(
    name="RK4",
    order=4,
    coefficients=((1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)),
    weights=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
)
BOGACKI_SHAMPINE = Tableau(
    name="Bogacki-Shampine",
    order=3,
    coefficients=((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    weights=(2 / 9, 1 / 3, 4 / 9, 0.0),
    error_weights=(7 / 24, 1 / 4, 1 / 3, 1 / 8),
)
DORMAND_PRINCE = Tableau(
    name="Dormand-Prince",
    order=5,
    coefficients=(
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    weights=(35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0),
    error_weights=(5179 / 57600, 0.0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40),
)
TABLEAUS = (EULER, MIDPOINT, HEUN, BOGACKI_SHAMPINE, RK4, DORMAND_PRINCE)
"""All tableaus."""


def odeint(
    f: RateFunction[Tensor],
    y0: Float[Tensor, "*shape"],
    t: Float[Tensor, " times"] | Sequence[float],
    *,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    method: Tableau = DORMAND_PRINCE,
    steps: int | None = None,
    max_evaluations: int = 5000,
) -> Float[Tensor, "times *shape"]:
    r"""Solves an initial value problem, with the interface of torchdiffeq's `odeint`.

    $$\dot y = f(t, y), \qquad y(t_0) = y_0$$

    Time may run backwards, and the solution is differentiable. `odeint_adaptive` gives each sample of a batch its
    own steps.

    Args:
        f: Right-hand side $f(t, y)$, called with a scalar time and a state of the shape of `y0`.
        y0: Initial state.
        t: Monotonic times; the first is the time of `y0`.
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.
        method: Runge-Kutta method; adaptive steps need one with an error estimate.
        steps: Number of equal steps between two times. None takes adaptive steps.
        max_evaluations: Maximum number of evaluations of `f` between two times, for adaptive steps.

    Returns:
        The states at all times, stacked.

    Examples:
        >>> odeint(lambda t, y: -y, torch.ones(1), torch.tensor([0.0, 1.0]))[-1]
        tensor([0.3679])
    """
    times = [float(time) for time in t]
    if len(times) < 1:
        raise ValueError("expected at least 1 time, got none")
    differences = [b - a for a, b in pairwise(times)]
    if any(a * b <= 0 for a, b in pairwise(differences)):
        raise ValueError(f"expected strictly monotonic times t, got {times}")
    states = [y0]
    for start, end in pairwise(times):
        if steps is not None:
            states.append(odeint_fixed(f, states[-1], start, end, steps=steps, tableau=method).y)
            continue
        solution = odeint_adaptive(
            lambda t, y: f(t[0], y[0])[None],
            states[-1][None],
            start,
            end,
            rtol=rtol,
            atol=atol,
            max_evaluations=max_evaluations,
            tableau=method,
        )
        states.append(solution.y[0])
    return torch.stack(states)


def odeint_fixed(
    f: RateFunction[_State], y0: _State, t0: float, t1: float, *, steps: int, tableau: Tableau = RK4
) -> ODESolution[_State]:
    r"""Solves an initial value problem in equal steps.

    $$\dot y = f(t, y), \qquad y(t_0) \to y(t_1)$$

    Time may run backwards. The solution is differentiable and keeps the dtype of the state; times are in float64. A
    state that is not finite raises an error, at the start and after each step.

    Reference:
        Hairer, Nørsett and Wanner, *Solving Ordinary Differential Equations I*, 1993.

    Args:
        f: Right-hand side $f(t, y)$, called with a scalar time.
        y0: Initial state: a tensor, or a tuple of tensors.
        t0: Initial time.
        t1: Final time.
        steps: Number of steps.
        tableau: Runge-Kutta method.

    Examples:
        >>> solution = odeint_fixed(lambda t, y: -y, torch.ones(1), 0.0, 1.0, steps=10)
        >>> solution.y, solution.evaluations
        (tensor([0.3679]), 40)
    """
    if steps < 1:
        raise ValueError(f"expected steps >= 1, got {steps}")
    y = _check_finite(y0, "the initial state")
    h, evaluations = (t1 - t0) / steps, 0
    rates: list[_State] = []
    for step in range(steps):
        t = t0 + step * h
        rates = rates[-1:] if rates and tableau.first_same_as_last else []
        for i, node in enumerate(tableau.nodes):
            if i < len(rates):
                continue
            row = tableau.coefficients[i - 1] if i else ()
            rates.append(f(torch.tensor(t + node * h, dtype=torch.float64), _advance(y, h, rates, row)))
            evaluations += 1
        y = _check_finite(
            _advance(y, h, rates, tableau.weights), f"the state after {step + 1} of {steps} steps, at t={t + h:g},"
        )
    return ODESolution(y, evaluations)


def odeint_adaptive(
    f: RateFunction[_State],
    y0: _State,
    t0: float,
    t1: float,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    max_evaluations: int = 5000,
    tableau: Tableau = DORMAND_PRINCE,
) -> ODESolution[_State]:
    r"""Solves a batch of initial value problems with adaptive steps, one step size per sample.

    $$h \leftarrow h \, \min\bigl(5, \max(0.2, \; 0.9 \, e^{-1/p})\bigr), \qquad
    e = \operatorname{rms}_i \frac{\lvert y'_i - \hat y_i \rvert}{\text{atol} + \text{rtol} \max(|y_i|, |y'_i|)}$$

    where $\hat y$ is the embedded solution of lower order. Samples are along the first axis; the solution of a
    sample does not depend on the others. A right-hand side that is not finite, a vanishing step size and too many
    evaluations raise errors.

    Reference:
        Hairer, Nørsett and Wanner, *Solving Ordinary Differential Equations I*, 1993.

    Args:
        f: Right-hand side $f(t, y)$, called with one time per sample, (n,).
        y0: Initial state, (n, ...), or a tuple of such tensors.
        t0: Initial time.
        t1: Final time.
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.
        max_evaluations: Maximum number of evaluations of `f`.
        tableau: Runge-Kutta method with an error estimate.

    Examples:
        >>> odeint_adaptive(lambda t, y: -y, torch.ones(1, 1), 0.0, 1.0).y
        tensor([[0.3679]])
    """
    if not tableau.error_weights:
        raise ValueError(f"adaptive steps need an error estimate, which {tableau.name} lacks: use DORMAND_PRINCE")
    if not (rtol >= 0 and atol >= 0 and rtol + atol > 0):
        raise ValueError(f"expected tolerances >= 0, not both 0, got rtol={rtol}, atol={atol}")
    y = _check_finite(y0, "the initial state")
    t = torch.full(_tensors(y)[0].shape[:1], t0, dtype=torch.float64, device=_tensors(y)[0].device)
    if t0 == t1 or not len(t):
        return ODESolution(y, 0)
    span = t1 - t0
    first, evaluations = f(t, y), 1
    _check_finite(first, "the right-hand side at the start")
    h = _initial_step(y, first, span, rtol, atol)
    while bool((t != t1).any()):
        if evaluations + len(tableau.weights) > max_evaluations:
            slowest = float(t.min() if span > 0 else t.max())
            raise RuntimeError(
                f"max_evaluations={max_evaluations} reached at t={slowest:g}, between t0={t0:g} and t1={t1:g}: the"
                " solution may diverge, or the tolerances are too small"
            )
        remaining = t1 - t
        last = h.abs() >= remaining.abs()
        step = torch.where(last, remaining, h)
        rates = [first]
        for node, row in zip(tableau.nodes[1:], tableau.coefficients, strict=True):
            rates.append(f(t + node * step, _advance(y, step, rates, row)))
        evaluations += len(tableau.coefficients)
        proposal = _advance(y, step, rates, tableau.weights)
        error = _error_norm(y, proposal, _advance(y, step, rates, tableau.error_weights), rtol, atol)
        accepted = error <= 1
        factor = torch.where(error.isfinite(), 0.9 * error.clamp_min(1e-10) ** (-1 / tableau.order), 0.2)
        h = step * factor.clamp(0.2, 5.0)
        stuck = ~accepted & (h.abs() < _MIN_STEP * abs(span))
        if bool(stuck.any()):
            raise ValueError(
                f"the step size vanishes at t={float(t[stuck][0]):g}: the right-hand side is not finite or not smooth"
            )
        y = _where(accepted, proposal, y)
        t = torch.where(accepted, torch.where(last, torch.full_like(t, t1), t + step), t)
        h = torch.where(t == t1, torch.zeros_like(h), h)
        if tableau.first_same_as_last:
            first = _where(accepted, rates[-1], first)
        else:
            first, evaluations = f(t, y), evaluations + 1
    return ODESolution(y, evaluations)


def _tensors(y: _State) -> tuple[Tensor, ...]:
    return y if isinstance(y, tuple) else (y,)


def _like(y: _State, tensors: Iterable[Tensor]) -> _State:
    """Returns tensors as a state with the structure of `y`."""
    tensors = tuple(tensors)
    return tensors if isinstance(y, tuple) else tensors[0]  # pyrefly: ignore


def _advance(y: _State, h: Tensor | float, rates: Sequence[_State], weights: Sequence[float]) -> _State:
    r"""$y + h \sum_j w_j k_j$; $h$ is a number, or one per sample."""
    used = [(_tensors(k), weight) for k, weight in zip(rates, weights, strict=False) if weight]
    return _like(y, (_advance_tensor(part, h, [(k[i], w) for k, w in used]) for i, part in enumerate(_tensors(y))))


def _advance_tensor(y: Tensor, h: Tensor | float, used: list[tuple[Tensor, float]]) -> Tensor:
    if not used:
        return y
    total = used[0][1] * used[0][0]
    for k, weight in used[1:]:
        total = total + weight * k
    if isinstance(h, Tensor):
        return y + h.to(y.dtype).reshape(-1, *(1,) * (y.dim() - 1)) * total
    return y + h * total


def _check_finite(y: _State, what: str) -> _State:
    if not all(bool(part.isfinite().all()) for part in _tensors(y)):
        raise ValueError(f"{what} is not finite")
    return y


def _rows(y: Tensor) -> Tensor:
    return y.reshape(len(y), -1).double()


def _error_norm(y: _State, proposal: _State, embedded: _State, rtol: float, atol: float) -> Tensor:
    """The error estimate of each sample, relative to the tolerance."""
    columns = [
        (_rows(b) - _rows(c)) / (atol + rtol * torch.maximum(_rows(a).abs(), _rows(b).abs()))
        for a, b, c in zip(_tensors(y), _tensors(proposal), _tensors(embedded), strict=True)
    ]
    return torch.cat(columns, 1).detach().square().mean(1).sqrt()


def _where(condition: Tensor, a: _State, b: _State) -> _State:
    pairs = zip(_tensors(a), _tensors(b), strict=True)
    return _like(a, (torch.where(condition.reshape(-1, *(1,) * (x.dim() - 1)), x, y) for x, y in pairs))


def _initial_step(y: _State, rate: _State, span: float, rtol: float, atol: float) -> Tensor:
    """Returns 1/100 of the time that the state takes to change by its own size."""
    sizes, speeds = (torch.cat([_rows(part).abs() for part in _tensors(s)], 1).detach() for s in (y, rate))
    scale = atol + rtol * sizes
    size, speed = ((part / scale).square().mean(1).sqrt() for part in (sizes, speeds))
    guess = torch.where((size > 1e-5) & (speed > 1e-5), 0.01 * size / speed, 1e-3 * abs(span))
    return guess.clamp(1e-6 * abs(span), abs(span)) * (1 if span > 0 else -1)


def claims() -> Iterator[Claim]:
    """Samples are independent; solutions of linear equations are linear; gradients are correct."""

    def rotation(y: Tensor) -> Tensor:
        def f(t: Tensor, y: Tensor) -> Tensor:
            return torch.stack([-y[:, 1], y[:, 0]], 1) * t.to(y)[:, None]

        return odeint_adaptive(f, y.double(), 0.0, 1.0, rtol=1e-6, atol=1e-7).y.to(y)

    def exact(y: Tensor) -> Tensor:
        c, s = torch.tensor(0.5).double().cos().to(y), torch.tensor(0.5).double().sin().to(y)
        return torch.stack([c * y[:, 0] - s * y[:, 1], s * y[:, 0] + c * y[:, 1]], 1)

    def rk4(y: Tensor) -> Tensor:
        return odeint_fixed(lambda t, y: (y.roll(1, -1) - y) * t.to(y) + t.to(y).sin(), y, 0.0, 1.0, steps=3).y

    def linear(y: Tensor) -> Tensor:
        return odeint_fixed(lambda t, y: y * t.to(y), y, 0.0, 1.0, steps=2).y

    inputs = transformed(torch.tanh, "n 2")
    yield Claim(replace(agreement(other=exact), rtol=1e-5, cases=6), rotation, inputs, name="odeint_adaptive")
    yield Claim(replace(batch_independence(), cases=4), rotation, inputs, name="odeint_adaptive")
    yield Claim(gradient(), rk4, transformed(torch.tanh, "b 3"), name="odeint_fixed")
    yield Claim(linearity(), linear, shape("b 3"), name="odeint_fixed of a linear equation")
