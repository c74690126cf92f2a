"""States of a differential equation: a tensor, or several that move together.

Runge-Kutta methods as rows of data: Butcher's tableaus.
Ordinary differential equations by steps as long as the error allows, for each sample its own.
Ordinary differential equations by equal steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from lawful.laws import Claim, agreement, batch_independence, gradient, linearity, shape, transformed

State = TypeVar("State", Tensor, tuple[Tensor, ...])
Field = Callable[[State, Tensor], State]
"""From a state and a time to how fast the state changes."""


@dataclass(frozen=True, eq=False)
class Solution(Generic[State]):
    """Where a differential equation led, and what it cost."""

    x: State
    """The state at the end."""
    evaluations: int
    """How often the field was called."""


def parts(x: State) -> tuple[Tensor, ...]:
    """Returns the tensors of a state."""
    return x if isinstance(x, tuple) else (x,)


def alike(x: State, tensors: Iterable[Tensor]) -> State:
    """Returns tensors as a state of the kind of another."""
    tensors = tuple(tensors)
    return tensors if isinstance(x, tuple) else tensors[0]  # pyrefly: ignore


def moved(x: State, h: Tensor | float, rates: Sequence[State], weights: Sequence[float]) -> State:
    r"""Returns $x + h \sum_j w_j k_j$; $h$ is a number, or one for each sample."""
    used = [(parts(k), weight) for k, weight in zip(rates, weights, strict=False) if weight]
    return alike(x, (_moved(part, h, [(k[i], weight) for k, weight in used]) for i, part in enumerate(parts(x))))


def _moved(x: Tensor, h: Tensor | float, used: list[tuple[Tensor, float]]) -> Tensor:
    if not used:
        return x
    total = used[0][1] * used[0][0]
    for k, weight in used[1:]:
        total = total + weight * k
    if isinstance(h, Tensor):
        return x + h.to(x.dtype).reshape(-1, *(1,) * (x.dim() - 1)) * total
    return x + h * total


def finite(x: State, what: str) -> State:
    """Returns the state, and refuses one that is not finite."""
    if not all(bool(part.isfinite().all()) for part in parts(x)):
        raise ValueError(f"{what} is to be finite: got NaN or infinity")
    return x


Row = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Tableau:
    r"""Tells an explicit Runge-Kutta method by its numbers.

    $$k_i = f\Bigl(x + h \sum_{j < i} a_{ij} k_j, \; t + c_i h\Bigr), \qquad x' = x + h \sum_i b_i k_i$$

    Reference:
        Hairer, Nørsett and Wanner, *Solving Ordinary Differential Equations I*, 1993.

    Args:
        name: What errors call it.
        order: Its order $p$: the error of a solution goes down as $h^p$.
        inner: The rows $a_{i}$ after the first, which is empty.
        weights: $b$.
        lower: The weights of a method of a lower order in the same stages, whose difference estimates the error.

    Examples:
        >>> HEUN.nodes, HEUN.weights
        ((0.0, 1.0), (0.5, 0.5))
    """

    name: str
    order: int
    inner: tuple[Row, ...] = ()
    weights: Row
    lower: Row = ()

    @property
    def nodes(self) -> Row:
        r"""$c_i = \sum_j a_{ij}$, where between the ends of a step the stages are."""
        return (0.0, *(float(sum(row)) for row in self.inner))

    @property
    def last_is_first(self) -> bool:
        """Whether the last stage is at the end of the step, and so the first of the next one."""
        return bool(self.inner) and self.inner[-1] == self.weights[:-1] and self.weights[-1] == 0


EULER = Tableau(name="Euler", order=1, weights=(1.0,))
MIDPOINT = Tableau(name="midpoint", order=2, inner=((1 / 2,),), weights=(0.0, 1.0))
HEUN = Tableau(name="Heun", order=2, inner=((1.0,),), weights=(1 / 2, 1 / 2), lower=(1.0, 0.0))
RK4 = Tableau(
    name="RK4",
    order=4,
    inner=((1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)),
    weights=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
)
BOGACKI_SHAMPINE = Tableau(
    name="Bogacki-Shampine",
    order=3,
    inner=((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    weights=(2 / 9, 1 / 3, 4 / 9, 0.0),
    lower=(7 / 24, 1 / 4, 1 / 3, 1 / 8),
)
DORMAND_PRINCE = Tableau(
    name="Dormand-Prince",
    order=5,
    inner=(
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    weights=(35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0),
    lower=(5179 / 57600, 0.0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40),
)
TABLEAUS = (EULER, MIDPOINT, HEUN, BOGACKI_SHAMPINE, RK4, DORMAND_PRINCE)


def _tableaus_claims() -> Iterator[Claim]:
    """The laws that tableaus obey: a method of order p integrates polynomials up to degree p - 1 exactly."""

    def moments(x: Tensor, weights: Row, nodes: Row, order: int) -> Tensor:
        b, c = x.new_tensor(weights), x.new_tensor(nodes)
        powers = torch.stack([(b * c**k).sum() for k in range(order)])
        return (x[..., None] * powers).sum(-1)

    def integrals(x: Tensor, order: int) -> Tensor:
        return x * sum(1 / (k + 1) for k in range(order))

    for tableau in TABLEAUS:
        rows = [(tableau.weights, tableau.order)]
        rows += [(tableau.lower, tableau.order - 1)] if tableau.lower else []
        for weights, order in rows:
            yield Claim(
                agreement(other=lambda x, order=order: integrals(x, order)),
                lambda x, w=weights, t=tableau, p=order: moments(x, w, t.nodes, p),
                shape("b"),
                name=f"{tableau.name}, order {order}, polynomials",
            )


SHORTEST = 1e-12
"""The shortest step, as a part of the whole way, before the method gives up."""


def adaptive(
    f: Field[State],
    x: State,
    t0: float,
    t1: float,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    most: int = 5000,
    tableau: Tableau = DORMAND_PRINCE,
) -> Solution[State]:
    r"""Follows a field from one time to another in steps that keep the estimated error below a tolerance.

    $$h \leftarrow h \, \min\bigl(5, \max(0.2, \; 0.9 \, e^{-1/p})\bigr), \qquad
    e = \operatorname{rms}_i \frac{\lvert x'_i - \hat x_i \rvert}{\text{atol} + \text{rtol} \max(|x_i|, |x'_i|)}$$

    where $\hat x$ is of the lower order. Each sample, along the first axis, takes its own steps, so that no solution
    depends on its batch; those that have arrived wait. There is no hanging: a field that is not finite, a step that
    vanishes and more than `most` evaluations are errors.

    Reference:
        Hairer, Nørsett and Wanner, *Solving Ordinary Differential Equations I*, 1993.

    Args:
        f: $f$, called with the state and the times, one for each sample.
        x: The state at the start, (n, ...), or several of these.
        t0: $t_0$.
        t1: $t_1$.
        rtol: The tolerance relative to the state.
        atol: The tolerance that is added to it.
        most: The largest number of evaluations.
        tableau: The method, with weights of a lower order.

    Examples:
        >>> solution = adaptive(lambda x, t: -x, torch.ones(1, 1), 0.0, 1.0)
        >>> solution.x
        tensor([[0.3679]])
    """
    if not tableau.lower:
        raise ValueError(f"a method that estimates its error is wanted, such as Dormand-Prince: got {tableau.name}")
    if not (rtol >= 0 and atol >= 0 and rtol + atol > 0):
        raise ValueError(f"tolerances above 0 are wanted: got rtol={rtol}, atol={atol}")
    finite(x, "the state at the start")
    t = torch.full(parts(x)[0].shape[:1], t0, dtype=torch.float64, device=parts(x)[0].device)
    if t0 == t1 or not len(t):
        return Solution(x, 0)
    way = t1 - t0
    first, evaluations = f(x, t), 1
    finite(first, "the field at the start")
    h = _first_step(x, first, way, rtol, atol)
    while bool((t != t1).any()):
        if evaluations + len(tableau.weights) > most:
            raise RuntimeError(
                f"{most} evaluations do not do: the slowest sample has come to t={_slowest(t, way):g} on its way from"
                f" {t0:g} to {t1:g}. The field may diverge, or the tolerances be too small"
            )
        left = t1 - t
        last = h.abs() >= left.abs()
        step = torch.where(last, left, h)
        rates = [first]
        for node, inner in zip(tableau.nodes[1:], tableau.inner, strict=True):
            rates.append(f(moved(x, step, rates, inner), t + node * step))
        evaluations += len(tableau.inner)
        after = moved(x, step, rates, tableau.weights)
        error = _error(x, after, moved(x, step, rates, tableau.lower), rtol, atol)
        taken = error <= 1
        shrink = torch.where(error.isfinite(), 0.9 * error.clamp_min(1e-10) ** (-1 / tableau.order), 0.2)
        h = step * shrink.clamp(0.2, 5.0)
        stuck = ~taken & (h.abs() < SHORTEST * abs(way))
        if bool(stuck.any()):
            raise ValueError(
                f"the field is not finite, or not smooth, at t={float(t[stuck][0]):g}: no step is short enough there"
            )
        x = _chosen(taken, after, x)
        t = torch.where(taken, torch.where(last, torch.full_like(t, t1), t + step), t)
        h = torch.where(t == t1, torch.zeros_like(h), h)
        if tableau.last_is_first:
            first = _chosen(taken, rates[-1], first)
        else:
            first, evaluations = f(x, t), evaluations + 1
    return Solution(x, evaluations)


def _slowest(t: Tensor, way: float) -> float:
    return float(t.min() if way > 0 else t.max())


def _rows(x: Tensor) -> Tensor:
    return x.reshape(len(x), -1).double()


def _error(x: State, after: State, lower: State, rtol: float, atol: float) -> Tensor:
    """How far the two solutions of each sample are apart, in units of what is allowed."""
    columns = [
        (_rows(b) - _rows(c)) / (atol + rtol * torch.maximum(_rows(a).abs(), _rows(b).abs()))
        for a, b, c in zip(parts(x), parts(after), parts(lower), strict=True)
    ]
    return torch.cat(columns, 1).detach().square().mean(1).sqrt()


def _chosen(taken: Tensor, new: State, old: State) -> State:
    pairs = zip(parts(new), parts(old), strict=True)
    return alike(new, (torch.where(taken.reshape(-1, *(1,) * (a.dim() - 1)), a, b) for a, b in pairs))


def _first_step(x: State, rate: State, way: float, rtol: float, atol: float) -> Tensor:
    """A hundredth of the time in which the state would change by its own size, at most the whole way."""
    sizes, speeds = (torch.cat([_rows(part).abs() for part in parts(all_)], 1).detach() for all_ in (x, rate))
    scale = atol + rtol * sizes
    far, fast = ((part / scale).square().mean(1).sqrt() for part in (sizes, speeds))
    guess = torch.where((far > 1e-5) & (fast > 1e-5), 0.01 * far / fast, 1e-3 * abs(way))
    return guess.clamp(1e-6 * abs(way), abs(way)) * (1 if way > 0 else -1)


def _adaptive_claims() -> Iterator[Claim]:
    """The laws that adaptive steps obey."""

    def turned(x: Tensor) -> Tensor:
        def field(x: Tensor, t: Tensor) -> Tensor:
            return torch.stack([-x[:, 1], x[:, 0]], 1) * t.to(x)[:, None]

        return adaptive(field, x.double(), 0.0, 1.0, rtol=1e-6, atol=1e-7).x.to(x)

    def exactly(x: Tensor) -> Tensor:
        c, s = torch.tensor(0.5).double().cos().to(x), torch.tensor(0.5).double().sin().to(x)
        return torch.stack([c * x[:, 0] - s * x[:, 1], s * x[:, 0] + c * x[:, 1]], 1)

    near = replace(agreement(other=exactly), rtol=1e-5, cases=6)
    yield Claim(near, turned, transformed(torch.tanh, "n 2"), name="adaptive, a rotation")
    yield Claim(replace(batch_independence(), cases=4), turned, transformed(torch.tanh, "n 2"), name="adaptive")


def integrate(
    f: Field[State], x: State, t0: float, t1: float, *, steps: int, tableau: Tableau = RK4
) -> Solution[State]:
    r"""Follows a field from one time to another in equal steps.

    $$\dot x = f(x, t), \qquad x(t_0) \to x(t_1)$$

    The time may run backwards. Gradients pass, and the state keeps its precision; the times are in double precision. A
    state that is not finite is refused, at the start and after each step.

    Reference:
        Hairer, Nørsett and Wanner, *Solving Ordinary Differential Equations I*, 1993.

    Args:
        f: $f$, called with the state and a time, a scalar tensor.
        x: The state at the start: a tensor, or several.
        t0: $t_0$.
        t1: $t_1$.
        steps: The number of steps.
        tableau: The method.

    Examples:
        >>> solution = integrate(lambda x, t: -x, torch.ones(1), 0.0, 1.0, steps=10)
        >>> solution.x, solution.evaluations
        (tensor([0.3679]), 40)
    """
    if steps < 1:
        raise ValueError(f"at least 1 step is wanted: got steps={steps}")
    finite(x, "the state at the start")
    h, evaluations = (t1 - t0) / steps, 0
    rates: list[State] = []
    for step in range(steps):
        t = t0 + step * h
        rates = rates[-1:] if rates and tableau.last_is_first else []
        for i, node in enumerate(tableau.nodes):
            if i < len(rates):
                continue
            inner = tableau.inner[i - 1] if i else ()
            rates.append(f(moved(x, h, rates, inner), torch.tensor(t + node * h, dtype=torch.float64)))
            evaluations += 1
        x = finite(moved(x, h, rates, tableau.weights), f"the state after {step + 1} of {steps} steps, at t={t + h:g},")
    return Solution(x, evaluations)


def _fixed_claims() -> Iterator[Claim]:
    """The laws that equal steps obey."""

    def field(x: Tensor, t: Tensor) -> Tensor:
        return (x.roll(1, -1) - x) * t.to(x) + t.to(x).sin()

    def series(x: Tensor, order: int) -> Tensor:
        """The exponential of a step as far as the method has it: its terms of h^k / k! up to the order."""
        return x * sum((-0.5) ** k / torch.lgamma(torch.tensor(k + 1.0)).exp().item() for k in range(order + 1))

    for tableau in TABLEAUS[:-1]:
        if len(tableau.weights) - tableau.last_is_first == tableau.order:

            def step(x: Tensor, tableau: Tableau = tableau) -> Tensor:
                return integrate(lambda x, t: -x, x, 1.0, 1.5, steps=1, tableau=tableau).x

            other = agreement(other=lambda x, order=tableau.order: series(x, order))
            yield Claim(other, step, shape("b 2"), name=f"{tableau.name}, one step of decay")

    def there(x: Tensor) -> Tensor:
        return integrate(field, x, 0.0, 1.0, steps=3).x

    def by_hand(x: Tensor) -> Tensor:
        h = 1 / 3
        for i in range(3):
            t, half = (torch.tensor(i * h + part, dtype=torch.float64) for part in (0.0, h / 2))
            k1 = field(x, t)
            k2 = field(x + h / 2 * k1, half)
            k3 = field(x + h / 2 * k2, half)
            k4 = field(x + h * k3, t + h)
            x = x + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        return x

    yield Claim(agreement(other=by_hand), there, shape("b 3"), name="RK4, three steps")
    yield Claim(gradient(), there, transformed(torch.tanh, "b 3"), name="RK4")
    yield Claim(
        linearity(),
        lambda x: integrate(lambda x, t: x * t.to(x), x, 0.0, 1.0, steps=2).x,
        shape("b 3"),
        name="RK4 of a linear field",
    )


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _tableaus_claims()
    yield from _adaptive_claims()
    yield from _fixed_claims()
